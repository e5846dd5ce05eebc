//! What can be seen of the lanes of a process.

use std::sync::Arc;

use deadpool_postgres::Pool;
use futures::future::BoxFuture;
use likewise_proto::lanes::v1::{ConsumerWatermark, LaneWatermark};

use super::evidence::lane_epochs;
use super::{Error, LaneEpoch, Outbox, OutboxMessage};

/// Reads an outbox for somebody who lacks messages of its stream.
pub trait TailSource: Send + Sync {
    /// All epochs of the shard, the present one last.
    fn epochs(&self) -> BoxFuture<'_, Result<Vec<LaneEpoch>, Error>>;
    /// Highest committed number.
    fn committed(&self) -> BoxFuture<'_, Result<u64, Error>>;
    /// Messages after `seq`, in order, at most `limit`.
    fn after(&self, seq: u64, limit: usize) -> BoxFuture<'_, Result<Vec<OutboxMessage>, Error>>;
    /// Pool on the shard's schema, where consumers and holds are registered.
    fn registry(&self) -> &Pool;
}

impl<O: Outbox> TailSource for O {
    fn epochs(&self) -> BoxFuture<'_, Result<Vec<LaneEpoch>, Error>> {
        Box::pin(lane_epochs(self.pool()))
    }

    fn committed(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async { Ok(self.watermarks().await?.committed_seq) })
    }

    fn after(&self, seq: u64, limit: usize) -> BoxFuture<'_, Result<Vec<OutboxMessage>, Error>> {
        Box::pin(self.read_after(seq, limit))
    }

    fn registry(&self) -> &Pool {
        self.pool()
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
