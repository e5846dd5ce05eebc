//! What the tests share: a fresh installation, a notation for events, and questions about what is stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fred::clients::Pool as Redis;
use fred::interfaces::{ClientLike as _, HashesInterface as _, KeysInterface as _};
use likewise_counter::Settings;
use likewise_counter::app::aggregator::Aggregator;
use likewise_counter::app::bootstrap;
use likewise_counter::app::counts::Counts;
use likewise_counter::app::live::Live;
use likewise_counter::app::projector::Projector;
use likewise_counter::cache::{Lives, Views};
use likewise_counter::metrics::Metrics;
use likewise_devstack::{TestConfig, TestStack};
use likewise_domain::id::{OperationId, UserId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::relation::{Cause, Hidden, LikeState, RelationChanged};
use likewise_kit::config::{Common, Loader};
use likewise_kit::lanes::{ApplyError, Lane, LaneMessage};
use likewise_kit::pg::Servers;
use likewise_proto::convert::{RELATION_CHANGED, relation_changed};
use prost::Message as _;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

/// How long a condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(20);

/// The video of an event that names none.
pub(crate) const VIDEO: &str = "V9001";

/// One installation on its own database and prefixes.
pub(crate) struct World {
    pub(crate) config: TestConfig,
    pub(crate) common: Common,
    pub(crate) servers: Servers,
    pub(crate) settings: Settings,
    pub(crate) sql: Client,
}

impl World {
    /// Nothing started yet; settings as shipped, but quick.
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let config = TestStack::get().config().await;
        let mut loader = Loader::new(Some(config.path()), std::iter::empty());
        let common = Common::load(&mut loader);
        let settings = loader.section("counter", likewise_counter::DEFAULTS);
        loader.finish().expect("a configuration without faults");
        let (common, mut settings): (Common, Settings) = (common.expect("common"), settings.expect("settings"));
        settings.pass_interval_ms = 10;
        settings.idle_poll_ms = 20;
        change(&mut settings);
        let servers = Servers::new(&common.postgres, "counter-test");
        let sql = config.database.connect().await.expect("a connection");
        Self { config, common, servers, settings, sql }
    }

    /// What a start of the service finds or makes.
    pub(crate) async fn live(&self) -> Arc<Live> {
        Arc::new(bootstrap::start(&self.servers, &self.settings).await.expect("the counter starts"))
    }

    pub(crate) fn metrics() -> Metrics {
        Metrics::new(&likewise_kit::metrics::Metrics::new())
    }

    pub(crate) fn projector(live: &Arc<Live>) -> Projector {
        Projector::new(Arc::clone(live), Arc::new(Notify::new()), Self::metrics())
    }

    /// A started installation with a projector that owns every lane.
    pub(crate) async fn fed(&self) -> Feed {
        let live = self.live().await;
        let projector = Self::projector(&live);
        for shard in 0..live.lanes() {
            projector.fence(&lane(shard).to_string(), 1).await.expect("owned");
        }
        Feed { live, projector, next: BTreeMap::new() }
    }

    pub(crate) async fn redis(&self) -> Redis {
        likewise_kit::redis::connect(&self.common.redis).await.expect("an address of Redis")
    }

    /// A client of whatever answers at a port of this machine, now or later.
    pub(crate) async fn redis_at(&self, port: u16) -> Redis {
        let mut settings = self.common.redis.clone();
        settings.url = format!("redis://127.0.0.1:{port}").into();
        likewise_kit::redis::connect(&settings).await.expect("an address of Redis")
    }

    pub(crate) async fn views(&self, live: &Live) -> Views {
        self.views_on(live, self.redis().await)
    }

    pub(crate) fn views_on(&self, live: &Live, redis: Redis) -> Views {
        let lives = Lives { view_s: self.settings.view_ttl_s, absent_s: self.settings.view_absent_ttl_s };
        Views::new(redis, &self.common.redis.key_prefix, live.generation(), lives)
    }

    /// An aggregator that runs until the answer is dropped.
    pub(crate) async fn aggregating(&self, live: &Arc<Live>) -> Running {
        let views = self.views(live).await;
        self.aggregating_with(live, views)
    }

    pub(crate) fn aggregating_with(&self, live: &Arc<Live>, views: Views) -> Running {
        let wake = Arc::new(Notify::new());
        let aggregator =
            Aggregator::new(Arc::clone(live), views, self.settings.clone(), Arc::clone(&wake), Self::metrics());
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { aggregator.run(&stop).await }
        });
        Running { stop: Some(stop.drop_guard()), task, wake }
    }

    pub(crate) fn counts(&self, live: &Arc<Live>) -> Counts {
        Counts::new(Arc::clone(live), self.settings.hints_max)
    }

    /// What the checkpoint says once everything fed so far is applied.
    pub(crate) async fn checkpoint(&self, feed: &Feed) {
        for (shard, next) in &feed.next {
            let lane = lane(*shard).to_string();
            let next = i64::try_from(*next).expect("small");
            self.sql
                .execute(
                    "insert into counter.consumer_checkpoint (projection, lane, epoch, next_offset, owner_epoch, updated_at) \
                     values ($1, $2, 0, $3, 1, now()) on conflict (projection, lane) do update set next_offset = excluded.next_offset",
                    &[&feed.live.projection(), &lane, &next],
                )
                .await
                .expect("a checkpoint");
        }
    }

    /// Partitions of the installation, all on this database.
    pub(crate) async fn partitions(&self) -> Vec<String> {
        let rows = self.sql.query("select schema_name from counter.count_partition order by 1", &[]).await;
        rows.expect("partitions").iter().map(|row| row.get(0)).collect()
    }

    /// Buckets as `(video, vbucket) -> (count, version)`, those of all partitions.
    pub(crate) async fn buckets(&self) -> BTreeMap<(String, i32), (i64, i64)> {
        let mut buckets = BTreeMap::new();
        for schema in self.partitions().await {
            let text = format!(
                "select video_id, vbucket, active_count, bucket_version from {schema}.video_like_count_vbucket"
            );
            for row in self.sql.query(&text, &[]).await.expect("buckets") {
                let key = (row.get(0), row.get(1));
                assert!(buckets.insert(key, (row.get(2), row.get(3))).is_none(), "one partition owns a bucket");
            }
        }
        buckets
    }

    /// LIKED relations as `(video, vbucket) -> number`, those of all partitions.
    pub(crate) async fn liked(&self) -> BTreeMap<(String, i32), i64> {
        let mut liked = BTreeMap::new();
        for schema in self.partitions().await {
            let text = format!(
                "select video_id, vbucket, count(*) from {schema}.like_count_projection where state = 1 group by 1, 2"
            );
            for row in self.sql.query(&text, &[]).await.expect("relations") {
                *liked.entry((row.get(0), row.get(1))).or_default() += row.get::<_, i64>(2);
            }
        }
        liked
    }

    /// Every bucket counts exactly its LIKED relations.
    pub(crate) async fn check_identity(&self) {
        let counted: BTreeMap<_, _> = self
            .buckets()
            .await
            .into_iter()
            .map(|(key, (count, _))| (key, count))
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, self.liked().await, "sums of buckets equal LIKED relations");
    }

    /// The sum of a video's buckets.
    pub(crate) async fn sum(&self, video: &str) -> i64 {
        self.buckets().await.iter().filter(|((of, _), _)| of == video).map(|(_, (count, _))| *count).sum()
    }

    /// The durable display row as `(display, pass, approximate)`.
    pub(crate) async fn display(&self, video: &str) -> Option<(i64, i64, bool)> {
        let text = "select display, pass, approximate from counter.count_display_snapshot where video_id = $1";
        let row = self.sql.query_opt(text, &[&video]).await.expect("a display row");
        row.map(|row| (row.get(0), row.get(1), row.get(2)))
    }

    pub(crate) async fn number(&self, text: &str) -> i64 {
        self.sql.query_one(text, &[]).await.expect(text).get(0)
    }

    pub(crate) async fn run(&self, text: &str) {
        self.sql.batch_execute(text).await.expect(text);
    }
}

/// A task that ends with this value.
pub(crate) struct Running {
    stop: Option<DropGuard>,
    task: JoinHandle<()>,
    pub(crate) wake: Arc<Notify>,
}

impl Running {
    /// Ends it and waits until it has ended.
    pub(crate) async fn end(mut self) {
        drop(self.stop.take());
        self.task.await.expect("the task ends well");
    }
}

/// Feeds events into the projector, each batch at the next offsets of its lane.
pub(crate) struct Feed {
    pub(crate) live: Arc<Live>,
    pub(crate) projector: Projector,
    /// Next offset by shard.
    pub(crate) next: BTreeMap<u16, u64>,
}

impl Feed {
    /// Messages of `lane` at its next offsets.
    pub(crate) fn messages(&mut self, shard: u16, story: &str) -> Vec<LaneMessage> {
        let next = self.next.entry(shard).or_insert(1);
        let events: Vec<LaneMessage> =
            (*next..).zip(story.split_whitespace()).map(|(seq, word)| message(shard, seq, word)).collect();
        *next += events.len() as u64;
        events
    }

    /// Applies one batch on lane 0.
    pub(crate) async fn apply(&mut self, story: &str) {
        self.apply_on(0, story).await;
    }

    pub(crate) async fn apply_on(&mut self, shard: u16, story: &str) {
        let batch = self.messages(shard, story);
        self.send(shard, &batch).await.expect("applied");
    }

    /// Sends a batch as the owner at epoch 1.
    pub(crate) async fn send(&self, shard: u16, batch: &[LaneMessage]) -> Result<(), ApplyError> {
        likewise_kit::lanes::Projection::apply(&self.projector, &lane(shard), 1, batch).await
    }
}

pub(crate) fn lane(shard: u16) -> Lane {
    Lane { class: "rel", shard }
}

/// `lin+11` is user lin, LIKED at version 11; `lin-12` UNLIKED at version 12; `lin+1@b` is about video b.
pub(crate) fn event(shard: u16, seq: u64, word: &str) -> RelationChanged {
    let (change, video) = word.split_once('@').unwrap_or((word, VIDEO));
    let sign = change.find(['+', '-']).expect("a sign");
    let state = if change.as_bytes()[sign] == b'+' { LikeState::Liked } else { LikeState::Unliked };
    RelationChanged {
        event_id: Uuid::new_v4(),
        user_id: UserId::parse(&change[..sign]).expect("a user"),
        video_id: VideoId::parse(video).expect("a video"),
        version: change[sign + 1..].parse().expect("a version"),
        state,
        previous_state: LikeState::Unliked,
        shard,
        epoch: 0,
        seq,
        state_changed_at: OffsetDateTime::now_utc(),
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

/// The view of a video as Redis holds it: field -> text.
pub(crate) async fn view(redis: &Redis, views: &Views, video: &str) -> BTreeMap<String, String> {
    redis.hgetall(views.key(&id(video))).await.expect("Redis answers")
}

pub(crate) async fn forget_views(redis: &Redis, views: &Views, videos: &[&str]) {
    for video in videos {
        let _: i64 = redis.del(views.key(&id(video))).await.expect("Redis answers");
    }
}

pub(crate) async fn connected(redis: &Redis) {
    redis.wait_for_connect().await.expect("Redis answers");
}

pub(crate) fn id(video: &str) -> VideoId {
    VideoId::parse(video).expect("an id")
}

/// Waits until `ask` gives what is wanted, and tells the last answer when it never does.
pub(crate) async fn until<T, F>(what: &str, mut ask: impl FnMut() -> F, wanted: impl Fn(&T) -> bool) -> T
where
    T: std::fmt::Debug,
    F: Future<Output = T>,
{
    let begin = tokio::time::Instant::now();
    loop {
        let found = ask().await;
        if wanted(&found) {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: still {found:?} after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
