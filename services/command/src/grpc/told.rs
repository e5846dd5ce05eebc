//! Verdicts and refusals in the words of the contract.

use likewise_domain::decide::{Outcome, PolicyRefusal, Refusal, Verdict};
use likewise_domain::id::OperationId;
use likewise_domain::lane::Position;
use likewise_kit::errors;
use likewise_proto::command::v1::{
    CommandOutcome, CountConsistency, CurrentRelation, OperationVerdict, SetLikeResponse,
};
use likewise_proto::convert;
use prost::Message as _;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::{Code, Status};
use tonic_types::pb as rpc;

use super::{RETRY_AFTER, SHARD, shard_away, wire_state};
use crate::app::limits::Limited;
use crate::intent::{Answer, Current, Told, Unanswered};
use crate::limits::Kind;

/// Whether a command that was told this may still be decided when it is sent again with the same operation id, so that a
/// later intent for its relation would overtake it.
pub(super) fn leaves_open(status: &Status) -> bool {
    use Code::{Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable, Unknown};
    [Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable, Unknown].contains(&status.code())
}

/// An error as part of an answer: what the status of a call would carry.
pub(super) fn error(status: &Status) -> rpc::Status {
    let plain =
        || rpc::Status { code: status.code().into(), message: status.message().to_owned(), details: Vec::new() };
    if status.details().is_empty() {
        return plain();
    }
    rpc::Status::decode(status.details()).unwrap_or_else(|_| plain())
}

pub(super) fn respond(shard: u16, operation_id: &OperationId, answer: &Answer) -> Result<SetLikeResponse, Status> {
    let told = match answer.told {
        Told::Refused(refusal) => return Err(beside(&answer.current, refused(refusal, answer.now))),
        Told::Verdict { verdict, .. } if verdict.outcome == Outcome::AccountNotActive => {
            let message = "the account is not active";
            let status = errors::refused(Code::FailedPrecondition, "ACCOUNT_NOT_ACTIVE", message);
            return Err(beside(&answer.current, status));
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

/// A refusal beside the relation as it is now, so that the caller need not ask.
fn beside(now: &Current, status: Status) -> Status {
    errors::with_detail(status, convert::CURRENT_RELATION, &current(now))
}

pub(super) fn verdict(operation_id: &OperationId, verdict: &Verdict) -> OperationVerdict {
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

pub(super) fn current(now: &Current) -> CurrentRelation {
    let (state, relation_version, state_changed_at) = wire_state(now);
    CurrentRelation { state, relation_version, state_changed_at }
}

pub(super) fn unanswered(why: Unanswered) -> Status {
    match why {
        Unanswered::Overloaded => errors::overloaded(RETRY_AFTER),
        Unanswered::Unavailable => shard_away(),
        Unanswered::Pending => errors::outcome_pending(),
        Unanswered::Failed => errors::internal(),
    }
}

/// Above a limit: nothing is known of the command.
pub(super) fn limited(limited: Limited) -> Status {
    let reason = match limited.kind {
        Kind::Account => "ACCOUNT_LIMIT",
        Kind::Device => "DEVICE_LIMIT",
        Kind::Address => "ADDRESS_LIMIT",
    };
    errors::limited(reason, limited.wait)
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
}
