//! Committed relations, from the shard that owns the user.

use std::collections::HashMap;
use std::time::Duration;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::relation::LikeState;
use likewise_kit::clients::Outbound;
use likewise_proto::convert;
use likewise_proto::facts::v1 as wire;
use likewise_proto::facts::v1::relation_facts_service_client::RelationFactsServiceClient;
use time::OffsetDateTime;

use super::{Failure, timed};

const SERVICE: &str = "facts";
/// Most rows of one page, by the contract.
const PAGE_MAX: usize = 500;

/// A relation as committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    /// State now.
    pub state: LikeState,
    /// Effective version.
    pub version: u64,
}

/// Key of a row in a user's list: newest like first, then by video id, descending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LikedKey {
    /// When the relation entered LIKED.
    pub liked_at: OffsetDateTime,
    /// The video.
    pub video: VideoId,
}

/// A row of a user's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liked {
    /// Its place.
    pub key: LikedKey,
    /// Effective version.
    pub version: u64,
}

/// The facts.
#[derive(Clone)]
pub struct Facts {
    client: RelationFactsServiceClient<Outbound>,
    timeout: Duration,
}

impl Facts {
    /// Over a channel with our token.
    #[must_use]
    pub fn new(channel: Outbound, timeout: Duration) -> Self {
        Self { client: RelationFactsServiceClient::new(channel), timeout }
    }

    /// The relations of one user to up to 200 videos, all of them, in one call.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn relations(&self, user: &UserId, videos: &[VideoId]) -> Result<HashMap<VideoId, Relation>, Failure> {
        let request = wire::BatchGetRelationsRequest {
            user_id: user.as_str().to_owned(),
            video_ids: videos.iter().map(|video| video.as_str().to_owned()).collect(),
        };
        let answer = self.client.clone().batch_get_relations(timed(request, self.timeout)).await;
        let answer = answer.map_err(Failure::of(SERVICE))?.into_inner();
        let relation = |relation: wire::Relation| {
            let state = convert::parse_like_state(relation.state)?;
            Some((VideoId::parse(&relation.video_id).ok()?, Relation { state, version: relation.relation_version }))
        };
        let relations: HashMap<_, _> = answer.relations.into_iter().filter_map(relation).collect();
        if videos.iter().all(|video| relations.contains_key(video)) {
            Ok(relations)
        } else {
            Err(Failure::incomplete(SERVICE))
        }
    }

    /// What a user likes, newest first, behind a key. Fewer rows than `limit` are the end of the list.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn likes(&self, user: &UserId, after: Option<&LikedKey>, limit: usize) -> Result<Vec<Liked>, Failure> {
        let request = wire::ListUserLikesRequest {
            user_id: user.as_str().to_owned(),
            page_size: u32::try_from(limit.min(PAGE_MAX)).unwrap_or(1),
            after: after.map(|key| wire::UserLikesKey {
                state_changed_at: Some(convert::timestamp(key.liked_at)),
                video_id: key.video.as_str().to_owned(),
            }),
        };
        let answer = self.client.clone().list_user_likes(timed(request, self.timeout)).await;
        let answer = answer.map_err(Failure::of(SERVICE))?.into_inner();
        let liked = |relation: wire::Relation| {
            let liked_at = convert::parse_timestamp(relation.state_changed_at.as_ref()?)?;
            let video = VideoId::parse(&relation.video_id).ok()?;
            Some(Liked { key: LikedKey { liked_at, video }, version: relation.relation_version })
        };
        let likes: Option<_> = answer.relations.into_iter().map(liked).collect();
        likes.ok_or_else(|| Failure::incomplete(SERVICE))
    }
}
