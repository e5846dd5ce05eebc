//! gRPC-Web over HTTP/1.1, as a browser sends it.

use super::calls::Held;
use super::world::{Running, World, http1};

const METHOD: &str = "/likewise.lanes.v1.LaneService/GetWatermarks";
/// An empty message.
const EMPTY: [u8; 5] = [0; 5];

async fn post(server: &Running, headers: &str) -> (u16, String) {
    let head = format!(
        "POST {METHOD} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/grpc-web+proto\r\n\
         Content-Length: {}\r\n{headers}\r\n",
        EMPTY.len()
    );
    http1(server.grpc, &head, &EMPTY).await
}

#[tokio::test]
async fn grpc_web_works_on_the_same_port_and_refusals_are_proper_ones() {
    let server = World::new().serve().await;
    let (status, answer) = post(&server, "").await;
    assert_eq!(status, 200);
    assert!(answer.contains("grpc-status: 16") && answer.contains("application/grpc-web"), "{answer}");
    let bearer = format!("Authorization: Bearer {}\r\n", server.service_token());
    let (status, answer) = post(&server, &bearer).await;
    assert_eq!(status, 200);
    assert!(answer.contains("grpc-status:0"), "{answer}");
    server.end().await.expect("ended");
}

#[tokio::test]
async fn the_deadline_of_the_caller_is_kept_by_the_server() {
    let server = World::new().source(Held::default()).serve().await;
    let headers = format!("Authorization: Bearer {}\r\ngrpc-timeout: 100m\r\n", server.service_token());
    let (_, answer) = post(&server, &headers).await;
    assert!(answer.contains("grpc-status: 4"), "{answer}");
    let (_, answer) = post(&server, "grpc-timeout: soon\r\n").await;
    assert!(answer.contains("grpc-status: 3"), "{answer}");
    server.end().await.expect("ended");
}

#[tokio::test]
async fn browsers_are_allowed_from_the_named_origins_only() {
    let server = World::new().setting("cors_origins = [\"https://likes.example\"]").serve().await;
    let preflight = async |origin: &str| {
        let head = format!(
            "OPTIONS {METHOD} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: {origin}\r\n\
             Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,x-grpc-web\r\n\r\n"
        );
        http1(server.grpc, &head, b"").await.1.to_lowercase()
    };
    let allowed = preflight("https://likes.example").await;
    assert!(allowed.contains("access-control-allow-origin: https://likes.example"), "{allowed}");
    assert!(allowed.contains("access-control-allow-headers: authorization,x-grpc-web"), "{allowed}");
    assert!(!preflight("https://mallory.example").await.contains("access-control-allow-origin"));
    let (_, answer) = post(&server, "Origin: https://likes.example\r\n").await;
    assert!(answer.to_lowercase().contains("access-control-expose-headers: grpc-status"), "{answer}");
    server.end().await.expect("ended");
}

#[tokio::test]
async fn plain_http_is_no_way_in() {
    let server = World::new().serve().await;
    let head = format!("GET {METHOD} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(http1(server.grpc, &head, b"").await.0, 400);
    server.end().await.expect("ended");
}
