//! Keys change while the server runs.

use likewise_kit::errors::reason;

use super::world::{Issuer, World, claims, until};

#[tokio::test]
async fn inv_26_a_new_key_counts_at_once_and_a_removed_one_soon_no_more() {
    let server = World::new().serve().await;
    let world = &server.world;
    let next = Issuer::new("people-2");
    let bearer = |issuer: &Issuer| format!("Bearer {}", issuer.sign(&claims("alice")));
    let (old, new) = (bearer(&world.people), bearer(&next));
    let told = async |token: &str| reason(&server.call(&[token]).await.expect_err("a user is refused here"));
    assert_eq!(told(&old).await.as_deref(), Some("ROLE_REQUIRED"));

    world.write_keys(&[world.people.jwk(), world.services.jwk(), next.jwk()]);
    let known = |told: &Option<String>| told.as_deref() == Some("ROLE_REQUIRED");
    until("the new key is known", || told(&new), known).await;
    assert_eq!(told(&old).await.as_deref(), Some("ROLE_REQUIRED"), "both keys count");

    // Verified and remembered before, but not trusted any longer.
    world.write_keys(&[world.services.jwk(), next.jwk()]);
    until("the old key is gone", || told(&old), |told| told.as_deref() == Some("TOKEN_INVALID")).await;
    assert_eq!(told(&new).await.as_deref(), Some("ROLE_REQUIRED"));

    // A file that cannot be read, or is half written, changes nothing.
    std::fs::write(world.file("jwks.json"), "{\"keys\":[").expect("written");
    assert_eq!(told(&bearer(&Issuer::new("people-3"))).await.as_deref(), Some("TOKEN_INVALID"));
    assert_eq!(told(&new).await.as_deref(), Some("ROLE_REQUIRED"));
    server.end().await.expect("ended");
}

#[tokio::test]
async fn our_own_tokens_pass_as_services_and_carry_the_name_of_each() {
    let server = World::new().serve().await;
    let named = server.context.with_service("query");
    for (tokens, name) in [(&server.context.tokens, "test"), (&named.tokens, "query")] {
        let header = tokens.header().expect("a token");
        let token = header.to_str().expect("text").strip_prefix("Bearer ").expect("a bearer token");
        let identity = server.context.verifier.verify(token).await.expect("accepted");
        assert_eq!(identity, likewise_kit::auth::Identity::Service { name: name.to_owned() });
    }
    let channel =
        likewise_kit::clients::outbound(&format!("http://{}", server.grpc), &named.tokens).expect("a channel");
    let mut client = likewise_proto::lanes::v1::lane_service_client::LaneServiceClient::new(channel);
    client.get_watermarks(likewise_proto::lanes::v1::GetWatermarksRequest {}).await.expect("let in");
    server.end().await.expect("ended");
}

#[tokio::test]
async fn a_service_key_that_nobody_can_verify_stops_the_start() {
    let world = World::new();
    let context = world.context().await;
    world.write_keys(&[world.people.jwk(), Issuer::new("services").jwk()]);
    let common = (*context.common).clone();
    let error = likewise_kit::run::Context::new(common, "test").await.err().expect("refused");
    assert!(error.to_string().contains("auth.service_key_file"), "{error}");
}
