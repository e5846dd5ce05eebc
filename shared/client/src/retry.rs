//! When a call is made again: only where that is safe, with growing pauses and full jitter, and from a budget, so that a
//! service in trouble gets fewer calls and not more.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Thousandths of a retry that each call earns, and how many retries the budget holds at most.
const EARNED: u32 = 200;
const BUDGET: u32 = 20_000;

/// How calls are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// First pause at most.
    pub pause_min: Duration,
    /// Longest pause.
    pub pause_max: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { pause_min: Duration::from_millis(50), pause_max: Duration::from_secs(2) }
    }
}

impl Policy {
    /// The pause before repetition `attempt` (0 for the first): anywhere between the hint and the hint plus a bound that doubles.
    /// `chance` is uniform in 0..1.
    #[must_use]
    pub fn pause(&self, attempt: u32, hint: Duration, chance: f64) -> Duration {
        let bound = self.pause_min.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX)).min(self.pause_max);
        hint + bound.mul_f64(chance.clamp(0.0, 1.0))
    }
}

/// Whether a call that ended so may be made again with the same operation id, and the least time to wait.
#[must_use]
pub fn hint(status: &Status) -> Option<Duration> {
    let told = status.get_details_retry_info().and_then(|info| info.retry_delay);
    match status.code() {
        // Without a hint an exhausted service is left alone.
        Code::ResourceExhausted => told,
        Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            Some(told.unwrap_or_default())
        }
        _ => None,
    }
}

/// Retries that may still be made. Shared by all calls of a client.
#[derive(Debug)]
pub struct Budget(AtomicU32);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(BUDGET / 2))
    }
}

impl Budget {
    /// A call is made: it earns a part of a retry.
    pub fn earn(&self) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some((left + EARNED).min(BUDGET)));
    }

    /// Takes one retry; false when there is none.
    pub fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1_000)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_respect_the_hint() {
        let policy = Policy::default();
        let pauses: Vec<u128> = (0..8).map(|attempt| policy.pause(attempt, Duration::ZERO, 1.0).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
        assert_eq!(policy.pause(40, Duration::ZERO, 1.0), Duration::from_secs(2));
        assert_eq!(policy.pause(0, Duration::from_secs(1), 0.0), Duration::from_secs(1));
    }

    #[test]
    fn only_what_may_not_have_happened_is_repeated() {
        for code in [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded, Code::Cancelled, Code::Unknown] {
            assert_eq!(hint(&Status::new(code, "")), Some(Duration::ZERO), "{code:?}");
        }
        for code in
            [Code::InvalidArgument, Code::NotFound, Code::FailedPrecondition, Code::ResourceExhausted, Code::Internal]
        {
            assert_eq!(hint(&Status::new(code, "")), None, "{code:?}");
        }
        let mut details = ErrorDetails::new();
        details.set_retry_info(Some(Duration::from_millis(700)));
        let limited = Status::with_error_details(Code::ResourceExhausted, "", details);
        assert_eq!(hint(&limited), Some(Duration::from_millis(700)));
    }

    #[test]
    fn a_dead_service_is_asked_about_a_fifth_more_and_no_more() {
        let budget = Budget::default();
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.earn();
            while budget.take() {
                retries += 1;
            }
        }
        assert_eq!(retries, 10 + 200);
    }
}
