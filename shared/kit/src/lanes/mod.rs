//! Lanes: one shard, one outbox sequence, one JetStream stream, in which the sequence number of a change and the offset
//! of its message are the same number.
//!
//! Promises: messages of a lane are published and applied in order, without holes; an offset advances only after the
//! effects of everything below it are durable. A crash anywhere, two publishers at once or a broker that restarts
//! neither loses nor doubles a message. A broker that is down fails nothing but the lag.
//!
//! A shard that lost commits which were published (a lost tail) begins a new epoch: the old stream is sealed, everything
//! named in its lost part is stated again with higher versions, and every consumer applies the old stream to its end
//! before it opens the new one.
//!
//! Never: decides what a message means, keeps truth on the broker, or sets `Nats-Msg-Id`.
//!
//! Reading order: [`outbox`] and [`projection`] are what a service supplies; [`publisher`] and [`consumer`] run them;
//! [`upstream`] is where a consumer reads what a stream lacks;
//! [`stream`] is what stands on the broker, [`checkpoint`] and [`evidence`] what stands in PostgreSQL; [`watermarks`]
//! is what can be seen of it.

mod backoff;
mod checkpoint;
mod consumer;
mod echo;
mod error;
mod evidence;
mod metrics;
#[cfg(test)]
mod model;
mod outbox;
mod projection;
mod publisher;
pub(crate) mod registry;
mod runtime;
mod settings;
mod stream;
mod supervise;
mod upstream;
mod watermarks;

use std::fmt;

pub use checkpoint::{Checkpoint, checkpoints};
pub use consumer::{Consumer, ConsumerHandle, ConsumerState};
pub use echo::{Echo, SubscribeError, Touch};
pub use error::Error;
pub use evidence::{lane_epochs, last_evidence, record_evidence, shard_meta};
pub use outbox::{LaneEpoch, Outbox, OutboxMessage, OutboxWatermarks, Repair, ShardMeta, ShardStatus};
pub use projection::{ApplyError, LaneMessage, Projection};
pub use publisher::{Publisher, PublisherHandle};
pub use registry::{Held, Needs, Registered, needed};
pub use runtime::Runtime;
pub use settings::{LANE_DEFAULTS, LaneSettings};
pub use stream::{headers, stream_name, subject};
pub use upstream::{Publishers, Upstream};
pub use watermarks::{TailSource, WatermarkSource};

/// One lane: all changes of one shard of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// What kind of shard publishes it, for example `rel` or `content`: lower-case letters only.
    pub class: &'static str,
    /// Number of the shard.
    pub shard: u16,
}

impl fmt::Display for Lane {
    /// `rel-03`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{:02}", self.class, self.shard)
    }
}
