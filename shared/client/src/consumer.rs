//! A projection of one's own, fed with every change of every relation. Needs the feature `consumer`.
//!
//! Write a [`Fold`], start it; leases, checkpoints, progress, holes in a stream, lost tails and quarantine are looked after.
//! Several processes of one name share the lanes. `examples/tastes.rs` is a whole program.
//!
//! Promises: a lane is folded in order, and what a fold writes through its transaction is written once, whatever is killed.
//! The publisher keeps what was not folded until the consumer has said nothing for a week.
//!
//! Never: adds up changes. A relation may be told again, with a higher version and the same state: compare with what is held.

mod feed;
mod token;

use std::sync::Arc;
use std::time::Duration;

pub use deadpool_postgres::Transaction;
use likewise_domain::lane::Offset;
pub use likewise_domain::relation::{Hidden, LikeState};
use likewise_kit::clients::{self, Outbound};
use likewise_kit::config::{NatsSettings, PostgresSettings, Validate};
pub use likewise_kit::lanes::LaneSettings;
use likewise_kit::lanes::{Consumer as Follower, ConsumerHandle, Lane, Publishers, Runtime, WatermarkSource};
use likewise_kit::metrics::Metrics;
use likewise_kit::{pg, run};
pub use likewise_proto::lanes::v1::ConsumerWatermark;
use likewise_proto::lanes::v1::GetWatermarksRequest;
use likewise_proto::lanes::v1::lane_service_client::LaneServiceClient;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Status};
use uuid::Uuid;

use self::feed::Feed;
pub use self::token::Token;

const TABLES: &str = include_str!("../migrations/V0001__consumer.sql");
const TABLES_LOCK: &str = include_str!("consumer/tables_lock.sql");
/// Class of the lanes of relations.
const CLASS: &str = "rel";
const PREFIX: &str = "rel-";
/// The only server of a consumer, as the pool names it.
const SERVER: &str = "own";
/// Connections: one folds for each of a few lanes, others renew leases and move checkpoints.
const CONNECTIONS: usize = 8;
/// Longest wait for the publisher to tell its lanes.
const ASK: Duration = Duration::from_secs(10);

/// What a fold may fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One change, with the whole relation as it is after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Who.
    pub user_id: String,
    /// Which video.
    pub video_id: String,
    /// Whether the user likes it.
    pub state: LikeState,
    /// Version of the state: a higher one wins.
    pub version: u64,
    /// Whether the like counts, with versions of its own.
    pub hidden: Hidden,
    /// When the relation entered the state.
    pub since: time::OffsetDateTime,
    /// Shard that committed it, whose lane it came through.
    pub shard: u16,
    /// Place in the lane.
    pub offset: Offset,
    /// Id of the change.
    pub event_id: Uuid,
}

/// What a service makes of changes.
pub trait Fold: Send + Sync + 'static {
    /// Statements that make its tables; run at each start, so said again they must change nothing.
    const TABLES: &'static str;

    /// Applies changes of one lane, at most 2,000, in their order. Everything has to go through `transaction`, which is
    /// committed together with how far the lane was folded: then it happens once. One statement for all changes is faster
    /// than one for each by far.
    ///
    /// # Errors
    /// Nothing is kept, and the same changes come again after a pause; the other lanes go on.
    fn fold(
        &self,
        transaction: &Transaction<'_>,
        changes: &[Change],
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}

/// Where everything is.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the consumer, for good: its progress is kept under it. At most 64 of `A-Z a-z 0-9 _ . : -`.
    pub name: String,
    /// Connection string of the consumer's own database.
    pub postgres: SecretString,
    /// Schema of its tables; has to exist.
    pub schema: String,
    /// Address of NATS, several with commas between them.
    pub nats: SecretString,
    /// The command service, `http://HOST:PORT`.
    pub publisher: String,
    /// A service token for it.
    pub token: Token,
    /// How lanes are consumed. `stream_prefix` has to be that of the installation.
    pub lanes: LaneSettings,
}

impl Settings {
    /// Reads `CONSUMER_NAME`, `CONSUMER_POSTGRES`, `CONSUMER_NATS`, `CONSUMER_PUBLISHER`, and `CONSUMER_TOKEN_FILE` or
    /// `CONSUMER_TOKEN`; where they differ from `public` and `LW`, also `CONSUMER_SCHEMA` and `CONSUMER_STREAM_PREFIX`.
    ///
    /// # Errors
    /// [`Error::Variable`] names the first that is missing.
    pub fn from_env() -> Result<Self, Error> {
        let read = |name: &'static str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let required = |name: &'static str| read(name).ok_or(Error::Variable(name));
        let token = match read("CONSUMER_TOKEN_FILE") {
            Some(file) => Token::File(file.into()),
            None => Token::Text(required("CONSUMER_TOKEN")?.into()),
        };
        let lanes = LaneSettings::default();
        Ok(Self {
            name: required("CONSUMER_NAME")?,
            postgres: required("CONSUMER_POSTGRES")?.into(),
            schema: read("CONSUMER_SCHEMA").unwrap_or_else(|| "public".to_owned()),
            nats: required("CONSUMER_NATS")?.into(),
            publisher: required("CONSUMER_PUBLISHER")?,
            token,
            lanes: LaneSettings {
                stream_prefix: read("CONSUMER_STREAM_PREFIX").unwrap_or(lanes.stream_prefix),
                ..lanes
            },
        })
    }
}

/// Why a consumer does not start. Once it has started nothing ends it: see [`Consumer::progress`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is missing.
    #[error("the environment variable {0} is missing")]
    Variable(&'static str),
    /// A setting is wrong.
    #[error("{0}")]
    Setting(String),
    /// The token cannot be read.
    #[error("read the token from {path:?}")]
    Token {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The token has characters that no token has.
    #[error("the token is none")]
    NoToken,
    /// The connection string or the schema's name cannot be understood.
    #[error("set up the connections to PostgreSQL")]
    Pool(#[from] pg::Error),
    /// No connection to PostgreSQL.
    #[error("connect to PostgreSQL")]
    Connect(#[source] deadpool_postgres::PoolError),
    /// The tables could not be made.
    #[error("make the consumer's tables")]
    Tables(#[source] tokio_postgres::Error),
    /// The address of NATS cannot be understood.
    #[error("set up the connection to NATS")]
    Nats(#[from] run::ContextError),
    /// The address of the publisher cannot be understood.
    #[error("set up the connection to the publisher")]
    Publisher(#[from] clients::Error),
    /// The publisher did not tell its lanes.
    #[error("ask {publisher} for its lanes: {}", .status.message())]
    Lanes {
        /// Where it was asked.
        publisher: String,
        /// Its answer.
        status: Box<Status>,
    },
    /// Whoever answered publishes no lane of relations.
    #[error("{0} publishes no lanes of relations; name the command service")]
    NoLanes(String),
}

/// A running consumer. It stops when it is dropped, and in order with [`stop`](Self::stop).
pub struct Consumer {
    lanes: Vec<Arc<ConsumerHandle>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Consumer {
    /// Makes the tables, asks the publisher for its lanes, and folds all of them until it is stopped.
    ///
    /// # Errors
    /// [`Error`] says what to correct, or who does not answer.
    pub async fn start<F: Fold>(settings: Settings, fold: F) -> Result<Self, Error> {
        check(&settings)?;
        let limits = PostgresSettings::of(SERVER, settings.postgres.clone());
        let pool = pg::Servers::new(&limits, "likewise consumer").pool(SERVER, &settings.schema, CONNECTIONS)?;
        make_tables::<F>(&pool).await?;

        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let bearer = settings.token.watched(&stop, &tasks).await?;
        let publisher = clients::outbound_as(&settings.publisher, bearer)?;
        let shards = shards(&settings.publisher, publisher.clone()).await?;
        let runtime = Runtime {
            nats: run::connect_nats(&NatsSettings { url: settings.nats }, &settings.name).await?,
            settings: settings.lanes,
            stop: stop.clone(),
            tasks: tasks.clone(),
            metrics: Metrics::new(),
            upstream: Some(Arc::new(Publishers::new([(CLASS, publisher)]))),
        };
        let feed = Arc::new(Feed::new(settings.name, pool.clone(), fold));
        let follow =
            |shard| Follower::spawn(runtime.clone(), pool.clone(), Lane { class: CLASS, shard }, Arc::clone(&feed));
        Ok(Self { lanes: shards.into_iter().map(follow).collect(), stop, tasks })
    }

    /// Where each lane stands: what was folded, what keeps it from going on, and how many messages wait in quarantine.
    pub async fn progress(&self) -> Vec<ConsumerWatermark> {
        let mut progress = Vec::with_capacity(self.lanes.len());
        for lane in &self.lanes {
            progress.extend(lane.consumers().await);
        }
        progress
    }

    /// Finishes what is being folded, and gives the lanes back at once.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn check(settings: &Settings) -> Result<(), Error> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    if !(1..=64).contains(&settings.name.len()) || !settings.name.chars().all(allowed) {
        return Err(Error::Setting(format!("{:?} is no name: 1..64 of A-Z a-z 0-9 _ . : -", settings.name)));
    }
    let mut faults = Vec::new();
    settings.lanes.validate(&mut faults);
    match faults.first() {
        Some(fault) => Err(Error::Setting(format!("lanes.{} {}", fault.key, fault.problem))),
        None => Ok(()),
    }
}

async fn make_tables<F: Fold>(pool: &pg::Pool) -> Result<(), Error> {
    let mut client = pool.get().await.map_err(Error::Connect)?;
    let transaction = client.transaction().await.map_err(Error::Tables)?;
    transaction.execute(TABLES_LOCK, &[]).await.map_err(Error::Tables)?;
    transaction.batch_execute(TABLES).await.map_err(Error::Tables)?;
    transaction.batch_execute(F::TABLES).await.map_err(Error::Tables)?;
    transaction.commit().await.map_err(Error::Tables)
}

/// Shards of relations, by what the publisher tells. Their number never changes.
async fn shards(publisher: &str, channel: Outbound) -> Result<Vec<u16>, Error> {
    let mut request = Request::new(GetWatermarksRequest {});
    request.set_timeout(ASK);
    let mut client = LaneServiceClient::new(channel);
    let asked = tokio::time::timeout(ASK, client.get_watermarks(request));
    let told = asked.await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
    let told = told.map_err(|status| Error::Lanes { publisher: publisher.to_owned(), status: Box::new(status) })?;
    let lanes = told.into_inner().lanes;
    let shards: Vec<u16> = lanes.iter().filter_map(|lane| lane.lane.strip_prefix(PREFIX)?.parse().ok()).collect();
    if shards.is_empty() { Err(Error::NoLanes(publisher.to_owned())) } else { Ok(shards) }
}
