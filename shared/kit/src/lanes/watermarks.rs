//! What can be seen of the lanes of a process.

use std::sync::Arc;

use futures::future::BoxFuture;
use likewise_proto::lanes::v1::{ConsumerWatermark, LaneWatermark};

use super::{Error, Outbox, OutboxMessage};

/// Reads an outbox for somebody who lacks messages of its stream.
pub trait TailSource: Send + Sync {
    /// Epoch of the shard.
    fn epoch(&self) -> BoxFuture<'_, Result<u32, Error>>;
    /// Highest committed number.
    fn committed(&self) -> BoxFuture<'_, Result<u64, Error>>;
    /// Messages after `seq`, in order, at most `limit`.
    fn after(&self, seq: u64, limit: usize) -> BoxFuture<'_, Result<Vec<OutboxMessage>, Error>>;
}

impl<O: Outbox> TailSource for O {
    fn epoch(&self) -> BoxFuture<'_, Result<u32, Error>> {
        Box::pin(async { Ok(self.meta().await?.epoch) })
    }

    fn committed(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async { Ok(self.watermarks().await?.committed_seq) })
    }

    fn after(&self, seq: u64, limit: usize) -> BoxFuture<'_, Result<Vec<OutboxMessage>, Error>> {
        Box::pin(self.read_after(seq, limit))
    }
}

/// Something that can tell where lanes stand; the runner merges all of a process into one `LaneService`.
pub trait WatermarkSource: Send + Sync {
    /// Lanes published here.
    fn lanes(&self) -> BoxFuture<'_, Vec<LaneWatermark>> {
        Box::pin(async { Vec::new() })
    }

    /// The outbox of a lane, if it is published here.
    fn tail(&self, _lane: &str) -> Option<Arc<dyn TailSource>> {
        None
    }

    /// Lanes consumed here.
    fn consumers(&self) -> BoxFuture<'_, Vec<ConsumerWatermark>> {
        Box::pin(async { Vec::new() })
    }
}
