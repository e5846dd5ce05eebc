//! Pauses between attempts, so that a lane that fails does so alone and lanes that fail together do not return together.

use std::time::Duration;

use super::LaneSettings;

/// Doubling pauses with jitter.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    attempts: u32,
}

impl Backoff {
    pub(super) const fn new(settings: &LaneSettings) -> Self {
        Self {
            first: Duration::from_millis(settings.retry_ms_min),
            longest: Duration::from_millis(settings.retry_ms_max),
            attempts: 0,
        }
    }

    /// It worked: the next pause is the first one again.
    pub(super) const fn reset(&mut self) {
        self.attempts = 0;
    }

    /// The pause to make now; `chance` is uniform in 0..1.
    pub(super) fn next(&mut self, chance: f64) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(self.attempts).unwrap_or(u32::MAX));
        self.attempts = self.attempts.saturating_add(1);
        doubled.min(self.longest).mul_f64(0.5 + chance / 2.0)
    }

    /// Waits the next pause.
    pub(super) async fn pause(&mut self) {
        tokio::time::sleep(self.next(rand::random())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_keep_to_their_upper_half() {
        let mut backoff =
            Backoff { first: Duration::from_millis(100), longest: Duration::from_millis(1_000), attempts: 0 };
        let longest: Vec<_> = (0..6).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(longest, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(backoff.next(0.0).as_millis(), 500);
        backoff.reset();
        assert_eq!(backoff.next(0.0).as_millis(), 50);
        backoff.attempts = u32::MAX;
        assert_eq!(backoff.next(1.0).as_millis(), 1_000);
    }
}
