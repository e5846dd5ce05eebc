//! Statements on the standard tables of a publishing schema: `outbox_publication`, `shard_meta` and `lane_epoch`.
//!
//! ```sql
//! create table outbox_publication (from_seq bigint not null, to_seq bigint primary key, stream text not null,
//!     from_offset bigint not null, acked_at timestamptz not null default now());
//! create table shard_meta (singleton boolean primary key default true check (singleton),
//!     epoch int not null default 0, incarnation uuid not null, status text not null default 'SERVING',
//!     system_identifier bigint, timeline_id int);
//! create table lane_epoch (epoch int primary key, first_seq bigint not null, began_at timestamptz not null default now(),
//!     served_at timestamptz, lost bigint not null default 0, restated bigint not null default 0);
//! insert into lane_epoch (epoch, first_seq, served_at) values (0, 1, now());
//! create table lease (name text primary key, owner uuid not null, epoch bigint not null,
//!     expires_at timestamptz not null);
//! ```

use deadpool_postgres::Pool;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};

use super::{Error, LaneEpoch, ShardMeta, ShardStatus};

const RECORD: &str = include_str!("store/evidence_record.sql");
const LAST: &str = include_str!("store/evidence_last.sql");
const META: &str = include_str!("store/shard_meta.sql");
const EPOCHS: &str = include_str!("store/epochs.sql");
const LOCK: &str = include_str!("store/lock.sql");
const BEGIN: &str = include_str!("store/epoch_begin.sql");
const END: &str = include_str!("store/epoch_end.sql");
const MOVED: &str = include_str!("store/shard_moved.sql");

/// Records that `from_seq..=to_seq` are in `stream`; for [`super::Outbox::record_evidence`].
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn record_evidence(pool: &Pool, from_seq: u64, to_seq: u64, stream: &str) -> Result<(), Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(RECORD).await?;
    client.execute(&statement, &[&as_bigint(from_seq), &as_bigint(to_seq), &stream]).await?;
    Ok(())
}

/// Highest number with evidence, 0 when there is none; for [`super::Outbox::last_evidence`].
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn last_evidence(pool: &Pool) -> Result<u64, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(LAST).await?;
    Ok(from_bigint(client.query_one(&statement, &[]).await?.try_get(0)?))
}

/// What the shard is; for [`super::Outbox::meta`].
///
/// # Errors
/// When PostgreSQL does not answer or the row is missing.
pub async fn shard_meta(pool: &Pool) -> Result<ShardMeta, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(META).await?;
    let row = client.query_one(&statement, &[]).await?;
    let status: &str = row.try_get(3)?;
    Ok(ShardMeta {
        epoch: epoch(row.try_get(0)?),
        incarnation: row.try_get(1)?,
        first_seq: from_bigint(row.try_get(2)?),
        status: ShardStatus::parse(status)
            .ok_or_else(|| Error::outbox("read what the shard is", format!("unknown status {status}")))?,
        epoch_pending: row.try_get(4)?,
        server_changed: row.try_get(5)?,
        server_started_at: row.try_get(6)?,
    })
}

/// All epochs of a shard, the present one last.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn lane_epochs(pool: &Pool) -> Result<Vec<LaneEpoch>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(EPOCHS).await?;
    client.query(&statement, &[]).await?.iter().map(lane_epoch).collect()
}

fn lane_epoch(row: &Row) -> Result<LaneEpoch, Error> {
    Ok(LaneEpoch {
        epoch: epoch(row.try_get(0)?),
        first_seq: from_bigint(row.try_get(1)?),
        began_at: row.try_get(2)?,
        served_at: row.try_get(3)?,
        lost: from_bigint(row.try_get(4)?),
        restated: from_bigint(row.try_get(5)?),
    })
}

/// Opens epoch `to`, whose stream begins at `first_seq`, after that of `seen`: the shard takes no changes until
/// [`end_epoch`]. False when the shard is in another epoch by now, or its server was started anew.
pub(super) async fn begin_epoch(
    pool: &Pool,
    lock: (i32, i32),
    seen: &ShardMeta,
    (to, first_seq): (u32, u64),
    lost: u64,
) -> Result<bool, Error> {
    let (from, to) = (as_integer(seen.epoch), as_integer(to));
    let parameters: [&(dyn ToSql + Sync); 5] =
        [&from, &to, &as_bigint(first_seq), &as_bigint(lost), &seen.server_started_at];
    under_lock(pool, lock, BEGIN, &parameters).await
}

/// Lets the shard serve in `epoch`, on the server that answers. False when it is not being repaired in that epoch, or the
/// server was started after `seen`, whereby what was stated again may be lost.
pub(super) async fn end_epoch(
    pool: &Pool,
    lock: (i32, i32),
    seen: &ShardMeta,
    epoch: u32,
    restated: u64,
) -> Result<bool, Error> {
    under_lock(pool, lock, END, &[&as_integer(epoch), &as_bigint(restated), &seen.server_started_at]).await
}

/// Says that the shard lives elsewhere. False when that was known.
pub(super) async fn give_up_shard(pool: &Pool, lock: (i32, i32), epoch: u32) -> Result<bool, Error> {
    under_lock(pool, lock, MOVED, &[&as_integer(epoch)]).await
}

/// Runs one statement under the shard's lock and answers whether it changed anything. The lock is a statement of its own,
/// so that the next one sees what was committed before it was granted.
async fn under_lock(
    pool: &Pool,
    lock: (i32, i32),
    statement: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<bool, Error> {
    let mut client = pool.get().await?;
    let transaction = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
    transaction.execute(LOCK, &[&lock.0, &lock.1]).await?;
    let changed = transaction.execute(statement, parameters).await?;
    transaction.commit().await?;
    Ok(changed > 0)
}

fn epoch(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

pub(super) fn as_integer(epoch: u32) -> i32 {
    i32::try_from(epoch).unwrap_or(i32::MAX)
}

/// Sequence numbers stay far below 2^63: at a million changes a second they last for 290,000 years.
pub(super) fn as_bigint(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// The columns are checked not to be negative.
pub(super) fn from_bigint(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}
