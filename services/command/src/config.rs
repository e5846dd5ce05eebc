//! Settings of section `[command]`; the keys are explained in `defaults.toml`.

use std::time::Duration;

use likewise_domain::decide::{BasePolicy, Rules};
use likewise_domain::hash::{ContractError, HashContract};
use likewise_domain::operation::RECORD_RETENTION;
use likewise_kit::auth::{ProofPolicy, ProofRule};
use likewise_kit::config::{Fault, Validate};
use serde::Deserialize;

use crate::limits::{Bounds, Kind, Rate};

/// Compiled-in defaults of section `[command]`.
pub const DEFAULTS: &str = include_str!("../defaults.toml");

/// Most shards: the name of a schema has two to four digits, and a position keeps the number in 16 bits.
const SHARDS_MAX: u16 = 1000;
/// Larger batches gain little and hold the shard's lock for longer.
const BATCH_MAX: usize = 1024;

/// Section `[command]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)]
pub struct Settings {
    /// Whether this process answers and writes.
    pub api: bool,
    /// Whether this process publishes and consumes lanes.
    pub publisher: bool,
    /// Whether this process looks after partitions.
    pub maintenance: bool,
    /// Number of relation shards.
    pub shards: u16,
    /// Servers of the shards, dealt in turn.
    pub shard_servers: Vec<String>,
    /// Hash algorithm from user to shard.
    pub hash_algorithm: String,
    /// Its seed.
    pub hash_seed: u64,
    /// How the user id is encoded for it.
    pub key_encoding: String,
    /// Whether shards are taken as they are found, even on another server than before.
    pub accept_server_identity: bool,
    /// Commands in one transaction.
    pub batch_max: usize,
    /// Commands waiting per shard.
    pub queue_max: usize,
    /// Transactions at once per server; 0 for the number of cores.
    pub flights_per_server_max: usize,
    /// Commands of one stream that are read and not answered.
    pub stream_in_flight_max: usize,
    /// Longest wait for a verdict, in milliseconds.
    pub answer_timeout_ms: u64,
    /// Longest wait for a read, in milliseconds.
    pub read_timeout_ms: u64,
    /// Longest wait for a transaction's answer, in milliseconds.
    pub flight_timeout_ms: u64,
    /// First pause before connecting again, in milliseconds.
    pub reconnect_ms_min: u64,
    /// Longest pause before connecting again, in milliseconds.
    pub reconnect_ms_max: u64,
    /// Connections per shard for reads.
    pub reads_per_shard_max: usize,
    /// Whether a stale base version is accepted.
    pub last_commit_wins: bool,
    /// Changes of one relation within the window.
    pub transitions_max: u32,
    /// The window, in milliseconds.
    pub transition_window_ms: u32,
    /// Whether operation ids must tell a time.
    pub require_dated_ids: bool,
    /// Longest life of a write barrier, in milliseconds.
    pub barrier_ttl_ms_max: u64,
    /// Scans and searches of whole shards at once.
    pub scans_max: usize,
    /// Commands of one account per second; 0 for no limit.
    pub account_per_s: u32,
    /// Commands of one account at once.
    pub account_burst: u32,
    /// Commands of one device per second; 0 for no limit.
    pub device_per_s: u32,
    /// Commands of one device at once.
    pub device_burst: u32,
    /// Commands from one address per second; 0 for no limit.
    pub address_per_s: u32,
    /// Commands from one address at once.
    pub address_burst: u32,
    /// Keys remembered per limit.
    pub limits_keys_max: usize,
    /// Part of its limit above which a key is told to other processes, in per cent.
    pub limits_share_percent: u8,
    /// How often processes tell each other, in milliseconds.
    pub limits_exchange_ms: u64,
    /// Window in which behaviour is looked at, in milliseconds.
    pub behaviour_window_ms: u32,
    /// Likes taken back within it.
    pub behaviour_switches_max: u32,
    /// Devices within it.
    pub behaviour_devices_max: u32,
    /// Different videos within it.
    pub behaviour_videos_max: u32,
    /// The account's rate is divided by this above one of these bounds.
    pub behaviour_tighten: u32,
    /// Which requests must be signed by the device of their token.
    pub request_proof: ProofRule,
    /// Age up to which a signature is good, in milliseconds.
    pub request_age_max_ms: u64,
    /// Age at which a policy is asked for again, in milliseconds.
    pub policy_ttl_ms: u64,
    /// The same for unknown videos, in milliseconds.
    pub policy_missing_ttl_ms: u64,
    /// Age up to which a policy serves while the authority is away, in milliseconds.
    pub policy_grace_ms: u64,
    /// Longest wait for the authority, in milliseconds.
    pub policy_timeout_ms: u64,
    /// Videos and block sets remembered.
    pub policy_cache_max: u64,
    /// How long verdicts are kept, in days.
    pub operation_retention_days: u16,
    /// Weeks of operations made ahead.
    pub operation_weeks_ahead: u16,
    /// Rows of one outbox partition.
    pub outbox_partition_rows: u64,
    /// Empty outbox partitions kept ahead.
    pub outbox_partitions_ahead: u64,
    /// Whether outbox partitions that nobody needs any more are dropped.
    pub drop_outbox: bool,
    /// How often the authority is asked what has changed, in milliseconds.
    pub authority_sweep_ms: u64,
    /// Services that may ask for risk acts.
    pub risk_services: Vec<String>,
    /// Targets up to which their acts run without approval.
    pub risk_auto_targets_max: usize,
    /// Relations swept in one transaction.
    pub sweep_rows: u32,
    /// Relations swept per second and shard.
    pub sweep_rows_per_s: u32,
    /// How often is looked for sweeps nobody spoke of, in milliseconds.
    pub sweep_interval_ms: u64,
    /// Pause between two passes of the maintenance, in milliseconds.
    pub maintenance_interval_ms: u64,
}

impl Settings {
    /// The contract by which users belong to shards, as configured.
    ///
    /// # Errors
    /// [`ContractError`] when this build does not know a name.
    pub fn contract(&self) -> Result<HashContract, ContractError> {
        HashContract::parse(&self.hash_algorithm, self.hash_seed, &self.key_encoding, self.shards.into())
    }

    /// Server of a shard.
    #[must_use]
    pub fn shard_server(&self, shard: u16) -> Option<&str> {
        let place = usize::from(shard).checked_rem(self.shard_servers.len())?;
        self.shard_servers.get(place).map(String::as_str)
    }

    /// Settings of the decision.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            base: if self.last_commit_wins { BasePolicy::LastCommitWins } else { BasePolicy::Reject },
            transitions_max: self.transitions_max,
            transition_window: time::Duration::milliseconds(self.transition_window_ms.into()),
        }
    }

    /// Rates of accounts, devices and addresses, in the order of [`Kind::ALL`].
    #[must_use]
    pub fn rates(&self) -> [Rate; 3] {
        let rate = |per_s, burst| Rate { per_s, burst };
        Kind::ALL.map(|kind| match kind {
            Kind::Account => rate(self.account_per_s, self.account_burst),
            Kind::Device => rate(self.device_per_s, self.device_burst),
            Kind::Address => rate(self.address_per_s, self.address_burst),
        })
    }

    /// Bounds of behaviour.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        Bounds {
            window: u64::from(self.behaviour_window_ms) * 1_000,
            switches: self.behaviour_switches_max,
            devices: self.behaviour_devices_max,
            videos: self.behaviour_videos_max,
        }
    }

    /// See `request_proof` and `request_age_max_ms`.
    #[must_use]
    pub const fn proof_policy(&self) -> ProofPolicy {
        ProofPolicy { rule: self.request_proof, age_max: Duration::from_millis(self.request_age_max_ms) }
    }

    /// See `flights_per_server_max`.
    #[must_use]
    pub fn flights_per_server(&self) -> usize {
        match self.flights_per_server_max {
            0 => std::thread::available_parallelism().map_or(2, usize::from),
            flights => flights,
        }
    }

    /// See `answer_timeout_ms`.
    #[must_use]
    pub const fn answer_timeout(&self) -> Duration {
        Duration::from_millis(self.answer_timeout_ms)
    }

    /// See `read_timeout_ms`.
    #[must_use]
    pub const fn read_timeout(&self) -> Duration {
        Duration::from_millis(self.read_timeout_ms)
    }

    /// See `flight_timeout_ms`.
    #[must_use]
    pub const fn flight_timeout(&self) -> Duration {
        Duration::from_millis(self.flight_timeout_ms)
    }

    /// See `maintenance_interval_ms`.
    #[must_use]
    pub const fn maintenance_interval(&self) -> Duration {
        Duration::from_millis(self.maintenance_interval_ms)
    }
}

impl Validate for Settings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        let mut within = |key: &str, value: u64, min: u64, max: u64| {
            if value < min || value > max {
                faults.push(Fault::new(key, format!("must be {min}..{max}")));
            }
        };
        within("shards", self.shards.into(), 1, SHARDS_MAX.into());
        within("batch_max", self.batch_max as u64, 1, BATCH_MAX as u64);
        within("queue_max", self.queue_max as u64, 1, 1_000_000);
        within("flights_per_server_max", self.flights_per_server_max as u64, 0, 1_000);
        within("stream_in_flight_max", self.stream_in_flight_max as u64, 1, 100_000);
        within("answer_timeout_ms", self.answer_timeout_ms, 1, 600_000);
        within("read_timeout_ms", self.read_timeout_ms, 1, 600_000);
        within("flight_timeout_ms", self.flight_timeout_ms, 100, 600_000);
        within("reconnect_ms_min", self.reconnect_ms_min, 1, self.reconnect_ms_max);
        within("reconnect_ms_max", self.reconnect_ms_max, 1, 600_000);
        within("reads_per_shard_max", self.reads_per_shard_max as u64, 2, 1_000);
        within("transitions_max", self.transitions_max.into(), 1, 1_000_000);
        within("transition_window_ms", self.transition_window_ms.into(), 1, 86_400_000);
        within("barrier_ttl_ms_max", self.barrier_ttl_ms_max, 1, 600_000);
        within("scans_max", self.scans_max as u64, 1, 100);
        within("account_burst", self.account_burst.into(), 1, 1_000_000);
        within("device_burst", self.device_burst.into(), 1, 1_000_000);
        within("address_burst", self.address_burst.into(), 1, 10_000_000);
        for (key, rate) in [
            ("account_per_s", self.account_per_s),
            ("device_per_s", self.device_per_s),
            ("address_per_s", self.address_per_s),
        ] {
            within(key, rate.into(), 0, 1_000_000);
        }
        within("limits_keys_max", self.limits_keys_max as u64, 64, 100_000_000);
        within("limits_share_percent", self.limits_share_percent.into(), 1, 100);
        within("limits_exchange_ms", self.limits_exchange_ms, 10, 60_000);
        within("behaviour_window_ms", self.behaviour_window_ms.into(), 1_000, 3_600_000);
        within("behaviour_devices_max", self.behaviour_devices_max.into(), 1, 15);
        within("behaviour_videos_max", self.behaviour_videos_max.into(), 1, 1_000);
        within("behaviour_tighten", self.behaviour_tighten.into(), 1, 1_000);
        within("request_age_max_ms", self.request_age_max_ms, 1, 86_400_000);
        within("policy_ttl_ms", self.policy_ttl_ms, 1, self.policy_grace_ms);
        within("policy_missing_ttl_ms", self.policy_missing_ttl_ms, 1, self.policy_ttl_ms);
        within("policy_grace_ms", self.policy_grace_ms, 1, 86_400_000);
        within("policy_timeout_ms", self.policy_timeout_ms, 1, 60_000);
        within("policy_cache_max", self.policy_cache_max, 1, 100_000_000);
        let retention = RECORD_RETENTION.whole_days().unsigned_abs();
        within("operation_retention_days", self.operation_retention_days.into(), retention, 400);
        within("operation_weeks_ahead", self.operation_weeks_ahead.into(), 2, 52);
        within("outbox_partition_rows", self.outbox_partition_rows, 1, 1_000_000_000);
        within("outbox_partitions_ahead", self.outbox_partitions_ahead, 2, 16);
        within("authority_sweep_ms", self.authority_sweep_ms, 10, 86_400_000);
        within("risk_auto_targets_max", self.risk_auto_targets_max as u64, 0, 2_000);
        within("sweep_rows", self.sweep_rows.into(), 1, 1_000);
        within("sweep_rows_per_s", self.sweep_rows_per_s.into(), self.sweep_rows.into(), 1_000_000);
        within("sweep_interval_ms", self.sweep_interval_ms, 10, 3_600_000);
        within("maintenance_interval_ms", self.maintenance_interval_ms, 10, 86_400_000);
        if self.shard_servers.is_empty() {
            faults.push(Fault::new("shard_servers", "must name at least one server"));
        }
        if self.shards > 0
            && let Err(error) = self.contract()
        {
            faults.push(Fault::new("hash_algorithm", error.to_string()));
        }
    }
}
