//! Feeds one projection from one lane.

use std::sync::Arc;

use deadpool_postgres::Pool;

use super::{Lane, Projection, Runtime, WatermarkSource};

/// Consumers of lanes.
pub struct Consumer;

impl Consumer {
    /// Starts feeding `projection` from `lane` until the process stops; `runtime` is a `&Context`, `pool` is on the
    /// schema with `lease` and `consumer_checkpoint`.
    pub fn spawn(
        runtime: impl Into<Runtime>,
        pool: Pool,
        lane: Lane,
        projection: Arc<impl Projection>,
    ) -> Arc<ConsumerHandle> {
        let _ = (runtime.into(), pool, lane, projection);
        Arc::new(ConsumerHandle {})
    }
}

/// Where a consumer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerState {
    /// Another process owns the lane, or the stream does not exist yet.
    Waiting,
    /// Applying.
    Running,
    /// Something failed; it is tried again.
    Retrying,
    /// A number is missing inside the stream. Nothing past it is applied.
    Gap,
    /// The stream is shorter than what was applied; waits for it to be published again.
    Regressed,
    /// The stream holds another message than the one applied last. Stands still until repaired.
    LostTail,
    /// The process stops.
    Stopped,
}

/// A running consumer.
pub struct ConsumerHandle {}

impl WatermarkSource for ConsumerHandle {}
