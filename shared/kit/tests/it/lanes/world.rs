//! One database, one stream prefix, and processes that live on them and can be killed.

use std::fmt::Debug;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::Stream;
use deadpool_postgres::{Manager, Pool};
use likewise_devstack::{TestDatabase, TestStack};
use likewise_kit::lanes::{
    Consumer, ConsumerHandle, LANE_DEFAULTS, LaneSettings, Publisher, PublisherHandle, Runtime, Upstream,
    WatermarkSource, stream_name, subject,
};
use likewise_kit::metrics::Metrics;
use likewise_proto::lanes::v1::{ConsumerWatermark, LaneWatermark};
use tokio::time::Instant;
use tokio_postgres::NoTls;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::toy::{LANE, TABLES, ToyOutbox, ToyProjection, ToyUpstream};

/// How long a condition may take to come true.
const BOUND: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A database and a stream prefix of a test's own.
pub(super) struct World {
    pub(super) dsn: String,
    pub(super) nats_url: String,
    pub(super) settings: LaneSettings,
    pub(super) pool: Pool,
    pub(super) jetstream: jetstream::Context,
    /// Dropped with the world that made it.
    _database: Option<TestDatabase>,
}

impl World {
    /// On the shared servers.
    pub(super) async fn new() -> Self {
        Self::on(TestStack::get()).await
    }

    /// On a stack of the test's own.
    pub(super) async fn on(stack: &TestStack) -> Self {
        let database = stack.database().await;
        let (dsn, nats_url) = (database.dsn().to_owned(), stack.nats_url().to_owned());
        let attached = Self::attach(dsn, nats_url, stack.unique("T")).await;
        let world = Self { _database: Some(database), ..attached };
        world.execute(TABLES).await;
        world
    }

    /// On the tables and the prefix of a world that exists.
    pub(super) async fn attach(dsn: String, nats_url: String, prefix: String) -> Self {
        let pool = pool(&dsn, "public");
        let nats = connect(&nats_url).await;
        let mut settings: LaneSettings = toml::from_str(LANE_DEFAULTS).expect("defaults");
        settings.stream_prefix = prefix;
        settings.poll_interval_ms = 50;
        settings.lease_ttl_ms = 1_500;
        settings.report_interval_ms = 100;
        settings.retry_ms_max = 200;
        Self { dsn, nats_url, settings, pool, jetstream: jetstream::new(nats), _database: None }
    }

    /// Commits `count` changes and answers the highest number.
    pub(super) async fn commit(&self, count: i64) -> u64 {
        let text = "insert into outbox (seq, event_id, payload)
                    select base + n, gen_random_uuid(), convert_to('change ' || (base + n), 'UTF8')
                    from (select coalesce(max(seq), 0) as base from outbox) b, generate_series(1, $1::bigint) n";
        let client = self.pool.get().await.expect("PostgreSQL");
        client.execute(text, &[&count]).await.expect("commit");
        u64::try_from(self.number("select max(seq) from outbox").await).expect("positive")
    }

    pub(super) async fn execute(&self, text: &str) {
        self.pool.get().await.expect("PostgreSQL").batch_execute(text).await.expect("statement");
    }

    pub(super) async fn number(&self, text: &str) -> i64 {
        self.pool.get().await.expect("PostgreSQL").query_one(text, &[]).await.expect("query").get(0)
    }

    pub(super) async fn outbox_ids(&self) -> Vec<Uuid> {
        self.ids("select event_id from outbox order by seq").await
    }

    pub(super) async fn ids(&self, text: &str) -> Vec<Uuid> {
        let client = self.pool.get().await.expect("PostgreSQL");
        client.query(text, &[]).await.expect("query").iter().map(|row| row.get(0)).collect()
    }

    pub(super) fn stream_name(&self) -> String {
        stream_name(&self.settings.stream_prefix, &LANE, 0)
    }

    pub(super) fn subject(&self) -> String {
        subject(&self.settings.stream_prefix, &LANE, 0)
    }

    pub(super) async fn stream(&self) -> Option<Stream> {
        self.jetstream.get_stream(self.stream_name()).await.ok()
    }

    /// Last number in the stream; 0 without a stream.
    pub(super) async fn stream_last(&self) -> u64 {
        self.stream().await.map_or(0, |stream| stream.cached_info().state.last_sequence)
    }

    /// Event ids in the stream from its first number to its last, which must have no holes.
    pub(super) async fn stream_ids(&self) -> Vec<Uuid> {
        let stream = self.stream().await.expect("a stream");
        let state = stream.cached_info().state.clone();
        let mut ids = Vec::new();
        for seq in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(seq).await.expect("a message");
            assert!(message.headers.get("Nats-Msg-Id").is_none());
            let id = message.headers.get("Likewise-Event-Id").expect("an event id").as_str();
            ids.push(Uuid::parse_str(id).expect("a uuid"));
        }
        ids
    }

    /// The stream holds exactly the outbox, in order, each offset equal to its sequence number, and evidence says so.
    pub(super) async fn check_published(&self) {
        let outbox = self.outbox_ids().await;
        assert_eq!(self.stream_ids().await, outbox);
        let evidence = u64::try_from(self.number("select coalesce(max(to_seq), 0) from outbox_publication").await);
        assert_eq!(evidence.expect("positive"), outbox.len() as u64);
        let covered = "select count(*) from outbox o where not exists
                       (select from outbox_publication p where o.seq between p.from_seq and p.to_seq)";
        assert_eq!(self.number(covered).await, 0, "every row is covered by evidence");
    }

    /// Everything in the outbox was applied, and nothing else.
    pub(super) async fn check_applied(&self) {
        assert_eq!(self.ids("select event_id from applied order by seq").await, self.outbox_ids().await);
        let differing = "select count(*) from outbox o full join applied a using (seq, event_id)
                         where o.payload is distinct from a.payload";
        assert_eq!(self.number(differing).await, 0);
    }

    pub(super) async fn times_max(&self) -> i64 {
        self.number("select coalesce(max(times), 0)::bigint from applied").await
    }

    pub(super) async fn wait_published(&self, seq: u64) {
        let text = "select coalesce(max(to_seq), 0) from outbox_publication";
        wait("evidence", || self.number(text), |found| u64::try_from(*found).is_ok_and(|found| found >= seq)).await;
    }

    pub(super) async fn wait_checkpoint(&self, next_offset: u64) {
        let text = "select coalesce(max(next_offset), 0) from consumer_checkpoint";
        let reached = |found: &i64| u64::try_from(*found).is_ok_and(|found| found >= next_offset);
        wait("checkpoint", || self.number(text), reached).await;
    }

    /// A process with its own threads and connections.
    pub(super) async fn process(&self) -> Process {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let threads = threads.expect("a runtime");
        let nats_url = self.nats_url.clone();
        let nats = threads.spawn(async move { connect(&nats_url).await }).await.expect("connected");
        let runtime = Runtime {
            nats,
            settings: self.settings.clone(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            metrics: Metrics::new(),
            upstream: None,
        };
        Process { runtime, pool: pool(&self.dsn, "public"), dsn: self.dsn.clone(), threads: Some(threads) }
    }
}

/// Stands for one process: everything it runs ends at once when it is killed.
pub(super) struct Process {
    pub(super) runtime: Runtime,
    pub(super) pool: Pool,
    dsn: String,
    threads: Option<tokio::runtime::Runtime>,
}

impl Process {
    pub(super) fn publish(&self) -> Arc<PublisherHandle> {
        self.publish_with_lease_in("public")
    }

    /// Keeps the lease in another schema, so that rivals do not see it.
    pub(super) fn publish_with_lease_in(&self, schema: &str) -> Arc<PublisherHandle> {
        let _entered = self.enter();
        let outbox = ToyOutbox { rows: self.pool.clone(), pool: pool(&self.dsn, schema) };
        Publisher::spawn(self.runtime.clone(), Arc::new(outbox))
    }

    /// Consumers of this process may read the outbox from now on.
    pub(super) fn may_read_the_outbox(&mut self) -> Arc<ToyUpstream> {
        let outbox = ToyOutbox { rows: self.pool.clone(), pool: self.pool.clone() };
        let upstream = Arc::new(ToyUpstream { outbox, away: AtomicBool::new(false), told: Mutex::default() });
        self.runtime.upstream = Some(Arc::clone(&upstream) as Arc<dyn Upstream>);
        upstream
    }

    pub(super) fn consume(&self) -> (Arc<ConsumerHandle>, Arc<ToyProjection>) {
        self.consume_with(ToyProjection::new(self.pool.clone()))
    }

    pub(super) fn consume_with(&self, projection: ToyProjection) -> (Arc<ConsumerHandle>, Arc<ToyProjection>) {
        let _entered = self.enter();
        let projection = Arc::new(projection);
        let handle = Consumer::spawn(self.runtime.clone(), self.pool.clone(), LANE, Arc::clone(&projection));
        (handle, projection)
    }

    /// What is spawned while this lives runs in the process.
    pub(super) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.threads.as_ref().expect("alive").enter()
    }

    /// Ends in order.
    pub(super) async fn stop(mut self) {
        self.runtime.stop.cancel();
        self.runtime.tasks.close();
        tokio::time::timeout(BOUND, self.runtime.tasks.wait()).await.expect("stopped in time");
        self.kill_now();
    }

    /// Ends at once: nothing is released, nothing is finished.
    pub(super) fn kill(mut self) {
        self.kill_now();
    }

    fn kill_now(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_now();
    }
}

pub(super) fn pool(dsn: &str, schema: &str) -> Pool {
    let mut config: tokio_postgres::Config = dsn.parse().expect("a DSN");
    config.options(format!("-c search_path={schema}"));
    Pool::builder(Manager::new(config, NoTls)).max_size(4).build().expect("a pool")
}

async fn connect(url: &str) -> async_nats::Client {
    async_nats::ConnectOptions::new().retry_on_initial_connect().connect(url).await.expect("NATS")
}

/// Polls until `done`, and shows the last value seen when it does not come.
pub(super) async fn wait<T: Debug, F: Future<Output = T>>(
    what: &str,
    mut look: impl FnMut() -> F,
    done: impl Fn(&T) -> bool,
) {
    let until = Instant::now() + BOUND;
    loop {
        let seen = look().await;
        if done(&seen) {
            return;
        }
        assert!(Instant::now() < until, "waited {BOUND:?} for {what}; last seen: {seen:?}");
        tokio::time::sleep(POLL).await;
    }
}

pub(super) async fn lane_watermark(handle: &PublisherHandle) -> LaneWatermark {
    handle.lanes().await.remove(0)
}

pub(super) async fn consumer_watermark(handle: &ConsumerHandle) -> ConsumerWatermark {
    handle.consumers().await.remove(0)
}

pub(super) async fn wait_lane_error(handle: &PublisherHandle, part: &str) {
    wait(part, || lane_watermark(handle), |seen| seen.last_error.contains(part)).await;
}

pub(super) async fn wait_status(handle: &ConsumerHandle, status: &str) {
    wait(status, || consumer_watermark(handle), |seen| seen.status == status).await;
}
