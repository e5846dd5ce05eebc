//! Servers that lose commits which were published, for real: a copy of the data folder put back, a standby promoted that
//! had not received everything. Afterwards facts, outbox, streams and every copy agree.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use deadpool_postgres::Pool;
use likewise_devstack::{Stack, StackSpec, TestStack};
use likewise_kit::lanes::{Consumer, ConsumerHandle, Publisher, PublisherHandle, Upstream, stream_name};
use likewise_proto::lanes::v1::LaneWatermark;
use uuid::Uuid;

use super::holes::blocks;
use super::objects::{COPIES, Copies, Gates, OBJECTS, ObjectOutbox, ObjectUpstream, Objects, objects};
use super::toy::{LANE, TABLES, ToyOutbox};
use super::world::{Process, World, lane_watermark, pool, wait, wait_lane_error};

const DSN: &str = "LOST_TAIL_DSN";
const NATS: &str = "LOST_TAIL_NATS";
const PREFIX: &str = "LOST_TAIL_PREFIX";
/// Nothing but the very last copy of the facts is asked for.
const OBJECT: &str = "select name, version, value from object";

/// Facts on one server, copies on another.
struct Scene {
    world: World,
    copies: Pool,
    stack: Stack,
}

impl Scene {
    async fn new() -> Self {
        let spec = StackSpec { postgres_servers: 2, ..StackSpec::default() };
        let stack = Stack::start(spec).expect("a stack");
        let address = stack.address();
        let prefix = TestStack::of(&stack).unique("T");
        let world = World::attach(address.postgres[0].clone(), address.nats.clone(), prefix).await;
        world.execute(TABLES).await;
        world.execute(OBJECTS).await;
        let copies = pool(&address.postgres[1], "public");
        copies.get().await.expect("PostgreSQL").batch_execute(COPIES).await.expect("tables");
        Self { world, copies, stack }
    }

    /// Changes `count` objects named from `first` on; answers the highest number.
    async fn change(&self, first: usize, count: usize, value: &str) -> u64 {
        change(&self.world.pool, first, count, value).await.expect("changed")
    }

    async fn facts(&self) -> Objects {
        objects(&self.world.pool, OBJECT).await
    }

    async fn held(&self, projection: &str) -> Objects {
        let text = format!("select name, version, value from held where projection = '{projection}'");
        objects(&self.copies, &text).await
    }

    /// Waits until every copy is exactly what the facts are.
    async fn agreed(&self, projections: &[&str]) {
        let facts = self.facts().await;
        for projection in projections {
            wait("copies that are the facts", || self.held(projection), |held| *held == facts).await;
        }
    }

    async fn stream(&self, epoch: u32) -> Stream {
        let name = stream_name(&self.world.settings.stream_prefix, &LANE, epoch);
        self.world.jetstream.get_stream(name).await.expect("a stream")
    }

    /// The stream of the present epoch holds what the outbox has from its first number on, and older ones are sealed.
    async fn check_streams(&self, epoch: u32) {
        for older in 0..epoch {
            assert!(self.stream(older).await.cached_info().config.sealed, "epoch {older}");
        }
        let stream = self.stream(epoch).await;
        let info = stream.cached_info();
        let first = info.config.first_sequence.expect("told");
        let mut found = Vec::new();
        for seq in first..=info.state.last_sequence {
            let message = stream.get_raw_message(seq).await.expect("a message");
            found.push(
                Uuid::parse_str(message.headers.get("Likewise-Event-Id").expect("an id").as_str()).expect("a uuid"),
            );
        }
        let rows = self.world.ids(&format!("select event_id from outbox where seq >= {first} order by seq")).await;
        assert_eq!(found, rows);
    }

    fn publish(&self, process: &Process) -> Arc<PublisherHandle> {
        self.publish_with(process, None)
    }

    fn publish_with(&self, process: &Process, gates: Option<Arc<Gates>>) -> Arc<PublisherHandle> {
        let _entered = process.enter();
        let rows = process.pool.clone();
        let outbox = ObjectOutbox(ToyOutbox { pool: rows.clone(), rows }, gates);
        Publisher::spawn(process.runtime.clone(), Arc::new(outbox))
    }

    /// Starts a projection, which may ask `upstream` for what its stream lacks.
    fn copy(&self, process: &Process, name: &str, upstream: Option<Pool>) -> (Arc<ConsumerHandle>, Arc<AtomicBool>) {
        let _entered = process.enter();
        let held_back = Arc::new(AtomicBool::new(false));
        let copies = Copies { name: name.to_owned(), pool: self.copies.clone(), held_back: Arc::clone(&held_back) };
        let mut runtime = process.runtime.clone();
        runtime.upstream = upstream.map(|pool| Arc::new(ObjectUpstream(pool)) as Arc<dyn Upstream>);
        (Consumer::spawn(runtime, self.copies.clone(), LANE, Arc::new(copies)), held_back)
    }

    async fn published(&self, publisher: &PublisherHandle, seq: u64) {
        publisher.wake();
        self.world.wait_published(seq).await;
    }
}

async fn change(pool: &Pool, first: usize, count: usize, value: &str) -> Result<u64, String> {
    let names: Vec<String> = (first..first + count).map(|number| format!("o{number:03}")).collect();
    let client = pool.get().await.map_err(|error| error.to_string())?;
    let row =
        client.query_one("select change($1, $2)", &[&names, &value]).await.map_err(|error| format!("{error:?}"))?;
    Ok(u64::try_from(row.get::<_, i64>(0)).expect("positive"))
}

async fn wait_served(publisher: &PublisherHandle, epoch: u64) -> LaneWatermark {
    let serves = |seen: &LaneWatermark| seen.epoch == epoch && seen.status == "SERVING" && seen.last_error.is_empty();
    wait("a repaired shard", || lane_watermark(publisher), serves).await;
    lane_watermark(publisher).await
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_25_case_45_a_restored_server_and_everybody_who_read_it_end_with_the_same_facts() {
    let scene = Scene::new().await;
    let process = scene.world.process().await;
    let publisher = scene.publish(&process);
    let (_prompt, _) = scene.copy(&process, "prompt", None);
    let (_lagging, held_back) = scene.copy(&process, "lagging", None);
    let before = scene.change(0, 40, "kept").await;
    scene.published(&publisher, before).await;
    scene.agreed(&["prompt", "lagging"]).await;
    let backup = scene.stack.back_up_postgres(0).expect("a copy");
    held_back.store(true, Ordering::SeqCst);

    // Published and lost: some of it changed what is kept, some of it was never there.
    let lost = scene.change(20, 60, "lost").await;
    scene.published(&publisher, lost).await;
    scene.agreed(&["prompt"]).await;
    scene.stack.put_back_postgres(&backup).expect("put back");
    let seen = wait_served(&publisher, 1).await;
    assert_eq!((seen.epochs[0].first_seq, seen.epochs[0].lost, seen.epochs[0].restated), (before + 1, 60, 60));

    // It serves again, and whoever was behind comes by the sealed stream.
    let last = scene.change(30, 40, "after").await;
    scene.published(&publisher, last).await;
    held_back.store(false, Ordering::SeqCst);
    let (_late, _) = scene.copy(&process, "late", None);
    scene.agreed(&["prompt", "lagging", "late"]).await;
    scene.check_streams(1).await;
    let facts = scene.facts().await;
    assert_eq!(
        (facts["o025"].1.as_str(), facts["o075"].1.as_str(), facts["o035"].1.as_str()),
        ("kept", "gone", "after")
    );
    assert!(facts["o025"].0 > 1 << 40 && facts["o005"].0 == 1, "only what was lost has a new version");

    // The very same copy again: now the record of the first repair is lost as well.
    scene.stack.put_back_postgres(&backup).expect("put back");
    let seen = wait_served(&publisher, 2).await;
    assert_eq!(seen.epochs.len(), 1, "nobody remembers the first repair: {seen:?}");
    let last = scene.change(35, 20, "again").await;
    scene.published(&publisher, last).await;
    let (_latest, _) = scene.copy(&process, "latest", None);
    scene.agreed(&["prompt", "lagging", "late", "latest"]).await;
    scene.check_streams(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_25_rows_that_were_committed_since_the_restore_are_published_in_the_new_epoch() {
    let scene = Scene::new().await;
    let process = scene.world.process().await;
    let publisher = scene.publish(&process);
    let (_prompt, _) = scene.copy(&process, "prompt", None);
    let before = scene.change(0, 10, "kept").await;
    scene.published(&publisher, before).await;
    let backup = scene.stack.back_up_postgres(0).expect("a copy");
    let lost = scene.change(5, 20, "lost").await;
    scene.published(&publisher, lost).await;
    scene.agreed(&["prompt"]).await;
    process.kill();

    // No publisher is there to notice, and the writer goes on: the same objects, the same versions, other values, and further
    // than the old stream.
    scene.stack.put_back_postgres(&backup).expect("put back");
    let last = scene.change(0, 30, "since").await;
    assert!(last > lost);
    let process = scene.world.process().await;
    let publisher = scene.publish(&process);
    let seen = wait_served(&publisher, 1).await;
    assert_eq!((seen.epochs[0].first_seq, seen.epochs[0].lost), (before + 1, 20));
    let (_prompt, _) = scene.copy(&process, "prompt", None);
    let (_late, _) = scene.copy(&process, "late", None);
    scene.agreed(&["prompt", "late"]).await;
    assert!(scene.facts().await.values().all(|(_, value)| value == "since"), "nothing that was committed is lost");
    scene.check_streams(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_25_case_45_a_promoted_standby_serves_and_the_old_server_is_given_up() {
    let scene = Scene::new().await;
    let old = scene.world.process().await;
    let old_publisher = scene.publish(&old);
    let (_prompt, _) = scene.copy(&old, "prompt", None);
    let before = scene.change(0, 20, "kept").await;
    scene.published(&old_publisher, before).await;
    let standby = scene.stack.standby_of(0).expect("a standby");
    let follower = pool(&standby.dsn, "public");
    let kept = scene.change(0, 5, "kept, too").await;
    wait("replication", || objects(&follower, OBJECT), |seen| seen["o004"].1 == "kept, too").await;
    scene.published(&old_publisher, kept).await;
    // From here on it receives nothing; the old server and its publisher live on.
    let cut = follower.get().await.expect("PostgreSQL");
    cut.execute("alter system set primary_conninfo = ''", &[]).await.expect("cut off");
    cut.execute("select pg_reload_conf()", &[]).await.expect("cut off");
    let receiving = || async { objects(&follower, "select 'r', count(*), '' from pg_stat_wal_receiver").await["r"].0 };
    wait("no receiver", receiving, |count| *count == 0).await;
    let lost = scene.change(3, 30, "lost").await;
    scene.published(&old_publisher, lost).await;
    scene.agreed(&["prompt"]).await;
    assert!(cut.query_one("select pg_promote()", &[]).await.expect("promoted").get::<_, bool>(0));

    let world =
        World::attach(standby.dsn.clone(), scene.world.nats_url.clone(), scene.world.settings.stream_prefix.clone());
    let Scene { world: old_world, copies, stack } = scene;
    let scene = Scene { world: world.await, copies, stack };
    let new = scene.world.process().await;
    let publisher = scene.publish(&new);
    let seen = wait_served(&publisher, 1).await;
    assert!(seen.epochs[0].lost >= 30 && seen.epochs[0].first_seq <= kept + 1, "{seen:?}");
    let last = scene.change(10, 10, "after").await;
    scene.published(&publisher, last).await;
    scene.agreed(&["prompt"]).await;
    scene.check_streams(1).await;
    let facts = scene.facts().await;
    assert_eq!((facts["o003"].1.as_str(), facts["o030"].1.as_str()), ("kept, too", "gone"));

    // Whoever still writes to the old server learns that it does not count any more, as soon as it publishes.
    let refused = change(&old_world.pool, 0, 1, "split").await;
    assert!(refused.is_ok(), "nobody told it yet: {refused:?}");
    old_publisher.wake();
    wait("given up", || lane_watermark(&old_publisher), |seen| seen.status == "MOVED").await;
    wait_lane_error(&old_publisher, "MOVED").await;
    assert!(change(&old_world.pool, 0, 1, "split").await.expect_err("refused").contains("MOVED"));
    scene.agreed(&["prompt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_25_holes_of_a_sealed_stream_are_filled_as_far_as_the_facts_go_and_then_passed() {
    let scene = Scene::new().await;
    let process = scene.world.process().await;
    let publisher = scene.publish(&process);
    let large = "x".repeat(40_000);
    let before = scene.change(0, 400, &large).await;
    scene.published(&publisher, before).await;
    let backup = scene.stack.back_up_postgres(0).expect("a copy");
    let lost = scene.change(200, 400, &large).await;
    scene.published(&publisher, lost).await;
    scene.stack.put_back_postgres(&backup).expect("put back");
    wait_served(&publisher, 1).await;
    // One block before and one after the last number that both epochs have in common.
    scene.stack.nats().stop();
    let name = stream_name(&scene.world.settings.stream_prefix, &LANE, 0);
    let found = blocks(&scene.stack.address().folder.join("nats/store"), &name);
    assert!(found.len() >= 4, "{found:?}");
    for block in [&found[0], &found[found.len() - 2]] {
        fs::remove_file(block).expect("removed");
    }
    scene.stack.nats().start().expect("started");
    let (_late, _) = scene.copy(&process, "late", Some(scene.world.pool.clone()));
    let last = scene.change(0, 5, "after").await;
    scene.published(&publisher, last).await;
    scene.agreed(&["late"]).await;
    let text = process.runtime.metrics.encode();
    for name in ["likewise_consumer_messages_filled_total", "likewise_consumer_messages_passed_total"] {
        let line = text.lines().find(|line| line.starts_with(name)).expect("told");
        assert!(!line.ends_with(" 0"), "{line}");
    }
}

/// The process that is killed: this very test, started again with the variables set. Without them it has nothing to do.
#[test]
fn repairing_process_to_be_killed() {
    let (Ok(dsn), Ok(nats), Ok(prefix)) = (std::env::var(DSN), std::env::var(NATS), std::env::var(PREFIX)) else {
        return;
    };
    let threads = tokio::runtime::Runtime::new().expect("a runtime");
    threads.block_on(async {
        let world = World::attach(dsn, nats, prefix).await;
        let process = world.process().await;
        let _entered = process.enter();
        let rows = process.pool.clone();
        let outbox = ObjectOutbox(ToyOutbox { pool: rows.clone(), rows }, None);
        let _handle = Publisher::spawn(process.runtime.clone(), Arc::new(outbox));
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
    panic!("it was not killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_25_a_server_put_back_amid_its_repair_with_the_record_is_repaired_again() {
    let mut scene = Scene::new().await;
    let process = scene.world.process().await;
    let publisher = scene.publish(&process);
    let (_prompt, _) = scene.copy(&process, "prompt", None);
    let before = scene.change(0, 10, "kept").await;
    scene.published(&publisher, before).await;
    let backup = scene.stack.back_up_postgres(0).expect("a copy");
    let lost = scene.change(5, 20, "lost").await;
    scene.published(&publisher, lost).await;
    scene.agreed(&["prompt"]).await;
    process.stop().await;
    scene.stack.put_back_postgres(&backup).expect("put back");

    // It is not for the lease to end the repair.
    scene.world.settings.lease_ttl_ms = 60_000;
    let process = scene.world.process().await;
    let gates = Gates::shut();
    let publisher = scene.publish_with(&process, Some(Arc::clone(&gates)));
    let (_prompt, _) = scene.copy(&process, "prompt", None);
    gates.wait(0).await;
    let recorded = scene.stack.back_up_postgres(0).expect("a copy");
    gates.open[0].add_permits(1);
    gates.wait(1).await;
    scene.stack.put_back_postgres(&recorded).expect("put back");
    assert_eq!(
        scene.world.number("select count(*) from object where value = 'gone'").await,
        0,
        "stated again, and lost"
    );
    gates.open[1].add_permits(1);
    wait_served(&publisher, 1).await;
    let last = scene.change(0, 3, "after").await;
    scene.published(&publisher, last).await;
    scene.agreed(&["prompt"]).await;
    scene.check_streams(1).await;
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_25_inv_18_a_repair_killed_anywhere_is_finished_by_the_next() {
    let scene = Scene::new().await;
    let before = scene.change(0, 10, "kept").await;
    let mut process = scene.world.process().await;
    let mut publisher = scene.publish(&process);
    let (_prompt, _) = scene.copy(&process, "prompt", None);
    scene.published(&publisher, before).await;
    let points = [
        "repair.after_seal",
        "repair.after_begin",
        "repair.after_create",
        "repair.after_restate",
        "repair.after_restate:2",
        "repair.before_end",
        "repair.after_end",
    ];
    for (round, point) in points.into_iter().enumerate() {
        let backup = scene.stack.back_up_postgres(0).expect("a copy");
        // More than are stated again at once.
        let lost = scene.change(5, 700, &format!("lost {round}")).await;
        scene.published(&publisher, lost).await;
        process.kill();
        scene.stack.put_back_postgres(&backup).expect("put back");
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .args(["--exact", "lanes::lost_tail::repairing_process_to_be_killed", "--nocapture"])
            .env(DSN, &scene.world.dsn)
            .env(NATS, &scene.world.nats_url)
            .env(PREFIX, &scene.world.settings.stream_prefix)
            .env("LIKEWISE_CRASH_POINT", point);
        let killed = tokio::task::spawn_blocking(move || command.output()).await.expect("joined").expect("started");
        let signal = std::os::unix::process::ExitStatusExt::signal(&killed.status);
        assert_eq!(signal, Some(9), "{point}: {}", String::from_utf8_lossy(&killed.stderr));
        process = scene.world.process().await;
        publisher = scene.publish(&process);
        let (_prompt, _) = scene.copy(&process, "prompt", None);
        let epoch = round as u64 + 1;
        wait_served(&publisher, epoch).await;
        let last = scene.change(0, 20, &format!("after {round}")).await;
        scene.published(&publisher, last).await;
        scene.agreed(&["prompt"]).await;
        scene.check_streams(u32::try_from(epoch).expect("small")).await;
    }
    let (_late, _) = scene.copy(&process, "late", None);
    scene.agreed(&["prompt", "late"]).await;
}
