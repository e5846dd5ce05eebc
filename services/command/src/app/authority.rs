//! Reads what the authority says has changed, now and then, so that an event that was lost delays a deletion and never loses
//! it. Each shard has a cursor of its own, written with what it takes over, so that a shard restored to an older state reads
//! again what it lost.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::shards::{Shard, Shards};
use crate::clients::{Authority, Away};
use crate::store;
use crate::store::accounts::{self, Account};

/// Pages of one pass; the next one goes on.
const PAGES_MAX: usize = 1_000;

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Away(#[from] Away),
    #[error("write account states")]
    Store(#[from] store::Error),
}

/// Reads for one shard until the process stops.
pub(crate) async fn run(
    shard: Arc<Shard>,
    shards: Arc<Shards>,
    authority: Authority,
    every: Duration,
    stop: CancellationToken,
) {
    loop {
        // Not all shards at once, and not all processes.
        let pause = every.mul_f64(0.5 + rand::random::<f64>());
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        if let Err(error) = pass(&shard, &shards, &authority).await {
            tracing::warn!(shard = shard.number, %error, "the authority's changes were not read");
        }
    }
}

async fn pass(shard: &Shard, shards: &Shards, authority: &Authority) -> Result<(), Failure> {
    let mut cursor = accounts::cursor(&shard.pool).await?;
    for _ in 0..PAGES_MAX {
        let (changed, next) = authority.changed_since(&cursor).await?;
        if next == cursor {
            return Ok(());
        }
        let own = |account: &Account| shards.number(&account.user_id) == usize::from(shard.number);
        let own: Vec<Account> = changed.into_iter().filter(own).collect();
        accounts::take_over(&shard.pool, shard.number, &own, &next).await?;
        if !own.is_empty() {
            shard.sweep.notify_one();
        }
        cursor = next;
    }
    Ok(())
}
