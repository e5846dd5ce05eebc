//! Signed requests: that a request comes from the device its token was given to, and was made lately.
//!
//! A token may name the Ed25519 key of its device, in the claim `cnf.jwk` (RFC 7800). The device signs the text of
//! [`signed_text`], which is made of fields, not of encoded bytes, so that every language signs the same. A stolen token is
//! then worth nothing without the device. A proof decides whether a request is heard, never in which order.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::{Code, Status};

use super::UserClaims;
use crate::errors;

/// Metadata key with the time of the request, in milliseconds since 1970.
pub const TIME_KEY: &str = "likewise-request-time";
/// Metadata key with the signature, base64url without padding.
pub const SIGNATURE_KEY: &str = "likewise-signature";

/// First line of what is signed.
const HEAD: &str = "likewise request v1";

/// Which requests need a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofRule {
    /// None: signatures are not looked at.
    #[default]
    Off,
    /// Those whose token names the key of a device.
    Bound,
    /// All: a token that names no key is refused.
    Required,
}

/// The key of a device, as a token names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKey {
    /// An Ed25519 public key.
    Ed25519([u8; 32]),
    /// A key of a kind that is not understood: nothing proves it.
    Unknown,
}

/// The claim `cnf`.
#[derive(Deserialize)]
pub(super) struct Confirmation {
    jwk: Option<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    x: Option<String>,
}

impl Confirmation {
    pub(super) fn key(&self) -> DeviceKey {
        let known = || {
            let jwk = self.jwk.as_ref().filter(|jwk| jwk.kty == "OKP" && jwk.crv.as_deref() == Some("Ed25519"))?;
            URL_SAFE_NO_PAD.decode(jwk.x.as_deref()?).ok()?.try_into().ok()
        };
        known().map_or(DeviceKey::Unknown, DeviceKey::Ed25519)
    }
}

/// What a request proves itself with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Proof<'a> {
    /// As in [`TIME_KEY`].
    pub time: Option<&'a str>,
    /// As in [`SIGNATURE_KEY`].
    pub signature: Option<&'a str>,
}

impl<'a> Proof<'a> {
    /// As the metadata of a call carry it. A key that stands twice counts as none.
    pub fn of<T>(request: &'a tonic::Request<T>) -> Self {
        let one = |key| {
            let mut values = request.metadata().get_all(key).iter();
            let value = values.next()?;
            if values.next().is_some() { None } else { value.to_str().ok() }
        };
        Self { time: one(TIME_KEY), signature: one(SIGNATURE_KEY) }
    }
}

/// What a device signs: lines that end with a line feed. `lines` tell the request's fields; what stands in them must not hold
/// spaces or line feeds.
#[must_use]
pub fn signed_text(method: &str, user: &str, time: &str, lines: &[String]) -> String {
    let mut text = format!("{HEAD}\n{method}\n{user}\n{time}\n");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// What is asked of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProofPolicy {
    /// Which requests need a signature.
    pub rule: ProofRule,
    /// How far the time of a request may be from ours, either way.
    pub age_max: Duration,
}

impl ProofPolicy {
    /// Whether the request needs a proof that is looked at.
    #[must_use]
    pub fn asks(self, claims: &UserClaims) -> bool {
        match self.rule {
            ProofRule::Off => false,
            ProofRule::Bound => claims.device_key.is_some(),
            ProofRule::Required => true,
        }
    }

    /// Checks the proof of a request that needs one.
    ///
    /// # Errors
    /// UNAUTHENTICATED SIGNATURE_INVALID without a signature by the device of the token; UNAUTHENTICATED REQUEST_STALE, with
    /// our time as `now`, when it was signed too long ago or for the future.
    pub fn check(
        self,
        claims: &UserClaims,
        method: &str,
        lines: &[String],
        proof: Proof<'_>,
        now: SystemTime,
    ) -> Result<(), Status> {
        let signed = || {
            let Some(DeviceKey::Ed25519(key)) = claims.device_key else { return None };
            let at: u64 = proof.time?.parse().ok()?;
            let text = signed_text(method, &claims.sub, proof.time?, lines);
            let key = DecodingKey::from_ed_components(&URL_SAFE_NO_PAD.encode(key)).ok()?;
            let is_good = crypto::verify(proof.signature?, text.as_bytes(), &key, Algorithm::EdDSA).ok()?;
            is_good.then(|| SystemTime::UNIX_EPOCH + Duration::from_millis(at.min(i64::MAX as u64)))
        };
        let at = signed().ok_or_else(invalid)?;
        let apart = now.duration_since(at).unwrap_or_else(|ahead| ahead.duration());
        if apart <= self.age_max { Ok(()) } else { Err(stale(now)) }
    }
}

fn invalid() -> Status {
    errors::unauthenticated("SIGNATURE_INVALID", "the request is not signed by the device of its token")
}

fn stale(now: SystemTime) -> Status {
    let now = OffsetDateTime::from(now).format(&Rfc3339).unwrap_or_default();
    let message = "the request was signed too long ago, or for the future; sign it again";
    errors::refused_with(Code::Unauthenticated, "REQUEST_STALE", message, &[("now", now)])
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};
    use proptest::prelude::*;

    use super::*;

    const METHOD: &str = "/p.S/M";
    const RULE: ProofPolicy = ProofPolicy { rule: ProofRule::Bound, age_max: Duration::from_secs(60) };

    fn device() -> SigningKey {
        SigningKey::from_bytes(&[7; 32])
    }

    fn claims(key: Option<DeviceKey>) -> UserClaims {
        UserClaims { sub: "lin".to_owned(), device_key: key }
    }

    fn bound() -> UserClaims {
        claims(Some(DeviceKey::Ed25519(device().verifying_key().to_bytes())))
    }

    fn signature(user: &str, time: &str, lines: &[String]) -> String {
        URL_SAFE_NO_PAD.encode(device().sign(signed_text(METHOD, user, time, lines).as_bytes()).to_bytes())
    }

    fn told(claims: &UserClaims, lines: &[String], time: &str, signature: &str, now_ms: u64) -> String {
        let proof = Proof { time: Some(time), signature: Some(signature) };
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms);
        let checked = RULE.check(claims, METHOD, lines, proof, now);
        checked.map_or_else(|status| errors::reason(&status).unwrap_or_default(), |()| "good".to_owned())
    }

    #[test]
    fn inv_26_a_request_is_heard_from_the_device_of_its_token_and_lately_signed() {
        let lines = ["V1 1 op-1 - - -".to_owned()];
        let good = signature("lin", "1000000", &lines);
        assert_eq!(told(&bound(), &lines, "1000000", &good, 1_060_000), "good");
        assert_eq!(told(&bound(), &lines, "1000000", &good, 1_060_001), "REQUEST_STALE");
        assert_eq!(told(&bound(), &lines, "1000000", &good, 939_999), "REQUEST_STALE");
        assert_eq!(told(&bound(), &lines, "1000001", &good, 1_000_000), "SIGNATURE_INVALID");
        assert_eq!(told(&bound(), &["V2 1 op-1 - - -".to_owned()], "1000000", &good, 1_000_000), "SIGNATURE_INVALID");
        assert_eq!(told(&bound(), &[], "1000000", &good, 1_000_000), "SIGNATURE_INVALID");
        let other = signature("mei", "1000000", &lines);
        assert_eq!(told(&bound(), &lines, "1000000", &other, 1_000_000), "SIGNATURE_INVALID");
        let stranger = claims(Some(DeviceKey::Ed25519(SigningKey::from_bytes(&[8; 32]).verifying_key().to_bytes())));
        for claims in [stranger, claims(Some(DeviceKey::Unknown)), claims(None)] {
            assert_eq!(told(&claims, &lines, "1000000", &good, 1_000_000), "SIGNATURE_INVALID");
        }
        for time in ["", "-1", "1e6", "99999999999999999999999"] {
            assert_eq!(told(&bound(), &lines, time, &signature("lin", time, &lines), 1_000_000), "SIGNATURE_INVALID");
        }
        let far = u64::MAX.to_string();
        assert_eq!(told(&bound(), &lines, &far, &signature("lin", &far, &lines), 1_000_000), "REQUEST_STALE");
    }

    #[test]
    fn the_rule_says_who_must_sign() {
        let asks = |rule| {
            let policy = ProofPolicy { rule, ..RULE };
            [bound(), claims(Some(DeviceKey::Unknown)), claims(None)].map(|claims| policy.asks(&claims))
        };
        assert_eq!(asks(ProofRule::Off), [false, false, false]);
        assert_eq!(asks(ProofRule::Bound), [true, true, false]);
        assert_eq!(asks(ProofRule::Required), [true, true, true]);
    }

    #[test]
    fn a_token_names_a_key_or_one_that_is_not_understood() {
        let key = |text: &str| serde_json::from_str::<Confirmation>(text).expect("a claim").key();
        let x = URL_SAFE_NO_PAD.encode([7; 32]);
        assert_eq!(
            key(&format!(r#"{{"jwk":{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}}}"#)),
            DeviceKey::Ed25519([7; 32])
        );
        for other in
            [r#"{"jkt":"abc"}"#, r#"{"jwk":{"kty":"EC","crv":"P-256","x":"a","y":"b"}}"#, r#"{"jwk":{"kty":"OKP"}}"#]
        {
            assert_eq!(key(other), DeviceKey::Unknown, "{other}");
        }
    }

    proptest! {
        #[test]
        fn inv_26_different_requests_are_different_texts(
            one in prop::collection::vec("[a-z0-9_.:-]{1,8}( [a-z0-9-]{1,4}){0,3}", 0..4),
            other in prop::collection::vec("[a-z0-9_.:-]{1,8}( [a-z0-9-]{1,4}){0,3}", 0..4),
        ) {
            let same = signed_text("m", "u", "1", &one) == signed_text("m", "u", "1", &other);
            prop_assert_eq!(same, one == other);
        }
    }
}
