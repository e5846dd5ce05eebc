//! Tokens with which this process calls other services.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde::Serialize;
use tonic::metadata::{Ascii, MetadataValue};

use crate::config::AuthSettings;

/// How long a token of ours is good.
const LIFETIME: Duration = Duration::from_secs(300);
/// A token is replaced when it has this long to live.
const RENEW_BEFORE: Duration = Duration::from_secs(120);

/// Why no token can be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("read the service key from {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no Ed25519 key in PKCS#8 PEM.
    #[error("the service key is no Ed25519 key in PKCS#8 PEM")]
    Key,
    /// Signing failed.
    #[error("sign a service token")]
    Sign,
}

#[derive(Serialize)]
struct Claims<'a> {
    sub: &'a str,
    iss: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

struct Cached {
    header: MetadataValue<Ascii>,
    renew_at: SystemTime,
}

/// Mints and remembers short-lived tokens for one service name. Clones share them.
#[derive(Clone)]
pub struct ServiceTokens {
    name: &'static str,
    key: Arc<EncodingKey>,
    key_id: Arc<str>,
    issuer: Arc<str>,
    audience: Arc<str>,
    cached: Arc<ArcSwapOption<Cached>>,
}

impl ServiceTokens {
    /// Reads the key of the settings. Tokens name the service `name`.
    ///
    /// # Errors
    /// [`Error`] when there is no usable key.
    pub fn new(settings: &AuthSettings, name: &'static str) -> Result<Self, Error> {
        let path = &settings.service_key_file;
        let pem = std::fs::read(path).map_err(|source| Error::Read { path: path.clone(), source })?;
        let key = EncodingKey::from_ed_pem(&pem).map_err(|_| Error::Key)?;
        let tokens = Self {
            name,
            key: Arc::new(key),
            key_id: settings.service_key_id.as_str().into(),
            issuer: settings.issuer.as_str().into(),
            audience: settings.service_audience.as_str().into(),
            cached: Arc::default(),
        };
        // A key that cannot sign shows at the start, not at the first call.
        tokens.header()?;
        Ok(tokens)
    }

    /// The same key, another service name.
    #[must_use]
    pub fn named(&self, name: &'static str) -> Self {
        Self { name, cached: Arc::default(), ..self.clone() }
    }

    /// Name of the service the tokens speak for.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Value for the metadata key `authorization`, good for minutes. Marked sensitive, so that it is not printed.
    ///
    /// # Errors
    /// [`Error::Sign`].
    pub fn header(&self) -> Result<MetadataValue<Ascii>, Error> {
        let now = SystemTime::now();
        if let Some(cached) = &*self.cached.load()
            && now < cached.renew_at
        {
            return Ok(cached.header.clone());
        }
        let token = self.mint(now)?;
        let mut header: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| Error::Sign)?;
        header.set_sensitive(true);
        let renew_at = now + LIFETIME - RENEW_BEFORE;
        self.cached.store(Some(Arc::new(Cached { header: header.clone(), renew_at })));
        Ok(header)
    }

    fn mint(&self, now: SystemTime) -> Result<String, Error> {
        let iat = now.duration_since(UNIX_EPOCH).map_err(|_| Error::Sign)?.as_secs();
        let claims =
            Claims { sub: self.name, iss: &self.issuer, aud: &self.audience, iat, exp: iat + LIFETIME.as_secs() };
        let header = Header { kid: Some(self.key_id.to_string()), ..Header::new(Algorithm::EdDSA) };
        encode(&header, &claims, &self.key).map_err(|_| Error::Sign)
    }
}
