//! Drops what nobody needs any more of a shard's outbox.

use likewise_kit::lanes::needed;
use likewise_kit::pg::Pool;
use time::Duration;
use tokio_postgres::{GenericClient, IsolationLevel};

use super::partitions::find;
use super::{Error, LOCK_SHARD, connection, doing, lock, prepared, signed, unsigned};
use crate::partitions::{Outbox, Range, SeqRange, plan_drops};

const STANDS: &str = include_str!("outbox_stands.sql");
const RANGES: &str = include_str!("outbox_ranges.sql");
const LOCK_OUTBOX: &str = include_str!("outbox_lock.sql");
const SHORT_WAIT: &str = include_str!("lock_wait_short.sql");
const DROP: &str = include_str!("outbox_drop.sql");
const TRIM: &str = include_str!("evidence_trim.sql");

/// Rows of evidence forgotten at once.
const TRIM_MAX: i64 = 50_000;

async fn look(client: &impl GenericClient) -> Result<Outbox, Error> {
    let what = "look what an outbox holds";
    // Asked first: what a consumer says from here on is that it needs less.
    let needs = needed(client).await.map_err(doing(what))?;
    let mut seqs = find(client).await?.ranges;
    seqs.sort_unstable();
    let last: Vec<i64> = seqs.iter().map(|range| signed(range.to - 1)).collect();
    let acked = client.query(RANGES, &[&last]).await.map_err(doing(what))?;
    let row = client.query_one(STANDS, &[]).await.map_err(doing(what))?;
    let read = |error| doing(what)(error);
    let range = |(seqs, row): (SeqRange, &tokio_postgres::Row)| Ok(Range { seqs, acked_at: row.try_get(0)? });
    Ok(Outbox {
        ranges: seqs.into_iter().zip(&acked).map(range).collect::<Result<_, _>>().map_err(read)?,
        last_seq: unsigned(row.try_get(0).map_err(read)?),
        published_seq: unsigned(row.try_get(1).map_err(read)?),
        serving: row.try_get(2).map_err(read)?,
        needs,
        now: row.try_get(3).map_err(read)?,
    })
}

/// Drops the ranges that [`plan_drops`] names, and answers them. Locks are taken only when there is one.
///
/// Whoever registers writes first and looks at the outbox then. What is needed is asked here while nobody can look: either
/// it is seen, or the look waits for this transaction and sees that the range is gone.
///
/// # Errors
/// When the shard does not answer or somebody is in the way for more than a moment; nothing was dropped then.
pub async fn drop_unneeded(pool: &Pool, shard: u16, stream_age: Duration) -> Result<Vec<SeqRange>, Error> {
    let what = "drop a range of the outbox";
    let mut client = connection(pool, what).await?;
    if plan_drops(&look(&**client).await?, stream_age).is_empty() {
        return Ok(Vec::new());
    }
    let locked = prepared(&client, LOCK_SHARD, what).await?;
    let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await;
    let transaction = begun.map_err(doing(what))?;
    transaction.execute(&locked, &[&lock::SHARD, &i32::from(shard)]).await.map_err(doing(what))?;
    transaction.batch_execute(SHORT_WAIT).await.map_err(doing(what))?;
    transaction.batch_execute(LOCK_OUTBOX).await.map_err(doing(what))?;
    let dropped = plan_drops(&look(&*transaction).await?, stream_age);
    for range in &dropped {
        transaction.execute(DROP, &[&range.name()]).await.map_err(doing(what))?;
    }
    transaction.commit().await.map_err(doing(what))?;
    Ok(dropped)
}

/// Forgets evidence of numbers that the outbox no longer has, some of it at a time.
///
/// # Errors
/// When the shard does not answer.
pub async fn trim_evidence(pool: &Pool) -> Result<(), Error> {
    let what = "forget old publications";
    let client = connection(pool, what).await?;
    client.execute(TRIM, &[&TRIM_MAX]).await.map_err(doing(what))?;
    Ok(())
}
