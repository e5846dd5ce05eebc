//! What every service of a process shares.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use futures::FutureExt as _;
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::{KeyError, MintError, ServiceTokens, Verifier};
use crate::clients::outbound;
use crate::config::{AuthSettings, Common, NatsSettings};
use crate::cursor::{self, CursorKeys};
use crate::lanes::{Publishers, Runtime};
use crate::metrics::Metrics;
use crate::{pg, redis};

/// A NATS connection that says nothing for this long is asked whether it lives.
const NATS_PING_INTERVAL: Duration = Duration::from_secs(10);

/// Why a process cannot be set up. Stores that are away are no reason.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Keys that verify tokens.
    #[error("set up token verification")]
    Keys(#[from] KeyError),
    /// The key that signs our own tokens.
    #[error("set up service tokens")]
    Tokens(#[from] MintError),
    /// Our own tokens would be refused.
    #[error("auth.service_key_file and auth.service_key_id do not belong to a key in auth.keys_file")]
    TokensRefused,
    /// Keys that seal page tokens.
    #[error("set up page tokens")]
    Cursors(#[from] cursor::Error),
    /// The address of NATS.
    #[error("nats.url cannot be understood; write nats://HOST:PORT, several with commas between them")]
    NatsAddress,
    /// NATS could not be set up.
    #[error("set up the connection to NATS")]
    Nats(#[from] async_nats::ConnectError),
    /// Redis could not be set up.
    #[error(transparent)]
    Redis(#[from] redis::Error),
}

/// Stores, identity and the end of a process. Clones share everything but the service name.
#[derive(Clone)]
pub struct Context {
    /// The common sections of the configuration.
    pub common: Arc<Common>,
    /// PostgreSQL servers by name.
    pub servers: pg::Servers,
    /// Tokens with which this service calls others.
    pub tokens: ServiceTokens,
    /// Verifies tokens that do not come in the header of a call.
    pub verifier: Verifier,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// Keys of page tokens.
    pub cursors: Arc<CursorKeys>,
    /// NATS; connects in the background.
    pub nats: async_nats::Client,
    /// Redis; connects in the background.
    pub redis: fred::clients::Pool,
    /// Cancelled when the process is asked to end: streams should end, calls in flight go on. Cancel it to ask.
    pub draining: CancellationToken,
    /// Cancelled when no call is in flight any more: background tasks end.
    pub stop: CancellationToken,
    /// Background tasks that the process waits for.
    pub tasks: TaskTracker,
    pub(super) failed: Arc<OnceLock<&'static str>>,
}

/// Everything that can be checked without a store: keys and connection strings.
///
/// # Errors
/// The first [`Error`].
pub async fn check(common: &Common, name: &'static str) -> Result<(), Error> {
    identity(&common.auth, name).await?;
    CursorKeys::load(&common.auth.cursor_keys_file)?;
    addresses(&common.nats)?;
    Ok(())
}

impl Context {
    /// Sets up what the service `name` needs. Connections are made in the background; none has to succeed now.
    ///
    /// # Errors
    /// [`Error`] when keys or addresses are unusable.
    pub async fn new(common: Common, name: &'static str) -> Result<Self, Error> {
        let (verifier, tokens) = identity(&common.auth, name).await?;
        let context = Self {
            servers: pg::Servers::new(&common.postgres, name),
            tokens,
            verifier: verifier.clone(),
            metrics: Metrics::new(),
            cursors: Arc::new(CursorKeys::load(&common.auth.cursor_keys_file)?),
            nats: connect_nats(&common.nats, name).await?,
            redis: redis::connect(&common.redis).await?,
            common: Arc::new(common),
            draining: CancellationToken::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            failed: Arc::default(),
        };
        context.spawn("token keys", verifier.watch(context.stop.clone()));
        Ok(context)
    }

    /// The same process and stores, speaking to others as service `name`.
    #[must_use]
    pub fn with_service(&self, name: &'static str) -> Self {
        Self { tokens: self.tokens.named(name), servers: self.servers.named(name), ..self.clone() }
    }

    /// Runs background work that ends when [`stop`](Self::stop) is cancelled. Should it panic, the process ends in
    /// order and says so: work that silently stopped would be worse.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let (draining, failed) = (self.draining.clone(), Arc::clone(&self.failed));
        self.tasks.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!(task = name, "a background task panicked; the process ends");
                let _ = failed.set(name);
                draining.cancel();
            }
        });
    }
}

impl From<&Context> for Runtime {
    fn from(context: &Context) -> Self {
        Self {
            nats: context.nats.clone(),
            settings: context.common.lanes.clone(),
            stop: context.stop.clone(),
            tasks: context.tasks.clone(),
            metrics: context.metrics.clone(),
            upstream: Some(Arc::new(publishers(context))),
        }
    }
}

/// Publishers of the lanes that services of this process consume. Endpoints were checked when they were read.
fn publishers(context: &Context) -> Publishers {
    let named = context.common.endpoints.publishers().into_iter();
    Publishers::new(named.filter_map(|(class, endpoint)| Some((class, outbound(endpoint, &context.tokens).ok()?))))
}

async fn identity(settings: &AuthSettings, name: &'static str) -> Result<(Verifier, ServiceTokens), Error> {
    let verifier = Verifier::new(settings)?;
    let tokens = ServiceTokens::new(settings, name)?;
    let own = tokens.header()?;
    let token = own.to_str().ok().and_then(|header| header.strip_prefix("Bearer ")).unwrap_or_default();
    verifier.verify(token).await.map_err(|_| Error::TokensRefused)?;
    Ok((verifier, tokens))
}

fn addresses(settings: &NatsSettings) -> Result<Vec<ServerAddr>, Error> {
    let parsed: Result<Vec<ServerAddr>, _> =
        settings.url.expose_secret().split(',').map(|address| address.trim().parse()).collect();
    parsed.map_err(|_| Error::NatsAddress)
}

/// A connection to NATS that is made in the background, and again whenever it breaks.
///
/// # Errors
/// [`Error`] when the address cannot be understood.
pub async fn connect_nats(settings: &NatsSettings, name: &str) -> Result<async_nats::Client, Error> {
    let options = ConnectOptions::new()
        .name(format!("likewise {name}"))
        .retry_on_initial_connect()
        .ping_interval(NATS_PING_INTERVAL)
        .event_callback(|event| async move { tracing::info!(%event, "NATS") });
    Ok(options.connect(addresses(settings)?).await?)
}
