//! A server of the facts loses commits that were published, answered and counted: its data folder is put back as it was
//! before. Afterwards facts, counts, lists and every page agree, and no version that anybody was told is above the facts.

use std::collections::BTreeMap;
use std::time::Duration;

use likewise_devstack::{Stack, StackSpec};

use crate::agree;
use crate::crash::{Load, Verdicts, people, verdicts_stand};
use crate::world::{Caller, World, eventually};

const VIDEOS: [&str; 5] = ["V0", "V1", "V2", "V3", "V4"];
const SHARDS: usize = 4;

/// Commits of each lane of relations that a round of load makes at least.
const ROUND: u64 = 20;

/// Last commit of each lane of relations.
async fn committed(world: &World) -> Result<BTreeMap<String, u64>, String> {
    let board = world.board().await.map_err(|status| format!("{status:?}"))?;
    let relations = board.lanes.into_iter().filter(|lane| lane.lane.starts_with("rel-"));
    relations.map(|lane| Ok((lane.lane.clone(), lane.committed_seq.ok_or(lane.lane)?))).collect()
}

/// Load until every lane of relations has a round of commits more.
async fn under_load(world: &World, users: &[Caller]) -> Verdicts {
    let before = eventually("every lane tells its last commit", async || match committed(world).await? {
        lanes if lanes.len() == SHARDS => Ok(lanes),
        lanes => Err(format!("{lanes:?}")),
    })
    .await;
    let load = Load::start(users);
    eventually("every lane takes commits", async || {
        let now = committed(world).await?;
        let done = before.iter().all(|(lane, last)| now.get(lane).is_some_and(|now| *now >= last + ROUND));
        if done { Ok(()) } else { Err(format!("{before:?} became {now:?}")) }
    })
    .await;
    load.finish().await
}

/// Lanes of relations that went on in a later epoch: how much was lost, and how many relations were stated again.
async fn repaired(world: &World) -> BTreeMap<String, (u64, u64)> {
    let lanes = world.board().await.expect("the board answers").lanes;
    let relations = lanes.into_iter().filter(|lane| lane.lane.starts_with("rel-"));
    let repaired = relations.filter(|lane| lane.status == "SERVING").filter_map(|lane| {
        let last = lane.epochs.last()?;
        Some((lane.lane, (last.lost, last.restated)))
    });
    repaired.collect()
}

/// What everybody is shown of the relations: versions by user, then by video.
async fn shown(world: &World, users: &[Caller]) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut shown = BTreeMap::new();
    for user in users {
        let page = world.again(user).likes(&VIDEOS).await;
        let versions = page.into_iter().map(|like| (like.video_id, like.relation_version)).collect();
        shown.insert(user.name.clone(), versions);
    }
    shown
}

/// Whoever was shown a version is answered with it or a higher one, and with what the facts say.
async fn versions_never_fall(
    users: &[Caller],
    before: &BTreeMap<String, BTreeMap<String, u64>>,
    facts: &BTreeMap<agree::Pair, agree::Known>,
) {
    for user in users {
        let least = &before[&user.name];
        let page = user.likes_since(&VIDEOS, least).await.expect("nobody waits for a version that was lost");
        for like in page {
            let (state, version) = facts.get(&(user.name.clone(), like.video_id.clone())).copied().unwrap_or((2, 0));
            assert_eq!((like.my_state, like.relation_version), (state.into(), version.cast_unsigned()), "{like:?}");
            assert!(like.relation_version >= least[&like.video_id], "{like:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_03_inv_25_case_45_facts_that_are_put_back_and_all_that_was_made_of_them_agree() {
    let spec = StackSpec { postgres_servers: 2, ..StackSpec::default() };
    let stack = tokio::task::spawn_blocking(move || Stack::start(spec)).await.expect("no panic").expect("a stack");
    let world = World::start_with_facts_apart(&stack).await;
    let users = people(&world).await;
    let kept = under_load(&world, &users).await;
    world.settled().await;
    let backup = tokio::task::block_in_place(|| stack.back_up_postgres(1)).expect("a copy");

    under_load(&world, &users).await;
    world.settled().await;
    let before = shown(&world, &users).await;
    assert_eq!(repaired(&world).await, BTreeMap::new(), "nothing is lost yet");

    // The users go on while the server comes back as it was before.
    let load = Load::start(&users);
    tokio::task::block_in_place(|| stack.put_back_postgres(&backup)).expect("put back");
    eventually("every shard that lost something serves again", async || match repaired(&world).await {
        lanes if lanes.len() == SHARDS => Ok(()),
        _ => Err(format!("{:?}", world.board().await.expect("the board answers").lanes)),
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    load.finish().await;
    world.settled().await;

    let (gone, restated) = repaired(&world).await.values().fold((0, 0), |sum, lane| (sum.0 + lane.0, sum.1 + lane.1));
    assert!(
        gone >= ROUND * SHARDS as u64 && restated > 0,
        "{gone} messages were lost, {restated} relations stated again"
    );
    let facts = agree::relations(&world).await;
    agree::check_copies(&world, &facts).await;
    versions_never_fall(&users, &before, &facts).await;
    verdicts_stand(&world, &kept).await;
    drop(world);
    tokio::task::spawn_blocking(move || stack.stop()).await.expect("stopped");
}
