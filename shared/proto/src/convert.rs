//! Conversions between wire and domain types that more than one service needs.

pub mod visibility;

use likewise_domain::id::{OperationId, UserId, VideoId};
use likewise_domain::relation::{Cause, Hidden, HiddenReasons, LikeState, RelationChanged, RelationHiddenChanged};
use prost_types::Timestamp;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{events::v1 as events, types::v1 as types};

/// Schema name of [`events::RelationChanged`] in message headers.
pub const RELATION_CHANGED: &str = "likewise.events.v1.RelationChanged";
/// Schema name of [`events::RelationHiddenChanged`] in message headers.
pub const RELATION_HIDDEN_CHANGED: &str = "likewise.events.v1.RelationHiddenChanged";
/// Schema name of [`events::VideoPolicyChanged`] in message headers.
pub const VIDEO_POLICY_CHANGED: &str = "likewise.events.v1.VideoPolicyChanged";
/// Schema name of [`events::AccountChanged`] in message headers.
pub const ACCOUNT_CHANGED: &str = "likewise.events.v1.AccountChanged";
/// Schema name of [`events::BlockSetChanged`] in message headers.
pub const BLOCK_SET_CHANGED: &str = "likewise.events.v1.BlockSetChanged";

/// Schema name of [`events::BehaviourSignal`] in message headers.
pub const BEHAVIOUR_SIGNAL: &str = "likewise.events.v1.BehaviourSignal";

/// Full name of [`crate::command::v1::CurrentRelation`], a detail of refusals.
pub const CURRENT_RELATION: &str = "likewise.command.v1.CurrentRelation";

/// Why a message cannot be understood. Such a message goes to quarantine.
#[derive(Debug, thiserror::Error)]
#[error("field {field} is missing or malformed")]
pub struct Malformed {
    /// The field, in proto spelling.
    pub field: &'static str,
}

fn malformed(field: &'static str) -> Malformed {
    Malformed { field }
}

/// Wire form of a state.
#[must_use]
pub fn like_state(state: LikeState) -> types::LikeState {
    match state {
        LikeState::Liked => types::LikeState::Liked,
        LikeState::Unliked => types::LikeState::Unliked,
    }
}

/// Domain form of a state; `None` for UNSPECIFIED and unknown numbers.
#[must_use]
pub fn parse_like_state(wire: i32) -> Option<LikeState> {
    match types::LikeState::try_from(wire).ok()? {
        types::LikeState::Liked => Some(LikeState::Liked),
        types::LikeState::Unliked => Some(LikeState::Unliked),
        types::LikeState::Unspecified => None,
    }
}

/// Wire form of an instant, in microseconds as PostgreSQL keeps it.
#[must_use]
pub fn timestamp(at: OffsetDateTime) -> Timestamp {
    let nanos = i32::try_from(at.nanosecond()).unwrap_or(0);
    Timestamp { seconds: at.unix_timestamp(), nanos }
}

/// Domain form of an instant; `None` when out of range.
#[must_use]
pub fn parse_timestamp(wire: &Timestamp) -> Option<OffsetDateTime> {
    let nanos = i128::from(wire.seconds) * 1_000_000_000 + i128::from(wire.nanos);
    OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()
}

/// Wire form of a cause.
#[must_use]
pub fn cause(cause: Cause) -> events::ChangeCause {
    match cause {
        Cause::User => events::ChangeCause::User,
        Cause::AccountDeleted => events::ChangeCause::AccountDeleted,
        Cause::VideoDeleted => events::ChangeCause::VideoDeleted,
        Cause::Operator => events::ChangeCause::Operator,
        Cause::Restated => events::ChangeCause::Restated,
        Cause::AccountRestored => events::ChangeCause::AccountRestored,
    }
}

/// Wire form of the second axis.
#[must_use]
pub fn hidden_axis(hidden: Hidden) -> events::HiddenAxis {
    events::HiddenAxis { version: hidden.version, reasons: hidden_reasons(hidden.reasons) }
}

fn hidden_reasons(reasons: HiddenReasons) -> Vec<i32> {
    [(HiddenReasons::RISK, events::HiddenReason::Risk), (HiddenReasons::POLICY, events::HiddenReason::Policy)]
        .into_iter()
        .filter(|(reason, _)| reasons.holds(*reason))
        .map(|(_, wire)| wire.into())
        .collect()
}

/// Domain form of the second axis. An event of a publisher that does not know it yet has none: counted, version 0.
fn parse_hidden_axis(wire: Option<&events::HiddenAxis>) -> Result<Hidden, Malformed> {
    let Some(wire) = wire else { return Ok(Hidden::default()) };
    let reasons = parse_hidden_reasons(&wire.reasons).ok_or_else(|| malformed("hidden"))?;
    Ok(Hidden { version: wire.version, reasons })
}

fn parse_hidden_reasons(wire: &[i32]) -> Option<HiddenReasons> {
    wire.iter().try_fold(HiddenReasons::NONE, |reasons, reason| {
        Some(reasons.and(match events::HiddenReason::try_from(*reason).ok()? {
            events::HiddenReason::Risk => HiddenReasons::RISK,
            events::HiddenReason::Policy => HiddenReasons::POLICY,
            events::HiddenReason::Unspecified => return None,
        }))
    })
}

/// Wire form of a relation event.
#[must_use]
pub fn relation_changed(event: &RelationChanged) -> events::RelationChanged {
    events::RelationChanged {
        event_id: event.event_id.to_string(),
        user_id: event.user_id.as_str().to_owned(),
        video_id: event.video_id.as_str().to_owned(),
        relation_version: event.version,
        state: like_state(event.state).into(),
        previous_state: like_state(event.previous_state).into(),
        source_shard: u32::from(event.shard),
        shard_epoch: u64::from(event.epoch),
        source_commit_seq: event.seq,
        state_changed_at: Some(timestamp(event.state_changed_at)),
        operation_id: event.operation_id.as_str().to_owned(),
        cause: cause(event.cause).into(),
        hidden: Some(hidden_axis(event.hidden)),
    }
}

/// Wire form of a change of the second axis.
#[must_use]
pub fn relation_hidden_changed(event: &RelationHiddenChanged) -> events::RelationHiddenChanged {
    events::RelationHiddenChanged {
        event_id: event.event_id.to_string(),
        user_id: event.user_id.as_str().to_owned(),
        video_id: event.video_id.as_str().to_owned(),
        hidden: Some(hidden_axis(event.hidden)),
        previous_reasons: hidden_reasons(event.previous_reasons),
        relation_version: event.version,
        state: like_state(event.state).into(),
        state_changed_at: Some(timestamp(event.state_changed_at)),
        source_shard: u32::from(event.shard),
        shard_epoch: u64::from(event.epoch),
        source_commit_seq: event.seq,
    }
}

/// Domain form of a change of the second axis.
///
/// # Errors
/// [`Malformed`] names the first field that does not hold what the contract says.
pub fn parse_relation_hidden_changed(wire: &events::RelationHiddenChanged) -> Result<RelationHiddenChanged, Malformed> {
    let at = wire.state_changed_at.as_ref().and_then(parse_timestamp);
    Ok(RelationHiddenChanged {
        event_id: Uuid::parse_str(&wire.event_id).map_err(|_| malformed("event_id"))?,
        user_id: UserId::parse(&wire.user_id).map_err(|_| malformed("user_id"))?,
        video_id: VideoId::parse(&wire.video_id).map_err(|_| malformed("video_id"))?,
        hidden: parse_hidden_axis(wire.hidden.as_ref())?,
        previous_reasons: parse_hidden_reasons(&wire.previous_reasons).ok_or_else(|| malformed("previous_reasons"))?,
        version: wire.relation_version,
        state: parse_like_state(wire.state).ok_or_else(|| malformed("state"))?,
        state_changed_at: at.ok_or_else(|| malformed("state_changed_at"))?,
        shard: u16::try_from(wire.source_shard).map_err(|_| malformed("source_shard"))?,
        epoch: u32::try_from(wire.shard_epoch).map_err(|_| malformed("shard_epoch"))?,
        seq: wire.source_commit_seq,
    })
}

/// Domain form of a relation event.
///
/// # Errors
/// [`Malformed`] names the first field that does not hold what the contract says.
pub fn parse_relation_changed(wire: &events::RelationChanged) -> Result<RelationChanged, Malformed> {
    Ok(RelationChanged {
        event_id: Uuid::parse_str(&wire.event_id).map_err(|_| malformed("event_id"))?,
        user_id: UserId::parse(&wire.user_id).map_err(|_| malformed("user_id"))?,
        video_id: VideoId::parse(&wire.video_id).map_err(|_| malformed("video_id"))?,
        version: wire.relation_version,
        state: parse_like_state(wire.state).ok_or_else(|| malformed("state"))?,
        previous_state: parse_like_state(wire.previous_state).ok_or_else(|| malformed("previous_state"))?,
        shard: u16::try_from(wire.source_shard).map_err(|_| malformed("source_shard"))?,
        epoch: u32::try_from(wire.shard_epoch).map_err(|_| malformed("shard_epoch"))?,
        seq: wire.source_commit_seq,
        state_changed_at: wire
            .state_changed_at
            .as_ref()
            .and_then(parse_timestamp)
            .ok_or_else(|| malformed("state_changed_at"))?,
        operation_id: OperationId::parse(&wire.operation_id).map_err(|_| malformed("operation_id"))?,
        cause: match events::ChangeCause::try_from(wire.cause).unwrap_or_default() {
            events::ChangeCause::User => Cause::User,
            events::ChangeCause::AccountDeleted => Cause::AccountDeleted,
            events::ChangeCause::VideoDeleted => Cause::VideoDeleted,
            events::ChangeCause::Operator => Cause::Operator,
            events::ChangeCause::Restated => Cause::Restated,
            events::ChangeCause::AccountRestored => Cause::AccountRestored,
            events::ChangeCause::Unspecified => return Err(malformed("cause")),
        },
        hidden: parse_hidden_axis(wire.hidden.as_ref())?,
    })
}
