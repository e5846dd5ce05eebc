//! What a batch of events leaves in the parts, whatever was repeated, overtaken or cut otherwise.

use std::collections::{BTreeMap, BTreeSet};

use likewise_kit::lanes::{ApplyError, Projection as _};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::rig::{Rig, lane};

#[tokio::test]
async fn inv_03_an_equal_or_lower_version_changes_nothing() {
    let mut rig = Rig::new().await;
    rig.apply("lin+11=20 mei-7").await;
    for story in ["lin+11=99", "lin-11", "lin-10", "lin+1=5", "mei+7", "mei+6", "mei-7"] {
        rig.apply(story).await;
        rig.check("lin+11=20 mei-7").await;
    }
    rig.apply("lin-12 mei+8").await;
    rig.check("lin-12 mei+8=8").await;
}

#[tokio::test]
async fn case_13_an_unlike_before_its_like_leaves_a_tombstone_and_no_order_row() {
    let mut rig = Rig::new().await;
    rig.apply("lin-12").await;
    rig.check("lin-12").await;
    rig.apply("lin+11").await;
    rig.check("lin-12").await;
}

#[tokio::test]
async fn inv_14_after_an_unlike_no_older_like_shows_the_user_again() {
    let mut rig = Rig::new().await;
    rig.apply("lin+11 mei+11").await;
    rig.apply("lin-12").await;
    for story in ["lin+11", "lin+9", "lin+1 lin+2 lin+3", "lin+11 mei+11 lin+10"] {
        rig.apply(story).await;
        rig.check("lin-12 mei+11=11").await;
    }
}

#[tokio::test]
async fn case_14_a_like_over_a_missing_unlike_moves_the_order_row() {
    let mut rig = Rig::new().await;
    rig.apply("lin+11").await;
    rig.apply("lin+13").await;
    rig.check("lin+13=13").await;
    rig.apply("lin-12").await;
    rig.check("lin+13=13").await;
    rig.apply("lin+15=13").await;
    rig.check("lin+15=13").await;
}

#[tokio::test]
async fn a_batch_that_comes_again_cut_otherwise_changes_nothing() {
    let mut rig = Rig::new().await;
    let story = "lin+1 mei+1 lin-2 noa+1@b lin+3 mei-2 ava+1 noa-2@b lin-4 ava-2 ava+3";
    let batch = rig.messages(0, story);
    rig.send(&batch).await.expect("applied");
    let expected = "lin-4 mei-2 noa-2@b ava+3=3";
    rig.check(expected).await;
    for size in [1, 2, 3, 5] {
        for cut in batch.chunks(size) {
            rig.send(cut).await.expect("applied again");
        }
        rig.check(expected).await;
    }
    let places = "select max(offset_seq) from (select offset_seq from reverse_p00.applied union all \
                  select offset_seq from reverse_p01.applied) as all_parts";
    let last: i64 = rig.sql.query_one(places, &[]).await.expect("a place").get(0);
    assert_eq!(last, 11, "no part's place goes back");
}

#[tokio::test]
async fn an_older_owner_of_a_lane_writes_nothing() {
    let mut rig = Rig::new().await;
    let batch = rig.messages(0, "lin+1 mei+1 ava+1 noa+1 kim+1 eli+1");
    rig.projection.fence(&lane(0), 2).await.expect("a newer owner");
    assert!(matches!(rig.send(&batch).await, Err(ApplyError::Fenced)));
    assert!(matches!(rig.projection.fence(&lane(0), 1).await, Err(ApplyError::Fenced)));
    rig.check("").await;
    rig.projection.apply(&lane(0), 2, &batch).await.expect("the owner's");
    assert_eq!(rig.stored().await.len(), 6);
}

/// One step of a history: which relation, which version, and whether it likes.
type Step = (u8, u8, u8, bool);

/// Random changes of a few relations, many of them repeated and out of order; a version always says the same.
fn history() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = (0u8..4, 0u8..2, 1u8..9).prop_map(|(user, video, version)| {
        // Any fixed rule will do: one version of a relation is one state.
        let likes = (user + video * 3 + version * 5) % 7 < 4;
        (user, video, version, likes)
    });
    prop::collection::vec(prop::collection::vec(step, 1..12), 1..8)
}

fn word((user, video, version, likes): Step, run: usize) -> String {
    // Times do not follow versions: the order of the list is not decided by them.
    let second = u32::from(version) * 13 % 10 + 100;
    let change = if likes { format!("+{version}={second}") } else { format!("-{version}") };
    format!("u{user}{change}@r{run}v{video}")
}

/// The highest version of each relation, as it is told in the stored notation.
fn model(batches: &[Vec<Step>], run: usize) -> BTreeSet<String> {
    let mut highest: BTreeMap<(u8, u8), Step> = BTreeMap::new();
    for step in batches.iter().flatten() {
        let kept = highest.entry((step.0, step.1)).or_insert(*step);
        if kept.2 < step.2 {
            *kept = *step;
        }
    }
    highest.into_values().map(|step| word(step, run)).collect()
}

#[tokio::test]
async fn inv_03_random_histories_end_as_the_model_says() {
    let mut rig = Rig::new().await;
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), seed);
    let mut expected = BTreeSet::new();
    for run in 0..60 {
        let batches = history().new_tree(&mut runner).expect("a history").current();
        for batch in &batches {
            let story: Vec<String> = batch.iter().map(|step| word(*step, run)).collect();
            rig.apply(&story.join(" ")).await;
        }
        expected.append(&mut model(&batches, run));
        assert_eq!(rig.stored().await, expected, "run {run}: {batches:?}");
    }
}
