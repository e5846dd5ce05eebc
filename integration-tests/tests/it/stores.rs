//! What stays true when a store is emptied or away, and when the build's defaults change.

use likewise_proto::types::v1::LikeState::Liked;

use crate::agree;
use crate::world::{World, operation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_08_an_emptied_redis_loses_no_relation_and_no_count() {
    let world = World::start().await;
    world.video("ava", "V1").await;
    let mut position = String::new();
    let mut people = Vec::new();
    for number in 0..8 {
        let user = world.user(&format!("u{number}")).await;
        position = user.set("V1", Liked, &operation(), None).await.unwrap().position;
        people.push(user);
    }
    world.settled().await;
    people[0].likes_at(&["V1"], &position).await;

    agree::forget_redis(&world).await;
    let page = people[0].likes_at(&["V1"], &position).await;
    assert_eq!((page[0].my_state(), page[0].count.as_ref().unwrap().display), (Liked, Some(8)));

    let more = world.user("more").await;
    let position = more.set("V1", Liked, &operation(), None).await.unwrap().position;
    let page = more.likes_at(&["V1"], &position).await;
    assert_eq!(page[0].count.as_ref().unwrap().display, Some(9));
    agree::check(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_15_inv_11_other_defaults_do_not_move_a_stored_generation() {
    let mut world = World::start().await;
    world.video("ava", "V1").await;
    for number in 0..10 {
        world.user(&format!("u{number}")).await.set("V1", Liked, &operation(), None).await.unwrap();
    }
    world.settled().await;
    let before = agree::vbuckets(&world).await;
    world.restart_after_kill(&[("LIKEWISE__COUNTER__VBUCKETS", "16"), ("LIKEWISE__COUNTER__HASH_SEED", "99")]).await;
    for number in 0..10 {
        let user = world.user(&format!("u{number}")).await;
        user.set("V1", likewise_proto::types::v1::LikeState::Unliked, &operation(), None).await.unwrap();
        user.set("V1", Liked, &operation(), None).await.unwrap();
    }
    world.settled().await;
    assert_eq!(agree::vbuckets(&world).await, before);
    agree::check(&world).await;
}
