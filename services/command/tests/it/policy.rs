//! What the authority says about a video, and what is said when it says nothing.

use likewise_devstack::{Line, TestConfig, TestStack, Weather};
use likewise_kit::errors::detail;
use likewise_proto::command::v1::CurrentRelation;
use likewise_proto::convert::CURRENT_RELATION;
use likewise_proto::policy::v1::{AccountState, VideoStatus, VideoVisibility};
use likewise_proto::types::v1::LikeState::{Liked, Unliked};

use crate::authority::Authority;
use crate::rig::{Running, count, eventually, fresh_id, refusal, told, verdict};

async fn started(authority: &Authority, changes: &[(&str, &str)]) -> (Running, TestConfig) {
    let endpoint = authority.serve().await;
    let config = TestStack::get().config().await;
    // A policy is asked for again at once, so that a test need not wait for it to age.
    let mut all = vec![
        ("ENDPOINTS__POLICY", endpoint.as_str()),
        ("COMMAND__SHARDS", "1"),
        ("COMMAND__POLICY_TTL_MS", "1"),
        ("COMMAND__POLICY_MISSING_TTL_MS", "1"),
    ];
    all.extend_from_slice(changes);
    let running = Running::start(&config, &all).await;
    (running, config)
}

#[tokio::test]
async fn inv_07_what_may_not_be_seen_may_not_be_liked_and_always_be_unliked() {
    let authority = Authority::default();
    authority.publish("V1");
    authority.tell("draft", VideoStatus::Draft, VideoVisibility::Public);
    authority.tell("private", VideoStatus::Published, VideoVisibility::Private);
    authority.tell("friends", VideoStatus::Published, VideoVisibility::Friends);
    authority.block("blocked");
    authority.befriend("friend");
    let (running, _config) = started(&authority, &[]).await;
    let lin = running.as_user("lin");
    for (number, (video, expected)) in [
        ("nowhere", "NotFound VIDEO_NOT_FOUND"),
        ("draft", "NotFound VIDEO_NOT_VISIBLE"),
        ("private", "NotFound VIDEO_NOT_VISIBLE"),
        ("friends", "NotFound VIDEO_NOT_VISIBLE"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = refusal(lin.set(&format!("op-{number}"), video, Liked).await);
        assert_eq!(answer, expected, "{video}");
        assert_eq!(told(&lin.unlike(&format!("un-{number}"), video).await), "UNCHANGED UNLIKED v0, now UNLIKED v0");
    }
    assert_eq!(told(&running.as_user("friend").like("op-f", "friends").await), "APPLIED LIKED v1, now LIKED v1");
    let blocked = refusal(running.as_user("blocked").set("op-b", "V1", Liked).await);
    assert_eq!(blocked, "FailedPrecondition INTERACTION_BLOCKED");
}

#[tokio::test]
async fn case_35_an_account_whose_event_was_lost_is_found_by_asking() {
    let authority = Authority::default();
    authority.publish("V1");
    let (running, config) = started(&authority, &[("COMMAND__AUTHORITY_SWEEP_MS", "50")]).await;
    let (lin, mei) = (running.as_user("lin"), running.as_user("mei"));
    lin.like("op-1", "V1").await;
    mei.like("op-2", "V1").await;
    authority.account("lin", AccountState::Deleted, 2);
    authority.account("nobody", AccountState::Deleted, 2);
    let sql = config.database.connect().await.expect("connected");
    let taken = async |expected: i64| {
        eventually("the relations follow", async || {
            match count(&sql, "relation_00.like_relation where user_id = 'lin' and state = 2").await {
                found if found == expected => Ok(()),
                found => Err(found),
            }
        })
        .await;
    };
    taken(1).await;
    assert_eq!(refusal(lin.set("op-3", "V1", Liked).await), "FailedPrecondition ACCOUNT_NOT_ACTIVE");
    authority.account("lin", AccountState::Active, 3);
    taken(0).await;
    assert_eq!(count(&sql, "relation_00.like_relation where user_id = 'mei' and state = 1").await, 1);
}

#[tokio::test]
async fn case_47_a_retry_after_the_video_is_gone_is_told_its_first_verdict() {
    let authority = Authority::default();
    authority.publish("V1");
    let (running, _config) = started(&authority, &[]).await;
    let (lin, mei) = (running.as_user("lin"), running.as_user("mei"));
    let first = lin.like("op-1", "V1").await;
    authority.tell("V1", VideoStatus::Deleted, VideoVisibility::Public);
    let answer = eventually("new likes are refused", async || match mei.set("op-2", "V1", Liked).await {
        Err(status) => Ok(Err::<(), _>(status)),
        Ok(answer) => Err(answer),
    })
    .await;
    assert_eq!(refusal(answer), "FailedPrecondition VIDEO_GONE");
    let refused = lin.set("op-2", "V1", Liked).await.expect_err("gone");
    let now: CurrentRelation = detail(&refused, CURRENT_RELATION).expect("the relation as it is now");
    assert_eq!((now.state(), now.relation_version), (Liked, 1));
    let again = lin.like("op-1", "V1").await;
    assert_eq!(again.operation, first.operation);
    assert_eq!(told(&lin.unlike("op-3", "V1").await), "APPLIED UNLIKED v2, now UNLIKED v2");
}

#[tokio::test]
async fn without_the_authority_new_likes_wait_and_everything_else_works() {
    let authority = Authority::default();
    authority.publish("V1");
    let (running, _config) = started(&authority, &[("COMMAND__POLICY_GRACE_MS", "2")]).await;
    let lin = running.as_user("lin");
    lin.like("op-1", "V1").await;
    authority.go_away();
    let answer = eventually("the policy ages", async || match lin.set("op-2", "V2", Liked).await {
        Err(status) => Ok(Err::<(), _>(status)),
        Ok(answer) => Err(answer),
    })
    .await;
    assert!(refusal(answer).starts_with("Unavailable"), "nobody guesses");
    assert_eq!(told(&lin.like("op-1", "V1").await), "APPLIED LIKED v1, now LIKED v1", "a retry needs no policy");
    assert_eq!(told(&lin.unlike("op-3", "V1").await), "APPLIED UNLIKED v2, now UNLIKED v2");
    let unknown = lin.operation("op-2").await.expect_err("no verdict");
    assert_eq!(unknown.code(), tonic::Code::NotFound, "a refusal for want of an answer is no verdict");
}

#[tokio::test]
async fn a_crowd_on_a_new_video_asks_the_authority_a_few_times_at_most() {
    let authority = Authority::default();
    authority.publish("V1");
    let (running, _config) = started(&authority, &[("COMMAND__POLICY_TTL_MS", "60000")]).await;
    let people: Vec<_> = (0..64).map(|number| running.as_user(&format!("u{number}"))).collect();
    let answers = futures::future::join_all(people.iter().map(|person| person.set("op-1", "V1", Liked))).await;
    for answer in answers {
        let answer = answer.expect("an answer");
        assert_eq!(verdict(answer.operation.as_ref().expect("a verdict")), "APPLIED LIKED v1");
    }
    // Each person's block set is asked for once at most; the video's policy once for all.
    assert!(authority.asked() <= 64 + 8, "asked {} times", authority.asked());
    assert_eq!(
        told(&people[0].set("op-2", "V1", Unliked).await.expect("an answer")),
        "APPLIED UNLIKED v2, now UNLIKED v2"
    );
}

#[tokio::test]
async fn while_events_may_be_lost_the_authority_is_asked_each_time() {
    let authority = Authority::default();
    authority.publish("V1");
    let broker = &TestStack::get().address().nats;
    let (scheme, target) = broker.split_once("://").expect("an address");
    let line = Line::lay(target).await.expect("a port");
    let through = format!("{scheme}://127.0.0.1:{}", line.port());
    let changes = [("NATS__URL", through.as_str()), ("COMMAND__POLICY_TTL_MS", "60000")];
    let (running, _config) = started(&authority, &changes).await;
    let lin = running.as_user("lin");
    // The authority here tells no events: what it says now is heard only when it is asked. A video per try, because what
    // was asked for once is remembered.
    let like_after_it_turned_private = async || {
        let video = fresh_id();
        authority.publish(&video);
        lin.like(&fresh_id(), &video).await;
        authority.tell(&video, VideoStatus::Published, VideoVisibility::Private);
        lin.unlike(&fresh_id(), &video).await;
        lin.set(&fresh_id(), &video, Liked).await
    };
    let serves_from_memory =
        async || eventually("the memory serves", async || like_after_it_turned_private().await.map(drop)).await;
    serves_from_memory().await;
    for weather in [Weather::Silent, Weather::Down] {
        line.weather(weather);
        let refused = eventually("the authority is asked", async || match like_after_it_turned_private().await {
            Err(status) => Ok(Err::<(), _>(status)),
            Ok(answer) => Err(answer),
        })
        .await;
        assert_eq!(refusal(refused), "NotFound VIDEO_NOT_VISIBLE");
        line.weather(Weather::Clear);
        serves_from_memory().await;
    }
}
