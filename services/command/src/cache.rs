//! Redis: where processes tell each other what they have admitted. Nothing waits for it, and it holds no ids, only hashes.

use std::time::Duration;

use fred::clients::Pool;
use fred::types::scripts::Script;

/// A window's hash lives this long.
const LIFE_S: u64 = 30;

/// Redis did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("exchange what was admitted")]
pub(crate) struct Error(#[from] fred::error::Error);

/// The exchange of all processes of one deployment.
pub(crate) struct Exchange {
    redis: Pool,
    prefix: String,
    script: Script,
}

impl Exchange {
    /// `prefix` stands before every key.
    pub(crate) fn new(redis: Pool, prefix: &str) -> Self {
        let script = Script::from_lua(include_str!("cache/exchange_limits.lua"));
        Self { redis, prefix: prefix.to_owned(), script }
    }

    /// Adds numbers under their fields in the window, and answers the sums of everybody, in the same order. One round trip.
    pub(crate) async fn add(
        &self,
        window: u64,
        admitted: &[(String, u64)],
        limit: Duration,
    ) -> Result<Vec<u64>, Error> {
        let mut arguments = vec![LIFE_S.to_string()];
        for (field, count) in admitted {
            arguments.extend([field.clone(), count.to_string()]);
        }
        let key = format!("{}like:limit:{{{window}}}", self.prefix);
        let call = self.script.evalsha_with_reload(self.redis.next(), vec![key], arguments);
        let sums = tokio::time::timeout(limit, call).await;
        Ok(sums.map_err(|_| fred::error::Error::new(fred::error::ErrorKind::Timeout, "no answer"))??)
    }
}
