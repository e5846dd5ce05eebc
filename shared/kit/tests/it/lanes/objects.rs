//! Objects with versions: the smallest facts that can lose a tail, and the smallest projection that holds copies of them.
//! Facts and copies live on different servers, so that only the facts go back in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::Pool;
use futures::future::BoxFuture;
use likewise_domain::lane::Offset;
use likewise_kit::lanes::{
    self, ApplyError, Error, Lane, LaneMessage, Outbox, OutboxMessage, OutboxWatermarks, Projection, Repair, ShardMeta,
    Upstream,
};
use tokio::sync::Semaphore;

use super::toy::{LANE, ToyOutbox};

/// On top of the toy's tables.
pub(super) const OBJECTS: &str = "
    create table object (name text primary key, version bigint not null, value text not null);
    update shard_meta set system_identifier = (pg_control_system()).system_identifier,
        timeline_id = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
    create function change(names text[], new_value text) returns bigint language plpgsql volatile as $$
    declare v_epoch int; v_status text; v_seq bigint;
    begin
      perform pg_advisory_xact_lock(9, 3);
      select epoch, status into v_epoch, v_status from shard_meta;
      if v_status <> 'SERVING' then raise exception 'the shard is %', v_status; end if;
      select coalesce(max(seq), 0) into v_seq from outbox;
      insert into object as o select n, (v_epoch::bigint << 40) + 1, new_value from unnest(names) n
      on conflict (name) do update
      set version = greatest(o.version, v_epoch::bigint << 40) + 1, value = excluded.value;
      insert into outbox (seq, event_id, payload)
      select v_seq + row_number() over (), gen_random_uuid(), convert_to(o.name || ' ' || o.version || ' ' || o.value, 'UTF8')
      from object o where o.name = any(names);
      return v_seq + cardinality(names);
    end $$;
    create function restate(p_epoch int, names text[]) returns bigint language plpgsql volatile as $$
    declare v_seq bigint;
    begin
      perform pg_advisory_xact_lock(9, 3);
      perform from shard_meta where epoch = p_epoch and status = 'REPAIRING';
      if not found then raise exception 'the shard is not being repaired in epoch %', p_epoch; end if;
      select coalesce(max(seq), 0) into v_seq from outbox;
      insert into object as o select distinct n, (p_epoch::bigint << 40) + 1, 'gone' from unnest(names) n
      on conflict (name) do update set version = greatest(o.version, p_epoch::bigint << 40) + 1;
      insert into outbox (seq, event_id, payload)
      select v_seq + row_number() over (), gen_random_uuid(), convert_to(o.name || ' ' || o.version || ' ' || o.value, 'UTF8')
      from object o where o.name = any(names);
      return (select count(distinct n) from unnest(names) n);
    end $$;";

/// Tables of a projection of its own.
pub(super) const COPIES: &str = "
    create table lease (name text primary key, owner uuid not null, epoch bigint not null,
        expires_at timestamptz not null);
    create table consumer_checkpoint (projection text, lane text, epoch int not null, next_offset bigint not null,
        last_event_id uuid, owner_epoch bigint not null, updated_at timestamptz not null,
        primary key (projection, lane));
    create table held (projection text, name text, version bigint not null, value text not null,
        primary key (projection, name));";

/// Name, version and value that a message carries.
fn object(payload: &[u8]) -> (String, i64, String) {
    let text = String::from_utf8(payload.to_vec()).expect("text");
    let parts: Vec<&str> = text.splitn(3, ' ').collect();
    (parts[0].to_owned(), parts[1].parse().expect("a version"), parts[2].to_owned())
}

/// Objects by name.
pub(super) type Objects = BTreeMap<String, (i64, String)>;

pub(super) async fn objects(pool: &Pool, text: &str) -> Objects {
    let client = pool.get().await.expect("PostgreSQL");
    let rows = client.query(text, &[]).await.expect("query");
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect()
}

/// The toy's outbox, of objects.
pub(super) struct ObjectOutbox(pub(super) ToyOutbox, pub(super) Option<Arc<Gates>>);

/// Stops the first restatement before it begins and after it has committed, until the test lets it go on.
#[derive(Debug)]
pub(super) struct Gates {
    pub(super) reached: [Semaphore; 2],
    pub(super) open: [Semaphore; 2],
}

impl Gates {
    pub(super) fn shut() -> Arc<Self> {
        let none = || [Semaphore::new(0), Semaphore::new(0)];
        Arc::new(Self { reached: none(), open: none() })
    }

    async fn pass(&self, gate: usize) {
        self.reached[gate].add_permits(1);
        // Stays open once it was opened.
        drop(self.open[gate].acquire().await.expect("never closed"));
    }

    pub(super) async fn wait(&self, gate: usize) {
        self.reached[gate].acquire().await.expect("never closed").forget();
    }
}

impl Outbox for ObjectOutbox {
    fn lane(&self) -> Lane {
        LANE
    }

    fn pool(&self) -> &Pool {
        self.0.pool()
    }

    async fn read_after(&self, seq: u64, limit: usize) -> Result<Vec<OutboxMessage>, Error> {
        self.0.read_after(seq, limit).await
    }

    async fn meta(&self) -> Result<ShardMeta, Error> {
        self.0.meta().await
    }

    async fn last_evidence(&self) -> Result<u64, Error> {
        self.0.last_evidence().await
    }

    async fn record_evidence(&self, from_seq: u64, to_seq: u64, stream: &str) -> Result<(), Error> {
        self.0.record_evidence(from_seq, to_seq, stream).await
    }

    async fn watermarks(&self) -> Result<OutboxWatermarks, Error> {
        self.0.watermarks().await
    }

    fn repair(&self) -> Option<&dyn Repair> {
        Some(self)
    }
}

impl Repair for ObjectOutbox {
    fn lock(&self) -> (i32, i32) {
        (9, 3)
    }

    fn restate<'a>(&'a self, epoch: u32, messages: &'a [LaneMessage]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let names: Vec<String> = messages.iter().map(|message| object(&message.payload).0).collect();
            let epoch = i32::try_from(epoch).expect("small");
            if let Some(gates) = &self.1 {
                gates.pass(0).await;
            }
            let client = self.0.rows.get().await?;
            let row = client.query_one("select restate($1, $2)", &[&epoch, &names]).await?;
            if let Some(gates) = &self.1 {
                gates.pass(1).await;
            }
            Ok(u64::try_from(row.get::<_, i64>(0)).expect("positive"))
        })
    }
}

/// Reads the outbox as its publisher's `LaneService` would.
pub(super) struct ObjectUpstream(pub(super) Pool);

impl Upstream for ObjectUpstream {
    fn read(&self, lane: Lane, from: Offset, limit: usize) -> BoxFuture<'_, Result<Vec<LaneMessage>, Error>> {
        Box::pin(async move {
            let outbox = ToyOutbox { rows: self.0.clone(), pool: self.0.clone() };
            let rows = outbox.read_after(from.seq - 1, limit).await?;
            let epochs = lanes::lane_epochs(&self.0).await?;
            let next = epochs.iter().filter(|epoch| epoch.epoch > from.epoch).min_by_key(|epoch| epoch.first_seq);
            if let Some(next) = next.filter(|next| from.seq >= next.first_seq) {
                let next = Offset { epoch: next.epoch, seq: next.first_seq };
                return Err(Error::EpochChanged { lane: lane.to_string(), next });
            }
            let last = next.map_or(u64::MAX, |next| next.first_seq - 1);
            let message = |row: OutboxMessage| LaneMessage {
                lane,
                offset: Offset { seq: row.seq, ..from },
                event_id: row.event_id,
                schema: row.schema.to_owned(),
                payload: row.payload,
                published_at: row.created_at,
            };
            Ok(rows.into_iter().filter(|row| row.seq <= last).map(message).collect())
        })
    }
}

/// Copies of objects: the higher version wins.
pub(super) struct Copies {
    pub(super) name: String,
    pub(super) pool: Pool,
    /// Set to apply nothing for now.
    pub(super) held_back: Arc<AtomicBool>,
}

impl Projection for Copies {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn apply(&self, _lane: &Lane, _owner_epoch: i64, batch: &[LaneMessage]) -> Result<(), ApplyError> {
        if self.held_back.load(Ordering::SeqCst) {
            return Err(ApplyError::Retry("held back".to_owned()));
        }
        let retry = |error: &dyn std::error::Error| ApplyError::Retry(error.to_string());
        let client = self.pool.get().await.map_err(|error| retry(&error))?;
        for message in batch {
            let (name, version, value) = object(&message.payload);
            let text = "insert into held as h values ($1, $2, $3, $4) on conflict (projection, name) do update
                        set version = excluded.version, value = excluded.value where h.version < excluded.version";
            client.execute(text, &[&self.name, &name, &version, &value]).await.map_err(|error| retry(&error))?;
        }
        Ok(())
    }

    async fn fence(&self, _lane: &Lane, _owner_epoch: i64) -> Result<(), ApplyError> {
        Ok(())
    }
}
