//! Real streams into the real binary, killed with SIGKILL at the worst places.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use likewise_devstack::{Process, TestConfig, TestStack};
use likewise_kit::lanes::{
    self, Error, Lane, Outbox, OutboxMessage, OutboxWatermarks, Publisher, PublisherHandle, ShardMeta,
};
use likewise_kit::pg::Pool;
use likewise_kit::run::Context;
use likewise_proto::convert::{RELATION_CHANGED, relation_changed};
use prost::Message as _;
use tokio_postgres::Client;

use crate::rig::{event, eventually, lane, settings, stored};

const BINARY: &str = "likewise-reverse-index";
const PARTS: usize = 2;
const LANES: u16 = 4;

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
                    seq: row.try_get::<_, i64>(0)?.cast_unsigned(),
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
        let published_seq = self.last_evidence().await?;
        Ok(OutboxWatermarks { committed_seq: committed.cast_unsigned(), published_seq, oldest_unpublished_at: None })
    }
}

/// Relation shards with their publishers in this process, on a fresh installation.
struct Source {
    config: TestConfig,
    sql: Client,
    context: Context,
    publishers: Vec<Arc<PublisherHandle>>,
    next: Vec<i64>,
}

impl Source {
    async fn publishing() -> Self {
        let config = TestStack::get().config().await;
        let (common, _) = settings(&config, &[]);
        let context = Context::new(common, "reverse-index-test").await.expect("a context");
        let sql = config.database.connect().await.expect("connected");
        let mut publishers = Vec::new();
        for shard in 0..LANES {
            let schema = format!("source_{shard:02}");
            let text = format!("create schema {schema}; set search_path = {schema}; {TABLES}");
            sql.batch_execute(&text).await.expect("a source");
            let pool = context.servers.pool("main", &schema, 4).expect("a pool");
            publishers.push(Publisher::spawn(&context, Arc::new(Shard { lane: lane(shard), pool })));
        }
        Self { config, sql, context, publishers, next: vec![1; usize::from(LANES)] }
    }

    /// Commits changes of one shard in one transaction; `broken` is a message that nobody understands.
    async fn commit(&mut self, shard: u16, story: &str) {
        let next = &mut self.next[usize::from(shard)];
        let (mut seqs, mut ids, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
        for word in story.split_whitespace() {
            let is_broken = word == "broken";
            let event = event(shard, next.cast_unsigned(), if is_broken { "lin+1" } else { word });
            seqs.push(*next);
            ids.push(event.event_id);
            payloads.push(if is_broken { vec![0x0a, 0xff] } else { relation_changed(&event).encode_to_vec() });
            *next += 1;
        }
        let text = format!(
            "insert into source_{shard:02}.outbox (seq, event_id, payload) \
             select * from unnest($1::bigint[], $2::uuid[], $3::bytea[])"
        );
        self.sql.execute(&text, &[&seqs, &ids, &payloads]).await.expect("committed");
        self.publishers[usize::from(shard)].wake();
    }

    /// The real binary, until dropped. A killed owner is replaced soon.
    async fn start(&self, crash_point: &str) -> Process {
        let environment = [
            ("LIKEWISE_CRASH_POINT", crash_point),
            ("LIKEWISE__ENDPOINTS__COMMAND", "http://127.0.0.1:1"),
            ("LIKEWISE__ENDPOINTS__POLICY", "http://127.0.0.1:1"),
            ("LIKEWISE__LANES__LEASE_TTL_MS", "1000"),
        ];
        Process::start(BINARY, &self.config, &environment).await.expect("the reverse index serves")
    }

    async fn next_offset(&self, shard: u16) -> i64 {
        let text = "select next_offset from reverse_index.consumer_checkpoint where lane = $1";
        let row = self.sql.query_opt(text, &[&lane(shard).to_string()]).await.expect("a checkpoint");
        row.map_or(1, |row| row.get(0))
    }

    /// Everything committed is in the checkpoints.
    async fn consumed(&self) {
        eventually("the checkpoints", async || {
            let mut found = Vec::new();
            for shard in 0..LANES {
                found.push(self.next_offset(shard).await);
            }
            if found == self.next { Ok(()) } else { Err((found, self.next.clone())) }
        })
        .await;
    }

    async fn number(&self, text: &str) -> i64 {
        self.sql.query_one(text, &[]).await.expect(text).get(0)
    }

    async fn run(&self, text: &str) {
        self.sql.batch_execute(text).await.expect(text);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.context.stop.cancel();
    }
}

/// Kills the binary at a place while a backlog runs through it, starts it again, and compares everything.
async fn killed_at(crash_point: &str) {
    let mut source = Source::publishing().await;
    let mut process = source.start(crash_point).await;
    let mut expected = BTreeSet::new();
    for round in 0..6 {
        for shard in 0..LANES {
            let mut story = String::new();
            for user in 0..40 {
                let name = format!("u{shard}x{round}x{user}");
                // Everybody likes, every third takes it back; a repeat of the like arrives late.
                if user % 3 == 0 {
                    story.push_str(&format!("{name}+1 {name}-2 {name}+1 "));
                    expected.insert(format!("{name}-2"));
                } else {
                    story.push_str(&format!("{name}+1={} ", user + 10));
                    expected.insert(format!("{name}+1={}", user + 10));
                }
            }
            source.commit(shard, &story).await;
        }
    }
    let died = process.ended_within(Duration::from_secs(60)).await;
    assert!(died, "{crash_point} is passed; the log says:\n{}", process.log_tail());
    let _again = source.start("").await;
    source.consumed().await;
    assert_eq!(stored(&source.sql, PARTS).await, expected);
    assert_eq!(source.number("select count(*) from reverse_index.reverse_quarantine").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_kill_9_before_a_part_commits_loses_nothing() {
    killed_at("reverse.before_commit:3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_kill_9_between_a_part_and_the_checkpoint_changes_nothing_twice() {
    killed_at("reverse.after_commit:3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_10_inv_19_a_part_that_is_away_holds_the_offset_back_until_it_has_its_share() {
    let mut source = Source::publishing().await;
    let _process = source.start("").await;
    let story: String = (0..40).map(|user| format!("u{user}+1 ")).collect();
    source.commit(0, &story).await;
    source.consumed().await;
    // One relation of each part; how their messages are cut into batches is not the test's choice.
    let of = async |part: &str| -> String {
        let text = format!("select min(user_id) from {part}.like_reverse_projection");
        source.sql.query_one(&text, &[]).await.expect("read").get(0)
    };
    let (here, away) = (of("reverse_p00").await, of("reverse_p01").await);
    source.run("alter table reverse_p01.like_reverse_order rename to hidden").await;
    source.commit(0, &format!("{here}-2 {away}-2")).await;
    let version =
        async |part: &str| source.number(&format!("select max(version) from {part}.like_reverse_projection")).await;
    eventually("the other part has its share", async || match version("reverse_p00").await {
        2 => Ok(()),
        found => Err(found),
    })
    .await;
    assert!(source.next_offset(0).await <= 42, "not over what the part that is away lacks");
    assert_eq!(version("reverse_p01").await, 1);
    source.run("alter table reverse_p01.hidden rename to like_reverse_order").await;
    source.consumed().await;
    assert_eq!(version("reverse_p01").await, 2);
    assert_eq!(stored(&source.sql, PARTS).await.len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_what_nobody_understands_is_kept_in_a_row_and_the_lane_goes_on() {
    let mut source = Source::publishing().await;
    let _process = source.start("").await;
    source.commit(2, "lin+1 broken mei+1").await;
    source.consumed().await;
    assert_eq!(stored(&source.sql, PARTS).await, BTreeSet::from(["lin+1=1".to_owned(), "mei+1=1".to_owned()]));
    let text = "select count(*) from reverse_index.reverse_quarantine \
                where lane = 'rel-02' and offset_seq = 2 and payload = '\\x0aff' and closed_at is null";
    assert_eq!(source.number(text).await, 1);
}
