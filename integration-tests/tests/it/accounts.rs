//! Accounts that go away and come back: relations, counts and lists follow, exactly.

use std::time::Duration;

use likewise_proto::content::v1 as content;
use likewise_proto::content::v1::content_admin_service_client::ContentAdminServiceClient;
use likewise_proto::content::v1::user_service_client::UserServiceClient;
use likewise_proto::types::v1::LikeState;

use crate::agree;
use crate::world::{Caller, World, eventually, operation};

const VIDEOS: usize = 60;

fn video(number: usize) -> String {
    format!("V{number:02}")
}

async fn like_all(caller: &Caller) {
    for number in 0..VIDEOS {
        caller.set(&video(number), LikeState::Liked, &operation(), None).await.expect("liked");
    }
}

/// Sums of what two watchers are told of all videos.
async fn displayed(watcher: &Caller) -> u64 {
    let videos: Vec<String> = (0..VIDEOS).map(video).collect();
    let videos: Vec<&str> = videos.iter().map(String::as_str).collect();
    let counts = watcher.counts(&videos).await.expect("counts");
    counts.iter().map(|count| count.count.as_ref().expect("a count").display()).sum()
}

async fn displays(watcher: &Caller, expected: u64) {
    eventually("the counts follow", async || {
        let seen = displayed(watcher).await;
        if seen == expected { Ok(()) } else { Err(format!("{seen} instead of {expected}")) }
    })
    .await;
}

async fn restore(world: &World, caller: &Caller) {
    UserServiceClient::new(world.channel())
        .restore(caller.request(content::RestoreRequest {}))
        .await
        .expect("the account is restored");
}

async fn relations_of(world: &World, name: &str) -> (usize, usize) {
    let relations = agree::relations(world).await;
    let liked = relations.iter().filter(|(key, relation)| key.0 == name && relation.0 == 1).count();
    (liked, relations.iter().filter(|(key, _)| key.0 == name).count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_35_scn_b05_scn_b15_scn_b17_scn_c01_scn_c21_a_deleted_account_leaves_counts_and_lists_and_comes_back_whole()
 {
    // Parts of ten, and killed in the middle of the work.
    let parts = [("LIKEWISE__COMMAND__SWEEP_ROWS", "10"), ("LIKEWISE__COMMAND__SWEEP_ROWS_PER_S", "100")];
    let mut world = World::start_with(&parts).await;
    for number in 0..VIDEOS {
        world.video("ava", &video(number)).await;
    }
    let (mut lin, mut mei) = (world.user("lin").await, world.user("mei").await);
    like_all(&lin).await;
    like_all(&mei).await;
    lin.set(&video(0), LikeState::Unliked, &operation(), None).await.expect("taken back");
    displays(&mei, 2 * u64::try_from(VIDEOS).expect("small") - 1).await;

    let armed = [parts.as_slice(), &[("LIKEWISE_CRASH_POINT", "sweep.after_part:3")]].concat();
    world.settled().await;
    world.restart_after_kill(&armed).await;
    (lin, mei) = (world.again(&lin), world.again(&mei));
    lin.delete_account().await;
    assert!(world.process.ended_within(Duration::from_secs(60)).await, "the sweep was never at work");
    world.restart_after_kill(&parts).await;
    (lin, mei) = (world.again(&lin), world.again(&mei));
    displays(&mei, u64::try_from(VIDEOS).expect("small")).await;
    assert_eq!(relations_of(&world, "lin").await, (0, VIDEOS));
    let (likers, _) = mei.likers(&video(7), 10, "").await.expect("a list");
    assert_eq!(likers, ["mei"]);
    let refused = lin.set(&video(3), LikeState::Liked, &operation(), None).await.expect_err("the account is gone");
    assert_eq!(world.reason(&refused), "ACCOUNT_NOT_ACTIVE");
    world.settled().await;

    restore(&world, &lin).await;
    displays(&mei, 2 * u64::try_from(VIDEOS).expect("small") - 1).await;
    assert_eq!(relations_of(&world, "lin").await, (VIDEOS - 1, VIDEOS), "and what was taken back stays so");
    assert_eq!(mei.all_likers(&video(7), 10).await.len(), 2);
    world.settled().await;
    agree::check(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_24_scn_c03_a_banned_account_keeps_its_likes_and_hides_them() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    let lin = world.user("lin").await;
    lin.set("V1", LikeState::Liked, &operation(), None).await.expect("liked");
    let operator = world.with_token("olga", Some(&world.operator_token(&["operator"])));
    let ban = content::BanAccountRequest { user_id: "lin".to_owned(), reason: "a farm".to_owned() };
    ContentAdminServiceClient::new(world.channel()).ban_account(operator.request(ban)).await.expect("banned");
    let sql = world.sql().await;
    let hidden = async |expected: (i64, i16)| {
        let read = "select hidden_version, hidden_reasons from relation_00.like_relation union all \
                    select hidden_version, hidden_reasons from relation_01.like_relation union all \
                    select hidden_version, hidden_reasons from relation_02.like_relation union all \
                    select hidden_version, hidden_reasons from relation_03.like_relation";
        eventually("the second axis follows", async || {
            let row = sql.query_one(read, &[]).await.map_err(|error| error.to_string())?;
            let seen: (i64, i16) = (row.get(0), row.get(1));
            if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    };
    hidden((1, 2)).await;
    assert_eq!(relations_of(&world, "lin").await, (1, 1));
    let lift = content::LiftBanRequest { user_id: "lin".to_owned(), reason: "none after all".to_owned() };
    ContentAdminServiceClient::new(world.channel()).lift_ban(operator.request(lift)).await.expect("lifted");
    hidden((2, 0)).await;
    world.settled().await;
    agree::check(&world).await;
}
