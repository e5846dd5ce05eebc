//! What is refused at the door, and that it is refused for a while only.

use std::time::Duration;

use futures::StreamExt as _;
use likewise_devstack::{TestConfig, TestStack};
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::command::v1::{BatchSetLikeRequest, SetLikeRequest, SetLikeResponse};
use likewise_proto::convert::BEHAVIOUR_SIGNAL;
use likewise_proto::events::v1::{BehaviourKind, BehaviourSignal};
use likewise_proto::types::v1::LikeState::{Liked, Unliked};
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::authority::Authority;
use crate::commands::started;
use crate::rig::{Running, User, count, eventually, fresh_id, keys, refusal, request, settings, told, with_token};

fn from_device(device: &str) -> SetLikeRequest {
    SetLikeRequest { device_id: Some(device.to_owned()), ..request(&fresh_id(), "V1", Liked) }
}

fn hint(status: &Status) -> Duration {
    status.get_details_retry_info().and_then(|info| info.retry_delay).expect("when to try again")
}

#[tokio::test]
async fn an_account_above_its_limit_waits_and_its_retry_is_applied() {
    let limit = [("COMMAND__ACCOUNT_PER_S", "5"), ("COMMAND__ACCOUNT_BURST", "3")];
    let (running, sql, _config) = started(&limit).await;
    let lin = running.as_user("lin");
    for number in 0..3 {
        lin.set(&format!("op-{number}"), "V1", if number % 2 == 0 { Liked } else { Unliked }).await.expect("admitted");
    }
    let id = fresh_id();
    let refused = lin.set(&id, "V1", Unliked).await.expect_err("above the burst");
    assert_eq!(likewise_kit::errors::reason(&refused).as_deref(), Some("ACCOUNT_LIMIT"));
    assert!(hint(&refused) <= Duration::from_millis(200), "one command's time");
    assert_eq!(count(&sql, "like_command").await, 3, "nothing was recorded");
    assert_eq!(
        told(&running.as_user("mei").like("op-9", "V1").await),
        "APPLIED LIKED v1, now LIKED v1",
        "nobody else waits"
    );
    let answer = eventually("the same id is admitted later", async || lin.set(&id, "V1", Unliked).await).await;
    assert_eq!(told(&answer), "APPLIED UNLIKED v4, now UNLIKED v4");
    let items = (0..4).map(|number| request(&format!("batch-{number}"), "V2", Liked)).collect();
    let mut client = LikeCommandServiceClient::new(running.channel.clone());
    let batch = client.batch_set_like(with_token(BatchSetLikeRequest { items }, &lin.token)).await;
    assert_eq!(refusal(batch), "ResourceExhausted ACCOUNT_LIMIT", "a batch weighs as much as its items");
}

#[tokio::test]
async fn a_device_above_its_limit_is_told_so_and_the_account_goes_on_from_another() {
    let (running, _sql, _config) = started(&[("COMMAND__DEVICE_PER_S", "1"), ("COMMAND__DEVICE_BURST", "1")]).await;
    let lin = running.as_user("lin");
    lin.send(from_device("phone")).await.expect("admitted");
    assert_eq!(refusal(lin.send(from_device("phone")).await), "ResourceExhausted DEVICE_LIMIT");
    lin.send(from_device("tablet")).await.expect("another device");
    running.as_user("mei").send(from_device("phone")).await.expect("a device belongs to an account");
}

/// A user behind a proxy that names their address.
async fn from_address(user: &User, address: &str) -> Result<SetLikeResponse, Status> {
    let mut call = with_token(request(&fresh_id(), "V1", Liked), &user.token);
    call.metadata_mut().insert("x-forwarded-for", address.parse().expect("a header"));
    LikeCommandServiceClient::new(user.channel.clone()).set_like(call).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn scn_j01_an_office_behind_one_address_is_many_users_and_the_address_only_a_rate() {
    let limit = [("COMMAND__ADDRESS_PER_S", "1"), ("COMMAND__ADDRESS_BURST", "20"), ("SERVER__TRUSTED_PROXIES", "1")];
    let (running, sql, _config) = started(&limit).await;
    for number in 0..20 {
        from_address(&running.as_user(&format!("u{number}")), "9.9.9.9, 192.0.2.7").await.expect("admitted");
    }
    assert_eq!(count(&sql, "like_relation where state = 1").await, 20, "every one of them likes it");
    let one_more = running.as_user("u20");
    assert_eq!(refusal(from_address(&one_more, "192.0.2.7").await), "ResourceExhausted ADDRESS_LIMIT");
    from_address(&one_more, "192.0.2.7, 192.0.2.8").await.expect("only what our proxy saw counts");
    assert_eq!(
        from_address(&one_more, "2001:db8::1").await.map(|_| ()).map_err(|status| status.code()),
        Ok(()),
        "and another network"
    );
}

/// Two processes on one shard, and public videos V0..V9.
pub async fn two_processes(changes: &[(&str, &str)]) -> (Running, Running, TestConfig) {
    let authority = Authority::default();
    for number in 0..10 {
        authority.publish(&format!("V{number}"));
    }
    let endpoint = authority.serve().await;
    let config = TestStack::get().config().await;
    let mut all = vec![("ENDPOINTS__POLICY", endpoint.as_str()), ("COMMAND__SHARDS", "1")];
    all.extend_from_slice(changes);
    (Running::start(&config, &all).await, Running::start(&config, &all).await, config)
}

#[tokio::test]
async fn processes_tell_each_other_of_those_who_use_much_of_their_limit() {
    let limit = [
        ("COMMAND__ACCOUNT_PER_S", "1"),
        ("COMMAND__ACCOUNT_BURST", "60"),
        ("COMMAND__LIMITS_SHARE_PERCENT", "10"),
        ("COMMAND__LIMITS_EXCHANGE_MS", "50"),
    ];
    let (one, other, _config) = two_processes(&limit).await;
    let (here, there) = (one.as_user("lin"), other.as_user("lin"));
    let mut sent = 0;
    eventually("both together are bounded as one", async || {
        sent += 2;
        for user in [&here, &there] {
            match user.set(&fresh_id(), "V1", Liked).await {
                Err(status) if status.code() == Code::ResourceExhausted => return Ok(()),
                answer => assert!(answer.is_ok(), "{answer:?}"),
            }
        }
        Err(sent)
    })
    .await;
    assert!(sent < 110, "two processes that know nothing of each other would admit 120: {sent}");
    other.as_user("mei").set(&fresh_id(), "V1", Liked).await.expect("nobody else waits");
}

#[tokio::test]
async fn who_behaves_unlike_a_person_is_admitted_less() {
    let limit = [
        ("COMMAND__ACCOUNT_PER_S", "40"),
        ("COMMAND__ACCOUNT_BURST", "40"),
        ("COMMAND__BEHAVIOUR_DEVICES_MAX", "2"),
        ("COMMAND__BEHAVIOUR_TIGHTEN", "40"),
    ];
    let (running, _sql, _config) = started(&limit).await;
    let lin = running.as_user("lin");
    for device in ["a", "b", "c"] {
        lin.send(from_device(device)).await.expect("admitted");
    }
    eventually("the rate is tightened", async || match lin.send(from_device("a")).await {
        Err(status) if status.code() == Code::ResourceExhausted => Ok(()),
        answer => Err(answer.is_ok()),
    })
    .await;
    assert!(running.context.metrics.encode().contains("likewise_command_signals_total{signal=\"devices\"} 1"));
    running.as_user("mei").set(&fresh_id(), "V1", Liked).await.expect("nobody else waits");
    let expired = keys().mint_expired("lin");
    let mut client = LikeCommandServiceClient::new(running.channel.clone());
    let call = client.set_like(with_token(request(&fresh_id(), "V1", Liked), &expired)).await;
    assert_eq!(refusal(call), "Unauthenticated TOKEN_EXPIRED", "identity comes first");
}

#[tokio::test]
async fn risk_is_told_once_of_an_account_that_behaves_unlike_a_person() {
    let config = TestStack::get().config().await;
    let authority = Authority::default();
    authority.publish("V1");
    let endpoint = authority.serve().await;
    let bounds =
        [("ENDPOINTS__POLICY", endpoint.as_str()), ("COMMAND__SHARDS", "1"), ("COMMAND__BEHAVIOUR_SWITCHES_MAX", "2")];
    let running = Running::start(&config, &bounds).await;
    let (common, _) = settings(&config, &bounds);
    let subject = format!("{}.signals.behaviour", common.lanes.stream_prefix.to_ascii_lowercase());
    let nats = async_nats::connect(&TestStack::get().address().nats).await.expect("connected");
    let mut signals = nats.subscribe(subject).await.expect("subscribed");
    nats.flush().await.expect("heard from now on");
    let (mei, lin) = (running.as_user("mei"), running.as_user("lin"));
    for _ in 0..5 {
        mei.unlike(&fresh_id(), "V1").await;
    }
    for number in 0..6 {
        lin.set(&fresh_id(), "V1", if number % 2 == 0 { Liked } else { Unliked }).await.expect("admitted");
    }
    let mut told = Vec::new();
    for _ in 0..2 {
        let message = tokio::time::timeout(Duration::from_secs(30), signals.next()).await.expect("in time");
        let message = message.expect("a signal");
        let signal = BehaviourSignal::decode(message.payload.as_ref()).expect("a signal");
        let headers = message.headers.expect("headers");
        assert_eq!(headers.get("Likewise-Schema").map(|name| name.as_str()), Some(BEHAVIOUR_SIGNAL));
        assert_eq!(headers.get("Likewise-Event-Id").map(|id| id.as_str()), Some(signal.event_id.as_str()));
        assert_eq!((signal.kind(), signal.bound), (BehaviourKind::Switches, 2));
        assert_eq!(signal.window.map(|window| window.seconds), Some(60));
        told.push(signal.user_id);
    }
    assert_eq!(told, ["mei", "lin"], "each once");
    assert!(tokio::time::timeout(Duration::from_millis(300), signals.next()).await.is_err(), "and no more");
}
