//! `RelationFactsService`: for other services, never for end users.

use std::sync::Arc;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::relation::LikeState;
use likewise_kit::{auth, errors};
use likewise_proto::convert;
use likewise_proto::facts::v1::relation_facts_service_server::RelationFactsService;
use likewise_proto::facts::v1::{
    BatchGetRelationsRequest, BatchGetRelationsResponse, ListUserLikesRequest, ListUserLikesResponse, Relation,
};
use tonic::{Request, Response, Status};

use super::{Faults, shard_away, wire_state, within};
use crate::app::shards::{Shard, Shards};
use crate::config::Settings;
use crate::store::facts;

/// Videos in one read; each costs an index probe.
const VIDEOS_MAX: usize = 200;
/// Rows of one page, and when the caller does not say.
const PAGE_SIZE_MAX: u32 = 500;
const PAGE_SIZE_DEFAULT: u32 = 100;

/// Committed relations.
pub(crate) struct Facts {
    pub(crate) shards: Arc<Shards>,
    pub(crate) settings: Arc<Settings>,
}

impl Facts {
    /// The shard that owns a user. One that has not been compared with the configuration is not read.
    fn shard(&self, user: &UserId) -> Result<&Arc<Shard>, Status> {
        let shard = self.shards.of(user).ok_or_else(errors::internal)?;
        if shard.is_up() { Ok(shard) } else { Err(shard_away()) }
    }
}

#[tonic::async_trait]
impl RelationFactsService for Facts {
    async fn batch_get_relations(
        &self,
        request: Request<BatchGetRelationsRequest>,
    ) -> Result<Response<BatchGetRelationsResponse>, Status> {
        auth::service(&request)?;
        let message = request.into_inner();
        let mut faults = Faults::default();
        let user = faults.id("user_id", UserId::parse(&message.user_id));
        if message.video_ids.is_empty() || message.video_ids.len() > VIDEOS_MAX {
            faults.add("video_ids", format!("must hold 1..{VIDEOS_MAX} ids"));
        }
        let mut videos = Vec::with_capacity(message.video_ids.len());
        for (place, id) in message.video_ids.iter().take(VIDEOS_MAX).enumerate() {
            match VideoId::parse(id) {
                Ok(id) => videos.push(id),
                Err(error) => faults.add(&format!("video_ids[{place}]"), error.to_string()),
            }
        }
        let (Some(user), true) = (user, faults.0.is_empty()) else { return Err(faults.refuse()) };
        let shard = self.shard(&user)?;
        let found = within(self.settings.read_timeout(), facts::relations(&shard.pool, &user, &videos)).await?;
        let relations = message.video_ids.into_iter().zip(&found).map(|(video_id, current)| {
            let (state, relation_version, state_changed_at) = wire_state(current);
            Relation { video_id, state, relation_version, state_changed_at }
        });
        Ok(Response::new(BatchGetRelationsResponse { relations: relations.collect() }))
    }

    async fn list_user_likes(
        &self,
        request: Request<ListUserLikesRequest>,
    ) -> Result<Response<ListUserLikesResponse>, Status> {
        auth::service(&request)?;
        let message = request.into_inner();
        let mut faults = Faults::default();
        let user = faults.id("user_id", UserId::parse(&message.user_id));
        let page_size = match message.page_size {
            0 => PAGE_SIZE_DEFAULT,
            size => size,
        };
        if page_size > PAGE_SIZE_MAX {
            faults.add("page_size", format!("must be at most {PAGE_SIZE_MAX}"));
        }
        let after = message.after.as_ref().and_then(|key| {
            let at = key.state_changed_at.as_ref().and_then(convert::parse_timestamp);
            if at.is_none() {
                faults.add("after.state_changed_at", "must be a time");
            }
            Some((at?, faults.id("after.video_id", VideoId::parse(&key.video_id))?))
        });
        let (Some(user), true) = (user, faults.0.is_empty()) else { return Err(faults.refuse()) };
        let after = after.as_ref().map(|(at, video)| (*at, video.as_str()));
        let shard = self.shard(&user)?;
        let found = facts::likes(&shard.pool, &user, after, page_size.into());
        let relations = within(self.settings.read_timeout(), found).await?.into_iter().map(|liked| Relation {
            video_id: liked.video_id,
            state: convert::like_state(LikeState::Liked).into(),
            relation_version: liked.version,
            state_changed_at: Some(convert::timestamp(liked.changed_at)),
        });
        Ok(Response::new(ListUserLikesResponse { relations: relations.collect() }))
    }
}
