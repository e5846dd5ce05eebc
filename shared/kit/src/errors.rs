//! What a caller is told: a gRPC status in our words with `google.rpc` details.
//!
//! Every refusal carries an `ErrorInfo` with domain `likewise` and a stable upper-case reason that programs can compare.
//! The cause of a failure is logged where it is met and never sent.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt, pb as rpc};

/// Domain of every `ErrorInfo`.
pub const DOMAIN: &str = "likewise";
/// What tonic says of a message that its codec cannot read.
const DECODING: &str = "failed to decode Protobuf message";

/// A refusal with a stable reason.
pub fn refused(code: Code, reason: &'static str, message: impl Into<String>) -> Status {
    refused_with(code, reason, message, &[])
}

/// A refusal with a stable reason and facts a program may need, for example the server's time.
pub fn refused_with(
    code: Code,
    reason: &'static str,
    message: impl Into<String>,
    metadata: &[(&str, String)],
) -> Status {
    Status::with_error_details(code, message, details(reason, metadata))
}

/// The same refusal with one more detail: a message, and its full name.
#[must_use]
pub fn with_detail(status: Status, name: &str, detail: &impl Message) -> Status {
    let Some(mut told) = told(&status) else { return status };
    told.details.push(prost_types::Any { type_url: type_url(name), value: detail.encode_to_vec() });
    let (code, message) = (status.code(), status.message().to_owned());
    Status::with_details_and_metadata(code, message, told.encode_to_vec().into(), status.metadata().clone())
}

/// The detail of a refusal that has this full name.
#[must_use]
pub fn detail<M: Message + Default>(status: &Status, name: &str) -> Option<M> {
    let told = told(status)?;
    let found = told.details.iter().find(|detail| detail.type_url == type_url(name))?;
    M::decode(found.value.as_slice()).ok()
}

fn told(status: &Status) -> Option<rpc::Status> {
    if status.details().is_empty() { None } else { rpc::Status::decode(status.details()).ok() }
}

fn type_url(name: &str) -> String {
    format!("type.googleapis.com/{name}")
}

fn details(reason: &str, metadata: &[(&str, String)]) -> ErrorDetails {
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let mut details = ErrorDetails::new();
    details.set_error_info(reason, DOMAIN, metadata);
    details
}

/// INVALID_ARGUMENT that names one field.
pub fn invalid_field(field: &str, description: impl Into<String>) -> Status {
    invalid_fields(vec![(field.to_owned(), description.into())])
}

/// INVALID_ARGUMENT that names every field at fault.
#[must_use]
pub fn invalid_fields(faults: Vec<(String, String)>) -> Status {
    let message = match faults.as_slice() {
        [(field, description)] => format!("{field} {description}"),
        several => format!("{} fields are invalid", several.len()),
    };
    let mut details = details("INVALID_ARGUMENT", &[]);
    for (field, description) in faults {
        details.add_bad_request_violation(field, description);
    }
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// UNAVAILABLE that names what is away and when to try again.
#[must_use]
pub fn unavailable(dependency: &'static str, retry_after: Duration) -> Status {
    let reason = format!("{}_UNAVAILABLE", dependency.to_uppercase().replace(['-', ' '], "_"));
    let mut details = details(&reason, &[("dependency", dependency.to_owned())]);
    details.set_retry_info(Some(retry_after));
    Status::with_error_details(Code::Unavailable, format!("{dependency} does not answer; try again"), details)
}

/// UNIMPLEMENTED: nobody serves this method here.
#[must_use]
pub fn unknown_method() -> Status {
    refused(Code::Unimplemented, "METHOD_UNKNOWN", "no service here has this method")
}

/// What a caller is told whose message could not be decoded: tonic calls that INTERNAL, but the fault is the caller's.
/// `None` for every other status.
#[must_use]
pub fn undecodable(status: &Status) -> Option<Status> {
    let is_it = status.code() == Code::Internal && status.message().starts_with(DECODING);
    let message = "the message is not an encoded request of this method";
    is_it.then(|| refused(Code::InvalidArgument, "MESSAGE_MALFORMED", message))
}

/// RESOURCE_EXHAUSTED: refused under load, nothing was done.
#[must_use]
pub fn overloaded(retry_after: Duration) -> Status {
    let mut details = details("OVERLOADED", &[]);
    details.set_retry_info(Some(retry_after));
    Status::with_error_details(Code::ResourceExhausted, "too much is waiting already; try again later", details)
}

/// RESOURCE_EXHAUSTED: one caller is above a limit of theirs. Says nothing about what became of a command sent before.
#[must_use]
pub fn limited(reason: &'static str, retry_after: Duration) -> Status {
    let mut details = details(reason, &[]);
    details.set_retry_info(Some(retry_after));
    Status::with_error_details(Code::ResourceExhausted, "too many commands at once; try again later", details)
}

/// ABORTED: whether the command was applied is not known yet.
#[must_use]
pub fn outcome_pending() -> Status {
    let mut details = details("OUTCOME_PENDING", &[]);
    details.set_retry_info(Some(Duration::from_millis(100)));
    let message = "the outcome is not known yet; send the same operation id again";
    Status::with_error_details(Code::Aborted, message, details)
}

/// INTERNAL, in our words only. Log the cause where it is met.
#[must_use]
pub fn internal() -> Status {
    refused(Code::Internal, "INTERNAL", "something failed on our side; it was logged")
}

/// DEADLINE_EXCEEDED: the caller's time, or the class's cap, ran out.
#[must_use]
pub fn deadline_exceeded() -> Status {
    refused(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", "the time for this call ran out")
}

/// UNAVAILABLE: this process is about to end; another one, or the next, answers.
#[must_use]
pub fn stopping() -> Status {
    let mut details = details("STOPPING", &[]);
    details.set_retry_info(Some(Duration::from_millis(200)));
    Status::with_error_details(Code::Unavailable, "this process is stopping; call again", details)
}

/// UNAUTHENTICATED with its reason.
#[must_use]
pub fn unauthenticated(reason: &'static str, message: &'static str) -> Status {
    refused(Code::Unauthenticated, reason, message)
}

/// PERMISSION_DENIED: the token is good but not for this.
#[must_use]
pub fn role_required(needed: &str) -> Status {
    refused_with(
        Code::PermissionDenied,
        "ROLE_REQUIRED",
        format!("this call needs {needed}"),
        &[("needed", needed.to_owned())],
    )
}

/// The stable reason of an error of ours.
#[must_use]
pub fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_its_reason_and_facts() {
        let status = refused_with(Code::FailedPrecondition, "OPERATION_EXPIRED", "too old", &[("now", "x".to_owned())]);
        assert_eq!(reason(&status).as_deref(), Some("OPERATION_EXPIRED"));
        let info = status.get_details_error_info().expect("details");
        assert_eq!((info.domain.as_str(), info.metadata["now"].as_str()), ("likewise", "x"));
    }

    #[test]
    fn a_refusal_carries_a_message_of_ours_beside_its_reason() {
        let now = prost_types::Timestamp { seconds: 7, nanos: 0 };
        let plain = refused(Code::NotFound, "VIDEO_GONE", "gone");
        assert_eq!(detail::<prost_types::Timestamp>(&plain, "a.B"), None);
        let status = with_detail(plain, "a.B", &now);
        assert_eq!((reason(&status).as_deref(), status.message()), (Some("VIDEO_GONE"), "gone"));
        assert_eq!((detail(&status, "a.B"), detail::<prost_types::Timestamp>(&status, "a.C")), (Some(now), None));
    }

    #[test]
    fn every_field_at_fault_is_named() {
        let status = invalid_fields(vec![("a".to_owned(), "is bad".to_owned()), ("b".to_owned(), "too".to_owned())]);
        let named: Vec<String> = status
            .get_details_bad_request()
            .expect("details")
            .field_violations
            .into_iter()
            .map(|violation| violation.field)
            .collect();
        assert_eq!(named, ["a", "b"]);
    }

    #[test]
    fn unavailable_names_the_dependency() {
        let status = unavailable("relation shard", Duration::from_secs(1));
        assert_eq!(reason(&status).as_deref(), Some("RELATION_SHARD_UNAVAILABLE"));
        assert!(status.get_details_retry_info().is_some());
    }
}
