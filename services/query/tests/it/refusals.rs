//! Who may call what, and what is said of a bad request.

use std::collections::HashMap;

use likewise_proto::query::v1::{BatchGetCountsRequest, BatchGetLikesRequest};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::rig::{Rig, ids, keys, refusal};

#[tokio::test]
async fn inv_26_hearts_and_lists_are_the_tokens_own_and_need_one() {
    let rig = Rig::new().await;
    let service = keys().mint_service("content");
    let operator = keys().mint_operator("olga", &["viewer"]);
    for (token, expected) in [
        (None, "Unauthenticated TOKEN_MISSING"),
        (Some(service), "PermissionDenied ROLE_REQUIRED"),
        (Some(operator), "PermissionDenied ROLE_REQUIRED"),
        (Some(keys().mint_forged("lin")), "Unauthenticated TOKEN_INVALID"),
        (Some(keys().mint_unsigned("lin")), "Unauthenticated TOKEN_INVALID"),
        (Some(keys().mint_expired("lin")), "Unauthenticated TOKEN_EXPIRED"),
    ] {
        let caller = rig.caller(token);
        assert_eq!(refusal(caller.likes("V1").await), expected);
        assert_eq!(refusal(caller.my_likes(1, "").await), expected);
        assert_eq!(refusal(caller.likers("V1", 1, "").await), expected);
    }
    assert_eq!(rig.stand.calls("facts") + rig.stand.calls("likes") + rig.stand.calls("likers"), 0);
}

#[tokio::test]
async fn numbers_need_a_token_unless_configured_and_entitled_callers_see_their_parts() {
    let rig = Rig::new().await;
    rig.stand.row("V1", 9, 1, 2);
    assert_eq!(refusal(rig.caller(None).try_counts("V1").await), "Unauthenticated TOKEN_MISSING");
    let operator = rig.caller(Some(keys().mint_operator("olga", &["viewer"])));
    assert_eq!(operator.counts("V1").await, "6 of 9-1-2 VISIBLE FRESH");
    assert_eq!(rig.user("lin").counts("V1").await, "6 VISIBLE FRESH");
    let open = Rig::with(&[("AUTH__ANONYMOUS_COUNTS", "true")]).await;
    open.stand.row("V1", 9, 1, 2);
    assert_eq!(open.caller(None).counts("V1").await, "6 VISIBLE FRESH");
    assert_eq!(refusal(open.caller(None).likes("V1").await), "Unauthenticated TOKEN_MISSING");
    let forged = open.caller(Some(keys().mint_forged("lin")));
    assert_eq!(refusal(forged.try_counts("V1").await), "Unauthenticated TOKEN_INVALID", "a bad token is not no token");
}

fn fields<T: std::fmt::Debug>(answer: Result<T, Status>) -> Vec<String> {
    let status = answer.expect_err("a refusal");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let details = status.get_details_bad_request().expect("details");
    details.field_violations.into_iter().map(|fault| fault.field).collect()
}

#[tokio::test]
async fn every_field_at_fault_is_named_and_nothing_is_asked() {
    let rig = Rig::new().await;
    let lin = rig.user("lin");
    let likes = |video_ids: Vec<String>| BatchGetLikesRequest { video_ids, ..BatchGetLikesRequest::default() };
    assert_eq!(fields(lin.ask_likes(likes(Vec::new())).await), ["video_ids"]);
    assert_eq!(fields(lin.ask_likes(likes(vec!["V1".to_owned(); 101])).await), ["video_ids"]);
    assert_eq!(fields(lin.ask_likes(likes(vec!["V1".to_owned(), "a b".to_owned()])).await), ["video_ids[1]"]);
    let bad = BatchGetLikesRequest {
        video_ids: ids("V1"),
        min_relation_versions: HashMap::from([("V2".to_owned(), 1)]),
        position: Some("17".to_owned()),
    };
    assert_eq!(fields(lin.ask_likes(bad).await), ["min_relation_versions", "position"]);
    let counts = BatchGetCountsRequest { video_ids: vec!["V1".to_owned(); 201], position: Some("x".to_owned()) };
    assert_eq!(fields(lin.ask_counts(counts).await), ["video_ids", "position"]);
    assert_eq!(fields(lin.my_likes(101, "").await), ["page_size"]);
    assert_eq!(fields(lin.likers("a b", 101, "").await), ["video_id", "page_size"]);
    assert!(rig.stand.tell().calls.is_empty());
}
