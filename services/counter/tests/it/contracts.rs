//! Stored contracts: bucket spaces, placements, manifests, and every statement on the migrated schemas.

use std::collections::BTreeMap;

use likewise_counter::app::bootstrap;
use likewise_counter::store::statements;

use crate::world::{VIDEO, World, id};

async fn refusal(world: &World) -> String {
    let started = bootstrap::start(&world.servers, &world.settings).await;
    started.err().expect("the start must be refused").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_prepares_on_the_migrated_schemas() {
    let world = World::new().await;
    world.live().await;
    let statements = statements();
    assert!(statements.len() > 30, "{}", statements.len());
    for (schema, text) in statements {
        assert!(text.starts_with("-- counter."), "line 1 names the statement: {text}");
        world.run(&format!("set search_path = {schema}")).await;
        if let Err(error) = world.sql.prepare(text).await {
            panic!("{text}\n{error:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_states_the_contracts_and_a_second_changes_nothing() {
    let world = World::new().await;
    let live = world.live().await;
    assert_eq!((live.generation(), live.space().vbuckets(), live.lanes()), (1, 256, 4));
    assert_eq!(live.routes().partitions(), ["p00", "p01"]);
    assert_eq!(live.routes().owned_counts(), [128, 128]);
    let routes = live.routes();
    let again = world.live().await;
    assert_eq!(*again.routes(), *routes);
    assert_eq!(world.number("select count(*) from counter.count_route_manifest where status = 'SEALED'").await, 1);
    assert_eq!(world.number("select count(*) from counter.count_route_manifest").await, 1);
    assert_eq!(world.number("select count(*) from counter.count_bucket_route where route_epoch = 1").await, 256);
    for partition in world.partitions().await {
        assert_eq!(
            world.number(&format!("select count(*) from {partition}.partition_fence where state = 'ACTIVE'")).await,
            128
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_may_start_first_at_once() {
    let world = World::new().await;
    let starts = (0..3).map(|_| world.live());
    let lives = futures::future::join_all(starts).await;
    for live in &lives {
        assert_eq!(*live.routes(), *lives[0].routes());
    }
    assert_eq!(world.number("select count(*) from counter.count_route_manifest").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_15_inv_11_other_settings_leave_a_stored_bucket_space_as_it_is() {
    let mut world = World::new().await;
    let before = {
        let mut feed = world.fed().await;
        let story: Vec<String> = (0..60).map(|user| format!("user{user}+1")).collect();
        feed.apply(&story.join(" ")).await;
        world.buckets().await
    };
    // The next build has other defaults.
    world.settings.vbuckets = 64;
    world.settings.hash_seed = 99;
    world.settings.partitions = 3;
    let mut feed = world.fed().await;
    assert_eq!(feed.live.space().vbuckets(), 256);
    assert_eq!(feed.live.space().contract().hash_seed, 0);
    let user = likewise_domain::id::UserId::parse("user7").expect("an id");
    let vbucket = i32::try_from(feed.live.space().vbucket(&id(VIDEO), &user)).expect("small");
    assert!(before.contains_key(&(VIDEO.to_owned(), vbucket)));
    // Unlike, like again, and the same event late: always the same bucket, now written a second and third time.
    feed.next.insert(0, 61);
    feed.apply("user7-2").await;
    feed.apply("user7+3 user7+1").await;
    let after = world.buckets().await;
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "no bucket was added");
    let key = (VIDEO.to_owned(), vbucket);
    assert_eq!(after[&key].0, before[&key].0);
    assert_eq!(after[&key].1, before[&key].1 + 2);
    world.check_identity().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_15_a_bucket_space_and_a_sealed_manifest_are_frozen_in_the_database() {
    let world = World::new().await;
    world.live().await;
    for change in [
        "update counter.count_bucket_space set vbuckets = 64",
        "delete from counter.count_bucket_space",
        "update counter.count_route_manifest set checksum = '\\x00'",
        "update counter.count_route_manifest_item set partition = 'p00' where vbucket = 1",
        "delete from counter.count_route_manifest_item where vbucket = 1",
        "insert into counter.count_route_manifest_item values (1, 256, 'p00', 1)",
    ] {
        assert!(world.sql.batch_execute(change).await.is_err(), "{change}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_not_what_was_sealed_is_refused() {
    let world = World::new().await;
    world.live().await;
    world.run("alter table counter.count_route_manifest_item disable trigger all").await;
    world.run("update counter.count_route_manifest_item set partition = 'p00' where vbucket = 1").await;
    let refused = refusal(&world).await;
    assert!(refused.contains("other rows than it was sealed with"), "{refused}");
    world.run("delete from counter.count_route_manifest_item where vbucket = 1").await;
    let refused = refusal(&world).await;
    assert!(refused.contains("does not route every vbucket"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_lanes_never_changes() {
    let mut world = World::new().await;
    world.live().await;
    world.settings.lanes = 8;
    let refused = refusal(&world).await;
    assert!(refused.contains("lanes"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_another_one_is_refused() {
    let world = World::new().await;
    world.live().await;
    world.run("update counter_p01.partition_identity set incarnation = gen_random_uuid()").await;
    let refused = refusal(&world).await;
    assert!(refused.contains("is not the partition p01"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_killed_before_the_switch_is_completed_by_the_next() {
    let world = World::new().await;
    world.live().await;
    // As a kill between the sealed manifest and the switch leaves it.
    world.run("update counter.count_projection_generation set status = 'SHADOW', active_manifest_id = null").await;
    world.run("delete from counter.count_bucket_route").await;
    world.run("delete from counter_p01.partition_fence where vbucket % 3 = 0").await;
    let mut feed = world.fed().await;
    let story: Vec<String> = (0..40).map(|user| format!("user{user}+1")).collect();
    feed.apply(&story.join(" ")).await;
    assert_eq!(world.sum(VIDEO).await, 40);
    assert_eq!(world.number("select count(*) from counter.count_route_manifest").await, 1, "the sealed one is used");
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_follow_the_active_manifest_and_sums_read_only_the_owner() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let story: Vec<String> = (0..60).map(|user| format!("user{user}+1")).collect();
    feed.apply(&story.join(" ")).await;
    world.checkpoint(&feed).await;
    // A copy of a bucket that stands where it is not owned, as a migration makes one, is never added.
    world
        .run("insert into counter_p00.video_like_count_vbucket select * from counter_p01.video_like_count_vbucket")
        .await;
    let running = world.aggregating(&feed.live).await;
    crate::world::until("the display row", || world.display(VIDEO), |row| row.is_some()).await;
    assert_eq!(world.display(VIDEO).await.map(|row| row.0), Some(60));
    running.end().await;

    // Another manifest with everything at p00, at the next route epoch.
    world.run("set search_path = counter").await;
    let owned: BTreeMap<&str, u32> = [("p00", 256)].into();
    world.run("insert into counter.count_route_manifest (generation, bucket_space_version, status) values (1, 1, 'BUILDING')").await;
    world
        .run("insert into counter.count_route_manifest_item select 2, vbucket, 'p00', route_epoch + 1 from counter.count_route_manifest_item")
        .await;
    let items: Vec<_> = (0..256)
        .map(|vbucket| likewise_counter::route::Item { vbucket, partition: "p00".into(), route_epoch: 2 })
        .collect();
    let sealed = likewise_counter::route::seal(&items);
    world
        .sql
        .execute(
            "update counter.count_route_manifest set status = 'SEALED', row_count = 256, checksum = $1, sealed_at = now() where manifest_id = 2",
            &[&sealed.checksum],
        )
        .await
        .expect("sealed");
    world.run("update counter.count_projection_generation set active_manifest_id = 2").await;
    world
        .run(
            "insert into counter_p00.partition_fence select 1, v, 2, 'ACTIVE' from generate_series(0, 255) v \
               on conflict (generation, vbucket) do update set route_epoch = 2",
        )
        .await;
    world.run("update counter_p01.partition_fence set state = 'CLOSED'").await;
    world.run("insert into counter_p00.like_count_projection select * from counter_p01.like_count_projection").await;
    // The projector still has the old routes: refused at p01, it reads them again and goes on.
    feed.apply("late+1 user3-2").await;
    assert_eq!(feed.live.routes().manifest(), 2);
    let counts: BTreeMap<_, _> =
        feed.live.routes().partitions().to_vec().into_iter().zip(feed.live.routes().owned_counts()).collect();
    assert_eq!(counts.iter().map(|(name, count)| (name.as_str(), *count)).collect::<BTreeMap<_, _>>(), owned);
    let sum = "select sum(active_count)::bigint from counter_p00.video_like_count_vbucket";
    assert_eq!(world.number(sum).await, 60);
}
