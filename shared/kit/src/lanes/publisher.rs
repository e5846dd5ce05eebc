//! Publishes one outbox to its stream.
//!
//! One publisher per lane works at a time, by a lease. What makes it safe is not the lease but the chain: every batch
//! names the number it follows, and the outbox row of the last published number is read again with every read and must
//! still carry the same event id. So a second publisher, a lost answer, a broker or a database that comes back shorter
//! are all noticed before anything is published past them.

mod attach;
mod batch;
pub(super) mod history;
mod repair;
pub(super) mod resume;
mod run;
mod status;

use std::sync::Arc;

use futures::future::BoxFuture;
use likewise_proto::convert;
use likewise_proto::lanes::v1::{LaneEpoch as WireEpoch, LaneWatermark};
use tokio::sync::Notify;

use self::status::Shared;
use super::evidence::lane_epochs;
use super::supervise::supervise;
use super::{Error, Lane, LaneEpoch, Outbox, OutboxWatermarks, Runtime, ShardStatus, TailSource, WatermarkSource};

/// Publishers of lanes.
pub struct Publisher;

impl Publisher {
    /// Starts publishing `outbox` until the process stops; `runtime` is a `&Context`. Must be called within a Tokio
    /// runtime. Never fails: whatever goes wrong is tried again and stands in the watermarks.
    pub fn spawn<O: Outbox>(runtime: impl Into<Runtime>, outbox: Arc<O>) -> Arc<PublisherHandle> {
        let runtime = runtime.into();
        let wake = Arc::new(Notify::new());
        let shared = Arc::new(Shared::default());
        let handle = Arc::new(PublisherHandle {
            lane: outbox.lane(),
            wake: Arc::clone(&wake),
            shared: Arc::clone(&shared),
            source: Arc::clone(&outbox) as Arc<dyn Stands>,
            tail: Arc::clone(&outbox) as Arc<dyn TailSource>,
            prefix: runtime.settings.stream_prefix.clone(),
        });
        let (tasks, stop) = (runtime.tasks.clone(), runtime.stop.clone());
        let (lane, told) = (outbox.lane(), Arc::clone(&shared));
        let start =
            move || run::Run::new(runtime.clone(), outbox.clone(), wake.clone(), shared.clone()).until_stopped();
        tasks.spawn(supervise(stop, start, move || told.failed(lane, &Error::Panicked)));
        handle
    }
}

/// A running publisher.
pub struct PublisherHandle {
    lane: Lane,
    wake: Arc<Notify>,
    shared: Arc<Shared>,
    source: Arc<dyn Stands>,
    tail: Arc<dyn TailSource>,
    prefix: String,
}

impl PublisherHandle {
    /// Hints that something was committed. Never blocks, never fails; a lost hint costs one poll interval.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Asks for a new comparison of shard and stream, because the server under the shard may be another one.
    pub fn doubt(&self) {
        self.shared.doubt();
        self.wake.notify_one();
    }

    async fn watermark(&self) -> LaneWatermark {
        let stood = self.source.stood().await;
        let status = self.shared.read();
        let (watermarks, shard, unreadable) = match stood {
            Ok((watermarks, shard, epochs)) => (watermarks, Some((shard, epochs)), None),
            // The database does not answer: what was last known is still true as a lower bound.
            Err(error) => (status.watermarks, None, Some(error.chain())),
        };
        let (shard_status, epochs) = shard.map_or_else(Default::default, |(shard, epochs)| {
            let later = epochs.iter().filter(|epoch| epoch.epoch > 0).map(told).collect();
            (shard.as_str().to_owned(), later)
        });
        LaneWatermark {
            lane: self.lane.to_string(),
            epoch: u64::from(status.epoch),
            committed_seq: watermarks.committed_seq,
            published_seq: watermarks.published_seq,
            oldest_unpublished_at: watermarks.oldest_unpublished_at.map(convert::timestamp),
            stream: super::stream_name(&self.prefix, &self.lane, status.epoch),
            last_error: unreadable.unwrap_or(status.last_error),
            status: shard_status,
            epochs,
        }
    }
}

fn told(epoch: &LaneEpoch) -> WireEpoch {
    WireEpoch {
        epoch: u64::from(epoch.epoch),
        first_seq: epoch.first_seq,
        began_at: Some(convert::timestamp(epoch.began_at)),
        served_at: epoch.served_at.map(convert::timestamp),
        lost: epoch.lost,
        restated: epoch.restated,
    }
}

impl WatermarkSource for PublisherHandle {
    fn lanes(&self) -> BoxFuture<'_, Vec<LaneWatermark>> {
        Box::pin(async { vec![self.watermark().await] })
    }

    fn tail(&self, lane: &str) -> Option<Arc<dyn TailSource>> {
        (self.lane.to_string() == lane).then(|| Arc::clone(&self.tail))
    }
}

/// Where a shard stands: watermarks, status, epochs.
type Stood = (OutboxWatermarks, ShardStatus, Vec<LaneEpoch>);

/// What watermarks tell of an [`Outbox`], without its type.
trait Stands: Send + Sync {
    fn stood(&self) -> BoxFuture<'_, Result<Stood, Error>>;
}

impl<O: Outbox> Stands for O {
    fn stood(&self) -> BoxFuture<'_, Result<Stood, Error>> {
        Box::pin(async { Ok((self.watermarks().await?, self.meta().await?.status, lane_epochs(self.pool()).await?)) })
    }
}
