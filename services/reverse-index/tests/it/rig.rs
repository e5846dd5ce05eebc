//! What the tests stand on: a fresh installation, a notation for events, and what is stored afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use likewise_devstack::{DevKeys, TestConfig, TestStack};
use likewise_domain::id::{OperationId, UserId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::relation::{Cause, Hidden, LikeState, RelationChanged};
use likewise_kit::config::{Common, Loader};
use likewise_kit::lanes::{ApplyError, Lane, LaneMessage, Projection as _};
use likewise_kit::run::{self, Context, Program as _};
use likewise_proto::convert::{RELATION_CHANGED, relation_changed};
use likewise_proto::reverse_index::v1::reverse_index_service_client::ReverseIndexServiceClient;
use likewise_proto::reverse_index::v1::{Frontier, ListLikersRequest, ListLikersResponse};
use likewise_reverse_index::bootstrap::{Error, Opened};
use likewise_reverse_index::consumer::ReverseProjection;
use likewise_reverse_index::metrics::Metrics;
use likewise_reverse_index::{ReverseIndex, Settings};
use prost::Message as _;
use time::OffsetDateTime;
use tokio_postgres::Client;
use tonic::transport::Channel;
use tonic::{Request, Status};
use uuid::Uuid;

/// Longest wait for anything; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// The video of an event that names none.
pub(crate) const VIDEO: &str = "V9001";
/// Second 0 of the tests' time.
const BEGIN: i64 = 1_700_000_000;

/// Waits until `look` answers something, and shows what it saw last when it does not.
pub(crate) async fn eventually<T, S: Debug>(what: &str, mut look: impl AsyncFnMut() -> Result<T, S>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < end, "{what}: last seen {seen:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Reads the settings of a test's configuration; `changes` are variables of the environment without their prefix.
pub(crate) fn settings(config: &TestConfig, changes: &[(&str, &str)]) -> (Common, Settings) {
    let variables = changes.iter().map(|(name, value)| (format!("LIKEWISE__{name}"), (*value).to_owned()));
    let mut loader = Loader::new(Some(config.path()), variables);
    let common = Common::load(&mut loader);
    let settings = ReverseIndex::settings(&mut loader);
    loader.finish().expect("a configuration in order");
    (common.expect("common settings"), settings.expect("settings"))
}

/// Opens, or makes, what a start with these settings opens or makes.
pub(crate) async fn open(config: &TestConfig, changes: &[(&str, &str)]) -> Result<Opened, Error> {
    let (common, settings) = settings(config, changes);
    let context = Context::new(common, "reverse-index").await.expect("a context");
    likewise_reverse_index::migrate(&context, &settings).await
}

/// A fresh installation with a projection that owns every lane, and no service.
pub(crate) struct Rig {
    pub(crate) config: TestConfig,
    pub(crate) sql: Client,
    pub(crate) projection: ReverseProjection,
    pub(crate) parts: usize,
    /// Next offset by shard.
    next: BTreeMap<u16, u64>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    pub(crate) async fn with(changes: &[(&str, &str)]) -> Self {
        let config = TestStack::get().config().await;
        let opened = open(&config, changes).await.expect("opened");
        let sql = config.database.connect().await.expect("connected");
        let (lanes, parts) = (opened.lanes, opened.parts.len());
        let projection = projection(opened);
        for shard in 0..lanes {
            projection.fence(&lane(shard), 1).await.expect("owned");
        }
        Self { config, sql, projection, parts, next: BTreeMap::new() }
    }

    /// Messages of `shard` at its next offsets.
    pub(crate) fn messages(&mut self, shard: u16, story: &str) -> Vec<LaneMessage> {
        let next = self.next.entry(shard).or_insert(1);
        let messages: Vec<_> =
            (*next..).zip(story.split_whitespace()).map(|(seq, word)| message(shard, seq, word)).collect();
        *next += messages.len() as u64;
        messages
    }

    /// Applies a story as one batch of lane 0.
    pub(crate) async fn apply(&mut self, story: &str) {
        let batch = self.messages(0, story);
        self.send(&batch).await.expect("applied");
    }

    /// Sends a batch of lane 0 as its owner.
    pub(crate) async fn send(&self, batch: &[LaneMessage]) -> Result<(), ApplyError> {
        self.projection.apply(&lane(0), 1, batch).await
    }

    /// What is stored of every relation, over all parts: `lin+11=20` or `lin-12`, with `@video` unless it is the usual.
    /// Every LIKED relation has exactly one order row, at its time; nobody else has any.
    pub(crate) async fn stored(&self) -> BTreeSet<String> {
        stored(&self.sql, self.parts).await
    }

    pub(crate) async fn check(&self, expected: &str) {
        let expected: BTreeSet<String> = expected.split_whitespace().map(str::to_owned).collect();
        assert_eq!(self.stored().await, expected);
    }
}

pub(crate) fn projection(opened: Opened) -> ReverseProjection {
    let metrics = Metrics::new(&likewise_kit::metrics::Metrics::new());
    ReverseProjection::new(Arc::new(opened.contract), opened.metadata, opened.parts, metrics)
}

/// As [`Rig::stored`].
pub(crate) async fn stored(sql: &Client, parts: usize) -> BTreeSet<String> {
    let (mut relations, mut order) = (BTreeSet::new(), Vec::new());
    let mut liked = Vec::new();
    for part in 0..parts {
        let text = format!(
            "select video_id, user_id, version, current_liked_at, reverse_shard from reverse_p{part:02}.like_reverse_projection"
        );
        for row in sql.query(&text, &[]).await.expect("projection rows") {
            let (video, user, version): (String, String, i64) = (row.get(0), row.get(1), row.get(2));
            let at: Option<OffsetDateTime> = row.get(3);
            let elsewhere = if video == VIDEO { String::new() } else { format!("@{video}") };
            relations.insert(at.map_or_else(
                || format!("{user}-{version}{elsewhere}"),
                |at| format!("{user}+{version}={}{elsewhere}", at.unix_timestamp() - BEGIN),
            ));
            if let Some(at) = at {
                liked.push((part, video, row.get::<_, i32>(4), at, user));
            }
        }
        let text =
            format!("select video_id, reverse_shard, liked_at, user_id from reverse_p{part:02}.like_reverse_order");
        for row in sql.query(&text, &[]).await.expect("order rows") {
            order.push((part, row.get(0), row.get::<_, i32>(1), row.get::<_, OffsetDateTime>(2), row.get(3)));
        }
    }
    order.sort();
    liked.sort();
    assert_eq!(order, liked, "one order row per LIKED relation, at its time");
    relations
}

pub(crate) const fn lane(shard: u16) -> Lane {
    Lane { class: "rel", shard }
}

/// `lin+11` is user lin, LIKED at version 11 and second 11; `lin-12` UNLIKED at version 12; `lin+1=7` happened at second 7;
/// `lin+1@b` is about video b.
pub(crate) fn event(shard: u16, seq: u64, word: &str) -> RelationChanged {
    let (change, video) = word.split_once('@').unwrap_or((word, VIDEO));
    let (change, second) = change.split_once('=').map_or((change, None), |(change, second)| (change, Some(second)));
    let sign = change.find(['+', '-']).expect("a sign");
    let state = if change.as_bytes()[sign] == b'+' { LikeState::Liked } else { LikeState::Unliked };
    let version: u64 = change[sign + 1..].parse().expect("a version");
    let second: i64 = second.map_or(version.cast_signed(), |second| second.parse().expect("a second"));
    RelationChanged {
        event_id: Uuid::new_v4(),
        user_id: UserId::parse(&change[..sign]).expect("a user"),
        video_id: VideoId::parse(video).expect("a video"),
        version,
        state,
        previous_state: LikeState::Unliked,
        shard,
        epoch: 0,
        seq,
        state_changed_at: OffsetDateTime::from_unix_timestamp(BEGIN + second).expect("a time"),
        operation_id: OperationId::parse("op").expect("an operation"),
        cause: Cause::User,
        hidden: Hidden::default(),
    }
}

pub(crate) fn message(shard: u16, seq: u64, word: &str) -> LaneMessage {
    let event = event(shard, seq, word);
    LaneMessage {
        lane: lane(shard),
        offset: Offset { epoch: 0, seq },
        event_id: event.event_id,
        schema: RELATION_CHANGED.to_owned(),
        payload: relation_changed(&event).encode_to_vec().into(),
        published_at: OffsetDateTime::now_utc(),
    }
}

pub(crate) fn keys() -> &'static DevKeys {
    TestStack::get().keys()
}

/// A whole service in this process.
pub(crate) struct Running {
    pub(crate) context: Context,
    channel: Channel,
}

impl Running {
    /// Starts it with changed settings.
    pub(crate) async fn start(config: &TestConfig, changes: &[(&str, &str)]) -> Self {
        let (common, settings) = settings(config, changes);
        let bound = run::bind(&common.server).await.expect("bound");
        let endpoint = bound.own_endpoint();
        let context = Context::new(common, "reverse-index").await.expect("a context");
        let service = likewise_reverse_index::start(context.clone(), settings).await.expect("started");
        let serving = context.clone();
        tokio::spawn(async move { run::serve(serving, bound, vec![service]).await.expect("served") });
        let channel = likewise_kit::clients::channel(&endpoint).expect("an endpoint");
        Self { context, channel }
    }

    /// A call with a token of the test's choice.
    pub(crate) async fn call(
        &self,
        token: Option<&str>,
        message: ListLikersRequest,
    ) -> Result<ListLikersResponse, Status> {
        let mut request = Request::new(message);
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
        }
        let mut client = ReverseIndexServiceClient::new(self.channel.clone());
        client.list_likers(request).await.map(tonic::Response::into_inner)
    }

    /// A page for a viewer, as the query service asks for it; `""` is nobody in particular.
    pub(crate) async fn page(
        &self,
        viewer: &str,
        page_size: u32,
        after: Option<Frontier>,
    ) -> Result<ListLikersResponse, Status> {
        let message = ListLikersRequest { video_id: VIDEO.to_owned(), viewer_id: viewer.to_owned(), page_size, after };
        self.call(Some(&keys().mint_service("query")), message).await
    }

    /// The names on the first page, in order.
    pub(crate) async fn names(&self, viewer: &str) -> String {
        names(&self.page(viewer, 100, None).await.expect("a page"))
    }

    /// All pages to the end, with the hidden of each.
    pub(crate) async fn pages(&self, viewer: &str, page_size: u32) -> Vec<ListLikersResponse> {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let page = self.page(viewer, page_size, after).await.expect("a page");
            after = page.next.clone();
            pages.push(page);
            if after.is_none() {
                return pages;
            }
            assert!(pages.len() < 1000, "a list ends");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.context.draining.cancel();
        self.context.stop.cancel();
    }
}

pub(crate) fn names(page: &ListLikersResponse) -> String {
    page.likers.iter().map(|liker| liker.user_id.as_str()).collect::<Vec<_>>().join(" ")
}

/// `NotFound VIDEO_NOT_FOUND`: code and reason of an error.
pub(crate) fn refusal<T: Debug>(answer: Result<T, Status>) -> String {
    let status = answer.expect_err("a refusal");
    let reason = likewise_kit::errors::reason(&status).unwrap_or_default();
    format!("{:?} {reason}", status.code()).trim_end().to_owned()
}
