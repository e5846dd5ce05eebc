//! The consumer against a real stream.

use std::sync::atomic::Ordering;

use async_nats::jetstream::context::traits::Publisher as _;
use async_nats::jetstream::message::PublishMessage;
use likewise_kit::lanes::{ConsumerState, checkpoints};
use uuid::Uuid;

use super::toy::{SCHEMA, ToyProjection};
use super::world::{World, consumer_watermark, wait, wait_status};

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_everything_is_applied_once_in_order_and_in_bounded_batches() {
    let mut world = World::new().await;
    (world.settings.consume_batch, world.settings.consume_bytes) = (100, 8 * 1024);
    let process = world.process().await;
    let (handle, projection) = process.consume();
    wait_status(&handle, "WAITING").await;
    let publisher = process.publish();
    let last = world.commit(3_000).await;
    publisher.wake();
    world.wait_checkpoint(last + 1).await;
    world.check_applied().await;
    assert_eq!(world.times_max().await, 1);
    let batches = projection.batches.lock().expect("not poisoned").clone();
    let mut next = 1;
    for (first, last) in batches {
        assert_eq!(first, next, "batches follow one another");
        assert!(last - first < 100);
        next = last + 1;
    }
    let seen = consumer_watermark(&handle).await;
    assert_eq!((seen.projection.as_str(), seen.lane.as_str(), seen.status.as_str()), ("toy.g1", "toy-03", "RUNNING"));
    assert_eq!((seen.epoch, seen.next_offset, seen.last_error.as_str()), (0, last + 1, ""));
    assert!(seen.updated_at.is_some());
    let stored = checkpoints(&world.pool, "toy.g1").await.expect("read");
    assert_eq!((stored.len(), stored[0].next_offset), (1, last + 1));
    assert_eq!(stored[0].last_event_id, world.outbox_ids().await.last().copied());
    process.stop().await;
    assert_eq!(handle.state(), ConsumerState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_a_pause_is_applied_too() {
    let mut world = World::new().await;
    world.settings.pull_expires_ms = 300;
    let process = world.process().await;
    let (publisher, (_handle, _projection)) = (process.publish(), process.consume());
    for _ in 0..3 {
        let last = world.commit(2).await;
        publisher.wake();
        world.wait_checkpoint(last + 1).await;
        let looks =
            "select (extract(epoch from clock_timestamp() - max(updated_at)) * 1000)::bigint from consumer_checkpoint";
        wait("several pulls without a message", || world.number(looks), |since| *since > 1_000).await;
    }
    world.check_applied().await;
    assert_eq!(world.times_max().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_09_an_apply_that_fails_midway_is_made_again_and_nothing_passes_it() {
    let world = World::new().await;
    let process = world.process().await;
    let publisher = process.publish();
    let last = world.commit(50).await;
    world.wait_published(last).await;
    let projection = ToyProjection::new(process.pool.clone());
    projection.failures.store(4, Ordering::SeqCst);
    let (handle, projection) = process.consume_with(projection);
    wait("an error", || consumer_watermark(&handle), |seen| seen.last_error.contains("half of it")).await;
    let last = world.commit(50).await;
    publisher.wake();
    world.wait_checkpoint(last + 1).await;
    world.check_applied().await;
    assert!(world.times_max().await > 1, "the written half came again");
    assert!(projection.attempts.load(Ordering::SeqCst) > 4);
    wait_status(&handle, "RUNNING").await;
    assert_eq!(consumer_watermark(&handle).await.last_error, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checkpoint_stays_while_a_batch_fails() {
    let world = World::new().await;
    let process = world.process().await;
    let _publisher = process.publish();
    world.commit(5).await;
    let projection = ToyProjection::new(process.pool.clone());
    projection.failures.store(usize::MAX, Ordering::SeqCst);
    let (handle, projection) = process.consume_with(projection);
    let attempts = || async { projection.attempts.load(Ordering::SeqCst) };
    wait("many attempts", attempts, |attempts| *attempts > 6).await;
    let seen = consumer_watermark(&handle).await;
    assert_eq!((seen.status.as_str(), seen.next_offset), ("RETRYING", 1));
    // A process that stops does not wait for a batch that fails.
    process.stop().await;
    assert_eq!(world.number("select max(next_offset) from consumer_checkpoint").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_is_followed_by_another_without_loss() {
    let mut world = World::new().await;
    world.settings.consume_batch = 20;
    let publishing = world.process().await;
    let publisher = publishing.publish();
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(world.process().await);
    }
    let _consumers: Vec<_> = processes.iter().map(super::world::Process::consume).collect();
    let mut last = 0;
    for process in processes {
        last = world.commit(400).await;
        publisher.wake();
        // The owner is killed somewhere within the burst, or one that only waits.
        process.kill();
    }
    let survivor = world.process().await;
    let (handle, _projection) = survivor.consume();
    world.wait_checkpoint(last + 1).await;
    world.check_applied().await;
    assert_eq!(handle.next_offset(), last + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_owner_that_wakes_up_cannot_move_the_checkpoint() {
    let mut world = World::new().await;
    // So long that the old owner does not notice by itself.
    world.settings.lease_ttl_ms = 60_000;
    let (old, new) = (world.process().await, world.process().await);
    let publisher = old.publish();
    let last = world.commit(10).await;
    world.wait_published(last).await;
    let mut projection = ToyProjection::new(old.pool.clone());
    projection.fences = false;
    projection.gated.store(true, Ordering::SeqCst);
    let (old_handle, old_projection) = old.consume_with(projection);
    wait("effects of the old owner", || world.number("select count(*) from applied"), |count| *count > 0).await;
    // The old owner is frozen between its effects and the checkpoint; its lease runs out.
    world.execute("update lease set expires_at = clock_timestamp() where name like 'consumer/%'").await;
    let mut projection = ToyProjection::new(new.pool.clone());
    projection.fences = false;
    projection.gated.store(true, Ordering::SeqCst);
    let (new_handle, new_projection) = new.consume_with(projection);
    wait("the new owner", || world.number("select max(owner_epoch) from consumer_checkpoint"), |epoch| *epoch == 2)
        .await;
    let before = checkpoints(&world.pool, "toy.g1").await.expect("read");
    old_projection.gate.add_permits(1_000);
    wait_status(&old_handle, "WAITING").await;
    assert_eq!(checkpoints(&world.pool, "toy.g1").await.expect("read"), before);
    new_projection.gate.add_permits(1_000);
    world.wait_checkpoint(last + 1).await;
    let last = world.commit(10).await;
    publisher.wake();
    world.wait_checkpoint(last + 1).await;
    assert_eq!(world.number("select owner_epoch from consumer_checkpoint").await, 2);
    world.check_applied().await;
    assert_eq!(consumer_watermark(&new_handle).await.status, "RUNNING");
    // Who waits tells what is stored, not what it last knew.
    assert_eq!(consumer_watermark(&old_handle).await.next_offset, last + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_that_has_seen_a_newer_owner_makes_the_lease_come_again_with_a_higher_epoch() {
    let world = World::new().await;
    let process = world.process().await;
    let _publisher = process.publish();
    let last = world.commit(10).await;
    // As after a restore of the lease table alone.
    world.execute("insert into fence values ('toy-03', 4)").await;
    let (_handle, _projection) = process.consume();
    world.wait_checkpoint(last + 1).await;
    world.check_applied().await;
    assert!(world.number("select owner_epoch from fence").await >= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_message_than_the_one_applied_last_stops_the_lane() {
    let world = World::new().await;
    let process = world.process().await;
    let (_publisher, (_handle, _projection)) = (process.publish(), process.consume());
    let last = world.commit(10).await;
    world.wait_checkpoint(last + 1).await;
    process.stop().await;
    world.execute("update consumer_checkpoint set last_event_id = gen_random_uuid()").await;
    let again = world.process().await;
    let (_publisher, (handle, _projection)) = (again.publish(), again.consume());
    let last = world.commit(10).await;
    world.wait_published(last).await;
    wait_status(&handle, "LOST_TAIL").await;
    assert_eq!(world.number("select max(seq) from applied").await, 10);
    assert_eq!(world.number("select max(next_offset) from consumer_checkpoint").await, 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_40_a_stream_that_comes_back_shorter_is_waited_for_and_nothing_doubles() {
    let world = World::new().await;
    let publishing = world.process().await;
    let publisher = publishing.publish();
    let consuming = world.process().await;
    let (handle, _projection) = consuming.consume();
    let last = world.commit(40).await;
    publisher.wake();
    world.wait_checkpoint(last + 1).await;
    publishing.stop().await;
    // The broker has lost all but the first ten; no publisher is there to fill it.
    let stream = world.stream().await.expect("there");
    let config = stream.cached_info().config.clone();
    world.jetstream.delete_stream(world.stream_name()).await.expect("deleted");
    wait_status(&handle, "WAITING").await;
    world.jetstream.create_stream(config).await.expect("created");
    for id in &world.outbox_ids().await[..10] {
        let message = PublishMessage::build()
            .header("Likewise-Event-Id", id.to_string().as_str())
            .header("Likewise-Schema", SCHEMA)
            .outbound_message(world.subject());
        world.jetstream.publish_message(message).await.expect("sent").await.expect("stored");
    }
    wait_status(&handle, "REGRESSED").await;
    let again = world.process().await;
    let _publisher = again.publish();
    let last = world.commit(5).await;
    world.wait_checkpoint(last + 1).await;
    world.check_applied().await;
    world.check_published().await;
    assert_eq!(world.times_max().await, 1);
    wait_status(&handle, "RUNNING").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_no_publisher_wrote_stops_the_lane_and_is_not_applied() {
    let world = World::new().await;
    let process = world.process().await;
    let (_publisher, (handle, _projection)) = (process.publish(), process.consume());
    let last = world.commit(3).await;
    world.wait_checkpoint(last + 1).await;
    world.jetstream.publish(world.subject(), "foreign".into()).await.expect("sent").await.expect("stored");
    wait_status(&handle, "LOST_TAIL").await;
    assert_eq!(world.number("select max(next_offset) from consumer_checkpoint").await, 4);
    assert_ne!(Uuid::nil(), world.outbox_ids().await[2]);
}
