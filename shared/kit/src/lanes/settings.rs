//! Settings of section `[lanes]`.

use std::time::Duration;

use serde::Deserialize;

/// Compiled-in defaults of section `[lanes]`, with the meaning of every key.
pub const LANE_DEFAULTS: &str = include_str!("../../defaults/lanes.toml");

/// Section `[lanes]`; the keys are explained in `shared/kit/defaults/lanes.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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
    /// Longest wait for one answer of NATS, in milliseconds.
    pub request_timeout_ms: u64,
    /// First pause after a failure, in milliseconds.
    pub retry_ms_min: u64,
    /// Longest pause after a failure, in milliseconds.
    pub retry_ms_max: u64,
}

impl LaneSettings {
    pub(crate) const fn lease_ttl(&self) -> Duration {
        Duration::from_millis(self.lease_ttl_ms)
    }

    pub(crate) const fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }
}
