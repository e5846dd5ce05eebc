//! A process ends in order, and within a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use likewise_kit::run::Error;
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::calls::Held;
use super::world::{World, bounded, until};

#[tokio::test]
async fn calls_in_flight_end_before_the_tasks_they_need() {
    let held = Held::default();
    let world = World::new().source(held.clone());
    let context = world.context().await;
    let seen_by_task = Arc::new(AtomicBool::new(false));
    let (stop, finished, seen) = (context.stop.clone(), Arc::clone(&held.finished), Arc::clone(&seen_by_task));
    context.spawn("needed", async move {
        stop.cancelled().await;
        seen.store(finished.load(Ordering::SeqCst), Ordering::SeqCst);
    });
    let server = world.serve_with(context.clone()).await;
    let call = async { server.call_as_service().await };
    let ending = async {
        bounded("the call", held.arrived.notified()).await;
        context.draining.cancel();
        // New callers are turned away while the old one is still being served.
        until("the port is closed", || TcpStream::connect(server.grpc), Result::is_err).await;
        assert!(!context.stop.is_cancelled());
        assert!(server.get("/readyz").await.1.contains("stopping"));
        held.go_on.notify_one();
    };
    let (answer, ()) = tokio::join!(call, ending);
    assert_eq!(answer.expect("served to its end").lanes[0].lane, "held");
    server.end().await.expect("ended in order");
    assert!(seen_by_task.load(Ordering::SeqCst), "the task ran until the handler was done");
}

#[tokio::test]
async fn a_call_that_never_ends_is_cut_off() {
    let held = Held::default();
    let server = World::new().setting("drain_ms_max = 100").source(held.clone()).serve().await;
    let call = async { server.call_as_service().await };
    let ending = async {
        bounded("the call", held.arrived.notified()).await;
        server.context.draining.cancel();
    };
    let (answer, ()) = tokio::join!(call, ending);
    answer.expect_err("cut off");
    server.end().await.expect("ended all the same");
}

#[tokio::test]
async fn a_task_that_does_not_stop_is_left_behind() {
    let world = World::new().setting("stop_ms_max = 100");
    let context = world.context().await;
    context.spawn("stubborn", std::future::pending());
    world.serve_with(context).await.end().await.expect("ended all the same");
}

#[tokio::test]
async fn streams_of_the_server_end_with_the_process() {
    let server = World::new().serve().await;
    let mut client = HealthClient::new(server.channel());
    let watched = client.watch(HealthCheckRequest::default()).await.expect("watching");
    let mut watched = watched.into_inner();
    let first = watched.message().await.expect("told").expect("told");
    assert_eq!(first.status, ServingStatus::Serving as i32);
    server.context.draining.cancel();
    let end = async {
        loop {
            match watched.message().await {
                Ok(Some(_)) => {}
                other => return other,
            }
        }
    };
    let status = bounded("the end of the stream", end).await.expect_err("told why");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    server.end().await.expect("ended");
}

#[tokio::test]
async fn a_background_task_that_panics_ends_the_process_in_order() {
    let world = World::new();
    let context = world.context().await;
    let server = world.serve_with(context.clone()).await;
    server.call_as_service().await.expect("serving");
    context.spawn("clumsy", async { panic!("on purpose") });
    let ended = bounded("the end", server.served).await.expect("no panic");
    assert!(matches!(ended, Err(Error::TaskPanicked("clumsy"))), "{ended:?}");
}

#[tokio::test]
async fn a_service_without_a_contract_is_refused_at_the_start() {
    let mut world = World::new();
    world.service.grpc_names.push("likewise.nowhere.v1.NoService");
    let server = world.serve().await;
    let ended = bounded("the refusal", server.served).await.expect("no panic");
    assert!(matches!(ended, Err(Error::UnknownService("likewise.nowhere.v1.NoService"))), "{ended:?}");
}
