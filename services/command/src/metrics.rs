//! Numbers of this service. Labels are outcomes and shards, never a user or a video.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use likewise_kit::metrics::{Counters, Gauges, Metrics, SECONDS, SIZES};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::intent::{Answer, Told};
use crate::limits::{Kind, Signal};

/// Outcomes by the code of [`likewise_domain::decide`]; the last counts stored verdicts that were told again.
const OUTCOMES: [(i16, &str); 10] = [
    (1, "APPLIED"),
    (2, "UNCHANGED"),
    (3, "STALE_BASE"),
    (4, "RATE_LIMITED"),
    (5, "FROZEN"),
    (6, "ACCOUNT_NOT_ACTIVE"),
    (10, "OPERATION_ID_REUSED"),
    (11, "SHARD_CLOSED"),
    (12, "OPERATION_EXPIRED"),
    (13, "POLICY"),
];

/// Handles to the metrics of the writers.
#[derive(Clone)]
pub(crate) struct WriterMetrics {
    decided: Vec<Counter>,
    repeated: Counter,
    batch: Histogram,
    flight: Histogram,
    conflicts: Counter,
    lost: Counter,
    rejected: Counter,
    waiting: Gauges,
    days_ahead: Gauges,
    numbers_ahead: Gauges,
}

impl WriterMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let outcomes = metrics.counters("likewise_command_decided", "Commands by outcome, repeats apart");
        let decided = OUTCOMES
            .iter()
            .map(|(_, outcome)| outcomes.get_or_create_owned(&vec![("outcome", (*outcome).to_owned())]))
            .collect();
        Self {
            decided,
            repeated: metrics.counter("likewise_command_repeated", "Commands whose operation id had a verdict"),
            batch: metrics.histogram("likewise_command_batch_size", "Commands in one transaction", SIZES),
            flight: metrics.histogram("likewise_command_flight_seconds", "Time of one transaction", SECONDS),
            conflicts: metrics.counter("likewise_command_conflicts", "Batches decided again after a lost race"),
            lost: metrics.counter("likewise_command_connections_lost", "Writers' connections lost with a batch"),
            rejected: metrics.counter("likewise_command_rejected", "Commands the database refused"),
            waiting: metrics.gauges("likewise_command_waiting", "Commands that wait for a writer"),
            days_ahead: metrics
                .gauges("likewise_command_operation_days_ahead", "Days until the last partition of operations ends"),
            numbers_ahead: metrics
                .gauges("likewise_command_outbox_numbers_ahead", "Numbers left in the partitions of the outbox"),
        }
    }

    /// What waits when a batch was taken.
    pub(crate) fn taken(&self, shard: u16, waiting: usize) {
        let waiting = f64::from(u32::try_from(waiting).unwrap_or(u32::MAX));
        self.waiting.get_or_create(&label(shard)).set(waiting);
    }

    pub(crate) fn flown(&self, answers: &[Answer], took: Duration) {
        let mut tally = [0_u64; OUTCOMES.len()];
        let mut repeated = 0;
        for answer in answers {
            let code = match answer.told {
                Told::Verdict { known: true, .. } => {
                    repeated += 1;
                    continue;
                }
                Told::Verdict { verdict, .. } => verdict.outcome.code(),
                Told::Refused(refusal) => refusal.code(),
            };
            if let Some(place) = OUTCOMES.iter().position(|(outcome, _)| *outcome == code) {
                tally[place] += 1;
            }
        }
        for (counter, count) in self.decided.iter().zip(tally) {
            if count > 0 {
                counter.inc_by(count);
            }
        }
        self.repeated.inc_by(repeated);
        // A batch is at most 1024 commands.
        self.batch.observe(f64::from(u32::try_from(answers.len()).unwrap_or(u32::MAX)));
        self.flight.observe(took.as_secs_f64());
    }

    pub(crate) fn conflict(&self) {
        self.conflicts.inc();
    }

    pub(crate) fn connection_lost(&self) {
        self.lost.inc();
    }

    pub(crate) fn command_rejected(&self) {
        self.rejected.inc();
    }

    pub(crate) fn horizon(&self, shard: u16, days: f64, numbers: f64) {
        let label = label(shard);
        self.days_ahead.get_or_create(&label).set(days);
        self.numbers_ahead.get_or_create(&label).set(numbers);
    }
}

/// Sweeps over the relations of accounts.
#[derive(Clone)]
pub(crate) struct SweepMetrics {
    waiting: Gauges,
    oldest: Gauges,
}

impl SweepMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let oldest = "How long the oldest sweep of an account has waited or worked";
        Self {
            waiting: metrics.gauges("likewise_command_sweeps", "Sweeps of accounts that are not finished"),
            oldest: metrics.gauges("likewise_command_sweep_oldest_seconds", oldest),
        }
    }

    pub(crate) fn waiting(&self, shard: u16, sweeps: u64, oldest: Duration) {
        let label = label(shard);
        self.waiting.get_or_create(&label).set(f64::from(u32::try_from(sweeps).unwrap_or(u32::MAX)));
        self.oldest.get_or_create(&label).set(oldest.as_secs_f64());
    }
}

/// What is refused at the door, and what looks unlike a person.
#[derive(Clone)]
pub(crate) struct LimitMetrics {
    limited: [Counter; 3],
    exchange_failed: Counter,
}

impl LimitMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let limited = metrics.counters("likewise_command_limited", "Calls refused by a limit");
        Self {
            limited: ["account", "device", "address"].map(|kind| by(&limited, "limit", kind)),
            exchange_failed: metrics.counter(
                "likewise_command_limit_exchange_failures",
                "Exchanges of counts between processes that failed",
            ),
        }
    }

    pub(crate) fn limited(&self, kind: Kind) {
        self.limited[kind as usize].inc();
    }

    pub(crate) fn exchange_failed(&self) {
        self.exchange_failed.inc();
    }
}

/// Handles to the metrics of signals.
#[derive(Clone)]
pub(crate) struct SignalMetrics {
    observed: [Counter; 3],
    dropped: Counter,
}

impl SignalMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let observed = metrics.counters("likewise_command_signals", "Accounts that behaved unlike a person, by how");
        Self {
            observed: ["switches", "devices", "videos"].map(|signal| by(&observed, "signal", signal)),
            dropped: metrics.counter("likewise_command_signals_dropped", "Signals that risk was not told of"),
        }
    }

    pub(crate) fn observed(&self, signal: Signal) {
        self.observed[signal as usize].inc();
    }

    pub(crate) fn dropped(&self) {
        self.dropped.inc();
    }
}

fn by(family: &Counters, label: &'static str, value: &str) -> Counter {
    family.get_or_create_owned(&vec![(label, value.to_owned())])
}

/// Commands of streams that are read and not answered.
#[derive(Clone)]
pub(crate) struct StreamMetrics {
    commands: Gauge<f64, AtomicU64>,
}

impl StreamMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let help = "Commands of streams that are read and not answered";
        Self { commands: metrics.gauge("likewise_command_stream_commands", help) }
    }

    /// The part of one stream.
    pub(crate) fn begin(self) -> StreamLoad {
        StreamLoad { metrics: self, commands: 0.0 }
    }
}

/// What one stream adds to [`StreamMetrics`], until it is dropped.
pub(crate) struct StreamLoad {
    metrics: StreamMetrics,
    commands: f64,
}

impl StreamLoad {
    pub(crate) fn set(&mut self, commands: usize) {
        let commands = f64::from(u32::try_from(commands).unwrap_or(u32::MAX));
        self.metrics.commands.inc_by(commands - self.commands);
        self.commands = commands;
    }
}

impl Drop for StreamLoad {
    fn drop(&mut self) {
        self.set(0);
    }
}

fn label(shard: u16) -> Vec<(&'static str, String)> {
    vec![("shard", format!("{shard:02}"))]
}
