//! A lane whose code panics stands still alone, and says so; it is never silently gone.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

/// How long a lane stands still that needs a repair, of the shard or of the code, before it is looked at again.
pub(super) const STANDSTILL: Duration = Duration::from_secs(60);

/// Runs what `start` makes until it ends by itself. After a panic it tells `panicked`, waits, and starts anew.
pub(super) async fn supervise<F: Future<Output = ()>>(
    stop: CancellationToken,
    start: impl Fn() -> F,
    panicked: impl Fn(),
) {
    while AssertUnwindSafe(start()).catch_unwind().await.is_err() {
        panicked();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(STANDSTILL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_is_told_and_started_again() {
        let (starts, told) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let start = || async { assert!(starts.fetch_add(1, Ordering::SeqCst) == 2, "on purpose") };
        supervise(CancellationToken::new(), start, || {
            told.fetch_add(1, Ordering::SeqCst);
        })
        .await;
        assert_eq!((starts.into_inner(), told.into_inner()), (3, 2));
    }
}
