//! Several commands in one request, and many users over one stream.

use std::collections::HashMap;
use std::time::Duration;

use likewise_kit::errors;
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::command::v1::set_like_result::Result as Told;
use likewise_proto::command::v1::{
    BatchSetLikeRequest, SetLikeRequest, SetLikeResult, SetLikeStreamRequest, SetLikeStreamResponse,
};
use likewise_proto::types::v1::LikeState::{Liked, Unliked, Unspecified};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};
use tonic_types::StatusExt as _;

use crate::commands::started;
use crate::limits::two_processes;
use crate::rig::{Running, User, count, eventually, fresh_id, hold_lock, keys, refusal, request, told, with_token};

/// Gives a command up soon, so that a test can see one without a verdict.
const SOON: (&str, &str) = ("COMMAND__ANSWER_TIMEOUT_MS", "300");

/// `APPLIED LIKED v1, now LIKED v1`, or `NotFound VIDEO_NOT_FOUND`.
fn shown(result: &SetLikeResult) -> String {
    match result.result.as_ref().expect("a result") {
        Told::Response(response) => told(response),
        Told::Error(error) => {
            let status = Status::with_details(error.code.into(), &error.message, error.encode_to_vec().into());
            format!("{:?} {}", status.code(), errors::reason(&status).unwrap_or_default())
        }
    }
}

async fn batch(user: &User, items: Vec<SetLikeRequest>) -> Result<Vec<String>, Status> {
    let mut client = LikeCommandServiceClient::new(user.channel.clone());
    let answer = client.batch_set_like(with_token(BatchSetLikeRequest { items }, &user.token)).await?;
    Ok(answer.into_inner().results.iter().map(shown).collect())
}

#[tokio::test]
async fn inv_01_case_36_a_batch_has_a_verdict_for_each_item_and_keeps_the_order_of_a_relation() {
    let (running, sql, _config) = started(&[]).await;
    let lin = running.as_user("lin");
    let items = vec![
        request("op-1", "V1", Liked),
        request("op-2", "V1", Unliked),
        request("op-3", "V2", Liked),
        request("op-4", "V9", Liked),
        request("op-5", "V1", Liked),
        request("op-3", "V1", Liked),
        request("op-1", "V1", Liked),
    ];
    let expected = [
        "APPLIED LIKED v1, now LIKED v1",
        "APPLIED UNLIKED v2, now UNLIKED v2",
        "APPLIED LIKED v1, now LIKED v1",
        "NotFound VIDEO_NOT_FOUND",
        "APPLIED LIKED v3, now LIKED v3",
        "AlreadyExists OPERATION_ID_REUSED",
        "APPLIED LIKED v1, now LIKED v3",
    ];
    assert_eq!(batch(&lin, items).await.expect("answered"), expected);
    assert_eq!(count(&sql, "outbox").await, 4);
}

#[tokio::test]
async fn scn_h07_batches_that_cross_in_two_processes_meet_no_deadlock() {
    let (one, other, config) = two_processes(&[]).await;
    let people: Vec<String> = (0..6).map(|number| format!("u{number}")).collect();
    let mut rounds = Vec::new();
    for running in [&one, &other] {
        for person in &people {
            let user = running.as_user(person);
            let forward = std::ptr::eq(running, &raw const one);
            rounds.push(async move {
                for round in 0..10 {
                    let state = if round % 2 == 0 { Liked } else { Unliked };
                    let mut items: Vec<_> =
                        (0..10).map(|number| request(&fresh_id(), &format!("V{number}"), state)).collect();
                    if !forward {
                        items.reverse();
                    }
                    for told in batch(&user, items).await.expect("an answer") {
                        assert!(told.starts_with("APPLIED") || told.starts_with("UNCHANGED"), "{told}");
                    }
                }
            });
        }
    }
    futures::future::join_all(rounds).await;
    // What a session has counted is told at the latest when it ends.
    one.stop().await;
    other.stop().await;
    let sql = config.database.connect().await.expect("connected");
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(sql.query_one(deadlocks, &[]).await.expect("told").get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_batch_with_a_fault_names_every_field_and_writes_nothing() {
    let (running, sql, _config) = started(&[]).await;
    let lin = running.as_user("lin");
    let items = vec![request("op-1", "V1", Liked), request("", "V1", Liked), request("op-3", "no video", Unspecified)];
    let status = batch(&lin, items).await.expect_err("refused");
    let named: Vec<String> = status
        .get_details_bad_request()
        .expect("details")
        .field_violations
        .into_iter()
        .map(|violation| violation.field)
        .collect();
    assert_eq!(named, ["items[1].operation_id", "items[2].video_id", "items[2].desired_state"]);
    for size in [0, 101] {
        let items = (0..size).map(|_| request(&fresh_id(), "V1", Liked)).collect();
        assert_eq!(refusal(batch(&lin, items).await), "InvalidArgument INVALID_ARGUMENT", "{size} items");
    }
    let nobody = User { token: String::new(), ..lin.clone() };
    assert_eq!(refusal(batch(&nobody, vec![request("op-1", "V1", Liked)]).await), "Unauthenticated TOKEN_INVALID");
    assert_eq!(count(&sql, "like_command").await, 0);
}

#[tokio::test]
async fn case_48_a_batch_sends_nothing_past_an_item_without_a_verdict() {
    let (running, sql, config) = started(&[SOON]).await;
    let holder = config.database.connect().await.expect("connected");
    hold_lock(&holder, 0).await;
    let lin = running.as_user("lin");
    let items = || vec![request("op-1", "V1", Liked), request("op-2", "V1", Unliked), request("op-3", "V2", Liked)];
    assert_eq!(batch(&lin, items()).await.expect("answered"), ["Aborted OUTCOME_PENDING"; 3]);
    holder.batch_execute("rollback").await.expect("let go");
    eventually("what was sent is decided without its caller", async || match count(&sql, "like_command").await {
        2 => Ok(()),
        seen => Err(seen),
    })
    .await;
    assert_eq!(count(&sql, "like_command where operation_id = 'op-2'").await, 0, "it was never tried");
    let expected =
        ["APPLIED LIKED v1, now LIKED v1", "APPLIED UNLIKED v2, now UNLIKED v2", "APPLIED LIKED v1, now LIKED v1"];
    assert_eq!(batch(&lin, items()).await.expect("answered"), expected);
}

/// The sender's side of a stream.
pub struct Gateway {
    sender: Option<mpsc::UnboundedSender<SetLikeStreamRequest>>,
    answers: Streaming<SetLikeStreamResponse>,
    sent: u64,
}

impl Gateway {
    pub async fn open(running: &Running) -> Self {
        Self::with_token(running, &keys().mint_service("gateway")).await.expect("a stream")
    }

    async fn with_token(running: &Running, token: &str) -> Result<Self, Status> {
        let (sender, messages) = mpsc::unbounded_channel();
        let mut client = LikeCommandServiceClient::new(running.channel.clone());
        let outgoing = UnboundedReceiverStream::new(messages);
        let answers = client.set_like_stream(with_token(outgoing, token)).await?.into_inner();
        Ok(Self { sender: Some(sender), answers, sent: 0 })
    }

    pub fn send(&mut self, user_token: &str, command: SetLikeRequest) -> u64 {
        self.pass_on(SetLikeStreamRequest {
            user_token: user_token.to_owned(),
            command: Some(command),
            ..SetLikeStreamRequest::default()
        })
    }

    /// A command with time and signature.
    pub fn send_signed(&mut self, user_token: &str, command: SetLikeRequest, signed: &(String, String)) -> u64 {
        self.pass_on(SetLikeStreamRequest {
            user_token: user_token.to_owned(),
            command: Some(command),
            request_time: Some(signed.0.clone()),
            signature: Some(signed.1.clone()),
            ..SetLikeStreamRequest::default()
        })
    }

    fn pass_on(&mut self, message: SetLikeStreamRequest) -> u64 {
        self.sent += 1;
        let message = SetLikeStreamRequest { correlation_id: self.sent, ..message };
        self.sender.as_ref().expect("open").send(message).expect("sent");
        self.sent
    }

    async fn answer(&mut self) -> Result<Option<(u64, String)>, Status> {
        let answer = tokio::time::timeout(Duration::from_secs(30), self.answers.message()).await.expect("in time")?;
        Ok(answer.map(|answer| (answer.correlation_id, shown(answer.result.as_ref().expect("a result")))))
    }

    /// The next answers by the place of their command, 1 for the first that was ever sent.
    pub async fn answers(&mut self, count: usize) -> HashMap<u64, String> {
        let mut answers = HashMap::new();
        for _ in 0..count {
            let (id, told) = self.answer().await.expect("an answer").expect("an answer");
            assert_eq!(answers.insert(id, told), None, "one answer for each command");
        }
        answers
    }
}

async fn in_flight(running: &Running, commands: u8) {
    let line = format!("likewise_command_stream_commands {commands}.0");
    eventually("so many commands of streams are in flight", async || {
        let text = running.context.metrics.encode();
        let seen = text.lines().find(|line| line.starts_with("likewise_command_stream_commands ")).map(str::to_owned);
        if seen.as_ref() == Some(&line) { Ok(()) } else { Err(seen) }
    })
    .await;
}

#[tokio::test]
async fn inv_01_inv_26_a_stream_carries_many_users_and_answers_each_command_once() {
    let (running, sql, _config) = started(&[]).await;
    let mut gateway = Gateway::open(&running).await;
    let tokens: Vec<String> = (0..50).map(|number| keys().mint_user(&format!("u{number}"))).collect();
    for round in 0..8 {
        let state = if round % 2 == 0 { Liked } else { Unliked };
        for token in &tokens {
            gateway.send(token, request(&fresh_id(), "V1", state));
        }
    }
    let answers = gateway.answers(400).await;
    for (id, told) in answers {
        let round = (id - 1) / 50 + 1;
        let state = if round % 2 == 1 { "LIKED" } else { "UNLIKED" };
        assert_eq!(
            told,
            format!("APPLIED {state} v{round}, now {state} v{round}"),
            "commands of one relation in order"
        );
    }
    gateway.sender = None;
    assert_eq!(gateway.answer().await.expect("in order"), None, "the stream ends when the sender is done");
    assert_eq!((count(&sql, "like_relation").await, count(&sql, "outbox").await), (50, 400));
}

#[tokio::test]
async fn inv_26_each_command_of_a_stream_needs_the_token_of_its_user() {
    let (running, sql, _config) = started(&[]).await;
    let lin = keys().mint_user("lin");
    let call = Gateway::with_token(&running, &lin).await;
    assert_eq!(refusal(call.map(|_| ())), "PermissionDenied ROLE_REQUIRED");
    let mut gateway = Gateway::open(&running).await;
    for (token, expected) in [
        (String::new(), "Unauthenticated TOKEN_MISSING"),
        ("garbage".to_owned(), "Unauthenticated TOKEN_INVALID"),
        (keys().mint_expired("lin"), "Unauthenticated TOKEN_EXPIRED"),
        (keys().mint_service("gateway"), "PermissionDenied ROLE_REQUIRED"),
    ] {
        gateway.send(&token, request("op-1", "V1", Liked));
        assert_eq!(gateway.answer().await.expect("an answer").expect("an answer").1, expected);
    }
    gateway.send(&lin, request("op 1", "V1", Unspecified));
    assert_eq!(gateway.answer().await.expect("an answer").expect("an answer").1, "InvalidArgument INVALID_ARGUMENT");
    assert_eq!(count(&sql, "like_command").await, 0);
    gateway.send(&lin, request("op-1", "V1", Liked));
    assert_eq!(gateway.answer().await.expect("an answer").expect("an answer").1, "APPLIED LIKED v1, now LIKED v1");
}

#[tokio::test]
async fn case_48_a_stream_tries_nothing_past_a_command_without_a_verdict() {
    let (running, sql, config) = started(&[SOON]).await;
    let holder = config.database.connect().await.expect("connected");
    hold_lock(&holder, 0).await;
    let mut gateway = Gateway::open(&running).await;
    let lin = keys().mint_user("lin");
    gateway.send(&lin, request("op-1", "V1", Liked));
    gateway.send(&lin, request("op-2", "V1", Unliked));
    let pending = "Aborted OUTCOME_PENDING".to_owned();
    assert_eq!(gateway.answers(2).await, HashMap::from([(1, pending.clone()), (2, pending.clone())]));
    holder.batch_execute("rollback").await.expect("let go");
    gateway.send(&lin, request("op-3", "V1", Unliked));
    assert_eq!(gateway.answers(1).await[&3], pending, "the first has no verdict that the sender knows of");
    assert_eq!(count(&sql, "like_command where operation_id <> 'op-1'").await, 0);
    gateway.send(&lin, request("op-1", "V1", Liked));
    gateway.send(&lin, request("op-2", "V1", Unliked));
    let answers = gateway.answers(2).await;
    assert!(answers[&4].starts_with("APPLIED LIKED v1"), "{answers:?}");
    assert_eq!(answers[&5], "APPLIED UNLIKED v2, now UNLIKED v2");
}

#[tokio::test]
async fn a_stream_is_read_no_further_than_its_bound_and_what_was_read_is_decided_without_its_sender() {
    let (running, sql, config) = started(&[("COMMAND__STREAM_IN_FLIGHT_MAX", "4")]).await;
    let holder = config.database.connect().await.expect("connected");
    hold_lock(&holder, 0).await;
    let mut gateway = Gateway::open(&running).await;
    let lin = keys().mint_user("lin");
    gateway.send(&lin, request(&fresh_id(), "V1", Liked));
    eventually("the first batch waits for the lock", async || match crate::rig::waiting_for_lock(&sql).await {
        1 => Ok(()),
        waiting => Err(waiting),
    })
    .await;
    for number in 0..200 {
        gateway.send(&keys().mint_user(&format!("u{number}")), request(&fresh_id(), "V1", Liked));
    }
    in_flight(&running, 4).await;
    drop(gateway);
    in_flight(&running, 0).await;
    holder.batch_execute("rollback").await.expect("let go");
    eventually("what was read is decided", async || match count(&sql, "like_command").await {
        4 => Ok(()),
        seen => Err(seen),
    })
    .await;
    running.as_user("mei").like("op-1", "V1").await;
    assert_eq!(count(&sql, "like_command").await, 5, "and nothing else was read");
}

#[tokio::test]
async fn a_process_that_stops_finishes_what_it_has_read_and_says_so() {
    let (running, sql, config) = started(&[]).await;
    let holder = config.database.connect().await.expect("connected");
    hold_lock(&holder, 0).await;
    let mut gateway = Gateway::open(&running).await;
    gateway.send(&keys().mint_user("lin"), request("op-1", "V1", Liked));
    eventually("the batch waits for the lock", async || match crate::rig::waiting_for_lock(&sql).await {
        1 => Ok(()),
        waiting => Err(waiting),
    })
    .await;
    running.context.draining.cancel();
    holder.batch_execute("rollback").await.expect("let go");
    assert_eq!(gateway.answers(1).await[&1], "APPLIED LIKED v1, now LIKED v1");
    assert_eq!(refusal(gateway.answer().await), "Unavailable STOPPING");
    running.stop().await;
}
