//! What a client in any language meets: gRPC-Web on the same port, reflection in both versions, health.

use likewise_proto::command::v1::{SetLikeRequest, SetLikeResponse};
use likewise_proto::types::v1::LikeState;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{World, operation};

/// One gRPC-Web call over HTTP/1.1, spoken by hand: the answer's message and its trailers.
async fn grpc_web(address: &str, path: &str, token: Option<&str>, message: &[u8]) -> (Option<Vec<u8>>, String) {
    let mut body = vec![0u8];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let authorization = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/grpc-web+proto\r\naccept: application/grpc-web+proto\r\nx-grpc-web: 1\r\nconnection: close\r\n{authorization}content-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let split = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&answer[..split]).to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let body =
        if head.contains("transfer-encoding: chunked") { dechunk(&answer[split..]) } else { answer[split..].to_vec() };
    let (mut data, mut trailers, mut at) = (None, head, 0);
    while at + 5 <= body.len() {
        let length = u32::from_be_bytes(body[at + 1..at + 5].try_into().unwrap()) as usize;
        let frame = &body[at + 5..at + 5 + length];
        if body[at] & 0x80 == 0 {
            data = Some(frame.to_vec());
        } else {
            trailers.push_str(&String::from_utf8_lossy(frame).to_lowercase());
        }
        at += 5 + length;
    }
    (data, trailers)
}

fn dechunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap().trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        body.extend(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 2 + size + 2..];
    }
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_web_speaks_on_the_same_port() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    world.user("lin").await;
    let token = likewise_devstack::TestStack::get().keys().mint_user("lin");
    let message = SetLikeRequest {
        video_id: "V1".to_owned(),
        desired_state: LikeState::Liked.into(),
        operation_id: operation(),
        ..Default::default()
    };
    let path = "/likewise.command.v1.LikeCommandService/SetLike";
    let address = world.process.grpc().to_string();
    let (data, trailers) = grpc_web(&address, path, Some(&token), &message.encode_to_vec()).await;
    assert!(trailers.contains("grpc-status: 0") || trailers.contains("grpc-status:0"), "{trailers}");
    let answer = SetLikeResponse::decode(data.expect("a message").as_slice()).unwrap();
    assert_eq!(answer.current.unwrap().relation_version, 1);

    let (_, trailers) = grpc_web(&address, path, None, &message.encode_to_vec()).await;
    assert!(trailers.contains("grpc-status: 16") || trailers.contains("grpc-status:16"), "{trailers}");
}

/// One exchange of a reflection service: asks for the list, then for the file of each service on it.
macro_rules! listed_and_described {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;

        let mut client = ServerReflectionClient::new($channel);
        let mut ask = async |what: MessageRequest| {
            let request = ServerReflectionRequest { host: String::new(), message_request: Some(what) };
            let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
            answers.message().await.unwrap().unwrap().message_response.unwrap()
        };
        let MessageResponse::ListServicesResponse(list) = ask(MessageRequest::ListServices(String::new())).await else {
            panic!("a list")
        };
        let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
        for name in &names {
            let answer = ask(MessageRequest::FileContainingSymbol(name.clone())).await;
            assert!(matches!(answer, MessageResponse::FileDescriptorResponse(_)), "{name}: {answer:?}");
        }
        names
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_describes_everything_it_lists_in_both_versions() {
    let world = World::start().await;
    let names = listed_and_described!(v1, world.channel());
    for expected in ["command.v1.LikeCommandService", "query.v1.LikeQueryService", "lanes.v1.LaneService"] {
        assert!(names.contains(&format!("likewise.{expected}")), "{expected} in {names:?}");
    }
    assert_eq!(listed_and_described!(v1alpha, world.channel()), names);
}
