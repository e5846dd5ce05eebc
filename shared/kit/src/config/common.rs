//! Sections that every service reads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::Deserialize;

use super::{Fault, Loader, Validate};
use crate::lanes::{LANE_DEFAULTS, LaneSettings};

const POSTGRES_DEFAULTS: &str = include_str!("../../defaults/postgres.toml");

/// Defaults of the common sections, by name.
pub const COMMON_DEFAULTS: [(&str, &str); 8] = [
    ("server", include_str!("../../defaults/server.toml")),
    ("auth", include_str!("../../defaults/auth.toml")),
    ("postgres", POSTGRES_DEFAULTS),
    ("nats", include_str!("../../defaults/nats.toml")),
    ("redis", include_str!("../../defaults/redis.toml")),
    ("lanes", LANE_DEFAULTS),
    ("log", include_str!("../../defaults/log.toml")),
    ("endpoints", include_str!("../../defaults/endpoints.toml")),
];

/// Section `[server]`; the keys are explained in `defaults/server.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// Where gRPC listens.
    pub address: String,
    /// Where the admin port listens.
    pub admin_address: String,
    /// File that gets the bound addresses; empty for none.
    pub port_file: PathBuf,
    /// Calls in flight at once.
    pub calls_max: usize,
    /// Streams in flight at once.
    pub streams_max: usize,
    /// Connections at once.
    pub connections_max: usize,
    /// Calls at once on one connection.
    pub streams_per_connection_max: u32,
    /// Age at which a connection is asked to end, in seconds; 0 for never.
    pub connection_age_s: u64,
    /// Longest time for one call, in milliseconds.
    pub deadline_ms_max: u64,
    /// Largest request message in bytes.
    pub request_bytes_max: usize,
    /// Time for calls in flight to end when stopping, in milliseconds.
    pub drain_ms_max: u64,
    /// Time for background tasks to end after that, in milliseconds.
    pub stop_ms_max: u64,
    /// Proxies in front that name the caller's address.
    pub trusted_proxies: u8,
    /// Origins that browsers may call from.
    pub cors_origins: Vec<String>,
}

impl Validate for ServerSettings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        for (key, address) in [("address", &self.address), ("admin_address", &self.admin_address)] {
            if address.parse::<std::net::SocketAddr>().is_err() {
                faults.push(Fault::new(key, "must be ADDRESS:PORT"));
            }
        }
        for (key, value) in [("calls_max", self.calls_max), ("connections_max", self.connections_max)] {
            if value == 0 {
                faults.push(Fault::new(key, "must be at least 1"));
            }
        }
        if self.deadline_ms_max == 0 {
            faults.push(Fault::new("deadline_ms_max", "must be at least 1"));
        }
    }
}

/// Section `[auth]`; the keys are explained in `defaults/auth.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthSettings {
    /// JWKS file.
    pub keys_file: PathBuf,
    /// Issuer that tokens must name.
    pub issuer: String,
    /// Audience of end users and operators.
    pub audience: String,
    /// Audience of services.
    pub service_audience: String,
    /// Key that signs this process's service tokens.
    pub service_key_file: PathBuf,
    /// `kid` of that key.
    pub service_key_id: String,
    /// Keys that seal page tokens.
    pub cursor_keys_file: PathBuf,
    /// Whether counts are answered without a token.
    pub anonymous_counts: bool,
    /// Accepted clock difference in seconds.
    pub leeway_s: u64,
    /// Verified tokens remembered.
    pub cache_max: u64,
}

impl Validate for AuthSettings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        let files = [
            ("keys_file", &self.keys_file),
            ("service_key_file", &self.service_key_file),
            ("cursor_keys_file", &self.cursor_keys_file),
        ];
        for (key, path) in files {
            if path.as_os_str().is_empty() {
                faults.push(Fault::new(key, "must name a file; `cargo dev up` makes development keys"));
            }
        }
    }
}

/// Section `[postgres]`; the keys are explained in `defaults/postgres.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresSettings {
    /// Connection strings by server name.
    pub servers: BTreeMap<String, SecretString>,
    /// Longest wait for a connection to be made, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Longest wait for a pool's connection, in milliseconds.
    pub pool_wait_ms: u64,
    /// Longest statement, in milliseconds.
    pub statement_timeout_ms: u64,
    /// Longest wait for a lock, in milliseconds.
    pub lock_timeout_ms: u64,
    /// Longest pause inside a transaction, in milliseconds.
    pub idle_in_transaction_timeout_ms: u64,
    /// How often the server looks for its client, in milliseconds.
    pub client_check_interval_ms: u64,
    /// Longest time data may stay unacknowledged, in milliseconds.
    pub tcp_user_timeout_ms: u64,
}

impl PostgresSettings {
    /// One server and the compiled-in limits.
    #[must_use]
    pub fn of(name: &str, connection_string: SecretString) -> Self {
        let limits: Self = toml::from_str(POSTGRES_DEFAULTS).expect("a test reads them");
        Self { servers: [(name.to_owned(), connection_string)].into(), ..limits }
    }
}

impl Validate for PostgresSettings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        if self.servers.is_empty() {
            faults.push(Fault::new("servers", "must name at least one server"));
        }
    }
}

/// Section `[nats]`; the keys are explained in `defaults/nats.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatsSettings {
    /// Address of the server or cluster.
    pub url: SecretString,
}

impl Validate for NatsSettings {}

/// Section `[redis]`; the keys are explained in `defaults/redis.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisSettings {
    /// Address of Redis.
    pub url: SecretString,
    /// Put before every key.
    pub key_prefix: String,
    /// Connections.
    pub connections: usize,
    /// Longest wait for one command, in milliseconds.
    pub command_timeout_ms: u64,
    /// Commands that may wait at once.
    pub queue_max: usize,
}

impl Validate for RedisSettings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        if self.connections == 0 {
            faults.push(Fault::new("connections", "must be at least 1"));
        }
    }
}

/// Section `[log]`; the keys are explained in `defaults/log.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// What is logged.
    pub filter: String,
    /// `text` or `json`.
    pub format: String,
}

impl Validate for LogSettings {
    fn validate(&self, faults: &mut Vec<Fault>) {
        if !["text", "json"].contains(&self.format.as_str()) {
            faults.push(Fault::new("format", "must be \"text\" or \"json\""));
        }
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&self.filter) {
            faults.push(Fault::new("filter", error.to_string()));
        }
    }
}

/// Section `[endpoints]`: where the other services answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoints {
    /// The command service.
    pub command: String,
    /// The query service.
    pub query: String,
    /// The counter service.
    pub counter: String,
    /// The reverse index.
    pub reverse_index: String,
    /// The content service.
    pub content: String,
    /// The reconciliation service.
    pub reconciliation: String,
    /// Authority for accounts and videos; empty means `content`.
    pub policy: String,
}

impl Validate for Endpoints {
    fn validate(&self, faults: &mut Vec<Fault>) {
        let all = [
            ("command", &self.command),
            ("query", &self.query),
            ("counter", &self.counter),
            ("reverse_index", &self.reverse_index),
            ("content", &self.content),
            ("reconciliation", &self.reconciliation),
            ("policy", &self.policy),
        ];
        for (key, endpoint) in all.into_iter().filter(|(_, endpoint)| !endpoint.is_empty()) {
            if let Err(error) = crate::clients::channel_settings(endpoint) {
                faults.push(Fault::new(key, error.to_string()));
            }
        }
    }
}

/// Every service has a section of its own, named like its endpoint.
pub(super) fn service_sections() -> toml::Table {
    let [.., (_, endpoints)] = COMMON_DEFAULTS;
    endpoints.parse().unwrap_or_default()
}

impl Endpoints {
    /// Who publishes the lanes of a class; only those that are named.
    #[must_use]
    pub fn publishers(&self) -> Vec<(&'static str, &str)> {
        let all = [("rel", self.command.as_str()), ("content", self.content.as_str())];
        all.into_iter().filter(|(_, endpoint)| !endpoint.is_empty()).collect()
    }

    /// Puts `own` where no endpoint is named: every service of one process answers at its own address.
    pub fn fill_with(&mut self, own: &str) {
        let all = [
            &mut self.command,
            &mut self.query,
            &mut self.counter,
            &mut self.reverse_index,
            &mut self.content,
            &mut self.reconciliation,
        ];
        for endpoint in all {
            if endpoint.is_empty() {
                own.clone_into(endpoint);
            }
        }
        if self.policy.is_empty() {
            self.policy.clone_from(&self.content);
        }
    }
}

/// All common sections.
#[derive(Debug, Clone)]
pub struct Common {
    /// Section `[server]`.
    pub server: ServerSettings,
    /// Section `[auth]`.
    pub auth: AuthSettings,
    /// Section `[postgres]`.
    pub postgres: PostgresSettings,
    /// Section `[nats]`.
    pub nats: NatsSettings,
    /// Section `[redis]`.
    pub redis: RedisSettings,
    /// Section `[lanes]`.
    pub lanes: LaneSettings,
    /// Section `[log]`.
    pub log: LogSettings,
    /// Section `[endpoints]`.
    pub endpoints: Endpoints,
}

impl Common {
    /// Reads every common section; `None` when any of them has a fault, which the loader keeps.
    pub fn load(loader: &mut Loader) -> Option<Self> {
        let [server, auth, postgres, nats, redis, lanes, log, endpoints] = COMMON_DEFAULTS;
        let server = loader.section(server.0, server.1);
        let auth = loader.section(auth.0, auth.1);
        let postgres = loader.section(postgres.0, postgres.1);
        let nats = loader.section(nats.0, nats.1);
        let redis = loader.section(redis.0, redis.1);
        let lanes = loader.section(lanes.0, lanes.1);
        let log = loader.section(log.0, log.1);
        let endpoints = loader.section(endpoints.0, endpoints.1);
        Some(Self {
            server: server?,
            auth: auth?,
            postgres: postgres?,
            nats: nats?,
            redis: redis?,
            lanes: lanes?,
            log: log?,
            endpoints: endpoints?,
        })
    }
}
