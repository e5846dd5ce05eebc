//! Who may see what is decided when they ask, by the rules of that moment.

use likewise_proto::content::v1 as content;
use likewise_proto::content::v1::follow_service_client::FollowServiceClient;
use likewise_proto::content::v1::post_service_client::PostServiceClient;
use likewise_proto::content::v1::user_service_client::UserServiceClient;
use likewise_proto::policy::v1::{LikersVisible, VideoVisibility};
use likewise_proto::query::v1::{CountVisibility, VideoCount};
use likewise_proto::types::v1::LikeState::{Liked, Unliked};
use tonic::Code;

use crate::world::{Caller, World, eventually, operation};

async fn change(world: &World, author: &Caller, change: content::UpdateRequest) {
    let mut client = PostServiceClient::new(world.channel());
    let message = content::GetRequest { post_id: change.post_id.clone() };
    let post = client.get(author.request(message)).await.unwrap().into_inner().post.unwrap();
    let change = content::UpdateRequest { version: post.version, ..change };
    client.update(author.request(change)).await.unwrap();
}

fn of(video: &str) -> content::UpdateRequest {
    content::UpdateRequest { post_id: video.to_owned(), ..Default::default() }
}

async fn set_private(world: &World, user: &Caller, is_private: bool) {
    let message = content::SetPrivacyRequest { is_private: Some(is_private), ..Default::default() };
    UserServiceClient::new(world.channel()).set_privacy(user.request(message)).await.unwrap();
}

async fn follow(world: &World, by: &Caller, other: &str) {
    let message = content::FollowRequest { user_id: other.to_owned() };
    FollowServiceClient::new(world.channel()).follow(by.request(message)).await.unwrap();
}

/// What the page says of the count: visibility and number.
async fn count(caller: &Caller, video: &str) -> (CountVisibility, Option<u64>) {
    let count = caller.likes(&[video]).await.remove(0).count.unwrap_or_default();
    (count.visibility(), count.display)
}

async fn becomes(caller: &Caller, video: &str, expected: (CountVisibility, Option<u64>)) {
    // A policy is believed for a moment.
    eventually("the count is shown as the rules say", async || match count(caller, video).await {
        seen if seen == expected => Ok(()),
        seen => Err(format!("{seen:?}, expected {expected:?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_23_case_31_a_private_account_is_listed_to_its_followers_and_itself() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    let mut people = Vec::new();
    for number in 0..12 {
        let person = world.user(&format!("u{number:02}")).await;
        person.set("V1", Liked, &operation(), None).await.unwrap();
        people.push(person);
    }
    world.settled().await;
    let (stranger, follower) = (world.user("stranger").await, world.user("follower").await);
    assert_eq!(stranger.all_likers("V1", 5).await.len(), 12);

    // A whole page in the middle disappears; the pages around it skip nobody and end.
    for person in &people[3..9] {
        set_private(&world, person, true).await;
    }
    follow(&world, &follower, "u04").await;
    let names = |numbers: &[u32]| numbers.iter().map(|number| format!("u{number:02}")).collect::<Vec<_>>();
    assert_eq!(stranger.all_likers("V1", 3).await, names(&[11, 10, 9, 2, 1, 0]));
    assert_eq!(follower.all_likers("V1", 3).await, names(&[11, 10, 9, 4, 2, 1, 0]));
    assert_eq!(people[5].all_likers("V1", 3).await, names(&[11, 10, 9, 5, 2, 1, 0]));
    becomes(&stranger, "V1", (CountVisibility::Visible, Some(12))).await;

    set_private(&world, &people[3], false).await;
    assert_eq!(stranger.all_likers("V1", 3).await, names(&[11, 10, 9, 3, 2, 1, 0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_23_scn_j09_a_hidden_number_is_absent_and_its_author_sees_it() {
    let world = World::start().await;
    let ava = world.video("ava", "V1").await;
    let (lin, mei) = (world.user("lin").await, world.user("mei").await);
    lin.set("V1", Liked, &operation(), None).await.unwrap();
    world.settled().await;
    becomes(&mei, "V1", (CountVisibility::Visible, Some(1))).await;

    change(&world, &ava, content::UpdateRequest { count_visible: Some(false), ..of("V1") }).await;
    becomes(&mei, "V1", (CountVisibility::HiddenByAuthor, None)).await;
    becomes(&ava, "V1", (CountVisibility::Visible, Some(1))).await;

    change(&world, &ava, content::UpdateRequest { visibility: VideoVisibility::Private.into(), ..of("V1") }).await;
    becomes(&mei, "V1", (CountVisibility::NotVisible, None)).await;
    let heart = lin.likes(&["V1"]).await.remove(0);
    assert_eq!((heart.my_state(), heart.relation_version), (Liked, 1), "a heart does not depend on a number");
    let refused = eventually("new likes are refused", async || match mei.set("V1", Liked, &operation(), None).await {
        Err(status) => Ok(status),
        Ok(answer) => {
            mei.set("V1", Unliked, &operation(), None).await.unwrap();
            Err(format!("{answer:?}"))
        }
    })
    .await;
    assert_eq!((refused.code(), world.reason(&refused).as_str()), (Code::NotFound, "VIDEO_NOT_VISIBLE"));
    let hidden = mei.likers("V1", 10, "").await.unwrap_err();
    assert_eq!(hidden.code(), Code::NotFound, "who likes it is nobody's business");
    lin.set("V1", Unliked, &operation(), None).await.expect("an unlike is always possible");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_23_the_author_says_who_sees_the_likers() {
    let world = World::start().await;
    let ava = world.video("ava", "V1").await;
    let (lin, mei) = (world.user("lin").await, world.user("mei").await);
    lin.set("V1", Liked, &operation(), None).await.unwrap();
    world.settled().await;
    change(&world, &ava, content::UpdateRequest { likers_visible: LikersVisible::AuthorOnly.into(), ..of("V1") }).await;
    let refusal = async |caller: &Caller| {
        let refused = caller.likers("V1", 10, "").await.unwrap_err();
        (refused.code(), world.reason(&refused))
    };
    assert_eq!(refusal(&mei).await, (Code::FailedPrecondition, "LIKERS_NOT_VISIBLE".to_owned()));
    assert_eq!(ava.all_likers("V1", 10).await, ["lin"]);
    change(&world, &ava, content::UpdateRequest { likers_visible: LikersVisible::Nobody.into(), ..of("V1") }).await;
    assert_eq!(refusal(&ava).await, (Code::FailedPrecondition, "LIKERS_NOT_VISIBLE".to_owned()));

    // A block works at once, both ways.
    change(&world, &ava, content::UpdateRequest { likers_visible: LikersVisible::Everyone.into(), ..of("V1") }).await;
    let message = content::BlockRequest { user_id: "lin".to_owned() };
    UserServiceClient::new(world.channel()).block(mei.request(message)).await.unwrap();
    assert_eq!(mei.all_likers("V1", 10).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_and_their_parts_are_told_to_those_who_are_entitled() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    let lin = world.user("lin").await;
    lin.set("V1", Liked, &operation(), None).await.unwrap();
    world.settled().await;
    let service = world.with_token("feed", Some(&world.service_token("feed")));
    let counts: Vec<VideoCount> = eventually("the number is there", async || {
        let counts = service.counts(&["V1", "nowhere"]).await.map_err(|status| format!("{status:?}"))?;
        let shown = counts[0].count.as_ref().and_then(|count| count.display);
        if shown == Some(1) { Ok(counts) } else { Err(format!("{counts:?}")) }
    })
    .await;
    let count = counts[0].count.clone().unwrap();
    assert_eq!((count.raw, count.risk_hidden, count.policy_hidden), (Some(1), Some(0), Some(0)));
    let anonymous = world.with_token("nobody", None).counts(&["V1"]).await.unwrap_err();
    assert_eq!((anonymous.code(), world.reason(&anonymous).as_str()), (Code::Unauthenticated, "TOKEN_MISSING"));
}
