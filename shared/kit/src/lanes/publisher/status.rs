//! What a publisher tells about itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::{Error, Lane, OutboxWatermarks};

/// Present state of one publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    /// Epoch last read.
    pub(super) epoch: u32,
    /// Last error in our words, empty when it works.
    pub(super) last_error: String,
    /// Where the outbox stood when last looked at.
    pub(super) watermarks: OutboxWatermarks,
}

/// Status shared between the publisher and its handle.
#[derive(Debug)]
pub(super) struct Shared {
    status: Mutex<Status>,
    doubted: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        let watermarks = OutboxWatermarks { committed_seq: 0, published_seq: 0, oldest_unpublished_at: None };
        let status = Mutex::new(Status { epoch: 0, last_error: String::new(), watermarks });
        Self { status, doubted: AtomicBool::new(false) }
    }
}

impl Shared {
    pub(super) fn read(&self) -> Status {
        self.lock().clone()
    }

    /// Somebody has reason to think that shard and stream are not as the publisher left them.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Release);
    }

    pub(super) fn take_doubt(&self) -> bool {
        self.doubted.swap(false, Ordering::AcqRel)
    }

    pub(super) fn attached(&self, epoch: u32) {
        self.lock().epoch = epoch;
    }

    pub(super) fn observed(&self, watermarks: OutboxWatermarks) {
        self.lock().watermarks = watermarks;
    }

    /// Something was published: what committed before it is certain, too.
    pub(super) fn published(&self, seq: u64) {
        let mut status = self.lock();
        status.watermarks.committed_seq = status.watermarks.committed_seq.max(seq);
    }

    /// Keeps the error, and logs it unless it is the one that is known already.
    pub(super) fn failed(&self, lane: Lane, error: &Error) {
        let text = error.chain();
        let mut status = self.lock();
        if status.last_error == text {
            return;
        }
        if error.is_final() {
            tracing::error!(%lane, error = text, "publishing stands still");
        } else {
            tracing::warn!(%lane, error = text, "publishing failed, trying again");
        }
        status.last_error = text;
    }

    /// It works, again.
    pub(super) fn works(&self, lane: Lane) {
        let mut status = self.lock();
        if !status.last_error.is_empty() {
            tracing::info!(%lane, "publishing works again");
            status.last_error.clear();
        }
    }

    /// Nothing inside panics while it holds the lock, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
