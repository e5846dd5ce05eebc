//! Leases: one owner at a time of something named, by the clock of the database.
//!
//! ```sql
//! create table lease (name text primary key, owner uuid not null, epoch bigint not null,
//!     expires_at timestamptz not null);
//! ```
//!
//! A lease gives liveness and order, never truth: an owner that was frozen may write after its lease was lost. Whatever
//! it writes must carry the epoch and be refused where a higher one was seen.

use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

const ACQUIRE: &str = include_str!("lease/acquire.sql");
const RENEW: &str = include_str!("lease/renew.sql");
const RELEASE: &str = include_str!("lease/release.sql");

/// Renewals within the life of a lease: two may fail before it is lost.
const RENEWALS_PER_TTL: u32 = 3;
/// A renewal that failed is tried again this many times as often.
const RETRIES_PER_RENEWAL: u32 = 4;

/// Why a lease could not be asked for. Whether it is held by somebody else is not an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The statement failed.
    #[error("query the lease table")]
    Postgres(#[from] tokio_postgres::Error),
    /// No connection came out of the pool.
    #[error("take a connection to PostgreSQL")]
    Pool(#[from] deadpool_postgres::PoolError),
}

/// A held lease, renewed in the background until it is released, dropped or lost.
#[derive(Debug)]
pub struct Lease {
    key: Key,
    lost: CancellationToken,
    /// Ends the renewals when the lease is dropped.
    _keeper: DropGuard,
}

#[derive(Debug, Clone)]
struct Key {
    pool: Pool,
    name: String,
    owner: Uuid,
    epoch: i64,
    ttl: Duration,
}

impl Lease {
    /// Takes the lease `name` for `owner`, or answers `None` while somebody else holds it. The epoch is one higher than
    /// the last owner's; the same owner asking again in time keeps its epoch. Without renewal it expires after `ttl`.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn acquire(pool: &Pool, name: &str, owner: Uuid, ttl: Duration) -> Result<Option<Self>, Error> {
        // The answer may be late: the lease lives from before the question.
        let asked_at = Instant::now();
        let client = pool.get().await?;
        let statement = client.prepare_cached(ACQUIRE).await?;
        let Some(row) = client.query_opt(&statement, &[&name, &owner, &milliseconds(ttl)]).await? else {
            return Ok(None);
        };
        let key = Key { pool: pool.clone(), name: name.to_owned(), owner, epoch: row.try_get(0)?, ttl };
        let (lost, keeper) = (CancellationToken::new(), CancellationToken::new());
        tokio::spawn(keep(key.clone(), asked_at + ttl, lost.clone(), keeper.clone()));
        Ok(Some(Self { key, lost, _keeper: keeper.drop_guard() }))
    }

    /// Grows with every owner.
    #[must_use]
    pub const fn epoch(&self) -> i64 {
        self.key.epoch
    }

    /// Cancelled when the lease was lost: taken over, or not renewed in time. Whoever holds it must stop then.
    #[must_use]
    pub const fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Gives the lease back, so that the next owner need not wait for it to expire.
    ///
    /// # Errors
    /// When PostgreSQL does not answer; the lease then expires by itself.
    pub async fn release(self) -> Result<(), Error> {
        let key = self.key.clone();
        drop(self);
        let client = key.pool.get().await?;
        let statement = client.prepare_cached(RELEASE).await?;
        client.execute(&statement, &[&key.name, &key.owner, &key.epoch]).await?;
        Ok(())
    }
}

/// Renews until `keeper` is cancelled; cancels `lost` when the database says no, or has not said yes in time.
async fn keep(key: Key, mut valid_until: Instant, lost: CancellationToken, keeper: CancellationToken) {
    let every = key.ttl / RENEWALS_PER_TTL;
    let mut pause = every;
    loop {
        tokio::select! {
            () = keeper.cancelled() => return,
            () = sleep(pause) => {}
        }
        let asked_at = Instant::now();
        // Dropping this on cancellation is harmless: a renewal more or less changes no owner.
        let answer = tokio::select! {
            () = keeper.cancelled() => return,
            answer = timeout_at(valid_until, renew(&key)) => answer,
        };
        match answer {
            Ok(Ok(true)) => {
                valid_until = asked_at + key.ttl;
                pause = every;
            }
            Ok(Ok(false)) => {
                tracing::warn!(lease = key.name, epoch = key.epoch, "lease lost: taken over or expired");
                break;
            }
            Ok(Err(_)) if Instant::now() < valid_until => pause = every / RETRIES_PER_RENEWAL,
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(lease = key.name, epoch = key.epoch, "lease lost: PostgreSQL did not renew it in time");
                break;
            }
        }
    }
    lost.cancel();
}

async fn renew(key: &Key) -> Result<bool, Error> {
    let client = key.pool.get().await?;
    let statement = client.prepare_cached(RENEW).await?;
    Ok(client.execute(&statement, &[&key.name, &key.owner, &key.epoch, &milliseconds(key.ttl)]).await? == 1)
}

/// As the statements want it.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
