//! Section `[content]`; the keys are explained in `defaults.toml`.

use likewise_kit::config::{Fault, Validate};
use serde::Deserialize;
use time::Duration;

/// Documented defaults of the section.
pub const DEFAULTS: &str = include_str!("../defaults.toml");
/// Name of the section.
pub const SECTION: &str = "content";

/// Settings of the service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Server of the schema.
    pub server: String,
    /// Connections for reads and writes.
    pub connections: usize,
    /// Days in which a deletion can be taken back.
    pub grace_days: i64,
    /// Entries of a block set that are handed out whole.
    pub block_set_max: i64,
    /// How long a page token is good, in minutes.
    pub page_token_minutes: i64,
}

impl Settings {
    /// Time in which a deletion can be taken back.
    #[must_use]
    pub const fn grace(&self) -> Duration {
        Duration::days(self.grace_days)
    }

    /// How long a page token is good.
    #[must_use]
    pub const fn page_token_life(&self) -> Duration {
        Duration::minutes(self.page_token_minutes)
    }
}

impl Validate for Settings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        if self.connections < 2 {
            faults.push(Fault::new("connections", "must be at least 2: one may wait for the lock while others read"));
        }
        if !(1..=3650).contains(&self.grace_days) {
            faults.push(Fault::new("grace_days", "must be 1..3650"));
        }
        if !(1..=10_000).contains(&self.block_set_max) {
            faults.push(Fault::new("block_set_max", "must be 1..10000"));
        }
        if self.page_token_minutes < 1 {
            faults.push(Fault::new("page_token_minutes", "must be at least 1"));
        }
    }
}
