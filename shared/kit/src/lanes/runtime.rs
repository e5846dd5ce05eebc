//! What the lanes of a process run on.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::LaneSettings;

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
}
