//! Public keys by `kid`, from a JWKS file. Each key states the one algorithm it verifies.

use std::collections::HashMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

/// Shortest RSA modulus that is accepted, in bytes (2048 bits).
const RSA_BYTES_MIN: usize = 256;

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("read the token keys from {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text is no JWKS.
    #[error("the token keys are no JSON Web Key Set")]
    Json(#[source] serde_json::Error),
    /// A `kid` stands twice.
    #[error("the token keys name {0:?} twice")]
    Twice(String),
    /// No key can verify anything.
    #[error("the token keys hold no usable key: Ed25519, P-256 or RSA of at least 2048 bits, each with a kid")]
    Empty,
}

/// A key and the algorithm it stands for, whatever a token's header says.
pub(super) struct Key {
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
    pub(super) callers: Callers,
}

/// For whom a key may sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Callers {
    pub(super) users: bool,
    pub(super) operators: bool,
    pub(super) services: bool,
}

impl Callers {
    const ALL: Self = Self { users: true, operators: true, services: true };

    /// Reads the member `callers`; a key without it signs for everybody.
    fn parse(names: Option<&[String]>) -> Result<Self, &'static str> {
        let Some(names) = names else { return Ok(Self::ALL) };
        let mut callers = Self { users: false, operators: false, services: false };
        for name in names {
            match name.as_str() {
                "users" => callers.users = true,
                "operators" => callers.operators = true,
                "services" => callers.services = true,
                _ => return Err("its callers are not among users, operators and services"),
            }
        }
        Ok(callers)
    }
}

pub(super) type Keys = HashMap<String, Key>;

#[derive(Deserialize)]
struct Set {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kid: String,
    kty: String,
    alg: Option<String>,
    crv: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    /// Ours: for whom the key may sign.
    callers: Option<Vec<String>>,
}

/// Reads a set. Keys of kinds we do not accept are passed over with a warning: an issuer may publish others for others.
pub(super) fn parse(text: &[u8]) -> Result<Keys, Error> {
    let set: Set = serde_json::from_slice(text).map_err(Error::Json)?;
    let mut keys = Keys::new();
    for (index, value) in set.keys.into_iter().enumerate() {
        let read: Result<Jwk, _> = serde_json::from_value(value);
        let Ok(jwk) = read else {
            tracing::warn!(index, "a token key without kid or kty is passed over");
            continue;
        };
        match usable(&jwk) {
            Ok(key) => {
                if keys.insert(jwk.kid.clone(), key).is_some() {
                    return Err(Error::Twice(jwk.kid));
                }
            }
            Err(problem) => tracing::warn!(kid = jwk.kid, problem, "a token key is passed over"),
        }
    }
    if keys.is_empty() { Err(Error::Empty) } else { Ok(keys) }
}

fn usable(jwk: &Jwk) -> Result<Key, &'static str> {
    if jwk.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
        return Err("its use is not sig");
    }
    let part = |part: &Option<String>| part.clone().ok_or("a part of the key is missing");
    let (algorithm, names, key) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => {
            (Algorithm::EdDSA, ["EdDSA", "Ed25519"], DecodingKey::from_ed_components(&part(&jwk.x)?))
        }
        ("EC", Some("P-256")) => {
            (Algorithm::ES256, ["ES256"; 2], DecodingKey::from_ec_components(&part(&jwk.x)?, &part(&jwk.y)?))
        }
        ("RSA", None) => {
            let modulus = part(&jwk.n)?;
            let bytes = URL_SAFE_NO_PAD.decode(&modulus).map_err(|_| "its modulus is not base64url")?;
            if bytes.iter().skip_while(|byte| **byte == 0).count() < RSA_BYTES_MIN {
                return Err("RSA keys need at least 2048 bits");
            }
            (Algorithm::RS256, ["RS256"; 2], DecodingKey::from_rsa_components(&modulus, &part(&jwk.e)?))
        }
        _ => return Err("only Ed25519, P-256 and RSA keys are accepted"),
    };
    if jwk.alg.as_deref().is_some_and(|stated| !names.contains(&stated)) {
        return Err("its alg is not one of EdDSA, ES256, RS256, or not that of its kind");
    }
    let callers = Callers::parse(jwk.callers.as_deref())?;
    Ok(Key { algorithm, key: key.map_err(|_| "its parts are not base64url")?, callers })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED: &str = r#""kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo""#;
    const EC: &str = r#""kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0""#;

    fn algorithms(keys: &str) -> Result<Vec<(String, Algorithm)>, Error> {
        let keys = parse(format!(r#"{{"keys":[{keys}]}}"#).as_bytes())?;
        let mut found: Vec<_> = keys.into_iter().map(|(kid, key)| (kid, key.algorithm)).collect();
        found.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(found)
    }

    #[test]
    fn each_kind_of_key_stands_for_one_algorithm() {
        let modulus = URL_SAFE_NO_PAD.encode([0x8f; 256]);
        let set = format!(
            r#"{{"kid":"a",{ED}}}, {{"kid":"b",{EC},"alg":"ES256"}}, {{"kid":"c","kty":"RSA","n":"{modulus}","e":"AQAB"}}"#
        );
        let expected = [("a", Algorithm::EdDSA), ("b", Algorithm::ES256), ("c", Algorithm::RS256)];
        assert_eq!(algorithms(&set).expect("keys"), expected.map(|(kid, algorithm)| (kid.to_owned(), algorithm)));
    }

    #[test]
    fn inv_26_unfit_keys_are_never_used() {
        let short = URL_SAFE_NO_PAD.encode([0x8f; 128]);
        for unfit in [
            r#"{"kid":"a","kty":"oct","k":"c2VjcmV0"}"#.to_owned(),
            format!(r#"{{"kid":"a",{ED},"alg":"HS256"}}"#),
            format!(r#"{{"kid":"a",{ED},"alg":"none"}}"#),
            format!(r#"{{"kid":"a",{EC},"alg":"RS256"}}"#),
            format!(r#"{{"kid":"a",{ED},"use":"enc"}}"#),
            format!(r#"{{{ED}}}"#),
            format!(r#"{{"kid":"a","kty":"RSA","n":"{short}","e":"AQAB"}}"#),
            String::new(),
        ] {
            assert!(matches!(algorithms(&unfit), Err(Error::Empty)), "{unfit}");
            if !unfit.is_empty() {
                let set = format!(r#"{{"kid":"good",{ED}}}, {unfit}"#);
                assert_eq!(algorithms(&set).expect("the good one").len(), 1, "{unfit}");
            }
        }
        assert!(matches!(algorithms(&format!(r#"{{"kid":"a",{ED}}},{{"kid":"a",{EC}}}"#)), Err(Error::Twice(_))));
        assert!(matches!(parse(b"{"), Err(Error::Json(_))));
    }
}
