//! Bad input gets the error of the contract and changes nothing.

use likewise_proto::types::v1::LikeState::{Liked, Unliked};
use tonic::Code;

use crate::agree;
use crate::world::{World, eventually, operation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_26_only_a_verified_token_speaks_for_a_user() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    for (what, token, reason) in world.bad_tokens() {
        let caller = world.with_token("lin", token.as_deref());
        let refused = caller.set("V1", Liked, &operation(), None).await.unwrap_err();
        assert_eq!((refused.code(), world.reason(&refused).as_str()), (Code::Unauthenticated, reason), "{what}");
        let shown = format!("{refused:?}");
        assert!(token.is_none_or(|token| !shown.contains(&token)), "{what}: the error shows the token");
    }
    // A service or an operator is nobody's thumb.
    for token in [world.service_token("query"), world.operator_token(&["viewer", "operator"])] {
        let refused = world.with_token("lin", Some(&token)).set("V1", Liked, &operation(), None).await.unwrap_err();
        assert_eq!((refused.code(), world.reason(&refused).as_str()), (Code::PermissionDenied, "ROLE_REQUIRED"));
    }
    assert_eq!(agree::relations(&world).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_requests_name_the_field_and_change_nothing() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    let lin = world.user("lin").await;
    let long = "x".repeat(65);
    for (video, id, field) in [
        ("", "op", "video_id"),
        ("V 1", "op", "video_id"),
        (long.as_str(), "op", "video_id"),
        ("V1", "", "operation_id"),
        ("V1", "o'p", "operation_id"),
        ("V1", long.as_str(), "operation_id"),
    ] {
        let refused = lin.set(video, Liked, id, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{video:?} {id:?}");
        assert!(world.fields(&refused).contains(&field.to_owned()), "{field}: {refused:?}");
    }
    let unspecified = lin.set_raw("V1", 0, "op").await.unwrap_err();
    assert_eq!(world.fields(&unspecified), ["desired_state"]);
    let unknown = lin.set_raw("V1", 7, "op").await.unwrap_err();
    assert_eq!(world.fields(&unknown), ["desired_state"]);
    let many: Vec<String> = (0..101).map(|number| format!("V{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let refused = lin.try_likes(&many).await.unwrap_err();
    assert_eq!((refused.code(), world.fields(&refused)), (Code::InvalidArgument, vec!["video_ids".to_owned()]));
    assert_eq!(agree::relations(&world).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_07_an_unknown_video_cannot_be_liked() {
    let world = World::start().await;
    let lin = world.user("lin").await;
    let refused = lin.set("nowhere", Liked, "op-1", None).await.unwrap_err();
    assert_eq!((refused.code(), world.reason(&refused).as_str()), (Code::NotFound, "VIDEO_NOT_FOUND"));
    let missing = lin.operation("op-1").await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound, "a policy refusal is not recorded: the id may be used again");
    world.video("ava", "nowhere").await;
    eventually("the id works once the video exists", async || {
        lin.set("nowhere", Liked, "op-1", None).await.map_err(|status| format!("{status:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_36_a_reused_operation_id_is_refused_with_its_own_error() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    world.video("ava", "V2").await;
    let lin = world.user("lin").await;
    let other = world.user("mei").await;
    lin.set("V1", Liked, "op-1", None).await.unwrap();
    for (video, state) in [("V2", Liked), ("V1", Unliked)] {
        let refused = lin.set(video, state, "op-1", None).await.unwrap_err();
        assert_eq!((refused.code(), world.reason(&refused).as_str()), (Code::AlreadyExists, "OPERATION_ID_REUSED"));
    }
    other.set("V2", Liked, "op-1", None).await.expect("ids belong to their user");
    assert_eq!(agree::relations(&world).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_from_another_time_is_refused_with_the_servers_time() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    let lin = world.user("lin").await;
    // A version 7 id of June 2023.
    let refused = lin.set("V1", Liked, "01890a5d-ac96-774b-bcce-b302099a8057", None).await.unwrap_err();
    assert_eq!((refused.code(), world.reason(&refused).as_str()), (Code::FailedPrecondition, "OPERATION_EXPIRED"));
    assert!(world.metadata(&refused).iter().any(|(key, _)| key.contains("time")), "{refused:?}");
    assert_eq!(agree::relations(&world).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_22_scn_f09_cursors_are_opaque_bound_and_checked() {
    let world = World::start().await;
    let lin = world.user("lindqvist").await;
    let mei = world.user("meiersson").await;
    for number in 0..5 {
        let video = format!("picture-{number}");
        world.video("ava", &video).await;
        lin.set(&video, Liked, &operation(), None).await.unwrap();
        mei.set(&video, Liked, &operation(), None).await.unwrap();
    }
    world.settled().await;
    let (_, mine) = lin.my_likes(2, "").await.unwrap();
    let (_, likers) = lin.likers("picture-0", 1, "").await.unwrap();
    assert!(!mine.is_empty() && !likers.is_empty());
    for shown in [&mine, &likers] {
        // Names long enough not to turn up by chance.
        assert!(!["lindqvist", "meiersson", "picture"].iter().any(|name| shown.contains(name)), "{shown}");
    }
    let altered = |token: &str| {
        let mut bytes = token.as_bytes().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] = if bytes[middle] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    };
    let refusals = [
        ("altered", lin.my_likes(2, &altered(&mine)).await.unwrap_err()),
        ("another user's", mei.my_likes(2, &mine).await.unwrap_err()),
        ("another list's", lin.my_likes(2, &likers).await.unwrap_err()),
        ("another video's", lin.likers("picture-1", 1, &likers).await.unwrap_err()),
        ("a raw key", lin.my_likes(2, "picture-3").await.unwrap_err()),
    ];
    for (what, refused) in refusals {
        assert_eq!(
            (refused.code(), world.reason(&refused).as_str()),
            (Code::InvalidArgument, "CURSOR_INVALID"),
            "{what}"
        );
    }
    assert_eq!(lin.my_likes(2, &mine).await.unwrap().0.len(), 2, "untouched, it goes on");
}
