//! gRPC: where wire types end.

mod barriers;
mod facts;
mod find;
mod like_command;
mod parse;
mod risk;
mod scan;
mod stream;
mod told;

use std::time::Duration;

use likewise_domain::id::{IdError, UserId};
use likewise_kit::errors;
use likewise_kit::pg::FailureKind;
use likewise_proto::convert;
use likewise_proto::types::v1::LikeState as WireState;
use prost_types::Timestamp;
use tonic::Status;

pub(crate) use self::facts::Facts;
pub(crate) use self::like_command::Commands;
pub(crate) use self::risk::Risk;
use crate::intent::Current;
use crate::store;

/// Told with UNAVAILABLE and OVERLOADED.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Name of what is away when a shard does not serve.
const SHARD: &str = "relation shard";

/// Faults of a request, collected so that the caller learns all of them at once.
#[derive(Default)]
struct Faults(Vec<(String, String)>);

impl Faults {
    fn add(&mut self, field: &str, description: impl Into<String>) {
        self.0.push((field.to_owned(), description.into()));
    }

    /// The id, or a fault of its field.
    fn id<T>(&mut self, field: &str, parsed: Result<T, IdError>) -> Option<T> {
        parsed.map_err(|error| self.add(field, error.to_string())).ok()
    }

    fn refuse(self) -> Status {
        errors::invalid_fields(self.0)
    }
}

/// The user of a verified token.
fn token_user(subject: &str) -> Result<UserId, Status> {
    let malformed = |_| errors::unauthenticated("TOKEN_INVALID", "the token's subject is no user id");
    UserId::parse(subject).map_err(malformed)
}

fn shard_away() -> Status {
    errors::unavailable(SHARD, RETRY_AFTER)
}

/// Logs a failure of the store and says what the caller may know.
fn failed(error: &store::Error) -> Status {
    match error.kind() {
        FailureKind::Retry | FailureKind::Unavailable => {
            tracing::warn!(error = error.chain(), "a shard does not answer");
            shard_away()
        }
        FailureKind::Data | FailureKind::Bug => {
            tracing::error!(error = error.chain(), "a shard cannot be read");
            errors::internal()
        }
    }
}

/// What a read of the store found, unless that takes too long: whoever reads is better told what is away.
async fn within<T>(limit: Duration, read: impl Future<Output = Result<T, store::Error>>) -> Result<T, Status> {
    match tokio::time::timeout(limit, read).await {
        Ok(found) => found.map_err(|error| failed(&error)),
        Err(_) => {
            tracing::warn!("a shard does not answer in time");
            Err(shard_away())
        }
    }
}

fn wire_state(current: &Current) -> (i32, u64, Option<Timestamp>) {
    let state: WireState = convert::like_state(current.state);
    (state.into(), current.version, current.changed_at.map(convert::timestamp))
}
