//! What a service supplies to publish a lane.

use std::future::Future;

use bytes::Bytes;
use futures::future::BoxFuture;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Error, Lane, LaneMessage};

/// One committed change that waits for publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxMessage {
    /// Dense number within the shard and epoch; the message's offset in the stream.
    pub seq: u64,
    /// Random id of the change, drawn in its transaction.
    pub event_id: Uuid,
    /// Full name of the payload's message type, for example `likewise.events.v1.RelationChanged`.
    pub schema: &'static str,
    /// Encoded payload.
    pub payload: Bytes,
    /// When the change was committed, by the database clock.
    pub created_at: OffsetDateTime,
}

/// Whether a shard takes changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardStatus {
    /// It does.
    Serving,
    /// Not before its publisher has repaired it: commits that were published are gone, or may be.
    Repairing,
    /// Never again: it lives on another server now.
    Moved,
}

impl ShardStatus {
    /// As the table has it, and watermarks tell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "SERVING",
            Self::Repairing => "REPAIRING",
            Self::Moved => "MOVED",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Serving, Self::Repairing, Self::Moved].into_iter().find(|status| status.as_str() == text)
    }
}

/// What a shard stores about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardMeta {
    /// Present epoch; it grows only when a lost tail is repaired.
    pub epoch: u32,
    /// Random id of this copy of the shard; the stream's metadata repeats it.
    pub incarnation: Uuid,
    /// First number of the present epoch's stream: every number below it was published in an older one.
    pub first_seq: u64,
    /// Whether it takes changes.
    pub status: ShardStatus,
    /// Whether the repair that made the present epoch has not ended.
    pub epoch_pending: bool,
    /// Whether the server, or its timeline, is another one than the shard was last known to live on: an asynchronous
    /// standby was promoted, or a backup was restored.
    pub server_changed: bool,
    /// When the server was started that answered. What a database is put back to is served by one that started later.
    pub server_started_at: OffsetDateTime,
}

/// One epoch of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneEpoch {
    /// Its number.
    pub epoch: u32,
    /// First number of its stream; one above the last number that older epochs and this one have in common.
    pub first_seq: u64,
    /// When its repair began, by the database clock.
    pub began_at: OffsetDateTime,
    /// When the shard served in it; `None` while it is repaired.
    pub served_at: Option<OffsetDateTime>,
    /// Published messages that the facts had lost.
    pub lost: u64,
    /// Objects that got a new version because of them.
    pub restated: u64,
}

/// Where a shard's outbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxWatermarks {
    /// Highest committed number; 0 when nothing was committed.
    pub committed_seq: u64,
    /// Highest number with evidence of its publication; 0 when there is none.
    pub published_seq: u64,
    /// Commit time of the oldest row without evidence; `None` when there is no such row.
    pub oldest_unpublished_at: Option<OffsetDateTime>,
}

/// One shard's outbox. The rows are the service's own; evidence, `shard_meta` and `lease` are the standard tables (see
/// [`super::record_evidence`], [`super::last_evidence`] and [`super::shard_meta`], which implement three of the methods), and
/// `lane_epoch`.
pub trait Outbox: Send + Sync + 'static {
    /// The lane this outbox feeds.
    fn lane(&self) -> Lane;

    /// Pool on the shard's schema, for the publisher's lease.
    fn pool(&self) -> &deadpool_postgres::Pool;

    /// Rows with a number above `seq`, in order and without holes, at most `limit`.
    fn read_after(&self, seq: u64, limit: usize) -> impl Future<Output = Result<Vec<OutboxMessage>, Error>> + Send;

    /// The shard's epoch and incarnation.
    fn meta(&self) -> impl Future<Output = Result<ShardMeta, Error>> + Send;

    /// Highest number with evidence of publication, 0 when there is none.
    fn last_evidence(&self) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Records that the messages `from_seq..=to_seq` are in `stream`. Recording the same range again changes nothing.
    fn record_evidence(
        &self,
        from_seq: u64,
        to_seq: u64,
        stream: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Committed and published, as the database has them.
    fn watermarks(&self) -> impl Future<Output = Result<OutboxWatermarks, Error>> + Send;

    /// How the shard is made whole after it lost commits that were published. `None`: its lane then stands still until
    /// a person has acted.
    fn repair(&self) -> Option<&dyn Repair> {
        None
    }
}

/// What a service supplies so that its shard can be repaired. The repair itself is the publisher's; it calls this only
/// while the shard's status is [`ShardStatus::Repairing`].
pub trait Repair: Send + Sync {
    /// Advisory transaction lock, class and key, under which everything of the shard is written.
    fn lock(&self) -> (i32, i32);

    /// Gives every object that `messages` name a new version in `epoch`, above all that was ever published for it: its
    /// present state again, or that it is gone where the facts have no trace of it. In one transaction, under the
    /// lock, refused when the shard is not being repaired in that epoch. Said again it only adds versions. Answers how
    /// many objects that were.
    fn restate<'a>(&'a self, epoch: u32, messages: &'a [LaneMessage]) -> BoxFuture<'a, Result<u64, Error>>;
}
