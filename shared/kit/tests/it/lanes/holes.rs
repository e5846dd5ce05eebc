//! Streams that lack messages: what is missing is read from the outbox, never passed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use async_nats::jetstream::context::traits::Publisher as _;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Config;
use likewise_devstack::{Stack, StackSpec, TestStack};

use super::toy::SCHEMA;
use super::world::{World, consumer_watermark, wait, wait_status};

/// Commits ten changes; the stream begins at `first` and then lacks `deleted`.
async fn with_holes(first: u64, deleted: &[u64]) -> World {
    let world = World::new().await;
    let config = Config {
        name: world.stream_name(),
        subjects: vec![world.subject()],
        first_sequence: Some(first),
        ..Config::default()
    };
    let stream = world.jetstream.create_stream(config).await.expect("created");
    world.commit(10).await;
    let rows = world.outbox_ids().await;
    for (id, seq) in rows.iter().zip(1_u64..).filter(|(_, seq)| *seq >= first) {
        let message = PublishMessage::build()
            .header("Likewise-Event-Id", id.to_string().as_str())
            .header("Likewise-Schema", SCHEMA)
            .payload(format!("change {seq}").into())
            .outbound_message(world.subject());
        let stored = world.jetstream.publish_message(message).await.expect("sent").await.expect("stored");
        assert_eq!(stored.sequence, seq);
    }
    for seq in deleted {
        stream.delete_message(*seq).await.expect("deleted");
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_a_hole_in_the_stream_is_never_passed() {
    let world = with_holes(1, &[6]).await;
    let process = world.process().await;
    let (handle, _projection) = process.consume();
    wait_status(&handle, "GAP").await;
    wait("what is before the hole", || world.number("select count(*) from applied"), |count| *count == 5).await;
    wait_status(&handle, "GAP").await;
    let seen = consumer_watermark(&handle).await;
    assert!(seen.last_error.contains("6..=6"), "{}", seen.last_error);
    assert_eq!(seen.next_offset, 6);
    assert_eq!(world.number("select max(seq) from applied").await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_a_missing_start_and_holes_are_filled_from_the_outbox_once_it_answers() {
    let mut world = with_holes(4, &[6, 8, 9]).await;
    world.settings.consume_batch = 2;
    let mut process = world.process().await;
    let upstream = process.may_read_the_outbox();
    upstream.away.store(true, Ordering::SeqCst);
    let (handle, _projection) = process.consume();
    wait("an error", || consumer_watermark(&handle), |seen| seen.last_error.contains("nobody answers")).await;
    assert_eq!(world.number("select count(*) from applied").await, 0);
    upstream.away.store(false, Ordering::SeqCst);
    world.wait_checkpoint(11).await;
    world.check_applied().await;
    assert_eq!(world.times_max().await, 1);
    wait_status(&handle, "RUNNING").await;
    assert_eq!(consumer_watermark(&handle).await.last_error, "");
    let text = process.runtime.metrics.encode();
    let filled = "likewise_consumer_messages_filled_total{projection=\"toy.g1\",lane=\"toy-03\"} 6";
    assert!(text.contains(filled), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_19_what_the_outbox_has_lost_too_is_a_retention_gap() {
    let world = with_holes(1, &[6, 7]).await;
    world.execute("delete from outbox where seq <= 6").await;
    let mut process = world.process().await;
    process.may_read_the_outbox();
    let (handle, _projection) = process.consume();
    wait_status(&handle, "RETENTION_GAP").await;
    let seen = consumer_watermark(&handle).await;
    assert!(seen.last_error.contains("number 6") && seen.last_error.contains("rebuild"), "{}", seen.last_error);
    assert_eq!((seen.next_offset, world.number("select max(seq) from applied").await), (6, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_does_not_continue_what_was_applied_fills_nothing() {
    let world = with_holes(1, &[6, 7]).await;
    world.execute("update outbox set event_id = gen_random_uuid() where seq = 5").await;
    let mut process = world.process().await;
    process.may_read_the_outbox();
    let (handle, _projection) = process.consume();
    wait_status(&handle, "LOST_TAIL").await;
    assert_eq!(
        (consumer_watermark(&handle).await.next_offset, world.number("select max(seq) from applied").await),
        (6, 5)
    );
}

/// Block files of a stream in a broker's store, by number.
pub(super) fn blocks(store: &Path, stream: &str) -> Vec<PathBuf> {
    let stream = store.join("jetstream/$G/streams").join(stream);
    let number =
        |path: &Path| path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u32>().ok());
    let files = fs::read_dir(stream.join("msgs")).expect("messages").map(|file| file.expect("readable").path());
    let mut blocks: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "blk")).collect();
    blocks.sort_by_key(|path| number(path));
    blocks
}

#[tokio::test(flavor = "multi_thread")]
async fn case_52_blocks_cut_out_of_a_stream_are_read_from_the_outbox() {
    let stack = Stack::start(StackSpec::default()).expect("a stack");
    let world = World::on(&TestStack::of(&stack)).await;
    let publishing = world.process().await;
    let publisher = publishing.publish();
    // Enough for several blocks.
    world
        .execute(
            "insert into outbox (seq, event_id, payload)
             select n, gen_random_uuid(), convert_to(repeat('x', 40000) || n, 'UTF8') from generate_series(1, 800) n",
        )
        .await;
    publisher.wake();
    world.wait_published(800).await;
    stack.nats().stop();
    let store = stack.address().folder.join("nats/store");
    let found = blocks(&store, &world.stream_name());
    assert!(found.len() >= 4, "{found:?}");
    for block in [&found[0], &found[2]] {
        fs::remove_file(block).expect("removed");
    }
    stack.nats().start().expect("started");
    let mut process = world.process().await;
    process.may_read_the_outbox();
    let (handle, _projection) = process.consume();
    let last = world.commit(5).await;
    publisher.wake();
    world.wait_checkpoint(last + 1).await;
    world.check_applied().await;
    let text = process.runtime.metrics.encode();
    let filled = text.lines().find(|line| line.starts_with("likewise_consumer_messages_filled_total")).expect("told");
    assert!(!filled.ends_with(" 0"), "{filled}");
    wait_status(&handle, "RUNNING").await;
}
