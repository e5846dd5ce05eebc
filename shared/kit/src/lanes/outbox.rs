//! What a service supplies to publish a lane.

use std::future::Future;

use bytes::Bytes;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Error, Lane};

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

/// What a shard stores about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardMeta {
    /// Present epoch; it grows only when a lost tail is repaired.
    pub epoch: u32,
    /// Random id of this copy of the shard; the stream's metadata repeats it.
    pub incarnation: Uuid,
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
/// [`super::record_evidence`], [`super::last_evidence`] and [`super::shard_meta`], which implement three of the methods).
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
}
