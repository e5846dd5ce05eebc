//! `RelationFactsService`: for other services, never for end users.

use std::sync::Arc;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::relation::LikeState;
use likewise_kit::auth::{self, Identity, Role};
use likewise_kit::errors;
use likewise_kit::pg::Servers;
use likewise_proto::convert;
use likewise_proto::facts::v1::relation_facts_service_server::RelationFactsService;
use likewise_proto::facts::v1::{
    AcquireWriteBarrierRequest, AcquireWriteBarrierResponse, BatchGetRelationsRequest, BatchGetRelationsResponse,
    FindEventRequest, FindEventResponse, FindOperationRequest, FindOperationResponse, GetShardWatermarksRequest,
    GetShardWatermarksResponse, ListUserLikesRequest, ListUserLikesResponse, ProveWriteBarrierRequest,
    ProveWriteBarrierResponse, Relation, ReleaseWriteBarrierRequest, ReleaseWriteBarrierResponse, ScanRelationsRequest,
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::scan::Scan;
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
    pub(crate) servers: Servers,
    /// Room for scans and searches of whole shards.
    pub(crate) scans: Arc<Semaphore>,
}

/// The service or the operator who calls, as it is kept.
fn who<T>(request: &Request<T>, role: Role) -> Result<String, Status> {
    let name = auth::service_or_operator(request, role)?;
    let kind = if matches!(auth::identity(request), Identity::Service { .. }) { "service" } else { "operator" };
    Ok(format!("{kind}:{name}"))
}

impl Facts {
    /// A shard by its number.
    pub(super) fn numbered(&self, number: u32) -> Result<&Arc<Shard>, Status> {
        let shard = usize::try_from(number).ok().and_then(|number| self.shards.all().get(number));
        let shard = shard.ok_or_else(|| errors::invalid_field("shard", "there is no such shard"))?;
        if shard.is_up() { Ok(shard) } else { Err(shard_away()) }
    }

    /// The shard that owns a user. One that has not been compared with the configuration is not read.
    pub(super) fn shard(&self, user: &UserId) -> Result<&Arc<Shard>, Status> {
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

    type ScanRelationsStream = Scan;

    async fn scan_relations(&self, request: Request<ScanRelationsRequest>) -> Result<Response<Scan>, Status> {
        auth::service(&request)?;
        self.begin_scan(request.get_ref().shard).await
    }

    async fn get_shard_watermarks(
        &self,
        request: Request<GetShardWatermarksRequest>,
    ) -> Result<Response<GetShardWatermarksResponse>, Status> {
        auth::service_or_operator(&request, Role::Viewer)?;
        Ok(Response::new(self.all_watermarks().await))
    }

    async fn acquire_write_barrier(
        &self,
        request: Request<AcquireWriteBarrierRequest>,
    ) -> Result<Response<AcquireWriteBarrierResponse>, Status> {
        let who = who(&request, Role::Operator)?;
        self.acquire(&who, request.into_inner()).await.map(Response::new)
    }

    async fn prove_write_barrier(
        &self,
        request: Request<ProveWriteBarrierRequest>,
    ) -> Result<Response<ProveWriteBarrierResponse>, Status> {
        let who = who(&request, Role::Operator)?;
        self.prove(&who, request.into_inner()).await.map(Response::new)
    }

    async fn release_write_barrier(
        &self,
        request: Request<ReleaseWriteBarrierRequest>,
    ) -> Result<Response<ReleaseWriteBarrierResponse>, Status> {
        let who = who(&request, Role::Operator)?;
        self.release(&who, request.into_inner()).await.map(Response::new)
    }

    async fn find_operation(
        &self,
        request: Request<FindOperationRequest>,
    ) -> Result<Response<FindOperationResponse>, Status> {
        auth::service_or_operator(&request, Role::Viewer)?;
        self.operation(request.into_inner()).await.map(Response::new)
    }

    async fn find_event(&self, request: Request<FindEventRequest>) -> Result<Response<FindEventResponse>, Status> {
        auth::service_or_operator(&request, Role::Viewer)?;
        self.event(request.into_inner()).await.map(Response::new)
    }
}
