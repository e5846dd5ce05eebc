//! Committed relations, read from the shard that owns the user. Every read uses effective versions.

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::relation::{LikeState, effective_version};
use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use tokio_postgres::Row;

use super::{Error, doing, rows, state, unsigned};
use crate::intent::Current;

const RELATIONS: &str = include_str!("relations_of_user.sql");
const LIKES: &str = include_str!("likes_of_user.sql");

/// The user's relations to videos, in the order asked for; one that was never touched is UNLIKED at the epoch's floor.
///
/// # Errors
/// When the shard does not answer.
pub async fn relations(pool: &Pool, user: &UserId, videos: &[VideoId]) -> Result<Vec<Current>, Error> {
    let what = "read relations";
    let ids: Vec<&str> = videos.iter().map(VideoId::as_str).collect();
    rows(pool, RELATIONS, &[&user.as_str(), &ids], what).await?.iter().map(current).collect()
}

/// A row of a user's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liked {
    /// The video.
    pub video_id: String,
    /// Effective version.
    pub version: u64,
    /// When the user liked it.
    pub changed_at: OffsetDateTime,
}

/// What a user likes, newest first, after the row with the key `after`.
///
/// # Errors
/// When the shard does not answer.
pub async fn likes(
    pool: &Pool,
    user: &UserId,
    after: Option<(OffsetDateTime, &str)>,
    limit: i64,
) -> Result<Vec<Liked>, Error> {
    let what = "read a user's likes";
    let (at, video) = after.unzip();
    rows(pool, LIKES, &[&user.as_str(), &LikeState::Liked.code(), &at, &video, &limit], what)
        .await?
        .iter()
        .map(|row| {
            let (version, epoch): (i64, i32) =
                (row.try_get(1).map_err(doing(what))?, row.try_get(3).map_err(doing(what))?);
            Ok(Liked {
                video_id: row.try_get(0).map_err(doing(what))?,
                version: effective_version(unsigned(version), super::epoch(epoch)),
                changed_at: row.try_get(2).map_err(doing(what))?,
            })
        })
        .collect()
}

/// Reads (state, stored version, time, epoch), the first three empty for a relation without a row.
fn current(row: &Row) -> Result<Current, Error> {
    let read = |error| doing("read a relation")(error);
    let code: Option<i16> = row.try_get(0).map_err(read)?;
    let version: Option<i64> = row.try_get(1).map_err(read)?;
    let epoch: i32 = row.try_get(3).map_err(read)?;
    Ok(Current {
        state: code.map_or(Ok(LikeState::Unliked), state)?,
        version: effective_version(unsigned(version.unwrap_or(0)), super::epoch(epoch)),
        changed_at: row.try_get(2).map_err(read)?,
    })
}
