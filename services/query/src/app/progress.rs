//! What is known of the counter's progress. It only ever serves as a lower bound, so an older one is as right as a new one, just
//! less proud.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as Turn;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::clients::Counter;
use crate::count::Progress;

/// A progress this many times older than it should be is not worth answering from while a new one can be had: after a pause
/// in traffic the first reader waits for it.
const WORN: u32 = 4;

/// The last answer, and the last attempt to get one.
#[derive(Clone, Default)]
struct Known {
    progress: Option<Arc<Progress>>,
    /// Age of the answer, or when the last attempt failed.
    asked_at: Option<Instant>,
    attempts: u64,
}

struct Inner {
    counter: Counter,
    poll: Duration,
    known: Mutex<Known>,
    /// Whoever asks the counter holds it.
    turn: Turn<()>,
}

/// Asks the counter for its progress, at most once per interval and only while somebody reads.
#[derive(Clone)]
pub struct ProgressKeeper {
    inner: Arc<Inner>,
    tasks: TaskTracker,
}

impl ProgressKeeper {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(counter: Counter, poll: Duration, tasks: TaskTracker) -> Self {
        let inner = Inner { counter, poll, known: Mutex::default(), turn: Turn::new(()) };
        Self { inner: Arc::new(inner), tasks }
    }

    /// A progress from before this moment; `None` while the counter never answered.
    pub async fn latest(&self) -> Option<Arc<Progress>> {
        let inner = &self.inner;
        let known = inner.known();
        let age = known.asked_at.map_or(Duration::MAX, |asked_at| asked_at.elapsed());
        if age < inner.poll {
            return known.progress;
        }
        if age < inner.poll * WORN {
            let inner = Arc::clone(inner);
            self.tasks.spawn(async move {
                // Held: somebody is asking already.
                if let Ok(_turn) = inner.turn.try_lock() {
                    inner.ask().await;
                }
            });
            return known.progress;
        }
        let _turn = inner.turn.lock().await;
        // Whoever waited for somebody else's attempt takes what it brought, if only nothing: the time-outs of a counter that
        // hangs do not add up.
        if inner.known().attempts == known.attempts {
            inner.ask().await;
        }
        inner.known().progress
    }
}

impl Inner {
    fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn ask(&self) {
        let asked_at = Instant::now();
        let answer = self.counter.progress().await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.attempts += 1;
        match answer {
            Ok(progress) => {
                known.progress = Some(Arc::new(progress));
                known.asked_at = Some(asked_at);
            }
            Err(failure) => {
                tracing::warn!(%failure, "the counter does not tell its progress; counts become stale");
                // What was known stays true. It is asked for again after the interval, not by every reader at once.
                known.asked_at = Some(Instant::now());
            }
        }
    }
}
