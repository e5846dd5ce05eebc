//! Display rows and Redis views: what makes them, what they survive, what they never do.

use std::sync::Arc;

use likewise_counter::display::{DisplayRow, Parts};
use time::OffsetDateTime;

use crate::world::{Feed, VIDEO, World, connected, forget_views, id, message, until, view};

/// Waits until everything fed is in durable rows and views.
async fn settle(world: &World, feed: &Feed) {
    world.checkpoint(feed).await;
    let total: i64 = feed.next.values().map(|next| i64::try_from(*next).expect("small")).sum();
    let position = "select coalesce(sum(next_offset), 0)::bigint from counter.count_aggregator_position";
    until("the position", || world.number(position), |found| *found == total).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_video_gets_its_row_and_its_view_and_then_the_position_advances() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let running = world.aggregating(&feed.live).await;
    let (redis, views) = (world.redis().await, world.views(&feed.live).await);
    feed.apply("lin+1 mei+1 ada+1@other").await;
    settle(&world, &feed).await;
    let (display, pass, approximate) = world.display(VIDEO).await.expect("a row");
    assert_eq!((display, approximate), (2, false));
    let shown = view(&redis, &views, VIDEO).await;
    for (field, value) in [
        ("raw", "2"),
        ("risk", "0"),
        ("policy", "0"),
        ("display", "2"),
        ("approximate", "0"),
        ("pass", &pass.to_string()),
    ] {
        assert_eq!(shown[field], value, "{field} in {shown:?}");
    }
    let age = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000
        - shown["generated_at"].parse::<i128>().expect("microseconds");
    assert!((0..60_000_000).contains(&age), "{age}");
    assert_eq!(view(&redis, &views, "other").await["display"], "1");

    feed.apply("lin-2").await;
    settle(&world, &feed).await;
    assert_eq!(world.display(VIDEO).await.map(|row| row.0), Some(1));
    assert_eq!(view(&redis, &views, VIDEO).await["display"], "1");
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scn_a11_a_view_and_a_row_never_go_back_to_an_older_pass() {
    let world = World::new().await;
    let live = world.live().await;
    let (redis, views) = (world.redis().await, world.views(&live).await);
    connected(&redis).await;
    let row = |pass, raw| DisplayRow {
        video: id(VIDEO),
        parts: Parts { raw, ..Parts::default() },
        pass,
        generated_at: OffsetDateTime::now_utc(),
    };
    views.write(&[row(10, 5)]).await.expect("written");
    views.write(&[row(9, 99)]).await.expect("refused quietly");
    views.write(&[row(0, 0)]).await.expect("refused quietly");
    assert_eq!(view(&redis, &views, VIDEO).await["raw"], "5");
    views.write(&[row(10, 6)]).await.expect("a not lower pass");
    assert_eq!(view(&redis, &views, VIDEO).await["raw"], "6");

    let write = likewise_counter::store::statements()
        .into_iter()
        .find(|(_, text)| text.starts_with("-- counter.display_write"))
        .expect("the statement")
        .1;
    world.run("set search_path = counter").await;
    for (pass, raw, kept) in [(10i64, 5i64, (5, 10)), (9, 99, (5, 10)), (10, 6, (6, 10))] {
        let now = OffsetDateTime::now_utc();
        world
            .sql
            .execute(write, &[&1i32, &pass, &now, &vec![VIDEO], &vec![raw], &vec![0i64], &vec![0i64], &vec![false]])
            .await
            .expect("written or refused quietly");
        assert_eq!(world.display(VIDEO).await.map(|row| (row.0, row.1)), Some(kept));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_08_an_emptied_redis_loses_no_count_and_missed_views_come_back() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let running = world.aggregating(&feed.live).await;
    let (redis, views) = (world.redis().await, world.views(&feed.live).await);
    feed.apply("lin+1 mei+1 ada+1@other").await;
    settle(&world, &feed).await;
    forget_views(&redis, &views, &[VIDEO, "other"]).await;

    let counts = Arc::new(world.counts(&feed.live));
    let (rows, progress) = counts.rows(&[id(VIDEO), id("nobody")]).await.expect("durable rows");
    assert_eq!(rows[0].as_ref().map(|row| row.parts.raw), Some(2));
    assert_eq!(rows[1], None);
    assert!(progress.reached.pass > 0);
    let stop = tokio_util::sync::CancellationToken::new();
    let filing = tokio::spawn({
        let (counts, views, wake, stop) = (Arc::clone(&counts), views.clone(), Arc::clone(&running.wake), stop.clone());
        async move { counts.file_hints(&views, &wake, &stop).await }
    });
    let back = until("the view", || view(&redis, &views, VIDEO), |view| !view.is_empty()).await;
    assert_eq!(back["display"], "2");
    let absent = until("the view of no row", || view(&redis, &views, "nobody"), |view| !view.is_empty()).await;
    assert_eq!((absent["display"].as_str(), absent["pass"].as_str()), ("0", "0"));
    assert!(view(&redis, &views, "other").await.is_empty(), "nobody missed it");
    // The next change writes its view anyway.
    feed.apply("bo+1@other").await;
    settle(&world, &feed).await;
    assert_eq!(view(&redis, &views, "other").await["display"], "2");
    stop.cancel();
    filing.await.expect("ends");
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_on_while_redis_is_away_and_no_view_stays_old() {
    for views_waiting_max in [1_000, 1] {
        // With room for the views that wait, and with so little that they are given up and found again from receipts.
        let mut world = World::new().await;
        world.settings.views_waiting_max = views_waiting_max;
        world.settings.pass_videos_max = world.settings.pass_videos_max.min(views_waiting_max);
        let mut feed = world.fed().await;
        let redis = world.redis().await;
        let views = world.views(&feed.live).await;
        feed.apply("lin+1 ada+1@other bo+1@third").await;
        let running = world.aggregating(&feed.live).await;
        settle(&world, &feed).await;
        running.end().await;

        // Redis is away: nothing listens there.
        let away = world.redis_at(1).await;
        let running = world.aggregating_with(&feed.live, world.views_on(&feed.live, away));
        let position = "select coalesce(sum(next_offset), 0)::bigint from counter.count_aggregator_position";
        let before = world.number(position).await;
        for (story, expected) in [("mei+1 mei+1@other mei+1@third", 2), ("kim+1", 3)] {
            feed.apply(story).await;
            world.checkpoint(&feed).await;
            until("the row", || world.display(VIDEO), |row| row.is_some_and(|row| row.0 == expected)).await;
        }
        assert_eq!(world.display("other").await.map(|row| row.0), Some(2));
        assert_eq!(world.number(position).await, before, "the position waits for the views");
        assert_eq!(view(&redis, &views, VIDEO).await["display"], "1", "and nobody says that they are covered");
        let counts = world.counts(&feed.live);
        let both = counts.progress().await.expect("progress").reached;
        let (_, rows) = counts.rows(&[]).await.expect("progress");
        assert!(rows.reached.vector.covers(&both.vector) && rows.reached.vector != both.vector);
        // A crash in the middle of it.
        running.end().await;
        let running = world.aggregating(&feed.live).await;
        settle(&world, &feed).await;
        for (video, expected) in [(VIDEO, "3"), ("other", "2"), ("third", "2")] {
            assert_eq!(view(&redis, &views, video).await["display"], expected, "{video}");
        }
        running.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn views_that_were_given_up_come_back_without_a_restart() {
    let mut world = World::new().await;
    world.settings.views_waiting_max = 1;
    world.settings.pass_videos_max = 1;
    let mut feed = world.fed().await;
    // A Redis that is not there yet.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let views = world.views_on(&feed.live, world.redis_at(port).await);
    let running = world.aggregating_with(&feed.live, views.clone());
    feed.apply("lin+1 ada+1@other bo+1@third").await;
    world.checkpoint(&feed).await;
    until("the row", || world.display("third"), |row| row.is_some()).await;
    let forward = forward(port, world.config.address.redis.clone()).await;
    settle(&world, &feed).await;
    let redis = world.redis().await;
    for video in [VIDEO, "other", "third"] {
        assert_eq!(view(&redis, &views, video).await["display"], "1", "{video}");
    }
    running.end().await;
    forward.abort();
}

/// Makes the real Redis answer at `port`.
async fn forward(port: u16, redis: String) -> tokio::task::JoinHandle<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("the port is still free");
    let target =
        redis.trim_start_matches("redis://").rsplit('@').next().expect("an address").trim_end_matches('/').to_owned();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let target = target.clone();
            tokio::spawn(async move {
                if let Ok(mut to) = tokio::net::TcpStream::connect(&target).await {
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                }
            });
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_owner_misses_no_video_after_a_crash_between_row_and_position() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    feed.apply("lin+1 ada+1@other").await;
    let running = world.aggregating(&feed.live).await;
    settle(&world, &feed).await;
    running.end().await;
    // As a crash leaves it: the buckets changed, the receipt is there, nothing is summed.
    feed.apply("mei+1@other").await;
    world.checkpoint(&feed).await;
    world.run("update counter.count_display_snapshot set raw = 7 where video_id = 'other'").await;
    let running = world.aggregating(&feed.live).await;
    settle(&world, &feed).await;
    assert_eq!(world.display("other").await.map(|row| row.0), Some(2));
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bounded_pass_still_serves_everybody_and_completes_in_order() {
    let world = World::with(|settings| {
        settings.pass_videos_max = 7;
        settings.pass_offsets_max = 50;
    })
    .await;
    let mut feed = world.fed().await;
    for round in 0..4 {
        let story: Vec<String> = (0..60).map(|video| format!("u{round}+1@video{video}")).collect();
        feed.apply_on(round, &story.join(" ")).await;
    }
    world.checkpoint(&feed).await;
    // Owners that end in the middle of it, and owners that carry on.
    for passes in [3, 9, 14] {
        let running = world.aggregating(&feed.live).await;
        let begun = "select coalesce(max(pass), 0) from counter.count_aggregation_pass";
        until("some passes", || world.number(begun), |found| *found >= passes).await;
        running.end().await;
    }
    let running = world.aggregating(&feed.live).await;
    settle(&world, &feed).await;
    let wrong = "select count(*) from counter.count_display_snapshot where display <> 4";
    assert_eq!(world.number(wrong).await, 0);
    assert_eq!(world.number("select count(*) from counter.count_display_snapshot").await, 60);
    let largest = "select max(videos) from counter.count_aggregation_pass";
    assert_eq!(world.number(largest).await, 7);
    // Vectors of completed passes never go back.
    let back = "select count(*) from (select next_offsets[1] as at, lag(next_offsets[1]) over (order by pass) as before \
                from counter.count_aggregation_pass where completed_at is not null) p where at < before";
    assert_eq!(world.number(back).await, 0);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scn_h03_an_idle_aggregator_writes_nothing() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    feed.apply("lin+1").await;
    let running = world.aggregating(&feed.live).await;
    settle(&world, &feed).await;
    let figures = "select max(pass) from counter.count_aggregation_pass";
    let before = world.number(figures).await;
    // It looks for work several times meanwhile: each hint it serves shows one look.
    let (redis, views) = (world.redis().await, world.views(&feed.live).await);
    for _ in 0..5 {
        forget_views(&redis, &views, &[VIDEO]).await;
        views.file_hints(&[id(VIDEO)], 10).await.expect("filed");
        running.wake.notify_one();
        until("the view", || view(&redis, &views, VIDEO), |view| !view.is_empty()).await;
    }
    assert_eq!(world.number(figures).await, before);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_aggregators_never_work_at_once() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let (first, second) = (world.aggregating(&feed.live).await, world.aggregating(&feed.live).await);
    for round in 0..20 {
        feed.apply(&format!("u{round}+1")).await;
        world.checkpoint(&feed).await;
    }
    settle(&world, &feed).await;
    assert_eq!(world.display(VIDEO).await.map(|row| row.0), Some(20));
    assert_eq!(world.number("select epoch from counter.lease where name like 'counter.aggregator%'").await, 1);
    first.end().await;
    second.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_06_a_bucket_that_stands_still_makes_its_video_approximate_and_no_other() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    feed.apply("lin+1 ada+1@other").await;
    for schema in world.partitions().await {
        world
            .run(&format!("update {schema}.video_like_count_vbucket set active_count = 0 where video_id = '{VIDEO}'"))
            .await;
    }
    feed.apply("lin-2 bo+1@other").await;
    let running = world.aggregating(&feed.live).await;
    settle(&world, &feed).await;
    assert_eq!(world.display(VIDEO).await.map(|row| (row.0, row.2)), Some((0, true)));
    assert_eq!(world.display("other").await.map(|row| (row.0, row.2)), Some((2, false)));
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_an_open_quarantine_row_makes_the_generation_incomplete_until_it_is_closed() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let mut batch = vec![message(0, 1, "lin+1"), message(0, 2, "mei+1")];
    batch[1].payload = bytes::Bytes::from_static(b"\x01");
    feed.send(0, &batch).await.expect("passed");
    feed.next.insert(0, 3);
    let running = world.aggregating(&feed.live).await;
    settle(&world, &feed).await;
    let counts = world.counts(&feed.live);
    assert!(counts.progress().await.expect("progress").incomplete);
    world.run("update counter.count_quarantine set closed_at = now(), closed_cause = 'folded from the facts'").await;
    assert!(!counts.progress().await.expect("progress").incomplete);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_and_passes_past_their_time_are_dropped_but_never_those_that_are_needed() {
    let world = World::with(|settings| {
        settings.trace_days = 0;
        settings.trim_interval_ms = 10;
    })
    .await;
    let mut feed = world.fed().await;
    let running = world.aggregating(&feed.live).await;
    for round in 0..4 {
        feed.apply(&format!("lin{round}+1")).await;
        settle(&world, &feed).await;
    }
    let receipts = async || {
        world.number("select count(*) from counter_p00.count_event_receipt").await
            + world.number("select count(*) from counter_p01.count_event_receipt").await
    };
    until("no receipt below the position", receipts, |found| *found == 0).await;
    let passes = "select count(*) from counter.count_aggregation_pass";
    until("one pass", || world.number(passes), |found| *found == 1).await;
    assert_eq!(world.number(&format!("{passes} where completed_at is not null")).await, 1, "the last completed one");
    // Applied, and the offset not yet past it: its receipt is what a pass will find it by.
    feed.apply("mei+1").await;
    let ahead = feed.next.insert(0, 5).expect("a next offset");
    feed.apply_on(1, "ada+1@other").await;
    settle(&world, &feed).await;
    until("only that receipt", receipts, |found| *found == 1).await;
    feed.next.insert(0, ahead);
    settle(&world, &feed).await;
    assert_eq!(world.display(VIDEO).await.map(|row| row.0), Some(5));
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_24_what_is_hidden_is_subtracted_once_and_each_part_is_stored_by_itself() {
    let world = World::new().await;
    let mut feed = world.fed().await;
    let story: Vec<String> = (0..20).map(|user| format!("u{user}+1")).collect();
    feed.apply(&story.join(" ")).await;
    // Two relations are hidden by risk and one by policy, in buckets that have them.
    for (reason, number) in [("risk", 2), ("policy", 1)] {
        world
            .run(&format!(
                "update counter_p00.video_like_count_vbucket set {reason}_hidden_count = 1 where vbucket in (
                   select vbucket from counter_p00.video_like_count_vbucket
                   where active_count > risk_hidden_count + policy_hidden_count order by vbucket limit {number})"
            ))
            .await;
    }
    let running = world.aggregating(&feed.live).await;
    let (redis, views) = (world.redis().await, world.views(&feed.live).await);
    settle(&world, &feed).await;
    let row = "select raw, risk_hidden, policy_hidden, display from counter.count_display_snapshot";
    let row = world.sql.query_one(row, &[]).await.expect("a row");
    let parts: [i64; 4] = [0, 1, 2, 3].map(|index| row.get(index));
    assert_eq!(parts, [20, 2, 1, 17]);
    let shown = view(&redis, &views, VIDEO).await;
    let fields = ["raw", "risk", "policy", "display"].map(|field| shown[field].as_str());
    assert_eq!(fields, ["20", "2", "1", "17"]);
    running.end().await;
}
