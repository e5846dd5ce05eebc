//! Redis as a cache that may be away: connecting never fails a start, and no command waits long.

use std::time::Duration;

use fred::clients::Pool;
use fred::interfaces::ClientLike as _;
use fred::types::Builder;
use fred::types::config::{Config, ReconnectPolicy, UnresponsiveConfig};
use secrecy::ExposeSecret;

use crate::config::RedisSettings;

/// Longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Pauses between attempts to connect again, in milliseconds.
const RECONNECT_MS_MIN: u32 = 50;
const RECONNECT_MS_MAX: u32 = 2_000;
const RECONNECT_JITTER_MS: u32 = 100;

/// The address cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is wrong. It is not shown, it may hold a password.
    #[error("the address in redis.url cannot be understood; write redis://HOST:PORT or redis-cluster://HOST:PORT")]
    Address,
    /// The pool could not be built.
    #[error("set up the connections to Redis")]
    Build(#[source] fred::error::Error),
}

/// Connections to Redis, or to a Redis Cluster. Returns at once; while Redis is away, commands fail after
/// `command_timeout_ms`.
///
/// # Errors
/// [`Error`] when the settings are wrong; never because Redis is away.
// Kept async: the connections are driven by tasks of the caller's runtime.
#[allow(clippy::unused_async)]
pub async fn connect(settings: &RedisSettings) -> Result<Pool, Error> {
    let mut config = Config::from_url(settings.url.expose_secret()).map_err(|_| Error::Address)?;
    // Otherwise a Redis that is down at the start would stay down for us.
    config.fail_fast = false;
    let mut builder = Builder::from_config(config);
    let timeout = Duration::from_millis(settings.command_timeout_ms);
    builder
        .with_performance_config(|performance| performance.default_command_timeout = timeout)
        .with_connection_config(|connection| {
            connection.connection_timeout = CONNECT_TIMEOUT;
            connection.internal_command_timeout = CONNECT_TIMEOUT;
            connection.max_command_buffer_len = settings.queue_max;
            // A command whose connection broke is the caller's to repeat: it may have been carried out.
            connection.max_command_attempts = 1;
            connection.tcp.nodelay = Some(true);
            connection.unresponsive =
                UnresponsiveConfig { max_timeout: Some(CONNECT_TIMEOUT), interval: Duration::from_secs(1) };
        });
    let mut policy = ReconnectPolicy::new_exponential(0, RECONNECT_MS_MIN, RECONNECT_MS_MAX, 2);
    policy.set_jitter(RECONNECT_JITTER_MS);
    builder.set_policy(policy);
    let pool = builder.build_pool(settings.connections).map_err(Error::Build)?;
    // The task ends when the pool quits.
    drop(pool.connect());
    Ok(pool)
}
