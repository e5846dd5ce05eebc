//! One like, from the tap to the list (the scenario that runs through the requirements).

use likewise_proto::command::v1::CommandOutcome;
use likewise_proto::query::v1::{CountFreshness, CountVisibility, LikedVideoStatus};
use likewise_proto::types::v1::LikeState::{Liked, Unliked};

use crate::agree;
use crate::world::{World, eventually, operation, outcome};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_04_inv_02_a_lost_answer_is_told_again_and_an_old_operation_moves_nothing() {
    let world = World::start().await;
    world.video("ava", "V9001").await;
    let lin = world.user("lin").await;

    // The tap, and its retry after the answer was lost.
    let first = lin.set("V9001", Liked, "op-101", None).await.unwrap();
    assert_eq!(outcome(&first), (CommandOutcome::Applied, 1));
    let retry = lin.set("V9001", Liked, "op-101", None).await.unwrap();
    assert_eq!(retry, first, "the same verdict, the same present");

    // The second tap, based on what was confirmed.
    let second = lin.set("V9001", Unliked, "op-102", Some(1)).await.unwrap();
    assert_eq!(outcome(&second), (CommandOutcome::Applied, 2));

    // The first operation arrives once more: its verdict stands, the present is newer.
    let late = lin.set("V9001", Liked, "op-101", None).await.unwrap();
    assert_eq!(late.operation, first.operation);
    let current = late.current.unwrap();
    assert_eq!((current.state(), current.relation_version), (Unliked, 2));

    let told = lin.operation("op-101").await.unwrap();
    assert_eq!(told.operation, first.operation);
    assert_eq!(told.current.unwrap().relation_version, 2);

    world.settled().await;
    let page = lin.likes(&["V9001"]).await;
    assert_eq!(page[0].my_state(), Unliked);
    assert_eq!(page[0].count.as_ref().unwrap().display, Some(0), "known, and nobody likes it");
    agree::check(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_01_case_02_case_03_many_users_one_video_every_surface_agrees() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    let mut users = Vec::new();
    for number in 0..40 {
        users.push(world.user(&format!("u{number:02}")).await);
    }
    let mut position = String::new();
    for user in &users {
        let answer = user.set("V1", Liked, &operation(), None).await.unwrap();
        assert_eq!(outcome(&answer), (CommandOutcome::Applied, 1));
        position = answer.position;
        let again = user.set("V1", Liked, &operation(), None).await.unwrap();
        assert_eq!(outcome(&again), (CommandOutcome::Unchanged, 1), "liked already");
    }
    for user in users.iter().take(10) {
        let answer = user.set("V1", Unliked, &operation(), None).await.unwrap();
        assert_eq!(outcome(&answer), (CommandOutcome::Applied, 2));
    }
    let stranger = world.user("stranger").await;
    let nothing = stranger.set("V1", Unliked, &operation(), None).await.unwrap();
    assert_eq!(outcome(&nothing), (CommandOutcome::Unchanged, 0), "never liked");

    world.settled().await;
    // On a crowded machine a number may be called stale for a moment.
    let page = eventually("the page is fresh", async || {
        let page = users[20].likes_at(&["V1", "V1"], &position).await;
        let is_fresh = page.iter().all(|like| like.count.as_ref().unwrap().freshness() == CountFreshness::Fresh);
        if is_fresh { Ok(page) } else { Err(format!("{page:?}")) }
    })
    .await;
    assert_eq!(page.len(), 2, "duplicates are kept");
    for like in &page {
        assert_eq!(like.my_state(), Liked);
        let count = like.count.as_ref().unwrap();
        assert_eq!((count.display, count.visibility()), (Some(30), CountVisibility::Visible));
        assert_eq!(count.covers_position, Some(true));
        assert_eq!(count.raw, None, "the parts are not for end users");
    }
    let likers = stranger.all_likers("V1", 7).await;
    let expected: Vec<String> = (10..40).rev().map(|number| format!("u{number:02}")).collect();
    assert_eq!(likers, expected, "newest first, nobody twice, nobody left out");
    agree::check(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scn_f03_scn_d13_my_likes_follow_the_relation_at_once() {
    let world = World::start().await;
    let lin = world.user("lin").await;
    for number in 0..25 {
        world.video("ava", &format!("V{number:02}")).await;
        lin.set(&format!("V{number:02}"), Liked, &operation(), None).await.unwrap();
    }
    let mine = lin.all_my_likes(4).await;
    let expected: Vec<String> = (0..25).rev().map(|number| format!("V{number:02}")).collect();
    assert_eq!(mine.iter().map(|like| like.video_id.clone()).collect::<Vec<_>>(), expected);
    assert!(mine.iter().all(|like| like.status() == LikedVideoStatus::Available));

    lin.set("V24", Unliked, &operation(), None).await.unwrap();
    lin.set("V03", Unliked, &operation(), None).await.unwrap();
    lin.set("V03", Liked, &operation(), None).await.unwrap();
    let mine = lin.all_my_likes(10).await;
    assert_eq!(mine.len(), 24);
    assert_eq!(mine[0].video_id, "V03", "liked again is newest");
    assert!(mine.iter().all(|like| like.video_id != "V24"), "an unliked video leaves the list");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_38_two_devices_race_and_converge_by_committed_version() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    let phone = world.user("lin").await;
    let tablet = world.user("lin").await;
    let (one, two) = (operation(), operation());
    let (left, right) = tokio::join!(phone.set("V1", Liked, &one, Some(0)), tablet.set("V1", Liked, &two, Some(0)));
    let (left, right) = (outcome(&left.unwrap()), outcome(&right.unwrap()));
    let applied = [left, right].iter().filter(|seen| seen.0 == CommandOutcome::Applied).count();
    let stale = [left, right].iter().filter(|seen| seen.0 == CommandOutcome::StaleBase).count();
    assert_eq!((applied, stale), (1, 1), "{left:?} {right:?}");
    let page = phone.likes(&["V1"]).await;
    assert_eq!((page[0].my_state(), page[0].relation_version), (Liked, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_46_case_35_a_deleted_account_likes_nothing_more() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    world.video("ava", "V2").await;
    let lin = world.user("lin").await;
    let viewer = world.user("viewer").await;
    lin.set("V1", Liked, "op-1", None).await.unwrap();
    world.settled().await;
    assert_eq!(viewer.all_likers("V1", 10).await, ["lin"]);

    lin.delete_account().await;
    let refused =
        eventually("the deleted account is refused", async || match lin.set("V2", Liked, &operation(), None).await {
            Err(status) if world.reason(&status) == "ACCOUNT_NOT_ACTIVE" => Ok(status),
            other => Err(format!("{other:?}")),
        })
        .await;
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    // What was committed keeps its verdict, and the list hides the account by today's rules.
    let told = lin.set("V1", Liked, "op-1", None).await.unwrap();
    assert_eq!(outcome(&told), (CommandOutcome::Applied, 1));
    assert_eq!(viewer.all_likers("V1", 10).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_47_a_retry_after_the_video_was_deleted_gets_its_verdict() {
    let world = World::start().await;
    let ava = world.video("ava", "V1").await;
    let lin = world.user("lin").await;
    let late = world.user("late").await;
    let first = lin.set("V1", Liked, "op-1", None).await.unwrap();
    ava.delete_video("V1").await;
    eventually("new likes are refused", async || match late.set("V1", Liked, &operation(), None).await {
        Err(status) if world.reason(&status) == "VIDEO_GONE" => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let retry = lin.set("V1", Liked, "op-1", None).await.unwrap();
    assert_eq!(retry.operation, first.operation, "policy never speaks before the operation look-up");
    let unlike = lin.set("V1", Unliked, &operation(), None).await.unwrap();
    assert_eq!(outcome(&unlike), (CommandOutcome::Applied, 2), "unlike stays possible");
}
