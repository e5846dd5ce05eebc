//! Verifies bearer tokens and remembers the good ones.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use moka::future::Cache;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::keys::{self, Callers, Keys};
use super::proof::Confirmation;
use super::{Identity, KeyError, Role, UserClaims};
use crate::config::AuthSettings;
use crate::errors;

/// How often the key file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A token with an unknown `kid` makes us look at once, but not more often than this.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Longest token that is looked at; an RS256 token with roles has below 2 KiB.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// A good token is not remembered longer than this, whatever its expiry.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Longest subject of services and operators.
const NAME_BYTES_MAX: usize = 128;
/// Longest user id, as in the contracts.
const USER_BYTES_MAX: usize = 64;

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::One(one) => one == wanted,
            Self::More(all) => all.iter().any(|one| one == wanted),
        }
    }
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    aud: OneOrMore,
    exp: u64,
    #[serde(default)]
    roles: Vec<String>,
    cnf: Option<Confirmation>,
}

#[derive(Clone)]
struct Known {
    identity: Identity,
    expires_at: u64,
}

/// Why a token is refused; the caller is told no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Invalid,
    Expired,
    UnknownKey,
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Expired => errors::unauthenticated("TOKEN_EXPIRED", "the token has expired; get a new one"),
            Refusal::Invalid | Refusal::UnknownKey => {
                errors::unauthenticated("TOKEN_INVALID", "the token is not valid here")
            }
        }
    }
}

struct Inner {
    settings: AuthSettings,
    keys: ArcSwap<Keys>,
    known: Cache<[u8; 32], Known>,
    looked: Mutex<Looked>,
}

struct Looked {
    at: Instant,
    text: Vec<u8>,
}

/// Verifies tokens against the key file. Clones share keys and memory.
#[derive(Clone)]
pub struct Verifier {
    inner: Arc<Inner>,
}

impl Verifier {
    /// Reads the key file.
    ///
    /// # Errors
    /// [`KeyError`] when it cannot be read or holds no usable key.
    pub fn new(settings: &AuthSettings) -> Result<Self, KeyError> {
        let text = read(settings.keys_file.clone())?;
        let keys = keys::parse(&text)?;
        let known = Cache::builder().max_capacity(settings.cache_max).time_to_live(REMEMBERED).build();
        Ok(Self {
            inner: Arc::new(Inner {
                settings: settings.clone(),
                keys: ArcSwap::from_pointee(keys),
                known,
                looked: Mutex::new(Looked { at: Instant::now(), text }),
            }),
        })
    }

    /// Looks at the key file every few seconds until `stop`, so that a key taken out of it is refused soon.
    pub async fn watch(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            self.look(Duration::ZERO).await;
        }
    }

    /// Who sent a request with these headers.
    ///
    /// # Errors
    /// UNAUTHENTICATED TOKEN_INVALID or TOKEN_EXPIRED. Nothing at all is [`Identity::Anonymous`].
    pub async fn identify(&self, headers: &HeaderMap) -> Result<Identity, Status> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Ok(Identity::Anonymous) };
        let token = value.to_str().ok().filter(|_| values.next().is_none()).and_then(bearer);
        self.verify(token.ok_or(Refusal::Invalid)?).await
    }

    /// Who a token speaks for.
    ///
    /// # Errors
    /// UNAUTHENTICATED TOKEN_INVALID or TOKEN_EXPIRED.
    pub async fn verify(&self, token: &str) -> Result<Identity, Status> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::Invalid.into());
        }
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.inner.known.get(&digest).await {
            if seconds_now() < known.expires_at.saturating_add(self.inner.settings.leeway_s) {
                return Ok(known.identity);
            }
            return Err(Refusal::Expired.into());
        }
        let mut keys = self.inner.keys.load_full();
        let mut verdict = self.decide(token, &keys);
        if verdict.as_ref().is_err_and(|refusal| *refusal == Refusal::UnknownKey) {
            self.look(LOOK_PAUSE).await;
            keys = self.inner.keys.load_full();
            verdict = self.decide(token, &keys);
        }
        let known = verdict?;
        self.inner.known.insert(digest, known.clone()).await;
        // Keys that changed meanwhile emptied the memory before our entry came into it.
        if !Arc::ptr_eq(&keys, &self.inner.keys.load()) {
            self.inner.known.invalidate(&digest).await;
        }
        Ok(known.identity)
    }

    fn decide(&self, token: &str, keys: &Keys) -> Result<Known, Refusal> {
        let header = decode_header(token).map_err(|_| Refusal::Invalid)?;
        // Extensions that must be understood are not.
        if header.crit.is_some() {
            return Err(Refusal::Invalid);
        }
        let key = keys.get(&header.kid.ok_or(Refusal::Invalid)?).ok_or(Refusal::UnknownKey)?;
        let settings = &self.inner.settings;
        let mut validation = Validation::new(key.algorithm);
        validation.leeway = settings.leeway_s;
        validation.validate_nbf = true;
        validation.set_issuer(&[&settings.issuer]);
        validation.set_audience(&[&settings.audience, &settings.service_audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let claims = decode::<Claims>(token, &key.key, &validation).map_err(|error| match error.kind() {
            ErrorKind::ExpiredSignature => Refusal::Expired,
            _ => Refusal::Invalid,
        })?;
        let claims = claims.claims;
        let identity = identity(settings, &claims).filter(|identity| signs_for(key.callers, identity));
        let identity = identity.ok_or(Refusal::Invalid)?;
        Ok(Known { identity, expires_at: claims.exp })
    }

    /// Reads the file again unless that was done within `pause`; keys that cannot be read leave the old ones in force.
    async fn look(&self, pause: Duration) {
        let mut looked = self.inner.looked.lock().await;
        if looked.at.elapsed() < pause {
            return;
        }
        looked.at = Instant::now();
        let path = self.inner.settings.keys_file.clone();
        let text = match tokio::task::spawn_blocking(move || read(path)).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => return tracing::warn!(%error, "the token keys stay as they are"),
            Err(_) => return,
        };
        if text == looked.text {
            return;
        }
        match keys::parse(&text) {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "the token keys changed");
                self.inner.keys.store(Arc::new(keys));
                self.inner.known.invalidate_all();
            }
            Err(error) => tracing::warn!(%error, "the token keys changed, but the old ones stay in force"),
        }
        looked.text = text;
    }
}

fn read(path: PathBuf) -> Result<Vec<u8>, KeyError> {
    std::fs::read(&path).map_err(|source| KeyError::Read { path, source })
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// What the claims make of the caller. A token for both audiences, or a service's with roles, is nobody's.
fn identity(settings: &AuthSettings, claims: &Claims) -> Option<Identity> {
    let sub = &claims.sub;
    let ours = (claims.aud.contains(&settings.audience), claims.aud.contains(&settings.service_audience));
    match ours {
        (true, false) if claims.roles.is_empty() => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
            let device_key = claims.cnf.as_ref().map(Confirmation::key);
            let valid = (1..=USER_BYTES_MAX).contains(&sub.len()) && sub.bytes().all(allowed);
            valid.then(|| Identity::User(UserClaims { sub: sub.clone(), device_key }))
        }
        (true, false) => {
            let roles: Vec<Role> = claims.roles.iter().filter_map(|role| Role::parse(role)).collect();
            (!roles.is_empty() && is_name(sub)).then(|| Identity::Operator { name: sub.clone(), roles })
        }
        (false, true) if claims.roles.is_empty() && is_name(sub) => Some(Identity::Service { name: sub.clone() }),
        _ => None,
    }
}

/// Whether a key may sign for such a caller.
fn signs_for(callers: Callers, identity: &Identity) -> bool {
    match identity {
        Identity::Anonymous => false,
        Identity::User(_) => callers.users,
        Identity::Operator { .. } => callers.operators,
        Identity::Service { .. } => callers.services,
    }
}

fn is_name(sub: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&sub.len()) && sub.bytes().all(|byte| byte.is_ascii_graphic())
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
