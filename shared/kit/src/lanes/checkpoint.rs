//! Checkpoints: how far a projection has applied each lane.
//!
//! ```sql
//! create table consumer_checkpoint (projection text, lane text, epoch int not null, next_offset bigint not null,
//!     last_event_id uuid, owner_epoch bigint not null, updated_at timestamptz not null,
//!     primary key (projection, lane));
//! ```
//!
//! A checkpoint only ever follows effects that are durable, and only its present owner can move it.

use deadpool_postgres::Pool;
use likewise_domain::lane::Offset;
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

use super::Error;
use super::evidence::{as_bigint, as_integer, from_bigint};

const CLAIM: &str = include_str!("store/checkpoint_claim.sql");
const ADVANCE: &str = include_str!("store/checkpoint_advance.sql");
const MOVE: &str = include_str!("store/checkpoint_move.sql");
const LIST: &str = include_str!("store/checkpoint_list.sql");

/// How far one projection has applied one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name of the lane, for example `rel-03`.
    pub lane: String,
    /// Epoch of the offset.
    pub epoch: u32,
    /// First message whose effect is not included.
    pub next_offset: u64,
    /// Event id of the last message applied; `None` before the first.
    pub last_event_id: Option<Uuid>,
    /// When it last moved, by the database clock.
    pub updated_at: OffsetDateTime,
}

/// All checkpoints of one projection, by lane.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn checkpoints(pool: &Pool, projection: &str) -> Result<Vec<Checkpoint>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(LIST).await?;
    client.query(&statement, &[&projection]).await?.iter().map(checkpoint).collect()
}

/// Makes `owner_epoch` the owner. `None` when a higher one has been seen: the caller is an older owner.
pub(super) async fn claim(
    pool: &Pool,
    projection: &str,
    lane: &str,
    owner_epoch: i64,
) -> Result<Option<Checkpoint>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(CLAIM).await?;
    let row = client.query_opt(&statement, &[&projection, &lane, &owner_epoch]).await?;
    row.as_ref().map(checkpoint).transpose()
}

/// Moves `from` on to the offset after `last_event_id`'s message and answers when. `None` when the lane has another
/// owner or stands elsewhere.
pub(super) async fn advance(
    pool: &Pool,
    projection: &str,
    owner_epoch: i64,
    from: &Checkpoint,
    next_offset: u64,
    last_event_id: Uuid,
) -> Result<Option<OffsetDateTime>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(ADVANCE).await?;
    let epoch = as_integer(from.epoch);
    let (from_offset, next_offset) = (as_bigint(from.next_offset), as_bigint(next_offset));
    let row = client
        .query_opt(
            &statement,
            &[&projection, &from.lane, &owner_epoch, &epoch, &from_offset, &next_offset, &last_event_id],
        )
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Moves `from` to another place without having applied the message before it: over a hole that nobody can fill, or into
/// the next epoch. `None` as in [`advance`].
pub(super) async fn go_to(
    pool: &Pool,
    projection: &str,
    owner_epoch: i64,
    from: &Checkpoint,
    to: Offset,
) -> Result<Option<Checkpoint>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(MOVE).await?;
    let (from_epoch, from_offset) = (as_integer(from.epoch), as_bigint(from.next_offset));
    let (epoch, next_offset) = (as_integer(to.epoch), as_bigint(to.seq));
    let row = client
        .query_opt(
            &statement,
            &[&projection, &from.lane, &owner_epoch, &from_epoch, &from_offset, &epoch, &next_offset],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let (lane, updated_at) = (from.lane.clone(), row.try_get(0)?);
    Ok(Some(Checkpoint { lane, epoch: to.epoch, next_offset: to.seq, last_event_id: None, updated_at }))
}

fn checkpoint(row: &Row) -> Result<Checkpoint, Error> {
    let epoch: i32 = row.try_get("epoch")?;
    Ok(Checkpoint {
        lane: row.try_get("lane")?,
        epoch: u32::try_from(epoch).unwrap_or(0),
        next_offset: from_bigint(row.try_get("next_offset")?),
        last_event_id: row.try_get("last_event_id")?,
        updated_at: row.try_get("updated_at")?,
    })
}
