//! `FollowService`. A follow of a private account is approved at once; asking for approval comes with its own issue.

use likewise_kit::auth;
use likewise_kit::cursor::Binding;
use likewise_proto::content::v1 as pb;
use likewise_proto::content::v1::follow_service_server::FollowService;
use likewise_proto::convert::timestamp;
use tonic::{Request, Response, Status};

use super::page::{self, Pages};
use super::{failed, id, store_failed};
use crate::act::Act;
use crate::app::Author;
use crate::store::{Edge, ListKey, Reader};

/// The door.
pub struct FollowDoor {
    /// Does the acts.
    pub author: Author,
    /// Reads the lists.
    pub reader: Reader,
    /// Page tokens.
    pub pages: Pages,
}

impl FollowDoor {
    async fn follow(&self, by: String, other: &str, on: bool) -> Result<(), Status> {
        let other = id("user_id", other)?;
        self.author.perform(Act::Follow { by, other, on }).await.map(drop).map_err(|error| failed(&error))
    }

    /// Cuts a page and seals the key of its last row.
    fn cut(&self, mut edges: Vec<Edge>, size: usize, binding: &Binding<'_>) -> (Vec<pb::FollowEdge>, String) {
        let more = edges.len() > size;
        edges.truncate(size);
        let next = match edges.last() {
            Some(last) if more => self.pages.next(binding, &ListKey { at: last.at, id: last.user_id.clone() }),
            _ => String::new(),
        };
        let edges = edges
            .into_iter()
            .map(|edge| pb::FollowEdge { user_id: edge.user_id, followed_at: Some(timestamp(edge.at)) });
        (edges.collect(), next)
    }
}

#[tonic::async_trait]
impl FollowService for FollowDoor {
    async fn follow(&self, request: Request<pb::FollowRequest>) -> Result<Response<pb::FollowResponse>, Status> {
        let by = auth::user(&request)?;
        self.follow(by, &request.get_ref().user_id, true).await?;
        Ok(Response::new(pb::FollowResponse {}))
    }

    async fn unfollow(&self, request: Request<pb::UnfollowRequest>) -> Result<Response<pb::UnfollowResponse>, Status> {
        let by = auth::user(&request)?;
        self.follow(by, &request.get_ref().user_id, false).await?;
        Ok(Response::new(pb::UnfollowResponse {}))
    }

    async fn list_followers(
        &self,
        request: Request<pb::ListFollowersRequest>,
    ) -> Result<Response<pb::ListFollowersResponse>, Status> {
        let caller = auth::user(&request)?;
        let request = request.into_inner();
        let (user, size) = (id("user_id", &request.user_id)?, page::size(request.page_size)?);
        let rpc = "likewise.content.v1.FollowService/ListFollowers";
        let binding = Binding { rpc, caller: &caller, filter: &user, generation: 0 };
        let after = self.pages.start(&binding, &request.page_token)?;
        let edges = self.reader.followers(&user, &after, page::with_one_more(size)).await;
        let (edges, next_page_token) = self.cut(edges.map_err(|error| store_failed(&error))?, size, &binding);
        Ok(Response::new(pb::ListFollowersResponse { edges, next_page_token }))
    }

    async fn list_following(
        &self,
        request: Request<pb::ListFollowingRequest>,
    ) -> Result<Response<pb::ListFollowingResponse>, Status> {
        let caller = auth::user(&request)?;
        let request = request.into_inner();
        let (user, size) = (id("user_id", &request.user_id)?, page::size(request.page_size)?);
        let rpc = "likewise.content.v1.FollowService/ListFollowing";
        let binding = Binding { rpc, caller: &caller, filter: &user, generation: 0 };
        let after = self.pages.start(&binding, &request.page_token)?;
        let edges = self.reader.following(&user, &after, page::with_one_more(size)).await;
        let (edges, next_page_token) = self.cut(edges.map_err(|error| store_failed(&error))?, size, &binding);
        Ok(Response::new(pb::ListFollowingResponse { edges, next_page_token }))
    }
}
