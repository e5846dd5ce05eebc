//! What other services and operators are answered, through the real server on a real port.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use likewise_counter::Counter;
use likewise_devstack::TestStack;
use likewise_kit::errors;
use likewise_kit::run::{Context, Program as _, bind, serve};
use likewise_proto::convert::parse_timestamp;
use likewise_proto::counter::v1 as wire;
use likewise_proto::counter::v1::count_service_client::CountServiceClient;
use likewise_proto::counter::v1::counter_admin_service_client::CounterAdminServiceClient;
use likewise_proto::lanes::v1::lane_service_server::{LaneService, LaneServiceServer};
use likewise_proto::lanes::v1::{
    self as lanes, GetWatermarksRequest, GetWatermarksResponse, LaneWatermark, TailSourceRequest, TailSourceResponse,
};
use time::OffsetDateTime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::world::{Feed, VIDEO, World, until};

/// Stands for command: tells what the test says is committed.
#[derive(Clone, Default)]
pub(crate) struct Source {
    committed: Arc<Mutex<BTreeMap<String, u64>>>,
    asked: Arc<AtomicU64>,
}

impl Source {
    /// Serves on a free port; answers the endpoint.
    pub(crate) async fn serve(&self, lanes: u16) -> String {
        for shard in 0..lanes {
            self.commit(shard, 0);
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let served = tonic::transport::Server::builder().add_service(LaneServiceServer::new(self.clone()));
        tokio::spawn(served.serve_with_incoming(incoming));
        format!("http://{address}")
    }

    pub(crate) fn commit(&self, shard: u16, seq: u64) {
        self.committed.lock().expect("not poisoned").insert(format!("rel-{shard:02}"), seq);
    }
}

#[tonic::async_trait]
impl LaneService for Source {
    async fn get_watermarks(
        &self,
        _: Request<GetWatermarksRequest>,
    ) -> Result<Response<GetWatermarksResponse>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let committed = self.committed.lock().expect("not poisoned").clone();
        let lanes = committed
            .into_iter()
            .map(|(lane, committed_seq)| LaneWatermark { lane, committed_seq, ..LaneWatermark::default() })
            .collect();
        Ok(Response::new(GetWatermarksResponse { lanes, consumers: Vec::new() }))
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

/// The service as a program runs it, in this process.
pub(crate) struct Served {
    channel: Channel,
    source: Source,
    draining: CancellationToken,
    task: JoinHandle<()>,
}

impl Served {
    /// Starts the roles that the world's settings switch on.
    pub(crate) async fn start(world: &World) -> Self {
        let source = Source::default();
        let mut common = world.common.clone();
        common.endpoints.command = source.serve(world.settings.lanes).await;
        let bound = bind(&common.server).await.expect("ports");
        let channel = likewise_kit::clients::channel(&format!("http://{}", bound.grpc)).expect("an endpoint");
        let context = Context::new(common, Counter::NAME).await.expect("keys and addresses");
        let draining = context.draining.clone();
        let services = Counter::start(context.clone(), world.settings.clone()).await.expect("the counter starts");
        let task = tokio::spawn(async move { serve(context, bound, services).await.expect("served") });
        Self { channel, source, draining, task }
    }

    pub(crate) async fn end(self) {
        self.draining.cancel();
        self.task.await.expect("ends in order");
    }

    pub(crate) async fn counts(&self, videos: &[&str]) -> Result<wire::BatchGetCountsResponse, Status> {
        let video_ids = videos.iter().map(|video| (*video).to_owned()).collect();
        let request = as_service(wire::BatchGetCountsRequest { video_ids });
        CountServiceClient::new(self.channel.clone()).batch_get_counts(request).await.map(Response::into_inner)
    }

    async fn progress(&self) -> wire::Progress {
        let request = as_service(wire::GetProgressRequest {});
        let answer = CountServiceClient::new(self.channel.clone()).get_progress(request).await;
        answer.expect("progress").into_inner().progress.expect("progress")
    }

    async fn describe(&self, video: &str) -> Result<wire::DescribeVideoResponse, Status> {
        let request = as_viewer(wire::DescribeVideoRequest { video_id: video.to_owned() });
        CounterAdminServiceClient::new(self.channel.clone()).describe_video(request).await.map(Response::into_inner)
    }
}

fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
    request
}

fn as_service<T>(message: T) -> Request<T> {
    with_token(message, &TestStack::get().keys().mint_service("query"))
}

fn as_viewer<T>(message: T) -> Request<T> {
    with_token(message, &TestStack::get().keys().mint_operator("opal", &["viewer"]))
}

/// The aggregator and the answers of one process, fed by the test.
async fn answering() -> (World, Feed, Served) {
    let world = World::with(|settings| {
        settings.projector = false;
        settings.watermark_poll_ms = 20;
    })
    .await;
    let feed = world.fed().await;
    let served = Served::start(&world).await;
    (world, feed, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_come_in_request_order_with_the_progress_that_covers_them() {
    let (world, mut feed, served) = answering().await;
    feed.apply("lin+1 mei+1 ada+1@other").await;
    feed.apply_on(2, "bo+1").await;
    world.checkpoint(&feed).await;
    let asked = ["other", VIDEO, "nobody", VIDEO];
    let covered = |answer: &Result<wire::BatchGetCountsResponse, Status>| {
        answer
            .as_ref()
            .is_ok_and(|answer| answer.progress.as_ref().is_some_and(|progress| progress.next_offsets.len() == 2))
    };
    let answer = until("counts", || served.counts(&asked), covered).await.expect("counts");
    let told: Vec<(&str, u64)> = answer.counts.iter().map(|count| (count.video_id.as_str(), count.display)).collect();
    assert_eq!(told, [("other", 1), (VIDEO, 3), ("nobody", 0), (VIDEO, 3)]);
    let progress = answer.progress.expect("progress");
    let offsets: Vec<(&str, u64)> = progress.next_offsets.iter().map(|next| (next.lane.as_str(), next.seq)).collect();
    assert_eq!(offsets, [("rel-00", 4), ("rel-02", 2)]);
    assert_eq!((progress.generation, progress.incomplete), (1, false));
    assert!(answer.counts[1].snapshot_id.starts_with("g1.p"), "{:?}", answer.counts[1]);
    assert_eq!(answer.counts[2].snapshot_id, "g1.p0");
    assert!(answer.counts.iter().all(|count| count.raw == count.display && !count.approximate));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn freshness_shows_a_backlog_anywhere_and_its_end() {
    let (world, mut feed, served) = answering().await;
    // Nothing was ever committed: everything is covered.
    let covered = |progress: &wire::Progress| progress.covered_until.is_some();
    until("freshness", || served.progress(), covered).await;
    // Two are committed, one is here: nothing after their commit is covered, however often the source is asked.
    served.source.commit(1, 2);
    let committed_at = OffsetDateTime::now_utc();
    feed.apply_on(1, "lin+1").await;
    world.checkpoint(&feed).await;
    let one =
        |progress: &wire::Progress| progress.next_offsets.iter().any(|next| next.lane == "rel-01" && next.seq == 2);
    until("the first message", || served.progress(), one).await;
    let asked = served.source.asked.load(Ordering::SeqCst);
    let later = async || {
        served.progress().await;
        served.source.asked.load(Ordering::SeqCst)
    };
    until("questions to the source", later, |now| *now > asked + 3).await;
    assert!(covered_until(&served.progress().await) <= committed_at);

    feed.apply_on(1, "mei+1").await;
    world.checkpoint(&feed).await;
    until("freshness", || served.progress(), |progress| covered_until(progress) > committed_at).await;
    // The same holds for durable rows.
    let rows = served.counts(&[VIDEO]).await.expect("counts").progress.expect("progress");
    assert!(covered_until(&rows) > committed_at);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_reader_after_a_quiet_time_is_told_how_fresh_the_number_is() {
    let (_world, _feed, served) = answering().await;
    // Nobody has read anything; the source is watched all the same.
    let asked = async || served.source.asked.load(Ordering::SeqCst);
    until("questions to the source", asked, |asked| *asked > 3).await;
    assert!(served.progress().await.covered_until.is_some());
    served.end().await;
}

fn covered_until(progress: &wire::Progress) -> OffsetDateTime {
    progress.covered_until.as_ref().and_then(parse_timestamp).expect("shown once")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_generation_is_told_as_approximate() {
    let (world, mut feed, served) = answering().await;
    let mut batch = feed.messages(0, "lin+1 mei+1");
    batch[1].payload = bytes::Bytes::from_static(b"\x01");
    feed.send(0, &batch).await.expect("passed");
    world.checkpoint(&feed).await;
    let counted = |answer: &Result<wire::BatchGetCountsResponse, Status>| {
        answer.as_ref().is_ok_and(|answer| answer.counts[0].display == 1)
    };
    let answer = until("the count", || served.counts(&[VIDEO, "nobody"]), counted).await.expect("counts");
    assert!(answer.counts.iter().all(|count| count.approximate), "an unknown relation may be of any video");
    assert!(answer.progress.expect("progress").incomplete);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_a_count_taken_apart() {
    let (world, mut feed, served) = answering().await;
    let story: Vec<String> = (0..30).map(|user| format!("user{user}+1")).collect();
    feed.apply(&story.join(" ")).await;
    feed.apply("user3-2").await;
    world.checkpoint(&feed).await;
    let shown = |answer: &Result<wire::DescribeVideoResponse, Status>| {
        answer.as_ref().is_ok_and(|answer| answer.display.as_ref().is_some_and(|row| row.display == 29))
    };
    let described = until("the video", || served.describe(VIDEO), shown).await.expect("described");
    assert_eq!((described.sum, described.liked_relations), (29, 29));
    let numbers: Vec<u32> = described.vbuckets.iter().map(|bucket| bucket.vbucket).collect();
    assert!(numbers.is_sorted() && numbers.len() > 20, "{numbers:?}");
    for bucket in &described.vbuckets {
        assert_eq!(bucket.partition, format!("p{:02}", bucket.vbucket % 2));
        assert!(bucket.route_epoch == 1 && bucket.bucket_version > 0 && bucket.updated_at.is_some());
    }
    let untouched = served.describe("nobody").await.expect("described");
    assert_eq!((untouched.vbuckets.len(), untouched.display), (0, None));

    let request = as_viewer(wire::DescribeGenerationRequest {});
    let answer = CounterAdminServiceClient::new(served.channel.clone()).describe_generation(request).await;
    let generation = answer.expect("described").into_inner();
    let space = generation.bucket_space.expect("a bucket space");
    assert_eq!(
        (space.version, space.hash_algorithm.as_str(), space.key_encoding.as_str(), space.vbuckets),
        (1, "xxh64", "lp32be", 256)
    );
    assert_eq!((generation.generation, generation.manifest_id), (1, 1));
    assert_eq!(generation.vbuckets_per_partition, [("p00".to_owned(), 128), ("p01".to_owned(), 128)].into());
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_and_requests_that_are_not_allowed_are_told_why() {
    let (_world, _feed, served) = answering().await;
    let keys = TestStack::get().keys();
    let mut client = CountServiceClient::new(served.channel.clone());
    let ask = || wire::BatchGetCountsRequest { video_ids: vec![VIDEO.to_owned()] };
    for (token, code, reason) in [
        (None, Code::Unauthenticated, "TOKEN_MISSING"),
        (Some(keys.mint_forged("lin")), Code::Unauthenticated, "TOKEN_INVALID"),
        (Some(keys.mint_expired("lin")), Code::Unauthenticated, "TOKEN_EXPIRED"),
        (Some(keys.mint_user("lin")), Code::PermissionDenied, "ROLE_REQUIRED"),
    ] {
        let request = token.map_or_else(|| Request::new(ask()), |token| with_token(ask(), &token));
        let status = client.batch_get_counts(request).await.expect_err(reason);
        assert_eq!((status.code(), errors::reason(&status).as_deref()), (code, Some(reason)));
    }
    let described = CounterAdminServiceClient::new(served.channel.clone())
        .describe_video(as_service(wire::DescribeVideoRequest { video_id: VIDEO.to_owned() }))
        .await;
    assert_eq!(described.expect_err("an operator's").code(), Code::PermissionDenied);

    let many = vec!["v"; 201];
    for (videos, field) in [(&[][..], "video_ids"), (&many[..], "video_ids"), (&["ok", "not ok"][..], "video_ids[1]")] {
        let status = served.counts(videos).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(errors::reason(&status).as_deref(), Some("INVALID_ARGUMENT"));
        assert!(status.message().contains(field), "{}", status.message());
    }
    assert_eq!(served.describe("no id!").await.expect_err("refused").code(), Code::InvalidArgument);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_is_unavailable_and_named() {
    let (world, _feed, served) = answering().await;
    served.counts(&[VIDEO]).await.expect("counts");
    let name = world.config.database.name().to_owned();
    let other = TestStack::get().database().await;
    let admin = other.connect().await.expect("another database");
    admin.batch_execute(&format!("alter database \"{name}\" with allow_connections false")).await.expect("closed");
    let text = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'");
    admin.query(&text, &[]).await.expect("ended");
    let away = |answer: &Result<wire::BatchGetCountsResponse, Status>| {
        answer.as_ref().is_err_and(|status| {
            status.code() == Code::Unavailable
                && errors::reason(status).as_deref() == Some("COUNTER_DATABASE_UNAVAILABLE")
        })
    };
    until("unavailable", || served.counts(&[VIDEO]), away).await.expect_err("away");
    admin.batch_execute(&format!("alter database \"{name}\" with allow_connections true")).await.expect("opened");
    until("counts again", || served.counts(&[VIDEO]), Result::is_ok).await.expect("counts");
    served.end().await;
}
