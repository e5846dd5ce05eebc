//! Who needs the outbox of a lane, and what goes when nobody does.

use std::time::Duration;

use likewise_command::partitions::SeqRange;
use likewise_command::store::retention::drop_unneeded;
use likewise_command::store::shard;
use likewise_proto::lanes::v1::lane_service_client::LaneServiceClient;
use likewise_proto::lanes::v1::{
    ListConsumersRequest, ListConsumersResponse, RegisterConsumerRequest, ReleaseConsumerRequest, ReleaseHoldRequest,
    ReportProgressRequest, TailSourceRequest, TakeHoldRequest,
};
use tokio_postgres::Client;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::commands::started;
use crate::rig::{Running, count, eventually, fresh_id, keys, refusal, with_token};

/// Numbers in one partition of the outbox.
const ROWS: u64 = 10;
const SMALL: [(&str, &str); 3] = [
    ("COMMAND__OUTBOX_PARTITION_ROWS", "10"),
    ("COMMAND__OUTBOX_PARTITIONS_AHEAD", "5"),
    ("COMMAND__MAINTENANCE_INTERVAL_MS", "20"),
];
const AGE: time::Duration = time::Duration::days(30);

fn as_service<T>(message: T) -> Request<T> {
    with_token(message, &keys().mint_service("timeline"))
}

fn as_operator<T>(message: T) -> Request<T> {
    with_token(message, &keys().mint_operator("olga", &["operator"]))
}

fn lanes(running: &Running) -> LaneServiceClient<Channel> {
    LaneServiceClient::new(running.channel.clone())
}

fn registration(consumer: &str, next_seq: u64) -> RegisterConsumerRequest {
    let (lane, consumer) = ("rel-00".to_owned(), consumer.to_owned());
    RegisterConsumerRequest { lane, consumer, epoch: 0, next_seq, ttl_seconds: 3_600 }
}

async fn register(running: &Running, consumer: &str, next_seq: u64) -> Result<(), Status> {
    lanes(running).register_consumer(as_service(registration(consumer, next_seq))).await.map(drop)
}

async fn report(running: &Running, consumer: &str, next_seq: u64) -> Result<(), Status> {
    let (lane, consumer) = ("rel-00".to_owned(), consumer.to_owned());
    let asked = ReportProgressRequest { lane, consumer, epoch: 0, next_seq };
    lanes(running).report_progress(as_service(asked)).await.map(drop)
}

async fn release(running: &Running, consumer: &str) -> bool {
    let asked = ReleaseConsumerRequest { lane: "rel-00".to_owned(), consumer: consumer.to_owned() };
    lanes(running).release_consumer(as_operator(asked)).await.expect("an answer").into_inner().was_there
}

fn hold(hold: &str, from_seq: Option<u64>) -> TakeHoldRequest {
    let (lane, hold, reason) = ("rel-00".to_owned(), hold.to_owned(), "a rebuild".to_owned());
    TakeHoldRequest { lane, hold, reason, from_seq, ttl_seconds: 60 }
}

async fn list(running: &Running) -> ListConsumersResponse {
    let asked =
        with_token(ListConsumersRequest { lane: "rel-00".to_owned() }, &keys().mint_operator("vic", &["viewer"]));
    lanes(running).list_consumers(asked).await.expect("an answer").into_inner()
}

/// Commits up to a number and waits until all of it is published.
async fn commit_to(running: &Running, sql: &Client, last: i64) {
    while count(sql, "outbox").await < last {
        running.as_user(&fresh_id()).like(&fresh_id(), "V1").await;
    }
    eventually("published", async || {
        let left = count(sql, "outbox o where o.seq > (select coalesce(max(to_seq), 0) from outbox_publication)").await;
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

/// Lets everything be published long ago.
async fn age(sql: &Client) {
    sql.batch_execute("update outbox_publication set acked_at = acked_at - interval '31 days'").await.expect("aged");
}

async fn dropped(running: &Running) -> Result<Vec<u64>, likewise_command::store::Error> {
    let pool = running.context.servers.pool("main", &shard::schema(0), 2).expect("a pool");
    Ok(drop_unneeded(&pool, 0, AGE).await?.iter().map(|range: &SeqRange| range.from).collect())
}

async fn tail_from(running: &Running, from_seq: u64) -> Result<(), Status> {
    let asked = as_service(TailSourceRequest { lane: "rel-00".to_owned(), epoch: 0, from_seq });
    let mut parts = lanes(running).tail_source(asked).await?.into_inner();
    while parts.message().await?.is_some() {}
    Ok(())
}

#[tokio::test]
async fn consumers_and_holds_are_listed_with_what_they_keep_until_they_are_let_go() {
    let (running, sql, _config) = started(&[]).await;
    commit_to(&running, &sql, 6).await;
    register(&running, "timeline.g1", 3).await.expect("registered");
    report(&running, "timeline.g1", 5).await.expect("heard");
    report(&running, "timeline.g1", 4).await.expect("heard, and nothing lost by it");
    let held = lanes(&running).take_hold(as_operator(hold("rebuild.7", None))).await.expect("held").into_inner();
    assert_eq!(held.from_seq, 1, "from the first number that there is");
    lanes(&running).take_hold(as_operator(hold("rebuild.7", Some(2)))).await.expect("changed");

    let listed = list(&running).await;
    assert_eq!((listed.first_seq, listed.committed_seq), (1, 6));
    let [consumer] = &listed.consumers[..] else { panic!("{listed:?}") };
    let (name, owner) = (consumer.consumer.as_str(), consumer.owner.as_str());
    assert_eq!((name, owner, consumer.epoch, consumer.next_seq), ("timeline.g1", "timeline", 0, 5));
    let (heard, until) = (consumer.reported_at.expect("a time"), consumer.expires_at.expect("a time"));
    assert_eq!(until.seconds - heard.seconds, 3_600);
    let [held] = &listed.holds[..] else { panic!("{listed:?}") };
    assert_eq!((held.hold.as_str(), held.owner.as_str(), held.from_seq), ("rebuild.7", "olga", 2));
    assert_eq!(held.reason, "a rebuild");

    register(&running, "timeline.g1", 2).await.expect("an earlier place, because it was put back");
    assert_eq!(list(&running).await.consumers[0].next_seq, 2);
    assert!(release(&running, "timeline.g1").await);
    assert!(!release(&running, "timeline.g1").await);
    let release = || as_operator(ReleaseHoldRequest { lane: "rel-00".to_owned(), hold: "rebuild.7".to_owned() });
    assert!(lanes(&running).release_hold(release()).await.expect("an answer").into_inner().was_there);
    assert!(!lanes(&running).release_hold(release()).await.expect("an answer").into_inner().was_there);
    let listed = list(&running).await;
    assert!(listed.consumers.is_empty() && listed.holds.is_empty());
    assert_eq!(refusal(report(&running, "timeline.g1", 5).await), "NotFound CONSUMER_NOT_REGISTERED");
    let audit = sql.query("select actor, action, name, seq from lane_audit order by id", &[]).await.expect("read");
    let audit: Vec<(String, String, String, i64)> =
        audit.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    let entry = |action: &str, name: &str| ("olga".to_owned(), action.to_owned(), name.to_owned(), 2);
    assert_eq!(audit, [entry("RELEASE_CONSUMER", "timeline.g1"), entry("RELEASE_HOLD", "rebuild.7")]);
}

#[tokio::test]
async fn what_a_registration_cannot_be_is_refused_and_changes_nothing() {
    let (running, sql, _config) = started(&[]).await;
    let invalid = "InvalidArgument INVALID_ARGUMENT";
    let mut calls = lanes(&running);
    let right = || registration("timeline", 1);
    let wrong = [
        RegisterConsumerRequest { consumer: "a b".to_owned(), ..right() },
        RegisterConsumerRequest { consumer: String::new(), ..right() },
        RegisterConsumerRequest { next_seq: 0, ..right() },
        RegisterConsumerRequest { next_seq: u64::MAX, ..right() },
        RegisterConsumerRequest { epoch: u64::MAX, ..right() },
        RegisterConsumerRequest { ttl_seconds: 59, ..right() },
    ];
    for asked in wrong {
        assert_eq!(refusal(calls.register_consumer(as_service(asked.clone())).await), invalid, "{asked:?}");
    }
    let elsewhere = RegisterConsumerRequest { lane: "rel-99".to_owned(), ..right() };
    assert_eq!(refusal(calls.register_consumer(as_service(elsewhere)).await), "NotFound LANE_NOT_FOUND");
    for asked in [
        TakeHoldRequest { reason: String::new(), ..hold("h", None) },
        TakeHoldRequest { ttl_seconds: 7_776_001, ..hold("h", None) },
        hold("h", Some(0)),
        hold("", None),
    ] {
        assert_eq!(refusal(calls.take_hold(as_operator(asked.clone())).await), invalid, "{asked:?}");
    }
    let denied = "PermissionDenied ROLE_REQUIRED";
    let (person, viewer) = (keys().mint_user("lin"), keys().mint_operator("vic", &["viewer"]));
    assert_eq!(refusal(calls.register_consumer(with_token(right(), &person)).await), denied);
    assert_eq!(refusal(calls.take_hold(with_token(hold("h", None), &viewer)).await), denied);
    let asked = ReleaseConsumerRequest { lane: "rel-00".to_owned(), consumer: "timeline".to_owned() };
    assert_eq!(refusal(calls.release_consumer(with_token(asked, &viewer)).await), denied);
    for table in ["lane_consumer", "lane_hold", "lane_audit"] {
        assert_eq!(count(&sql, table).await, 0, "{table}");
    }
}

#[tokio::test]
async fn inv_18_a_part_of_the_outbox_goes_only_when_nobody_needs_it() {
    let (running, sql, _config) = started(&SMALL).await;
    commit_to(&running, &sql, 46).await;
    let none = Vec::<u64>::new();
    register(&running, "timeline.g1", 45).await.expect("registered");
    assert_eq!(dropped(&running).await.expect("a pass"), none, "the stream still has it");
    age(&sql).await;
    assert!(release(&running, "timeline.g1").await);
    assert_eq!(dropped(&running).await.expect("a pass"), none, "nobody is registered");

    register(&running, "timeline.g1", 21).await.expect("registered");
    lanes(&running).take_hold(as_operator(hold("rebuild.7", Some(11)))).await.expect("held");
    assert_eq!(dropped(&running).await.expect("a pass"), [1], "11 is held");
    assert_eq!(refusal(tail_from(&running, 10).await), "FailedPrecondition LOG_EXPIRED");
    tail_from(&running, 11).await.expect("the tail");
    assert_eq!(refusal(register(&running, "late", 10).await), "FailedPrecondition LOG_EXPIRED");
    assert_eq!(refusal(register(&running, "timeline.g1", 10).await), "FailedPrecondition LOG_EXPIRED");
    let early = lanes(&running).take_hold(as_operator(hold("rebuild.7", Some(10)))).await;
    assert_eq!(refusal(early), "FailedPrecondition LOG_EXPIRED");
    let listed = list(&running).await;
    assert_eq!((listed.consumers.len(), listed.consumers[0].next_seq, listed.first_seq), (1, 21, 11), "as before");
    assert_eq!((listed.holds.len(), listed.holds[0].from_seq), (1, 11), "as before");

    sql.batch_execute("update lane_hold set expires_at = clock_timestamp()").await.expect("ended");
    assert_eq!(dropped(&running).await.expect("a pass"), [11], "21 is needed");
    report(&running, "timeline.g1", 47).await.expect("heard");
    sql.batch_execute("update lane_consumer set reported_at = reported_at - 2 * ttl").await.expect("silent");
    assert_eq!(dropped(&running).await.expect("a pass"), none, "nobody was heard in time");
    report(&running, "timeline.g1", 47).await.expect("heard");
    assert_eq!(dropped(&running).await.expect("a pass"), [21, 31], "not the one that has the last number");
    // Numbers go on, and so does publication.
    commit_to(&running, &sql, 12).await;
    assert_eq!(list(&running).await.committed_seq, 52);
}

#[tokio::test]
async fn inv_18_maintenance_drops_what_nobody_needs_and_its_evidence_when_it_is_told_to() {
    let changes = [&SMALL[..], &[("COMMAND__DROP_OUTBOX", "true")]].concat();
    let (running, sql, _config) = started(&changes).await;
    commit_to(&running, &sql, 36).await;
    register(&running, "timeline.g1", 36).await.expect("registered");
    age(&sql).await;
    eventually("dropped", async || {
        let first = list(&running).await.first_seq;
        if first == 3 * ROWS + 1 { Ok(()) } else { Err(first) }
    })
    .await;
    eventually("forgotten", async || {
        let left = count(&sql, "outbox_publication where to_seq <= 30").await;
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inv_18_who_registers_while_a_part_is_being_dropped_keeps_it_or_is_told() {
    let (running, sql, config) = started(&SMALL).await;
    commit_to(&running, &sql, 36).await;
    age(&sql).await;
    register(&running, "fast", 36).await.expect("registered");
    let reader = config.database.connect().await.expect("connected");
    reader.batch_execute("set search_path = relation_00").await.expect("set");
    let waits = "pg_locks where mode = 'AccessExclusiveLock' and not granted and relation = 'outbox'::regclass";
    let known = "lane_consumer where name = 'late'";
    for _ in 0..20 {
        // The one that drops waits for a reader; meanwhile somebody registers, and looks behind it.
        reader.batch_execute("begin; select from outbox limit 1").await.expect("reads");
        let looked = async {
            let end = tokio::time::Instant::now() + Duration::from_millis(450);
            while count(&sql, waits).await == 0 && tokio::time::Instant::now() < end {}
            let registers = register(&running, "late", 1);
            let written = async {
                while count(&sql, known).await == 0 && tokio::time::Instant::now() < end {}
                reader.batch_execute("commit").await.expect("ended");
            };
            tokio::join!(registers, written).0
        };
        let (gone, registered) = tokio::join!(dropped(&running), looked);
        // A machine that is too slow lets the one that drops give up.
        if let Ok(gone) = gone {
            assert_eq!(gone, Vec::<u64>::new());
            registered.expect("registered in time");
            assert_eq!(list(&running).await.first_seq, 1);
            return;
        }
        registered.expect("registered");
        assert!(release(&running, "late").await);
    }
    panic!("the one that drops never waited");
}
