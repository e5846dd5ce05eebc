//! Answers in the words of the contract.

use likewise_domain::id::VideoId;
use likewise_domain::lane::Offset;
use likewise_domain::merge::LikerKey;
use likewise_proto::convert;
use likewise_proto::query::v1 as wire;
use likewise_proto::types::v1::LaneOffset;

use crate::app::lists::{Item, MyLikes};
use crate::clients::{LikerPage, Relation};
use crate::count::{CountVisibility, Freshness, Shown};

pub(super) fn my_like(video: &VideoId, relation: Relation, shown: Shown) -> wire::MyLike {
    wire::MyLike {
        video_id: video.as_str().to_owned(),
        my_state: convert::like_state(relation.state).into(),
        relation_version: relation.version,
        count: Some(count(shown)),
    }
}

pub(super) fn video_count(video: &VideoId, shown: Shown) -> wire::VideoCount {
    wire::VideoCount { video_id: video.as_str().to_owned(), count: Some(count(shown)) }
}

fn count(shown: Shown) -> wire::Count {
    let visibility = match shown.visibility {
        None => wire::CountVisibility::Unspecified,
        Some(CountVisibility::Visible) => wire::CountVisibility::Visible,
        Some(CountVisibility::HiddenByAuthor) => wire::CountVisibility::HiddenByAuthor,
        Some(CountVisibility::NotVisible) => wire::CountVisibility::NotVisible,
        Some(CountVisibility::VideoGone) => wire::CountVisibility::VideoGone,
    };
    let freshness = match shown.freshness {
        None => wire::CountFreshness::Unspecified,
        Some(Freshness::Fresh) => wire::CountFreshness::Fresh,
        Some(Freshness::Stale) => wire::CountFreshness::Stale,
        Some(Freshness::Approximate) => wire::CountFreshness::Approximate,
    };
    let mut count = wire::Count {
        visibility: visibility.into(),
        freshness: freshness.into(),
        covers_position: shown.covers,
        ..wire::Count::default()
    };
    if let Some(reading) = shown.reading {
        let numbers = &reading.numbers;
        count.display = Some(numbers.display);
        count.raw = shown.parts.then_some(numbers.raw);
        count.risk_hidden = shown.parts.then_some(numbers.risk_hidden);
        count.policy_hidden = shown.parts.then_some(numbers.policy_hidden);
        count.generated_at = Some(convert::timestamp(numbers.generated_at));
        count.snapshot_id.clone_from(&numbers.snapshot_id);
    }
    count
}

pub(super) fn my_likes(page: MyLikes, next_page_token: String) -> wire::ListMyLikesResponse {
    let liked = |Item { liked, gone }| wire::LikedVideo {
        video_id: liked.key.video.as_str().to_owned(),
        liked_at: Some(convert::timestamp(liked.key.liked_at)),
        relation_version: liked.version,
        status: if gone { wire::LikedVideoStatus::Gone } else { wire::LikedVideoStatus::Available }.into(),
    };
    wire::ListMyLikesResponse {
        likes: page.items.into_iter().map(liked).collect(),
        next_page_token,
        hidden_by_policy: u32::try_from(page.hidden).unwrap_or(u32::MAX),
    }
}

pub(super) fn likers(page: LikerPage, next_page_token: String) -> wire::ListLikersResponse {
    let liker = |key: LikerKey| wire::Liker {
        user_id: key.user_id.as_str().to_owned(),
        liked_at: Some(convert::timestamp(key.liked_at)),
    };
    let watermark = |(lane, Offset { epoch, seq })| LaneOffset { lane, epoch: epoch.into(), seq };
    wire::ListLikersResponse {
        likers: page.likers.into_iter().map(liker).collect(),
        next_page_token,
        hidden_by_policy: page.hidden,
        index_watermarks: page.watermarks.into_iter().map(watermark).collect(),
    }
}
