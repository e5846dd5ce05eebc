//! The publisher's life: lease, attach, publish; and again after whatever went wrong.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::attach::{Attached, attach};
use super::batch::{Answer, cut, publish};
use super::resume::Position;
use super::status::Shared;
use crate::crash_point;
use crate::lanes::backoff::Backoff;
use crate::lanes::metrics::PublisherMetrics;
use crate::lanes::registry::needs_in;
use crate::lanes::supervise::STANDSTILL;
use crate::lanes::{Error, Outbox, OutboxMessage, Runtime};
use crate::lease::Lease;

/// How far publishing may run ahead of its evidence, in batches: what a crash leaves out is compared again anyway.
const BATCHES_AHEAD_OF_EVIDENCE: usize = 8;
/// How often the gauges of a lane are brought up to date.
const OBSERVE: Duration = Duration::from_secs(5);
/// How long a publisher with nothing to do trusts that shard and stream are still as it left them.
const TRUST: Duration = Duration::from_secs(10);

/// One publisher.
pub(super) struct Run<O> {
    pub(super) runtime: Runtime,
    pub(super) jetstream: jetstream::Context,
    pub(super) outbox: Arc<O>,
    wake: Arc<Notify>,
    shared: Arc<Shared>,
    pub(super) metrics: PublisherMetrics,
    owner: Uuid,
}

impl<O: Outbox> Run<O> {
    pub(super) fn new(runtime: Runtime, outbox: Arc<O>, wake: Arc<Notify>, shared: Arc<Shared>) -> Self {
        let jetstream = runtime.jetstream();
        let metrics = PublisherMetrics::new(&runtime.metrics, outbox.lane());
        Self { runtime, jetstream, outbox, wake, shared, metrics, owner: Uuid::new_v4() }
    }

    pub(super) async fn until_stopped(self) {
        let stop = self.runtime.stop.clone();
        let mut backoff = Backoff::new(&self.runtime.settings);
        loop {
            let lease = tokio::select! {
                () = stop.cancelled() => return,
                lease = self.lease(&mut backoff) => lease,
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = lease.lost().cancelled() => {}
                () = self.work(&mut backoff) => {}
                () = self.observe() => {}
            }
            self.metrics.disowned();
            // Without an answer it expires by itself.
            drop(lease.release().await);
            if stop.is_cancelled() {
                return;
            }
        }
    }

    /// Waits until the lane is ours.
    async fn lease(&self, backoff: &mut Backoff) -> Lease {
        let name = format!("publisher/{}", self.outbox.lane());
        let ttl = self.runtime.settings.lease_ttl();
        loop {
            match Lease::acquire(self.outbox.pool(), &name, self.owner, ttl).await {
                Ok(Some(lease)) => return lease,
                Ok(None) => tokio::time::sleep(ttl.mul_f64(0.25 + rand::random::<f64>() / 4.0)).await,
                Err(error) => {
                    self.shared.failed(self.outbox.lane(), &error.into());
                    backoff.pause().await;
                }
            }
        }
    }

    /// Keeps the gauges true for as long as it is let, also while nothing can be published.
    async fn observe(&self) {
        loop {
            // While the database does not answer the gauges keep what was last known; the publisher reports why.
            if let Ok(watermarks) = self.outbox.watermarks().await {
                self.shared.observed(watermarks);
                self.metrics.observed(&watermarks, OffsetDateTime::now_utc());
                drop(self.observe_kept(watermarks.committed_seq).await);
            }
            tokio::time::sleep(OBSERVE).await;
        }
    }

    /// What the outbox still has, and who keeps it.
    async fn observe_kept(&self, committed_seq: u64) -> Result<(), Error> {
        let first = self.outbox.read_after(0, 1).await?.first().map_or(committed_seq + 1, |row| row.seq);
        self.metrics.kept(first, committed_seq, &needs_in(self.outbox.pool()).await?);
        Ok(())
    }

    /// Attaches and publishes for as long as it is let.
    async fn work(&self, backoff: &mut Backoff) {
        loop {
            let mut end = self.attached(backoff).await;
            if let Err(error) = &end
                && self.repairs(error)
            {
                self.shared.failed(self.outbox.lane(), error);
                end = self.repair().await;
            }
            match end {
                // Nothing is wrong, but where the stream ends has to be asked again.
                Ok(()) => backoff.pause().await,
                Err(error) => {
                    self.metrics.failures.inc();
                    self.shared.failed(self.outbox.lane(), &error);
                    if error.is_final() {
                        tokio::time::sleep(STANDSTILL).await;
                    } else {
                        backoff.pause().await;
                    }
                }
            }
        }
    }

    async fn attached(&self, backoff: &mut Backoff) -> Result<(), Error> {
        let attached = attach(&self.runtime, &self.jetstream, &*self.outbox).await?;
        self.shared.attached(attached.meta.epoch);
        self.shared.works(self.outbox.lane());
        if let Some((from, to)) = attached.resume.lost_by_stream {
            self.metrics.republished.inc_by(to - from + 1);
        }
        let (acked, acks) = watch::channel(attached.resume.position.last);
        let (evident, evidence) = watch::channel(attached.evidence);
        tokio::select! {
            end = self.publish_all(&attached, &acked, evidence, backoff) => end,
            end = self.write_evidence(&attached.name, acks, &evident) => end,
        }
    }

    /// Publishes until the stream has to be compared again (`Ok`) or something fails. The next rows are read while a
    /// batch is under way.
    async fn publish_all(
        &self,
        attached: &Attached,
        acked: &watch::Sender<u64>,
        mut evidence: watch::Receiver<u64>,
        backoff: &mut Backoff,
    ) -> Result<(), Error> {
        let settings = &self.runtime.settings;
        let ahead_max = (settings.publish_batch * BATCHES_AHEAD_OF_EVIDENCE) as u64;
        let connections = self.runtime.connections();
        let mut trusted_at = Instant::now();
        let mut position = attached.resume.position;
        let mut rows = self.read(attached, position).await?;
        loop {
            if rows.is_empty() {
                self.idle().await;
                // On a new connection the broker may be one that has lost the end of the stream.
                let doubted = self.shared.take_doubt();
                if doubted || self.runtime.connections() != connections || trusted_at.elapsed() > TRUST {
                    return Ok(());
                }
                rows = self.read(attached, position).await?;
                continue;
            }
            self.runtime.check_connected()?;
            crash_point!("publisher.before_publish");
            let later = rows.split_off(cut(&rows, settings.publish_batch, settings.publish_bytes));
            let next = after(&rows, position);
            let sent_at = Instant::now();
            let (answer, ahead) =
                tokio::join!(publish(&self.runtime, &attached.name, &attached.subject, &rows), async {
                    if later.is_empty() { self.read(attached, next).await } else { Ok(later) }
                },);
            if answer? == Answer::Rejected {
                // Nothing is decided by rows that were read before: the database may have been put back since.
                self.metrics.rejections.inc();
                return Ok(());
            }
            crash_point!("publisher.after_ack");
            backoff.reset();
            self.metrics.published(rows.len(), sent_at.elapsed());
            self.shared.published(next.last);
            acked.send_replace(next.last);
            trusted_at = Instant::now();
            // The evidence writer ends this function's caller with its error, never its channel.
            let bound = next.last.saturating_sub(ahead_max);
            drop(evidence.wait_for(|evident| *evident >= bound).await);
            (position, rows) = (next, ahead?);
        }
    }

    /// Waits for a hint, or for the next look without one.
    async fn idle(&self) {
        let poll = Duration::from_millis(self.runtime.settings.poll_interval_ms);
        tokio::select! {
            () = self.wake.notified() => {}
            () = tokio::time::sleep(poll) => {}
        }
    }

    /// Rows after `position`. The row at the position is read again: if it is not the one that was published, the
    /// database has lost commits since.
    async fn read(&self, attached: &Attached, position: Position) -> Result<Vec<OutboxMessage>, Error> {
        let limit = self.runtime.settings.publish_batch;
        let Some(expected) = position.event_id else {
            let rows = self.outbox.read_after(position.last, limit).await?;
            return self.dense(position.last, rows);
        };
        let mut rows = self.outbox.read_after(position.last - 1, limit + 1).await?;
        match rows.first() {
            Some(row) if row.seq == position.last && row.event_id == expected => {
                rows.remove(0);
                self.dense(position.last, rows)
            }
            other => Err(Error::LostTail {
                stream: attached.name.clone(),
                seq: position.last,
                found: expected.to_string(),
                expected: match other {
                    Some(row) if row.seq == position.last => row.event_id.to_string(),
                    _ => "no row of that number".to_owned(),
                },
                advice: super::resume::REPAIR,
            }),
        }
    }

    fn dense(&self, last: u64, rows: Vec<OutboxMessage>) -> Result<Vec<OutboxMessage>, Error> {
        match rows.iter().zip(last + 1..).find(|(row, expected)| row.seq != *expected) {
            None => Ok(rows),
            Some((row, expected)) => {
                Err(Error::OutboxHole { lane: self.outbox.lane().to_string(), expected, found: row.seq })
            }
        }
    }

    /// Writes evidence of whatever was acknowledged meanwhile, one row for all of it.
    async fn write_evidence(
        &self,
        stream: &str,
        mut acks: watch::Receiver<u64>,
        evident: &watch::Sender<u64>,
    ) -> Result<(), Error> {
        let mut recorded = *evident.borrow();
        loop {
            let Ok(acked) = acks.wait_for(|acked| *acked > recorded).await.map(|acked| *acked) else {
                return Ok(());
            };
            self.outbox.record_evidence(recorded + 1, acked, stream).await?;
            crash_point!("publisher.after_evidence");
            recorded = acked;
            evident.send_replace(recorded);
        }
    }
}

/// The position after `rows`.
fn after(rows: &[OutboxMessage], position: Position) -> Position {
    rows.last().map_or(position, |row| Position { last: row.seq, event_id: Some(row.event_id) })
}
