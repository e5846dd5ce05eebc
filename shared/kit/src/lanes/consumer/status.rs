//! What a consumer tells about itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use likewise_domain::lane::Offset;
use tokio::sync::Notify;

use super::super::checkpoint::Checkpoint;
use super::super::{Error, Lane};

/// Where a consumer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerState {
    /// Another process owns the lane, or its stream does not exist yet.
    Waiting,
    /// Applying what comes.
    Running,
    /// Something failed; it is tried again.
    Retrying,
    /// A number is missing inside the stream, and no publisher is known that could be asked for it. Nothing past it is
    /// applied.
    Gap,
    /// Neither the stream nor the outbox has what is due. Stands still: the projection has to be restored or rebuilt.
    RetentionGap,
    /// The stream is shorter than what was applied. Waits for it to be published again.
    Regressed,
    /// The stream holds another message than the one applied last. Stands still until repaired.
    LostTail,
    /// The process stops.
    Stopped,
}

impl ConsumerState {
    /// As it stands in watermarks.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "WAITING",
            Self::Running => "RUNNING",
            Self::Retrying => "RETRYING",
            Self::Gap => "GAP",
            Self::RetentionGap => "RETENTION_GAP",
            Self::Regressed => "REGRESSED",
            Self::LostTail => "LOST_TAIL",
            Self::Stopped => "STOPPED",
        }
    }

    const fn of(error: &Error) -> Self {
        match error {
            Error::Gap { .. } => Self::Gap,
            Error::RetentionGap { .. } => Self::RetentionGap,
            Error::Regressed { .. } => Self::Regressed,
            Error::LostTail { .. } | Error::ForeignMessage { .. } => Self::LostTail,
            _ => Self::Retrying,
        }
    }
}

/// Present state of one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) state: ConsumerState,
    pub(super) last_error: String,
    /// Where the lane stands; `None` before it was ever owned here.
    pub(super) checkpoint: Option<Checkpoint>,
    /// Whether this process has claimed that checkpoint and may still move it.
    owned: bool,
}

/// Status shared between the consumer and its handle.
#[derive(Debug)]
pub(super) struct Shared {
    projection: String,
    lane: Lane,
    status: Mutex<Status>,
    claimed: Notify,
}

impl Shared {
    pub(super) const fn new(projection: String, lane: Lane) -> Self {
        let state = ConsumerState::Waiting;
        let status = Status { state, last_error: String::new(), checkpoint: None, owned: false };
        Self { projection, lane, status: Mutex::new(status), claimed: Notify::const_new() }
    }

    pub(super) fn read(&self) -> Status {
        self.lock().clone()
    }

    pub(super) fn enter(&self, state: ConsumerState) {
        self.lock().state = state;
    }

    pub(super) fn at(&self, checkpoint: &Checkpoint) {
        let mut status = self.lock();
        status.checkpoint = Some(checkpoint.clone());
        if !std::mem::replace(&mut status.owned, true) {
            self.claimed.notify_one();
        }
    }

    /// Somebody else may move the checkpoint now.
    pub(super) fn disowned(&self) {
        self.lock().owned = false;
    }

    /// Where the lane stands, once this process owns it. For one task.
    pub(super) async fn owned_at(&self) -> Offset {
        loop {
            {
                let status = self.lock();
                if let Some(checkpoint) = status.checkpoint.as_ref().filter(|_| status.owned) {
                    return Offset { epoch: checkpoint.epoch, seq: checkpoint.next_offset };
                }
            }
            self.claimed.notified().await;
        }
    }

    /// Keeps the error, and logs it unless it is the one that is known already.
    pub(super) fn failed(&self, error: &Error) {
        self.failed_as(ConsumerState::of(error), error.chain(), error.is_final());
    }

    /// The projection could not apply a batch.
    pub(super) fn refused(&self, text: String) {
        self.failed_as(ConsumerState::Retrying, text, false);
    }

    fn failed_as(&self, state: ConsumerState, text: String, is_final: bool) {
        let mut status = self.lock();
        status.state = state;
        if status.last_error == text {
            return;
        }
        let (projection, lane) = (&self.projection, self.lane);
        if is_final {
            tracing::error!(projection, %lane, error = text, "consuming stands still");
        } else {
            tracing::warn!(projection, %lane, error = text, "consuming failed, trying again");
        }
        status.last_error = text;
    }

    /// It works, again.
    pub(super) fn works(&self) {
        let mut status = self.lock();
        status.state = ConsumerState::Running;
        if !status.last_error.is_empty() {
            tracing::info!(projection = self.projection, lane = %self.lane, "consuming works again");
            status.last_error.clear();
        }
    }

    /// Nothing inside panics while it holds the lock, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
