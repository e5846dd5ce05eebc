//! What exact comparisons stand on: scans at a watermark, tails, write barriers, and looking things up.

use std::collections::BTreeMap;
use std::time::Duration;

use likewise_devstack::{TestConfig, TestStack};
use likewise_domain::id::UserId;
use likewise_proto::events::v1::RelationChanged;
use likewise_proto::facts::v1 as facts;
use likewise_proto::facts::v1::find_event_request::Key;
use likewise_proto::facts::v1::find_event_response::Event;
use likewise_proto::facts::v1::scan_relations_response::Part;
use likewise_proto::lanes::v1::lane_service_client::LaneServiceClient;
use likewise_proto::lanes::v1::{SourceMessage, TailSourceRequest};
use likewise_proto::types::v1::LikeState::{Liked, Unliked};
use prost::Message as _;
use tonic::{Request, Status};

use crate::authority::Authority;
use crate::commands::started;
use crate::rig::{Running, count, eventually, fresh_id, keys, refusal, request, with_token};

fn as_service<T>(message: T) -> Request<T> {
    with_token(message, &keys().mint_service("reconciliation"))
}

fn as_operator<T>(message: T, roles: &[&str]) -> Request<T> {
    with_token(message, &keys().mint_operator("olga", roles))
}

/// Header, rows by pair as (state, version), and whether the trailer counts them.
async fn scan(
    running: &Running,
    shard: u32,
) -> Result<(facts::ScanHeader, BTreeMap<(String, String), (i32, u64)>), Status> {
    let mut parts =
        running.facts().scan_relations(as_service(facts::ScanRelationsRequest { shard })).await?.into_inner();
    let Some(Part::Header(header)) = parts.message().await?.and_then(|first| first.part) else {
        panic!("a scan begins with its header")
    };
    let mut rows = BTreeMap::new();
    while let Some(next) = parts.message().await? {
        match next.part.expect("a part") {
            Part::Rows(more) => rows.extend(
                more.relations.into_iter().map(|row| ((row.user_id, row.video_id), (row.state, row.relation_version))),
            ),
            Part::Trailer(trailer) => {
                assert_eq!(trailer.rows, rows.len() as u64);
                return Ok((header, rows));
            }
            Part::Header(again) => panic!("{again:?}"),
        }
    }
    panic!("a scan ends with its trailer")
}

async fn tail(running: &Running, lane: &str, epoch: u64, from_seq: u64) -> Result<Vec<SourceMessage>, Status> {
    let ask = TailSourceRequest { lane: lane.to_owned(), epoch, from_seq };
    let mut parts = LaneServiceClient::new(running.channel.clone()).tail_source(as_service(ask)).await?.into_inner();
    let mut messages = Vec::new();
    while let Some(part) = parts.message().await? {
        messages.extend(part.messages);
    }
    Ok(messages)
}

#[tokio::test]
async fn inv_18_case_29_a_scan_and_the_tail_behind_its_watermark_make_the_whole_while_writing_goes_on() {
    let (running, sql, _config) = started(&[]).await;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let write = async {
        let mut round = 0;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            let state = if round % 3 == 2 { Unliked } else { Liked };
            let person = running.as_user(&format!("u{}", round % 40));
            person.set(&fresh_id(), if round % 2 == 0 { "V1" } else { "V2" }, state).await.expect("an answer");
            round += 1;
        }
    };
    let compare = async {
        for _ in 0..5 {
            let before = count(&sql, "outbox").await;
            eventually("something is written", async || {
                let now = count(&sql, "outbox").await;
                if now > before + 20 { Ok(()) } else { Err(now) }
            })
            .await;
            let (header, rows) = scan(&running, 0).await.expect("a scan");
            let messages = tail(&running, "rel-00", header.epoch, 1).await.expect("the tail");
            assert!(messages.len() as u64 >= header.watermark_seq);
            let mut folded: BTreeMap<(String, String), (i32, u64)> = BTreeMap::new();
            for (message, seq) in messages.iter().zip(1..) {
                assert_eq!(message.seq, seq, "dense");
                let event = RelationChanged::decode(message.payload.clone()).expect("an event");
                assert_eq!(event.event_id, message.event_id);
                if seq <= header.watermark_seq {
                    folded.insert((event.user_id, event.video_id), (event.state, event.relation_version));
                }
            }
            assert_eq!(rows, folded, "the scan is exactly what the changes up to its watermark make");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::join!(write, compare);
}

#[tokio::test]
async fn a_tail_says_when_it_cannot_be_whole() {
    let (running, sql, _config) = started(&[]).await;
    for video in ["V1", "V2"] {
        running.as_user("lin").like(&fresh_id(), video).await;
    }
    assert_eq!(tail(&running, "rel-00", 0, 2).await.expect("the tail").len(), 1);
    assert!(tail(&running, "rel-00", 0, 3).await.expect("the tail").is_empty(), "nothing is committed there yet");
    assert_eq!(refusal(tail(&running, "rel-00", 1, 1).await), "FailedPrecondition EPOCH_CHANGED");
    assert_eq!(refusal(tail(&running, "rel-99", 0, 1).await), "NotFound LANE_NOT_FOUND");
    assert_eq!(refusal(tail(&running, "rel-00", 0, 0).await), "InvalidArgument INVALID_ARGUMENT");
    sql.batch_execute("delete from outbox where seq = 1").await.expect("deleted");
    assert_eq!(refusal(tail(&running, "rel-00", 0, 1).await), "FailedPrecondition LOG_EXPIRED");
    let ask = TailSourceRequest { lane: "rel-00".to_owned(), epoch: 0, from_seq: 1 };
    let mut lanes = LaneServiceClient::new(running.channel.clone());
    let told = lanes.tail_source(with_token(ask, &keys().mint_user("lin"))).await;
    assert_eq!(refusal(told.map(|_| ())), "PermissionDenied ROLE_REQUIRED");
}

/// Two shards, and a user in each.
async fn two_shards() -> (Running, TestConfig, [String; 2]) {
    let authority = Authority::default();
    authority.publish("V1");
    let endpoint = authority.serve().await;
    let config = TestStack::get().config().await;
    let running = Running::start(&config, &[("ENDPOINTS__POLICY", &endpoint), ("COMMAND__SHARDS", "2")]).await;
    let contract = likewise_domain::hash::HashContract::parse("xxh64", 0, "lp32be", 2).expect("a contract");
    let of = |shard| {
        let mut names = (0..).map(|number| format!("u{number}"));
        let owns = |name: &String| contract.slot(&[UserId::parse(name).expect("an id").as_str()]) == shard;
        names.find(owns).expect("a user")
    };
    (running, config, [of(0), of(1)])
}

fn barrier(shards: &[u32], millis: u64) -> facts::AcquireWriteBarrierRequest {
    facts::AcquireWriteBarrierRequest {
        shards: shards.to_vec(),
        ttl: prost_types::Duration::try_from(Duration::from_millis(millis)).ok(),
        reason: "a comparison".to_owned(),
    }
}

#[tokio::test]
async fn case_28_case_46_behind_a_barrier_nothing_is_written_and_the_proof_says_so() {
    let (running, config, [one, other]) = two_shards().await;
    let (one, other) = (running.as_user(&one), running.as_user(&other));
    let first = one.like("op-1", "V1").await;
    let mut service = running.facts();
    let granted = service.acquire_write_barrier(as_service(barrier(&[], 900))).await.expect("granted").into_inner();
    assert_eq!(
        granted.shards.iter().map(|shard| (shard.shard, shard.committed_seq)).collect::<Vec<_>>(),
        [(0, 1), (1, 0)]
    );
    for person in [&one, &other] {
        let told = refusal(person.set("op-2", "V1", Unliked).await);
        assert_eq!(told, "Unavailable RELATION_SHARD_UNAVAILABLE");
    }
    assert_eq!(one.like("op-1", "V1").await, first, "a retry still gets its verdict");
    let again = service.acquire_write_barrier(as_service(barrier(&[1], 500))).await;
    assert_eq!(refusal(again), "FailedPrecondition BARRIER_HELD");
    let proof = async |token: &str| {
        let ask = facts::ProveWriteBarrierRequest { token: token.to_owned(), shards: Vec::new() };
        let proof = running.facts().prove_write_barrier(as_service(ask)).await.expect("a proof").into_inner();
        let problems: Vec<String> = proof.shards.iter().map(|shard| shard.problem.clone()).collect();
        assert_eq!(proof.holds, problems.iter().all(String::is_empty));
        problems.join(" ")
    };
    assert_eq!(proof(&granted.token).await, " ");
    assert_eq!(proof("00000000-0000-4000-8000-000000000000").await, "OTHER_TOKEN OTHER_TOKEN");
    let statuses = service.get_shard_watermarks(as_operator(facts::GetShardWatermarksRequest {}, &["viewer"])).await;
    let statuses = statuses.expect("told").into_inner().shards;
    assert!(statuses.iter().all(|shard| shard.status == "SERVING" && shard.barrier_until.is_some()), "{statuses:?}");

    // It lapses by itself; writing goes on, and the proof is gone for good.
    eventually("the barrier lapses", async || one.set("op-3", "V1", Unliked).await.map_err(|status| status.code()))
        .await;
    assert_eq!(proof(&granted.token).await, "LAPSED LAPSED");
    let granted = service.acquire_write_barrier(as_service(barrier(&[0], 900))).await.expect("granted").into_inner();
    other.like("op-4", "V1").await;
    let ask = facts::ReleaseWriteBarrierRequest { token: granted.token.clone(), shards: Vec::new() };
    let released = service.release_write_barrier(as_service(ask)).await.expect("released").into_inner().released;
    assert_eq!(released, [0]);
    one.like("op-5", "V1").await;
    assert_eq!(proof(&granted.token).await, "OTHER_TOKEN OTHER_TOKEN");
    let sql = config.database.connect().await.expect("connected");
    let kept =
        sql.query("select action, who, reason from relation_00.barrier_audit order by entry", &[]).await.expect("read");
    let kept: Vec<String> = kept
        .iter()
        .map(|row| format!("{} {} {}", row.get::<_, &str>(0), row.get::<_, &str>(1), row.get::<_, &str>(2)))
        .collect();
    let by = "service:reconciliation";
    let expected = [
        format!("GRANTED {by} a comparison"),
        format!("PROVED {by} "),
        format!("REFUSED {by} OTHER_TOKEN"),
        format!("REFUSED {by} LAPSED"),
        format!("GRANTED {by} a comparison"),
        format!("RELEASED {by} "),
        format!("REFUSED {by} OTHER_TOKEN"),
    ];
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn a_barrier_needs_its_role_and_a_bound() {
    let (running, _config, _) = two_shards().await;
    let mut service = running.facts();
    let long = facts::AcquireWriteBarrierRequest {
        ttl: Some(prost_types::Duration { seconds: 3600, nanos: 0 }),
        ..barrier(&[], 1)
    };
    let silent = facts::AcquireWriteBarrierRequest { reason: String::new(), ..barrier(&[], 1) };
    for bad in [long, silent, barrier(&[7], 1)] {
        assert_eq!(refusal(service.acquire_write_barrier(as_service(bad)).await), "InvalidArgument INVALID_ARGUMENT");
    }
    let viewer = service.acquire_write_barrier(as_operator(barrier(&[], 1), &["viewer"])).await;
    assert_eq!(refusal(viewer), "PermissionDenied ROLE_REQUIRED");
    service.acquire_write_barrier(as_operator(barrier(&[], 1), &["operator"])).await.expect("granted");
    let user = service.acquire_write_barrier(with_token(barrier(&[], 1), &keys().mint_user("lin"))).await;
    assert_eq!(refusal(user), "PermissionDenied ROLE_REQUIRED");
    // All or none: shard 1 is held, so shard 0 is let go again.
    eventually("the first lapses", async || {
        service.clone().acquire_write_barrier(as_service(barrier(&[1], 5_000))).await.map_err(|status| status.code())
    })
    .await;
    assert_eq!(
        refusal(service.acquire_write_barrier(as_service(barrier(&[], 5_000))).await),
        "FailedPrecondition BARRIER_HELD"
    );
    service.acquire_write_barrier(as_service(barrier(&[0], 100))).await.expect("shard 0 is free");
}

#[tokio::test]
async fn operations_and_events_are_found_with_everything_that_is_kept() {
    let (running, _sql, _config) = started(&[]).await;
    let lin = running.as_user("lin");
    let mut command = request("op-1", "V1", Liked);
    command.base_version = Some(0);
    command.client_sequence = Some(7);
    command.device_id = Some("phone".to_owned());
    lin.send(command).await.expect("an answer");
    let mut service = running.facts();
    let ask = |id: &str| facts::FindOperationRequest { user_id: "lin".to_owned(), operation_id: id.to_owned() };
    let found = service.find_operation(as_operator(ask("op-1"), &["viewer"])).await.expect("found").into_inner();
    assert_eq!((found.outcome.as_str(), found.relation_version, found.video_id.as_str()), ("APPLIED", 1, "V1"));
    assert_eq!((found.base_version, found.client_sequence, found.device_hash.len()), (Some(0), Some(7), 32));
    assert_eq!(refusal(service.find_operation(as_service(ask("op-2"))).await), "NotFound OPERATION_NOT_FOUND");

    let number = facts::EventNumber { shard: 0, seq: 1 };
    let by = |key| facts::FindEventRequest { key: Some(key) };
    let found = service.find_event(as_service(by(Key::Number(number)))).await.expect("found").into_inner();
    let Some(Event::RelationChanged(event)) = &found.event else { panic!("{found:?}") };
    assert_eq!((event.user_id.as_str(), event.operation_id.as_str(), event.source_commit_seq), ("lin", "op-1", 1));
    let by_id = service.find_event(as_service(by(Key::EventId(event.event_id.clone())))).await.expect("found");
    assert_eq!(by_id.into_inner().event, found.event);
    let missing = facts::EventNumber { shard: 0, seq: 2 };
    assert_eq!(refusal(service.find_event(as_service(by(Key::Number(missing)))).await), "NotFound EVENT_NOT_FOUND");
    let stranger = Key::EventId("00000000-0000-4000-8000-000000000000".to_owned());
    assert_eq!(refusal(service.find_event(as_service(by(stranger))).await), "NotFound EVENT_NOT_FOUND");
    assert_eq!(
        refusal(service.find_event(as_service(facts::FindEventRequest { key: None })).await),
        "InvalidArgument INVALID_ARGUMENT"
    );
    let user = service.find_operation(with_token(ask("op-1"), &keys().mint_user("lin"))).await;
    assert_eq!(refusal(user), "PermissionDenied ROLE_REQUIRED");
    eventually("the evidence is told", async || {
        let found = service.clone().find_event(as_service(by(Key::Number(number)))).await.expect("found").into_inner();
        if found.stream.contains("_REL_0_E0") { Ok(()) } else { Err(found.stream) }
    })
    .await;
}

#[tokio::test]
async fn scans_are_few_at_once_and_end_with_their_reader() {
    let (running, sql, _config) = started(&[("COMMAND__SCANS_MAX", "1")]).await;
    let fill = "insert into like_relation select 1, now(), n, now(), now(), now(), 0, 1, 1, 1, 'u' || n, 'V1', 'op' \
                from generate_series(1, 30000) n";
    sql.batch_execute(fill).await.expect("filled");
    let ask = || as_service(facts::ScanRelationsRequest { shard: 0 });
    let held = running.facts().scan_relations(ask()).await.expect("begun").into_inner();
    assert_eq!(refusal(running.facts().scan_relations(ask()).await.map(|_| ())), "ResourceExhausted OVERLOADED");
    drop(held);
    let rows = eventually("the room is free again", async || match scan(&running, 0).await {
        Ok((_, rows)) => Ok(rows),
        Err(status) => Err(status.code()),
    })
    .await;
    assert_eq!(rows.len(), 30_000);
    assert_eq!(refusal(scan(&running, 9).await), "InvalidArgument INVALID_ARGUMENT");
    tokio::time::timeout(Duration::from_secs(20), running.stop()).await.expect("ends in order");
}
