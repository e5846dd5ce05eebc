//! The client library against the real service, over a line that misbehaves.

use std::time::Duration;

use likewise_client::LikeState as Heart;
use likewise_client::client::{LikeClient, Settings};
use likewise_client::likes::Likes;
use likewise_client::retry::Policy;
use likewise_client::session::{Answer, Command};
use likewise_devstack::{Line, TestStack, Weather};
use likewise_proto::types::v1::LikeState;
use rand::RngExt as _;

use crate::agree;
use crate::world::{World, eventually, operation};

const VIDEOS: [&str; 4] = ["V1", "V2", "V3", "V4"];
const USERS: [&str; 5] = ["ann", "ben", "cai", "dan", "eve"];

fn token(user: &str) -> String {
    TestStack::get().keys().mint_user(user)
}

async fn client_over(world: &World) -> (LikeClient, Line) {
    let line = Line::lay(world.process.grpc()).await.expect("a port");
    let mut settings = Settings::to(&format!("localhost:{}", line.port()));
    settings.attempt_timeout = Duration::from_millis(500);
    settings.deadline = Duration::from_secs(2);
    settings.policy = Policy { pause_min: Duration::from_millis(5), pause_max: Duration::from_millis(100) };
    (LikeClient::connect(settings).await, line)
}

async fn world() -> World {
    let world = World::start().await;
    for video in VIDEOS {
        world.video("ava", video).await;
    }
    for user in USERS {
        world.user(user).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_38_scn_b19_taps_over_a_bad_line_end_as_the_last_tap_and_are_sent_once() {
    let world = world().await;
    let (client, line) = client_over(&world).await;
    let likes = Likes::new(client, 1_000, 64);
    let mut last = std::collections::BTreeMap::new();
    for round in 0..120 {
        let weather = match rand::rng().random_range(0..6) {
            0 => Weather::Silent,
            1 => Weather::Down,
            2 => Weather::Slow(Duration::from_millis(20)),
            _ => Weather::Clear,
        };
        line.weather(weather);
        let user = USERS[rand::rng().random_range(0..USERS.len())];
        let video = VIDEOS[rand::rng().random_range(0..VIDEOS.len())];
        let heart = if rand::rng().random_bool(0.6) { Heart::Liked } else { Heart::Unliked };
        likes.tap(user, &token(user), video, heart).expect("room");
        last.insert((user.to_owned(), video.to_owned()), heart);
        if round % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
    line.weather(Weather::Clear);
    for (user, video) in last.keys() {
        likes.resume();
        tokio::time::timeout(Duration::from_secs(60), likes.settled(user, video)).await.expect("it settles");
    }
    let facts = agree::relations(&world).await;
    for (pair, heart) in &last {
        let (state, version) = facts.get(pair).copied().unwrap_or((2, 0));
        assert_eq!(state, heart.code(), "{pair:?} at version {version}");
    }
    world.settled().await;
    agree::check(&world).await;
    for user in USERS {
        eventually("hearts and numbers are the truth", async || {
            let shown = likes.view(user, &token(user), &VIDEOS).await.map_err(|status| format!("{status:?}"))?;
            for one in shown {
                let likers = facts.iter().filter(|(pair, known)| pair.1 == one.video_id && known.0 == 1).count();
                let own = facts.get(&(user.to_owned(), one.video_id.clone())).map_or(2, |known| known.0);
                if one.state.code() != own || one.count != Some(likers as u64) {
                    return Err(format!("{one:?}: {likers} likers, own {own}"));
                }
            }
            Ok(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scn_a07_what_was_tapped_is_shown_at_once_and_never_twice() {
    let world = world().await;
    let (client, line) = client_over(&world).await;
    let likes = Likes::new(client, 1_000, 64);
    let shown = async || likes.view("ann", &token("ann"), &["V1"]).await.expect("a view")[0].clone();
    assert_eq!((shown().await.state, shown().await.count), (Heart::Unliked, Some(0)));
    line.weather(Weather::Slow(Duration::from_millis(100)));
    likes.tap("ann", &token("ann"), "V1", Heart::Liked).expect("room");
    for _ in 0..8 {
        let now = shown().await;
        assert_eq!((now.state, now.count), (Heart::Liked, Some(1)), "before and after it is counted");
    }
    likes.settled("ann", "V1").await;
    // Another device of the same account takes it back; this one learns of it.
    let ann = world.user("ann").await;
    ann.set("V1", LikeState::Unliked, &operation(), None).await.expect("taken back");
    eventually("the other device is believed", async || {
        let now = shown().await;
        if now.state == Heart::Unliked && now.count == Some(0) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_gives_the_heart_back_and_a_wrong_clock_is_corrected() {
    let world = world().await;
    let (client, _line) = client_over(&world).await;
    let likes = Likes::new(client.clone(), 1_000, 64);
    likes.tap("ann", &token("ann"), "nowhere", Heart::Liked).expect("room");
    likes.settled("ann", "nowhere").await;
    let shown = likes.view("ann", &token("ann"), &["nowhere"]).await.expect("a view");
    assert_eq!((shown[0].state, shown[0].refusal.as_deref()), (Heart::Unliked, Some("VIDEO_NOT_FOUND")));

    // An id of a clock that is far ahead is refused with the right time, and the next one is drawn by that.
    let ahead = "0fffffff-ffff-7fff-bfff-ffffffffffff".to_owned();
    let command = Command { operation_id: ahead, desired_state: Heart::Liked, base_version: None };
    let answer = client.set_like(&token("ann"), "V1", &command, None).await.expect("an answer");
    assert_eq!(answer, Answer::Expired);
    let command = Command { operation_id: client.draw(), ..command };
    let answer = client.set_like(&token("ann"), "V1", &command, None).await.expect("an answer");
    assert!(matches!(answer, Answer::Settled { current, .. } if current.version == 1), "{answer:?}");
    let found = client.get_operation(&token("ann"), &command.operation_id).await.expect("an answer");
    assert!(found.is_some());
    assert!(client.get_operation(&token("ann"), "never").await.expect("an answer").is_none());
    assert!(client.set_like("no.token.here", "V1", &command, None).await.is_err(), "a wrong call is not repeated");
}
