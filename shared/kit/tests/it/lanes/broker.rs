//! A broker that goes away and comes back, with and without what it had acknowledged.

use std::fs;
use std::path::Path;
use std::process::Command;

use likewise_devstack::{Stack, StackSpec, TestStack};

use super::world::{World, consumer_watermark, lane_watermark, wait, wait_lane_error};

/// Servers that this test alone may take away.
fn stack() -> Stack {
    Stack::start(StackSpec::default()).expect("a stack")
}

#[tokio::test(flavor = "multi_thread")]
async fn drill_02_commits_succeed_while_the_broker_is_away_and_are_published_after_it() {
    let stack = stack();
    let world = World::on(&TestStack::of(&stack)).await;
    let process = world.process().await;
    let (publisher, (consumer, _projection)) = (process.publish(), process.consume());
    let mut last = world.commit(100).await;
    world.wait_checkpoint(last + 1).await;
    for _ in 0..3 {
        // In the middle of a burst.
        world.commit(2_000).await;
        publisher.wake();
        stack.nats().kill();
        last = world.commit(100).await;
        publisher.wake();
        wait_lane_error(&publisher, "not connected").await;
        let seen = lane_watermark(&publisher).await;
        assert!(seen.oldest_unpublished_at.is_some() && seen.published_seq < seen.committed_seq, "{seen:?}");
        wait("an error", || consumer_watermark(&consumer), |seen| seen.last_error.contains("not connected")).await;
        stack.nats().start().expect("started");
        world.wait_checkpoint(last + 1).await;
    }
    world.wait_published(last).await;
    world.check_published().await;
    world.check_applied().await;
    assert_eq!(lane_watermark(&publisher).await.last_error, "");
    assert_eq!(consumer_watermark(&consumer).await.last_error, "");
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_40_a_broker_that_lost_everything_is_filled_again_and_nothing_doubles() {
    let stack = stack();
    let world = World::on(&TestStack::of(&stack)).await;
    let process = world.process().await;
    let (publisher, (_consumer, _projection)) = (process.publish(), process.consume());
    let last = world.commit(700).await;
    publisher.wake();
    world.wait_checkpoint(last + 1).await;
    stack.nats().stop();
    fs::remove_dir_all(stack.address().folder.join("nats/store")).expect("removed");
    stack.nats().start().expect("started");
    // Without any new change.
    wait("the end of the stream", || world.stream_last(), |found| *found == last).await;
    let last = world.commit(5).await;
    world.wait_published(last).await;
    world.wait_checkpoint(last + 1).await;
    world.check_published().await;
    world.check_applied().await;
    assert_eq!(world.times_max().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn drill_17_case_40_a_broker_that_comes_back_without_its_end_gets_it_again_and_nothing_doubles() {
    let stack = stack();
    let world = World::on(&TestStack::of(&stack)).await;
    let process = world.process().await;
    let (publisher, (_consumer, _projection)) = (process.publish(), process.consume());
    let kept = world.commit(300).await;
    publisher.wake();
    world.wait_checkpoint(kept + 1).await;
    let (store, copy) = (stack.address().folder.join("nats/store"), stack.address().folder.join("nats/copy"));
    stack.nats().stop();
    copied(&store, &copy);
    stack.nats().start().expect("started");
    let last = world.commit(700).await;
    publisher.wake();
    world.wait_checkpoint(last + 1).await;
    world.wait_published(last).await;

    // Acknowledged, applied, and gone: what the disk had not got yet.
    stack.nats().kill();
    fs::remove_dir_all(&store).expect("removed");
    copied(&copy, &store);
    stack.nats().start().expect("started");
    wait("the end of the stream", || world.stream_last(), |found| *found == last).await;
    let metrics = process.runtime.metrics.encode();
    let lost = metrics.lines().find(|line| line.starts_with("likewise_lane_messages_lost_by_stream_total{"));
    assert!(lost.is_some_and(|line| line.ends_with(&format!(" {}", last - kept))), "{lost:?}");
    let last = world.commit(5).await;
    publisher.wake();
    world.wait_published(last).await;
    world.wait_checkpoint(last + 1).await;
    world.check_published().await;
    world.check_applied().await;
    assert_eq!(world.times_max().await, 1);
}

/// With owners and modes.
fn copied(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("started");
    assert!(copied.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_answers_too_late_doubles_nothing() {
    let stack = stack();
    let mut world = World::on(&TestStack::of(&stack)).await;
    world.settings.request_timeout_ms = 300;
    let process = world.process().await;
    let (publisher, (_consumer, _projection)) = (process.publish(), process.consume());
    let mut last = world.commit(10).await;
    world.wait_checkpoint(last + 1).await;
    for _ in 0..3 {
        // What was sent to the frozen broker is stored when it thaws, after we gave it up.
        stack.nats().freeze();
        last = world.commit(3_000).await;
        publisher.wake();
        wait("an error", || lane_watermark(&publisher), |seen| !seen.last_error.is_empty()).await;
        stack.nats().thaw();
        world.wait_checkpoint(last + 1).await;
    }
    world.wait_published(last).await;
    world.check_published().await;
    world.check_applied().await;
    assert_eq!(world.times_max().await, 1);
}
