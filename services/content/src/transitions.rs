//! Which states follow which, and who may say so. Pure tables.

use time::{Duration, OffsetDateTime};

use crate::model::{AccountState, PostStatus};

/// Who asks for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The author of the video, or the owner of the account.
    Owner,
    /// An operator.
    Moderator,
}

/// Whether a video may go from one status to another. Staying is no transition.
#[must_use]
pub const fn post_may(who: Who, from: PostStatus, to: PostStatus) -> bool {
    use PostStatus::{Draft, Published, Scheduled, TakenDown, UnderReview};
    match who {
        Who::Owner => matches!(
            (from, to),
            (Draft, Scheduled | UnderReview | Published)
                | (Scheduled, Draft | UnderReview | Published)
                | (UnderReview | Published, Draft)
        ),
        Who::Moderator => matches!(
            (from, to),
            (UnderReview, Published | TakenDown) | (Published, TakenDown | UnderReview) | (TakenDown, Published)
        ),
    }
}

/// Whether an account may go from one state to another. Staying is no transition.
#[must_use]
pub const fn account_may(who: Who, from: AccountState, to: AccountState) -> bool {
    use AccountState::{Active, Banned, Deactivated, Deleted};
    match who {
        // A banned person may still have their data deleted. A restore is no transition to a state of choice: it goes
        // back to the state before, so that it cannot lift a ban.
        Who::Owner => {
            matches!((from, to), (Active, Deactivated | Deleted) | (Deactivated, Active | Deleted) | (Banned, Deleted))
        }
        Who::Moderator => matches!((from, to), (Active | Deactivated, Banned) | (Banned, Active)),
    }
}

/// Whether a deletion can still be taken back.
#[must_use]
pub fn within_grace(deleted_at: OffsetDateTime, now: OffsetDateTime, grace: Duration) -> bool {
    now <= deleted_at + grace
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed<T: Copy + std::fmt::Debug>(all: &[T], may: impl Fn(T, T) -> bool) -> String {
        let pairs = all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to)));
        let named = pairs.filter(|(from, to)| may(*from, *to)).map(|(from, to)| format!("{from:?}>{to:?}"));
        named.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_table_of_videos() {
        assert_eq!(
            allowed(PostStatus::ALL, |from, to| post_may(Who::Owner, from, to)),
            "Draft>Scheduled Draft>UnderReview Draft>Published Scheduled>Draft Scheduled>UnderReview \
             Scheduled>Published UnderReview>Draft Published>Draft"
        );
        assert_eq!(
            allowed(PostStatus::ALL, |from, to| post_may(Who::Moderator, from, to)),
            "UnderReview>Published UnderReview>TakenDown Published>UnderReview Published>TakenDown TakenDown>Published"
        );
    }

    #[test]
    fn scn_c17_a_banned_person_can_delete_and_not_unban() {
        assert!(account_may(Who::Owner, AccountState::Banned, AccountState::Deleted));
        assert!(!account_may(Who::Owner, AccountState::Banned, AccountState::Active));
        assert!(!account_may(Who::Moderator, AccountState::Deleted, AccountState::Active));
    }

    #[test]
    fn grace_ends() {
        let deleted = OffsetDateTime::UNIX_EPOCH;
        assert!(within_grace(deleted, deleted + Duration::days(30), Duration::days(30)));
        assert!(!within_grace(deleted, deleted + Duration::days(30) + Duration::SECOND, Duration::days(30)));
    }
}
