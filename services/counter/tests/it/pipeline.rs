//! Real streams into the real binary, killed with SIGKILL at the worst places.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use likewise_devstack::Process;
use likewise_kit::lanes::{
    self, Error, Lane, Outbox, OutboxMessage, OutboxWatermarks, Publisher, PublisherHandle, ShardMeta,
};
use likewise_kit::pg::Pool;
use likewise_kit::run::Context;
use likewise_proto::convert::{RELATION_CHANGED, relation_changed};
use prost::Message as _;

use crate::world::{VIDEO, World, event, lane, until};

const BINARY: &str = "likewise-counter";

const TABLES: &str = "
    create table outbox (seq bigint primary key, event_id uuid not null, payload bytea not null,
        created_at timestamptz not null default now());
    create table outbox_publication (from_seq bigint not null, to_seq bigint primary key, stream text not null,
        from_offset bigint not null, acked_at timestamptz not null default now());
    create table shard_meta (singleton boolean primary key default true check (singleton),
        epoch int not null default 0, incarnation uuid not null,
        status text not null default 'SERVING', system_identifier bigint, timeline_id int);
    create table lane_epoch (epoch int primary key, first_seq bigint not null,
        began_at timestamptz not null default clock_timestamp(), served_at timestamptz, lost bigint not null default 0,
        restated bigint not null default 0);
    create table lease (name text primary key, owner uuid not null, epoch bigint not null,
        expires_at timestamptz not null);
    insert into shard_meta (incarnation) values (gen_random_uuid());
    insert into lane_epoch (epoch, first_seq, served_at) values (0, 1, now());";

/// Stands for a relation shard: an outbox that the test fills.
struct Shard {
    lane: Lane,
    pool: Pool,
}

impl Outbox for Shard {
    fn lane(&self) -> Lane {
        self.lane
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    async fn read_after(&self, seq: u64, limit: usize) -> Result<Vec<OutboxMessage>, Error> {
        let (seq, limit) = (i64::try_from(seq).expect("small"), i64::try_from(limit).expect("small"));
        let text = "select seq, event_id, payload, created_at from outbox where seq > $1 order by seq limit $2";
        let rows = self.pool.get().await?.query(text, &[&seq, &limit]).await?;
        rows.iter()
            .map(|row| {
                Ok(OutboxMessage {
                    seq: u64::try_from(row.try_get::<_, i64>(0)?).expect("positive"),
                    event_id: row.try_get(1)?,
                    schema: RELATION_CHANGED,
                    payload: Bytes::from(row.try_get::<_, Vec<u8>>(2)?),
                    created_at: row.try_get(3)?,
                })
            })
            .collect()
    }

    async fn meta(&self) -> Result<ShardMeta, Error> {
        lanes::shard_meta(&self.pool).await
    }

    async fn last_evidence(&self) -> Result<u64, Error> {
        lanes::last_evidence(&self.pool).await
    }

    async fn record_evidence(&self, from_seq: u64, to_seq: u64, stream: &str) -> Result<(), Error> {
        lanes::record_evidence(&self.pool, from_seq, to_seq, stream).await
    }

    async fn watermarks(&self) -> Result<OutboxWatermarks, Error> {
        let text = "select coalesce(max(seq), 0) from outbox";
        let committed: i64 = self.pool.get().await?.query_one(text, &[]).await?.try_get(0)?;
        let committed_seq = u64::try_from(committed).expect("positive");
        let published_seq = self.last_evidence().await?;
        Ok(OutboxWatermarks { committed_seq, published_seq, oldest_unpublished_at: None })
    }
}

/// Shards with their publishers in this process.
struct Shards {
    context: Context,
    publishers: Vec<Arc<PublisherHandle>>,
    next: Vec<u64>,
}

impl Shards {
    async fn publishing(world: &World) -> Self {
        let context = Context::new(world.common.clone(), "counter-test").await.expect("keys and addresses");
        let mut publishers = Vec::new();
        for shard in 0..world.settings.lanes {
            let schema = format!("source_{shard:02}");
            world.run(&format!("create schema {schema}; set search_path = {schema}; {TABLES}")).await;
            let pool = world.servers.pool("main", &schema, 4).expect("a pool");
            publishers.push(Publisher::spawn(&context, Arc::new(Shard { lane: lane(shard), pool })));
        }
        Self { next: vec![1; publishers.len()], context, publishers }
    }

    /// Commits changes of one shard in one transaction.
    async fn commit(&mut self, world: &World, shard: u16, story: &str) {
        let next = &mut self.next[usize::from(shard)];
        let (mut seqs, mut ids, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
        for word in story.split_whitespace() {
            let event = event(shard, *next, word);
            seqs.push(i64::try_from(*next).expect("small"));
            ids.push(event.event_id);
            payloads.push(relation_changed(&event).encode_to_vec());
            *next += 1;
        }
        let text = format!(
            "insert into source_{shard:02}.outbox (seq, event_id, payload) select * from unnest($1::bigint[], $2::uuid[], $3::bytea[])"
        );
        world.sql.execute(&text, &[&seqs, &ids, &payloads]).await.expect("committed");
        self.publishers[usize::from(shard)].wake();
    }

    /// Everything committed is in the checkpoints.
    async fn consumed(&self, world: &World) {
        let text = "select coalesce(sum(next_offset - 1), 0)::bigint from counter.consumer_checkpoint";
        let committed: u64 = self.next.iter().map(|next| next - 1).sum();
        until("the checkpoints", || world.number(text), |found| u64::try_from(*found) == Ok(committed)).await;
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.context.stop.cancel();
    }
}

async fn start(world: &World, crash_point: &str) -> Process {
    let environment = [
        ("LIKEWISE_CRASH_POINT", crash_point),
        ("LIKEWISE__ENDPOINTS__COMMAND", "http://127.0.0.1:1"),
        // A killed owner is replaced soon.
        ("LIKEWISE__LANES__LEASE_TTL_MS", "1000"),
        ("LIKEWISE__COUNTER__LEASE_TTL_MS", "1000"),
        ("LIKEWISE__COUNTER__PASS_INTERVAL_MS", "20"),
        ("LIKEWISE__COUNTER__IDLE_POLL_MS", "20"),
    ];
    Process::start(BINARY, &world.config, &environment).await.expect("the counter serves")
}

/// Kills the counter at a place while a backlog runs through it, starts it again, and compares everything.
async fn killed_at(crash_point: &str) {
    let world = World::new().await;
    let mut shards = Shards::publishing(&world).await;
    let mut process = start(&world, crash_point).await;
    let mut expected = 0;
    for round in 0..6 {
        for shard in 0..world.settings.lanes {
            // Everybody likes, every third takes it back; a repeat of the like arrives late.
            let story: Vec<String> = (0..60)
                .map(|user| {
                    let name = format!("u{shard}x{round}x{user}");
                    if user % 3 == 0 { format!("{name}+1 {name}-2 {name}+1") } else { format!("{name}+1") }
                })
                .collect();
            shards.commit(&world, shard, &story.join(" ")).await;
            expected += 40;
        }
    }
    let died = process.ended_within(Duration::from_secs(30)).await;
    assert!(died, "{crash_point} is passed; the log says:\n{}", process.log_tail());
    let _again = start(&world, "").await;
    shards.consumed(&world).await;
    assert_eq!(world.sum(VIDEO).await, expected);
    world.check_identity().await;
    until("the display row", || world.display(VIDEO), |row| row.is_some_and(|row| row.0 == expected)).await;
    assert_eq!(world.number("select count(*) from counter.count_quarantine").await, 0);
    let overlapping = "select count(*) from counter.consumer_checkpoint where last_event_id is null";
    assert_eq!(world.number(overlapping).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_kill_9_before_the_projection_commits_loses_nothing() {
    killed_at("projector.before_commit:3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_09_kill_9_between_projection_and_checkpoint_adds_nothing() {
    killed_at("projector.after_commit:3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_09_kill_9_after_the_checkpoint_loses_nothing() {
    killed_at("projector.after_checkpoint:3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_away_holds_its_lane_back_and_nothing_else() {
    let world = World::new().await;
    let mut shards = Shards::publishing(&world).await;
    let _process = start(&world, "").await;
    shards.commit(&world, 0, "lin+1").await;
    shards.consumed(&world).await;
    let first = "select count(*) from counter_p00.like_count_projection";
    let before = world.number(first).await;
    world.run("alter table counter_p01.count_event_receipt rename to hidden").await;
    // The first of them is counted in p00, so a batch of any length has something for it.
    let story: Vec<String> = (2..42).map(|user| format!("u{user}+1")).collect();
    shards.commit(&world, 0, &story.join(" ")).await;
    until("p00", || world.number(first), |found| *found > before).await;
    let held = world.number("select next_offset from counter.consumer_checkpoint where lane = 'rel-00'").await;
    assert!(held < 42, "the offset passed what p01 lacks: {held}");
    world.run("alter table counter_p01.hidden rename to count_event_receipt").await;
    shards.consumed(&world).await;
    assert_eq!(world.sum(VIDEO).await, 41);
    world.check_identity().await;
}
