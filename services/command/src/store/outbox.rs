//! Changes that wait for publication.

use likewise_domain::id::{OperationId, UserId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::relation::{Cause, Hidden, HiddenReasons, RelationChanged, RelationHiddenChanged};
use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{Error, doing, epoch, lock, rows, signed, state, unsigned};

const READ_AFTER: &str = include_str!("outbox_read_after.sql");
const BY_ID: &str = include_str!("event_by_id.sql");
const EVIDENCE: &str = include_str!("event_evidence.sql");
const RESTATE: &str = include_str!("restate.sql");
const WATERMARKS: &str = include_str!("outbox_watermarks.sql");

/// What a row of the outbox says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A relation entered a state.
    Changed(RelationChanged),
    /// Whether a like counts has changed, and nothing else.
    HiddenChanged(RelationHiddenChanged),
}

/// One row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Dense number of the change.
    pub seq: u64,
    /// Random id of the change.
    pub event_id: Uuid,
    /// The change.
    pub event: Event,
    /// When its transaction ran.
    pub created_at: OffsetDateTime,
}

/// Rows after `seq`, in order.
///
/// # Errors
/// When the shard does not answer, or holds what this build cannot read.
pub async fn read_after(pool: &Pool, shard: u16, seq: u64, limit: usize) -> Result<Vec<Stored>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found = rows(pool, READ_AFTER, &[&signed(seq), &limit], "read the outbox").await?;
    found.iter().map(|row| stored(row, shard)).collect()
}

fn stored(row: &Row, shard: u16) -> Result<Stored, Error> {
    let read = |error| doing("read an outbox row")(error);
    let Offset { epoch, seq } =
        Offset { epoch: epoch(row.try_get(5).map_err(read)?), seq: unsigned(row.try_get(0).map_err(read)?) };
    let malformed = |what: &str| Error::Stored(format!("outbox row {seq} of shard {shard} holds no {what}"));
    let reasons = |code| HiddenReasons::from_code(code).ok_or_else(|| malformed("hidden reasons"));
    let event_id = row.try_get(4).map_err(read)?;
    let user_id = UserId::parse(row.try_get(9).map_err(read)?).map_err(|_| malformed("user id"))?;
    let video_id = VideoId::parse(row.try_get(10).map_err(read)?).map_err(|_| malformed("video id"))?;
    let (version, state) = (unsigned(row.try_get(1).map_err(read)?), state(row.try_get(6).map_err(read)?)?);
    let state_changed_at = row.try_get(2).map_err(read)?;
    let hidden =
        Hidden { version: unsigned(row.try_get(13).map_err(read)?), reasons: reasons(row.try_get(14).map_err(read)?)? };
    let kind: i16 = row.try_get(12).map_err(read)?;
    let event = match kind {
        1 => Event::Changed(RelationChanged {
            event_id,
            user_id,
            video_id,
            version,
            state,
            previous_state: super::state(row.try_get(7).map_err(read)?)?,
            shard,
            epoch,
            seq,
            state_changed_at,
            operation_id: OperationId::parse(row.try_get(11).map_err(read)?).map_err(|_| malformed("operation id"))?,
            cause: Cause::from_code(row.try_get(8).map_err(read)?).ok_or_else(|| malformed("cause"))?,
            hidden,
        }),
        2 => Event::HiddenChanged(RelationHiddenChanged {
            event_id,
            user_id,
            video_id,
            hidden,
            previous_reasons: reasons(row.try_get(15).map_err(read)?)?,
            version,
            state,
            state_changed_at,
            shard,
            epoch,
            seq,
        }),
        _ => return Err(malformed("known kind")),
    };
    Ok(Stored { seq, event_id, event, created_at: row.try_get(3).map_err(read)? })
}

/// The number of an event; every row of the outbox may have to be read.
///
/// # Errors
/// When the shard does not answer.
pub async fn number_of(pool: &Pool, event_id: Uuid) -> Result<Option<u64>, Error> {
    let what = "look for an event";
    let found = rows(pool, BY_ID, &[&event_id], what).await?;
    found.first().map(|row| row.try_get(0).map(unsigned).map_err(doing(what))).transpose()
}

/// The stream that holds a number, if there is evidence of it.
///
/// # Errors
/// When the shard does not answer.
pub async fn stream_of(pool: &Pool, seq: u64) -> Result<Option<String>, Error> {
    let what = "look for the evidence of an event";
    let found = rows(pool, EVIDENCE, &[&signed(seq)], what).await?;
    found.first().map(|row| row.try_get(0).map_err(doing(what))).transpose()
}

/// Gives relations a new version in the epoch that the shard's repair opens, and answers how many they are.
///
/// # Errors
/// When the shard does not answer, or is not being repaired in that epoch.
pub async fn restate(pool: &Pool, shard: u16, epoch: u32, users: &[&str], videos: &[&str]) -> Result<u64, Error> {
    let what = "state relations again";
    let (shard, epoch) = (i32::from(shard), i32::try_from(epoch).unwrap_or(i32::MAX));
    let found = rows(pool, RESTATE, &[&lock::SHARD, &shard, &epoch, &users, &videos], what).await?;
    let restated = found.first().map(|row| row.try_get(0).map_err(doing(what))).transpose()?;
    Ok(restated.map_or(0, unsigned))
}

/// Committed and published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Highest committed number.
    pub committed: u64,
    /// Highest number with evidence.
    pub published: u64,
    /// Commit time of the oldest row without evidence.
    pub oldest_unpublished_at: Option<OffsetDateTime>,
}

/// Where the outbox stands, in one snapshot.
///
/// # Errors
/// When the shard does not answer.
pub async fn watermarks(pool: &Pool) -> Result<Watermarks, Error> {
    let found = rows(pool, WATERMARKS, &[], "read the outbox's watermarks").await?;
    let row = found.first().ok_or_else(|| Error::Stored("the outbox has no watermarks".to_owned()))?;
    let read = |error| doing("read the outbox's watermarks")(error);
    Ok(Watermarks {
        committed: unsigned(row.try_get(0).map_err(read)?),
        published: unsigned(row.try_get(1).map_err(read)?),
        oldest_unpublished_at: row.try_get(2).map_err(read)?,
    })
}
