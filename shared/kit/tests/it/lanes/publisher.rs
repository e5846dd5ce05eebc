//! The publisher against a real stream.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use uuid::Uuid;

use super::toy::{LANE, SCHEMA};
use super::world::{World, lane_watermark, wait, wait_lane_error};

#[tokio::test(flavor = "multi_thread")]
async fn inv_18_offset_equals_sequence_and_evidence_covers_all() {
    let mut world = World::new().await;
    world.settings.publish_batch = 100;
    let process = world.process().await;
    let handle = process.publish();
    for round in 0..5 {
        let last = world.commit(1 + round * 111).await;
        handle.wake();
        world.wait_published(last).await;
    }
    world.check_published().await;
    let seen = lane_watermark(&handle).await;
    assert_eq!((seen.lane.as_str(), seen.epoch, seen.last_error.as_str()), ("toy-03", 0, ""));
    assert_eq!((seen.committed_seq, seen.published_seq), (1_115, 1_115));
    assert_eq!(seen.stream, world.stream_name());
    assert!(seen.oldest_unpublished_at.is_none());
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_a_hint_is_published_by_the_poll() {
    let world = World::new().await;
    let process = world.process().await;
    let _handle = process.publish();
    let last = world.commit(3).await;
    world.wait_published(last).await;
    world.check_published().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_keeps_everything_until_it_is_old() {
    let world = World::new().await;
    let process = world.process().await;
    let _handle = process.publish();
    wait("stream", || world.stream(), Option::is_some).await;
    let stream = world.stream().await.expect("there");
    let config = &stream.cached_info().config;
    assert!(config.deny_delete && config.deny_purge && config.allow_atomic_publish && !config.allow_direct);
    assert_eq!((config.max_bytes, config.max_messages, config.max_messages_per_subject), (-1, -1, -1));
    assert_eq!(config.max_age, Duration::from_secs(30 * 24 * 60 * 60));
    assert_eq!((config.first_sequence, config.subjects.clone()), (Some(1), vec![world.subject()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn case_08_two_publishers_at_once_publish_everything_once() {
    let mut world = World::new().await;
    world.settings.publish_batch = 7;
    world
        .execute(
            "create schema rival; create table rival.lease (like public.lease including all);
             create view rival.lane_epoch as select * from public.lane_epoch",
        )
        .await;
    let (one, two) = (world.process().await, world.process().await);
    let handles = [one.publish(), two.publish_with_lease_in("rival")];
    let (consumer, _projection) = one.consume();
    let mut last = 0;
    for _ in 0..60 {
        last = world.commit(13).await;
        handles.iter().for_each(|handle| handle.wake());
    }
    world.wait_published(last).await;
    world.wait_checkpoint(last + 1).await;
    world.check_published().await;
    world.check_applied().await;
    assert_eq!(world.times_max().await, 1);
    assert_eq!(consumer.next_offset(), last + 1);
    for handle in &handles {
        assert_eq!(lane_watermark(handle).await.last_error, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_08_the_chain_refuses_a_row_that_is_published_again() {
    let world = World::new().await;
    let process = world.process().await;
    let _handle = process.publish();
    let last = world.commit(5).await;
    world.wait_published(last).await;
    let again = PublishMessage::build()
        .payload(Bytes::from_static(b"change 5"))
        .header("Likewise-Event-Id", world.outbox_ids().await[4].to_string().as_str())
        .expected_last_sequence(4)
        .outbound_message(world.subject());
    let sent = async_nats::jetstream::context::traits::Publisher::publish_message(&world.jetstream, again).await;
    let refused = sent.expect("sent").await.expect_err("refused");
    assert_eq!(
        refused.kind(),
        PublishErrorKind::WrongLastSequence,
        "{refused}, {:?}",
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE
    );
    world.check_published().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_publisher_is_replaced_when_its_lease_expires() {
    let world = World::new().await;
    let (one, two) = (world.process().await, world.process().await);
    let first = one.publish();
    let last = world.commit(100).await;
    world.wait_published(last).await;
    let _second = two.publish();
    one.kill();
    let last = world.commit(100).await;
    first.wake();
    world.wait_published(last).await;
    world.check_published().await;
    assert_eq!(world.number("select epoch from lease where name like 'publisher/%'").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_publisher_is_replaced_at_once() {
    let mut world = World::new().await;
    world.settings.lease_ttl_ms = 4_000;
    let (one, two) = (world.process().await, world.process().await);
    let _first = one.publish();
    let last = world.commit(10).await;
    world.wait_published(last).await;
    let _second = two.publish();
    one.stop().await;
    let released = "select count(*) from lease where expires_at <= clock_timestamp() or epoch = 2";
    assert_eq!(world.number(released).await, 1);
    let last = world.commit(10).await;
    world.wait_published(last).await;
    world.check_published().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_that_an_interruption_left_out_is_written_and_nothing_doubles() {
    let world = World::new().await;
    let process = world.process().await;
    let _handle = process.publish();
    let last = world.commit(40).await;
    world.wait_published(last).await;
    process.stop().await;
    world.execute("delete from outbox_publication where to_seq > 10; insert into outbox_publication values (1, 10, 's', 1) on conflict do nothing").await;
    let again = world.process().await;
    let _handle = again.publish();
    let last = world.commit(5).await;
    world.wait_published(last).await;
    world.check_published().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_40_a_stream_shorter_than_the_evidence_gets_its_end_again() {
    let world = World::new().await;
    let process = world.process().await;
    let _handle = process.publish();
    let last = world.commit(12).await;
    world.wait_published(last).await;
    process.stop().await;
    world.commit(8).await;
    world
        .execute("insert into outbox_publication (from_seq, to_seq, stream, from_offset) values (13, 20, 's', 13)")
        .await;
    let again = world.process().await;
    let handle = again.publish();
    wait("the end", || world.stream_last(), |last| *last == 20).await;
    let last = world.commit(1).await;
    handle.wake();
    world.wait_published(last).await;
    world.check_published().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_52_a_stream_gone_whole_comes_again_from_the_first_row_there_is() {
    let world = World::new().await;
    let process = world.process().await;
    let handle = process.publish();
    let last = world.commit(30).await;
    world.wait_published(last).await;
    world.execute("delete from outbox where seq < 11").await;
    world.jetstream.delete_stream(world.stream_name()).await.expect("deleted");
    let last = world.commit(5).await;
    handle.wake();
    world.wait_published(last).await;
    let stream = world.stream().await.expect("there again");
    let state = &stream.cached_info().state;
    assert_eq!((state.first_sequence, state.last_sequence), (11, 35));
    assert_eq!(world.stream_ids().await, world.outbox_ids().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_message_at_our_number_stops_the_lane() {
    let world = World::new().await;
    let process = world.process().await;
    let handle = process.publish();
    let last = world.commit(5).await;
    world.wait_published(last).await;
    publish_foreign(&world, 6).await;
    publish_foreign(&world, 7).await;
    world.commit(3).await;
    handle.wake();
    wait_lane_error(&handle, "at 7 holds event").await;
    let seen = lane_watermark(&handle).await;
    assert_eq!((seen.committed_seq, seen.published_seq), (8, 5));
    assert!(seen.oldest_unpublished_at.is_some());
    process.stop().await;
    // Also when it was there before the publisher came.
    let again = world.process().await;
    let handle = again.publish();
    wait_lane_error(&handle, "LOST_TAIL").await;
    assert_eq!(world.stream_last().await, 7);
    assert_eq!(world.number("select max(to_seq) from outbox_publication").await, 5);
}

async fn publish_foreign(world: &World, seq: u64) {
    let foreign = PublishMessage::build()
        .header("Likewise-Event-Id", Uuid::new_v4().to_string().as_str())
        .header("Likewise-Schema", SCHEMA)
        .outbound_message(world.subject());
    let sent = async_nats::jetstream::context::traits::Publisher::publish_message(&world.jetstream, foreign).await;
    assert_eq!(sent.expect("sent").await.expect("stored").sequence, seq);
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_lost_by_the_database_are_noticed_without_a_restart() {
    let world = World::new().await;
    let process = world.process().await;
    let handle = process.publish();
    let last = world.commit(10).await;
    world.wait_published(last).await;
    world.execute("delete from outbox where seq > 7").await;
    wait_lane_error(&handle, "no row of that number").await;
    // Whatever is committed from then on is not what the stream holds.
    world.commit(6).await;
    handle.wake();
    wait_lane_error(&handle, "LOST_TAIL").await;
    assert_eq!(world.stream_last().await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_another_incarnation_is_never_adopted() {
    let world = World::new().await;
    let process = world.process().await;
    let _handle = process.publish();
    let last = world.commit(2).await;
    world.wait_published(last).await;
    process.stop().await;
    world.execute("update shard_meta set incarnation = gen_random_uuid()").await;
    let again = world.process().await;
    let handle = again.publish();
    world.commit(2).await;
    handle.wake();
    wait_lane_error(&handle, "incarnation").await;
    assert_eq!(world.stream_last().await, 2);
    assert_eq!(LANE.to_string(), "toy-03");
}
