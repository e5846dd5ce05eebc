//! What can be counted of reads.

use likewise_kit::metrics::Metrics as Registry;
use prometheus_client::metrics::counter::Counter;

/// Counters of the service.
#[derive(Clone)]
pub struct Metrics {
    /// Numbers that this process had.
    pub local_hits: Counter,
    /// Numbers that Redis had.
    pub view_hits: Counter,
    /// Numbers that Redis lacked.
    pub view_misses: Counter,
    /// Reads that Redis failed.
    pub redis_failures: Counter,
    /// Numbers read from durable rows.
    pub durable_reads: Counter,
    /// Numbers that nobody could tell.
    pub unknown: Counter,
    /// Rows looked at for lists of likes.
    pub scanned: Counter,
    /// Rows returned in lists of likes.
    pub returned: Counter,
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counter(name, help);
        Self {
            local_hits: counter("likewise_query_counts_local_hits", "Counts answered from this process"),
            view_hits: counter("likewise_query_counts_view_hits", "Counts answered from Redis"),
            view_misses: counter("likewise_query_counts_view_misses", "Counts that Redis did not have"),
            redis_failures: counter("likewise_query_redis_failures", "Reads that Redis failed"),
            durable_reads: counter("likewise_query_counts_durable_reads", "Counts read from durable rows"),
            unknown: counter("likewise_query_counts_unknown", "Counts that nobody could tell"),
            scanned: counter("likewise_query_my_likes_scanned", "Rows looked at for lists of likes"),
            returned: counter("likewise_query_my_likes_returned", "Rows returned; compare with rows looked at"),
        }
    }
}
