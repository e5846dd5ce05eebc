//! Who may call, told over the network.

use std::path::Path;
use std::process::Command;

use likewise_kit::config::LogSettings;
use likewise_kit::errors::reason;
use likewise_kit::run::init_log;
use serde_json::{Value, json};
use tonic::Code;

use super::world::{Issuer, Running, World, claims, seconds, unsigned, with};

/// Made with keys that nobody has any more; good until 2100.
const RSA_KEY: &str = r#"{"kty":"RSA","kid":"rsa","n":"lWPfYD_j0PXu_gU-PBb-edvBl-kpMv878Wxbxf-GEMkSvckL16MPyMXgeoFqjZnQC-Y5biWn2fDVSuzBfY1X_x15AArsYQrtXJr9mc6MB6Kjj7enrhx4fEyZvMNWc8l0Lf84SoKk9ot9muhgbT7uJ0mtPQaCwoZ5UTp5yIjl3IsYotn1Q4TjhDLXeVUAWMmC0RWmmHe2lvj2lhqOWN-OFUv7-5__lk8L3C0QqJJ2sJwjF38oA6SGuta-D82nvPE2glpomlKEM4YKv1z9C9-BNFXmh1VL5WRHEt6iVF69U1MfUp6gkbI4e7p8EkYcCMRsvAdtutaXsksulbxDhtIi0w","e":"AQAB"}"#;
const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InJzYSJ9.eyJzdWIiOiJhbGljZSIsImlzcyI6Imxpa2V3aXNlIiwiYXVkIjoibGlrZXdpc2UiLCJleHAiOjQxMDI0NDQ4MDB9.fqrs0_HRG18F2oECx9U6NKweGZkEFLlBaW_rItY-Qmem42ZVsBazBTJRRXEPULdUICq_-cVlBixLRuOxxU5TjujdQHXkHP2JBzRA1umJjF65aMUaFONKzxUs-puEl4k46QTayykcRgV0LyxRRMa5cOWrAaiLOla-T3f0RWGcNKgvJC_4veLgObKqBwejh9lGnMppRULAXqtC0BoM52PI0p4IohHI05Soix1bg-T__PK1MTd3sPoN4PIl57nE66JxbN_PSL476TzzjE4AWb08EqBwb-RY2zr5gn2ykqxuxh-gmR615_KtWDlTfNPN_2WWmwya5_ElFj7iRqKv7BoRHQ";
/// The same with RS512, which the key does not state.
const RS512_TOKEN: &str = "eyJhbGciOiJSUzUxMiIsInR5cCI6IkpXVCIsImtpZCI6InJzYSJ9.eyJzdWIiOiJhbGljZSIsImlzcyI6Imxpa2V3aXNlIiwiYXVkIjoibGlrZXdpc2UiLCJleHAiOjQxMDI0NDQ4MDB9.HICBTdT4yvEt7zOYzD-vWM16SRDjHRXPbqaJ6ecQba0s5ppO4ompncwqNM_Ub1mq2RWQv5UP-Kc-DX-oqzRhiG0uIpxo_XSaMLEHHkRG-lz8FXKQP3YlBLCOnjsxqzVaZRIeZK0d32B9TY_HLjU8rlm5XprrONPXQJgjP4pj7gb0WJvxpr7BnZPHvkuCaoEp5dTay0hGNpaXVlv6TRoulX8lt-FZoxnwkABvxZOXeTwswkwaWwTLYJYseIHvFgwZhoOY0dM7XL3eqlLOlHG43TSHHqEuaz6OELHTiPa6GQQiRMEIElS9-URBpXi0A9JfY6AeW9g6qkjjTY7m3qbcgQ";
const EC_KEY: &str = r#"{"kty":"EC","kid":"ec","crv":"P-256","x":"bj-6WU_BSZ2ZDB0giv6GKOc1JX1oRW16Ua1z4bZ_Q34","y":"Lo3nDvil-1baIkxXMlZaYHfnbI77NRWbIZs4xRhx5Jc"}"#;
const EC_TOKEN: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImVjIn0.eyJzdWIiOiJhbGljZSIsImlzcyI6Imxpa2V3aXNlIiwiYXVkIjoibGlrZXdpc2UiLCJleHAiOjQxMDI0NDQ4MDB9.os8SZWHAQL4B-s0cSuAAkgqSX_iuoZpYC-C6_75wG09Q0fFRcCWvwB1aFqrux9VTjaI8R9n-zKeT1UHtFcR3Cw";

/// `OK`, or the reason that the caller is told. Every refusal of a token must look alike otherwise.
async fn told(server: &Running, authorization: &[&str]) -> String {
    match server.call(authorization).await {
        Ok(_) => "OK".to_owned(),
        Err(status) => {
            let reason = reason(&status).unwrap_or_else(|| panic!("no reason: {status:?}"));
            let code = if reason == "ROLE_REQUIRED" { Code::PermissionDenied } else { Code::Unauthenticated };
            assert_eq!(status.code(), code, "{status:?}");
            reason
        }
    }
}

async fn told_for(server: &Running, token: &str) -> String {
    told(server, &[&format!("Bearer {token}")]).await
}

#[tokio::test]
async fn inv_26_only_a_good_token_of_the_right_kind_is_let_in() {
    let server = World::new().serve().await;
    let (people, services) = (&server.world.people, &server.world.services);
    let internal = with(claims("counter"), &json!({ "aud": "likewise-internal" }));
    let operator = |roles: Value| people.sign(&with(claims("vera"), &json!({ "roles": roles })));

    assert_eq!(told(&server, &[]).await, "TOKEN_MISSING");
    assert_eq!(told_for(&server, &services.sign(&internal)).await, "OK");
    assert_eq!(told_for(&server, &operator(json!(["viewer"]))).await, "OK");
    assert_eq!(told_for(&server, &operator(json!(["approver", "something else"]))).await, "OK");
    // The token of a user is good, but a user is no service and no operator.
    assert_eq!(told_for(&server, &people.sign(&claims("alice"))).await, "ROLE_REQUIRED");
    assert_eq!(told_for(&server, &people.sign(&with(claims("alice"), &json!({ "roles": [] })))).await, "ROLE_REQUIRED");
    assert_eq!(
        told_for(&server, &people.sign(&with(claims("alice"), &json!({ "exp": seconds(-60) })))).await,
        "TOKEN_EXPIRED"
    );
    server.end().await.expect("ended");
}

#[tokio::test]
async fn inv_26_claims_that_are_not_for_us_are_refused() {
    let server = World::new().serve().await;
    let people = &server.world.people;
    for changes in [
        json!({ "aud": "somebody-else" }),
        json!({ "aud": null }),
        json!({ "aud": ["likewise", "likewise-internal"] }),
        json!({ "iss": "mallory" }),
        json!({ "iss": null }),
        json!({ "exp": null }),
        json!({ "exp": "never" }),
        json!({ "nbf": seconds(60) }),
        json!({ "sub": null }),
        json!({ "sub": "" }),
        json!({ "sub": "two words" }),
        json!({ "sub": "a".repeat(65) }),
        json!({ "roles": ["root"] }),
        json!({ "roles": "viewer" }),
        json!({ "aud": "likewise-internal", "roles": ["viewer"] }),
    ] {
        let token = people.sign(&with(claims("alice"), &changes));
        assert_eq!(told_for(&server, &token).await, "TOKEN_INVALID", "{changes}");
    }
    server.end().await.expect("ended");
}

#[tokio::test]
async fn inv_26_the_key_decides_the_algorithm_never_the_header() {
    let server = World::new().serve().await;
    let (people, good) = (&server.world.people, claims("alice"));
    let public = people.key.verifying_key().to_bytes();
    let hmac = |header: Value| {
        let key = jsonwebtoken::EncodingKey::from_secret(&public).expect("a key");
        let header: jsonwebtoken::Header = serde_json::from_value(header).expect("a header");
        jsonwebtoken::encode(&header, &good, &key).expect("signed")
    };
    let stranger = Issuer::new("people");
    let (head, rest) = EC_TOKEN.split_once('.').expect("a token");
    let as_people = unsigned(&json!({ "alg": "ES256", "kid": "people" }), &json!({}));
    let as_people = as_people.split_once('.').expect("a header").0;
    assert_ne!(head, as_people);

    let bad = [
        ("alg none", format!("{}.", unsigned(&json!({ "alg": "none", "kid": "people" }), &good))),
        ("alg none, as it may be written", format!("{}.", unsigned(&json!({ "alg": "nOnE", "kid": "people" }), &good))),
        ("no signature", format!("{}.", unsigned(&json!({ "alg": "EdDSA", "kid": "people" }), &good))),
        ("our public key as a shared secret", hmac(json!({ "alg": "HS256", "kid": "people" }))),
        ("another algorithm named", people.sign_as(&json!({ "alg": "RS256", "kid": "people" }), &good)),
        ("another algorithm used", format!("{as_people}.{rest}")),
        ("the key of a stranger", stranger.sign(&good)),
        ("no kid", people.sign_as(&json!({ "alg": "EdDSA" }), &good)),
        ("an unknown kid", people.sign_as(&json!({ "alg": "EdDSA", "kid": "other" }), &good)),
        (
            "a key brought along",
            stranger.sign_as(&json!({ "alg": "EdDSA", "kid": "people", "jwk": stranger.jwk() }), &good),
        ),
        (
            "an extension we must know",
            people.sign_as(&json!({ "alg": "EdDSA", "kid": "people", "crit": ["x"] }), &good),
        ),
        ("a token in pieces", "a.b.c".to_owned()),
        ("nothing", String::new()),
        ("very much", "a".repeat(9000)),
    ];
    for (what, token) in bad {
        assert_eq!(told_for(&server, &token).await, "TOKEN_INVALID", "{what}");
    }
    let good = people.sign(&good);
    assert_eq!(told(&server, &[&format!("Basic {good}")]).await, "TOKEN_INVALID");
    assert_eq!(told(&server, &[&good]).await, "TOKEN_INVALID");
    let twice = format!("Bearer {good}");
    assert_eq!(told(&server, &[&twice, &twice]).await, "TOKEN_INVALID");
    // The same token, one letter of its claims changed after it was seen to be good.
    assert_eq!(told_for(&server, &good).await, "ROLE_REQUIRED");
    let forged = good.replacen('.', ".e", 1);
    assert_eq!(told_for(&server, &forged).await, "TOKEN_INVALID");
    server.end().await.expect("ended");
}

#[tokio::test]
async fn inv_26_rsa_and_p256_keys_verify_their_own_algorithm_only() {
    let world = World::new();
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("a key");
    world.write_keys(&[world.services.jwk(), parse(RSA_KEY), parse(EC_KEY)]);
    let server = world.serve().await;
    for token in [RSA_TOKEN, EC_TOKEN] {
        assert_eq!(told_for(&server, token).await, "ROLE_REQUIRED", "a user's good token");
        let (signed, signature) = token.rsplit_once('.').expect("a token");
        let flipped = if signature.starts_with('A') { "B" } else { "A" };
        assert_eq!(told_for(&server, &format!("{signed}.{flipped}{}", &signature[1..])).await, "TOKEN_INVALID");
    }
    assert_eq!(told_for(&server, RS512_TOKEN).await, "TOKEN_INVALID", "the key states RS256");
    server.end().await.expect("ended");
}

#[tokio::test]
async fn inv_26_a_key_signs_for_its_own_callers_only() {
    let world = World::new();
    let for_callers = |issuer: &Issuer, callers: &[&str]| {
        let mut key = issuer.jwk();
        key["callers"] = json!(callers);
        key
    };
    world.write_keys(&[for_callers(&world.people, &["users"]), for_callers(&world.services, &["services"])]);
    let server = world.serve().await;
    let user = claims("alice");
    let mut operator = claims("olga");
    operator["roles"] = json!(["operator"]);
    assert_eq!(told_for(&server, &server.world.people.sign(&user)).await, "ROLE_REQUIRED", "a user's good token");
    assert_eq!(told_for(&server, &server.world.people.sign(&operator)).await, "TOKEN_INVALID");
    assert_eq!(told_for(&server, &server.world.services.sign(&user)).await, "TOKEN_INVALID");
    let mut service = claims("query");
    service["aud"] = json!("likewise-internal");
    assert_eq!(told_for(&server, &server.world.people.sign(&service)).await, "TOKEN_INVALID");
    server.end().await.expect("ended");
}

/// Set for the child that this test starts, with the file into which it writes the tokens it used.
const CHILD: &str = "LIKEWISE_KIT_TEST_TOKENS";

/// A log belongs to a process, so the calls are made in one of their own.
#[tokio::test]
async fn inv_27_no_token_reaches_a_log_a_metric_or_an_error() {
    if let Ok(file) = std::env::var(CHILD) {
        return use_tokens(Path::new(&file)).await;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let name = "server::identity::inv_27_no_token_reaches_a_log_a_metric_or_an_error";
    let child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, &file)
        .output()
        .expect("the child ran");
    let log = format!("{}{}", String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{log}");
    assert!(log.contains("\"serving\"") && log.contains("TRACE"), "everything is logged: {log}");
    assert!(!log.contains("h2::"), "libraries do not show what travels: {log}");
    let tokens = std::fs::read_to_string(file).expect("the child wrote them");
    assert_eq!(tokens.lines().count(), 4);
    for part in tokens.lines().flat_map(|token| token.split('.')) {
        assert!(!log.contains(part), "a log line holds a part of a token");
    }
}

async fn use_tokens(file: &Path) {
    init_log(&LogSettings { filter: "trace".to_owned(), format: "json".to_owned() });
    tracing::trace!("on");
    let server = World::new().serve().await;
    let (people, stranger) = (&server.world.people, Issuer::new("nobody"));
    let own = server.context.tokens.header().expect("a token");
    let own = own.to_str().expect("text").trim_start_matches("Bearer ").to_owned();
    let tokens = [people.sign(&claims("alice")), stranger.sign(&claims("alice")), server.service_token(), own];
    let mut told = format!("{:?}{:?}", server.context.common, server.context.tokens.header());
    for token in &tokens {
        told += &format!("{:?}", server.call(&[&format!("Bearer {token}")]).await);
    }
    told += &server.get("/metrics").await.1;
    server.end().await.expect("ended");
    for part in tokens.iter().flat_map(|token| token.split('.')) {
        assert!(!told.contains(part), "an answer holds a part of a token");
    }
    std::fs::write(file, tokens.join("\n")).expect("written");
}
