//! What the policy of a video means for a like: pure rules over what the authority told and how old that is.

use std::time::Duration;

use likewise_domain::decide::PolicyRefusal;
use likewise_domain::id::UserId;
use likewise_domain::visibility::{Audience, Sight, Standing, VideoPolicy, VideoStatus, sight};

/// What the authority last told of a video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoSnapshot {
    /// The policy.
    pub policy: VideoPolicy,
    /// Grows with every change of the video; 0 for a video the authority does not know.
    pub version: u64,
}

/// Everybody whom an account blocks or who blocks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSet {
    /// The others.
    pub others: std::collections::HashSet<UserId>,
    /// There are more than the authority lists.
    pub truncated: bool,
    /// Grows with every change of the set.
    pub version: u64,
}

/// How old an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    /// Of a policy that serves without asking.
    pub fresh: Duration,
    /// The same for a video the authority does not know: it may be published any moment.
    pub missing: Duration,
    /// Of a policy that serves while the authority is away.
    pub grace: Duration,
}

/// Whether a snapshot of this age serves without asking. Only public, published videos and those that are gone do;
/// anything narrower is asked for each time, because it may have become narrower still.
#[must_use]
pub fn serves(snapshot: &VideoSnapshot, age: Duration, ages: Ages) -> bool {
    match snapshot.policy.status {
        VideoStatus::NotFound => age <= ages.missing,
        VideoStatus::Gone => age <= ages.fresh,
        VideoStatus::Published => snapshot.policy.audience == Audience::Everyone && age <= ages.fresh,
        VideoStatus::Unpublished => false,
    }
}

/// What has to be known of viewer and author before [`refusal`] can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// Whether one blocks the other.
    Blocks(UserId),
    /// Whether they are friends, and whether one blocks the other.
    Pair(UserId),
}

/// What the decision needs to know of the author's relation to `viewer`.
#[must_use]
pub fn need(policy: &VideoPolicy, viewer: &UserId) -> Need {
    match &policy.author {
        Some(author) if author != viewer => match policy.audience {
            Audience::Everyone => Need::Blocks(author.clone()),
            Audience::Friends => Need::Pair(author.clone()),
            Audience::Author => Need::Nothing,
        },
        _ => Need::Nothing,
    }
}

/// Why `viewer` may not like the video; `None` when nothing speaks against it.
#[must_use]
pub fn refusal(policy: &VideoPolicy, viewer: &UserId, standing: Standing) -> Option<PolicyRefusal> {
    if policy.author.is_none() || policy.status == VideoStatus::NotFound {
        return Some(PolicyRefusal::VideoNotFound);
    }
    match sight(policy, Some(viewer), standing) {
        Sight::Gone => Some(PolicyRefusal::VideoGone),
        // An author sees a draft, but nobody likes what is not published.
        Sight::Visible if policy.status == VideoStatus::Published => None,
        Sight::NotVisible if standing.blocked => {
            let unblocked = Standing { blocked: false, ..standing };
            match sight(policy, Some(viewer), unblocked) {
                Sight::NotVisible => Some(PolicyRefusal::VideoNotVisible),
                Sight::Visible | Sight::Gone => Some(PolicyRefusal::InteractionBlocked),
            }
        }
        Sight::Visible | Sight::NotVisible => Some(PolicyRefusal::VideoNotVisible),
    }
}

#[cfg(test)]
mod tests {
    use likewise_domain::visibility::LikersVisible;

    use super::*;

    fn id(text: &str) -> UserId {
        UserId::parse(text).expect("an id")
    }

    fn video(status: VideoStatus, audience: Audience) -> VideoPolicy {
        let (likers_visible, count_visible) = (LikersVisible::Everyone, true);
        VideoPolicy { status, audience, author: Some(id("ava")), likers_visible, count_visible }
    }

    #[test]
    fn inv_07_a_like_needs_a_published_video_that_its_user_may_see() {
        use Audience::{Author, Everyone, Friends};
        use PolicyRefusal::{InteractionBlocked, VideoGone, VideoNotVisible};
        let stranger = Standing::default();
        let friend = Standing { friends: true, blocked: false, follows: true };
        let blocked = Standing { blocked: true, ..friend };
        // audience and status, then what a stranger, a friend, a blocked friend and the author are told
        for (audience, status, told) in [
            (Everyone, VideoStatus::Published, [None, None, Some(InteractionBlocked), None]),
            (Friends, VideoStatus::Published, [Some(VideoNotVisible), None, Some(InteractionBlocked), None]),
            (
                Author,
                VideoStatus::Published,
                [Some(VideoNotVisible), Some(VideoNotVisible), Some(VideoNotVisible), None],
            ),
            (
                Everyone,
                VideoStatus::Gone,
                [Some(VideoGone), Some(VideoGone), Some(InteractionBlocked), Some(VideoGone)],
            ),
            (Everyone, VideoStatus::Unpublished, [Some(VideoNotVisible); 4]),
        ] {
            let policy = video(status, audience);
            let asked = [(id("lin"), stranger), (id("lin"), friend), (id("lin"), blocked), (id("ava"), stranger)];
            let answers = asked.map(|(viewer, standing)| refusal(&policy, &viewer, standing));
            assert_eq!(answers, told, "{audience:?} {status:?}");
        }
        let missing = refusal(&VideoPolicy::NOT_FOUND, &id("lin"), stranger);
        assert_eq!(missing, Some(PolicyRefusal::VideoNotFound));
    }

    #[test]
    fn only_what_is_asked_for_is_needed() {
        let everyone = video(VideoStatus::Published, Audience::Everyone);
        assert_eq!(need(&everyone, &id("lin")), Need::Blocks(id("ava")));
        assert_eq!(need(&everyone, &id("ava")), Need::Nothing);
        let friends = video(VideoStatus::Published, Audience::Friends);
        assert_eq!(need(&friends, &id("lin")), Need::Pair(id("ava")));
        assert_eq!(need(&video(VideoStatus::Published, Audience::Author), &id("lin")), Need::Nothing);
        assert_eq!(need(&VideoPolicy::NOT_FOUND, &id("lin")), Need::Nothing);
    }

    #[test]
    fn narrow_videos_are_asked_for_every_time() {
        let ages =
            Ages { fresh: Duration::from_secs(5), missing: Duration::from_secs(1), grace: Duration::from_secs(600) };
        let serves_at = |status, audience, seconds| {
            let snapshot = VideoSnapshot { policy: video(status, audience), version: 1 };
            serves(&snapshot, Duration::from_secs(seconds), ages)
        };
        assert!(serves_at(VideoStatus::Published, Audience::Everyone, 5));
        assert!(!serves_at(VideoStatus::Published, Audience::Everyone, 6));
        assert!(!serves_at(VideoStatus::Published, Audience::Friends, 0));
        assert!(!serves_at(VideoStatus::Published, Audience::Author, 0));
        assert!(!serves_at(VideoStatus::Unpublished, Audience::Everyone, 0));
        assert!(serves_at(VideoStatus::Gone, Audience::Everyone, 5));
        assert!(!serves_at(VideoStatus::NotFound, Audience::Everyone, 2));
    }
}
