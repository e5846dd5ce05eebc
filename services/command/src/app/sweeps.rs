//! Works off sweeps over the relations of accounts: a deletion takes an account's likes, its restore gives them back, and a
//! ban or a risk act takes them out of counts.
//!
//! Promises: every part is one transaction through the shard's lock and the rule of every command; killed anywhere, the
//! next process goes on once the claim has run out, and a part done twice changes nothing. No more relations per second
//! than the settings allow, so that a large account does not get in the way of users.

use std::sync::Arc;
use std::time::Duration;

use likewise_kit::crash_point;
use tokio_util::sync::CancellationToken;

use super::shards::Shard;
use crate::config::Settings;
use crate::metrics::SweepMetrics;
use crate::store::{
    self,
    sweeps::{self, Part, Phase, Sweep},
};

/// A process that is at work on a sweep may be silent for this long; each part begins it anew.
const CLAIM: Duration = Duration::from_secs(5);
/// Pause after a failure, and while the shard takes no changes.
const RETRY: Duration = Duration::from_secs(1);

/// Works for one shard until the process stops.
pub(crate) async fn run(shard: Arc<Shard>, settings: Arc<Settings>, metrics: SweepMetrics, stop: CancellationToken) {
    let idle = Duration::from_millis(settings.sweep_interval_ms);
    loop {
        let pause = match pass(&shard, &settings).await {
            Ok(true) => Duration::ZERO,
            Ok(false) => idle,
            Err(error) => {
                tracing::warn!(shard = shard.number, error = error.chain(), "an account was not swept");
                RETRY
            }
        };
        if let Ok((count, oldest)) = sweeps::waiting(&shard.pool).await {
            metrics.waiting(shard.number, count, oldest);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = shard.sweep.notified(), if pause == idle => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Takes one sweep as far as it goes; false when there is none, or none that can go on.
async fn pass(shard: &Shard, settings: &Settings) -> Result<bool, store::Error> {
    let Some(mut sweep) = sweeps::claim(&shard.pool, CLAIM).await? else { return Ok(false) };
    loop {
        let part = sweeps::step(&shard.pool, shard.number, &sweep, settings.sweep_rows).await?;
        crash_point!("sweep.after_part");
        match (part, sweep.phase) {
            (Part::More, _) => tokio::time::sleep(rest(settings)).await,
            (Part::Done, Phase::Relations) => sweep.phase = Phase::Hidden,
            (Part::Done, Phase::Hidden) => {
                finish(shard, &sweep).await?;
                return Ok(true);
            }
            (Part::Superseded, _) => return Ok(true),
            // The claim runs out; others may be able to go on.
            (Part::Closed, _) => return Ok(false),
        }
    }
}

async fn finish(shard: &Shard, sweep: &Sweep) -> Result<(), store::Error> {
    if let Some(changed) = sweeps::finish(&shard.pool, sweep).await? {
        tracing::info!(shard = shard.number, changed, "an account's relations are in line with its state");
    }
    Ok(())
}

/// How long to rest after a part.
fn rest(settings: &Settings) -> Duration {
    Duration::from_secs_f64(f64::from(settings.sweep_rows) / f64::from(settings.sweep_rows_per_s))
}
