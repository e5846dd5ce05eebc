//! Sweeps over all relations of one account: after its state changed, or a risk act did.

use std::time::Duration;

use likewise_kit::pg::Pool;

use super::{Error, connection, doing, lock, prepared, rows, unsigned};

const CLAIM: &str = include_str!("sweep_claim.sql");
const RELATIONS: &str = include_str!("sweep_relations.sql");
const HIDDEN: &str = include_str!("sweep_hidden.sql");
const DONE: &str = include_str!("sweep_done.sql");
const WAITING: &str = include_str!("sweeps_waiting.sql");

/// What is swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Relations are taken or given back.
    Relations,
    /// The second axis is brought in line.
    Hidden,
}

/// One account's sweep, for a while ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// The account.
    pub user_id: String,
    /// Grows with every request for it.
    pub request: i64,
    /// How far it is.
    pub phase: Phase,
}

/// What came of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// There is more of this phase.
    More,
    /// The phase is finished.
    Done,
    /// A newer request began the sweep anew.
    Superseded,
    /// The shard takes no changes for now.
    Closed,
}

/// Takes the sweep that has waited longest, for as long as `claim`.
///
/// # Errors
/// When the shard does not answer.
pub async fn claim(pool: &Pool, claim: Duration) -> Result<Option<Sweep>, Error> {
    let what = "look for sweeps";
    let millis = f64::from(u32::try_from(claim.as_millis()).unwrap_or(u32::MAX));
    let found = rows(pool, CLAIM, &[&millis], what).await?;
    let Some(row) = found.first() else { return Ok(None) };
    let phase: i16 = row.try_get(2).map_err(doing(what))?;
    Ok(Some(Sweep {
        user_id: row.try_get(0).map_err(doing(what))?,
        request: row.try_get(1).map_err(doing(what))?,
        phase: if phase == 1 { Phase::Relations } else { Phase::Hidden },
    }))
}

/// Does the next part, at most `limit` relations, in one transaction under the shard's lock.
///
/// # Errors
/// When the shard does not answer; nothing was changed then.
pub async fn step(pool: &Pool, shard: u16, sweep: &Sweep, limit: u32) -> Result<Part, Error> {
    let what = "sweep an account's relations";
    let statement = match sweep.phase {
        Phase::Relations => RELATIONS,
        Phase::Hidden => HIDDEN,
    };
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let client = connection(pool, what).await?;
    let statement = prepared(&client, statement, what).await?;
    let row = client
        .query_one(&statement, &[&lock::SHARD, &i32::from(shard), &sweep.user_id, &sweep.request, &limit])
        .await
        .map_err(doing(what))?;
    match row.try_get(0).map_err(doing(what))? {
        "MORE" => Ok(Part::More),
        "DONE" => Ok(Part::Done),
        "SUPERSEDED" => Ok(Part::Superseded),
        "CLOSED" => Ok(Part::Closed),
        other => Err(Error::Stored(format!("a sweep answered {other:?}"))),
    }
}

/// Forgets a finished sweep; how many relations it changed, or `None` when it was asked for again meanwhile.
///
/// # Errors
/// When the shard does not answer.
pub async fn finish(pool: &Pool, sweep: &Sweep) -> Result<Option<u64>, Error> {
    let what = "finish a sweep";
    let found = rows(pool, DONE, &[&sweep.user_id, &sweep.request], what).await?;
    found.first().map(|row| Ok(unsigned(row.try_get(0).map_err(doing(what))?))).transpose()
}

/// Sweeps that are not finished, and how long the oldest of them has waited.
///
/// # Errors
/// When the shard does not answer.
pub async fn waiting(pool: &Pool) -> Result<(u64, Duration), Error> {
    let what = "count sweeps";
    let found = rows(pool, WAITING, &[], what).await?;
    let row = found.first().ok_or_else(|| Error::Stored("sweeps cannot be counted".to_owned()))?;
    let seconds: f64 = row.try_get(1).map_err(doing(what))?;
    let count: i64 = row.try_get(0).map_err(doing(what))?;
    Ok((unsigned(count), Duration::try_from_secs_f64(seconds).unwrap_or_default()))
}
