//! The outbox as the publisher reads it.

use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Error, bigint, version};

/// An event as it is stored.
pub struct Stored {
    /// Its number.
    pub seq: u64,
    /// Its id.
    pub event_id: Uuid,
    /// Full name of its message type.
    pub schema: String,
    /// Its encoded message.
    pub event: Vec<u8>,
    /// When it was committed.
    pub created_at: OffsetDateTime,
}

/// Where the outbox stands.
pub struct Watermarks {
    /// Highest committed number.
    pub committed: u64,
    /// Highest published number.
    pub published: u64,
    /// Commit time of the oldest event without evidence.
    pub oldest_unpublished_at: Option<OffsetDateTime>,
}

/// Events above `seq`, in order.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn read_after(pool: &Pool, seq: u64, limit: usize) -> Result<Vec<Stored>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(include_str!("outbox_read_after.sql")).await?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = client.query(&statement, &[&bigint(seq), &limit]).await?;
    rows.iter()
        .map(|row| {
            Ok(Stored {
                seq: version(row.try_get(0)?),
                event_id: row.try_get(1)?,
                schema: row.try_get(2)?,
                event: row.try_get(3)?,
                created_at: row.try_get(4)?,
            })
        })
        .collect()
}

/// Committed and published.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn watermarks(pool: &Pool) -> Result<Watermarks, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(include_str!("outbox_watermarks.sql")).await?;
    let row = client.query_one(&statement, &[]).await?;
    Ok(Watermarks {
        committed: version(row.try_get(0)?),
        published: version(row.try_get(1)?),
        oldest_unpublished_at: row.try_get(2)?,
    })
}
