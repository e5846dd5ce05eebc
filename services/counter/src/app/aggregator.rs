//! Sums buckets into display rows and Redis views, pass after pass, under a lease.
//!
//! A pass takes its vector from the durable checkpoints, then reads from receipts which videos changed below it, sums them over
//! the partitions of the active manifest, writes their rows and their views, and then advances the position. The order
//! is the point: whatever the vector includes is committed before its receipts and buckets are read. No clock decides
//! what changed, so a crash or a slow transaction leaves no cold video behind.
//!
//! **Redis down.** Rows go on: they are what is served then. The position, from which a new owner would start, waits for
//! the views too; otherwise a crash during the outage would leave views of before the outage in Redis, and nobody would write
//! them again. Meanwhile what is owed to Redis is remembered, up to a bound; past the bound it is forgotten and, once Redis
//! answers, read again from the receipts behind the position, which is what a new owner would do. Receipts are kept
//! for that. So memory is bounded, no view stays old, and no number is served late because Redis is away.

mod turn;

use std::sync::Arc;
use std::time::Duration;

use likewise_kit::lease::Lease;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::turn::{Turn, Work};
use crate::app::live::{Live, SLICE};
use crate::cache::Views;
use crate::config::Settings;
use crate::metrics::Metrics;
use crate::store::Error;
use crate::store::display::Holder;

/// After a wake the checkpoint that it announces is a moment behind.
const SETTLE: Duration = Duration::from_millis(5);
/// A lease that somebody else holds is asked for at least this often.
const LEASE_ASKED_EVERY_MAX: Duration = Duration::from_secs(1);
/// Quiet looks at the usual pace before an aggregator counts as idle.
const QUIET_LOOKS: u32 = 4;
/// First and longest pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The aggregator of one generation.
pub struct Aggregator {
    live: Arc<Live>,
    views: Views,
    settings: Settings,
    wake: Arc<Notify>,
    metrics: Metrics,
}

impl Aggregator {
    /// An aggregator that looks for work when `wake` is notified.
    #[must_use]
    pub const fn new(live: Arc<Live>, views: Views, settings: Settings, wake: Arc<Notify>, metrics: Metrics) -> Self {
        Self { live, views, settings, wake, metrics }
    }

    /// Aggregates while this process holds the lease, and waits for it otherwise, until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        let owner = Uuid::new_v4();
        let name = format!("counter.aggregator.g{}.s{SLICE}", self.live.generation());
        let life = Duration::from_millis(self.settings.lease_ttl_ms);
        let pool = self.live.store().metadata();
        while !stop.is_cancelled() {
            match Lease::acquire(pool, &name, owner, life).await {
                Ok(Some(lease)) => {
                    let holder = Holder {
                        generation: self.live.generation(),
                        slice: SLICE,
                        lease: name.clone(),
                        epoch: lease.epoch(),
                    };
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = lease.lost().cancelled() => {}
                        () = self.hold(&holder) => {}
                    }
                    if let Err(error) = lease.release().await {
                        tracing::debug!(%error, "the aggregator's lease expires by itself");
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "the aggregator's lease cannot be asked for"),
            }
            // Somebody else holds it, or it was lost.
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep((life / 4).min(LEASE_ASKED_EVERY_MAX)) => {}
            }
        }
    }

    /// Passes until the lease is seen to be lost.
    async fn hold(&self, holder: &Holder) {
        let mut pause = PAUSE_MIN;
        loop {
            let ended = match Turn::resume(self, holder).await {
                Ok(mut turn) => {
                    pause = PAUSE_MIN;
                    self.take_turn(&mut turn).await
                }
                Err(error) => error,
            };
            match ended {
                Error::LeaseLost => return,
                error => tracing::warn!(error = error.chain(), "a pass of the aggregator failed; it is tried again"),
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Passes at most every interval while there is work, then looks at the idle pace or when woken.
    async fn take_turn(&self, turn: &mut Turn<'_>) -> Error {
        let mut quiet = 0;
        loop {
            let started = Instant::now();
            match turn.pass().await {
                Ok(Work::Some) => quiet = 0,
                Ok(Work::None) => quiet += 1,
                Err(error) => return error,
            }
            turn.serve_hints().await;
            if quiet < QUIET_LOOKS {
                sleep_until(started + self.settings.pass_interval()).await;
            } else if timeout(self.settings.idle_poll(), self.wake.notified()).await.is_ok() {
                quiet = 0;
                sleep(SETTLE).await;
            }
        }
    }
}
