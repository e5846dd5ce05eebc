//! Settings of section `[counter]`; the keys are explained in `defaults.toml`.

use std::time::Duration;

use likewise_kit::config::{Fault, Validate};
use serde::Deserialize;

use crate::bucket::{BucketSpace, Contract};

/// Compiled-in defaults of section `[counter]`.
pub const DEFAULTS: &str = include_str!("../defaults.toml");

/// Version of the bucket space that a first start states.
pub const FIRST_BUCKET_SPACE: i32 = 1;

/// Most partitions: the name of one has two to four digits.
const PARTITIONS_MAX: u16 = 1000;
/// Most lanes, as many as relation shards.
const LANES_MAX: u16 = 1000;
/// Rows of one statement stay below this; its arrays are built in memory on both sides.
const STATEMENT_ROWS_MAX: usize = 50_000;

/// Section `[counter]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Whether this process folds lanes.
    pub projector: bool,
    /// Whether this process sums.
    pub aggregator: bool,
    /// Whether this process answers.
    pub api: bool,
    /// Server of schema `counter`.
    pub metadata_server: String,
    /// Number of partitions.
    pub partitions: u16,
    /// Servers of new partitions, dealt in turn.
    pub partition_servers: Vec<String>,
    /// Virtual buckets of the first bucket space.
    pub vbuckets: u32,
    /// Hash algorithm of the first bucket space.
    pub hash_algorithm: String,
    /// Seed of the first bucket space.
    pub hash_seed: u64,
    /// Key encoding of the first bucket space.
    pub key_encoding: String,
    /// Relation lanes.
    pub lanes: u16,
    /// Connections to the metadata.
    pub metadata_connections_max: usize,
    /// Connections to each partition.
    pub partition_connections_max: usize,
    /// Shortest time from the start of one pass to the next, in milliseconds.
    pub pass_interval_ms: u64,
    /// How often an idle aggregator looks for work, in milliseconds.
    pub idle_poll_ms: u64,
    /// Rows written in one pass.
    pub pass_videos_max: usize,
    /// Offsets of each lane read in one pass.
    pub pass_offsets_max: u64,
    /// Videos that may wait for their row before no further changes are read.
    pub waiting_videos_max: usize,
    /// Share of a full pass for those that wait longest, in percent.
    pub waiting_share_percent: usize,
    /// Views that may wait for Redis.
    pub views_waiting_max: usize,
    /// Life of the aggregator's lease, in milliseconds.
    pub lease_ttl_ms: u64,
    /// Life of a view, in seconds.
    pub view_ttl_s: u32,
    /// Life of the view of a video without a row, in seconds.
    pub view_absent_ttl_s: u32,
    /// Missed views that may wait.
    pub hints_max: usize,
    /// How often the source is asked, in milliseconds.
    pub watermark_poll_ms: u64,
    /// Longest wait for its answer, in milliseconds.
    pub watermark_timeout_ms: u64,
    /// How often receipts and passes past their time are looked for, in milliseconds.
    pub trim_interval_ms: u64,
    /// How long receipts and passes are kept for tracing, in days.
    pub trace_days: u16,
}

impl Settings {
    /// The contract a first start states.
    #[must_use]
    pub fn first_contract(&self) -> Contract {
        Contract {
            version: FIRST_BUCKET_SPACE,
            hash_algorithm: self.hash_algorithm.clone(),
            hash_seed: self.hash_seed,
            key_encoding: self.key_encoding.clone(),
            vbuckets: self.vbuckets,
        }
    }

    /// Server on which partition `number` is placed at its first start.
    #[must_use]
    pub fn partition_server(&self, number: u16) -> Option<&str> {
        let place = usize::from(number).checked_rem(self.partition_servers.len())?;
        self.partition_servers.get(place).map(String::as_str)
    }

    /// See `pass_interval_ms`.
    #[must_use]
    pub const fn pass_interval(&self) -> Duration {
        Duration::from_millis(self.pass_interval_ms)
    }

    /// See `trim_interval_ms`.
    #[must_use]
    pub const fn trim_interval(&self) -> Duration {
        Duration::from_millis(self.trim_interval_ms)
    }

    /// See `idle_poll_ms`.
    #[must_use]
    pub const fn idle_poll(&self) -> Duration {
        Duration::from_millis(self.idle_poll_ms)
    }
}

impl Validate for Settings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        let mut within = |key: &str, value: u64, min: u64, max: u64| {
            if value < min || value > max {
                faults.push(Fault::new(key, format!("must be {min}..{max}")));
            }
        };
        within("partitions", self.partitions.into(), 1, PARTITIONS_MAX.into());
        within("lanes", self.lanes.into(), 1, LANES_MAX.into());
        within("vbuckets", self.vbuckets.into(), 1, 65_536);
        within("metadata_connections_max", self.metadata_connections_max as u64, 2, 1_000);
        within("partition_connections_max", self.partition_connections_max as u64, 2, 1_000);
        within("pass_interval_ms", self.pass_interval_ms, 1, 60_000);
        within("idle_poll_ms", self.idle_poll_ms, 10, 60_000);
        within("pass_videos_max", self.pass_videos_max as u64, 1, STATEMENT_ROWS_MAX as u64);
        within("pass_offsets_max", self.pass_offsets_max, 1, 10_000_000);
        within("waiting_share_percent", self.waiting_share_percent as u64, 1, 100);
        within("lease_ttl_ms", self.lease_ttl_ms, 1_000, 600_000);
        within("view_ttl_s", self.view_ttl_s.into(), 1, 30 * 86_400);
        within("view_absent_ttl_s", self.view_absent_ttl_s.into(), 1, 30 * 86_400);
        within("trim_interval_ms", self.trim_interval_ms, 10, 86_400_000);
        within("watermark_poll_ms", self.watermark_poll_ms, 10, 60_000);
        within("watermark_timeout_ms", self.watermark_timeout_ms, 10, 60_000);
        within("waiting_videos_max", self.waiting_videos_max as u64, self.pass_videos_max as u64, 10_000_000);
        within("views_waiting_max", self.views_waiting_max as u64, self.pass_videos_max as u64, 10_000_000);
        within("hints_max", self.hints_max as u64, 1, 1_000_000);
        if self.partition_servers.is_empty() {
            faults.push(Fault::new("partition_servers", "must name at least one server"));
        }
        if let Err(error) = BucketSpace::new(self.first_contract()) {
            faults.push(Fault::new("hash_algorithm", error.to_string()));
        }
    }
}
