//! Checkpoints: how far a projection has applied each lane.
//!
//! ```sql
//! create table consumer_checkpoint (projection text, lane text, epoch int not null, next_offset bigint not null,
//!     last_event_id uuid, owner_epoch bigint not null, updated_at timestamptz not null,
//!     primary key (projection, lane));
//! ```

use deadpool_postgres::Pool;
use time::OffsetDateTime;

use super::Error;
use super::evidence::from_bigint;

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
    let rows = client.query(&statement, &[&projection]).await?;
    rows.iter()
        .map(|row| {
            let epoch: i32 = row.try_get(1)?;
            Ok(Checkpoint {
                lane: row.try_get(0)?,
                epoch: u32::try_from(epoch).unwrap_or(0),
                next_offset: from_bigint(row.try_get(2)?),
                updated_at: row.try_get(3)?,
            })
        })
        .collect()
}
