//! Who still needs a lane's outbox: consumers that are registered, and holds. Statements on the standard tables
//! `lane_consumer`, `lane_hold` and `lane_audit` of a publishing schema.
//!
//! Whoever registers writes first and then looks whether the outbox still begins early enough; whoever drops a part of the
//! outbox looks here first, in the transaction that drops. So either the one sees the other's row, or the other sees that
//! the part is gone.

use std::time::Duration;

use deadpool_postgres::Pool;
use likewise_domain::lane::Offset;
use time::OffsetDateTime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, Row};

use super::evidence::{as_bigint, as_integer, from_bigint};
use super::{Error, LaneEpoch};

const REGISTER: &str = include_str!("store/consumer_register.sql");
const REPORT: &str = include_str!("store/consumer_report.sql");
const RELEASE: &str = include_str!("store/consumer_release.sql");
const CONSUMERS: &str = include_str!("store/consumers_list.sql");
const TAKE: &str = include_str!("store/hold_take.sql");
const RELEASE_HOLD: &str = include_str!("store/hold_release.sql");
const HOLDS: &str = include_str!("store/holds_list.sql");
const NEEDED: &str = include_str!("store/needed.sql");

/// A consumer of the lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// Who was heard last for it.
    pub owner: String,
    /// First change it has not applied.
    pub next: Offset,
    /// When it was first registered.
    pub registered_at: OffsetDateTime,
    /// When it was last heard.
    pub reported_at: OffsetDateTime,
    /// When it keeps nothing any more, unless it is heard before.
    pub expires_at: OffsetDateTime,
}

/// Numbers that are kept for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub name: String,
    /// Who took it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// First number that it keeps.
    pub from_seq: u64,
    /// When it was taken.
    pub taken_at: OffsetDateTime,
    /// When it ends by itself.
    pub expires_at: OffsetDateTime,
}

/// First number that a consumer needs: one of an older epoch goes on where the first later one begins.
pub(crate) fn needs(epochs: &[LaneEpoch], next: Offset) -> u64 {
    let later = epochs.iter().filter(|known| known.epoch > next.epoch);
    later.map(|known| known.first_seq).fold(next.seq, u64::min)
}

/// Where a consumer goes on, and how long it may say nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub(crate) next: Offset,
    pub(crate) ttl: Duration,
}

/// Names a consumer and where it goes on. Answers when it expires, and what was known of it before.
pub(crate) async fn register(
    pool: &Pool,
    name: &str,
    owner: &str,
    place: Place,
) -> Result<(OffsetDateTime, Option<Place>), Error> {
    let (epoch, seq, ttl) = (as_integer(place.next.epoch), as_bigint(place.next.seq), place.ttl.as_secs_f64());
    let rows = rows(pool, REGISTER, &[&name, &owner, &epoch, &seq, &ttl]).await?;
    let row = rows.first().ok_or_else(|| Error::outbox("register a consumer", "nothing was stored"))?;
    let known: (Option<i32>, Option<i64>, Option<f64>) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    let known = match known {
        (Some(epoch), Some(seq), Some(ttl)) => Some(Place {
            next: Offset { epoch: u32::try_from(epoch).unwrap_or(0), seq: from_bigint(seq) },
            ttl: Duration::try_from_secs_f64(ttl).unwrap_or(place.ttl),
        }),
        _ => None,
    };
    Ok((row.try_get(0)?, known))
}

/// How far a consumer is. Answers when it expires; `None` when it is not registered.
pub(crate) async fn report(
    pool: &Pool,
    name: &str,
    owner: &str,
    next: Offset,
) -> Result<Option<OffsetDateTime>, Error> {
    let (epoch, seq) = (as_integer(next.epoch), as_bigint(next.seq));
    let rows = rows(pool, REPORT, &[&name, &owner, &epoch, &seq]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

/// Forgets a consumer. Answers whether it was there.
pub(crate) async fn release(pool: &Pool, name: &str, actor: &str) -> Result<bool, Error> {
    changed(pool, RELEASE, &[&name, &actor]).await
}

/// Keeps the outbox from a number on. Answers until when.
pub(crate) async fn take_hold(
    pool: &Pool,
    name: &str,
    owner: &str,
    reason: &str,
    from_seq: u64,
    ttl: Duration,
) -> Result<OffsetDateTime, Error> {
    let (from, ttl) = (as_bigint(from_seq), ttl.as_secs_f64());
    let rows = rows(pool, TAKE, &[&name, &owner, &reason, &from, &ttl]).await?;
    let row = rows.first().ok_or_else(|| Error::outbox("take a hold", "nothing was stored"))?;
    Ok(row.try_get(0)?)
}

/// Ends a hold. Answers whether it was there.
pub(crate) async fn release_hold(pool: &Pool, name: &str, actor: &str) -> Result<bool, Error> {
    changed(pool, RELEASE_HOLD, &[&name, &actor]).await
}

/// All consumers by name, expired ones too.
pub(crate) async fn consumers(pool: &Pool) -> Result<Vec<Registered>, Error> {
    let read = |row: &Row| {
        let epoch: i32 = row.try_get(2)?;
        Ok(Registered {
            name: row.try_get(0)?,
            owner: row.try_get(1)?,
            next: Offset { epoch: u32::try_from(epoch).unwrap_or(0), seq: from_bigint(row.try_get(3)?) },
            registered_at: row.try_get(4)?,
            reported_at: row.try_get(5)?,
            expires_at: row.try_get(6)?,
        })
    };
    rows(pool, CONSUMERS, &[]).await?.iter().map(read).collect()
}

/// All holds by name, ended ones too.
pub(crate) async fn holds(pool: &Pool) -> Result<Vec<Held>, Error> {
    let read = |row: &Row| {
        Ok(Held {
            name: row.try_get(0)?,
            owner: row.try_get(1)?,
            reason: row.try_get(2)?,
            from_seq: from_bigint(row.try_get(3)?),
            taken_at: row.try_get(4)?,
            expires_at: row.try_get(5)?,
        })
    };
    rows(pool, HOLDS, &[]).await?.iter().map(read).collect()
}

/// Who still needs an outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Consumers that are registered and were heard in time.
    pub consumers: u64,
    /// First number that one of them, or a hold, keeps, and the name of the one that does; `None` when nobody does.
    pub first: Option<(u64, String)>,
}

/// Who still needs the outbox of a schema.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn needed(client: &impl GenericClient) -> Result<Needs, tokio_postgres::Error> {
    let row = client.query_one(NEEDED, &[]).await?;
    let first: (Option<i64>, Option<String>) = (row.try_get(1)?, row.try_get(2)?);
    Ok(Needs {
        consumers: from_bigint(row.try_get(0)?),
        first: first.0.zip(first.1).map(|(seq, name)| (from_bigint(seq), name)),
    })
}

/// [`needed`] on a connection of a pool.
pub(super) async fn needs_in(pool: &Pool) -> Result<Needs, Error> {
    Ok(needed(&**pool.get().await?).await?)
}

async fn rows(pool: &Pool, statement: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(statement).await?;
    Ok(client.query(&statement, parameters).await?)
}

async fn changed(pool: &Pool, statement: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<bool, Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(statement).await?;
    Ok(client.execute(&statement, parameters).await? > 0)
}
