//! Random histories on real partitions against the pure fold.

use std::collections::{BTreeMap, BTreeSet};

use likewise_domain::fold::{Projected, fold};
use likewise_domain::relation::LikeState;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::world::{Feed, World, message};

/// One delivery: (user, video, version); one truth per relation and version, so odd versions like and even ones unlike.
type Step = (u8, u8, u64);

#[derive(Debug, Clone)]
struct History {
    steps: Vec<Step>,
    /// Sizes into which the deliveries are cut.
    cuts: Vec<usize>,
    /// Batches that are delivered again at the end, by index.
    again: Vec<prop::sample::Index>,
}

fn history() -> impl Strategy<Value = History> {
    (
        prop::collection::vec((0u8..6, 0u8..3, 1u64..9), 1..60),
        prop::collection::vec(1usize..15, 1..6),
        prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    )
        .prop_map(|(steps, cuts, again)| History { steps, cuts, again })
}

fn model(steps: &[Step]) -> BTreeMap<u8, i64> {
    let mut held: BTreeMap<(u8, u8), Projected> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for &(user, video, version) in steps {
        let state = if version % 2 == 1 { LikeState::Liked } else { LikeState::Unliked };
        let kept = held.entry((user, video)).or_insert(Projected::UNSEEN);
        if let Some((next, delta)) = fold(*kept, Projected { version, state }) {
            *kept = next;
            *counts.entry(video).or_default() += delta;
        }
    }
    counts
}

async fn deliver(feed: &mut Feed, case: usize, history: &History) {
    let mut batches = Vec::new();
    let mut rest = history.steps.as_slice();
    for cut in history.cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*cut).min(rest.len()));
        let words: Vec<String> = now
            .iter()
            .map(|(user, video, version)| {
                let sign = if version % 2 == 1 { '+' } else { '-' };
                format!("u{user}{sign}{version}@c{case}v{video}")
            })
            .collect();
        batches.push(feed.messages(0, &words.join(" ")));
        rest = later;
    }
    for batch in &batches {
        feed.send(0, batch).await.expect("applied");
    }
    for index in &history.again {
        let batch = index.get(&batches);
        feed.send(0, batch).await.expect("applied");
        // The same messages as part of a longer batch.
        let longer = [batch.clone(), vec![message(0, 1_000_000, &format!("nobody-1@c{case}v0"))]].concat();
        feed.send(0, &longer).await.expect("applied");
    }
}

#[test]
fn inv_03_inv_06_random_histories_with_repeats_and_cuts_match_the_model() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (world, feed) = runtime.block_on(async {
        let world = World::new().await;
        let feed = world.fed().await;
        (world, feed)
    });
    let (feed, case) = (tokio::sync::Mutex::new(feed), std::cell::Cell::new(0));
    let mut runner = TestRunner::new(Config { cases: 48, max_shrink_iters: 200, ..Config::default() });
    runner
        .run(&history(), |history| {
            case.set(case.get() + 1);
            let case = case.get();
            runtime.block_on(async {
                deliver(&mut *feed.lock().await, case, &history).await;
                let prefix = format!("c{case}v");
                let mut sums: BTreeMap<String, i64> = BTreeMap::new();
                let mut partitions = BTreeSet::new();
                for ((video, vbucket), (count, _)) in world.buckets().await {
                    if video.starts_with(&prefix) {
                        partitions.insert(vbucket % 2);
                        *sums.entry(video).or_default() += count;
                    }
                }
                let expected: BTreeMap<String, i64> = model(&history.steps)
                    .into_iter()
                    .map(|(video, count)| (format!("{prefix}{video}"), count))
                    .filter(|(_, count)| *count > 0)
                    .collect();
                sums.retain(|_, count| *count > 0);
                assert_eq!(sums, expected);
                world.check_identity().await;
            });
            Ok(())
        })
        .expect("the partitions hold what the model says");
    drop(world);
}
