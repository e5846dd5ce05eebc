//! A consumer of somebody else's: the example of the client library as a process that is killed, and a fold that notes
//! everything it is given.

use std::collections::BTreeMap;
use std::time::Duration;

use likewise_client::consumer::{BoxError, Change, Consumer, Fold, LaneSettings, Settings, Token, Transaction};
use likewise_devstack::Process;
use likewise_proto::lanes::v1::ListConsumersRequest;
use likewise_proto::lanes::v1::lane_service_client::LaneServiceClient;
use rand::RngExt as _;
use tonic::Request;

use crate::agree::{self, Known, Pair};
use crate::crash::{Load, people};
use crate::world::{World, eventually};

const EXAMPLE: (&str, &str, &str) = ("likewise-client", "consumer", "tastes");
const LANES: [&str; 4] = ["rel-00", "rel-01", "rel-02", "rel-03"];

fn publisher(world: &World) -> String {
    format!("http://{}", world.process.grpc())
}

fn token(name: &str) -> String {
    likewise_devstack::TestStack::get().keys().mint_service(name)
}

/// What the example keeps.
async fn tastes(world: &World) -> Result<BTreeMap<Pair, Known>, String> {
    let rows = world.sql().await.query("select user_id, video_id, state, version from public.taste", &[]).await;
    let rows = rows.map_err(|error| error.to_string())?;
    Ok(rows.iter().map(|row| ((row.get(0), row.get(1)), (row.get(2), row.get(3)))).collect())
}

/// How far a consumer told the publisher that it is, and what is committed, of every lane.
async fn told(world: &World, consumer: &str) -> Vec<(u64, u64)> {
    let mut told = Vec::new();
    for lane in LANES {
        let mut request = Request::new(ListConsumersRequest { lane: lane.to_owned() });
        let header = format!("Bearer {}", token("watcher")).parse().expect("a header");
        request.metadata_mut().insert("authorization", header);
        let channel = tonic::transport::Endpoint::from_shared(publisher(world)).expect("an address").connect_lazy();
        let mut client = LaneServiceClient::new(channel);
        let list = client.list_consumers(request).await.expect("an answer").into_inner();
        let next = list.consumers.iter().find(|known| known.consumer == consumer).map_or(0, |known| known.next_seq);
        told.push((next, list.committed_seq));
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_03_the_example_keeps_what_the_facts_say_however_often_it_is_killed() {
    let world = World::start().await;
    let users = people(&world).await;
    let environment = [
        ("CONSUMER_NAME", "tastes"),
        ("CONSUMER_POSTGRES", world.config.database.dsn()),
        ("CONSUMER_NATS", &world.config.address.nats),
        ("CONSUMER_PUBLISHER", &publisher(&world)),
        ("CONSUMER_TOKEN", &token("tastes")),
        ("CONSUMER_STREAM_PREFIX", &world.config.stream_prefix),
    ];
    let load = Load::start(&users);
    let mut example = Process::example(EXAMPLE, &world.config, &environment).await.expect("it starts");
    for _ in 0..3 {
        let before = tastes(&world).await.unwrap_or_default();
        eventually("the example folds", async || match tastes(&world).await {
            Ok(now) if now != before => Ok(()),
            seen => Err(format!("{seen:?}; it says: {}", example.log_tail())),
        })
        .await;
        example.kill().await;
        example = Process::example(EXAMPLE, &world.config, &environment).await.expect("it starts");
    }
    load.finish().await;

    let facts = agree::relations(&world).await;
    eventually("the example keeps what the facts say", async || match tastes(&world).await? {
        kept if kept == facts => Ok(()),
        kept => Err(format!("{kept:?} is not {facts:?}; it says: {}", example.log_tail())),
    })
    .await;
    eventually("the publisher is told", async || match told(&world, "tastes").await {
        told if told.iter().all(|(next, committed)| *next == committed + 1) => Ok(()),
        told => Err(format!("{told:?}; it says: {}", example.log_tail())),
    })
    .await;
}

/// Notes the place of every change, again if it comes again.
struct Notes;

impl Fold for Notes {
    const TABLES: &'static str = "create table if not exists note (shard integer, seq bigint)";

    async fn fold(&self, transaction: &Transaction<'_>, changes: &[Change]) -> Result<(), BoxError> {
        if rand::rng().random_bool(0.1) {
            return Err("a bad day".into());
        }
        let seqs: Vec<i64> = changes.iter().map(|change| change.offset.seq.cast_signed()).collect();
        let shards: Vec<i32> = changes.iter().map(|change| i32::from(change.shard)).collect();
        let statement = "insert into note select * from unnest($1::integer[], $2::bigint[])";
        transaction.execute(statement, &[&shards, &seqs]).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_18_inv_19_what_a_fold_writes_is_written_once_wherever_it_is_cut_off() {
    let world = World::start().await;
    let users = people(&world).await;
    let lanes = LaneSettings {
        stream_prefix: world.config.stream_prefix.clone(),
        // Many small batches, and owners that are soon forgotten: they are cut off without a word.
        consume_batch: 7,
        lease_ttl_ms: 500,
        ..LaneSettings::default()
    };
    let settings = Settings {
        name: "notes".to_owned(),
        postgres: world.config.database.dsn().to_owned().into(),
        schema: "public".to_owned(),
        nats: world.config.address.nats.clone().into(),
        publisher: publisher(&world),
        token: Token::Text(token("notes").into()),
        lanes,
    };
    let sql = world.sql().await;
    let noted = async || -> Result<i64, String> {
        let row = sql.query_one("select count(*) from public.note", &[]).await.map_err(|error| error.to_string())?;
        Ok(row.get(0))
    };
    let load = Load::start(&users);
    for _ in 0..8 {
        // What runs on it stops where it waits, as a process that is killed does.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads");
        let before = noted().await.unwrap_or_default();
        let (settings, handle) = (settings.clone(), runtime.handle().clone());
        let consumer = handle.spawn(async move { Consumer::start(settings, Notes).await }).await.expect("no panic");
        let consumer = consumer.expect("it starts");
        eventually("the fold goes on", async || match noted().await? {
            now if now > before => Ok(()),
            now => Err(format!("{now}: {:?}", consumer.progress().await)),
        })
        .await;
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(0..200))).await;
        runtime.shutdown_background();
    }
    load.finish().await;

    let facts = world.facts().await;
    let mut committed = Vec::new();
    for shard in 0..LANES.len() {
        let row = facts.query_one(&format!("select coalesce(max(seq), 0) from relation_{shard:02}.outbox"), &[]).await;
        committed.push(row.expect("a row").get::<_, i64>(0));
    }
    let consumer = Consumer::start(settings, Notes).await.expect("it starts");
    eventually("everything is folded", async || match noted().await? {
        now if now >= committed.iter().sum() => Ok(()),
        now => Err(format!("{now} of {committed:?}: {:?}", consumer.progress().await)),
    })
    .await;
    consumer.stop().await;
    for (shard, committed) in (0_i32..).zip(committed) {
        let rows =
            sql.query("select seq from public.note where shard = $1 order by seq", &[&shard]).await.expect("rows");
        let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(seqs, (1..=committed).collect::<Vec<_>>(), "shard {shard}");
    }
}
