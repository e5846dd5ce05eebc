//! What can be seen of the lanes of a process.

use futures::future::BoxFuture;
use likewise_proto::lanes::v1::{ConsumerWatermark, LaneWatermark};

/// Something that can tell where lanes stand; the runner merges all of a process into one `LaneService`.
pub trait WatermarkSource: Send + Sync {
    /// Lanes published here.
    fn lanes(&self) -> BoxFuture<'_, Vec<LaneWatermark>> {
        Box::pin(async { Vec::new() })
    }

    /// Lanes consumed here.
    fn consumers(&self) -> BoxFuture<'_, Vec<ConsumerWatermark>> {
        Box::pin(async { Vec::new() })
    }
}
