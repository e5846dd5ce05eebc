//! Feeds one projection from one lane.
//!
//! One consumer per lane and projection works at a time, by a lease whose epoch fences older owners. The broker keeps
//! no truth about what was read: the checkpoint does, and before anything is read the stream has to agree with it.

pub(super) mod compare;
mod feed;
mod fill;
mod pull;
mod report;
mod run;
mod status;

use std::sync::Arc;

use deadpool_postgres::Pool;
use futures::future::BoxFuture;
use likewise_proto::convert;
use likewise_proto::lanes::v1::ConsumerWatermark;

pub use self::status::ConsumerState;
use self::status::Shared;
use super::checkpoint::{Checkpoint, checkpoints};
use super::supervise::supervise;
use super::{Error, Lane, Projection, Runtime, WatermarkSource};

/// Consumers of lanes.
pub struct Consumer;

impl Consumer {
    /// Starts feeding `projection` from `lane` until the process stops; `runtime` is a `&Context`, `pool` is on the
    /// schema with `lease` and `consumer_checkpoint`. Must be called within a Tokio runtime. Never fails: whatever goes
    /// wrong is tried again and stands in the watermarks.
    pub fn spawn<P: Projection>(
        runtime: impl Into<Runtime>,
        pool: Pool,
        lane: Lane,
        projection: Arc<P>,
    ) -> Arc<ConsumerHandle> {
        let runtime = runtime.into();
        let name = projection.name();
        let shared = Arc::new(Shared::new(name.clone(), lane));
        let handle = Arc::new(ConsumerHandle {
            lane,
            name,
            pool: pool.clone(),
            shared: Arc::clone(&shared),
            quarantine: Arc::clone(&projection) as Arc<dyn Quarantine>,
        });
        let (tasks, stop, told) = (runtime.tasks.clone(), runtime.stop.clone(), Arc::clone(&shared));
        let start = move || {
            run::Run::new(runtime.clone(), pool.clone(), lane, projection.clone(), shared.clone()).until_stopped()
        };
        tasks.spawn(supervise(stop, start, move || told.failed(&Error::Panicked)));
        handle
    }
}

/// A running consumer.
pub struct ConsumerHandle {
    lane: Lane,
    name: String,
    pool: Pool,
    shared: Arc<Shared>,
    quarantine: Arc<dyn Quarantine>,
}

impl ConsumerHandle {
    /// Where it stands now.
    #[must_use]
    pub fn state(&self) -> ConsumerState {
        self.shared.read().state
    }

    /// First offset whose effect is not included, as this process last knew it; 0 before it ever owned the lane.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.shared.read().checkpoint.map_or(0, |checkpoint| checkpoint.next_offset)
    }

    async fn watermark(&self) -> ConsumerWatermark {
        let mut status = self.shared.read();
        // Somebody else may be moving the checkpoint while this process waits.
        if status.state != ConsumerState::Running {
            match self.stored().await {
                Ok(stored) => status.checkpoint = stored.or(status.checkpoint),
                Err(error) if status.last_error.is_empty() => status.last_error = error.chain(),
                Err(_) => {}
            }
        }
        let checkpoint = status.checkpoint;
        ConsumerWatermark {
            projection: self.name.clone(),
            lane: self.lane.to_string(),
            epoch: checkpoint.as_ref().map_or(0, |checkpoint| u64::from(checkpoint.epoch)),
            next_offset: checkpoint.as_ref().map_or(1, |checkpoint| checkpoint.next_offset),
            updated_at: checkpoint.map(|checkpoint| convert::timestamp(checkpoint.updated_at)),
            status: status.state.as_str().to_owned(),
            last_error: status.last_error,
            quarantined: self.quarantine.open(&self.lane).await,
        }
    }

    async fn stored(&self) -> Result<Option<Checkpoint>, Error> {
        let lane = self.lane.to_string();
        Ok(checkpoints(&self.pool, &self.name).await?.into_iter().find(|checkpoint| checkpoint.lane == lane))
    }
}

impl WatermarkSource for ConsumerHandle {
    fn consumers(&self) -> BoxFuture<'_, Vec<ConsumerWatermark>> {
        Box::pin(async { vec![self.watermark().await] })
    }
}

/// [`Projection::quarantined`] without the type of the projection.
trait Quarantine: Send + Sync {
    fn open<'a>(&'a self, lane: &'a Lane) -> BoxFuture<'a, u64>;
}

impl<P: Projection> Quarantine for P {
    fn open<'a>(&'a self, lane: &'a Lane) -> BoxFuture<'a, u64> {
        Box::pin(self.quarantined(lane))
    }
}
