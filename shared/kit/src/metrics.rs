//! Numbers for Prometheus. Labels are bounded: never a user, a video, a token or an error text.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// Labels of one series, in a fixed order per metric.
pub type Labels = Vec<(&'static str, String)>;
/// A number that only grows, by labels.
pub type Counters = Family<Labels, Counter>;
/// A number that goes up and down, by labels.
pub type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
/// A distribution, by labels.
pub type Histograms = Family<Labels, Histogram, Buckets>;

/// Bounds in seconds that tell 1 ms from 2 ms and 5 s from 10 s.
pub const SECONDS: &[f64] = &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];
/// Bounds for sizes of batches and the like.
pub const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0];

/// Makes histograms with the bounds of their family.
#[derive(Debug, Clone, Copy)]
pub struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

#[derive(Default)]
struct Inner {
    registry: Registry,
    known: BTreeMap<&'static str, Box<dyn Any + Send>>,
}

/// The metrics of a process. Asking twice for one name gives the same metric, so services that share a process share it.
#[derive(Clone, Default)]
pub struct Metrics {
    inner: Arc<Mutex<Inner>>,
}

impl Metrics {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter; `_total` is added to its name.
    #[must_use]
    pub fn counters(&self, name: &'static str, help: &'static str) -> Counters {
        self.known(name, help, Family::default)
    }

    /// A gauge.
    #[must_use]
    pub fn gauges(&self, name: &'static str, help: &'static str) -> Gauges {
        self.known(name, help, Family::default)
    }

    /// A histogram with the given upper bounds.
    #[must_use]
    pub fn histograms(&self, name: &'static str, help: &'static str, bounds: &'static [f64]) -> Histograms {
        self.known(name, help, || Family::new_with_constructor(Buckets(bounds)))
    }

    /// A counter without labels.
    #[must_use]
    pub fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        self.counters(name, help).get_or_create_owned(&Labels::new())
    }

    /// A gauge without labels.
    #[must_use]
    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge<f64, AtomicU64> {
        self.gauges(name, help).get_or_create_owned(&Labels::new())
    }

    /// A histogram without labels.
    #[must_use]
    pub fn histogram(&self, name: &'static str, help: &'static str, bounds: &'static [f64]) -> Histogram {
        self.histograms(name, help, bounds).get_or_create_owned(&Labels::new())
    }

    /// Everything, in the text format of Prometheus.
    #[must_use]
    pub fn encode(&self) -> String {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &inner.registry);
        text
    }

    fn known<M>(&self, name: &'static str, help: &'static str, make: impl FnOnce() -> M) -> M
    where
        M: Metric + Clone + Send + 'static,
    {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metric) = inner.known.get(name) {
            return metric
                .downcast_ref::<M>()
                .unwrap_or_else(|| unreachable!("metric {name} is registered with another type"))
                .clone();
        }
        let metric = make();
        inner.registry.register(name, help.trim_end_matches('.'), metric.clone());
        inner.known.insert(name, Box::new(metric.clone()));
        metric
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_the_same_metric() {
        let metrics = Metrics::new();
        metrics.counter("likewise_things", "Things that happened").inc();
        metrics.counter("likewise_things", "Things that happened").inc();
        let text = metrics.encode();
        assert!(text.contains("likewise_things_total 2"), "{text}");
        assert_eq!(text.matches("# TYPE likewise_things").count(), 1);
    }

    #[test]
    fn labels_and_buckets_are_shown() {
        let metrics = Metrics::new();
        let took = metrics.histograms("likewise_took_seconds", "How long", SECONDS);
        took.get_or_create(&vec![("method", "a".to_owned())]).observe(0.003);
        metrics.gauges("likewise_lag", "Lag").get_or_create(&vec![("lane", "rel-00".to_owned())]).set(1.5);
        let text = metrics.encode();
        assert!(text.contains("likewise_took_seconds_bucket{le=\"0.005\",method=\"a\"} 1"), "{text}");
        assert!(text.contains("likewise_lag{lane=\"rel-00\"} 1.5"), "{text}");
    }
}
