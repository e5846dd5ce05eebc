//! `UserService`.

use likewise_kit::{auth, errors};
use likewise_proto::content::v1 as pb;
use likewise_proto::content::v1::user_service_server::UserService;
use likewise_proto::policy::v1::AccountPolicy;
use tonic::{Request, Response, Status};

use super::{account_of, failed, id, wire};
use crate::act::Act;
use crate::app::Author;
use crate::model::AccountState;

/// The door.
pub struct UserDoor {
    /// Does the acts.
    pub author: Author,
}

impl UserDoor {
    async fn set_state(&self, user: String, to: AccountState) -> Result<Option<AccountPolicy>, Status> {
        Ok(Some(wire::account(&account_of(self.author.perform(Act::SetOwnState { user, to }).await)?)))
    }

    async fn block(&self, by: String, other: &str, on: bool) -> Result<(), Status> {
        let other = id("user_id", other)?;
        self.author.perform(Act::Block { by, other, on }).await.map(drop).map_err(|error| failed(&error))
    }
}

#[tonic::async_trait]
impl UserService for UserDoor {
    async fn register(&self, request: Request<pb::RegisterRequest>) -> Result<Response<pb::RegisterResponse>, Status> {
        let user = auth::user(&request)?;
        let username = id("username", &request.get_ref().username)?;
        let account = account_of(self.author.perform(Act::Register { user, username }).await)?;
        Ok(Response::new(pb::RegisterResponse { account: Some(wire::account(&account)) }))
    }

    async fn set_privacy(
        &self,
        request: Request<pb::SetPrivacyRequest>,
    ) -> Result<Response<pb::SetPrivacyResponse>, Status> {
        let user = auth::user(&request)?;
        let request = request.into_inner();
        let likes_visible = wire::likes_visible(request.likes_visible)
            .map_err(|problem| errors::invalid_field("likes_visible", problem))?;
        let act = Act::SetPrivacy { user, is_private: request.is_private, likes_visible };
        let account = account_of(self.author.perform(act).await)?;
        Ok(Response::new(pb::SetPrivacyResponse { account: Some(wire::account(&account)) }))
    }

    async fn block(&self, request: Request<pb::BlockRequest>) -> Result<Response<pb::BlockResponse>, Status> {
        let by = auth::user(&request)?;
        self.block(by, &request.get_ref().user_id, true).await?;
        Ok(Response::new(pb::BlockResponse {}))
    }

    async fn unblock(&self, request: Request<pb::UnblockRequest>) -> Result<Response<pb::UnblockResponse>, Status> {
        let by = auth::user(&request)?;
        self.block(by, &request.get_ref().user_id, false).await?;
        Ok(Response::new(pb::UnblockResponse {}))
    }

    async fn deactivate(
        &self,
        request: Request<pb::DeactivateRequest>,
    ) -> Result<Response<pb::DeactivateResponse>, Status> {
        let account = self.set_state(auth::user(&request)?, AccountState::Deactivated).await?;
        Ok(Response::new(pb::DeactivateResponse { account }))
    }

    async fn reactivate(
        &self,
        request: Request<pb::ReactivateRequest>,
    ) -> Result<Response<pb::ReactivateResponse>, Status> {
        let account = self.set_state(auth::user(&request)?, AccountState::Active).await?;
        Ok(Response::new(pb::ReactivateResponse { account }))
    }

    async fn delete(&self, request: Request<pb::DeleteRequest>) -> Result<Response<pb::DeleteResponse>, Status> {
        let account = self.set_state(auth::user(&request)?, AccountState::Deleted).await?;
        Ok(Response::new(pb::DeleteResponse { account }))
    }

    async fn restore(&self, request: Request<pb::RestoreRequest>) -> Result<Response<pb::RestoreResponse>, Status> {
        let user = auth::user(&request)?;
        let account = account_of(self.author.perform(Act::RestoreAccount { user }).await)?;
        Ok(Response::new(pb::RestoreResponse { account: Some(wire::account(&account)) }))
    }
}
