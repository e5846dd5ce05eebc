//! Accounts: who may change them, and what each change tells.

use likewise_proto::content::v1 as pb;
use likewise_proto::policy::v1::{AccountState, LikesVisible};

use crate::world::{World, refusal};

#[tokio::test]
async fn inv_26_an_account_is_its_tokens_and_operators_need_their_role() {
    let world = World::start().await;
    assert_eq!(refusal(world.nobody().register("lin").await), "Unauthenticated TOKEN_MISSING");
    assert_eq!(refusal(world.service().register("lin").await), "PermissionDenied ROLE_REQUIRED");
    assert_eq!(refusal(world.operator(&["operator"]).register("lin").await), "PermissionDenied ROLE_REQUIRED");
    let lin = world.user("lin").await;
    assert_eq!(refusal(lin.ban("lin").await), "PermissionDenied ROLE_REQUIRED");
    assert_eq!(refusal(world.operator(&["viewer"]).ban("lin").await), "PermissionDenied ROLE_REQUIRED");
    assert_eq!(refusal(lin.video_policies(&["V1"]).await), "PermissionDenied ROLE_REQUIRED");
    assert_eq!(world.number("select count(*) from account").await, 1);
    assert_eq!(world.number("select count(*) from outbox").await, 1, "a refused call tells nothing");
}

#[tokio::test]
async fn an_account_is_opened_once_and_its_name_is_its_own() {
    let world = World::start().await;
    let lin = world.person("lin");
    let opened = lin.register("Lin.1").await.unwrap();
    assert_eq!((opened.state(), opened.version), (AccountState::Active, 1));
    assert_eq!(opened.likes_visible(), LikesVisible::Nobody, "what one likes is one's own until one says otherwise");
    assert_eq!(lin.register("Lin.1").await.unwrap(), opened, "said again, it changes nothing");
    assert_eq!(refusal(world.person("mei").register("Lin.1").await), "AlreadyExists USERNAME_TAKEN");
    let malformed = world.person("mei").register("Me I").await.unwrap_err();
    assert_eq!(malformed.code(), tonic::Code::InvalidArgument);
    assert_eq!(world.number("select count(*) from outbox").await, 1);
}

#[tokio::test]
async fn privacy_changes_only_what_is_named_and_only_when_it_changes() {
    let world = World::start().await;
    let lin = world.user("lin").await;
    let set = async |is_private: Option<bool>, likes_visible: LikesVisible| {
        let message = pb::SetPrivacyRequest { is_private, likes_visible: likes_visible.into() };
        lin.users().set_privacy(lin.request(message)).await.unwrap().into_inner().account.unwrap()
    };
    let private = set(Some(true), LikesVisible::Unspecified).await;
    assert_eq!((private.is_private, private.likes_visible(), private.version), (true, LikesVisible::Nobody, 2));
    let shown = set(None, LikesVisible::Friends).await;
    assert_eq!((shown.is_private, shown.likes_visible(), shown.version), (true, LikesVisible::Friends, 3));
    assert_eq!(set(Some(true), LikesVisible::Friends).await.version, 3, "nothing changed, nothing is told");
    assert_eq!(world.number("select count(*) from outbox").await, 3);
}

#[tokio::test]
async fn a_deleted_account_comes_back_as_it_was_and_a_ban_stays() {
    let world = World::start().await;
    let (lin, operator) = (world.user("lin").await, world.operator(&["operator"]));
    assert_eq!(lin.delete().await.unwrap().state(), AccountState::Deleted);
    assert_eq!(lin.delete().await.unwrap().version, 2, "said again, it changes nothing");
    assert_eq!(refusal(lin.register("lin").await), "FailedPrecondition ACCOUNT_NOT_ACTIVE");
    assert_eq!(refusal(lin.create("V1").await), "FailedPrecondition ACCOUNT_NOT_ACTIVE");
    assert_eq!(lin.restore().await.unwrap().state(), AccountState::Active);

    assert_eq!(operator.ban("lin").await.unwrap().state(), AccountState::Banned);
    let reactivate = lin.users().reactivate(lin.request(pb::ReactivateRequest {})).await;
    assert_eq!(refusal(reactivate), "FailedPrecondition TRANSITION_NOT_ALLOWED");
    assert_eq!(lin.delete().await.unwrap().state(), AccountState::Deleted, "a banned person may go");
    assert_eq!(lin.restore().await.unwrap().state(), AccountState::Banned, "and comes back banned");
    assert_eq!(world.number("select count(*) from act where kind = 'BAN_ACCOUNT' and actor = 'olga'").await, 1);
}

#[tokio::test]
async fn a_deletion_cannot_be_taken_back_after_the_grace_period() {
    let world = World::start().await;
    let lin = world.user("lin").await;
    lin.delete().await.unwrap();
    world.sql.execute("update account set deleted_at = deleted_at - interval '31 days'", &[]).await.unwrap();
    assert_eq!(refusal(lin.restore().await), "FailedPrecondition GRACE_OVER");
}
