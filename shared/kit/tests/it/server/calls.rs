//! Limits and failures of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use likewise_kit::deadline;
use likewise_kit::errors::reason;
use likewise_kit::lanes::WatermarkSource;
use likewise_proto::lanes::v1::lane_service_client::LaneServiceClient;
use likewise_proto::lanes::v1::{GetWatermarksRequest, GetWatermarksResponse, LaneWatermark};
use tokio::sync::Notify;
use tonic::{Code, Request};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_types::StatusExt as _;

use super::world::{World, bounded};

/// Answers when it is let go on.
#[derive(Clone, Default)]
pub(crate) struct Held {
    pub(crate) arrived: Arc<Notify>,
    pub(crate) go_on: Arc<Notify>,
    pub(crate) finished: Arc<AtomicBool>,
}

impl WatermarkSource for Held {
    fn lanes(&self) -> BoxFuture<'_, Vec<LaneWatermark>> {
        Box::pin(async {
            self.arrived.notify_one();
            self.go_on.notified().await;
            self.finished.store(true, Ordering::SeqCst);
            vec![LaneWatermark { lane: "held".to_owned(), ..LaneWatermark::default() }]
        })
    }
}

/// Panics the first time.
#[derive(Default)]
struct Clumsy(AtomicUsize);

impl WatermarkSource for Clumsy {
    fn lanes(&self) -> BoxFuture<'_, Vec<LaneWatermark>> {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "clumsy on purpose");
        Box::pin(async { Vec::new() })
    }
}

/// Tells how much time is left for the call, as an epoch in milliseconds.
struct Clock;

impl WatermarkSource for Clock {
    fn lanes(&self) -> BoxFuture<'_, Vec<LaneWatermark>> {
        Box::pin(async {
            let left = deadline::remaining().map_or(0, |left| left.as_millis());
            vec![LaneWatermark { epoch: u64::try_from(left).expect("soon"), ..LaneWatermark::default() }]
        })
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends_with_deadline_exceeded() {
    let server = World::new().setting("deadline_ms_max = 100").source(Held::default()).serve().await;
    let status = server.call_as_service().await.expect_err("too long");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(reason(&status).as_deref(), Some("DEADLINE_EXCEEDED"));
    server.end().await.expect("ended");
}

#[tokio::test]
async fn a_message_that_cannot_be_read_and_a_method_nobody_has_are_the_callers_fault() {
    let server = World::new().serve().await;
    let call = async |path: &'static str, bytes: Vec<u8>| {
        let mut client = tonic::client::Grpc::new(server.channel());
        client.ready().await.expect("connected");
        let path = http::uri::PathAndQuery::from_static(path);
        // Bytes as the first field, where the contract has text.
        let codec = tonic_prost::ProstCodec::<Vec<u8>, HealthCheckResponse>::default();
        let status = client.unary(Request::new(bytes), path, codec).await.expect_err("refused");
        (status.code(), reason(&status).unwrap_or_default())
    };
    let (malformed, unknown) = ("MESSAGE_MALFORMED".to_owned(), "METHOD_UNKNOWN".to_owned());
    assert_eq!(call("/grpc.health.v1.Health/Check", vec![0xff, 0xfe]).await, (Code::InvalidArgument, malformed));
    assert_eq!(call("/grpc.health.v1.Health/Chuck", Vec::new()).await, (Code::Unimplemented, unknown.clone()));
    assert_eq!(call("/nobody.Here/Check", Vec::new()).await, (Code::Unimplemented, unknown));
    server.end().await.expect("ended");
}

#[tokio::test]
async fn a_handler_knows_its_time_and_the_shorter_deadline_wins() {
    let server = World::new().setting("deadline_ms_max = 30000").source(Clock).serve().await;
    let left = |answer: GetWatermarksResponse| answer.lanes[0].epoch;
    assert!((20_000..=30_000).contains(&left(server.call_as_service().await.expect("answered"))));
    for (asked, least, most) in [(15, 5_000, 15_000), (3600, 20_000, 30_000)] {
        let mut request = Request::new(GetWatermarksRequest {});
        request.set_timeout(Duration::from_secs(asked));
        let bearer = format!("Bearer {}", server.service_token());
        request.metadata_mut().insert("authorization", bearer.parse().expect("a header"));
        let mut client = LaneServiceClient::new(server.channel());
        let left = left(client.get_watermarks(request).await.expect("answered").into_inner());
        assert!((least..=most).contains(&left), "{asked} s asked, {left} ms left");
    }
    server.end().await.expect("ended");
}

#[tokio::test]
async fn what_is_too_much_is_refused_at_once_and_health_still_answers() {
    let held = Held::default();
    let server = World::new().setting("calls_max = 1").source(held.clone()).serve().await;
    let first = async { server.call_as_service().await };
    let second = async {
        bounded("the first call", held.arrived.notified()).await;
        let refused = server.call_as_service().await.expect_err("no room");
        let health = HealthClient::new(server.channel()).check(HealthCheckRequest::default()).await;
        held.go_on.notify_one();
        (refused, health)
    };
    let (first, (refused, health)) = tokio::join!(first, second);
    assert_eq!(first.expect("answered").lanes[0].lane, "held");
    assert_eq!((refused.code(), reason(&refused).as_deref()), (Code::ResourceExhausted, Some("OVERLOADED")));
    assert!(refused.get_details_retry_info().is_some_and(|info| info.retry_delay.is_some()));
    health.expect("health answers");
    // The room is free again.
    held.go_on.notify_one();
    server.call_as_service().await.expect("answered");
    server.end().await.expect("ended");
}

#[tokio::test]
async fn a_panic_fails_its_call_alone() {
    let server = World::new().source(Clumsy::default()).serve().await;
    let status = server.call_as_service().await.expect_err("a panic");
    assert_eq!((status.code(), reason(&status).as_deref()), (Code::Internal, Some("INTERNAL")));
    assert!(!status.message().contains("clumsy"), "our words only: {}", status.message());
    server.call_as_service().await.expect("the process lives");
    server.end().await.expect("ended");
}

/// A request with a field that the contract does not have.
#[derive(Clone, PartialEq, prost::Message)]
struct Stuffed {
    #[prost(bytes = "vec", tag = "99")]
    stuffing: Vec<u8>,
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_by_name() {
    let server = World::new().serve().await;
    let send = async |bytes: usize| {
        let mut grpc = tonic::client::Grpc::new(server.channel());
        grpc.ready().await.expect("ready");
        let mut request = Request::new(Stuffed { stuffing: vec![7; bytes] });
        let bearer = format!("Bearer {}", server.service_token());
        request.metadata_mut().insert("authorization", bearer.parse().expect("a header"));
        let codec = tonic_prost::ProstCodec::<Stuffed, GetWatermarksResponse>::default();
        let path = http::uri::PathAndQuery::from_static("/likewise.lanes.v1.LaneService/GetWatermarks");
        bounded("an answer", grpc.unary(request, path, codec)).await
    };
    send(250 * 1024).await.expect("within the limit");
    let status = send(300 * 1024).await.expect_err("above the limit");
    assert_eq!((status.code(), reason(&status).as_deref()), (Code::InvalidArgument, Some("REQUEST_TOO_LARGE")));
    server.end().await.expect("ended");
}

#[tokio::test]
async fn a_method_that_nobody_serves_is_unimplemented() {
    let server = World::new().serve().await;
    let mut client =
        likewise_proto::query::v1::like_query_service_client::LikeQueryServiceClient::new(server.channel());
    let status = client.batch_get_counts(likewise_proto::query::v1::BatchGetCountsRequest::default()).await;
    assert_eq!(status.expect_err("nobody serves it").code(), Code::Unimplemented);
    server.end().await.expect("ended");
}
