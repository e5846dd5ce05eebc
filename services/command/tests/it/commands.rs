//! One command after the other, through the public RPCs.

use likewise_devstack::{TestConfig, TestStack};
use likewise_proto::types::v1::LikeState::{Liked, Unliked, Unspecified};
use tonic::Code;
use uuid::Uuid;

use crate::authority::Authority;
use crate::rig::{Running, User, count, fresh_id, keys, refusal, request, told, verdict};

/// A service with one shard and a public video V1, V2; and a connection to the shard.
pub async fn started(changes: &[(&str, &str)]) -> (Running, tokio_postgres::Client, TestConfig) {
    let authority = Authority::default();
    authority.publish("V1");
    authority.publish("V2");
    let endpoint = authority.serve().await;
    let config = TestStack::get().config().await;
    let mut all = vec![("ENDPOINTS__POLICY", endpoint.as_str()), ("COMMAND__SHARDS", "1")];
    all.extend_from_slice(changes);
    let running = Running::start(&config, &all).await;
    let sql = config.database.connect().await.expect("connected");
    sql.batch_execute("set search_path = relation_00").await.expect("set");
    (running, sql, config)
}

#[tokio::test]
async fn inv_02_case_02_case_03_case_04_verdicts_and_versions() {
    let (running, sql, _config) = started(&[]).await;
    let lin = running.as_user("lin");
    assert_eq!(told(&lin.unlike("op-0", "V1").await), "UNCHANGED UNLIKED v0, now UNLIKED v0");
    assert_eq!(count(&sql, "like_relation").await, 0, "an unlike of nothing leaves no row");
    let first = lin.like("op-1", "V1").await;
    assert_eq!(told(&first), "APPLIED LIKED v1, now LIKED v1");
    assert_eq!(lin.like("op-1", "V1").await, first, "a retry is told the same");
    assert_eq!(told(&lin.like("op-2", "V1").await), "UNCHANGED LIKED v1, now LIKED v1");
    assert_eq!(told(&lin.unlike("op-3", "V1").await), "APPLIED UNLIKED v2, now UNLIKED v2");
    assert_eq!(told(&lin.like("op-1", "V1").await), "APPLIED LIKED v1, now UNLIKED v2", "then and now");
    let kept = lin.operation("op-1").await.expect("a verdict");
    assert_eq!(verdict(kept.operation.as_ref().expect("a verdict")), "APPLIED LIKED v1");
    assert_eq!(refusal(lin.operation("op-9").await).split(' ').next(), Some("NotFound"));
    assert_eq!(count(&sql, "outbox").await, 2, "one event for each change, none for what changed nothing");
    assert_eq!(count(&sql, "like_command").await, 4);
}

#[tokio::test]
async fn case_01_inv_01_the_same_operation_at_once_is_one_change() {
    let (running, sql, _config) = started(&[]).await;
    let lin = running.as_user("lin");
    for round in 1..=10 {
        let (id, state) = (fresh_id(), if round % 2 == 1 { Liked } else { Unliked });
        let answers = futures::future::join_all((0..16).map(|_| lin.set(&id, "V1", state))).await;
        for answer in answers {
            let told = verdict(answer.expect("an answer").operation.as_ref().expect("a verdict"));
            assert!(told.starts_with("APPLIED") && told.ends_with(&format!("v{round}")), "{told}");
        }
    }
    assert_eq!(count(&sql, "outbox").await, 10);
    assert_eq!(count(&sql, "like_command").await, 10);
}

#[tokio::test]
async fn inv_17_inv_18_every_change_has_its_event_and_the_numbers_are_dense() {
    let (running, sql, _config) = started(&[]).await;
    let people: Vec<User> = (0..8).map(|number| running.as_user(&format!("u{number}"))).collect();
    futures::future::join_all(people.iter().map(|person| async move {
        for round in 0..20 {
            let state = if round % 3 == 2 { Unliked } else { Liked };
            person.set(&fresh_id(), "V1", state).await.expect("an answer");
        }
    }))
    .await;
    let of = "(select seq, row_number() over (order by seq) as place from outbox) as numbered where seq <> place";
    assert_eq!(count(&sql, of).await, 0, "no number is missing or twice");
    let of = "like_command c full join outbox o using (user_id, operation_id) where (c.outcome = 1) is distinct from (o.seq is not null)";
    assert_eq!(count(&sql, of).await, 0, "an event for each applied command, and for no other");
    let of = "like_relation r where relation_version <> (select count(*) from outbox o where o.user_id = r.user_id)
              or state_seq <> (select max(seq) from outbox o where o.user_id = r.user_id)";
    assert_eq!(count(&sql, of).await, 0, "a relation's version counts its events, and its last one is the newest");
    // In commit order: within one relation the times grow with the numbers.
    let of = "outbox a join outbox b on a.user_id = b.user_id and a.seq < b.seq where a.state_changed_at >= b.state_changed_at";
    assert_eq!(count(&sql, of).await, 0);
}

#[tokio::test]
async fn case_36_an_id_used_for_something_else_is_refused_and_writes_nothing() {
    let (running, sql, _config) = started(&[]).await;
    let lin = running.as_user("lin");
    lin.like("op-1", "V1").await;
    assert_eq!(refusal(lin.set("op-1", "V2", Liked).await), "AlreadyExists OPERATION_ID_REUSED");
    assert_eq!(refusal(lin.set("op-1", "V1", Unliked).await), "AlreadyExists OPERATION_ID_REUSED");
    assert_eq!(told(&running.as_user("mei").like("op-1", "V2").await), "APPLIED LIKED v1, now LIKED v1");
    assert_eq!((count(&sql, "like_relation").await, count(&sql, "like_command").await), (2, 2));
}

#[tokio::test]
async fn case_37_a_stale_base_is_refused_with_the_relation_as_it_is() {
    let (running, _sql, _config) = started(&[]).await;
    let lin = running.as_user("lin");
    lin.like("op-1", "V1").await;
    let mut stale = request("op-2", "V1", Unliked);
    stale.base_version = Some(0);
    assert_eq!(told(&lin.send(stale.clone()).await.expect("an answer")), "STALE_BASE LIKED v1, now LIKED v1");
    assert_eq!(told(&lin.send(stale).await.expect("an answer")), "STALE_BASE LIKED v1, now LIKED v1", "and stays so");
    let mut right = request("op-3", "V1", Unliked);
    right.base_version = Some(1);
    assert_eq!(told(&lin.send(right).await.expect("an answer")), "APPLIED UNLIKED v2, now UNLIKED v2");
}

#[tokio::test]
async fn case_37_the_last_commit_wins_where_it_is_configured() {
    let (running, _sql, _config) = started(&[("COMMAND__LAST_COMMIT_WINS", "true")]).await;
    let lin = running.as_user("lin");
    lin.like("op-1", "V1").await;
    let mut stale = request("op-2", "V1", Unliked);
    stale.base_version = Some(0);
    assert_eq!(told(&lin.send(stale).await.expect("an answer")), "APPLIED UNLIKED v2, now UNLIKED v2");
}

#[tokio::test]
async fn case_39_too_many_changes_are_told_with_the_relation_as_it_is() {
    let (running, _sql, _config) = started(&[("COMMAND__TRANSITIONS_MAX", "2")]).await;
    let lin = running.as_user("lin");
    lin.like("op-1", "V1").await;
    lin.unlike("op-2", "V1").await;
    assert_eq!(told(&lin.like("op-3", "V1").await), "RATE_LIMITED UNLIKED v2, now UNLIKED v2");
    assert_eq!(told(&lin.unlike("op-4", "V1").await), "UNCHANGED UNLIKED v2, now UNLIKED v2");
    assert_eq!(told(&lin.like("op-5", "V2").await), "APPLIED LIKED v1, now LIKED v1", "another relation is free");
}

#[tokio::test]
async fn inv_26_only_the_user_of_a_verified_token_acts() {
    let (running, sql, _config) = started(&[]).await;
    let with = |token: String| User { channel: running.channel.clone(), token };
    let tokens = [
        (keys().mint_expired("lin"), "Unauthenticated TOKEN_EXPIRED"),
        (keys().mint_forged("lin"), "Unauthenticated TOKEN_INVALID"),
        (keys().mint_unsigned("lin"), "Unauthenticated TOKEN_INVALID"),
        (keys().mint_for_audience("lin", "elsewhere"), "Unauthenticated TOKEN_INVALID"),
        (keys().mint_service("query"), "PermissionDenied ROLE_REQUIRED"),
        (keys().mint_operator("olga", &["operator", "approver"]), "PermissionDenied ROLE_REQUIRED"),
    ];
    for (token, expected) in tokens {
        assert_eq!(refusal(with(token).set("op-1", "V1", Liked).await), expected);
    }
    // What somebody else did is not told.
    running.as_user("lin").like("op-1", "V1").await;
    assert_eq!(refusal(running.as_user("mei").operation("op-1").await).split(' ').next(), Some("NotFound"));
    assert_eq!(count(&sql, "like_command").await, 1);
}

#[tokio::test]
async fn malformed_commands_name_every_field_and_change_nothing() {
    let (running, sql, _config) = started(&[]).await;
    let lin = running.as_user("lin");
    let status = lin.send(request("", "V 1", Unspecified)).await.expect_err("refused");
    let details = tonic_types::StatusExt::get_details_bad_request(&status).expect("fields");
    let fields: Vec<&str> = details.field_violations.iter().map(|one| one.field.as_str()).collect();
    assert_eq!((status.code(), fields.len()), (Code::InvalidArgument, 3), "{fields:?}");
    for field in ["video_id", "operation_id", "desired_state"] {
        assert!(fields.contains(&field), "{field} in {fields:?}");
    }
    // An id of 2023, and one of tomorrow's tomorrow.
    let old = "01890a5d-ac96-774b-bcce-b302099a8057";
    assert_eq!(refusal(lin.set(old, "V1", Liked).await), "FailedPrecondition OPERATION_EXPIRED");
    let ahead = std::time::SystemTime::now() + std::time::Duration::from_secs(2 * 86_400);
    let since = ahead.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let ahead = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, since.as_secs(), 0)).to_string();
    assert_eq!(refusal(lin.set(&ahead, "V1", Liked).await), "FailedPrecondition OPERATION_EXPIRED");
    assert_eq!((count(&sql, "like_relation").await, count(&sql, "like_command").await), (0, 0));
}
