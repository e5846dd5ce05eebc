//! Section `[query]`; the keys are explained in `defaults.toml`.

use std::time::Duration;

use likewise_kit::config::{Fault, Validate};
use serde::Deserialize;

/// Documented defaults of the section.
pub const DEFAULTS: &str = include_str!("../defaults.toml");
/// Name of the section.
pub const SECTION: &str = "query";

/// Settings of the service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Life of a count in this process, in milliseconds.
    pub count_ttl_ms: u64,
    /// Counts kept.
    pub count_cache_max: u64,
    /// Age at which the counter's progress is asked for again, in milliseconds.
    pub progress_poll_ms: u64,
    /// Convergence window, in milliseconds.
    pub fresh_window_ms: u64,
    /// Pause after a failure of Redis, in milliseconds.
    pub redis_pause_ms: u64,
    /// Calls to the counter at once.
    pub counter_calls_max: usize,
    /// Life of a policy, in milliseconds.
    pub policy_ttl_ms: u64,
    /// Policies kept.
    pub policy_cache_max: u64,
    /// Longest wait for another service, in milliseconds.
    pub call_timeout_ms: u64,
    /// Rows looked at per list call.
    pub scan_max: usize,
    /// Life of a page token, in seconds.
    pub cursor_ttl_s: u32,
}

impl Settings {
    /// Life of a count in this process.
    #[must_use]
    pub const fn count_ttl(&self) -> Duration {
        Duration::from_millis(self.count_ttl_ms)
    }

    /// Age at which the counter's progress is asked for again.
    #[must_use]
    pub const fn progress_poll(&self) -> Duration {
        Duration::from_millis(self.progress_poll_ms)
    }

    /// Convergence window.
    #[must_use]
    pub const fn fresh_window(&self) -> Duration {
        Duration::from_millis(self.fresh_window_ms)
    }

    /// Pause after a failure of Redis.
    #[must_use]
    pub const fn redis_pause(&self) -> Duration {
        Duration::from_millis(self.redis_pause_ms)
    }

    /// Life of a policy.
    #[must_use]
    pub const fn policy_ttl(&self) -> Duration {
        Duration::from_millis(self.policy_ttl_ms)
    }

    /// Longest wait for another service.
    #[must_use]
    pub const fn call_timeout(&self) -> Duration {
        Duration::from_millis(self.call_timeout_ms)
    }

    /// Life of a page token.
    #[must_use]
    pub const fn cursor_ttl(&self) -> Duration {
        Duration::from_secs(self.cursor_ttl_s as u64)
    }
}

impl Validate for Settings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        let at_least_one = [
            ("count_ttl_ms", self.count_ttl_ms),
            ("progress_poll_ms", self.progress_poll_ms),
            ("fresh_window_ms", self.fresh_window_ms),
            ("policy_ttl_ms", self.policy_ttl_ms),
            ("call_timeout_ms", self.call_timeout_ms),
            ("cursor_ttl_s", u64::from(self.cursor_ttl_s)),
        ];
        for (key, value) in at_least_one {
            if value == 0 {
                faults.push(Fault::new(key, "must be at least 1"));
            }
        }
        if self.fresh_window_ms <= self.count_ttl_ms + self.progress_poll_ms {
            faults
                .push(Fault::new("fresh_window_ms", "must be longer than count_ttl_ms and progress_poll_ms together"));
        }
        if self.policy_ttl_ms > 10_000 {
            faults.push(Fault::new("policy_ttl_ms", "must be at most 10000: privacy is decided at read time"));
        }
        if !(1..=10_000).contains(&self.counter_calls_max) {
            faults.push(Fault::new("counter_calls_max", "must be 1..10000"));
        }
        if !(1..=10_000).contains(&self.scan_max) {
            faults.push(Fault::new("scan_max", "must be 1..10000"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_every_broken_rule_is_named() {
        let mut settings: Settings = toml::from_str(DEFAULTS).expect("the defaults fit the type");
        let mut faults = Vec::new();
        settings.validate(&mut faults);
        assert_eq!(faults, []);
        settings.count_ttl_ms = 0;
        settings.fresh_window_ms = 200;
        settings.scan_max = 0;
        settings.validate(&mut faults);
        let keys: Vec<_> = faults.into_iter().map(|fault| fault.key).collect();
        assert_eq!(keys, ["count_ttl_ms", "fresh_window_ms", "scan_max"]);
    }
}
