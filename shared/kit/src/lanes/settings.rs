//! Settings of section `[lanes]`.

use std::time::Duration;

use serde::Deserialize;

use crate::config::{Fault, Validate};

/// Compiled-in defaults of section `[lanes]`, with the meaning of every key.
pub const LANE_DEFAULTS: &str = include_str!("../../defaults/lanes.toml");

/// Section `[lanes]`; the keys are explained in `shared/kit/defaults/lanes.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneSettings {
    /// Prefix of stream names and, in lower case, of subjects.
    pub stream_prefix: String,
    /// Copies of each stream.
    pub replicas: usize,
    /// Days that messages stay in a stream.
    pub max_age_days: u32,
    /// Messages in one atomic publish.
    pub publish_batch: usize,
    /// Bytes of payload in one atomic publish.
    pub publish_bytes: usize,
    /// How long an idle publisher waits before it looks at its outbox unwoken, in milliseconds.
    pub poll_interval_ms: u64,
    /// Messages handed to a projection at once.
    pub consume_batch: usize,
    /// Bytes of payload handed to a projection at once.
    pub consume_bytes: usize,
    /// How long an idle pull request waits at the server, in milliseconds.
    pub pull_expires_ms: u64,
    /// Life of a lease that is not renewed, in milliseconds.
    pub lease_ttl_ms: u64,
    /// Pause between two reports of a consumer to the publisher of its lane, in milliseconds.
    pub report_interval_ms: u64,
    /// How long the outbox keeps what a consumer needs that says nothing any more, in hours.
    pub consumer_ttl_hours: u32,
    /// Longest wait for one answer of NATS, in milliseconds.
    pub request_timeout_ms: u64,
    /// Whether a shard that lost published commits is repaired by its publisher.
    pub repair_lost_tails: bool,
    /// First pause after a failure, in milliseconds.
    pub retry_ms_min: u64,
    /// Longest pause after a failure, in milliseconds.
    pub retry_ms_max: u64,
}

impl Default for LaneSettings {
    /// The compiled-in defaults.
    fn default() -> Self {
        toml::from_str(LANE_DEFAULTS).expect("a test reads them")
    }
}

impl LaneSettings {
    pub(crate) const fn lease_ttl(&self) -> Duration {
        Duration::from_millis(self.lease_ttl_ms)
    }

    pub(crate) const fn report_interval(&self) -> Duration {
        Duration::from_millis(self.report_interval_ms)
    }

    pub(crate) const fn consumer_ttl(&self) -> Duration {
        Duration::from_secs(self.consumer_ttl_hours as u64 * 3600)
    }

    pub(crate) const fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }
}

/// The broker takes 1000; half of it keeps a batch well within its patience.
const PUBLISH_BATCH_MAX: usize = 500;
/// As many as are worth one transaction.
const CONSUME_BATCH_MAX: usize = 2_000;
/// Larger than any message a broker takes by default, so that a pull always brings at least one.
const BYTES_MIN: usize = 2 * 1024 * 1024;
/// Below this a lease is lost by an ordinary pause of the database.
const LEASE_TTL_MS_MIN: u64 = 500;
/// Well below the shortest time after which a silent consumer is forgotten.
const REPORT_INTERVAL_MS_MAX: u64 = 600_000;
/// 90 days, the most that a publisher grants.
const CONSUMER_TTL_HOURS_MAX: u32 = 2_160;
/// The broker forgets a consumer that does not ask for two minutes.
const PULL_EXPIRES_MS_MAX: u64 = 60_000;

impl Validate for LaneSettings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        let checks = [
            (
                !self.stream_prefix.is_empty() && self.stream_prefix.chars().all(allowed),
                "stream_prefix",
                "must be letters, digits, '-' and '_'",
            ),
            ([1, 3, 5].contains(&self.replicas), "replicas", "must be 1, 3 or 5"),
            ((1..=3650).contains(&self.max_age_days), "max_age_days", "must be 1..3650"),
            ((1..=PUBLISH_BATCH_MAX).contains(&self.publish_batch), "publish_batch", "must be 1..500"),
            (self.publish_bytes >= 1, "publish_bytes", "must be at least 1"),
            (self.poll_interval_ms >= 1, "poll_interval_ms", "must be at least 1"),
            ((1..=CONSUME_BATCH_MAX).contains(&self.consume_batch), "consume_batch", "must be 1..2000"),
            (self.consume_bytes >= BYTES_MIN, "consume_bytes", "must be at least 2097152"),
            ((100..=PULL_EXPIRES_MS_MAX).contains(&self.pull_expires_ms), "pull_expires_ms", "must be 100..60000"),
            (self.lease_ttl_ms >= LEASE_TTL_MS_MIN, "lease_ttl_ms", "must be at least 500"),
            (
                (1..=REPORT_INTERVAL_MS_MAX).contains(&self.report_interval_ms),
                "report_interval_ms",
                "must be 1..600000",
            ),
            ((1..=CONSUMER_TTL_HOURS_MAX).contains(&self.consumer_ttl_hours), "consumer_ttl_hours", "must be 1..2160"),
            (self.request_timeout_ms >= 1, "request_timeout_ms", "must be at least 1"),
            (
                (1..=self.retry_ms_max).contains(&self.retry_ms_min),
                "retry_ms_min",
                "must be at least 1 and at most retry_ms_max",
            ),
        ];
        faults.extend(checks.into_iter().filter(|(fine, ..)| !fine).map(|(_, key, words)| Fault::new(key, words)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_every_fault_is_told() {
        let defaults = LaneSettings::default();
        let mut faults = Vec::new();
        defaults.validate(&mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        let wrong = LaneSettings {
            stream_prefix: "a.b".to_owned(),
            replicas: 2,
            publish_batch: 501,
            consume_batch: 0,
            retry_ms_min: 9,
            retry_ms_max: 8,
            ..defaults
        };
        wrong.validate(&mut faults);
        assert_eq!(faults.len(), 5, "{faults:?}");
    }
}
