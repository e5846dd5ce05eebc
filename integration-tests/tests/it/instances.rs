//! Two processes on the same stores: whichever is asked, it is one relation, one verdict, one count.

use std::collections::BTreeSet;

use fred::prelude::{ClientLike, KeysInterface};
use likewise_proto::command::v1::CommandOutcome;
use likewise_proto::types::v1::LikeState::{Liked, Unliked};

use crate::agree;
use crate::world::{World, eventually, operation, outcome};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_01_inv_02_one_operation_at_once_at_two_instances_is_one_change() {
    let world = World::start().await;
    let twin = world.twin().await;
    world.video("ava", "V1").await;
    let here = world.user("lin").await;
    let there = twin.again(&here);
    for round in 0..20 {
        let (id, state) = (operation(), if round % 2 == 0 { Liked } else { Unliked });
        let answers = futures::future::join_all((0..8).map(|turn| {
            let caller = if turn % 2 == 0 { here.clone() } else { there.clone() };
            let id = id.clone();
            async move { caller.set("V1", state, &id, None).await.unwrap() }
        }))
        .await;
        let version = u64::try_from(round).unwrap() + 1;
        for answer in &answers {
            assert_eq!(answer.operation, answers[0].operation, "one verdict, whoever tells it");
            assert_eq!(outcome(answer), (CommandOutcome::Applied, version));
        }
    }
    world.settled().await;
    agree::check(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_01_inv_18_two_instances_take_turns_on_every_shard() {
    let world = World::start().await;
    let twin = world.twin().await;
    world.video("ava", "V1").await;
    world.video("ava", "V2").await;
    let mut people = Vec::new();
    for number in 0..12 {
        people.push(world.user(&format!("u{number:02}")).await);
    }
    let taps = people.iter().flat_map(|person| {
        let there = twin.again(person);
        [(person.clone(), "V1"), (there.clone(), "V1"), (person.clone(), "V2"), (there, "V2")]
    });
    futures::future::join_all(taps.map(|(person, video)| async move {
        for round in 0..10 {
            let state = if round % 3 == 1 { Unliked } else { Liked };
            person.set(video, state, &operation(), None).await.unwrap();
        }
    }))
    .await;
    world.settled().await;
    agree::check(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_21_reading_leaves_hints_and_writes_no_view() {
    let mut world = World::start().await;
    world.video("ava", "V1").await;
    let lin = world.user("lin").await;
    lin.set("V1", Liked, &operation(), None).await.unwrap();
    world.settled().await;
    assert!(views(&world).await.len() == 1, "the aggregator wrote the view");

    // Nobody is left who may write one.
    world.restart_after_kill(&[("LIKEWISE__COUNTER__AGGREGATOR", "false")]).await;
    agree::forget_redis(&world).await;
    let lin = world.again(&lin);
    eventually("the page is answered from durable rows", async || {
        let page = lin.likes(&["V1"]).await;
        match page[0].count.as_ref().and_then(|count| count.display) {
            Some(1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    for _ in 0..20 {
        lin.likes(&["V1", "V2"]).await;
    }
    eventually("the miss left a hint", async || match hints(&world).await {
        hints if hints.is_empty() => Err("no hint".to_owned()),
        _ => Ok(()),
    })
    .await;
    assert_eq!(views(&world).await, BTreeSet::new(), "and no view");

    world.restart_after_kill(&[]).await;
    eventually("the aggregator writes the view again", async || {
        let views = views(&world).await;
        if views.iter().any(|key| key.ends_with("{V1}")) { Ok(()) } else { Err(format!("{views:?}")) }
    })
    .await;
}

async fn keys(world: &World, kind: &str) -> BTreeSet<String> {
    let config = fred::types::config::Config::from_url(&world.config.address.redis).unwrap();
    let redis = fred::clients::Client::new(config, None, None, None);
    redis.init().await.unwrap();
    let pattern = format!("{}like:count:{kind}:*", world.config.redis_prefix);
    let (_, keys): (String, Vec<String>) = redis.scan_page("0", pattern, Some(1_000_000), None).await.unwrap();
    redis.quit().await.unwrap();
    keys.into_iter().collect()
}

async fn views(world: &World) -> BTreeSet<String> {
    keys(world, "view").await
}

async fn hints(world: &World) -> BTreeSet<String> {
    keys(world, "hint").await
}
