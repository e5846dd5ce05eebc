//! Messages of the relation lanes: read here into changes, and handed to the projector.

use likewise_kit::lanes::{ApplyError, Lane, LaneMessage, Projection};
use likewise_proto::convert::{RELATION_CHANGED, RELATION_HIDDEN_CHANGED, parse_relation_changed};
use likewise_proto::events::v1::RelationChanged;
use prost::Message as _;

use crate::app::projector::{Failure, Projector};
use crate::fold::Change;
use crate::store::display::Unreadable;

/// Class of the lanes that carry relations.
pub const LANE_CLASS: &str = "rel";

/// What a message says, or why it cannot be understood. A change of the second axis alone says nothing here yet: the raw
/// count does not move with it.
///
/// # Errors
/// The reason, in our words.
pub fn read(message: &LaneMessage) -> Result<Option<Change>, String> {
    match message.schema.as_str() {
        RELATION_CHANGED => {}
        RELATION_HIDDEN_CHANGED => return Ok(None),
        other => return Err(format!("schema {other:?} is not known here")),
    }
    let wire = RelationChanged::decode(message.payload.clone()).map_err(|error| error.to_string())?;
    let event = parse_relation_changed(&wire).map_err(|error| error.to_string())?;
    // Version 0 is that of a relation nobody has touched; no change can have it.
    let version = i64::try_from(event.version).ok().filter(|version| *version > 0);
    let version = version.ok_or_else(|| "field relation_version is missing or malformed".to_owned())?;
    if event.event_id != message.event_id {
        tracing::warn!(lane = %message.lane, offset = %message.offset, "header and payload name different events");
    }
    if event.seq != message.offset.seq || event.shard != message.lane.shard {
        tracing::warn!(
            lane = %message.lane, offset = %message.offset, shard = event.shard, seq = event.seq,
            "a change travels under another number than it was committed with"
        );
    }
    Ok(Some(Change {
        offset: message.offset,
        event_id: event.event_id,
        source_seq: event.seq,
        video: event.video_id,
        user: event.user_id,
        version,
        state: event.state,
    }))
}

fn unreadable(message: &LaneMessage, reason: String) -> Unreadable {
    Unreadable {
        offset: message.offset,
        event_id: message.event_id,
        schema: message.schema.clone(),
        payload: message.payload.to_vec(),
        reason,
    }
}

impl Projection for Projector {
    fn name(&self) -> String {
        self.live().projection()
    }

    async fn apply(&self, lane: &Lane, owner_epoch: i64, batch: &[LaneMessage]) -> Result<(), ApplyError> {
        let mut changes = Vec::with_capacity(batch.len());
        let mut broken = Vec::new();
        for message in batch {
            match read(message) {
                Ok(change) => changes.extend(change),
                Err(reason) => broken.push(unreadable(message, reason)),
            }
        }
        Self::apply(self, &lane.to_string(), owner_epoch, &changes, &broken).await.map_err(told)
    }

    async fn fence(&self, lane: &Lane, owner_epoch: i64) -> Result<(), ApplyError> {
        Self::fence(self, &lane.to_string(), owner_epoch).await.map_err(told)
    }

    async fn quarantined(&self, lane: &Lane) -> u64 {
        let live = self.live();
        live.store().quarantined(live.generation(), &lane.to_string()).await.unwrap_or_else(|error| {
            tracing::warn!(%lane, error = error.chain(), "open quarantine rows cannot be counted");
            0
        })
    }
}

fn told(failure: Failure) -> ApplyError {
    match failure {
        Failure::Fenced => ApplyError::Fenced,
        Failure::RouteMismatch(_) => ApplyError::Retry(failure.to_string()),
        Failure::Store(error) => ApplyError::Retry(error.chain()),
    }
}
