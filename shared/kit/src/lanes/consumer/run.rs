//! The consumer's life: lease, fence, claim, compare, feed; and again after whatever ended it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::Stream;
use deadpool_postgres::Pool;
use likewise_domain::lane::Offset;
use uuid::Uuid;

use super::compare::{Ends, Next, compare};
use super::feed::{End, Feed};
use super::pull::Puller;
use super::status::{ConsumerState, Shared};
use crate::lanes::backoff::Backoff;
use crate::lanes::checkpoint::{Checkpoint, claim};
use crate::lanes::metrics::ConsumerMetrics;
use crate::lanes::stream::{Found, at, open, state};
use crate::lanes::supervise::STANDSTILL;
use crate::lanes::{ApplyError, Error, Lane, Projection, Runtime, stream_name};
use crate::lease::Lease;

/// How often a consumer looks for a stream that does not exist yet, or waits for one to be published again.
const LOOK: Duration = Duration::from_millis(500);

/// One consumer.
pub(super) struct Run<P> {
    pub(super) runtime: Runtime,
    pub(super) pool: Pool,
    pub(super) lane: Lane,
    pub(super) projection: Arc<P>,
    pub(super) name: String,
    pub(super) shared: Arc<Shared>,
    pub(super) metrics: ConsumerMetrics,
    pub(super) jetstream: jetstream::Context,
}

impl<P: Projection> Run<P> {
    pub(super) fn new(runtime: Runtime, pool: Pool, lane: Lane, projection: Arc<P>, shared: Arc<Shared>) -> Self {
        let (jetstream, name) = (runtime.jetstream(), projection.name());
        let metrics = ConsumerMetrics::new(&runtime.metrics, &name, lane);
        Self { runtime, pool, lane, projection, name, shared, metrics, jetstream }
    }

    pub(super) async fn until_stopped(self) {
        let stop = self.runtime.stop.clone();
        let mut backoff = Backoff::new(&self.runtime.settings);
        while !stop.is_cancelled() {
            self.shared.enter(ConsumerState::Waiting);
            // A new owner each time: after a fence the lease has to come back with a higher epoch.
            let owner = Uuid::new_v4();
            let lease = tokio::select! {
                () = stop.cancelled() => break,
                lease = self.lease(owner, &mut backoff) => lease,
            };
            tokio::select! {
                () = lease.lost().cancelled() => {}
                () = self.own(lease.epoch(), &mut backoff) => {}
                () = self.report() => {}
            }
            self.shared.disowned();
            self.metrics.disowned();
            // Without an answer it expires by itself.
            drop(lease.release().await);
        }
        self.shared.enter(ConsumerState::Stopped);
    }

    /// Waits until the lane is ours.
    async fn lease(&self, owner: Uuid, backoff: &mut Backoff) -> Lease {
        let name = format!("consumer/{}/{}", self.name, self.lane);
        let ttl = self.runtime.settings.lease_ttl();
        loop {
            match Lease::acquire(&self.pool, &name, owner, ttl).await {
                Ok(Some(lease)) => return lease,
                Ok(None) => tokio::time::sleep(ttl.mul_f64(0.25 + rand::random::<f64>() / 4.0)).await,
                Err(error) => {
                    self.shared.failed(&error.into());
                    backoff.pause().await;
                }
            }
        }
    }

    /// Consumes for as long as it is let; returns when fenced or when the process stops.
    async fn own(&self, owner_epoch: i64, backoff: &mut Backoff) {
        let stop = &self.runtime.stop;
        loop {
            match self.attached(owner_epoch, backoff).await {
                End::Stopped => return,
                End::Fenced => {
                    tracing::info!(projection = self.name, lane = %self.lane, owner_epoch, "fenced by a newer owner");
                    return backoff.pause().await;
                }
                end => {
                    let error = match self.mended(owner_epoch, end).await {
                        Ok(()) => continue,
                        Err(End::Stopped) => return,
                        Err(End::Fenced) => return backoff.pause().await,
                        Err(End::NextEpoch) => {
                            // Its publisher is still repairing the shard.
                            self.shared.enter(ConsumerState::Waiting);
                            tokio::select! {
                                () = stop.cancelled() => return,
                                () = tokio::time::sleep(LOOK) => continue,
                            }
                        }
                        Err(End::Failed(error)) => error,
                    };
                    self.metrics.failures.inc();
                    self.shared.failed(&error);
                    let pause = async {
                        match &error {
                            Error::Regressed { .. } => tokio::time::sleep(LOOK).await,
                            error if error.is_final() => tokio::time::sleep(STANDSTILL).await,
                            _ => backoff.pause().await,
                        }
                    };
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = pause => {}
                    }
                }
            }
        }
    }

    /// Mends what ended the loop, where that is possible without a pause.
    async fn mended(&self, owner_epoch: i64, end: End) -> Result<(), End> {
        let mended = async {
            match end {
                End::Failed(Error::Gap { to, .. }) => self.pass_hole(owner_epoch, to, end).await,
                End::NextEpoch => self.succeed(owner_epoch).await,
                end => Err(end),
            }
        };
        tokio::select! {
            () = self.runtime.stop.cancelled() => Err(End::Stopped),
            mended = mended => mended,
        }
    }

    async fn attached(&self, owner_epoch: i64, backoff: &mut Backoff) -> End {
        let attached = tokio::select! {
            () = self.runtime.stop.cancelled() => return End::Stopped,
            attached = self.attach(owner_epoch) => attached,
        };
        let (stream, checkpoint, mut puller) = match attached {
            Ok(attached) => attached,
            Err(end) => return end,
        };
        self.shared.works();
        backoff.reset();
        let feed = Feed::new(self, &stream, owner_epoch, &checkpoint);
        let end = feed.until_end(&mut puller, checkpoint).await;
        if self.runtime.check_connected().is_ok() {
            puller.remove(&stream).await;
        }
        end
    }

    /// Fences older owners, claims the checkpoint, and compares the stream with it before anything is pulled.
    async fn attach(&self, owner_epoch: i64) -> Result<(Stream, Checkpoint, Puller), End> {
        match self.projection.fence(&self.lane, owner_epoch).await {
            Ok(()) => {}
            Err(ApplyError::Fenced) => return Err(End::Fenced),
            Err(ApplyError::Retry(text)) => return Err(Error::outbox("fence older owners", text).into()),
        }
        let checkpoint = claim(&self.pool, &self.name, &self.lane.to_string(), owner_epoch).await?;
        let checkpoint = checkpoint.ok_or(End::Fenced)?;
        self.shared.at(&checkpoint);
        let stream = self.stream(checkpoint.epoch).await?;
        let ends = ends(&stream, checkpoint.next_offset).await?;
        match compare(&ends, checkpoint.next_offset, checkpoint.last_event_id)? {
            Next::Here => {}
            Next::NextEpoch => return Err(End::NextEpoch),
        }
        let from = Offset { epoch: checkpoint.epoch, seq: checkpoint.next_offset };
        let description = format!("{} {}", self.name, self.lane);
        let puller = Puller::create(&self.runtime, &self.jetstream, &stream, self.lane, from, description).await?;
        Ok((stream, checkpoint, puller))
    }

    /// Opens the stream, waiting for its publisher to create it. Only its publisher may, and does not when the shard goes
    /// on in a later epoch.
    async fn stream(&self, epoch: u32) -> Result<Stream, End> {
        let name = stream_name(&self.runtime.settings.stream_prefix, &self.lane, epoch);
        loop {
            self.runtime.wait_connected().await?;
            if let Some(stream) = open(&self.jetstream, &name).await? {
                return Ok(stream);
            }
            if self.successor(epoch).await?.is_some() {
                return Err(End::NextEpoch);
            }
            self.shared.enter(ConsumerState::Waiting);
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The stream as its leader has it, with the message before `next_offset`.
pub(super) async fn ends(stream: &Stream, next_offset: u64) -> Result<Ends, Error> {
    let (state, sealed) = state(stream).await?;
    let applied = match next_offset {
        0 | 1 => Found::Nothing,
        next if state.last_sequence < next - 1 => Found::Nothing,
        next => at(stream, next - 1).await?,
    };
    Ok(Ends {
        stream: stream.cached_info().config.name.clone(),
        first: state.first_sequence,
        last: state.last_sequence,
        applied,
        sealed,
    })
}
