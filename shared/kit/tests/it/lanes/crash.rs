//! A real process that is killed at the publisher's crash points.

use std::process::Command;
use std::time::Duration;

use super::world::{World, wait};

const DSN: &str = "LANES_CRASH_DSN";
const NATS: &str = "LANES_CRASH_NATS";
const PREFIX: &str = "LANES_CRASH_PREFIX";

/// The process that is killed: this very test, started again with the variables set. Without them it has nothing to do.
#[test]
fn process_to_be_killed() {
    let (Ok(dsn), Ok(nats), Ok(prefix)) = (std::env::var(DSN), std::env::var(NATS), std::env::var(PREFIX)) else {
        return;
    };
    let threads = tokio::runtime::Runtime::new().expect("a runtime");
    threads.block_on(async {
        let mut world = World::attach(dsn, nats, prefix).await;
        world.settings.publish_batch = 10;
        let process = world.process().await;
        let _handle = process.publish();
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
    panic!("it was not killed");
}

/// Starts it, waits for its death by SIGKILL, and resumes with a publisher of our own.
async fn check(point: &'static str) {
    let mut world = World::new().await;
    world.settings.publish_batch = 10;
    world.commit(55).await;
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args(["--exact", "lanes::crash::process_to_be_killed", "--nocapture"])
        .env(DSN, &world.dsn)
        .env(NATS, &world.nats_url)
        .env(PREFIX, &world.settings.stream_prefix)
        .env("LIKEWISE_CRASH_POINT", point);
    let killed = tokio::task::spawn_blocking(move || command.output()).await.expect("joined").expect("started");
    let signal = std::os::unix::process::ExitStatusExt::signal(&killed.status);
    assert_eq!(signal, Some(9), "{point}: {}", String::from_utf8_lossy(&killed.stderr));
    let before = world.stream_last().await;
    assert!(before < 55, "{point}: it was killed on the way");
    let process = world.process().await;
    let (_publisher, (_consumer, _projection)) = (process.publish(), process.consume());
    let last = world.commit(3).await;
    world.wait_published(last).await;
    world.wait_checkpoint(last + 1).await;
    world.check_published().await;
    world.check_applied().await;
    assert_eq!(world.times_max().await, 1, "{point}");
    wait(
        "one publisher",
        || world.number("select epoch from lease where name like 'publisher/%'"),
        |epoch| *epoch == 2,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_18_killed_before_a_publish() {
    check("publisher.before_publish:3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_18_killed_between_publish_and_acknowledgement() {
    check("publisher.after_publish:3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_18_killed_between_acknowledgement_and_evidence() {
    check("publisher.after_ack:3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_18_killed_after_the_evidence() {
    check("publisher.after_evidence:1").await;
}
