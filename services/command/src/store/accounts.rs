//! What the authority's lane tells a shard about accounts, written under the shard's lock.

use deadpool_postgres::Transaction;
use likewise_domain::id::UserId;
use likewise_domain::lane::Offset;
use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use tokio_postgres::{IsolationLevel, Statement};
use uuid::Uuid;

use super::{Error, LOCK_SHARD, connection, doing, lock, prepared, signed};

const FENCE: &str = include_str!("consumer_fence.sql");
const OWNER: &str = include_str!("consumer_owner.sql");
const UPSERT: &str = include_str!("accounts_upsert.sql");
const CURSOR_READ: &str = include_str!("authority_cursor_read.sql");
const CURSOR_WRITE: &str = include_str!("authority_cursor_write.sql");
const QUARANTINE: &str = include_str!("consumer_quarantine.sql");
const QUARANTINED: &str = include_str!("consumer_quarantined.sql");

/// State of one account at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The account.
    pub user_id: UserId,
    /// Code of `likewise.policy.v1.AccountState`.
    pub state: i16,
    /// Version of the account's policy.
    pub version: u64,
    /// When it changed.
    pub changed_at: OffsetDateTime,
}

/// A message that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its place in the lane.
    pub offset: Offset,
    /// Id from its header.
    pub event_id: Uuid,
    /// Schema from its header.
    pub schema: String,
    /// Its bytes.
    pub payload: Vec<u8>,
    /// What is wrong with it.
    pub reason: String,
}

/// Who consumes which lane for which projection.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// Name of the projection.
    pub projection: &'a str,
    /// Name of the lane.
    pub lane: &'a str,
    /// Grows with every owner.
    pub epoch: i64,
}

/// Makes `owner` the newest one. False when a newer one is known already.
///
/// # Errors
/// When the shard does not answer.
pub async fn fence(pool: &Pool, owner: Owner<'_>) -> Result<bool, Error> {
    let what = "fence older consumers";
    let client = connection(pool, what).await?;
    let statement = prepared(&client, FENCE, what).await?;
    let written = client.execute(&statement, &[&owner.projection, &owner.lane, &owner.epoch]).await;
    Ok(written.map_err(doing(what))? == 1)
}

/// Writes accounts and quarantine rows in one transaction under the shard's lock, so that every batch which gets the lock
/// later sees them. An account keeps its highest version; a message that is quarantined already stays as it is. False
/// when a newer owner has taken over.
///
/// # Errors
/// When the shard does not answer; nothing was written then.
pub async fn apply(
    pool: &Pool,
    shard: u16,
    owner: Owner<'_>,
    accounts: &[Account],
    unreadable: &[Unreadable],
) -> Result<bool, Error> {
    let what = "write account states";
    let mut client = connection(pool, what).await?;
    let locked = prepared(&client, LOCK_SHARD, what).await?;
    let owned = prepared(&client, OWNER, what).await?;
    let upsert = prepared(&client, UPSERT, what).await?;
    let quarantine = prepared(&client, QUARANTINE, what).await?;
    let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await;
    let transaction = begun.map_err(doing(what))?;
    transaction.execute(&locked, &[&lock::SHARD, &i32::from(shard)]).await.map_err(doing(what))?;
    let newest = transaction.query_opt(&owned, &[&owner.projection, &owner.lane]).await.map_err(doing(what))?;
    let newest: i64 = newest.map_or(Ok(i64::MIN), |row| row.try_get(0)).map_err(doing(what))?;
    if newest > owner.epoch {
        return Ok(false);
    }
    upsert_all(&transaction, &upsert, accounts, what).await?;
    for message in unreadable {
        let epoch = i32::try_from(message.offset.epoch).unwrap_or(i32::MAX);
        let seq = signed(message.offset.seq);
        transaction
            .execute(
                &quarantine,
                &[
                    &owner.projection,
                    &owner.lane,
                    &epoch,
                    &seq,
                    &message.event_id,
                    &message.schema,
                    &message.payload,
                    &message.reason,
                ],
            )
            .await
            .map_err(doing(what))?;
    }
    transaction.commit().await.map_err(doing(what))?;
    Ok(true)
}

async fn upsert_all(
    transaction: &Transaction<'_>,
    upsert: &Statement,
    accounts: &[Account],
    what: &'static str,
) -> Result<(), Error> {
    if accounts.is_empty() {
        return Ok(());
    }
    let users: Vec<&str> = accounts.iter().map(|account| account.user_id.as_str()).collect();
    let states: Vec<i16> = accounts.iter().map(|account| account.state).collect();
    let versions: Vec<i64> = accounts.iter().map(|account| signed(account.version)).collect();
    let times: Vec<OffsetDateTime> = accounts.iter().map(|account| account.changed_at).collect();
    transaction.execute(upsert, &[&users, &states, &versions, &times]).await.map_err(doing(what))?;
    Ok(())
}

/// Where reading the authority's changes goes on; empty at the beginning.
///
/// # Errors
/// When the shard does not answer.
pub async fn cursor(pool: &Pool) -> Result<String, Error> {
    let what = "read the authority's cursor";
    let found = super::rows(pool, CURSOR_READ, &[], what).await?;
    found.first().map_or(Ok(String::new()), |row| row.try_get(0).map_err(doing(what)))
}

/// Takes over a page of the authority's changes and the cursor behind it, in one transaction under the shard's lock.
///
/// # Errors
/// When the shard does not answer; nothing was written then.
pub async fn take_over(pool: &Pool, shard: u16, accounts: &[Account], cursor: &str) -> Result<(), Error> {
    let what = "take over the authority's changes";
    let mut client = connection(pool, what).await?;
    let locked = prepared(&client, LOCK_SHARD, what).await?;
    let upsert = prepared(&client, UPSERT, what).await?;
    let write = prepared(&client, CURSOR_WRITE, what).await?;
    let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await;
    let transaction = begun.map_err(doing(what))?;
    transaction.execute(&locked, &[&lock::SHARD, &i32::from(shard)]).await.map_err(doing(what))?;
    upsert_all(&transaction, &upsert, accounts, what).await?;
    transaction.execute(&write, &[&cursor]).await.map_err(doing(what))?;
    transaction.commit().await.map_err(doing(what))
}

/// Messages in quarantine that nobody has dealt with.
///
/// # Errors
/// When the shard does not answer.
pub async fn quarantined(pool: &Pool, projection: &str, lane: &str) -> Result<u64, Error> {
    let found = super::rows(pool, QUARANTINED, &[&projection, &lane], "count quarantined messages").await?;
    let count: i64 = found.first().map_or(Ok(0), |row| row.try_get(0)).map_err(doing("count quarantined messages"))?;
    Ok(super::unsigned(count))
}
