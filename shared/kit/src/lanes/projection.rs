//! What a service supplies to consume a lane.

use std::future::Future;

use bytes::Bytes;
use likewise_domain::lane::Offset;
use time::OffsetDateTime;
use uuid::Uuid;

use super::Lane;

/// One message of a lane, as it was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneMessage {
    /// The lane it came from.
    pub lane: Lane,
    /// Its place in the lane.
    pub offset: Offset,
    /// Id of the change, from the header.
    pub event_id: Uuid,
    /// Full name of the payload's message type, from the header; empty when the header is missing.
    pub schema: String,
    /// Encoded payload.
    pub payload: Bytes,
    /// When the broker stored it, by the broker's clock. Never decides anything.
    pub published_at: OffsetDateTime,
}

/// Why a batch was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Nothing, or only a part, became durable. The same messages come again after a pause, perhaps cut differently.
    #[error("{0}")]
    Retry(String),
    /// A newer owner holds this lane. The lease is taken anew before anything else is applied.
    #[error("a newer owner of the lane has taken over")]
    Fenced,
}

/// Something that is kept up to date from lanes.
pub trait Projection: Send + Sync + 'static {
    /// Stable name, for example `counter.g1`. Checkpoints and leases are kept under it.
    fn name(&self) -> String;

    /// Applies messages of one lane whose offsets follow one another without a hole. Everything they cause must be
    /// durable when `Ok` comes back, because the checkpoint advances next. Must be idempotent: after a crash the same
    /// messages come again, cut into other batches. A message that cannot be decoded is quarantined by the projection
    /// itself (a row of its own) and counts as applied.
    ///
    /// `owner_epoch` grows with each owner of the lane; a write that carries a smaller one than the highest seen by
    /// [`fence`](Self::fence) should be refused with [`ApplyError::Fenced`].
    fn apply(
        &self,
        lane: &Lane,
        owner_epoch: i64,
        batch: &[LaneMessage],
    ) -> impl Future<Output = Result<(), ApplyError>> + Send;

    /// Called with the new owner's epoch before its first batch, so that the projection can refuse older owners.
    fn fence(&self, lane: &Lane, owner_epoch: i64) -> impl Future<Output = Result<(), ApplyError>> + Send;

    /// Open quarantine rows of one lane, for the watermarks.
    fn quarantined(&self, lane: &Lane) -> impl Future<Output = u64> + Send {
        let _ = lane;
        async { 0 }
    }
}
