//! Committed relations, for other services.

use likewise_devstack::TestStack;
use likewise_proto::facts::v1::{BatchGetRelationsRequest, ListUserLikesRequest, UserLikesKey};
use likewise_proto::types::v1::LikeState;

use crate::authority::Authority;
use crate::rig::{Running, keys, refusal, with_token};

#[tokio::test]
async fn facts_are_told_to_services_in_the_order_asked_and_paged_without_gaps() {
    let authority = Authority::default();
    let endpoint = authority.serve().await;
    let config = TestStack::get().config().await;
    let running = Running::start(&config, &[("ENDPOINTS__POLICY", &endpoint)]).await;
    let lin = running.as_user("lin");
    for number in 0..7 {
        let video = format!("V{number}");
        authority.publish(&video);
        lin.like(&format!("op-{number}"), &video).await;
    }
    lin.unlike("un-3", "V3").await;
    lin.unlike("un-5", "V5").await;
    lin.like("again-5", "V5").await;

    let token = keys().mint_service("query");
    let ask = BatchGetRelationsRequest {
        user_id: "lin".to_owned(),
        video_ids: ["V5", "never", "V3", "V5"].map(str::to_owned).to_vec(),
    };
    let found = running.facts().batch_get_relations(with_token(ask.clone(), &token)).await.expect("an answer");
    let found: Vec<_> = found
        .into_inner()
        .relations
        .into_iter()
        .map(|one| (one.video_id.clone(), one.state(), one.relation_version))
        .collect();
    let expected = [
        ("V5", LikeState::Liked, 3),
        ("never", LikeState::Unliked, 0),
        ("V3", LikeState::Unliked, 2),
        ("V5", LikeState::Liked, 3),
    ];
    assert_eq!(found, expected.map(|(video, state, version)| (video.to_owned(), state, version)));

    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = ListUserLikesRequest { user_id: "lin".to_owned(), page_size: 2, after: after.clone() };
        let page =
            running.facts().list_user_likes(with_token(page, &token)).await.expect("a page").into_inner().relations;
        let Some(last) = page.last() else { break };
        after = Some(UserLikesKey { state_changed_at: last.state_changed_at, video_id: last.video_id.clone() });
        listed.extend(page.into_iter().map(|one| one.video_id));
    }
    assert_eq!(listed, ["V5", "V6", "V4", "V2", "V1", "V0"], "newest first; what was taken back is not there");

    let user = keys().mint_user("lin");
    assert_eq!(
        refusal(running.facts().batch_get_relations(with_token(ask, &user)).await),
        "PermissionDenied ROLE_REQUIRED"
    );
    let none = BatchGetRelationsRequest { user_id: "lin".to_owned(), video_ids: Vec::new() };
    assert_eq!(
        refusal(running.facts().batch_get_relations(with_token(none, &token)).await),
        "InvalidArgument INVALID_ARGUMENT"
    );
    running.stop().await;
}
