//! Calls to the services that own what is read here: facts (command), counts (counter), policies (the authority) and lists
//! (reverse index). Wire types of the other services stop here.

mod counter;
mod facts;
mod policy;
mod reverse;

use std::time::Duration;

use likewise_kit::deadline;
use tonic::{Code, Request, Status};

pub use counter::Counter;
pub use facts::{Facts, Liked, LikedKey, Relation};
pub use policy::Authority;
pub use reverse::{LikerPage, ReverseIndex};

/// A service did not answer, or not all of what it was asked, or refused.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The service, as callers are told.
    pub service: &'static str,
    /// What it said.
    pub status: Box<Status>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {:?}: {}", self.service, self.status.code(), self.status.message())
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// No answer of this service can be expected.
    #[must_use]
    pub fn away(service: &'static str) -> Self {
        Self { service, status: Box::new(Status::unavailable("no answer")) }
    }

    /// An answer in which something is missing is none.
    fn incomplete(service: &'static str) -> Self {
        Self { service, status: Box::new(Status::new(Code::DataLoss, "the answer is incomplete")) }
    }

    fn of(service: &'static str) -> impl Fn(Status) -> Self {
        move |status| Self { service, status: Box::new(status) }
    }
}

/// A request that waits at most `timeout`, and never longer than the call being answered.
fn timed<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline::remaining().map_or(timeout, |left| left.min(timeout)));
    request
}
