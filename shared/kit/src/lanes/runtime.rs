//! What the lanes of a process run on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Error, LaneSettings, Upstream};
use crate::metrics::Metrics;

/// Oldest server with everything lanes use: atomic batches that survive a restart, and the first sequence of a stream.
const SERVER_MINIMUM: &str = "2.14.0";

/// How long a connection may take to be made before that is told as a failure, and how often it is looked at.
const CONNECTING: Duration = Duration::from_secs(2);
const CONNECTING_LOOK: Duration = Duration::from_millis(20);

/// What publishers and consumers need of the process around them. A `&Context` converts into it.
#[derive(Clone)]
pub struct Runtime {
    /// Connection that all lanes of the process share.
    pub nats: async_nats::Client,
    /// Section `[lanes]`.
    pub settings: LaneSettings,
    /// Stops every lane.
    pub stop: CancellationToken,
    /// Where tasks are counted, so that the process can wait for them when it stops.
    pub tasks: TaskTracker,
    /// Where the numbers of lanes are reported.
    pub metrics: Metrics,
    /// Publishers that consumers ask for what a stream lacks; without them a hole is waited at.
    pub upstream: Option<Arc<dyn Upstream>>,
}

impl Runtime {
    pub(super) fn jetstream(&self) -> jetstream::Context {
        jetstream::ContextBuilder::new().timeout(self.settings.request_timeout()).build(self.nats.clone())
    }

    /// Refuses while the connection is down, because the client would queue what is sent now and deliver it later, and
    /// refuses servers that are too old.
    pub(super) fn check_connected(&self) -> Result<(), Error> {
        let info = match self.nats.connection_state() {
            State::Connected => self.nats.try_server_info(),
            State::Pending | State::Disconnected => None,
        };
        match info {
            None => Err(Error::Disconnected),
            Some(_) if self.nats.is_server_compatible(2, 14, 0) => Ok(()),
            Some(info) => Err(Error::ServerTooOld { found: info.version, minimum: SERVER_MINIMUM }),
        }
    }

    /// As [`check_connected`](Self::check_connected), but lets a connection that is being made come first, so that a
    /// process that starts, or a broker that restarts, is no failure.
    pub(super) async fn wait_connected(&self) -> Result<(), Error> {
        let until = Instant::now() + CONNECTING;
        while self.nats.connection_state() != State::Connected && Instant::now() < until {
            sleep(CONNECTING_LOOK).await;
        }
        self.check_connected()
    }

    /// Grows with every connection made: another number means that what the server knew of us is gone.
    pub(super) fn connections(&self) -> u64 {
        self.nats.statistics().connects.load(Ordering::Relaxed)
    }
}
