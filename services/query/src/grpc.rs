//! `LikeQueryService`: what end users read. The user is always the token's.

mod answer;
mod cursor;
mod request;

use std::sync::Arc;
use std::time::Duration;

use likewise_kit::auth::{self, Identity};
use likewise_kit::cursor::CursorKeys;
use likewise_kit::{clients, errors};
use likewise_proto::query::v1 as wire;
use likewise_proto::query::v1::like_query_service_server::LikeQueryService;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::app::likes::Likes;
use crate::app::lists::Lists;
use crate::clients::{Failure, ReverseIndex};
use crate::count::Viewer;

/// The door.
pub struct Door {
    /// Hearts and numbers.
    pub likes: Likes,
    /// Lists of the caller's likes.
    pub lists: Lists,
    /// Lists of likers.
    pub reverse: ReverseIndex,
    /// Keys of page tokens.
    pub cursors: Arc<CursorKeys>,
    /// Life of a page token.
    pub cursor_ttl: Duration,
    /// Numbers of public videos are answered without a token.
    pub anonymous_counts: bool,
}

#[tonic::async_trait]
impl LikeQueryService for Door {
    async fn batch_get_likes(
        &self,
        request: Request<wire::BatchGetLikesRequest>,
    ) -> Result<Response<wire::BatchGetLikesResponse>, Status> {
        let user = request::user(&auth::user(&request)?)?;
        let (batch, position) = request::likes(&request.into_inner())?;
        let page = self.likes.page(user, batch, position, OffsetDateTime::now_utc()).await.map_err(told)?;
        let likes = page.into_iter().map(|(video, relation, shown)| answer::my_like(&video, relation, shown)).collect();
        Ok(Response::new(wire::BatchGetLikesResponse { likes }))
    }

    async fn batch_get_counts(
        &self,
        request: Request<wire::BatchGetCountsRequest>,
    ) -> Result<Response<wire::BatchGetCountsResponse>, Status> {
        let viewer = self.viewer(&request)?;
        let (batch, position) = request::counts(&request.into_inner())?;
        let counts = self.likes.counts(&viewer, batch, position, OffsetDateTime::now_utc()).await.map_err(told)?;
        let counts = counts.into_iter().map(|(video, shown)| answer::video_count(&video, shown)).collect();
        Ok(Response::new(wire::BatchGetCountsResponse { counts }))
    }

    async fn list_my_likes(
        &self,
        request: Request<wire::ListMyLikesRequest>,
    ) -> Result<Response<wire::ListMyLikesResponse>, Status> {
        let user = request::user(&auth::user(&request)?)?;
        let request = request.into_inner();
        let size = request::page_size(request.page_size)?;
        let now = OffsetDateTime::now_utc();
        let bound = cursor::my_likes(&user);
        let after = cursor::open(&self.cursors, &bound, now, &request.page_token)?;
        let after = after.map(|payload| cursor::read_key(&payload)).transpose()?;
        let page = self.lists.my_likes(&user, usize::try_from(size).unwrap_or(1), after).await.map_err(told)?;
        let next = page.next.as_ref().map(cursor::write_key);
        let token = cursor::seal(&self.cursors, &bound, now + self.cursor_ttl, next.as_deref());
        Ok(Response::new(answer::my_likes(page, token)))
    }

    async fn list_likers(
        &self,
        request: Request<wire::ListLikersRequest>,
    ) -> Result<Response<wire::ListLikersResponse>, Status> {
        let user = request::user(&auth::user(&request)?)?;
        let request = request.into_inner();
        let (video, size) = request::likers(&request)?;
        let now = OffsetDateTime::now_utc();
        let bound = cursor::likers(&user, &video);
        let after = cursor::open(&self.cursors, &bound, now, &request.page_token)?;
        let page = self.reverse.likers(&video, &user, size, after.as_deref()).await.map_err(told)?;
        let token = cursor::seal(&self.cursors, &bound, now + self.cursor_ttl, page.next.as_deref());
        Ok(Response::new(answer::likers(page, token)))
    }
}

impl Door {
    /// Anybody may ask for numbers where that is configured; services and operators see all of them.
    fn viewer<T>(&self, request: &Request<T>) -> Result<Viewer, Status> {
        match auth::identity(request) {
            Identity::Service { .. } | Identity::Operator { .. } => Ok(Viewer::Entitled),
            Identity::User(_) => Ok(Viewer::User(request::user(&auth::user(request)?)?)),
            Identity::Anonymous if self.anonymous_counts => Ok(Viewer::Anonymous),
            Identity::Anonymous => Err(errors::unauthenticated("TOKEN_MISSING", "this call needs a bearer token")),
        }
    }
}

/// What the caller is told; a refusal of another service goes through where the caller can do something about it.
// By value: it is the last step of every call.
#[allow(clippy::needless_pass_by_value)]
fn told(failure: Failure) -> Status {
    clients::failure(failure.service, &failure.status)
}
