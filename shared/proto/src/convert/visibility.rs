//! Policies of the wire as the rules of [`likewise_domain::visibility`] take them. What an authority does not say, or says in
//! words of a later contract, counts as the most closed choice.

use likewise_domain::id::UserId;
use likewise_domain::visibility::{AccountPolicy, Audience, LikersVisible, Standing, VideoPolicy, VideoStatus};

use crate::policy::v1 as wire;

/// Rules of a video.
#[must_use]
pub fn video_policy(policy: &wire::VideoPolicy) -> VideoPolicy {
    let status = match policy.status() {
        wire::VideoStatus::Unspecified | wire::VideoStatus::NotFound => VideoStatus::NotFound,
        wire::VideoStatus::Draft | wire::VideoStatus::Scheduled | wire::VideoStatus::UnderReview => {
            VideoStatus::Unpublished
        }
        wire::VideoStatus::Published => VideoStatus::Published,
        wire::VideoStatus::TakenDown | wire::VideoStatus::Deleted => VideoStatus::Gone,
    };
    let author = UserId::parse(&policy.author_id).ok();
    if status == VideoStatus::NotFound || author.is_none() {
        return VideoPolicy::NOT_FOUND;
    }
    let audience = match policy.visibility() {
        wire::VideoVisibility::Public => Audience::Everyone,
        wire::VideoVisibility::Friends => Audience::Friends,
        wire::VideoVisibility::Private | wire::VideoVisibility::Unspecified => Audience::Author,
    };
    let likers_visible = match policy.likers_visible() {
        wire::LikersVisible::Everyone => LikersVisible::Everyone,
        wire::LikersVisible::AuthorOnly => LikersVisible::AuthorOnly,
        wire::LikersVisible::Nobody | wire::LikersVisible::Unspecified => LikersVisible::Nobody,
    };
    VideoPolicy { status, audience, author, likers_visible, count_visible: policy.count_visible }
}

/// Rules of an account.
#[must_use]
pub fn account_policy(policy: &wire::AccountPolicy) -> AccountPolicy {
    AccountPolicy {
        active: policy.state() == wire::AccountState::Active,
        is_private: policy.is_private,
        listable: policy.listable,
    }
}

/// How a viewer stands to another account.
#[must_use]
pub fn standing(pair: &wire::Pair) -> Standing {
    Standing { friends: pair.friends, blocked: pair.blocked, follows: pair.follows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inv_23_what_is_not_said_is_closed() {
        let published = wire::VideoPolicy {
            video_id: "V1".to_owned(),
            status: wire::VideoStatus::Published.into(),
            author_id: "ava".to_owned(),
            ..Default::default()
        };
        let policy = video_policy(&published);
        assert_eq!((policy.audience, policy.likers_visible), (Audience::Author, LikersVisible::Nobody));
        assert!(!policy.count_visible);
        let later = wire::VideoPolicy { visibility: 99, likers_visible: 99, ..published.clone() };
        assert_eq!(video_policy(&later), policy, "words of a later contract");
        assert_eq!(video_policy(&wire::VideoPolicy { status: 99, ..published.clone() }), VideoPolicy::NOT_FOUND);
        assert_eq!(video_policy(&wire::VideoPolicy { author_id: String::new(), ..published }), VideoPolicy::NOT_FOUND);
        assert!(!account_policy(&wire::AccountPolicy { listable: true, ..Default::default() }).active);
    }
}
