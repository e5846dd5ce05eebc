//! Numbers of lanes. Only the owner of a lane reports it; what a former owner reported is taken back.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use time::OffsetDateTime;

use super::{Lane, Needs, OutboxWatermarks};
use crate::metrics::{Counters, Gauges, Histograms, Labels, Metrics, SECONDS, SIZES};

/// Numbers of one publisher.
pub(super) struct PublisherMetrics {
    labels: Labels,
    committed: Gauges,
    published: Gauges,
    oldest: Gauges,
    first: Gauges,
    rows: Gauges,
    needed: Gauges,
    /// Labels under which `needed` was told last.
    needed_by: Mutex<Option<Labels>>,
    messages: Counter,
    batch: Histogram,
    seconds: Histogram,
    pub(super) failures: Counter,
    pub(super) rejections: Counter,
    pub(super) republished: Counter,
    pub(super) repairs: Counter,
}

impl PublisherMetrics {
    pub(super) fn new(metrics: &Metrics, lane: Lane) -> Self {
        let labels = vec![("lane", lane.to_string())];
        let counter = |name, help| owned_counter(&metrics.counters(name, help), &labels);
        Self {
            committed: metrics.gauges("likewise_lane_committed_seq", "Highest committed number of the lane."),
            published: metrics.gauges("likewise_lane_published_seq", "Highest number with evidence of publication."),
            oldest: metrics.gauges("likewise_lane_oldest_unpublished_seconds", "Age of the oldest unpublished change."),
            first: metrics.gauges("likewise_lane_outbox_first_seq", "First number that the outbox still has."),
            rows: metrics.gauges("likewise_lane_outbox_rows", "Changes in the outbox, published ones included."),
            needed: metrics.gauges(
                "likewise_lane_outbox_needed_seq",
                "First number that a consumer or a hold keeps in the outbox, by the name of the one that needs most.",
            ),
            needed_by: Mutex::new(None),
            messages: counter("likewise_lane_messages_published", "Messages published."),
            batch: owned(
                &metrics.histograms("likewise_lane_publish_batch", "Messages per atomic publish.", SIZES),
                &labels,
            ),
            seconds: owned(
                &metrics.histograms("likewise_lane_publish_seconds", "Time until a publish was acknowledged.", SECONDS),
                &labels,
            ),
            failures: counter("likewise_lane_publish_failures", "Failures of the publisher, each tried again."),
            rejections: counter("likewise_lane_chain_rejections", "Batches refused because the stream had moved on."),
            republished: counter(
                "likewise_lane_messages_lost_by_stream",
                "Messages the stream lost after it acknowledged them.",
            ),
            repairs: counter("likewise_lane_repairs", "Repairs of the shard after it lost published commits."),
            labels,
        }
    }

    pub(super) fn observed(&self, watermarks: &OutboxWatermarks, now: OffsetDateTime) {
        self.committed.get_or_create(&self.labels).set(as_f64(watermarks.committed_seq));
        self.published.get_or_create(&self.labels).set(as_f64(watermarks.published_seq));
        self.oldest.get_or_create(&self.labels).set(age_seconds(watermarks, now));
    }

    /// What the outbox begins with, how much it has, and who keeps it.
    pub(super) fn kept(&self, first_seq: u64, committed_seq: u64, needs: &Needs) {
        self.first.get_or_create(&self.labels).set(as_f64(first_seq));
        self.rows.get_or_create(&self.labels).set(as_f64((committed_seq + 1).saturating_sub(first_seq)));
        let by = needs.first.as_ref().map(|(seq, name)| {
            let mut labels = self.labels.clone();
            labels.push(("by", name.clone()));
            (*seq, labels)
        });
        self.needed_by(by);
    }

    fn needed_by(&self, by: Option<(u64, Labels)>) {
        let mut last = self.needed_by.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = last.take().filter(|before| by.as_ref().is_none_or(|(_, labels)| labels != before)) {
            self.needed.remove(&before);
        }
        *last = by.map(|(seq, labels)| {
            self.needed.get_or_create(&labels).set(as_f64(seq));
            labels
        });
    }

    /// `seconds` also holds the read of the next rows, which runs beside it.
    pub(super) fn published(&self, messages: usize, took: Duration) {
        self.messages.inc_by(messages as u64);
        self.batch.observe(as_f64(messages as u64));
        self.seconds.observe(took.as_secs_f64());
    }

    /// Another process owns the lane now.
    pub(super) fn disowned(&self) {
        for gauges in [&self.committed, &self.published, &self.oldest, &self.first, &self.rows] {
            gauges.remove(&self.labels);
        }
        self.needed_by(None);
    }
}

/// Numbers of one consumer.
pub(super) struct ConsumerMetrics {
    labels: Labels,
    next_offset: Gauges,
    lag: Gauges,
    messages: Counter,
    batch: Histogram,
    seconds: Histogram,
    pub(super) failures: Counter,
    pub(super) filled: Counter,
    pub(super) passed: Counter,
}

impl ConsumerMetrics {
    pub(super) fn new(metrics: &Metrics, projection: &str, lane: Lane) -> Self {
        let labels = vec![("projection", projection.to_owned()), ("lane", lane.to_string())];
        let counter = |name, help| owned_counter(&metrics.counters(name, help), &labels);
        Self {
            next_offset: metrics.gauges("likewise_consumer_next_offset", "First offset whose effect is not included."),
            lag: metrics.gauges("likewise_consumer_lag", "Messages in the stream that are not applied."),
            messages: counter("likewise_consumer_messages_applied", "Messages applied."),
            batch: owned(&metrics.histograms("likewise_consumer_batch", "Messages per applied batch.", SIZES), &labels),
            seconds: owned(
                &metrics.histograms(
                    "likewise_consumer_apply_seconds",
                    "Time to apply a batch and move the checkpoint.",
                    SECONDS,
                ),
                &labels,
            ),
            failures: counter("likewise_consumer_failures", "Failures of the consumer, each tried again."),
            filled: counter("likewise_consumer_messages_filled", "Messages the stream lacked, read from the outbox."),
            passed: counter(
                "likewise_consumer_messages_passed",
                "Numbers of a sealed stream that were lost everywhere; what they named was stated again.",
            ),
            labels,
        }
    }

    /// `stream_last` is the last number known to be in the stream.
    pub(super) fn at(&self, next_offset: u64, stream_last: u64) {
        self.next_offset.get_or_create(&self.labels).set(as_f64(next_offset));
        self.lag.get_or_create(&self.labels).set(as_f64((stream_last + 1).saturating_sub(next_offset)));
    }

    pub(super) fn applied(&self, messages: usize, took: Duration) {
        self.messages.inc_by(messages as u64);
        self.batch.observe(as_f64(messages as u64));
        self.seconds.observe(took.as_secs_f64());
    }

    /// Another process owns the lane now.
    pub(super) fn disowned(&self) {
        self.next_offset.remove(&self.labels);
        self.lag.remove(&self.labels);
    }
}

fn owned_counter(family: &Counters, labels: &Labels) -> Counter {
    family.get_or_create_owned(labels)
}

fn owned(family: &Histograms, labels: &Labels) -> Histogram {
    family.get_or_create_owned(labels)
}

/// Exact up to 2^53, which is more than any lane counts.
#[allow(clippy::cast_precision_loss)]
const fn as_f64(number: u64) -> f64 {
    number as f64
}

/// Age of the oldest unpublished change, in seconds; 0 when there is none.
fn age_seconds(watermarks: &OutboxWatermarks, now: OffsetDateTime) -> f64 {
    watermarks.oldest_unpublished_at.map_or(0.0, |at| (now - at).as_seconds_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Lane = Lane { class: "rel", shard: 1 };

    #[test]
    fn an_owner_reports_its_lane_and_takes_it_back() {
        let metrics = Metrics::new();
        let publisher = PublisherMetrics::new(&metrics, LANE);
        let now = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(10);
        let oldest = Some(OffsetDateTime::UNIX_EPOCH);
        publisher
            .observed(&OutboxWatermarks { committed_seq: 9, published_seq: 7, oldest_unpublished_at: oldest }, now);
        let needs = |by: &str| Needs { consumers: 1, first: Some((5, by.to_owned())) };
        publisher.kept(4, 9, &needs("counter.g1"));
        publisher.kept(4, 9, &needs("cache"));
        let consumer = ConsumerMetrics::new(&metrics, "counter.g1", LANE);
        consumer.at(6, 9);
        let text = metrics.encode();
        for line in [
            "likewise_lane_committed_seq{lane=\"rel-01\"} 9.0",
            "likewise_lane_published_seq{lane=\"rel-01\"} 7.0",
            "likewise_lane_oldest_unpublished_seconds{lane=\"rel-01\"} 10.0",
            "likewise_lane_outbox_rows{lane=\"rel-01\"} 6.0",
            "likewise_lane_outbox_needed_seq{lane=\"rel-01\",by=\"cache\"} 5.0",
            "likewise_consumer_lag{projection=\"counter.g1\",lane=\"rel-01\"} 4.0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert_eq!(text.matches("needed_seq{").count(), 1, "{text}");
        publisher.disowned();
        consumer.disowned();
        for gone in ["committed_seq{", "lag{", "rows{", "needed_seq{"] {
            assert!(!metrics.encode().contains(gone), "{gone}");
        }
    }
}
