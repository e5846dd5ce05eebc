//! What the counter measures. No label is a user or a video.

use std::sync::atomic::AtomicU64;

use likewise_kit::metrics::Metrics as Registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// Figures of one process.
#[derive(Debug, Clone)]
pub struct Metrics {
    messages_applied: Counter,
    messages_replayed: Counter,
    messages_quarantined: Counter,
    relations_written: Counter,
    buckets_written: Counter,
    buckets_quarantined: Counter,
    passes: Counter,
    rows_written: Counter,
    views_written: Counter,
    views_failed: Counter,
    rows_waiting: Gauge<f64, AtomicU64>,
    views_waiting: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// The figures, registered with the process.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counter(name, help);
        Self {
            messages_applied: counter(
                "likewise_counter_messages_applied",
                "Messages in groups that were folded and committed",
            ),
            messages_replayed: counter("likewise_counter_messages_replayed", "Messages in groups committed before"),
            messages_quarantined: counter(
                "likewise_counter_messages_quarantined",
                "Messages that could not be understood",
            ),
            relations_written: counter("likewise_counter_relations_written", "Relation rows written by folds"),
            buckets_written: counter("likewise_counter_buckets_written", "Bucket rows written by folds"),
            buckets_quarantined: counter("likewise_counter_buckets_quarantined", "Writes to buckets that stand still"),
            passes: counter("likewise_counter_passes", "Passes of the aggregator"),
            rows_written: counter("likewise_counter_rows_written", "Display rows written"),
            views_written: counter("likewise_counter_views_written", "Redis views written"),
            views_failed: counter("likewise_counter_views_failed", "Calls of Redis by the aggregator that failed"),
            rows_waiting: registry.gauge("likewise_counter_rows_waiting", "Videos that wait for their display row"),
            views_waiting: registry.gauge("likewise_counter_views_waiting", "Views that wait for Redis"),
        }
    }

    pub(crate) fn applied(&self, messages: usize, relations: u32, buckets: u32) {
        self.messages_applied.inc_by(messages as u64);
        self.relations_written.inc_by(relations.into());
        self.buckets_written.inc_by(buckets.into());
    }

    pub(crate) fn replayed(&self, messages: usize) {
        self.messages_replayed.inc_by(messages as u64);
    }

    pub(crate) fn quarantined(&self, messages: usize) {
        self.messages_quarantined.inc_by(messages as u64);
    }

    pub(crate) fn buckets_quarantined(&self, buckets: u32) {
        self.buckets_quarantined.inc_by(buckets.into());
    }

    pub(crate) fn pass(&self, rows: usize) {
        self.passes.inc();
        self.rows_written.inc_by(rows as u64);
    }

    pub(crate) fn views(&self, written: usize) {
        self.views_written.inc_by(written as u64);
    }

    pub(crate) fn views_failed(&self) {
        self.views_failed.inc();
    }

    #[allow(clippy::cast_precision_loss)] // both are bounded far below 2^52
    pub(crate) fn waiting(&self, rows: usize, views: usize) {
        self.rows_waiting.set(rows as f64);
        self.views_waiting.set(views as f64);
    }
}
