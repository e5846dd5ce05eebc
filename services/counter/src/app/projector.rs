//! Folds batches of a lane into the partitions. A batch is done when every partition it touches has committed its group and
//! every message that could not be understood is kept; anything less is done again, and repeats change nothing.

use std::sync::Arc;

use futures::future::join_all;
use likewise_kit::crash_point;
use tokio::sync::Notify;

use crate::app::live::Live;
use crate::fold::{Change, Group, split};
use crate::metrics::Metrics;
use crate::route::Routes;
use crate::store::display::Unreadable;
use crate::store::partition::{Outcome, Writer};
use crate::store::{Error, Store};

/// How often a batch is split again under newer routes before it waits for the next delivery.
const ROUTE_TRIES_MAX: usize = 3;

/// Why a batch is not done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A newer owner of the lane was seen.
    #[error("a newer owner of the lane was seen")]
    Fenced,
    /// A partition refuses its buckets under every route this process can read.
    #[error("ROUTE_EPOCH_MISMATCH: partition {0} refuses a bucket under its route epoch")]
    RouteMismatch(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Folds lanes into the partitions of one generation.
pub struct Projector {
    live: Arc<Live>,
    wake: Arc<Notify>,
    metrics: Metrics,
}

impl Projector {
    /// A projector that wakes an aggregator through `wake` after each batch.
    #[must_use]
    pub const fn new(live: Arc<Live>, wake: Arc<Notify>, metrics: Metrics) -> Self {
        Self { live, wake, metrics }
    }

    /// The generation it folds into.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Refuses older owners of a lane in every partition that is routed to.
    ///
    /// # Errors
    /// [`Failure::Fenced`] when a newer owner is known somewhere.
    pub async fn fence(&self, lane: &str, owner_epoch: i64) -> Result<(), Failure> {
        let generation = self.live.generation();
        for name in self.live.routes().partitions() {
            if !self.live.store().partition(name)?.raise_owner(generation, lane, owner_epoch).await? {
                return Err(Failure::Fenced);
            }
        }
        Ok(())
    }

    /// Makes everything a batch causes durable.
    ///
    /// # Errors
    /// [`Failure`] when only a part, or nothing, is.
    pub async fn apply(
        &self,
        lane: &str,
        owner_epoch: i64,
        changes: &[Change],
        unreadable: &[Unreadable],
    ) -> Result<(), Failure> {
        if !unreadable.is_empty() {
            // Before anything else: once the offset passes, the generation must already be known to be incomplete.
            self.live.store().quarantine(self.live.generation(), lane, unreadable).await?;
            self.metrics.quarantined(unreadable.len());
            for message in unreadable {
                let (offset, reason) = (message.offset, &message.reason);
                tracing::error!(lane, %offset, reason, "message quarantined; counts are approximate until it is repaired");
            }
        }
        for changes in changes.chunk_by(|a, b| a.offset.epoch == b.offset.epoch) {
            self.apply_epoch(lane, owner_epoch, changes).await?;
        }
        crash_point!("projector.after_commit");
        self.wake.notify_one();
        Ok(())
    }

    async fn apply_epoch(&self, lane: &str, owner_epoch: i64, changes: &[Change]) -> Result<(), Failure> {
        let writer =
            Writer { generation: self.live.generation(), bucket_space: self.live.space().version(), lane, owner_epoch };
        for tried in 1.. {
            let routes = self.live.routes();
            let groups = split(changes, self.live.space(), &routes);
            match self.fold_groups(&writer, &routes, &groups).await {
                Err(Failure::RouteMismatch(_)) if tried < ROUTE_TRIES_MAX => self.live.refresh().await?,
                done => return done,
            }
        }
        Ok(())
    }

    /// Folds all groups side by side. Those that commit stay committed whatever becomes of the others.
    async fn fold_groups(&self, writer: &Writer<'_>, routes: &Routes, groups: &[Group<'_>]) -> Result<(), Failure> {
        let store = self.live.store();
        let folds = groups.iter().map(|group| async move {
            let name = &routes.partitions()[group.partition];
            (name, group, fold_group(store, name, writer, group).await)
        });
        let mut failure = None;
        for (name, group, outcome) in join_all(folds).await {
            let failed = match outcome {
                Ok(Outcome::Applied { relations, buckets, quarantined }) => {
                    self.metrics.applied(group.messages.len(), relations, buckets);
                    if quarantined > 0 {
                        self.metrics.buckets_quarantined(quarantined);
                        tracing::error!(partition = %name, quarantined, "buckets stand still: a count would fall below zero");
                    }
                    continue;
                }
                Ok(Outcome::Replay) => {
                    self.metrics.replayed(group.messages.len());
                    continue;
                }
                Ok(Outcome::Fenced) => Failure::Fenced,
                Ok(Outcome::RouteMismatch) => Failure::RouteMismatch(name.clone()),
                Err(error) => Failure::Store(error),
            };
            // A lost lease ends everything; a store that failed is worth waiting for before routes are read again.
            failure = match (failure, failed) {
                (Some(Failure::Fenced), _) | (_, Failure::Fenced) => Some(Failure::Fenced),
                (Some(Failure::Store(error)), _) | (_, Failure::Store(error)) => Some(Failure::Store(error)),
                (_, mismatch) => Some(mismatch),
            };
        }
        failure.map_or(Ok(()), Err)
    }
}

async fn fold_group(store: &Store, name: &str, writer: &Writer<'_>, group: &Group<'_>) -> Result<Outcome, Error> {
    store.partition(name)?.fold(writer, group).await
}
