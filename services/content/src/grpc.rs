//! The service's gRPC doors.

mod admin;
mod follow;
mod page;
mod policy;
mod post;
mod user;
pub mod wire;

pub use admin::AdminDoor;
pub use follow::FollowDoor;
pub use page::Pages;
pub use policy::PolicyDoor;
pub use post::PostDoor;
pub use user::UserDoor;

use std::time::Duration;

use likewise_domain::id::{IdError, UserId};
use likewise_kit::errors;
use tonic::{Code, Status};

use crate::act::{Done, Error, Refusal};
use crate::model::{Account, Post};
use crate::store;

/// When to try again what the database refused.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// An id that obeys the rule for ids.
fn id(field: &str, text: &str) -> Result<String, Status> {
    UserId::parse(text)
        .map(|id| id.as_str().to_owned())
        .map_err(|error: IdError| errors::invalid_field(field, error.to_string()))
}

/// Up to 200 ids.
fn ids(field: &str, texts: &[String]) -> Result<(), Status> {
    if texts.is_empty() || texts.len() > 200 {
        return Err(errors::invalid_field(field, "must have 1..200 items"));
    }
    let faults: Vec<(String, String)> = texts
        .iter()
        .enumerate()
        .filter_map(|(index, text)| Some((format!("{field}[{index}]"), UserId::parse(text).err()?.to_string())))
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(errors::invalid_fields(faults)) }
}

fn store_failed(error: &store::Error) -> Status {
    if error.is_passing() {
        tracing::warn!(error = %chain(error), "the content database does not answer");
        return errors::unavailable("content database", RETRY_AFTER);
    }
    tracing::error!(error = %chain(error), "a content query failed");
    errors::internal()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn refuse(refusal: &Refusal) -> Status {
    let (code, reason) = match refusal {
        Refusal::NoAccount(_) => (Code::NotFound, "ACCOUNT_NOT_FOUND"),
        Refusal::AccountNotActive => (Code::FailedPrecondition, "ACCOUNT_NOT_ACTIVE"),
        Refusal::NoPost(_) => (Code::NotFound, "VIDEO_NOT_FOUND"),
        Refusal::PostIdTaken => (Code::AlreadyExists, "VIDEO_ID_TAKEN"),
        Refusal::UsernameTaken => (Code::AlreadyExists, "USERNAME_TAKEN"),
        Refusal::VersionConflict(_) => (Code::Aborted, "VERSION_CONFLICT"),
        Refusal::PostDeleted => (Code::FailedPrecondition, "VIDEO_GONE"),
        Refusal::Transition(..) => (Code::FailedPrecondition, "TRANSITION_NOT_ALLOWED"),
        Refusal::GraceOver => (Code::FailedPrecondition, "GRACE_OVER"),
        Refusal::Oneself => return errors::invalid_field("user_id", refusal.to_string()),
    };
    let metadata: &[(&str, String)] = match refusal {
        Refusal::VersionConflict(version) => &[("version", version.to_string())],
        _ => &[],
    };
    errors::refused_with(code, reason, refusal.to_string(), metadata)
}

fn failed(error: &Error) -> Status {
    match error {
        Error::Refused(refusal) => refuse(refusal),
        Error::Store(error) => store_failed(error),
        Error::Stopping => errors::unavailable("content", RETRY_AFTER),
    }
}

/// What a fault of a text with a NUL byte says: no store of ours keeps one.
const NO_NUL: &str = "must not hold a NUL character";

fn account_of(done: Result<Done, Error>) -> Result<Account, Status> {
    match done.map_err(|error| failed(&error))? {
        Done::Account(account) => Ok(account),
        Done::Post(_) | Done::Nothing => Err(errors::internal()),
    }
}

fn post_of(done: Result<Done, Error>) -> Result<Post, Status> {
    match done.map_err(|error| failed(&error))? {
        Done::Post(post) => Ok(post),
        Done::Account(_) | Done::Nothing => Err(errors::internal()),
    }
}
