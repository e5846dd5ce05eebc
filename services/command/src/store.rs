//! PostgreSQL: the only door to the shards' schemas `relation_NN`. Every statement stands in a file of its own below
//! `store/`; the `search_path` of a connection says which shard it means.
//!
//! [`writer`] runs batches on a connection of its own; [`facts`] and [`operations`] read through pools; [`shard`] brings a
//! shard up; [`outbox`], [`accounts`], [`partitions`] and [`retention`] serve the publisher, the consumer and the maintenance.

pub mod accounts;
pub mod barrier;
pub mod facts;
pub mod ledger;
pub mod operations;
pub mod outbox;
pub mod partitions;
pub mod retention;
pub mod risk;
pub mod scan;
pub mod shard;
pub mod sweeps;
pub mod writer;

use deadpool_postgres::{Object, PoolError};
use likewise_domain::relation::LikeState;
use likewise_kit::pg::{self, FailureKind, Pool};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

/// Classes of advisory locks; the second key is the shard's number. The one list of this service.
pub mod lock {
    /// Everything that writes a shard's relations, outbox, barrier, accounts or epoch takes it for its transaction, as a
    /// statement of its own. "rel1".
    pub const SHARD: i32 = 0x7265_6c31;
}

const LOCK_SHARD: &str = include_str!("store/lock_shard.sql");

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A statement failed.
    #[error("{doing}")]
    Postgres {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: tokio_postgres::Error,
    },
    /// No connection came out of the pool.
    #[error("{doing}: take a connection")]
    Pool {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: PoolError,
    },
    /// A server cannot be used, or not reached.
    #[error("open a server")]
    Server(#[from] pg::Error),
    /// The schema cannot be brought up to date.
    #[error("bring the schema up to date")]
    Schema(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What is stored cannot be used by this process; trying again does not help.
    #[error("{0}")]
    Stored(String),
    /// The shard is not to be written by this process now; an operator or a repair decides.
    #[error("{0}")]
    NotServing(String),
}

impl Error {
    /// Whether the configuration, the code or the data is at fault, so that a process should not go on.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Stored(_) => true,
            Self::Server(error) => !matches!(error, pg::Error::Connect { .. } | pg::Error::ConnectTimeout(_)),
            Self::Postgres { .. } | Self::Pool { .. } | Self::Schema(_) | Self::NotServing(_) => false,
        }
    }

    /// What the failure means for the caller.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Postgres { source, .. } => pg::failure_kind(source),
            Self::Stored(_) => FailureKind::Bug,
            Self::Pool { .. } | Self::Server(_) | Self::Schema(_) | Self::NotServing(_) => FailureKind::Unavailable,
        }
    }

    /// The message with its causes on one line.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// The message of an error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Marks what was being done when a statement failed.
fn doing(doing: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
    move |source| Error::Postgres { doing, source }
}

async fn connection(pool: &Pool, doing: &'static str) -> Result<Object, Error> {
    pool.get().await.map_err(|source| Error::Pool { doing, source })
}

async fn prepared(client: &Object, sql: &str, what: &'static str) -> Result<Statement, Error> {
    client.prepare_cached(sql).await.map_err(doing(what))
}

/// Runs one statement of a pool and returns its rows.
async fn rows(
    pool: &Pool,
    sql: &str,
    parameters: &[&(dyn ToSql + Sync)],
    what: &'static str,
) -> Result<Vec<Row>, Error> {
    let client = connection(pool, what).await?;
    let statement = prepared(&client, sql, what).await?;
    client.query(&statement, parameters).await.map_err(doing(what))
}

fn state(code: i16) -> Result<LikeState, Error> {
    LikeState::from_code(code).ok_or_else(|| Error::Stored(format!("a row holds state {code}, which is none")))
}

/// Versions and sequence numbers are checked not to be negative.
fn unsigned(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

/// What a table keeps of a number; one that does not fit equals nothing that is stored.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn epoch(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}
