//! Who may call, told over the network.

use std::io;
use std::sync::{Arc, Mutex};

use likewise_kit::config::LogSettings;
use likewise_kit::errors::reason;
use likewise_kit::run::filtered_log;
use serde_json::{Value, json};
use tonic::Code;
use tracing_subscriber::layer::SubscriberExt as _;

use super::world::{Issuer, Running, World, claims, seconds, unsigned, with};

/// Made with keys that nobody has any more; good until 2100.
const RSA_KEY: &str = r#"{"kty":"RSA","kid":"rsa","n":"y9RCqZ29VzKvbh0sYVUCk7zTBnY5fRf_6R9hAog-_3bAQKJYWt-mWttiOHNSyC2viYvcOMy_Vfkb-yPZ2HTdsaZFQCT2E6OLJpXS3N3lHV3hRQbDe5OLMZyjCyQ93tI03i52s7lzqQxFwkGNy0E0aBlhy5RTcY9SSNIENCDlNpvfb_j_ykEusaY_pjPGmoHIDVw-LkDF-atX-n0oZSOtjiaiKvGclWSyyAFwytWvFs0ZEwW2N2Iq77v959Q7fZtmqaPxiVNfXU-hdrWntLCHlwjbpFBivVDaen5Yg6DpaiRL9sZuf3_3AXxJBQYYDFppvufexIuEEYbAu0Zqm_kw9Q","e":"AQAB"}"#;
const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InJzYSJ9.eyJzdWIiOiJhbGljZSIsImlzcyI6Imxpa2V3aXNlIiwiYXVkIjoibGlrZXdpc2UiLCJleHAiOjQxMDI0NDQ4MDB9.qR8Hfzgd_bsDjtD51y97F_9d17kqnc_71Z5VRAuCNMOA72UcYWMzVSworTO31Wh68wxPATPBZTPLLpSbio9wVT_NBKFfezE1bYwGB75RNB_-Y91p5gW877bA6MqfZE7L8NBgKNHnoc4oC8bPq5AeZvAI32Qq7vhAExJxje6x95cWQZvLSsBVHx2YEXbyQlaslnztm8yH2Odk0F_aZf2okUIIx_luG2JojJ_IwTQwy6uzWbAhn31_Nu14hKJCnqRlVLgXwCpYCZXz_5aS1WZZs7B998_i1HQmfVJ6rL8w37LulKbbVEnospfBNmkgAZpykgsJyfp3D9tMIZcKnQDacg";
const EC_KEY: &str = r#"{"kty":"EC","kid":"ec","crv":"P-256","x":"9r9R6COaRjUriVsA-CHVECoyVQ6G4icI6jpVG4d2pU8","y":"igx91OIagyKq-rqHJFbQgI2IDmdSE20LR39lEi_0f4w"}"#;
const EC_TOKEN: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImVjIn0.eyJzdWIiOiJhbGljZSIsImlzcyI6Imxpa2V3aXNlIiwiYXVkIjoibGlrZXdpc2UiLCJleHAiOjQxMDI0NDQ4MDB9.GTAv_PAFeS7x2-TX4Yy-2p-RhNwuVUErHHimX-qsnzYDJ-bBm3OrVqsXpXW9w48FP2Xk4A7aV_yWkfmgHDfIeA";

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
    server.end().await.expect("ended");
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn inv_27_no_token_reaches_a_log_a_metric_or_an_error() {
    let written = Written::default();
    let writer = written.clone();
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    let settings = LogSettings { filter: "trace".to_owned(), format: "text".to_owned() };
    let subscriber = tracing_subscriber::registry().with(filtered_log(&settings, layer));
    let _guard = tracing::subscriber::set_default(subscriber);

    let server = World::new().serve().await;
    let (people, stranger) = (&server.world.people, Issuer::new("nobody"));
    let tokens = [people.sign(&claims("alice")), stranger.sign(&claims("alice")), server.service_token()];
    let mut told = String::new();
    for token in &tokens {
        told.push_str(&format!("{:?}", server.call(&[&format!("Bearer {token}")]).await));
    }
    let own = server.context.tokens.header().expect("a token");
    told.push_str(&format!("{own:?}{:?}", server.context.common));
    told.push_str(&server.get("/metrics").await.1);
    server.end().await.expect("ended");

    let log = String::from_utf8_lossy(&written.0.lock().expect("not poisoned")).into_owned();
    assert!(log.contains("serving"), "the log was caught: {log}");
    let own = own.to_str().expect("text").trim_start_matches("Bearer ").to_owned();
    for token in tokens.iter().chain([&own]) {
        for part in token.split('.') {
            assert!(!log.contains(part), "a log line holds a part of a token");
            assert!(!told.contains(part), "an answer holds a part of a token");
        }
    }
}
