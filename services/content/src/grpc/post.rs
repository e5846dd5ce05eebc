//! `PostService`.

use likewise_domain::id::UserId;
use likewise_domain::visibility::{Sight, Standing, sight};
use likewise_kit::cursor::Binding;
use likewise_kit::{auth, errors};
use likewise_proto::content::v1 as pb;
use likewise_proto::content::v1::post_service_server::PostService;
use tonic::{Code, Request, Response, Status};
use uuid::Uuid;

use super::page::{self, Pages};
use super::{NO_NUL, id, post_of, store_failed, wire};
use crate::act::{Act, NewPost, PostChanges};
use crate::app::Author;
use crate::model::{LikersVisible, PostStatus, Visibility};
use crate::store::{ListKey, Reader};

const CONTENT_BYTES_MAX: usize = 10_000;

/// The door.
pub struct PostDoor {
    /// Does the acts.
    pub author: Author,
    /// Reads videos.
    pub reader: Reader,
    /// Page tokens.
    pub pages: Pages,
}

/// Collects what is wrong with a request.
#[derive(Default)]
struct Faults(Vec<(String, String)>);

impl Faults {
    fn take<T>(&mut self, field: &str, parsed: Result<Option<T>, &'static str>) -> Option<T> {
        parsed.unwrap_or_else(|problem| {
            self.0.push((field.to_owned(), problem.to_owned()));
            None
        })
    }

    fn content(&mut self, text: Option<&str>) {
        if text.is_some_and(|text| text.len() > CONTENT_BYTES_MAX) {
            self.0.push(("content".to_owned(), format!("must have at most {CONTENT_BYTES_MAX} bytes")));
        }
        if text.is_some_and(|text| text.contains('\0')) {
            self.0.push(("content".to_owned(), NO_NUL.to_owned()));
        }
    }

    fn finish(self) -> Result<(), Status> {
        if self.0.is_empty() { Ok(()) } else { Err(errors::invalid_fields(self.0)) }
    }
}

impl PostDoor {
    async fn standing(&self, viewer: &str, author: &str) -> Result<Standing, Status> {
        let pairs = self.reader.pairs(viewer, &[author.to_owned()]).await.map_err(|error| store_failed(&error))?;
        let pair = pairs.into_iter().next().unwrap_or_default();
        Ok(Standing { friends: pair.friends, blocked: pair.blocked, follows: pair.follows })
    }

    async fn delete(&self, author: String, post: &str, on: bool) -> Result<Option<pb::Post>, Status> {
        let post = id("post_id", post)?;
        let post = post_of(self.author.perform(Act::DeletePost { author, post, on }).await)?;
        Ok(Some(wire::post(&post)))
    }
}

#[tonic::async_trait]
impl PostService for PostDoor {
    async fn create(&self, request: Request<pb::CreateRequest>) -> Result<Response<pb::CreateResponse>, Status> {
        let author_id = auth::user(&request)?;
        let request = request.into_inner();
        // A drawn id is time-ordered, which keeps indexes warm.
        let post_id =
            if request.post_id.is_empty() { Uuid::now_v7().to_string() } else { id("post_id", &request.post_id)? };
        let mut faults = Faults::default();
        let status = faults.take("status", wire::post_status(request.status)).unwrap_or(PostStatus::Published);
        if !matches!(status, PostStatus::Draft | PostStatus::UnderReview | PostStatus::Published) {
            faults.0.push(("status".to_owned(), "must be DRAFT, UNDER_REVIEW or PUBLISHED".to_owned()));
        }
        let visibility = faults.take("visibility", wire::visibility(request.visibility));
        let likers_visible = faults.take("likers_visible", wire::likers_visible(request.likers_visible));
        faults.content(Some(&request.content));
        faults.finish()?;
        let new = NewPost {
            post_id,
            author_id,
            content: request.content,
            status,
            visibility: visibility.unwrap_or(Visibility::Public),
            likers_visible: likers_visible.unwrap_or(LikersVisible::Everyone),
            count_visible: request.count_visible.unwrap_or(true),
        };
        let post = post_of(self.author.perform(Act::CreatePost(new)).await)?;
        Ok(Response::new(pb::CreateResponse { post: Some(wire::post(&post)) }))
    }

    async fn get(&self, request: Request<pb::GetRequest>) -> Result<Response<pb::GetResponse>, Status> {
        let viewer = auth::user(&request)?;
        let post_id = id("post_id", &request.get_ref().post_id)?;
        let missing = || errors::refused(Code::NotFound, "VIDEO_NOT_FOUND", "there is no such video for this viewer");
        let post = self.reader.post(&post_id).await.map_err(|error| store_failed(&error))?.ok_or_else(missing)?;
        let standing = self.standing(&viewer, &post.author_id).await?;
        let viewer = UserId::parse(&viewer).ok();
        match sight(&wire::rule(&post), viewer.as_ref(), standing) {
            Sight::Visible => Ok(Response::new(pb::GetResponse { post: Some(wire::post(&post)) })),
            Sight::Gone => {
                let message = "the video was deleted or taken down";
                Err(errors::refused(Code::FailedPrecondition, "VIDEO_GONE", message))
            }
            Sight::NotVisible => Err(missing()),
        }
    }

    async fn update(&self, request: Request<pb::UpdateRequest>) -> Result<Response<pb::UpdateResponse>, Status> {
        let author = auth::user(&request)?;
        let request = request.into_inner();
        let post = id("post_id", &request.post_id)?;
        let mut faults = Faults::default();
        let changes = PostChanges {
            status: faults.take("status", wire::post_status(request.status)),
            visibility: faults.take("visibility", wire::visibility(request.visibility)),
            likers_visible: faults.take("likers_visible", wire::likers_visible(request.likers_visible)),
            count_visible: request.count_visible,
            content: request.content,
        };
        faults.content(changes.content.as_deref());
        faults.finish()?;
        let act = Act::UpdatePost { author, post, version: request.version, changes };
        let post = post_of(self.author.perform(act).await)?;
        Ok(Response::new(pb::UpdateResponse { post: Some(wire::post(&post)) }))
    }

    async fn delete_post(
        &self,
        request: Request<pb::DeletePostRequest>,
    ) -> Result<Response<pb::DeletePostResponse>, Status> {
        let post = self.delete(auth::user(&request)?, &request.get_ref().post_id, true).await?;
        Ok(Response::new(pb::DeletePostResponse { post }))
    }

    async fn restore_post(
        &self,
        request: Request<pb::RestorePostRequest>,
    ) -> Result<Response<pb::RestorePostResponse>, Status> {
        let post = self.delete(auth::user(&request)?, &request.get_ref().post_id, false).await?;
        Ok(Response::new(pb::RestorePostResponse { post }))
    }

    async fn list_by_author(
        &self,
        request: Request<pb::ListByAuthorRequest>,
    ) -> Result<Response<pb::ListByAuthorResponse>, Status> {
        let viewer = auth::user(&request)?;
        let request = request.into_inner();
        let (author, size) = (id("author_id", &request.author_id)?, page::size(request.page_size)?);
        let rpc = "likewise.content.v1.PostService/ListByAuthor";
        let binding = Binding { rpc, caller: &viewer, filter: &author, generation: 0 };
        let after = self.pages.start(&binding, &request.page_token)?;
        let own = viewer == author;
        let standing = if own { Standing::default() } else { self.standing(&viewer, &author).await? };
        if standing.blocked {
            return Ok(Response::new(pb::ListByAuthorResponse::default()));
        }
        let rights = (own, standing.friends);
        let posts = self.reader.posts_by(&author, &after, rights, page::with_one_more(size)).await;
        let mut posts = posts.map_err(|error| store_failed(&error))?;
        let more = posts.len() > size;
        posts.truncate(size);
        let next_page_token = match posts.last() {
            Some(last) if more => self.pages.next(&binding, &ListKey { at: last.created_at, id: last.post_id.clone() }),
            _ => String::new(),
        };
        let posts = posts.iter().map(wire::post).collect();
        Ok(Response::new(pb::ListByAuthorResponse { posts, next_page_token }))
    }
}
