//! Section `[reverse_index]`; the keys are explained in `defaults.toml`.

use std::time::Duration;

use likewise_kit::config::{Fault, Validate};
use serde::Deserialize;

/// Documented defaults of the section.
pub const DEFAULTS: &str = include_str!("../defaults.toml");
/// Name of the section.
pub const SECTION: &str = "reverse_index";

/// Most reverse shards. A page token holds one key per shard: 64 bytes of user id, a time and the shard, at most 90 bytes
/// together. All of them, with what seals them, have to fit into a token as base64.
pub const REVERSE_SHARDS_MAX: u32 = 32;
/// Longest page token of the contract, in bytes.
const TOKEN_BYTES_MAX: u32 = 4096;
const _: () =
    assert!((REVERSE_SHARDS_MAX * 90 + 160) / 3 * 4 <= TOKEN_BYTES_MAX, "a full frontier must fit into a token");
/// Most ids per question to the authority, by its contract.
const POLICY_BATCH_MAX: usize = 200;

/// Settings of the service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Server with the metadata.
    pub server: String,
    /// Relation shards, one lane each.
    pub lanes: u16,
    /// Reverse shards per video of a new generation.
    pub reverse_shards: u32,
    /// Parts of a new generation.
    pub parts: u32,
    /// Server of each part of a new generation; starts over when it is shorter.
    pub part_servers: Vec<String>,
    /// Seed of the hash of a new generation.
    pub hash_seed: i64,
    /// Connections per pool.
    pub connections: usize,
    /// Candidates looked at per call.
    pub scan_max: usize,
    /// Candidates per question to the authority.
    pub policy_batch: usize,
    /// Longest wait for the authority, in milliseconds.
    pub policy_timeout_ms: u64,
}

impl Settings {
    /// Longest wait for the authority.
    #[must_use]
    pub const fn policy_timeout(&self) -> Duration {
        Duration::from_millis(self.policy_timeout_ms)
    }
}

impl Validate for Settings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        if !(1..=1024).contains(&self.lanes) {
            faults.push(Fault::new("lanes", "must be 1..1024"));
        }
        if !(1..=REVERSE_SHARDS_MAX).contains(&self.reverse_shards) {
            faults.push(Fault::new("reverse_shards", format!("must be 1..{REVERSE_SHARDS_MAX}")));
        }
        if !(1..=256).contains(&self.parts) {
            faults.push(Fault::new("parts", "must be 1..256"));
        }
        if self.part_servers.is_empty() {
            faults.push(Fault::new("part_servers", "must name at least one server"));
        }
        if self.connections == 0 {
            faults.push(Fault::new("connections", "must be at least 1"));
        }
        if !(1..=10_000).contains(&self.scan_max) {
            faults.push(Fault::new("scan_max", "must be 1..10000"));
        }
        if !(1..=POLICY_BATCH_MAX).contains(&self.policy_batch) {
            faults.push(Fault::new("policy_batch", format!("must be 1..{POLICY_BATCH_MAX}")));
        }
        if self.policy_timeout_ms == 0 {
            faults.push(Fault::new("policy_timeout_ms", "must be at least 1"));
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
        settings.reverse_shards = 33;
        settings.part_servers.clear();
        settings.policy_batch = 201;
        settings.validate(&mut faults);
        let keys: Vec<_> = faults.into_iter().map(|fault| fault.key).collect();
        assert_eq!(keys, ["reverse_shards", "part_servers", "policy_batch"]);
    }
}
