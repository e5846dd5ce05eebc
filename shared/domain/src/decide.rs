//! The one rule by which a command becomes a verdict. The shard's set-based statement says the same in SQL, and a test
//! holds the two together on random histories.
//!
//! The order of the questions is the point: a known operation id answers before anything else, so that the retry of a
//! committed command is told what it was told the first time, whatever has happened to the video, the account or the
//! shard since.

use time::{Duration, OffsetDateTime};

use crate::id::VideoId;
use crate::operation;
use crate::relation::{Cause, Hidden, HiddenReasons, LikeState, effective_version};

/// A verdict that is recorded, and so final for its operation id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The relation changed and has a new version.
    Applied,
    /// The relation already was in the desired state.
    Unchanged,
    /// `base_version` was not the effective version.
    StaleBase,
    /// The relation changed too often within the window.
    RateLimited,
    /// The user or the video is frozen by a risk act.
    Frozen,
    /// The account is deleted, deactivated or banned.
    AccountNotActive,
}

impl Outcome {
    /// The number the tables keep.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Applied => 1,
            Self::Unchanged => 2,
            Self::StaleBase => 3,
            Self::RateLimited => 4,
            Self::Frozen => 5,
            Self::AccountNotActive => 6,
        }
    }

    /// Reads the number the tables keep.
    #[must_use]
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::Applied),
            2 => Some(Self::Unchanged),
            3 => Some(Self::StaleBase),
            4 => Some(Self::RateLimited),
            5 => Some(Self::Frozen),
            6 => Some(Self::AccountNotActive),
            _ => None,
        }
    }
}

/// Why the policy of the video does not let this user like it. Travels with the command and is spoken only after the
/// operation look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyRefusal {
    /// There is no such video.
    VideoNotFound,
    /// The video was deleted or taken down.
    VideoGone,
    /// The video is not published, private, or for friends only, and the user is not among those.
    VideoNotVisible,
    /// One of user and author blocks the other.
    InteractionBlocked,
    /// Nobody who may answer for the video can be reached, and nothing recent enough is known.
    AuthorityUnavailable,
}

/// A refusal that is not recorded: the same operation id may be decided otherwise later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The operation id belongs to another video or another target state.
    OperationIdReused,
    /// The shard takes no commands: a write barrier stands, or it is being repaired or moved.
    ShardClosed,
    /// The operation id tells a time outside the accepted window.
    OperationExpired,
    /// The policy of the video.
    Policy(PolicyRefusal),
}

impl Refusal {
    /// The number the shard's statement answers with; above every [`Outcome::code`]. The policy's own reason stays with
    /// the command.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::OperationIdReused => 10,
            Self::ShardClosed => 11,
            Self::OperationExpired => 12,
            Self::Policy(_) => 13,
        }
    }
}

/// What one command was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub outcome: Outcome,
    /// State of the relation right after the decision.
    pub state: LikeState,
    /// Effective version of the relation right after the decision.
    pub version: u64,
}

/// The record of an operation id that already has a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRecord {
    /// The video it was about.
    pub video_id: VideoId,
    /// The state that was asked for.
    pub desired_state: LikeState,
    /// What it was told.
    pub verdict: Verdict,
}

/// A relation that changed at least once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    /// State now.
    pub state: LikeState,
    /// Version as stored; see [`effective_version`].
    pub version: u64,
    /// When it entered the state.
    pub state_changed_at: OffsetDateTime,
    /// When the window began in which `transitions` are counted.
    pub window_started_at: OffsetDateTime,
    /// Changes in that window.
    pub transitions: u32,
    /// Whether the like counts, as stored.
    pub hidden: Hidden,
}

/// What a command asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The video.
    pub video_id: VideoId,
    /// The state asked for.
    pub desired_state: LikeState,
    /// The time its operation id tells, if it tells one. The system's own ids tell none: they do not expire.
    pub dated: Option<OffsetDateTime>,
    /// Version the client had seen, if the command depends on it.
    pub base_version: Option<u64>,
    /// What the policy of the video says against it; always `None` for UNLIKED.
    pub refusal: Option<PolicyRefusal>,
    /// The user, or one of the causes by which the system itself changes relations.
    pub cause: Cause,
}

/// What else the shard knows, read under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardFacts {
    /// Epoch of the shard.
    pub epoch: u32,
    /// Commands are taken: no barrier, no repair, no move.
    pub open: bool,
    /// No word of the account being anything but active.
    pub account_active: bool,
    /// A risk act freezes the user or the video.
    pub frozen: bool,
    /// Why a like of this user and video is not counted, by risk acts and the account's state.
    pub hides: HiddenReasons,
}

/// What to do with a command whose base version is not the effective one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BasePolicy {
    /// Refuse with STALE_BASE.
    Reject,
    /// Go on: the last commit wins.
    LastCommitWins,
}

/// Settings of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// What a stale base version means.
    pub base: BasePolicy,
    /// Changes of one relation allowed within a window.
    pub transitions_max: u32,
    /// Length of that window.
    pub transition_window: Duration,
}

/// What came of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The operation id was known; nothing is written.
    Known(Verdict),
    /// A first verdict, to be recorded; with the new relation if it is [`Outcome::Applied`].
    Decided(Verdict, Option<Relation>),
    /// Nothing is written.
    Refused(Refusal),
}

/// Decides one command against what the shard holds. `now` is the database's clock, read under the shard's lock.
#[must_use]
pub fn decide(
    relation: Option<&Relation>,
    known: Option<&OperationRecord>,
    command: &Command,
    facts: &ShardFacts,
    rules: &Rules,
    now: OffsetDateTime,
) -> Decision {
    if let Some(record) = known {
        return if record.video_id == command.video_id && record.desired_state == command.desired_state {
            Decision::Known(record.verdict)
        } else {
            Decision::Refused(Refusal::OperationIdReused)
        };
    }
    if !facts.open {
        return Decision::Refused(Refusal::ShardClosed);
    }
    let state = relation.map_or(LikeState::Unliked, |relation| relation.state);
    let version = effective_version(relation.map_or(0, |relation| relation.version), facts.epoch);
    let told = |outcome| Decision::Decided(Verdict { outcome, state, version }, None);
    let by_user = command.cause == Cause::User;

    if by_user {
        if command.dated.is_some_and(|dated| operation::expired(dated, now)) {
            return Decision::Refused(Refusal::OperationExpired);
        }
        if !facts.account_active {
            return told(Outcome::AccountNotActive);
        }
        if facts.frozen {
            return told(Outcome::Frozen);
        }
        if let Some(refusal) = command.refusal {
            return Decision::Refused(Refusal::Policy(refusal));
        }
        if rules.base == BasePolicy::Reject && command.base_version.is_some_and(|base| base != version) {
            return told(Outcome::StaleBase);
        }
    }
    if command.cause != Cause::Restated && command.desired_state == state {
        return told(Outcome::Unchanged);
    }
    let window = relation.filter(|relation| relation.window_started_at + rules.transition_window > now);
    if by_user && window.is_some_and(|relation| relation.transitions >= rules.transitions_max) {
        return told(Outcome::RateLimited);
    }
    let next = Relation {
        state: command.desired_state,
        version: version + 1,
        // Grows with every change, even when the clock does not.
        state_changed_at: relation.map_or(now, |relation| now.max(relation.state_changed_at + Duration::MICROSECOND)),
        window_started_at: window.map_or(now, |relation| relation.window_started_at),
        transitions: window.map_or(1, |relation| relation.transitions + 1),
        // Every change carries the second axis with it.
        hidden: relation.map_or_else(Hidden::default, |relation| relation.hidden).with(facts.hides, facts.epoch),
    };
    let verdict = Verdict { outcome: Outcome::Applied, state: next.state, version: next.version };
    Decision::Decided(verdict, Some(next))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
