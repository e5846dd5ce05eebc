//! Carries out risk acts.
//!
//! Promises: an act runs as one job under its id; every step of it can be done twice; killed anywhere, the next process goes
//! on once the claim has run out. An act is called applied when its marks stand in every shard and no sweep is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use likewise_kit::crash_point;
use likewise_kit::pg::{Pool, Servers};
use tokio::sync::{Notify, SetOnce};
use tokio_util::sync::CancellationToken;

use super::shards::{Shard, Shards};
use crate::config::Settings;
use crate::risk::Target;
use crate::store::ledger::{self, Claimed};
use crate::store::risk::{self, Figures, Mark};
use crate::store::{self};

/// A process that is at work on an act may be silent for this long.
const CLAIM: Duration = Duration::from_secs(5);
/// How often is looked for acts nobody spoke of, and whether sweeps are done.
const IDLE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(200);
/// How long until the ledger is tried again.
const AWAY: Duration = Duration::from_secs(1);

/// What carries out acts.
pub(crate) struct Acts {
    shards: Arc<Shards>,
    ledger: Pool,
    is_prepared: SetOnce<()>,
    servers: Servers,
    settings: Arc<Settings>,
    /// Wakes the work before its time.
    pub(crate) wake: Notify,
}

/// Targets by shard.
type Scope<'a> = BTreeMap<u16, Vec<&'a Target>>;

impl Acts {
    pub(crate) fn new(shards: Arc<Shards>, ledger: Pool, servers: Servers, settings: Arc<Settings>) -> Self {
        Self { shards, ledger, is_prepared: SetOnce::new(), servers, settings, wake: Notify::new() }
    }

    /// The ledger, once its schema is up to date. The process serves before that.
    pub(crate) async fn ledger(&self) -> &Pool {
        self.is_prepared.wait().await;
        &self.ledger
    }

    /// Works until the process stops.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        while let Err(error) = ledger::prepare(&self.servers, &self.settings).await {
            tracing::warn!(error = error.chain(), "the ledger of risk acts is away");
            if stop.run_until_cancelled(tokio::time::sleep(AWAY)).await.is_none() {
                return;
            }
        }
        // Nobody else sets it.
        let _ = self.is_prepared.set(());
        loop {
            let pause = match self.pass().await {
                Ok(true) => LOOK,
                Ok(false) => IDLE,
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a risk act was not carried on");
                    IDLE
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Takes one act as far as it goes; false when there is none.
    async fn pass(&self) -> Result<bool, store::Error> {
        let Some(act) = ledger::claim(&self.ledger, CLAIM).await? else { return Ok(false) };
        let targets = ledger::targets(&self.ledger, act.act_id).await?;
        let scope = self.scope(targets.iter().map(|(_, target, _)| target));
        if act.is_new {
            ledger::begin(&self.ledger, act.act_id, self.figures(&scope).await?).await?;
        }
        let mark = Mark { act_id: act.marks_of, kind: act.kind, until: act.until, takes_back: act.takes_back };
        for (place, target, _) in targets.iter().filter(|(_, _, done)| !done) {
            for shard in self.shards_of(target) {
                risk::write(&shard.pool, shard.number, &mark, target).await?;
                shard.sweep.notify_one();
            }
            crash_point!("acts.after_target");
            ledger::target_done(&self.ledger, act.act_id, *place).await?;
        }
        self.settle(&act, &scope).await?;
        Ok(true)
    }

    /// Calls the act applied once its sweeps are done; otherwise somebody looks again after the claim.
    async fn settle(&self, act: &Claimed, scope: &Scope<'_>) -> Result<(), store::Error> {
        let end = tokio::time::Instant::now() + CLAIM / 2;
        while act.kind.excludes() && self.sweeps(scope).await? > 0 {
            if tokio::time::Instant::now() > end {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        let figures = self.figures(scope).await?;
        ledger::applied(&self.ledger, act.act_id, figures).await?;
        tracing::info!(act = %act.act_id, liked = figures.liked, counted = figures.counted, "a risk act is carried out");
        Ok(())
    }

    /// Where a target's marks stand: with its user, or everywhere.
    fn shards_of(&self, target: &Target) -> Vec<&Arc<Shard>> {
        match &target.user {
            Some(user) => self.shards.of(user).into_iter().collect(),
            None => self.shards.all().iter().collect(),
        }
    }

    /// Targets with a user, by the shard of the user.
    fn scope<'a>(&self, targets: impl Iterator<Item = &'a Target>) -> Scope<'a> {
        let mut scope = Scope::new();
        for target in targets {
            if let Some(shard) = target.user.as_ref().and_then(|user| self.shards.of(user)) {
                scope.entry(shard.number).or_default().push(target);
            }
        }
        scope
    }

    async fn figures(&self, scope: &Scope<'_>) -> Result<Figures, store::Error> {
        let mut sum = Figures::default();
        for (number, targets) in scope {
            let Some(shard) = self.shards.all().get(usize::from(*number)) else { continue };
            let found = risk::figures(&shard.pool, targets).await?;
            sum = Figures { liked: sum.liked + found.liked, counted: sum.counted + found.counted };
        }
        Ok(sum)
    }

    async fn sweeps(&self, scope: &Scope<'_>) -> Result<u64, store::Error> {
        let mut sum = 0;
        for (number, targets) in scope {
            let Some(shard) = self.shards.all().get(usize::from(*number)) else { continue };
            sum += risk::sweeps(&shard.pool, targets).await?;
        }
        Ok(sum)
    }
}
