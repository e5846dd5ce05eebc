//! Videos: whose they are, and how they change.

use likewise_proto::content::v1 as pb;
use likewise_proto::policy::v1::{VideoStatus, VideoVisibility};
use tonic::Code;

use crate::world::{World, refusal};

fn update(post_id: &str, version: u64) -> pb::UpdateRequest {
    pb::UpdateRequest { post_id: post_id.to_owned(), version, ..Default::default() }
}

#[tokio::test]
async fn inv_26_only_its_author_changes_a_video() {
    let world = World::start().await;
    let (ava, lin) = (world.user("ava").await, world.user("lin").await);
    let post = ava.create("V1").await.unwrap();
    assert_eq!((post.status(), post.visibility(), post.version), (VideoStatus::Published, VideoVisibility::Public, 1));
    assert_eq!(ava.create("V1").await.unwrap(), post, "said again, it changes nothing");
    assert_eq!(refusal(lin.create("V1").await), "AlreadyExists VIDEO_ID_TAKEN");
    assert_eq!(refusal(lin.update(update("V1", 1)).await), "NotFound VIDEO_NOT_FOUND");
    assert_eq!(refusal(lin.delete_post("V1").await), "NotFound VIDEO_NOT_FOUND");
    assert_eq!(refusal(world.person("nobody").create("V2").await), "NotFound ACCOUNT_NOT_FOUND");
    assert_eq!(ava.get("V1").await.unwrap(), post);
}

#[tokio::test]
async fn a_change_names_the_version_it_is_based_on() {
    let world = World::start().await;
    let ava = world.user("ava").await;
    ava.create("V1").await.unwrap();
    let friends = pb::UpdateRequest { visibility: VideoVisibility::Friends.into(), ..update("V1", 1) };
    assert_eq!(ava.update(friends.clone()).await.unwrap().version, 2);
    let late = ava.update(friends).await.unwrap_err();
    assert_eq!(refusal::<()>(Err(late)), "Aborted VERSION_CONFLICT");
    assert_eq!(ava.update(update("V1", 2)).await.unwrap().version, 2, "nothing changed");
    // Of many who base on the same version one wins.
    let each = (0..8).map(|number| {
        let (ava, content) = (ava.clone(), Some(format!("text {number}")));
        async move { ava.update(pb::UpdateRequest { content, ..update("V1", 2) }).await.map_err(|status| status.code()) }
    });
    let answers = futures::future::join_all(each).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == Err(Code::Aborted)).count(), 7);
}

#[tokio::test]
async fn inv_23_a_draft_that_was_deleted_stays_its_authors_secret() {
    let world = World::start().await;
    let (ava, bo, service) = (world.user("ava").await, world.user("bo").await, world.service());
    let draft = pb::CreateRequest { post_id: "V1".to_owned(), status: VideoStatus::Draft.into(), ..Default::default() };
    ava.create_as(draft).await.unwrap();
    assert_eq!(refusal(bo.get("V1").await), "NotFound VIDEO_NOT_FOUND");
    ava.delete_post("V1").await.unwrap();
    let told = &service.video_policies(&["V1"]).await.unwrap()[0];
    assert_eq!((told.status(), told.visibility()), (VideoStatus::Deleted, VideoVisibility::Private));
    assert_eq!(refusal(bo.get("V1").await), "NotFound VIDEO_NOT_FOUND");
    assert_eq!(refusal(ava.get("V1").await), "FailedPrecondition VIDEO_GONE");
}

#[tokio::test]
async fn a_deleted_video_can_be_restored_and_not_changed() {
    let world = World::start().await;
    let (ava, service) = (world.user("ava").await, world.service());
    ava.create("V1").await.unwrap();
    ava.delete_post("V1").await.unwrap();
    assert_eq!(service.video_policies(&["V1"]).await.unwrap()[0].status(), VideoStatus::Deleted);
    assert_eq!(refusal(ava.update(update("V1", 2)).await), "FailedPrecondition VIDEO_GONE");
    ava.restore_post("V1").await.unwrap();
    assert_eq!(service.video_policies(&["V1"]).await.unwrap()[0].status(), VideoStatus::Published);
    ava.delete_post("V1").await.unwrap();
    world.sql.execute("update post set deleted_at = deleted_at - interval '31 days'", &[]).await.unwrap();
    assert_eq!(refusal(ava.restore_post("V1").await), "FailedPrecondition GRACE_OVER");
}

#[tokio::test]
async fn a_new_epoch_lifts_every_version_and_the_next_change_goes_on_from_there() {
    let world = World::start().await;
    let (ava, service) = (world.user("ava").await, world.service());
    ava.create("V1").await.unwrap();
    world.sql.execute("update shard_meta set epoch = 1", &[]).await.unwrap();
    let floor = 1_u64 << 40;
    assert_eq!(ava.get("V1").await.unwrap().version, floor);
    assert_eq!(service.video_policies(&["V1"]).await.unwrap()[0].version, floor);
    let change = pb::UpdateRequest { content: Some("again".to_owned()), ..update("V1", floor) };
    assert_eq!(ava.update(change).await.unwrap().version, floor + 1);
}

#[tokio::test]
async fn a_banned_author_changes_nothing() {
    let world = World::start().await;
    let ava = world.user("ava").await;
    ava.create("V1").await.unwrap();
    world.operator(&["operator"]).ban("ava").await.unwrap();
    assert_eq!(refusal(ava.update(update("V1", 1)).await), "FailedPrecondition ACCOUNT_NOT_ACTIVE");
    assert_eq!(refusal(ava.create("V2").await), "FailedPrecondition ACCOUNT_NOT_ACTIVE");
    assert_eq!(refusal(ava.follow("ava").await), "InvalidArgument INVALID_ARGUMENT");
}

#[tokio::test]
async fn a_take_down_is_the_operators_and_leaves_a_record() {
    let world = World::start().await;
    let (ava, operator) = (world.user("ava").await, world.operator(&["operator"]));
    ava.create("V1").await.unwrap();
    assert_eq!(operator.take_down("V1").await.unwrap().status(), VideoStatus::TakenDown);
    let back = pb::UpdateRequest { status: VideoStatus::Published.into(), ..update("V1", 2) };
    assert_eq!(refusal(ava.update(back).await), "FailedPrecondition TRANSITION_NOT_ALLOWED");
    assert_eq!(world.number("select count(*) from act where kind = 'TAKE_DOWN' and reason = 'harm'").await, 1);
}

#[tokio::test]
async fn malformed_fields_are_named_and_change_nothing() {
    let world = World::start().await;
    let ava = world.user("ava").await;
    let bad_id = ava.create("V 1").await.unwrap_err();
    assert_eq!(bad_id.code(), Code::InvalidArgument);
    let long = pb::CreateRequest { post_id: "V1".to_owned(), content: "x".repeat(10_001), ..Default::default() };
    assert_eq!(ava.create_as(long).await.unwrap_err().code(), Code::InvalidArgument);
    let unknown = pb::CreateRequest { post_id: "V1".to_owned(), visibility: 99, ..Default::default() };
    assert_eq!(ava.create_as(unknown).await.unwrap_err().code(), Code::InvalidArgument);
    let nul = pb::CreateRequest { post_id: "V1".to_owned(), content: "a\0b".to_owned(), ..Default::default() };
    assert_eq!(ava.create_as(nul).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(world.number("select count(*) from post").await, 0);
}
