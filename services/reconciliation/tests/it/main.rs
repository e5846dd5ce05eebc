//! The board over real gRPC: whom it asks, whom it answers, and what it says of those who are silent.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use likewise_devstack::TestStack;
use likewise_kit::config::{Common, Loader};
use likewise_kit::run::{self, Context, Program as _};
use likewise_proto::lanes::v1::lane_service_server::{LaneService, LaneServiceServer};
use likewise_proto::lanes::v1::{
    self as lanes, ConsumerWatermark, GetWatermarksRequest, GetWatermarksResponse, LaneWatermark, TailSourceRequest,
    TailSourceResponse,
};
use likewise_proto::reconciliation::v1::operations_service_client::OperationsServiceClient;
use likewise_proto::reconciliation::v1::{GetLagBoardRequest, GetLagBoardResponse};
use likewise_reconciliation::Reconciliation;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};

/// A service that publishes and consumes; its answers are the test's.
#[derive(Clone, Default)]
struct Told {
    answer: GetWatermarksResponse,
    asked: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl LaneService for Told {
    async fn get_watermarks(
        &self,
        request: Request<GetWatermarksRequest>,
    ) -> Result<Response<GetWatermarksResponse>, Status> {
        assert!(request.metadata().contains_key("authorization"), "we come with our token");
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(self.answer.clone()))
    }

    type TailSourceStream = tonic::codegen::BoxStream<TailSourceResponse>;

    async fn tail_source(&self, _: Request<TailSourceRequest>) -> Result<Response<Self::TailSourceStream>, Status> {
        Err(Status::unimplemented("nobody asks for it here"))
    }

    async fn register_consumer(
        &self,
        _: Request<lanes::RegisterConsumerRequest>,
    ) -> Result<Response<lanes::RegisterConsumerResponse>, Status> {
        Err(Status::unimplemented("nobody asks for it here"))
    }

    async fn report_progress(
        &self,
        _: Request<lanes::ReportProgressRequest>,
    ) -> Result<Response<lanes::ReportProgressResponse>, Status> {
        Err(Status::unimplemented("nobody asks for it here"))
    }

    async fn list_consumers(
        &self,
        _: Request<lanes::ListConsumersRequest>,
    ) -> Result<Response<lanes::ListConsumersResponse>, Status> {
        Err(Status::unimplemented("nobody asks for it here"))
    }

    async fn release_consumer(
        &self,
        _: Request<lanes::ReleaseConsumerRequest>,
    ) -> Result<Response<lanes::ReleaseConsumerResponse>, Status> {
        Err(Status::unimplemented("nobody asks for it here"))
    }

    async fn take_hold(&self, _: Request<lanes::TakeHoldRequest>) -> Result<Response<lanes::TakeHoldResponse>, Status> {
        Err(Status::unimplemented("nobody asks for it here"))
    }

    async fn release_hold(
        &self,
        _: Request<lanes::ReleaseHoldRequest>,
    ) -> Result<Response<lanes::ReleaseHoldResponse>, Status> {
        Err(Status::unimplemented("nobody asks for it here"))
    }
}

impl Told {
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        tokio::spawn(Server::builder().add_service(LaneServiceServer::new(self.clone())).serve_with_incoming(incoming));
        format!("http://{address}")
    }
}

/// An address that nobody listens on.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    drop(listener);
    format!("http://{address}")
}

async fn reconciliation(endpoints: &[(&str, &str)]) -> Channel {
    let config = TestStack::get().config().await;
    let variables = endpoints.iter().map(|(name, at)| (format!("LIKEWISE__ENDPOINTS__{name}"), (*at).to_owned()));
    let mut loader = Loader::new(Some(config.path()), variables);
    let common = Common::load(&mut loader);
    let settings = Reconciliation::settings(&mut loader);
    loader.finish().expect("a configuration in order");
    let common = common.unwrap();
    let bound = run::bind(&common.server).await.unwrap();
    let endpoint = bound.own_endpoint();
    let context = Context::new(common, "reconciliation").await.unwrap();
    let services = Reconciliation::start(context.clone(), settings.unwrap()).await.unwrap();
    tokio::spawn(async move { run::serve(context, bound, services).await });
    likewise_kit::clients::channel(&endpoint).unwrap()
}

async fn board(channel: &Channel, token: Option<String>) -> Result<GetLagBoardResponse, Status> {
    let mut request = Request::new(GetLagBoardRequest {});
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    Ok(OperationsServiceClient::new(channel.clone()).get_lag_board(request).await?.into_inner())
}

fn viewer() -> String {
    TestStack::get().keys().mint_operator("olga", &["viewer"])
}

fn lane(lane: &str, committed_seq: u64, published_seq: u64) -> LaneWatermark {
    LaneWatermark { lane: lane.to_owned(), committed_seq, published_seq, ..LaneWatermark::default() }
}

fn consumer(projection: &str, lane: &str, next_offset: u64) -> ConsumerWatermark {
    ConsumerWatermark {
        projection: projection.to_owned(),
        lane: lane.to_owned(),
        next_offset,
        status: "RUNNING".to_owned(),
        ..ConsumerWatermark::default()
    }
}

#[tokio::test]
async fn the_board_joins_publishers_and_consumers_of_different_services() {
    let command = Told {
        answer: GetWatermarksResponse { lanes: vec![lane("rel-00", 12, 10)], consumers: vec![] },
        ..Told::default()
    };
    let counter = Told {
        answer: GetWatermarksResponse { lanes: vec![], consumers: vec![consumer("counter.g1", "rel-00", 8)] },
        ..Told::default()
    };
    let (at_command, at_counter) = (command.serve().await, counter.serve().await);
    let endpoints = [
        ("COMMAND", &*at_command),
        ("CONTENT", &*at_command),
        ("COUNTER", &*at_counter),
        ("REVERSE_INDEX", &*at_counter),
    ];
    let channel = reconciliation(&endpoints).await;
    let board = board(&channel, Some(viewer())).await.unwrap();
    assert_eq!(board.unanswered, Vec::<String>::new());
    assert_eq!(board.lanes.len(), 1);
    let row = &board.lanes[0];
    assert_eq!((row.lane.as_str(), row.committed_seq, row.published_seq), ("rel-00", Some(12), Some(10)));
    assert_eq!((row.projections[0].projection.as_str(), row.projections[0].lag), ("counter.g1", Some(3)));
    assert_eq!(command.asked.load(Ordering::SeqCst), 1, "services at one address are asked once");
}

#[tokio::test]
async fn the_silent_are_named_and_what_they_know_is_absent_not_zero() {
    let counter = Told {
        answer: GetWatermarksResponse { lanes: vec![], consumers: vec![consumer("counter.g1", "rel-00", 8)] },
        ..Told::default()
    };
    let (at_counter, away) = (counter.serve().await, nobody().await);
    let endpoints =
        [("COMMAND", &*away), ("CONTENT", &*away), ("COUNTER", &*at_counter), ("REVERSE_INDEX", &*at_counter)];
    let board = board(&reconciliation(&endpoints).await, Some(viewer())).await.unwrap();
    assert_eq!(board.unanswered, ["command", "content"]);
    let row = &board.lanes[0];
    assert_eq!((row.committed_seq, row.published_seq, row.projections[0].lag), (None, None, None));
    assert_eq!(row.last_error, "its publisher did not answer");
}

#[tokio::test]
async fn only_operators_see_the_board() {
    let told = Told::default();
    let at = told.serve().await;
    let endpoints = [("COMMAND", &*at), ("CONTENT", &*at), ("COUNTER", &*at), ("REVERSE_INDEX", &*at)];
    let channel = reconciliation(&endpoints).await;
    let keys = TestStack::get().keys();
    let code = async |token| board(&channel, token).await.map_err(|status| status.code());
    assert_eq!(code(None).await.unwrap_err(), Code::Unauthenticated);
    assert_eq!(code(Some(keys.mint_user("lin"))).await.unwrap_err(), Code::PermissionDenied);
    assert_eq!(code(Some(keys.mint_service("query"))).await.unwrap_err(), Code::PermissionDenied);
    assert!(code(Some(viewer())).await.is_ok());
    assert_eq!(told.asked.load(Ordering::SeqCst), 1, "nobody else made it ask");
}
