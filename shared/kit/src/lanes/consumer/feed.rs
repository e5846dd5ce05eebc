//! The loop of an attached consumer: messages are pulled while the ones before them are applied, and the checkpoint
//! follows what was applied.

use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::super::backoff::Backoff;
use super::super::checkpoint::{Checkpoint, advance};
use super::super::stream::{Found, at};
use super::super::{ApplyError, Error, LaneMessage, Projection};
use super::compare::{Next, compare};
use super::pull::{Pulled, Puller};
use super::run::{Run, ends};
use crate::crash_point;

/// How often the loop looks whether the connection is still the one on which it asked.
const LOOK: Duration = Duration::from_secs(1);
/// How long nothing comes before the stream is looked at: it may have been sealed, or have become another one.
const QUIET: Duration = Duration::from_secs(5);

/// Why the loop ended.
#[derive(Debug)]
pub(super) enum End {
    /// Something failed: attach again after a pause.
    Failed(Error),
    /// Everything of the stream was applied, and nothing more comes: go on in the next epoch.
    NextEpoch,
    /// A newer owner was seen: take the lease again.
    Fenced,
    /// The process stops.
    Stopped,
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// An attached consumer.
pub(super) struct Feed<'a, P> {
    run: &'a Run<P>,
    stream: &'a Stream,
    owner_epoch: i64,
    /// Number due next from the broker.
    due: u64,
    /// Last number known to be in the stream.
    stream_last: u64,
    received: Vec<LaneMessage>,
    bytes: usize,
    /// When something came, or the stream was looked at.
    quiet_since: Instant,
    /// Once set, nothing more is received; what was received before it is still applied.
    end: Option<End>,
}

impl<'a, P: Projection> Feed<'a, P> {
    pub(super) fn new(run: &'a Run<P>, stream: &'a Stream, owner_epoch: i64, checkpoint: &Checkpoint) -> Self {
        let (due, stream_last) = (checkpoint.next_offset, stream.cached_info().state.last_sequence);
        run.metrics.at(due, stream_last);
        let (received, quiet_since) = (Vec::new(), Instant::now());
        Self { run, stream, owner_epoch, due, stream_last, received, bytes: 0, quiet_since, end: None }
    }

    /// Runs until something ends it.
    pub(super) async fn until_end(mut self, puller: &mut Puller, checkpoint: Checkpoint) -> End {
        let connections = self.run.runtime.connections();
        let mut look = look();
        let mut checkpoint = Some(checkpoint);
        let mut applying: Option<BoxFuture<'a, Result<Checkpoint, End>>> = None;
        loop {
            if applying.is_none() {
                if let Some(from) = checkpoint.take_if(|_| !self.received.is_empty()) {
                    self.receive_what_is_here(puller).await;
                    self.bytes = 0;
                    let batch = std::mem::take(&mut self.received);
                    applying = Some(Box::pin(apply(self.run, self.owner_epoch, from, batch)));
                } else if let Some(end) = self.end.take() {
                    return end;
                }
            }
            if self.end.is_none() {
                self.ask_for_more(puller).await;
            }
            tokio::select! {
                applied = async { applying.as_mut().expect("guarded").await }, if applying.is_some() => match applied {
                    Ok(moved) => {
                        self.run.metrics.at(moved.next_offset, self.stream_last);
                        (applying, checkpoint) = (None, Some(moved));
                    }
                    Err(end) => return end,
                },
                pulled = puller.next(), if self.end.is_none() => self.take(pulled).await,
                () = self.run.runtime.stop.cancelled(), if self.end.is_none() => {
                    // What is being applied is finished; what only waits comes again after the next start.
                    self.received.clear();
                    self.end = Some(End::Stopped);
                }
                _ = look.tick(), if self.end.is_none() => {
                    // What was asked on another connection is never answered on this one.
                    if self.run.runtime.connections() != connections {
                        self.end = Some(Error::Disconnected.into());
                    } else if let Err(error) = self.run.runtime.check_connected() {
                        self.end = Some(error.into());
                    } else if checkpoint.is_some() && self.quiet_since.elapsed() >= QUIET {
                        self.end = self.compare().await.err();
                    }
                }
            }
        }
    }

    /// Takes what has arrived already, so that a burst becomes one batch.
    async fn receive_what_is_here(&mut self, puller: &mut Puller) {
        while self.end.is_none() && !puller.is_idle() {
            let Some(pulled) = puller.next().now_or_never() else { return };
            self.take(pulled).await;
        }
    }

    async fn take(&mut self, pulled: Result<Pulled, Error>) {
        let taken = match pulled {
            Ok(Pulled::Message(message, pending)) => self.receive(message, pending).await,
            Ok(Pulled::Ended) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = taken {
            self.end = Some(error.into());
        }
    }

    /// Takes a message that continues the lane without a hole; anything else ends the loop.
    async fn receive(&mut self, message: LaneMessage, pending: u64) -> Result<(), Error> {
        let seq = message.offset.seq;
        self.quiet_since = Instant::now();
        if seq == self.due {
            self.due += 1;
            self.bytes += message.payload.len();
            self.stream_last = self.stream_last.max(seq + pending);
            self.received.push(message);
            return Ok(());
        }
        // A message that the stream still has was lost on its way to us; one that it lacks is a hole.
        if seq > self.due && at(self.stream, self.due).await? == Found::Nothing {
            let stream = self.stream.cached_info().config.name.clone();
            return Err(Error::Gap { stream, from: self.due, to: seq - 1 });
        }
        Err(Error::nats("read the stream in order", format!("number {seq} came where {} was due", self.due)))
    }

    /// Compares again while nothing comes.
    async fn compare(&mut self) -> Result<(), End> {
        self.quiet_since = Instant::now();
        match self.run.shared.read().checkpoint {
            Some(checkpoint) if checkpoint.next_offset == self.due => {
                let ends = ends(self.stream, checkpoint.next_offset).await?;
                match compare(&ends, checkpoint.next_offset, checkpoint.last_event_id)? {
                    Next::Here => Ok(()),
                    Next::NextEpoch => Err(End::NextEpoch),
                }
            }
            _ => Ok(()),
        }
    }

    /// Keeps one request out while there is room for at least half of what a projection takes at once.
    async fn ask_for_more(&mut self, puller: &mut Puller) {
        let settings = &self.run.runtime.settings;
        let messages = settings.consume_batch.saturating_sub(self.received.len());
        let bytes = settings.consume_bytes.saturating_sub(self.bytes);
        if !puller.is_idle() || messages * 2 < settings.consume_batch || bytes * 2 < settings.consume_bytes {
            return;
        }
        if let Err(error) = puller.request(messages, bytes).await {
            self.end = Some(error.into());
        }
    }
}

fn look() -> Interval {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}

/// Applies one batch, however often it takes, then moves the checkpoint.
pub(super) async fn apply<P: Projection>(
    run: &Run<P>,
    owner_epoch: i64,
    from: Checkpoint,
    batch: Vec<LaneMessage>,
) -> Result<Checkpoint, End> {
    let Some(last) = batch.last() else { return Ok(from) };
    let started_at = Instant::now();
    let mut backoff = Backoff::new(&run.runtime.settings);
    let stopping = async |backoff: &mut Backoff| {
        tokio::select! {
            () = run.runtime.stop.cancelled() => Err(End::Stopped),
            () = backoff.pause() => Ok(()),
        }
    };
    loop {
        match run.projection.apply(&run.lane, owner_epoch, &batch).await {
            Ok(()) => break,
            Err(ApplyError::Fenced) => return Err(End::Fenced),
            Err(ApplyError::Retry(text)) => {
                run.metrics.failures.inc();
                run.shared.refused(text);
                stopping(&mut backoff).await?;
            }
        }
    }
    let (next_offset, last_event_id) = (last.offset.seq + 1, last.event_id);
    // A move that was lost on the way back is found made by the next claim.
    let moved = advance(&run.pool, &run.name, owner_epoch, &from, next_offset, last_event_id).await?;
    let Some(updated_at) = moved else { return Err(End::Fenced) };
    crash_point!("projector.after_checkpoint");
    run.shared.works();
    run.metrics.applied(batch.len(), started_at.elapsed());
    let to = Checkpoint { next_offset, last_event_id: Some(last_event_id), updated_at, ..from };
    run.shared.at(&to);
    Ok(to)
}
