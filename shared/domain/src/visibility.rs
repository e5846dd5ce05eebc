//! Who may see what: one rule for every read path, decided with the policies of this moment.
//!
//! Whatever a caller may not see looks as if it did not exist. Rules that depend on the viewer change lists and what is
//! shown, never a count.

use crate::id::UserId;

/// Life cycle of a video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VideoStatus {
    /// The authority knows no such video.
    NotFound,
    /// A draft, scheduled or under review.
    Unpublished,
    /// Published.
    Published,
    /// Deleted by its author or taken down by moderation.
    Gone,
}

/// Who may see a video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Audience {
    /// Everyone.
    Everyone,
    /// The author and people who follow the author and are followed back.
    Friends,
    /// The author alone.
    Author,
}

/// Who may see the likers of a video they may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LikersVisible {
    /// Everyone.
    Everyone,
    /// The author alone.
    AuthorOnly,
    /// Nobody, the author included.
    Nobody,
}

/// Policy of a video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoPolicy {
    /// Life cycle.
    pub status: VideoStatus,
    /// Who may see it.
    pub audience: Audience,
    /// Its author; `None` for a video that is not found.
    pub author: Option<UserId>,
    /// Who may see its likers.
    pub likers_visible: LikersVisible,
    /// Whether the count is shown to others than the author.
    pub count_visible: bool,
}

impl VideoPolicy {
    /// What is known of a video nobody knows.
    pub const NOT_FOUND: Self = Self {
        status: VideoStatus::NotFound,
        audience: Audience::Author,
        author: None,
        likers_visible: LikersVisible::Nobody,
        count_visible: false,
    };
}

/// How a viewer stands to another account. Strangers by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Both follow each other.
    pub friends: bool,
    /// One of the two blocks the other.
    pub blocked: bool,
    /// The viewer follows the other, who has approved it where that is asked for.
    pub follows: bool,
}

/// What a viewer may know of a video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sight {
    /// All of it.
    Visible,
    /// Nothing: missing, unpublished, not meant for this viewer, or behind a block.
    NotVisible,
    /// That it is gone; the viewer might have seen it.
    Gone,
}

/// What `viewer` (`None`: nobody in particular) may know of a video whose author they stand to like `standing`.
#[must_use]
pub fn sight(policy: &VideoPolicy, viewer: Option<&UserId>, standing: Standing) -> Sight {
    let Some(author) = &policy.author else { return Sight::NotVisible };
    let is_author = viewer == Some(author);
    let meant = match policy.audience {
        Audience::Everyone => true,
        Audience::Friends => standing.friends,
        Audience::Author => false,
    };
    let admitted = is_author || (meant && !standing.blocked);
    match policy.status {
        VideoStatus::Published if admitted => Sight::Visible,
        VideoStatus::Unpublished if is_author => Sight::Visible,
        // Somebody who could not have seen it is not told that it was there.
        VideoStatus::Gone if admitted => Sight::Gone,
        _ => Sight::NotVisible,
    }
}

/// Whether a viewer who may see the video may see its likers.
#[must_use]
pub fn may_list_likers(policy: &VideoPolicy, viewer: Option<&UserId>) -> bool {
    match policy.likers_visible {
        LikersVisible::Everyone => true,
        LikersVisible::AuthorOnly => viewer.is_some() && viewer == policy.author.as_ref(),
        LikersVisible::Nobody => false,
    }
}

/// Whether a viewer who may see the video may see its number.
#[must_use]
pub fn may_see_count(policy: &VideoPolicy, viewer: Option<&UserId>) -> bool {
    policy.count_visible || (viewer.is_some() && viewer == policy.author.as_ref())
}

/// Policy of an account, as far as lists need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountPolicy {
    /// In use: known, and neither banned, deactivated nor deleted.
    pub active: bool,
    /// Listed only to approved followers and to itself.
    pub is_private: bool,
    /// False: private to all but itself.
    pub listable: bool,
}

/// Whether `account` may be listed to `viewer` who stands to it like `standing`. What the author of the liked video may
/// see is no different.
#[must_use]
pub fn may_be_listed(account: &UserId, policy: AccountPolicy, viewer: Option<&UserId>, standing: Standing) -> bool {
    if !policy.active {
        return false;
    }
    if viewer == Some(account) {
        return true;
    }
    policy.listable && !standing.blocked && (!policy.is_private || standing.follows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> UserId {
        UserId::parse(text).expect("an id")
    }

    fn video(status: VideoStatus, audience: Audience) -> VideoPolicy {
        let (likers_visible, count_visible) = (LikersVisible::Everyone, true);
        VideoPolicy { status, audience, author: Some(id("ava")), likers_visible, count_visible }
    }

    const STRANGER: Standing = Standing { friends: false, blocked: false, follows: false };
    const FRIEND: Standing = Standing { friends: true, blocked: false, follows: true };
    const BLOCKED: Standing = Standing { friends: true, blocked: true, follows: true };

    #[test]
    fn inv_23_a_video_is_seen_by_those_it_is_meant_for() {
        use Audience::{Author, Everyone, Friends};
        use Sight::{Gone, NotVisible, Visible};
        let (lin, ava) = (id("lin"), id("ava"));
        // audience, then what a stranger, a friend, a blocked friend, nobody in particular and the author see
        for (audience, published, gone) in [
            (Everyone, [Visible, Visible, NotVisible, Visible, Visible], [Gone, Gone, NotVisible, Gone, Gone]),
            (
                Friends,
                [NotVisible, Visible, NotVisible, NotVisible, Visible],
                [NotVisible, Gone, NotVisible, NotVisible, Gone],
            ),
            (
                Author,
                [NotVisible, NotVisible, NotVisible, NotVisible, Visible],
                [NotVisible, NotVisible, NotVisible, NotVisible, Gone],
            ),
        ] {
            let seen = |status| {
                let policy = video(status, audience);
                [
                    sight(&policy, Some(&lin), STRANGER),
                    sight(&policy, Some(&lin), FRIEND),
                    sight(&policy, Some(&lin), BLOCKED),
                    sight(&policy, None, STRANGER),
                    sight(&policy, Some(&ava), STRANGER),
                ]
            };
            assert_eq!(seen(VideoStatus::Published), published, "{audience:?}");
            assert_eq!(seen(VideoStatus::Gone), gone, "{audience:?}");
            assert_eq!(seen(VideoStatus::Unpublished), [NotVisible, NotVisible, NotVisible, NotVisible, Visible]);
        }
        assert_eq!(sight(&VideoPolicy::NOT_FOUND, Some(&ava), STRANGER), NotVisible);
    }

    #[test]
    fn inv_23_likers_and_counts_follow_the_authors_choice() {
        let (lin, ava) = (id("lin"), id("ava"));
        let mut policy = video(VideoStatus::Published, Audience::Everyone);
        for (choice, seen) in [
            (LikersVisible::Everyone, [true, true, true]),
            (LikersVisible::AuthorOnly, [false, true, false]),
            (LikersVisible::Nobody, [false, false, false]),
        ] {
            policy.likers_visible = choice;
            assert_eq!(
                [Some(&lin), Some(&ava), None].map(|viewer| may_list_likers(&policy, viewer)),
                seen,
                "{choice:?}"
            );
        }
        policy.count_visible = false;
        assert_eq!([Some(&lin), Some(&ava), None].map(|viewer| may_see_count(&policy, viewer)), [false, true, false]);
        assert!(!may_see_count(&VideoPolicy::NOT_FOUND, None), "no author is not nobody");
    }

    #[test]
    fn inv_23_scn_j03_accounts_are_listed_by_their_own_rules() {
        let (lin, mei) = (id("lin"), id("mei"));
        let open = AccountPolicy { active: true, is_private: false, listable: true };
        let follower = Standing { friends: false, blocked: false, follows: true };
        // what a stranger, a follower, a blocked follower, nobody in particular and the account itself see
        for (policy, seen) in [
            (open, [true, true, false, true, true]),
            (AccountPolicy { is_private: true, ..open }, [false, true, false, false, true]),
            (AccountPolicy { listable: false, ..open }, [false, false, false, false, true]),
            (AccountPolicy { active: false, ..open }, [false, false, false, false, false]),
        ] {
            let viewers = [
                (Some(&mei), STRANGER),
                (Some(&mei), follower),
                (Some(&mei), BLOCKED),
                (None, STRANGER),
                (Some(&lin), STRANGER),
            ];
            assert_eq!(
                viewers.map(|(viewer, standing)| may_be_listed(&lin, policy, viewer, standing)),
                seen,
                "{policy:?}"
            );
        }
    }
}
