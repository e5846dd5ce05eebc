//! Statements on the standard tables of a publishing schema: `outbox_publication` and `shard_meta`.
//!
//! ```sql
//! create table outbox_publication (from_seq bigint not null, to_seq bigint primary key, stream text not null,
//!     from_offset bigint not null, acked_at timestamptz not null default now());
//! create table shard_meta (singleton boolean primary key default true check (singleton),
//!     epoch int not null default 0, incarnation uuid not null);
//! create table lease (name text primary key, owner uuid not null, epoch bigint not null,
//!     expires_at timestamptz not null);
//! ```

use deadpool_postgres::Pool;

use super::{Error, ShardMeta};

const RECORD: &str = include_str!("store/evidence_record.sql");
const LAST: &str = include_str!("store/evidence_last.sql");
const META: &str = include_str!("store/shard_meta.sql");

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

/// Epoch and incarnation; for [`super::Outbox::meta`].
///
/// # Errors
/// When PostgreSQL does not answer or the row is missing.
pub async fn shard_meta(pool: &Pool) -> Result<ShardMeta, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(META).await?;
    let row = client.query_one(&statement, &[]).await?;
    let epoch: i32 = row.try_get(0)?;
    Ok(ShardMeta { epoch: u32::try_from(epoch).unwrap_or(0), incarnation: row.try_get(1)? })
}

/// Sequence numbers stay far below 2^63: at a million changes a second they last for 290,000 years.
pub(super) fn as_bigint(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// The columns are checked not to be negative.
pub(super) fn from_bigint(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}
