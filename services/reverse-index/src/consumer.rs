//! Follows the lanes: every batch is folded, split by part, and applied to each part in one transaction.
//!
//! The offset passes a batch only when every part has it (`Ok` from [`apply`](Projection::apply)). A part that committed
//! before another failed meets its group again, which changes nothing: versions decide, no receipt does.

use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use likewise_domain::lane::Offset;
use likewise_domain::relation::RelationChanged;
use likewise_kit::lanes::{ApplyError, Lane, LaneMessage, Projection};
use likewise_proto::{convert, events::v1 as events};
use prost::Message as _;

use crate::contract::Contract;
use crate::fold::{self, Group};
use crate::metrics::Metrics;
use crate::store::{Error, Folded, Metadata, Part, Quarantined};

/// Greatest number that the tables can keep.
const VERSION_MAX: u64 = i64::MAX as u64;

/// The projection of one generation.
pub struct ReverseProjection {
    contract: Arc<Contract>,
    metadata: Metadata,
    parts: Arc<[Part]>,
    metrics: Metrics,
}

impl ReverseProjection {
    /// Over the parts of the contract's generation, in their order.
    #[must_use]
    pub fn new(contract: Arc<Contract>, metadata: Metadata, parts: Arc<[Part]>, metrics: Metrics) -> Self {
        Self { contract, metadata, parts, metrics }
    }

    async fn quarantine(&self, lane: &str, message: &LaneMessage, reason: &str) -> Result<(), ApplyError> {
        tracing::error!(lane, offset = %message.offset, schema = message.schema, reason, "a message goes to quarantine");
        self.metrics.quarantined.inc();
        let row = Quarantined {
            lane,
            offset: message.offset,
            event_id: message.event_id,
            schema: &message.schema,
            payload: &message.payload,
            reason,
        };
        self.metadata.quarantine(self.contract.generation(), &row).await.map_err(|error| retry(&error))
    }

    async fn fold(&self, lane: &str, owner_epoch: i64, group: &Group) -> Result<(), ApplyError> {
        let part = usize::try_from(group.part).ok().and_then(|part| self.parts.get(part));
        let part = part.ok_or_else(|| ApplyError::Retry(format!("part {} is not in the part map", group.part)))?;
        match part.fold(lane, owner_epoch, group).await.map_err(|error| retry(&error))? {
            Folded::Fenced => Err(ApplyError::Fenced),
            Folded::Applied { changed, removed, listed } => {
                self.metrics.folded(changed, removed, listed);
                Ok(())
            }
        }
    }
}

/// What a message says, or why it cannot be folded. Whether a like counts is nothing to the order of likers: who may be
/// shown is asked at read time.
fn decode(lane: &Lane, message: &LaneMessage) -> Result<Option<RelationChanged>, String> {
    match message.schema.as_str() {
        convert::RELATION_CHANGED => {}
        convert::RELATION_HIDDEN_CHANGED => return Ok(None),
        other => return Err(format!("unknown schema {other:?}")),
    }
    let wire = events::RelationChanged::decode(message.payload.clone()).map_err(|error| error.to_string())?;
    let event = convert::parse_relation_changed(&wire).map_err(|error| error.to_string())?;
    if event.event_id != message.event_id {
        return Err(format!("the payload is event {}", event.event_id));
    }
    if event.shard != lane.shard {
        return Err(format!("the change belongs to shard {}", event.shard));
    }
    if !(1..=VERSION_MAX).contains(&event.version) {
        return Err(format!("relation_version {} is out of range", event.version));
    }
    if event.state_changed_at.unix_timestamp() <= 0 {
        return Err("state_changed_at is out of range".to_owned());
    }
    if event.seq != message.offset.seq {
        // Folded all the same: the version decides. But the lane promises that the two are one number.
        tracing::error!(%lane, offset = %message.offset, seq = event.seq, "sequence number and offset disagree");
    }
    Ok(Some(event))
}

fn retry(error: &Error) -> ApplyError {
    if !error.is_passing() {
        tracing::error!(error = error.chain(), "the reverse index stands still");
    }
    ApplyError::Retry(error.chain())
}

impl Projection for ReverseProjection {
    fn name(&self) -> String {
        projection_name(self.contract.generation())
    }

    async fn apply(&self, lane: &Lane, owner_epoch: i64, batch: &[LaneMessage]) -> Result<(), ApplyError> {
        let name = lane.to_string();
        let mut events: Vec<(Offset, RelationChanged)> = Vec::with_capacity(batch.len());
        for message in batch {
            match decode(lane, message) {
                Ok(event) => events.extend(event.map(|event| (message.offset, event))),
                Err(reason) => self.quarantine(&name, message, &reason).await?,
            }
        }
        let groups = fold::groups(&self.contract, events);
        // All are awaited, so that none is still writing when the batch comes again.
        let outcomes = join_all(groups.iter().map(|group| self.fold(&name, owner_epoch, group))).await;
        let fenced = outcomes.iter().any(|outcome| matches!(outcome, Err(ApplyError::Fenced)));
        if fenced { Err(ApplyError::Fenced) } else { outcomes.into_iter().collect() }
    }

    async fn fence(&self, lane: &Lane, owner_epoch: i64) -> Result<(), ApplyError> {
        let name = lane.to_string();
        let raised = try_join_all(self.parts.iter().map(|part| part.raise_owner(&name, owner_epoch)));
        if raised.await.map_err(|error| retry(&error))?.into_iter().all(|raised| raised) {
            Ok(())
        } else {
            Err(ApplyError::Fenced)
        }
    }

    async fn quarantined(&self, lane: &Lane) -> u64 {
        match self.metadata.quarantined(self.contract.generation(), &lane.to_string()).await {
            Ok(count) => count,
            Err(error) => {
                tracing::warn!(%lane, error = error.chain(), "quarantined messages cannot be counted");
                0
            }
        }
    }
}

/// Name under which a generation keeps its checkpoints.
#[must_use]
pub fn projection_name(generation: i32) -> String {
    format!("reverse_index.g{generation}")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost_types::Timestamp;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    const LANE: Lane = Lane { class: "rel", shard: 2 };

    fn wire() -> events::RelationChanged {
        events::RelationChanged {
            event_id: Uuid::from_u128(7).to_string(),
            user_id: "lin".to_owned(),
            video_id: "V1".to_owned(),
            relation_version: 3,
            state: 1,
            previous_state: 2,
            source_shard: 2,
            shard_epoch: 0,
            source_commit_seq: 5,
            state_changed_at: Some(Timestamp { seconds: 1_700_000_000, nanos: 5_000 }),
            operation_id: "op".to_owned(),
            cause: 1,
            hidden: None,
        }
    }

    fn message(wire: &events::RelationChanged) -> LaneMessage {
        LaneMessage {
            lane: LANE,
            offset: Offset { epoch: 0, seq: 5 },
            event_id: Uuid::from_u128(7),
            schema: convert::RELATION_CHANGED.to_owned(),
            payload: Bytes::from(wire.encode_to_vec()),
            published_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_good_message_is_understood() {
        let event = decode(&LANE, &message(&wire())).expect("a good message").expect("a change");
        assert_eq!((event.version, event.seq, event.user_id.as_str()), (3, 5, "lin"));
        let elsewhere = events::RelationChanged { source_commit_seq: 6, ..wire() };
        assert!(decode(&LANE, &message(&elsewhere)).is_ok(), "a finding, but the version decides");
    }

    #[test]
    fn what_cannot_be_folded_is_named() {
        let bad = |change: fn(&mut events::RelationChanged)| {
            let mut wire = wire();
            change(&mut wire);
            decode(&LANE, &message(&wire)).expect_err("a bad message")
        };
        assert!(bad(|wire| wire.user_id = "l n".to_owned()).contains("user_id"));
        assert!(bad(|wire| wire.state = 0).contains("state"));
        assert!(bad(|wire| wire.state_changed_at = None).contains("state_changed_at"));
        assert!(bad(|wire| wire.state_changed_at = Some(Timestamp { seconds: -1, nanos: 0 })).contains("range"));
        assert!(bad(|wire| wire.relation_version = 0).contains("relation_version"));
        assert!(bad(|wire| wire.relation_version = u64::MAX).contains("relation_version"));
        assert!(bad(|wire| wire.source_shard = 3).contains("shard 3"));
        assert!(bad(|wire| wire.event_id = Uuid::from_u128(8).to_string()).contains("event"));
        let other = LaneMessage { schema: "likewise.events.v1.Other".to_owned(), ..message(&wire()) };
        assert!(decode(&LANE, &other).expect_err("another schema").contains("Other"));
        let hidden = LaneMessage { schema: convert::RELATION_HIDDEN_CHANGED.to_owned(), ..message(&wire()) };
        assert_eq!(decode(&LANE, &hidden), Ok(None), "nothing to the order of likers");
        let cut = LaneMessage { payload: Bytes::from_static(&[0x0a, 0xff]), ..message(&wire()) };
        assert!(decode(&LANE, &cut).is_err());
    }
}
