//! `ContentAdminService`: acts of operators, each with its reason.

use likewise_kit::auth::Role;
use likewise_kit::{auth, errors};
use likewise_proto::content::v1 as pb;
use likewise_proto::content::v1::content_admin_service_server::ContentAdminService;
use tonic::{Request, Response, Status};

use super::{NO_NUL, account_of, id, post_of, wire};
use crate::act::{Act, Moderator};
use crate::app::Author;
use crate::model::{AccountState, PostStatus};

const REASON_BYTES_MAX: usize = 500;

/// The door.
pub struct AdminDoor {
    /// Does the acts.
    pub author: Author,
}

fn moderator<T>(request: &Request<T>, reason: &str) -> Result<Moderator, Status> {
    let actor = auth::operator(request, Role::Operator)?;
    if reason.is_empty() || reason.len() > REASON_BYTES_MAX {
        return Err(errors::invalid_field("reason", format!("must have 1..{REASON_BYTES_MAX} bytes")));
    }
    if reason.contains('\0') {
        return Err(errors::invalid_field("reason", NO_NUL));
    }
    Ok(Moderator { actor, reason: reason.to_owned() })
}

impl AdminDoor {
    async fn moderate(&self, post: &str, to: PostStatus, by: Moderator) -> Result<Option<pb::Post>, Status> {
        let post = id("post_id", post)?;
        let post = post_of(self.author.perform(Act::Moderate { post, to, by }).await)?;
        Ok(Some(wire::post(&post)))
    }
}

#[tonic::async_trait]
impl ContentAdminService for AdminDoor {
    async fn take_down(&self, request: Request<pb::TakeDownRequest>) -> Result<Response<pb::TakeDownResponse>, Status> {
        let by = moderator(&request, &request.get_ref().reason)?;
        let post = self.moderate(&request.get_ref().post_id, PostStatus::TakenDown, by).await?;
        Ok(Response::new(pb::TakeDownResponse { post }))
    }

    async fn lift_take_down(
        &self,
        request: Request<pb::LiftTakeDownRequest>,
    ) -> Result<Response<pb::LiftTakeDownResponse>, Status> {
        let by = moderator(&request, &request.get_ref().reason)?;
        let post = self.moderate(&request.get_ref().post_id, PostStatus::Published, by).await?;
        Ok(Response::new(pb::LiftTakeDownResponse { post }))
    }

    async fn ban_account(
        &self,
        request: Request<pb::BanAccountRequest>,
    ) -> Result<Response<pb::BanAccountResponse>, Status> {
        let by = moderator(&request, &request.get_ref().reason)?;
        let user = id("user_id", &request.get_ref().user_id)?;
        let act = Act::SetState { user, to: AccountState::Banned, by };
        let account = account_of(self.author.perform(act).await)?;
        Ok(Response::new(pb::BanAccountResponse { account: Some(wire::account(&account)) }))
    }

    async fn lift_ban(&self, request: Request<pb::LiftBanRequest>) -> Result<Response<pb::LiftBanResponse>, Status> {
        let by = moderator(&request, &request.get_ref().reason)?;
        let user = id("user_id", &request.get_ref().user_id)?;
        let act = Act::SetState { user, to: AccountState::Active, by };
        let account = account_of(self.author.perform(act).await)?;
        Ok(Response::new(pb::LiftBanResponse { account: Some(wire::account(&account)) }))
    }

    async fn set_listable(
        &self,
        request: Request<pb::SetListableRequest>,
    ) -> Result<Response<pb::SetListableResponse>, Status> {
        let by = moderator(&request, &request.get_ref().reason)?;
        let user = id("user_id", &request.get_ref().user_id)?;
        let act = Act::SetListable { user, listable: request.get_ref().listable, by };
        let account = account_of(self.author.perform(act).await)?;
        Ok(Response::new(pb::SetListableResponse { account: Some(wire::account(&account)) }))
    }
}
