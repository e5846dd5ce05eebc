//! PostgreSQL: the only door to the schema `counter` and to the partitions `counter_pNN`. Every statement stands in a file of its
//! own below `store/`; the `search_path` of a connection says which schema it means.

pub mod display;
pub mod partition;
pub mod setup;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use deadpool_postgres::{GenericClient, Object, PoolError};
use likewise_domain::lane::Offset;
use likewise_kit::pg::{self, FailureKind, Pool, Servers};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use self::partition::Partition;
use crate::route::ManifestFault;
use crate::vector::Vector;

/// Schema of the metadata.
pub const METADATA_SCHEMA: &str = "counter";

/// Classes of advisory locks; the second key is the partition's number, or 0. The one list of this service.
pub mod lock {
    /// A partition: groups in shared mode; changes of fences and owners in exclusive mode. "cnt1".
    pub const PARTITION: i32 = 0x636e_7431;
    /// Stating the first contracts. "cnt0".
    pub const BOOTSTRAP: i32 = 0x636e_7430;
}

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
    /// A server cannot be used.
    #[error("open a server")]
    Server(#[from] pg::Error),
    /// What is stored cannot be used by this process; trying again does not help.
    #[error("{0}")]
    Stored(String),
    /// A stored manifest is not whole; trying again does not help.
    #[error(transparent)]
    Manifest(#[from] ManifestFault),
    /// The aggregator's lease went to another process.
    #[error("the lease was lost")]
    LeaseLost,
}

impl Error {
    /// Whether the same call may succeed later without anybody's help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Postgres { source, .. } => {
                matches!(pg::failure_kind(source), FailureKind::Retry | FailureKind::Unavailable)
            }
            Self::Pool { .. } => true,
            Self::Server(_) | Self::Stored(_) | Self::Manifest(_) | Self::LeaseLost => false,
        }
    }

    /// The message with its causes on one line.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// The metadata and every partition known to this process.
pub struct Store {
    metadata: Pool,
    servers: Servers,
    partitions: ArcSwap<BTreeMap<String, Arc<Partition>>>,
    partition_connections_max: usize,
}

impl Store {
    /// Opens the metadata; partitions follow with [`open_partition`](Self::open_partition).
    ///
    /// # Errors
    /// When the server is unknown.
    pub fn open(servers: &Servers, server: &str, connections_max: usize, per_partition: usize) -> Result<Self, Error> {
        Ok(Self {
            metadata: servers.pool(server, METADATA_SCHEMA, connections_max)?,
            servers: servers.clone(),
            partitions: ArcSwap::default(),
            partition_connections_max: per_partition,
        })
    }

    /// Pool on the metadata, for leases and checkpoints.
    #[must_use]
    pub const fn metadata(&self) -> &Pool {
        &self.metadata
    }

    /// Makes a partition known.
    ///
    /// # Errors
    /// When the server is unknown or the name is none of a partition.
    pub fn open_partition(&self, name: &str, server: &str, schema: &str) -> Result<Arc<Partition>, Error> {
        let pool = self.servers.pool(server, schema, self.partition_connections_max)?;
        let partition = Arc::new(Partition::new(name, pool)?);
        self.partitions.rcu(|known| {
            let mut known = BTreeMap::clone(known);
            known.insert(name.to_owned(), Arc::clone(&partition));
            known
        });
        Ok(partition)
    }

    /// A partition by name.
    ///
    /// # Errors
    /// [`Error::Stored`] when this process does not know it.
    pub fn partition(&self, name: &str) -> Result<Arc<Partition>, Error> {
        let known = self.partitions.load();
        known.get(name).cloned().ok_or_else(|| Error::Stored(format!("partition {name} is not known to this process")))
    }
}

/// A connection of a pool.
async fn connection(pool: &Pool, doing: &'static str) -> Result<Object, Error> {
    pool.get().await.map_err(|source| Error::Pool { doing, source })
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

async fn query_on(
    client: &impl GenericClient,
    doing: &'static str,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<Vec<Row>, Error> {
    let failed = |source| Error::Postgres { doing, source };
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    client.query(&statement, parameters).await.map_err(failed)
}

async fn query(pool: &Pool, doing: &'static str, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
    query_on(&connection(pool, doing).await?, doing, sql, parameters).await
}

/// Runs a statement that gives no rows; answers how many it touched.
async fn execute(pool: &Pool, doing: &'static str, sql: &str, parameters: Parameters<'_>) -> Result<u64, Error> {
    let client = connection(pool, doing).await?;
    let failed = |source| Error::Postgres { doing, source };
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    client.execute(&statement, parameters).await.map_err(failed)
}

/// A column of a row.
fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    index: usize,
    doing: &'static str,
) -> Result<T, Error> {
    row.try_get(index).map_err(|source| Error::Postgres { doing, source })
}

/// Sequence numbers stay far below 2^63: at a million changes a second they last for 290,000 years.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Columns that hold numbers of ours are not negative.
fn number(bigint: i64) -> u64 {
    u64::try_from(bigint).unwrap_or(0)
}

/// Epochs and vbuckets are small.
fn integer(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A vector as the three columns or parameters that stand side by side.
#[derive(Debug, Default)]
struct VectorColumns {
    lanes: Vec<String>,
    epochs: Vec<i32>,
    next_offsets: Vec<i64>,
}

impl VectorColumns {
    fn of(vector: &Vector) -> Self {
        let mut columns = Self::default();
        for (lane, next) in vector.iter() {
            columns.lanes.push(lane.to_owned());
            columns.epochs.push(integer(next.epoch));
            columns.next_offsets.push(bigint(next.seq));
        }
        columns
    }

    fn vector(self) -> Vector {
        let offsets = self.epochs.into_iter().zip(self.next_offsets).map(|(epoch, next)| offset(epoch, next));
        self.lanes.into_iter().zip(offsets).collect()
    }
}

fn offset(epoch: i32, seq: i64) -> Offset {
    Offset { epoch: u32::try_from(epoch).unwrap_or(0), seq: number(seq) }
}

/// Every statement with the schema it runs on, so that a test can prepare them all.
#[must_use]
pub fn statements() -> Vec<(&'static str, &'static str)> {
    let metadata = setup::METADATA.iter().chain(display::METADATA).map(|sql| (METADATA_SCHEMA, *sql));
    metadata.chain(partition::STATEMENTS.iter().map(|sql| ("counter_p00", *sql))).collect()
}
