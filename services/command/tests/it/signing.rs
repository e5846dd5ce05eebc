//! Requests signed by the device of their token.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use likewise_kit::auth::{SIGNATURE_KEY, TIME_KEY};
use likewise_kit::errors;
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::command::v1::{BatchSetLikeRequest, SetLikeRequest, SetLikeResponse};
use likewise_proto::types::v1::LikeState::{Liked, Unliked};
use tonic::{Request, Status};
use tonic_types::StatusExt as _;

use crate::commands::started;
use crate::many::Gateway;
use crate::rig::{Running, User, count, fresh_id, keys, refusal, request, told, with_token};

const SET: &str = "/likewise.command.v1.LikeCommandService/SetLike";
const BATCH: &str = "/likewise.command.v1.LikeCommandService/BatchSetLike";

/// A phone that holds a key of its own, and the token that was given to it.
struct Phone {
    key: SigningKey,
    user: User,
}

/// Time and signature.
type Signed = (String, String);

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("in range")
}

impl Phone {
    fn of(running: &Running, user: &str) -> Self {
        let key = SigningKey::from_bytes(&rand::random());
        let token = keys().mint_bound(user, &key.verifying_key().to_bytes());
        Self { key, user: User { token, ..running.as_user(user) } }
    }

    /// Signs as docs/signing.md says it, written down here once more.
    fn sign(&self, user: &str, method: &str, time_ms: u64, lines: &[&str]) -> Signed {
        let text = format!("likewise request v1\n{method}\n{user}\n{time_ms}\n{}\n", lines.join("\n"));
        (time_ms.to_string(), URL_SAFE_NO_PAD.encode(self.key.sign(text.as_bytes()).to_bytes()))
    }

    async fn send(&self, message: SetLikeRequest, signed: &Signed) -> Result<SetLikeResponse, Status> {
        let mut client = LikeCommandServiceClient::new(self.user.channel.clone());
        client.set_like(carry(message, &self.user.token, signed)).await.map(tonic::Response::into_inner)
    }
}

fn carry<T>(message: T, token: &str, (time, signature): &Signed) -> Request<T> {
    let mut request = with_token(message, token);
    request.metadata_mut().insert(TIME_KEY, time.parse().expect("a header"));
    request.metadata_mut().insert(SIGNATURE_KEY, signature.parse().expect("a header"));
    request
}

#[tokio::test]
async fn inv_26_a_token_of_a_device_is_worth_nothing_without_it() {
    let (running, sql, _config) = started(&[("COMMAND__REQUEST_PROOF", "bound")]).await;
    let phone = Phone::of(&running, "lin");
    let like = request("op-1", "V1", Liked);
    assert_eq!(refusal(phone.user.send(like.clone()).await), "Unauthenticated SIGNATURE_INVALID");
    let thief = Phone { key: SigningKey::from_bytes(&rand::random()), user: phone.user.clone() };
    let forged = thief.sign("lin", SET, now_ms(), &["V1 1 op-1 - - -"]);
    assert_eq!(refusal(thief.send(like.clone(), &forged).await), "Unauthenticated SIGNATURE_INVALID");
    let signed = phone.sign("lin", SET, now_ms(), &["V1 1 op-1 - - -"]);
    for other in [
        request("op-1", "V2", Liked),
        request("op-1", "V1", Unliked),
        request("op-2", "V1", Liked),
        SetLikeRequest { base_version: Some(0), ..like.clone() },
        SetLikeRequest { device_id: Some("d".to_owned()), ..like.clone() },
        SetLikeRequest { client_sequence: Some(1), ..like.clone() },
    ] {
        assert_eq!(refusal(phone.send(other, &signed).await), "Unauthenticated SIGNATURE_INVALID");
    }
    let old = phone.sign("lin", SET, now_ms() - 301_000, &["V1 1 op-1 - - -"]);
    let stale = phone.send(like.clone(), &old).await.expect_err("stale");
    assert_eq!(errors::reason(&stale).as_deref(), Some("REQUEST_STALE"));
    assert!(stale.get_details_error_info().expect("details").metadata["now"].starts_with("20"), "tells our time");
    assert_eq!(count(&sql, "like_command").await, 0, "nothing was written");

    assert_eq!(told(&phone.send(like.clone(), &signed).await.expect("heard")), "APPLIED LIKED v1, now LIKED v1");
    assert_eq!(
        told(&phone.send(like, &signed).await.expect("heard")),
        "APPLIED LIKED v1, now LIKED v1",
        "heard again, it is the same operation"
    );
    let full = SetLikeRequest {
        base_version: Some(1),
        device_id: Some("phone".to_owned()),
        client_sequence: Some(7),
        ..request("op-3", "V1", Unliked)
    };
    let signed = phone.sign("lin", SET, now_ms(), &["V1 2 op-3 1 phone 7"]);
    assert_eq!(told(&phone.send(full, &signed).await.expect("heard")), "APPLIED UNLIKED v2, now UNLIKED v2");
    phone.user.operation("op-3").await.expect("a question needs no signature");
    running.as_user("mei").like("op-4", "V1").await;
    let malformed = phone.user.send(request("op 5", "V1", Liked)).await;
    assert_eq!(refusal(malformed), "InvalidArgument INVALID_ARGUMENT", "what is wrong is told first");
}

#[tokio::test]
async fn inv_26_batches_and_streams_carry_signatures_too() {
    let (running, _sql, _config) = started(&[("COMMAND__REQUEST_PROOF", "bound")]).await;
    let phone = Phone::of(&running, "lin");
    let mut client = LikeCommandServiceClient::new(running.channel.clone());
    let items = || vec![request("op-1", "V1", Liked), request("op-2", "V2", Liked)];
    let signed = phone.sign("lin", BATCH, now_ms(), &["V1 1 op-1 - - -", "V2 1 op-2 - - -"]);
    let mut send = async |items: Vec<SetLikeRequest>| {
        client.batch_set_like(carry(BatchSetLikeRequest { items }, &phone.user.token, &signed)).await
    };
    assert_eq!(refusal(send(items().into_iter().rev().collect()).await), "Unauthenticated SIGNATURE_INVALID");
    assert_eq!(refusal(send(items().into_iter().take(1).collect()).await), "Unauthenticated SIGNATURE_INVALID");
    assert_eq!(send(items()).await.expect("heard").into_inner().results.len(), 2);

    let mut gateway = Gateway::open(&running).await;
    let id = fresh_id();
    let unlike = request(&id, "V1", Unliked);
    gateway.send(&phone.user.token, unlike.clone());
    assert_eq!(gateway.answers(1).await[&1], "Unauthenticated SIGNATURE_INVALID");
    gateway.send_signed(&phone.user.token, unlike, &phone.sign("lin", SET, now_ms(), &[&format!("V1 2 {id} - - -")]));
    assert_eq!(gateway.answers(1).await[&2], "APPLIED UNLIKED v2, now UNLIKED v2");
}

#[tokio::test]
async fn inv_26_where_all_must_sign_a_token_without_a_device_is_refused() {
    let (running, sql, _config) = started(&[("COMMAND__REQUEST_PROOF", "required")]).await;
    let lin = running.as_user("lin");
    assert_eq!(refusal(lin.set("op-1", "V1", Liked).await), "Unauthenticated SIGNATURE_INVALID");
    assert_eq!(count(&sql, "like_command").await, 0);
    let phone = Phone::of(&running, "lin");
    let signed = phone.sign("lin", SET, now_ms(), &["V1 1 op-1 - - -"]);
    phone.send(request("op-1", "V1", Liked), &signed).await.expect("heard");
}
