//! Write barriers: granted, proved and released under the shard's lock, and kept with who and why.

use std::time::Duration;

use likewise_domain::lane::Offset;
use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Error, doing, epoch, lock, rows, unsigned};

const ACQUIRE: &str = include_str!("barrier_acquire.sql");
const PROVE: &str = include_str!("barrier_prove.sql");
const RELEASE: &str = include_str!("barrier_release.sql");

/// A barrier of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// Epoch and highest number it stands on, or those of now.
    pub at: Offset,
    /// When it lapses, by the database; absent when none stands.
    pub until: Option<OffsetDateTime>,
}

/// Whether a barrier stands and nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The shard now.
    pub barrier: Barrier,
    /// OTHER_TOKEN, LAPSED, EPOCH_CHANGED or WRITTEN; `None` when it holds.
    pub problem: Option<String>,
}

/// Grants a barrier; `None` while another stands, or the shard does not serve.
///
/// # Errors
/// When the shard does not answer. A barrier that was granted all the same lapses by itself.
pub async fn acquire(
    pool: &Pool,
    shard: u16,
    token: Uuid,
    ttl: Duration,
    who: &str,
    reason: &str,
) -> Result<Option<Barrier>, Error> {
    let what = "raise a write barrier";
    let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let found = rows(pool, ACQUIRE, &[&lock::SHARD, &i32::from(shard), &token, &ttl, &who, &reason], what).await?;
    let row = found.first().ok_or_else(|| Error::Stored("a barrier was not answered".to_owned()))?;
    if !row.try_get::<_, bool>(0).map_err(doing(what))? {
        return Ok(None);
    }
    let of: i32 = row.try_get(1).map_err(doing(what))?;
    let seq: i64 = row.try_get(2).map_err(doing(what))?;
    let until = row.try_get(3).map_err(doing(what))?;
    Ok(Some(Barrier { at: Offset { epoch: epoch(of), seq: unsigned(seq) }, until }))
}

/// Proves a barrier, or says why it cannot be proved.
///
/// # Errors
/// When the shard does not answer.
pub async fn prove(pool: &Pool, shard: u16, token: Uuid, who: &str) -> Result<Proof, Error> {
    let what = "prove a write barrier";
    let found = rows(pool, PROVE, &[&lock::SHARD, &i32::from(shard), &token, &who], what).await?;
    let row = found.first().ok_or_else(|| Error::Stored("a proof was not answered".to_owned()))?;
    let of: i32 = row.try_get(2).map_err(doing(what))?;
    let seq: i64 = row.try_get(3).map_err(doing(what))?;
    Ok(Proof {
        barrier: Barrier {
            at: Offset { epoch: epoch(of), seq: unsigned(seq) },
            until: row.try_get(4).map_err(doing(what))?,
        },
        problem: row.try_get(1).map_err(doing(what))?,
    })
}

/// Ends a barrier; false when it no longer stood.
///
/// # Errors
/// When the shard does not answer.
pub async fn release(pool: &Pool, shard: u16, token: Uuid, who: &str) -> Result<bool, Error> {
    let what = "release a write barrier";
    let found = rows(pool, RELEASE, &[&lock::SHARD, &i32::from(shard), &token, &who], what).await?;
    found.first().map_or(Ok(false), |row| row.try_get(0).map_err(doing(what)))
}
