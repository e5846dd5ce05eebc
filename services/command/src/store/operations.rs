//! Verdicts by operation id, read from the primary.

use likewise_domain::decide::{Outcome, Verdict};
use likewise_domain::id::{OperationId, UserId};
use likewise_domain::operation;
use likewise_domain::relation::{LikeState, effective_version};
use likewise_kit::pg::Pool;
use time::OffsetDateTime;

use super::{Error, doing, rows, state, unsigned};
use crate::intent::Current;

const OPERATION: &str = include_str!("operation.sql");
const KEPT: &str = include_str!("operation_kept.sql");

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The video it was about.
    pub video_id: String,
    /// The state that was asked for.
    pub desired_state: LikeState,
    /// What it was told.
    pub verdict: Verdict,
    /// When.
    pub decided_at: OffsetDateTime,
    /// The relation as it is now.
    pub current: Current,
}

/// The verdict of a user's operation, or `None` while there is none. For an id that tells a time one partition is read,
/// otherwise all that live.
///
/// # Errors
/// When the shard does not answer.
pub async fn find(pool: &Pool, user: &UserId, id: &OperationId) -> Result<Option<Operation>, Error> {
    let what = "read an operation";
    let dated = operation::dated(id);
    let found = rows(pool, OPERATION, &[&user.as_str(), &id.as_str(), &dated], what).await?;
    let Some(row) = found.first() else { return Ok(None) };
    let read = |error| doing(what)(error);
    let code: i16 = row.try_get(2).map_err(read)?;
    let outcome = Outcome::from_code(code).ok_or_else(|| Error::Stored(format!("outcome {code} is none")))?;
    let now: Option<i16> = row.try_get(6).map_err(read)?;
    let version: Option<i64> = row.try_get(7).map_err(read)?;
    let epoch: i32 = row.try_get(9).map_err(read)?;
    Ok(Some(Operation {
        video_id: row.try_get(0).map_err(read)?,
        desired_state: state(row.try_get(1).map_err(read)?)?,
        verdict: Verdict {
            outcome,
            state: state(row.try_get(3).map_err(read)?)?,
            version: unsigned(row.try_get(4).map_err(read)?),
        },
        decided_at: row.try_get(5).map_err(read)?,
        current: Current {
            state: now.map_or(Ok(LikeState::Unliked), state)?,
            version: effective_version(unsigned(version.unwrap_or(0)), super::epoch(epoch)),
            changed_at: row.try_get(8).map_err(read)?,
        },
    }))
}

/// What is kept of an operation beside its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The base version that was sent.
    pub base_version: Option<u64>,
    /// The number within the device's queue.
    pub client_sequence: Option<u64>,
    /// Hash of the device.
    pub device_hash: Option<Vec<u8>>,
}

/// What is kept of an operation beside its verdict, or `None` while there is none.
///
/// # Errors
/// When the shard does not answer.
pub async fn kept(pool: &Pool, user: &UserId, id: &OperationId) -> Result<Option<Kept>, Error> {
    let what = "read an operation";
    let dated = operation::dated(id);
    let found = rows(pool, KEPT, &[&user.as_str(), &id.as_str(), &dated], what).await?;
    let Some(row) = found.first() else { return Ok(None) };
    let base: Option<i64> = row.try_get(0).map_err(doing(what))?;
    let sequence: Option<i64> = row.try_get(1).map_err(doing(what))?;
    Ok(Some(Kept {
        base_version: base.map(unsigned),
        client_sequence: sequence.map(i64::cast_unsigned),
        device_hash: row.try_get(2).map_err(doing(what))?,
    }))
}
