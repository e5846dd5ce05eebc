//! `LikeCommandService`.

use std::sync::Arc;
use std::time::Duration;

use likewise_domain::decide::{Command, Outcome, PolicyRefusal, Refusal, Verdict};
use likewise_domain::id::{DeviceId, OperationId, UserId, VideoId};
use likewise_domain::lane::Position;
use likewise_domain::operation;
use likewise_domain::relation::{Cause, LikeState};
use likewise_kit::{auth, deadline, errors};
use likewise_proto::command::v1::like_command_service_server::LikeCommandService;
use likewise_proto::command::v1::{
    CommandOutcome, CountConsistency, CurrentRelation, GetOperationRequest, GetOperationResponse, OperationVerdict,
    SetLikeRequest, SetLikeResponse,
};
use likewise_proto::convert;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::{Code, Request, Response, Status};

use super::{Faults, RETRY_AFTER, SHARD, failed, shard_away, token_user, wire_state};
use crate::app::policies::Policies;
use crate::app::shards::{Shard, Shards};
use crate::config::Settings;
use crate::intent::{Answer, Current, DEVICE_HASH_BYTES, Intent, Told, Unanswered};
use crate::store::operations;

/// Keeps hashes of devices apart from hashes of other things.
const DEVICE_HASH_DOMAIN: &[u8] = b"likewise device\0";

/// Commands of end users.
pub(crate) struct Commands {
    pub(crate) shards: Arc<Shards>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) settings: Arc<Settings>,
}

impl Commands {
    fn shard(&self, user: &UserId) -> Result<&Arc<Shard>, Status> {
        self.shards.of(user).ok_or_else(errors::internal)
    }

    /// How long to wait for a verdict: short of the caller's own deadline, so that the caller is told OUTCOME_PENDING
    /// and not left without an answer.
    fn patience(&self) -> Duration {
        let most = self.settings.answer_timeout();
        deadline::remaining().map_or(most, |left| most.min(left - left / 16))
    }

    fn parse(&self, user_id: UserId, message: &SetLikeRequest) -> Result<Intent, Status> {
        let mut faults = Faults::default();
        let video_id = faults.id("video_id", VideoId::parse(&message.video_id));
        let operation_id = faults.id("operation_id", OperationId::parse(&message.operation_id));
        let desired_state = convert::parse_like_state(message.desired_state);
        if desired_state.is_none() {
            faults.add("desired_state", "must be LIKED or UNLIKED");
        }
        let device = message.device_id.as_deref().map(|id| faults.id("device_id", DeviceId::parse(id)));
        let dated = operation_id.as_ref().and_then(operation::dated);
        if self.settings.require_dated_ids && operation_id.is_some() && dated.is_none() {
            faults.add("operation_id", "must be a UUIDv7");
        }
        let (Some(video_id), Some(operation_id), Some(desired_state), true) =
            (video_id, operation_id, desired_state, faults.0.is_empty())
        else {
            return Err(faults.refuse());
        };
        Ok(Intent {
            user_id,
            operation_id,
            command: Command {
                video_id,
                desired_state,
                dated,
                base_version: message.base_version,
                refusal: None,
                cause: Cause::User,
            },
            client_sequence: message.client_sequence,
            device_hash: device.flatten().as_ref().map(device_hash),
        })
    }
}

fn device_hash(device: &DeviceId) -> [u8; DEVICE_HASH_BYTES] {
    let hash: [u8; 32] = Sha256::new().chain_update(DEVICE_HASH_DOMAIN).chain_update(device.expose()).finalize().into();
    let mut kept = [0; DEVICE_HASH_BYTES];
    kept.copy_from_slice(&hash[..DEVICE_HASH_BYTES]);
    kept
}

#[tonic::async_trait]
impl LikeCommandService for Commands {
    async fn set_like(&self, request: Request<SetLikeRequest>) -> Result<Response<SetLikeResponse>, Status> {
        let user = token_user(&auth::user(&request)?)?;
        let mut intent = self.parse(user, request.get_ref())?;
        let shard = self.shard(&intent.user_id)?;
        // What is no longer visible can always be unliked.
        if intent.command.desired_state == LikeState::Liked {
            intent.command.refusal = self.policies.refusal(&intent.user_id, &intent.command.video_id).await;
        }
        let operation_id = intent.operation_id.clone();
        let answer = shard.submit(intent, self.patience()).await.map_err(unanswered)?;
        respond(shard.number, &operation_id, &answer).map(Response::new)
    }

    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<GetOperationResponse>, Status> {
        let user = token_user(&auth::user(&request)?)?;
        let parsed = OperationId::parse(&request.get_ref().operation_id);
        let id = parsed.map_err(|error| errors::invalid_field("operation_id", error.to_string()))?;
        let shard = self.shard(&user)?;
        if !shard.is_up() {
            return Err(shard_away());
        }
        let found = operations::find(&shard.pool, &user, &id).await.map_err(|error| failed(&error))?;
        let Some(found) = found else {
            let message = "no verdict yet; send the same command with the same operation id again";
            return Err(errors::refused(Code::NotFound, "OPERATION_NOT_FOUND", message));
        };
        Ok(Response::new(GetOperationResponse {
            operation: Some(verdict(&id, &found.verdict)),
            video_id: found.video_id,
            desired_state: convert::like_state(found.desired_state).into(),
            decided_at: Some(convert::timestamp(found.decided_at)),
            current: Some(current(&found.current)),
        }))
    }
}

fn respond(shard: u16, operation_id: &OperationId, answer: &Answer) -> Result<SetLikeResponse, Status> {
    let told = match answer.told {
        Told::Refused(refusal) => return Err(refused(refusal, answer.now)),
        Told::Verdict { verdict, .. } if verdict.outcome == Outcome::AccountNotActive => {
            let message = "the account is not active";
            return Err(errors::refused(Code::FailedPrecondition, "ACCOUNT_NOT_ACTIVE", message));
        }
        Told::Verdict { verdict, .. } => verdict,
    };
    Ok(SetLikeResponse {
        operation: Some(verdict(operation_id, &told)),
        current: Some(current(&answer.current)),
        position: Position { shard, offset: answer.changed_in }.to_string(),
        count_consistency: CountConsistency::Eventual.into(),
        retry_after: answer.retry_after.and_then(|wait| prost_types::Duration::try_from(wait).ok()),
    })
}

fn verdict(operation_id: &OperationId, verdict: &Verdict) -> OperationVerdict {
    let outcome = match verdict.outcome {
        Outcome::Applied => CommandOutcome::Applied,
        Outcome::Unchanged => CommandOutcome::Unchanged,
        Outcome::StaleBase => CommandOutcome::StaleBase,
        Outcome::RateLimited => CommandOutcome::RateLimited,
        Outcome::Frozen => CommandOutcome::Frozen,
        Outcome::AccountNotActive => CommandOutcome::AccountNotActive,
    };
    OperationVerdict {
        operation_id: operation_id.to_string(),
        outcome: outcome.into(),
        state: convert::like_state(verdict.state).into(),
        relation_version: verdict.version,
    }
}

fn current(now: &Current) -> CurrentRelation {
    let (state, relation_version, state_changed_at) = wire_state(now);
    CurrentRelation { state, relation_version, state_changed_at }
}

fn unanswered(why: Unanswered) -> Status {
    match why {
        Unanswered::Overloaded => errors::overloaded(RETRY_AFTER),
        Unanswered::Unavailable => shard_away(),
        Unanswered::Pending => errors::outcome_pending(),
        Unanswered::Failed => errors::internal(),
    }
}

fn refused(refusal: Refusal, now: OffsetDateTime) -> Status {
    let precondition = |reason, message: &str| errors::refused(Code::FailedPrecondition, reason, message);
    match refusal {
        Refusal::OperationIdReused => errors::refused(
            Code::AlreadyExists,
            "OPERATION_ID_REUSED",
            "the operation id belongs to another video or another desired state; draw a new id for a new intent",
        ),
        Refusal::ShardClosed => errors::unavailable(SHARD, RETRY_AFTER),
        Refusal::OperationExpired => errors::refused_with(
            Code::FailedPrecondition,
            "OPERATION_EXPIRED",
            "the operation id tells a time outside the accepted window; draw a new id for the same intent",
            &[("server_time", now.format(&Rfc3339).unwrap_or_default())],
        ),
        Refusal::Policy(PolicyRefusal::VideoNotFound) => {
            errors::refused(Code::NotFound, "VIDEO_NOT_FOUND", "there is no such video")
        }
        // Says no more than that this user does not get to see it.
        Refusal::Policy(PolicyRefusal::VideoNotVisible) => {
            errors::refused(Code::NotFound, "VIDEO_NOT_VISIBLE", "the video is not visible to this user")
        }
        Refusal::Policy(PolicyRefusal::VideoGone) => {
            precondition("VIDEO_GONE", "the video was deleted or taken down; it can still be unliked")
        }
        Refusal::Policy(PolicyRefusal::InteractionBlocked) => {
            precondition("INTERACTION_BLOCKED", "the author and this user do not interact")
        }
        Refusal::Policy(PolicyRefusal::AuthorityUnavailable) => errors::unavailable("policy", RETRY_AFTER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_the_code_and_reason_of_the_contract() {
        let now = time::macros::datetime!(2026-01-15 12:00 UTC);
        for (refusal, code, reason) in [
            (Refusal::OperationIdReused, Code::AlreadyExists, "OPERATION_ID_REUSED"),
            (Refusal::ShardClosed, Code::Unavailable, "RELATION_SHARD_UNAVAILABLE"),
            (Refusal::OperationExpired, Code::FailedPrecondition, "OPERATION_EXPIRED"),
            (Refusal::Policy(PolicyRefusal::VideoNotFound), Code::NotFound, "VIDEO_NOT_FOUND"),
            (Refusal::Policy(PolicyRefusal::VideoNotVisible), Code::NotFound, "VIDEO_NOT_VISIBLE"),
            (Refusal::Policy(PolicyRefusal::VideoGone), Code::FailedPrecondition, "VIDEO_GONE"),
            (Refusal::Policy(PolicyRefusal::InteractionBlocked), Code::FailedPrecondition, "INTERACTION_BLOCKED"),
            (Refusal::Policy(PolicyRefusal::AuthorityUnavailable), Code::Unavailable, "POLICY_UNAVAILABLE"),
        ] {
            let status = refused(refusal, now);
            assert_eq!((status.code(), errors::reason(&status).as_deref()), (code, Some(reason)));
        }
        for (why, code, reason) in [
            (Unanswered::Overloaded, Code::ResourceExhausted, "OVERLOADED"),
            (Unanswered::Unavailable, Code::Unavailable, "RELATION_SHARD_UNAVAILABLE"),
            (Unanswered::Pending, Code::Aborted, "OUTCOME_PENDING"),
            (Unanswered::Failed, Code::Internal, "INTERNAL"),
        ] {
            let status = unanswered(why);
            assert_eq!((status.code(), errors::reason(&status).as_deref()), (code, Some(reason)));
        }
    }

    #[test]
    fn inv_27_a_device_is_kept_as_a_hash_only() {
        let device = DeviceId::parse("device-a").expect("an id");
        assert_eq!(device_hash(&device), device_hash(&device));
        assert_ne!(device_hash(&device), device_hash(&DeviceId::parse("device-b").expect("an id")));
        assert!(!device_hash(&device).windows(3).any(|part| b"device-a".windows(3).any(|other| other == part)));
    }
}
