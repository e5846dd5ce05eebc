//! Signals to risk: that an account behaves unlike a person, told on a plain subject.
//!
//! Promises: a command waits for nothing here; what cannot be told at once is dropped and counted. A signal is evidence and no
//! fact: nothing in Likewise reads it, and a risk system that wants to keep signals gives the subject a stream of its own.

use std::time::Duration;

use likewise_domain::id::UserId;
use likewise_kit::lanes::{self, Runtime};
use likewise_kit::run::Context;
use likewise_proto::convert::{BEHAVIOUR_SIGNAL, timestamp};
use likewise_proto::events::v1::{BehaviourKind, BehaviourSignal};
use prost::Message as _;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::limits::{Bounds, Signal};
use crate::metrics::SignalMetrics;

/// Signals that wait for the broker.
const WAITING_MAX: usize = 1_024;
/// Longest wait for the broker to take one.
const PATIENCE: Duration = Duration::from_secs(1);

struct Observed {
    user: UserId,
    signal: Signal,
    at: OffsetDateTime,
}

/// Takes signals of one process.
pub(crate) struct Signals {
    waiting: mpsc::Sender<Observed>,
    metrics: SignalMetrics,
}

/// Tells them.
struct Teller {
    runtime: Runtime,
    subject: String,
    bounds: Bounds,
    metrics: SignalMetrics,
}

impl Signals {
    /// Begins to tell, until the process stops.
    pub(crate) fn spawn(context: &Context, bounds: Bounds) -> Self {
        let (waiting, observed) = mpsc::channel(WAITING_MAX);
        let metrics = SignalMetrics::new(&context.metrics);
        let prefix = context.common.lanes.stream_prefix.to_ascii_lowercase();
        let subject = format!("{prefix}.signals.behaviour");
        let teller = Teller { runtime: context.into(), subject, bounds, metrics: metrics.clone() };
        context.spawn("command signals", teller.tell(observed));
        Self { waiting, metrics }
    }

    /// Takes a signal about an account.
    pub(crate) fn observe(&self, user: &UserId, signal: Signal) {
        self.metrics.observed(signal);
        let observed = Observed { user: user.clone(), signal, at: OffsetDateTime::now_utc() };
        if self.waiting.try_send(observed).is_err() {
            self.metrics.dropped();
        }
    }
}

impl Teller {
    async fn tell(self, mut observed: mpsc::Receiver<Observed>) {
        while let Some(Some(observed)) = self.runtime.stop.run_until_cancelled(observed.recv()).await {
            let id = Uuid::new_v4();
            let payload = message(id, &observed, &self.bounds).encode_to_vec();
            let headers = lanes::headers(id, BEHAVIOUR_SIGNAL);
            let sent = self.runtime.nats.publish_with_headers(self.subject.clone(), headers, payload.into());
            if !matches!(tokio::time::timeout(PATIENCE, sent).await, Ok(Ok(()))) {
                self.metrics.dropped();
            }
        }
    }
}

fn message(id: Uuid, observed: &Observed, bounds: &Bounds) -> BehaviourSignal {
    let (kind, bound) = match observed.signal {
        Signal::Switches => (BehaviourKind::Switches, bounds.switches),
        Signal::Devices => (BehaviourKind::Devices, bounds.devices),
        Signal::Videos => (BehaviourKind::Videos, bounds.videos),
    };
    BehaviourSignal {
        event_id: id.to_string(),
        user_id: observed.user.to_string(),
        kind: kind.into(),
        bound,
        window: prost_types::Duration::try_from(Duration::from_micros(bounds.window)).ok(),
        observed_at: Some(timestamp(observed.at)),
    }
}
