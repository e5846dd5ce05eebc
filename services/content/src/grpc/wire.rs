//! Between wire and our own types. The numbers of both are the same; a test holds them together.

use likewise_domain::visibility as domain;
use likewise_proto::content::v1 as content;
use likewise_proto::convert::timestamp;
use likewise_proto::policy::v1 as policy;

use crate::model::{Account, LikersVisible, LikesVisible, Pair, Post, PostStatus, Visibility};
use crate::store::{AccountPolicy, PostPolicy};

fn status(status: PostStatus, deleted: bool) -> i32 {
    if deleted { policy::VideoStatus::Deleted.into() } else { i32::from(status.code()) }
}

/// Policy of an account.
#[must_use]
pub fn account(account: &Account) -> policy::AccountPolicy {
    policy::AccountPolicy {
        user_id: account.user_id.clone(),
        state: i32::from(account.state.code()),
        is_private: account.is_private,
        listable: account.listable,
        likes_visible: i32::from(account.likes_visible.code()),
        version: account.version,
    }
}

/// Policy of a video.
#[must_use]
pub fn video(post: &Post) -> policy::VideoPolicy {
    policy::VideoPolicy {
        video_id: post.post_id.clone(),
        status: status(post.status, post.deleted_at.is_some()),
        visibility: seen_by(post.status, post.visibility, post.deleted_at.is_some()),
        author_id: post.author_id.clone(),
        likers_visible: i32::from(post.likers_visible.code()),
        count_visible: post.count_visible,
        version: post.version,
    }
}

/// A video.
#[must_use]
pub fn post(post: &Post) -> content::Post {
    content::Post {
        post_id: post.post_id.clone(),
        author_id: post.author_id.clone(),
        content: post.content.clone(),
        status: status(post.status, post.deleted_at.is_some()),
        visibility: i32::from(post.visibility.code()),
        likers_visible: i32::from(post.likers_visible.code()),
        count_visible: post.count_visible,
        version: post.version,
        created_at: Some(timestamp(post.created_at)),
        updated_at: Some(timestamp(post.updated_at)),
    }
}

pub(super) fn account_policy(stored: AccountPolicy) -> policy::AccountPolicy {
    policy::AccountPolicy {
        user_id: stored.user_id,
        state: i32::from(stored.state.code()),
        is_private: stored.is_private,
        listable: stored.listable,
        likes_visible: i32::from(stored.likes_visible.code()),
        version: stored.version,
    }
}

pub(super) fn no_account(user_id: &str) -> policy::AccountPolicy {
    policy::AccountPolicy {
        user_id: user_id.to_owned(),
        state: policy::AccountState::NotFound.into(),
        ..Default::default()
    }
}

pub(super) fn video_policy(stored: PostPolicy) -> policy::VideoPolicy {
    policy::VideoPolicy {
        video_id: stored.post_id,
        status: status(stored.status, stored.deleted),
        visibility: seen_by(stored.status, stored.visibility, stored.deleted),
        author_id: stored.author_id,
        likers_visible: i32::from(stored.likers_visible.code()),
        count_visible: stored.count_visible,
        version: stored.version,
    }
}

/// Who may be told of a video. One that was deleted before others could see it is its author's secret.
fn seen_by(status: PostStatus, visibility: Visibility, deleted: bool) -> i32 {
    let secret = deleted && matches!(status, PostStatus::Draft | PostStatus::Scheduled | PostStatus::UnderReview);
    i32::from(if secret { Visibility::Private } else { visibility }.code())
}

pub(super) fn no_video(video_id: &str) -> policy::VideoPolicy {
    policy::VideoPolicy {
        video_id: video_id.to_owned(),
        status: policy::VideoStatus::NotFound.into(),
        ..Default::default()
    }
}

pub(super) fn pair(pair: &Pair) -> policy::Pair {
    policy::Pair {
        other_id: pair.other_id.clone(),
        friends: pair.friends,
        blocked: pair.blocked,
        follows: pair.follows,
    }
}

/// What the shared rule of visibility asks of a video.
pub(super) fn rule(post: &Post) -> domain::VideoPolicy {
    likewise_proto::convert::visibility::video_policy(&video(post))
}

/// A number of a wire enumeration: `None` for UNSPECIFIED, an error for numbers we do not know.
pub(super) fn number<T>(wire: i32, parse: impl Fn(i16) -> Option<T>) -> Result<Option<T>, &'static str> {
    if wire == 0 {
        return Ok(None);
    }
    i16::try_from(wire).ok().and_then(parse).map(Some).ok_or("is not one of the values a caller may set")
}

pub(super) fn likes_visible(wire: i32) -> Result<Option<LikesVisible>, &'static str> {
    number(wire, LikesVisible::from_code)
}

pub(super) fn visibility(wire: i32) -> Result<Option<Visibility>, &'static str> {
    number(wire, Visibility::from_code)
}

pub(super) fn likers_visible(wire: i32) -> Result<Option<LikersVisible>, &'static str> {
    number(wire, LikersVisible::from_code)
}

pub(super) fn post_status(wire: i32) -> Result<Option<PostStatus>, &'static str> {
    number(wire, PostStatus::from_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AccountState;

    #[test]
    fn our_numbers_are_those_of_the_contract() {
        let named = |name: &str, prefix: &str| format!("{prefix}{}", name.to_uppercase());
        for state in AccountState::ALL {
            let wire = policy::AccountState::try_from(i32::from(state.code())).expect("known to the contract");
            assert_eq!(wire.as_str_name(), named(&format!("{state:?}"), "ACCOUNT_STATE_"));
        }
        for visible in LikesVisible::ALL {
            let wire = policy::LikesVisible::try_from(i32::from(visible.code())).expect("known to the contract");
            assert_eq!(wire.as_str_name(), named(&format!("{visible:?}"), "LIKES_VISIBLE_"));
        }
        for visibility in Visibility::ALL {
            let wire = policy::VideoVisibility::try_from(i32::from(visibility.code())).expect("known to the contract");
            assert_eq!(wire.as_str_name(), named(&format!("{visibility:?}"), "VIDEO_VISIBILITY_"));
        }
        let spelled = |name: String| match name.as_str() {
            "UnderReview" => "UNDER_REVIEW".to_owned(),
            "TakenDown" => "TAKEN_DOWN".to_owned(),
            "AuthorOnly" => "AUTHOR_ONLY".to_owned(),
            other => other.to_uppercase(),
        };
        for status in PostStatus::ALL {
            let wire = policy::VideoStatus::try_from(i32::from(status.code())).expect("known to the contract");
            assert_eq!(wire.as_str_name(), format!("VIDEO_STATUS_{}", spelled(format!("{status:?}"))));
        }
        for visible in LikersVisible::ALL {
            let wire = policy::LikersVisible::try_from(i32::from(visible.code())).expect("known to the contract");
            assert_eq!(wire.as_str_name(), format!("LIKERS_VISIBLE_{}", spelled(format!("{visible:?}"))));
        }
    }
}
