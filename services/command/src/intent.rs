//! What travels from a handler to a shard's writer and back.

use std::time::Duration;

use likewise_domain::decide::{Command, Refusal, Verdict};
use likewise_domain::id::{OperationId, UserId};
use likewise_domain::lane::Offset;
use likewise_domain::relation::LikeState;
use time::OffsetDateTime;

/// Bytes of a device's hash that are kept: enough to tell devices apart, useless for finding the device.
pub const DEVICE_HASH_BYTES: usize = 16;

/// One command of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The user, from the verified token.
    pub user_id: UserId,
    /// The client's id of this intent.
    pub operation_id: OperationId,
    /// What is asked for, with the policy's word on it.
    pub command: Command,
    /// Number within the device's queue; kept for support.
    pub client_sequence: Option<u64>,
    /// Hash of the device; kept for risk.
    pub device_hash: Option<[u8; DEVICE_HASH_BYTES]>,
}

/// The relation as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// State.
    pub state: LikeState,
    /// Effective version.
    pub version: u64,
    /// When it entered the state; `None` for a relation that never changed.
    pub changed_at: Option<OffsetDateTime>,
}

/// What a command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// A recorded verdict: just now, or (`known`) when the operation id was first seen.
    Verdict {
        /// The verdict.
        verdict: Verdict,
        /// Whether it was given before.
        known: bool,
    },
    /// Nothing was recorded.
    Refused(Refusal),
}

/// A shard's answer to one intent, after its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What the command came to.
    pub told: Told,
    /// The relation now.
    pub current: Current,
    /// Where the relation's last state change stands in the shard's lane; seq 0 if it never changed.
    pub changed_in: Offset,
    /// With RATE_LIMITED: when the window ends.
    pub retry_after: Option<Duration>,
    /// The database's clock at the decision.
    pub now: OffsetDateTime,
}

/// Why there is no answer. Neither says that the command was not applied; the same operation id may always be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// Too much is waiting; the command was not taken.
    #[error("too much is waiting for this shard")]
    Overloaded,
    /// The shard's server is away.
    #[error("the shard does not answer")]
    Unavailable,
    /// The command was taken; what became of it is not known yet.
    #[error("the outcome is not known yet")]
    Pending,
    /// The database refuses this command, which is a fault of ours.
    #[error("the database refused the command")]
    Failed,
}
