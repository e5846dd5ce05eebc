//! Partitions of a shard, as the catalog knows them, and the two ways to change them.

use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use tokio_postgres::{GenericClient, IsolationLevel};

use super::{Error, LOCK_SHARD, connection, doing, lock, prepared, signed, unsigned};
use crate::partitions::{SeqRange, Week};

const LIST: &str = include_str!("partitions_list.sql");
const NOW: &str = include_str!("partitions_now.sql");
const MAKE: &str = include_str!("partition_make.sql");
const DROP: &str = include_str!("partition_drop.sql");
const SHORT_WAIT: &str = include_str!("lock_wait_short.sql");

/// What partitions there are, and what time and number it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Weeks of `like_command`.
    pub weeks: Vec<Week>,
    /// Ranges of `outbox`.
    pub ranges: Vec<SeqRange>,
    /// Highest committed number.
    pub last_seq: u64,
    /// The database's clock.
    pub now: OffsetDateTime,
}

/// Reads the catalog.
///
/// # Errors
/// When the shard does not answer.
pub async fn find(client: &impl GenericClient) -> Result<Found, Error> {
    let what = "list partitions";
    let names = client.query(LIST, &[]).await.map_err(doing(what))?;
    let names: Vec<String> = names.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(doing(what))?;
    let row = client.query_one(NOW, &[]).await.map_err(doing(what))?;
    Ok(Found {
        weeks: names.iter().filter_map(|name| Week::parse(name)).collect(),
        ranges: names.iter().filter_map(|name| SeqRange::parse(name)).collect(),
        last_seq: unsigned(row.try_get(0).map_err(doing(what))?),
        now: row.try_get(1).map_err(doing(what))?,
    })
}

/// [`find`] on a connection of a pool.
///
/// # Errors
/// When the shard does not answer.
pub async fn find_in(pool: &Pool) -> Result<Found, Error> {
    let client = connection(pool, "list partitions").await?;
    find(&**client).await
}

/// Changes to partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Weeks to make.
    pub make_weeks: Vec<Week>,
    /// Ranges to make.
    pub make_ranges: Vec<SeqRange>,
    /// Weeks to drop.
    pub drop_weeks: Vec<Week>,
}

impl Changes {
    /// Nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.make_weeks.is_empty() && self.make_ranges.is_empty() && self.drop_weeks.is_empty()
    }
}

/// Makes and drops partitions in one transaction under the shard's lock. A reader that is in the way for longer than a
/// moment makes it fail rather than wait, because writers wait behind it.
///
/// # Errors
/// When the shard does not answer or a reader is in the way; nothing was changed then.
pub async fn change(pool: &Pool, shard: u16, changes: &Changes) -> Result<(), Error> {
    let what = "change partitions";
    let mut client = connection(pool, what).await?;
    let locked = prepared(&client, LOCK_SHARD, what).await?;
    let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await;
    let transaction = begun.map_err(doing(what))?;
    transaction.execute(&locked, &[&lock::SHARD, &i32::from(shard)]).await.map_err(doing(what))?;
    transaction.batch_execute(SHORT_WAIT).await.map_err(doing(what))?;
    make(&*transaction, changes).await?;
    for week in &changes.drop_weeks {
        transaction.execute(DROP, &[&week.name()]).await.map_err(doing(what))?;
    }
    transaction.commit().await.map_err(doing(what))
}

/// Makes partitions within the caller's transaction, or each by itself.
///
/// # Errors
/// When the shard does not answer or a reader is in the way.
pub async fn make(client: &impl GenericClient, changes: &Changes) -> Result<(), Error> {
    let what = "make a partition";
    let weeks =
        changes.make_weeks.iter().map(|week| ("like_command", week.name(), text(week.start()), text(week.end())));
    let number = |seq: u64| signed(seq).to_string();
    let ranges = changes.make_ranges.iter().map(|range| ("outbox", range.name(), number(range.from), number(range.to)));
    for (parent, name, from, to) in weeks.chain(ranges) {
        client.execute(MAKE, &[&parent, &name, &from, &to]).await.map_err(doing(what))?;
    }
    Ok(())
}

/// A bound of a partition as PostgreSQL reads it; weeks begin at midnight UTC.
fn text(at: OffsetDateTime) -> String {
    let (year, month, day) = at.date().to_calendar_date();
    format!("{year:04}-{:02}-{day:02} 00:00:00+00", u8::from(month))
}
