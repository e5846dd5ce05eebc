//! What arrives late, or in another order than it happened.

use likewise_command::store::lock;
use likewise_devstack::Process;
use likewise_proto::command::v1::CommandOutcome;
use likewise_proto::convert::timestamp;
use likewise_proto::events::v1::{ChangeCause, RelationChanged};
use likewise_proto::types::v1::LikeState::{self, Liked, Unliked};
use prost::Message;
use time::OffsetDateTime;
use time::macros::datetime;
use tonic::Code;

use crate::agree;
use crate::world::{World, config, eventually, operation, outcome};

/// Commands in the server that wait for a shard's lock.
async fn waiting(sql: &tokio_postgres::Client) -> i64 {
    let text = "select count(*) from pg_locks where locktype = 'advisory' and not granted and classid = $1::int::oid \
                and database = (select oid from pg_database where datname = current_database())";
    sql.query_one(text, &[&lock::SHARD]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_48_inv_09_a_batch_whose_connection_died_is_committed_later_and_overtaken_by_nothing() {
    let (world, line) = World::start_behind_a_line().await;
    world.video("ava", "V1").await;
    let lin = world.user("lin").await;
    assert_eq!(outcome(&lin.set("V1", Liked, "op-1", None).await.unwrap()), (CommandOutcome::Applied, 1));
    let board = world.board().await.unwrap();
    let lane = board.lanes.iter().find(|lane| lane.lane.starts_with("rel-") && lane.committed_seq() == 1).unwrap();
    let shard: i32 = lane.lane.trim_start_matches("rel-").parse().unwrap();

    // Somebody holds the shard's lock; a command waits for it inside the server.
    let holder = world.sql().await;
    holder.batch_execute("begin").await.unwrap();
    holder.execute("select pg_advisory_xact_lock($1, $2)", &[&lock::SHARD, &shard]).await.unwrap();
    let first = tokio::spawn({
        let lin = lin.clone();
        async move { lin.set("V1", Unliked, "op-2", None).await }
    });
    let sql = world.sql().await;
    let waits = async |number: i64| {
        eventually("batches wait for the lock", async || match waiting(&sql).await {
            found if found == number => Ok(()),
            found => Err(format!("{found} wait")),
        })
        .await;
    };
    waits(1).await;

    // The connection dies. The server goes on waiting, and so does the same batch, sent again on a new connection.
    line.abandon();
    waits(2).await;
    let unknown = lin.operation("op-2").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "no verdict yet, which is not a refusal");
    // A later intent queues behind it.
    let second = tokio::spawn({
        let lin = lin.clone();
        async move { lin.set("V1", Liked, "op-3", None).await }
    });
    holder.batch_execute("commit").await.unwrap();

    for (answer, expected) in [(first.await.unwrap(), 2), (second.await.unwrap(), 3)] {
        match answer {
            Ok(answer) => assert_eq!(outcome(&answer), (CommandOutcome::Applied, expected)),
            Err(status) => assert_eq!(world.reason(&status), "OUTCOME_PENDING", "{status:?}"),
        }
    }
    let verdict = async |id: &str, state: LikeState| outcome(&lin.set("V1", state, id, None).await.unwrap());
    assert_eq!(verdict("op-2", Unliked).await, (CommandOutcome::Applied, 2));
    assert_eq!(verdict("op-3", Liked).await, (CommandOutcome::Applied, 3));
    world.settled().await;
    agree::check(&world).await;
}

/// Publishes changes to the lanes, as no shard would ever do it: in any order.
struct Stage {
    config: likewise_devstack::TestConfig,
    jetstream: async_nats::jetstream::Context,
    sql: tokio_postgres::Client,
    next: u64,
    _process: Process,
}

impl Stage {
    async fn set() -> Self {
        let config = config().await;
        let jetstream = async_nats::jetstream::new(async_nats::connect(&config.address.nats).await.unwrap());
        for shard in 0..4 {
            let stream = async_nats::jetstream::stream::Config {
                name: format!("{}_REL_{shard}_E0", config.stream_prefix),
                subjects: vec![format!("{}.rel.{shard}.e0", config.stream_prefix.to_lowercase())],
                ..Default::default()
            };
            jetstream.create_stream(stream).await.unwrap();
        }
        let environment =
            [("LIKEWISE__ENDPOINTS__POLICY", "http://127.0.0.1:1"), ("LIKEWISE__LANES__LEASE_TTL_MS", "1000")];
        let process = Process::start("likewise-reverse-index", &config, &environment).await.unwrap();
        let sql = config.database.connect().await.unwrap();
        Self { config, jetstream, sql, next: 1, _process: process }
    }

    async fn publish(&mut self, user: &str, version: u64, state: LikeState, at: OffsetDateTime) {
        let event_id = uuid::Uuid::new_v4().to_string();
        let event = RelationChanged {
            event_id: event_id.clone(),
            user_id: user.to_owned(),
            video_id: "V1".to_owned(),
            relation_version: version,
            state: state.into(),
            previous_state: LikeState::Unliked.into(),
            source_shard: 0,
            shard_epoch: 0,
            source_commit_seq: self.next,
            state_changed_at: Some(timestamp(at)),
            operation_id: operation(),
            cause: ChangeCause::User.into(),
            hidden: None,
        };
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Likewise-Event-Id", event_id.as_str());
        headers.insert("Likewise-Schema", "likewise.events.v1.RelationChanged");
        let subject = format!("{}.rel.0.e0", self.config.stream_prefix.to_lowercase());
        let sent = self.jetstream.publish_with_headers(subject, headers, event.encode_to_vec().into()).await.unwrap();
        sent.await.unwrap();
        self.next += 1;
        let next = i64::try_from(self.next).unwrap();
        eventually("the change is in the list", async || {
            let text = "select next_offset from reverse_index.consumer_checkpoint where lane = 'rel-00'";
            let found = self.sql.query_opt(text, &[]).await.unwrap().map_or(0, |row| row.get::<_, i64>(0));
            if found == next { Ok(()) } else { Err(format!("{found} of {next}")) }
        })
        .await;
    }

    /// `user state version` of every row, and the order of likers, newest first.
    async fn list(&self) -> (Vec<(String, i16, i64)>, Vec<(String, OffsetDateTime)>) {
        let (mut rows, mut order) = (Vec::new(), Vec::new());
        for part in ["reverse_p00", "reverse_p01"] {
            let text = format!("select user_id, state, version from {part}.like_reverse_projection");
            rows.extend(
                self.sql.query(&text, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1), row.get(2))),
            );
            let text = format!("select user_id, liked_at from {part}.like_reverse_order");
            order.extend(self.sql.query(&text, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))));
        }
        rows.sort();
        order.sort_by_key(|(_, at): &(String, OffsetDateTime)| std::cmp::Reverse(*at));
        (rows, order)
    }
}

const EARLY: OffsetDateTime = datetime!(2026-01-01 10:00:00 UTC);
const LATE: OffsetDateTime = datetime!(2026-01-01 10:00:05 UTC);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_13_case_14_inv_14_scn_i01_an_unlike_that_overtook_its_like_stands() {
    let mut stage = Stage::set().await;
    stage.publish("lin", 12, Unliked, LATE).await;
    stage.publish("lin", 11, Liked, EARLY).await;
    assert_eq!(stage.list().await, (vec![("lin".to_owned(), 2, 12)], vec![]), "a tombstone, and no place in the list");

    stage.publish("mei", 11, Liked, EARLY).await;
    stage.publish("mei", 13, Liked, LATE).await;
    let expected = (vec![("lin".to_owned(), 2, 12), ("mei".to_owned(), 1, 13)], vec![("mei".to_owned(), LATE)]);
    assert_eq!(stage.list().await, expected, "the place of the newer like, although the unlike between is missing");
    stage.publish("mei", 12, Unliked, EARLY).await;
    stage.publish("mei", 13, Unliked, LATE).await;
    assert_eq!(stage.list().await, expected, "neither a lower nor an equal version changes it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_15_the_list_is_ordered_by_the_relations_own_time_after_a_backlog() {
    let mut stage = Stage::set().await;
    let minute = |number: i64| EARLY + time::Duration::minutes(number);
    for (user, at) in [("third", 3), ("first", 1), ("fourth", 4), ("second", 2)] {
        stage.publish(user, 1, Liked, minute(at)).await;
    }
    // Told again much later, as a replay does.
    stage.publish("first", 1, Liked, minute(900)).await;
    let (_, order) = stage.list().await;
    assert_eq!(
        order,
        [("fourth", 4), ("third", 3), ("second", 2), ("first", 1)].map(|(user, at)| (user.to_owned(), minute(at)))
    );
}
