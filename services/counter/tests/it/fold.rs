//! The fold on real partitions: order, repeats, cuts, owners and broken buckets.

use likewise_kit::lanes::{ApplyError, Projection as _};

use crate::world::{VIDEO, World, lane, message};

/// Applies batches (one per line) on one lane and tells the final sum of the video.
async fn sum_after(batches: &str) -> i64 {
    let world = World::new().await;
    let mut feed = world.fed().await;
    for batch in batches.lines() {
        feed.apply(batch).await;
        world.check_identity().await;
    }
    world.sum(VIDEO).await
}

#[tokio::test(flavor = "multi_thread")]
async fn case_05_inv_03_an_unlike_that_overtakes_its_like_wins() {
    assert_eq!(sum_after("lin+10\nlin-12\nlin+11").await, 0);
    assert_eq!(sum_after("lin-12\nlin+11").await, 0);
    assert_eq!(sum_after("lin-12 lin+11").await, 0);
    assert_eq!(sum_after("lin+13\nlin-12").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_03_an_equal_version_changes_nothing() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    feed.apply("lin+5").await;
    let before = world.buckets().await;
    feed.apply("lin-5").await;
    assert_eq!(world.buckets().await, before, "no bucket was written");
    assert_eq!(world.sum(VIDEO).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_04_scn_b03_the_first_sight_of_an_unlike_is_no_decrement() {
    assert_eq!(sum_after("lin-1").await, 0);
    assert_eq!(sum_after("lin-1\nlin-2").await, 0);
    assert_eq!(sum_after("mei+1\nlin-1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_05_a_like_of_what_is_liked_is_no_increment() {
    assert_eq!(sum_after("lin+1\nlin+2\nlin+3").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_06_scn_b01_spamming_the_heart_never_falls_below_zero() {
    // Every delivery twice, the pairs in the wrong order: a table that adds and subtracts would go to -3.
    let story = "lin-2 lin-2 lin+1 lin+1 lin-4 lin+3 lin-4 lin+3 lin-6 lin+5 lin-6 lin+5";
    for cut in [1, 2, 5, 12] {
        let words: Vec<&str> = story.split_whitespace().collect();
        let batches: Vec<String> = words.chunks(cut).map(|words| words.join(" ")).collect();
        assert_eq!(sum_after(&batches.join("\n")).await, 0, "cut at {cut}");
    }
    let world = World::new().await;
    let mut feed = world.fed().await;
    feed.apply(story).await;
    for schema in world.partitions().await {
        let lowest = format!("select coalesce(min(active_count), 0) from {schema}.video_like_count_vbucket");
        assert_eq!(world.number(&lowest).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_08_scn_i13_a_message_published_twice_counts_once() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let batch = feed.messages(0, "lin+1 mei+1 ada+1 mei-2");
    for _ in 0..3 {
        feed.send(0, &batch).await.expect("applied");
    }
    assert_eq!(world.sum(VIDEO).await, 2);
    // The same messages, cut elsewhere.
    for message in &batch {
        feed.send(0, std::slice::from_ref(message)).await.expect("applied");
    }
    feed.send(0, &batch[1..]).await.expect("applied");
    assert_eq!(world.sum(VIDEO).await, 2);
    world.check_identity().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scn_b07_the_same_unlike_delivered_twice_at_once_is_one_decrement() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    feed.apply("lin+1 mei+1").await;
    let unlike = feed.messages(0, "lin-2");
    let both = tokio::join!(feed.send(0, &unlike), feed.send(0, &unlike));
    both.0.expect("applied");
    both.1.expect("applied");
    assert_eq!(world.sum(VIDEO).await, 1);
    world.check_identity().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_09_a_batch_that_committed_before_its_checkpoint_adds_nothing_when_it_comes_again() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let first = feed.messages(0, "lin+1 mei+1 ada+1");
    feed.send(0, &first).await.expect("committed");
    let before = world.buckets().await;
    // A new owner starts at the old checkpoint: the same messages with more behind them, so no receipt is the same.
    feed.projector.fence(&lane(0).to_string(), 2).await.expect("owned");
    let again = [first, feed.messages(0, "bo+1")].concat();
    likewise_kit::lanes::Projection::apply(&feed.projector, &lane(0), 2, &again).await.expect("applied");
    assert_eq!(world.sum(VIDEO).await, 4);
    let changed: i64 = world.buckets().await.values().map(|(_, version)| version).sum::<i64>()
        - before.values().map(|(_, version)| version).sum::<i64>();
    assert_eq!(changed, 1, "only the bucket of the new relation was written");
    world.check_identity().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_10_a_partition_that_failed_is_completed_by_the_replay() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    // Enough users for both partitions.
    let story: Vec<String> = (0..40).map(|user| format!("user{user}+1")).collect();
    let batch = feed.messages(0, &story.join(" "));
    world.run("alter table counter_p01.video_like_count_vbucket rename to hidden").await;
    let failed = feed.send(0, &batch).await;
    assert!(matches!(failed, Err(ApplyError::Retry(_))), "{failed:?}");
    world.run("alter table counter_p01.hidden rename to video_like_count_vbucket").await;
    let partial = world.sum(VIDEO).await;
    assert!(partial > 0 && partial < 40, "one partition committed its group: {partial}");
    let untouched = "select count(*) from counter_p01.like_count_projection";
    assert_eq!(world.number(untouched).await, 0, "relation, count and receipt commit together");
    assert_eq!(world.number("select count(*) from counter_p01.count_event_receipt").await, 0);

    feed.send(0, &batch).await.expect("applied");
    assert_eq!(world.sum(VIDEO).await, 40);
    world.check_identity().await;
    for schema in world.partitions().await {
        let receipts = format!("select count(*) from {schema}.count_event_receipt");
        assert_eq!(world.number(&receipts).await, 1, "one receipt per applied group");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_10_a_refused_route_keeps_the_offset_and_succeeds_when_the_fence_opens() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let story: Vec<String> = (0..40).map(|user| format!("user{user}+1")).collect();
    let batch = feed.messages(0, &story.join(" "));
    world.run("update counter_p01.partition_fence set state = 'DRAINING'").await;
    let refused = feed.send(0, &batch).await;
    let Err(ApplyError::Retry(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("ROUTE_EPOCH_MISMATCH"), "{reason}");
    assert_eq!(world.number("select count(*) from counter_p01.like_count_projection").await, 0);
    world.run("update counter_p01.partition_fence set state = 'ACTIVE', route_epoch = 2").await;
    assert!(feed.send(0, &batch).await.is_err(), "another route epoch is refused too");
    world.run("update counter_p01.partition_fence set route_epoch = 1").await;
    feed.send(0, &batch).await.expect("applied");
    assert_eq!(world.sum(VIDEO).await, 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_an_older_owner_is_fenced_in_every_partition() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let batch = feed.messages(0, "lin+1 mei+1");
    feed.projector.fence(&lane(0).to_string(), 7).await.expect("owned");
    assert!(matches!(feed.send(0, &batch).await, Err(ApplyError::Fenced)));
    assert_eq!(world.sum(VIDEO).await, 0);
    // A fence never lowers the owner.
    let late = likewise_kit::lanes::Projection::fence(&feed.projector, &lane(0), 6).await;
    assert!(matches!(late, Err(ApplyError::Fenced)));
    likewise_kit::lanes::Projection::apply(&feed.projector, &lane(0), 7, &batch).await.expect("applied");
    assert_eq!(world.sum(VIDEO).await, 2);
    // Other lanes are not touched by it.
    feed.apply_on(1, "ada+1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_a_message_that_cannot_be_understood_is_kept_and_passed() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let mut batch = feed.messages(0, "lin+1 mei+1 ada+1 bo+1");
    batch[1].payload = bytes::Bytes::from_static(b"\xff\xff\xff");
    batch[2].schema = "likewise.events.v9.Unheard".into();
    batch[3] = message(0, batch[3].offset.seq, "bo+0");
    for _ in 0..2 {
        feed.send(0, &batch).await.expect("passed");
    }
    assert_eq!(world.sum(VIDEO).await, 1);
    let rows = world
        .sql
        .query("select offset_seq, reason, payload from counter.count_quarantine order by 1", &[])
        .await
        .expect("quarantine");
    let kept: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(kept.iter().map(|row| row.0).collect::<Vec<_>>(), [2, 3, 4], "{kept:?}");
    assert!(kept[1].1.contains("Unheard") && kept[2].1.contains("relation_version"), "{kept:?}");
    assert_eq!(rows[0].get::<_, Vec<u8>>(2), b"\xff\xff\xff");
    assert_eq!(feed.projector.quarantined(&lane(0)).await, 3);
    assert_eq!(feed.projector.quarantined(&lane(1)).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_06_a_bucket_that_would_fall_below_zero_stands_still() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    feed.apply("lin+1").await;
    // A corruption: the bucket lost what its relation says.
    for schema in world.partitions().await {
        world.run(&format!("update {schema}.video_like_count_vbucket set active_count = 0")).await;
    }
    feed.apply("lin-2").await;
    let stands = |schema: String| {
        format!("select count(*) from {schema}.video_like_count_vbucket where quarantined_at is not null")
    };
    let mut quarantined = 0;
    for schema in world.partitions().await {
        quarantined += world.number(&stands(schema)).await;
    }
    assert_eq!(quarantined, 1);
    // Its relations are still folded, its sum stands still.
    feed.apply("lin+3").await;
    assert_eq!(world.sum(VIDEO).await, 0);
    assert_eq!(world.liked().await.values().sum::<i64>(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn scn_h01_a_hot_video_on_every_lane_at_once_spreads_over_buckets_without_deadlock() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let batches: Vec<_> = (0..feed.live.lanes())
        .flat_map(|shard| (0..5).map(move |round| (shard, round)))
        .map(|(shard, round)| {
            let story: Vec<String> = (0..200).map(|user| format!("u{shard}x{round}x{user}+1")).collect();
            (shard, feed.messages(shard, &story.join(" ")))
        })
        .collect();
    let sends = batches.iter().map(|(shard, batch)| feed.send(*shard, batch));
    for sent in futures::future::join_all(sends).await {
        sent.expect("no lane waits for another in a circle");
    }
    assert_eq!(world.sum(VIDEO).await, 200 * 5 * i64::from(feed.live.lanes()));
    let buckets = world.buckets().await.len();
    assert!(buckets > 200, "the changes of one video spread over {buckets} buckets");
    world.check_identity().await;
}
