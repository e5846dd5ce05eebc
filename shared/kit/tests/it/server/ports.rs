//! Health, readiness, reflection and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use likewise_kit::run::ReadyCheck;
use tonic::Code;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};

use super::world::{Running, World, until};

async fn health(server: &Running, name: &str) -> Result<i32, Code> {
    let mut client = HealthClient::new(server.channel());
    let answer = client.check(HealthCheckRequest { service: name.to_owned() }).await;
    answer.map(|answer| answer.into_inner().status).map_err(|status| status.code())
}

fn check(ready: &Arc<AtomicBool>) -> ReadyCheck {
    let ready = Arc::clone(ready);
    Arc::new(move || {
        let ready = ready.load(Ordering::SeqCst);
        Box::pin(async move { if ready { Ok(()) } else { Err("is warming up".to_owned()) } })
    })
}

#[tokio::test]
async fn readiness_names_what_is_not_ready_and_health_follows() {
    let ready = Arc::new(AtomicBool::new(false));
    let server = World::new().ready("cache", check(&ready)).serve().await;
    let (status, body) = server.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains("test cache: is warming up"), "{body}");
    assert_eq!(server.get("/livez").await.0, 200, "liveness asks no dependency");
    let served = "likewise.query.v1.LikeQueryService";
    let not_serving = Ok(ServingStatus::NotServing as i32);
    until("the service is not serving", || health(&server, served), |told| *told == not_serving).await;

    ready.store(true, Ordering::SeqCst);
    assert_eq!(server.get("/readyz").await.0, 200);
    let serving = Ok(ServingStatus::Serving as i32);
    until("the service is serving", || health(&server, served), |told| *told == serving).await;
    until("the process is serving", || health(&server, ""), |told| *told == serving).await;
    assert_eq!(health(&server, "likewise.command.v1.LikeCommandService").await, Err(Code::NotFound));
    server.end().await.expect("ended");
}

#[tokio::test]
async fn reflection_lists_what_is_served_in_both_versions() {
    let server = World::new().serve().await;
    let expected = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "likewise.lanes.v1.LaneService",
        "likewise.query.v1.LikeQueryService",
    ];

    use v1::server_reflection_request::MessageRequest;
    use v1::server_reflection_response::MessageResponse;
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(server.channel());
    let ask = |question| v1::ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let symbol = "likewise.lanes.v1.LaneService".to_owned();
    let questions =
        [ask(MessageRequest::ListServices(String::new())), ask(MessageRequest::FileContainingSymbol(symbol))];
    let mut answers = client.server_reflection_info(tokio_stream::iter(questions)).await.expect("v1").into_inner();
    let mut next = async || answers.message().await.expect("an answer").expect("an answer").message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = next().await else { panic!("no list") };
    let mut names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    names.sort();
    assert_eq!(names, expected);
    let Some(MessageResponse::FileDescriptorResponse(file)) = next().await else { panic!("no file") };
    assert!(!file.file_descriptor_proto.is_empty());

    use v1alpha::server_reflection_request::MessageRequest as OldRequest;
    use v1alpha::server_reflection_response::MessageResponse as OldResponse;
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(server.channel());
    let question = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(OldRequest::ListServices(String::new())),
    };
    let answers = client.server_reflection_info(tokio_stream::iter([question])).await;
    let answer = answers.expect("v1alpha").into_inner().message().await.expect("an answer").expect("an answer");
    let Some(OldResponse::ListServicesResponse(list)) = answer.message_response else { panic!("no list") };
    assert_eq!(list.service.len(), expected.len());
    server.end().await.expect("ended");
}

#[tokio::test]
async fn metrics_count_calls_by_method_and_code_without_ids() {
    let server = World::new().serve().await;
    server.call_as_service().await.expect("answered");
    server.call(&[]).await.expect_err("no token");
    let (status, text) = server.get("/metrics").await;
    assert_eq!(status, 200);
    let method = "method=\"likewise.lanes.v1.LaneService/GetWatermarks\"";
    for line in [
        format!("likewise_grpc_calls_total{{{method},code=\"Ok\"}} 1"),
        format!("likewise_grpc_calls_total{{{method},code=\"Unauthenticated\"}} 1"),
        format!("likewise_grpc_call_seconds_count{{{method}}} 2"),
    ] {
        assert!(text.contains(&line), "{line} in {text}");
    }
    server.end().await.expect("ended");
}

#[tokio::test]
async fn the_port_file_appears_once_the_process_serves() {
    let world = World::new();
    let path = world.file("ports.json");
    let world = world.setting(&format!("port_file = {:?}", path.display().to_string()));
    let server = world.serve().await;
    let read = || async { std::fs::read_to_string(&path).unwrap_or_default() };
    until("the port file is there", read, |text| !text.is_empty()).await;
    let ports: serde_json::Value = serde_json::from_str(&read().await).expect("JSON");
    assert_eq!(ports["grpc"], server.grpc.to_string());
    assert_eq!(ports["admin"], server.admin.to_string());
    server.end().await.expect("ended");
}
