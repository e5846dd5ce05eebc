//! The smallest outbox and the smallest projection.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::Pool;
use futures::future::BoxFuture;
use likewise_domain::lane::Offset;
use likewise_kit::lanes::{
    self, ApplyError, Error, Lane, LaneMessage, Outbox, OutboxMessage, OutboxWatermarks, Projection, ShardMeta,
    Upstream,
};
use time::OffsetDateTime;
use tokio::sync::Semaphore;

/// The lane of every test; its stream is told apart by the prefix.
pub(super) const LANE: Lane = Lane { class: "toy", shard: 3 };
/// Schema name of the toy's messages.
pub(super) const SCHEMA: &str = "toy.v1.Changed";

/// All tables, standard ones included.
pub(super) const TABLES: &str = "
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
    create table lane_consumer (name text primary key, owner text not null, epoch int not null, next_seq bigint not null,
        ttl interval not null, registered_at timestamptz not null default clock_timestamp(),
        reported_at timestamptz not null default clock_timestamp());
    create table lane_hold (name text primary key, owner text not null, reason text not null, from_seq bigint not null,
        taken_at timestamptz not null default clock_timestamp(), expires_at timestamptz not null);
    create table lane_audit (id bigint generated always as identity primary key,
        at timestamptz not null default clock_timestamp(), actor text not null, action text not null, name text not null,
        epoch int, seq bigint not null);
    create table lease (name text primary key, owner uuid not null, epoch bigint not null,
        expires_at timestamptz not null);
    create table consumer_checkpoint (projection text, lane text, epoch int not null, next_offset bigint not null,
        last_event_id uuid, owner_epoch bigint not null, updated_at timestamptz not null,
        primary key (projection, lane));
    create table applied (seq bigint primary key, event_id uuid not null, payload bytea not null, times int not null);
    create table fence (lane text primary key, owner_epoch bigint not null);
    insert into shard_meta (incarnation) values (gen_random_uuid());
    insert into lane_epoch (epoch, first_seq, served_at) values (0, 1, now());";

/// An outbox of rows `seq, event_id, payload`.
pub(super) struct ToyOutbox {
    pub(super) rows: Pool,
    /// Where the lease is kept; another one than the rivals' makes two publishers work at once.
    pub(super) pool: Pool,
}

impl Outbox for ToyOutbox {
    fn lane(&self) -> Lane {
        LANE
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    async fn read_after(&self, seq: u64, limit: usize) -> Result<Vec<OutboxMessage>, Error> {
        let client = self.rows.get().await?;
        let (seq, limit) = (i64::try_from(seq).expect("small"), i64::try_from(limit).expect("small"));
        let text = "select seq, event_id, payload, created_at from outbox where seq > $1 order by seq limit $2";
        let statement = client.prepare_cached(text).await?;
        let rows = client.query(&statement, &[&seq, &limit]).await?;
        rows.iter()
            .map(|row| {
                Ok(OutboxMessage {
                    seq: u64::try_from(row.try_get::<_, i64>(0)?).expect("positive"),
                    event_id: row.try_get(1)?,
                    schema: SCHEMA,
                    payload: Bytes::from(row.try_get::<_, Vec<u8>>(2)?),
                    created_at: row.try_get(3)?,
                })
            })
            .collect()
    }

    async fn meta(&self) -> Result<ShardMeta, Error> {
        lanes::shard_meta(&self.rows).await
    }

    async fn last_evidence(&self) -> Result<u64, Error> {
        lanes::last_evidence(&self.rows).await
    }

    async fn record_evidence(&self, from_seq: u64, to_seq: u64, stream: &str) -> Result<(), Error> {
        lanes::record_evidence(&self.rows, from_seq, to_seq, stream).await
    }

    async fn watermarks(&self) -> Result<OutboxWatermarks, Error> {
        let client = self.rows.get().await?;
        let text = "select coalesce((select max(seq) from outbox), 0), p.seq,
                           (select created_at from outbox where seq = p.seq + 1)
                    from (select coalesce(max(to_seq), 0) as seq from outbox_publication) p";
        let row = client.query_one(text, &[]).await?;
        let oldest: Option<OffsetDateTime> = row.try_get(2)?;
        Ok(OutboxWatermarks {
            committed_seq: u64::try_from(row.try_get::<_, i64>(0)?).expect("positive"),
            published_seq: u64::try_from(row.try_get::<_, i64>(1)?).expect("positive"),
            oldest_unpublished_at: oldest,
        })
    }
}

/// Reads the toy outbox as its publisher's `LaneService` would.
pub(super) struct ToyUpstream {
    pub(super) outbox: ToyOutbox,
    /// Whether nobody answers.
    pub(super) away: AtomicBool,
    /// Consumers that are registered, with the places they told since.
    pub(super) told: Mutex<HashMap<String, Vec<Offset>>>,
}

impl ToyUpstream {
    fn answers(&self) -> Result<(), Error> {
        if self.away.load(Ordering::SeqCst) {
            Err(Error::outbox("ask the publisher", "nobody answers"))
        } else {
            Ok(())
        }
    }

    async fn tail(&self, lane: Lane, from: Offset, limit: usize) -> Result<Vec<LaneMessage>, Error> {
        self.answers()?;
        let rows = self.outbox.read_after(from.seq - 1, limit).await?;
        if rows.first().is_none_or(|row| row.seq != from.seq) {
            return Err(Error::RetentionGap { lane: lane.to_string(), seq: from.seq });
        }
        let message = |row: OutboxMessage| LaneMessage {
            lane,
            offset: Offset { seq: row.seq, ..from },
            event_id: row.event_id,
            schema: row.schema.to_owned(),
            payload: row.payload,
            published_at: row.created_at,
        };
        Ok(rows.into_iter().map(message).collect())
    }
}

impl Upstream for ToyUpstream {
    fn read(&self, lane: Lane, from: Offset, limit: usize) -> BoxFuture<'_, Result<Vec<LaneMessage>, Error>> {
        Box::pin(self.tail(lane, from, limit))
    }

    fn register<'a>(
        &'a self,
        _: Lane,
        consumer: &'a str,
        next: Offset,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.answers()?;
            self.told.lock().expect("not poisoned").insert(consumer.to_owned(), vec![next]);
            Ok(())
        })
    }

    fn report<'a>(&'a self, _: Lane, consumer: &'a str, next: Offset) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            self.answers()?;
            let mut told = self.told.lock().expect("not poisoned");
            Ok(told.get_mut(consumer).map(|places| places.push(next)).is_some())
        })
    }
}

/// Writes every message into `applied` and counts how often it came.
pub(super) struct ToyProjection {
    pub(super) pool: Pool,
    /// Whether owners older than the one in `fence` are refused here; otherwise only the checkpoint refuses them.
    pub(super) fences: bool,
    /// So many attempts stop after half of their batch is durable.
    pub(super) failures: AtomicUsize,
    /// Attempts made.
    pub(super) attempts: AtomicUsize,
    /// Set to hold every batch back, after its effects are durable, until `gate` has a permit.
    pub(super) gated: AtomicBool,
    pub(super) gate: Semaphore,
    /// First and last number of every attempt.
    pub(super) batches: Mutex<Vec<(u64, u64)>>,
}

impl ToyProjection {
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            pool,
            fences: true,
            failures: AtomicUsize::new(0),
            attempts: AtomicUsize::new(0),
            gated: AtomicBool::new(false),
            gate: Semaphore::new(0),
            batches: Mutex::new(Vec::new()),
        }
    }

    async fn write(&self, lane: &Lane, owner_epoch: i64, batch: &[LaneMessage]) -> Result<(), Error> {
        let client = self.pool.get().await?;
        let seqs: Vec<i64> = batch.iter().map(|message| i64::try_from(message.offset.seq).expect("small")).collect();
        let ids: Vec<_> = batch.iter().map(|message| message.event_id).collect();
        let payloads: Vec<_> = batch.iter().map(|message| message.payload.to_vec()).collect();
        let text = "insert into applied as a (seq, event_id, payload, times)
                    select *, 1 from unnest($3::bigint[], $4::uuid[], $5::bytea[])
                    where not exists (select from fence where lane = $1 and owner_epoch > $2)
                    on conflict (seq) do update set times = a.times + 1";
        let written = client.execute(text, &[&lane.to_string(), &owner_epoch, &seqs, &ids, &payloads]).await?;
        assert!(!self.fences || written == batch.len() as u64 || written == 0);
        if self.fences && written == 0 && !batch.is_empty() {
            return Err(Error::outbox("write the toy", "fenced"));
        }
        Ok(())
    }
}

fn retry(error: &Error) -> ApplyError {
    if error.chain().ends_with("fenced") { ApplyError::Fenced } else { ApplyError::Retry(error.chain()) }
}

impl Projection for ToyProjection {
    fn name(&self) -> String {
        "toy.g1".to_owned()
    }

    async fn apply(&self, lane: &Lane, owner_epoch: i64, batch: &[LaneMessage]) -> Result<(), ApplyError> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let ends = (batch[0].offset.seq, batch[batch.len() - 1].offset.seq);
        self.batches.lock().expect("not poisoned").push(ends);
        assert_eq!(ends.1 - ends.0 + 1, batch.len() as u64, "a batch has no holes");
        assert!(batch.iter().all(|message| message.lane == *lane && message.schema == SCHEMA));
        let fails = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails {
            self.write(lane, owner_epoch, &batch[..batch.len() / 2]).await.map_err(|error| retry(&error))?;
            return Err(ApplyError::Retry("half of it is written".to_owned()));
        }
        self.write(lane, owner_epoch, batch).await.map_err(|error| retry(&error))?;
        if self.gated.load(Ordering::SeqCst) {
            self.gate.acquire().await.expect("open").forget();
        }
        Ok(())
    }

    async fn fence(&self, lane: &Lane, owner_epoch: i64) -> Result<(), ApplyError> {
        if !self.fences {
            return Ok(());
        }
        let text = "insert into fence as f values ($1, $2)
                    on conflict (lane) do update set owner_epoch = excluded.owner_epoch
                    where f.owner_epoch <= excluded.owner_epoch";
        let fenced = async {
            let client = self.pool.get().await?;
            Ok::<u64, Error>(client.execute(text, &[&lane.to_string(), &owner_epoch]).await?)
        };
        match fenced.await {
            Ok(0) => Err(ApplyError::Fenced),
            Ok(_) => Ok(()),
            Err(error) => Err(ApplyError::Retry(error.chain())),
        }
    }
}
