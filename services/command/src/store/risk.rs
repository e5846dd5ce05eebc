//! What risk acts write into a shard.

use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Error, doing, lock, rows, unsigned};
use crate::risk::{ActKind, Target};

const WRITE: &str = include_str!("risk_write.sql");
const FIGURES: &str = include_str!("risk_figures.sql");
const SWEEPS_OF: &str = include_str!("sweeps_of.sql");

/// Likes within a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Likes.
    pub liked: u64,
    /// Those of them that count.
    pub counted: u64,
}

/// What is written for each target of an act.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// The act whose mark it is.
    pub act_id: Uuid,
    /// What that act does; never [`ActKind::Restore`].
    pub kind: ActKind,
    /// Until when it freezes.
    pub until: Option<OffsetDateTime>,
    /// The mark is taken back.
    pub takes_back: bool,
}

fn names(target: &Target) -> (&str, &str) {
    let user = target.user.as_ref().map_or("", |user| user.as_str());
    (user, target.video.as_ref().map_or("", |video| video.as_str()))
}

/// Writes a mark for one target, or takes it back, under the shard's lock. Done twice it changes nothing.
///
/// # Errors
/// When the shard does not answer.
pub async fn write(pool: &Pool, shard: u16, mark: &Mark, target: &Target) -> Result<(), Error> {
    let (user, video) = names(target);
    let (act, kind) = (mark.act_id.to_string(), mark.kind.code());
    let what = "write a risk act";
    rows(
        pool,
        WRITE,
        &[&lock::SHARD, &i32::from(shard), &act, &kind, &user, &video, &mark.until, &mark.takes_back],
        what,
    )
    .await?;
    Ok(())
}

/// Likes of the targets' users, on the targets' videos where one is named.
///
/// # Errors
/// When the shard does not answer.
pub async fn figures(pool: &Pool, targets: &[&Target]) -> Result<Figures, Error> {
    let what = "count the likes of a risk act";
    let (users, videos): (Vec<&str>, Vec<&str>) = targets.iter().map(|target| names(target)).unzip();
    let found = rows(pool, FIGURES, &[&users, &videos], what).await?;
    let row = found.first().ok_or_else(|| Error::Stored("likes cannot be counted".to_owned()))?;
    let read = |error| doing(what)(error);
    Ok(Figures { liked: unsigned(row.try_get(0).map_err(read)?), counted: unsigned(row.try_get(1).map_err(read)?) })
}

/// Sweeps of the targets' users that are not finished.
///
/// # Errors
/// When the shard does not answer.
pub async fn sweeps(pool: &Pool, targets: &[&Target]) -> Result<u64, Error> {
    let what = "look for sweeps of a risk act";
    let users: Vec<&str> = targets.iter().map(|target| names(target).0).collect();
    let found = rows(pool, SWEEPS_OF, &[&users], what).await?;
    found.first().map_or(Ok(0), |row| row.try_get(0).map(unsigned).map_err(doing(what)))
}
