//! Risk acts: who may ask for what, and who may decide. Pure rules.

use likewise_domain::id::{UserId, VideoId};

/// What an act does. The numbers are those of the tables and of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActKind {
    /// Likes do not count.
    Exclude,
    /// Nothing changes.
    Freeze,
    /// Both.
    Revoke,
    /// Undoes another act.
    Restore,
}

impl ActKind {
    /// Its number; the lowest bit excludes, the next one freezes.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Exclude => 1,
            Self::Freeze => 2,
            Self::Revoke => 3,
            Self::Restore => 4,
        }
    }

    /// Reads a number.
    #[must_use]
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::Exclude),
            2 => Some(Self::Freeze),
            3 => Some(Self::Revoke),
            4 => Some(Self::Restore),
            _ => None,
        }
    }

    /// Whether counts move.
    #[must_use]
    pub const fn excludes(self) -> bool {
        matches!(self, Self::Exclude | Self::Revoke)
    }
}

/// How far an act is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActStatus {
    /// Waits for an approver.
    Proposed,
    /// Is being carried out.
    Running,
    /// Is carried out, and stands.
    Applied,
    /// Was not approved.
    Rejected,
    /// Was undone by a later act.
    Restored,
}

impl ActStatus {
    /// Its number.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Proposed => 1,
            Self::Running => 2,
            Self::Applied => 3,
            Self::Rejected => 4,
            Self::Restored => 5,
        }
    }

    /// Reads a number.
    #[must_use]
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::Proposed),
            2 => Some(Self::Running),
            3 => Some(Self::Applied),
            4 => Some(Self::Rejected),
            5 => Some(Self::Restored),
            _ => None,
        }
    }
}

/// Whom or what an act is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// A user; none for everybody.
    pub user: Option<UserId>,
    /// A video; none for all videos of the user.
    pub video: Option<VideoId>,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// The risk service, by itself.
    Service,
    /// A person.
    Operator,
}

/// How a new act begins: what the risk service finds by itself runs at once if it is small; everything else waits for a person
/// who did not ask for it.
#[must_use]
pub const fn begins(requester: Requester, kind: ActKind, targets: usize, auto_targets_max: usize) -> ActStatus {
    match (requester, kind) {
        (Requester::Service, ActKind::Exclude | ActKind::Freeze | ActKind::Revoke) if targets <= auto_targets_max => {
            ActStatus::Running
        }
        _ => ActStatus::Proposed,
    }
}

/// Why an act cannot be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CannotDecide {
    /// Who asked cannot approve.
    OwnAct,
    /// It was decided before, or needed no decision.
    NotProposed,
}

/// Whether `approver` may decide an act of `requester`.
///
/// # Errors
/// [`CannotDecide`].
pub fn may_decide(status: ActStatus, requester: &str, approver: &str) -> Result<(), CannotDecide> {
    if status != ActStatus::Proposed {
        return Err(CannotDecide::NotProposed);
    }
    if requester == approver { Err(CannotDecide::OwnAct) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inv_10_only_small_acts_of_the_risk_service_run_without_a_second_person() {
        use ActKind::{Exclude, Freeze, Restore, Revoke};
        for kind in [Exclude, Freeze, Revoke] {
            assert_eq!(begins(Requester::Service, kind, 10, 10), ActStatus::Running);
            assert_eq!(begins(Requester::Service, kind, 11, 10), ActStatus::Proposed);
            assert_eq!(begins(Requester::Operator, kind, 1, 10), ActStatus::Proposed);
        }
        assert_eq!(begins(Requester::Service, Restore, 1, 10), ActStatus::Proposed);
        assert_eq!(may_decide(ActStatus::Proposed, "operator:olga", "operator:ada"), Ok(()));
        assert_eq!(may_decide(ActStatus::Proposed, "operator:olga", "operator:olga"), Err(CannotDecide::OwnAct));
        assert_eq!(may_decide(ActStatus::Running, "operator:olga", "operator:ada"), Err(CannotDecide::NotProposed));
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for kind in [ActKind::Exclude, ActKind::Freeze, ActKind::Revoke, ActKind::Restore] {
            assert_eq!(ActKind::from_code(kind.code()), Some(kind));
        }
        for code in 1..=5 {
            assert_eq!(ActStatus::from_code(code).map(ActStatus::code), Some(code));
        }
        assert!(ActKind::from_code(0).is_none() && ActStatus::from_code(6).is_none());
    }
}
