//! Development keys: made anew for each stack, never shipped.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::{Value, json};

/// Who issues the tokens.
pub(crate) const ISSUER: &str = "likewise";
/// Audience of end users and operators.
const AUDIENCE: &str = "likewise";
/// Audience of services.
const SERVICE_AUDIENCE: &str = "likewise-internal";
/// `kid` of the key for end users and operators.
const PEOPLE: &str = "dev-people";
/// `kid` of the key for services.
const SERVICES: &str = "dev-services";
/// Seconds that a token lives: a working day.
const LIFE_S: u64 = 12 * 3600;

/// The keys of a stack: files that services read, and tokens signed with them.
#[derive(Debug)]
pub struct DevKeys {
    folder: PathBuf,
    people: SigningKey,
    services: SigningKey,
}

impl DevKeys {
    /// Makes all keys of a new stack in `folder`.
    pub(crate) fn generate(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let fresh = || SigningKey::from_bytes(&rand::random::<[u8; 32]>());
        let keys = Self { folder: folder.to_path_buf(), people: fresh(), services: fresh() };
        let public = [jwk(PEOPLE, &keys.people, &["users", "operators"]), jwk(SERVICES, &keys.services, &["services"])];
        write_secret(&keys.jwks(), serde_json::to_string_pretty(&json!({ "keys": public }))?.as_bytes())?;
        write_secret(&keys.people_file(), keys.people.to_pkcs8_pem(LineEnding::LF)?.as_bytes())?;
        write_secret(&keys.service_key(), keys.services.to_pkcs8_pem(LineEnding::LF)?.as_bytes())?;
        let cursor = |id: &str| format!("{id}:{}\n", STANDARD.encode(rand::random::<[u8; 32]>()));
        write_secret(&keys.cursor_keys(), format!("{}{}", cursor("dev-2"), cursor("dev-1")).as_bytes())?;
        Ok(keys)
    }

    /// Reads the keys of a stack that another process started.
    ///
    /// # Errors
    /// When a file is missing or no key.
    pub fn open(folder: &Path) -> Result<Self> {
        let read = |path: PathBuf| -> Result<SigningKey> {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            SigningKey::from_pkcs8_pem(&text).with_context(|| format!("{} holds no Ed25519 key", path.display()))
        };
        let people = read(folder.join("people.pem"))?;
        Ok(Self { folder: folder.to_path_buf(), people, services: read(folder.join("service.pem"))? })
    }

    /// File with the public keys, as `[auth] keys_file` wants it.
    pub fn jwks(&self) -> PathBuf {
        self.folder.join("jwks.json")
    }

    /// File with the private key of services, as `[auth] service_key_file` wants it.
    pub fn service_key(&self) -> PathBuf {
        self.folder.join("service.pem")
    }

    /// `kid` of that key.
    pub fn service_key_id(&self) -> &'static str {
        SERVICES
    }

    /// File with the keys that seal page tokens, as `[auth] cursor_keys_file` wants it.
    pub fn cursor_keys(&self) -> PathBuf {
        self.folder.join("cursor-keys.txt")
    }

    fn people_file(&self) -> PathBuf {
        self.folder.join("people.pem")
    }

    /// A token of an end user.
    pub fn mint_user(&self, user: &str) -> String {
        self.mint_for_audience(user, AUDIENCE)
    }

    /// A token of an operator with roles `viewer`, `operator`, `approver`.
    pub fn mint_operator(&self, name: &str, roles: &[&str]) -> String {
        let mut claims = claims(name, AUDIENCE, now_s());
        claims["roles"] = json!(roles);
        sign(&self.people, PEOPLE, &claims)
    }

    /// A token of a service.
    pub fn mint_service(&self, name: &str) -> String {
        sign(&self.services, SERVICES, &claims(name, SERVICE_AUDIENCE, now_s()))
    }

    /// A token of an end user that only the device with this Ed25519 public key may use.
    pub fn mint_bound(&self, user: &str, device: &[u8; 32]) -> String {
        let mut claims = claims(user, AUDIENCE, now_s());
        claims["cnf"] = json!({ "jwk": { "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(device) } });
        sign(&self.people, PEOPLE, &claims)
    }

    /// A user's token that ended an hour ago.
    pub fn mint_expired(&self, user: &str) -> String {
        sign(&self.people, PEOPLE, &claims(user, AUDIENCE, now_s().saturating_sub(LIFE_S + 3600)))
    }

    /// A token with the right names, signed by a key that nobody knows.
    pub fn mint_forged(&self, user: &str) -> String {
        let stranger = SigningKey::from_bytes(&rand::random::<[u8; 32]>());
        sign(&stranger, PEOPLE, &claims(user, AUDIENCE, now_s()))
    }

    /// A well signed token for an audience of the caller's choice.
    pub fn mint_for_audience(&self, user: &str, audience: &str) -> String {
        sign(&self.people, PEOPLE, &claims(user, audience, now_s()))
    }

    /// A well signed token with any claims at all.
    pub fn mint_claims(&self, claims: &Value) -> String {
        sign(&self.people, PEOPLE, claims)
    }

    /// A token that claims to need no signature (`alg: none`).
    pub fn mint_unsigned(&self, user: &str) -> String {
        let header = json!({ "alg": "none", "typ": "JWT", "kid": PEOPLE });
        format!("{}.{}.", part(&header), part(&claims(user, AUDIENCE, now_s())))
    }
}

fn claims(subject: &str, audience: &str, issued_s: u64) -> Value {
    json!({ "sub": subject, "iss": ISSUER, "aud": audience, "iat": issued_s, "exp": issued_s + LIFE_S })
}

fn sign(key: &SigningKey, kid: &str, claims: &Value) -> String {
    let header = json!({ "alg": "EdDSA", "typ": "JWT", "kid": kid });
    let signed = format!("{}.{}", part(&header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).to_bytes());
    format!("{signed}.{signature}")
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn jwk(kid: &str, key: &SigningKey, callers: &[&str]) -> Value {
    let x = URL_SAFE_NO_PAD.encode(key.verifying_key().to_bytes());
    json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": kid, "x": x, "callers": callers })
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn write_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(bytes).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::Verifier;

    fn verifies(key: &SigningKey, token: &str) -> bool {
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature: [u8; 64] = URL_SAFE_NO_PAD.decode(signature).unwrap().try_into().unwrap();
        key.verifying_key().verify(signed.as_bytes(), &signature.into()).is_ok()
    }

    #[test]
    fn tokens_verify_with_the_keys_on_disk_and_forged_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let keys = DevKeys::generate(folder.path()).unwrap();
        let again = DevKeys::open(folder.path()).unwrap();
        assert!(verifies(&again.people, &keys.mint_user("lin")));
        assert!(verifies(&again.services, &keys.mint_service("query")));
        assert!(!verifies(&again.people, &keys.mint_forged("lin")));
        let jwks: Value = serde_json::from_str(&fs::read_to_string(keys.jwks()).unwrap()).unwrap();
        assert_eq!(jwks["keys"][1]["kid"], keys.service_key_id());
        assert!(!jwks.to_string().contains("\"d\""), "the public file holds no private part");
    }
}
