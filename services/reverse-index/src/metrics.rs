//! What can be counted of the index.

use likewise_kit::metrics::Metrics as Registry;
use prometheus_client::metrics::counter::Counter;

/// Counters of the service.
#[derive(Clone)]
pub struct Metrics {
    changed: Counter,
    removed: Counter,
    listed: Counter,
    scanned: Counter,
    returned: Counter,
    hidden: Counter,
    /// Messages that went to quarantine.
    pub quarantined: Counter,
    /// ListLikers calls refused because the authority did not answer.
    pub authority_away: Counter,
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counter(name, help);
        Self {
            changed: counter("likewise_reverse_relations_changed", "Relations folded with a higher version"),
            removed: counter("likewise_reverse_order_rows_removed", "Order rows removed"),
            listed: counter("likewise_reverse_order_rows_added", "Order rows added"),
            scanned: counter("likewise_reverse_candidates_scanned", "Candidates popped while listing likers"),
            returned: counter("likewise_reverse_likers_returned", "Likers returned; compare with candidates scanned"),
            hidden: counter("likewise_reverse_likers_hidden", "Candidates hidden by policy"),
            quarantined: counter("likewise_reverse_quarantined", "Messages that went to quarantine"),
            authority_away: counter("likewise_reverse_authority_away", "Lists refused because the authority is away"),
        }
    }

    /// A group was folded.
    pub fn folded(&self, changed: u64, removed: u64, listed: u64) {
        self.changed.inc_by(changed);
        self.removed.inc_by(removed);
        self.listed.inc_by(listed);
    }

    /// A page was answered.
    pub fn paged(&self, returned: u64, hidden: u64) {
        self.scanned.inc_by(returned + hidden);
        self.returned.inc_by(returned);
        self.hidden.inc_by(hidden);
    }
}
