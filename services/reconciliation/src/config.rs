//! Section `[reconciliation]`; the keys are explained in `defaults.toml`.

use std::time::Duration;

use likewise_kit::config::{Fault, Validate};
use serde::Deserialize;

/// Documented defaults of the section.
pub const DEFAULTS: &str = include_str!("../defaults.toml");
/// Name of the section.
pub const SECTION: &str = "reconciliation";

/// Settings of the service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Longest wait for the answer of one service, in milliseconds.
    pub call_timeout_ms: u64,
}

impl Settings {
    /// Longest wait for the answer of one service.
    #[must_use]
    pub const fn call_timeout(&self) -> Duration {
        Duration::from_millis(self.call_timeout_ms)
    }
}

impl Validate for Settings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        if !(1..=60_000).contains(&self.call_timeout_ms) {
            faults.push(Fault::new("call_timeout_ms", "must be 1 to 60000"));
        }
    }
}
