//! Applies a service's schema migrations in order, once, under a lock.
//!
//! Promises: each migration takes effect whole and is recorded in the same transaction; two runners at once do the work
//! of one; a migration that was applied and then edited is refused; killed anywhere and started again, the result is
//! that of one run. Never: goes back, or skips.
//!
//! The connection must reach PostgreSQL directly and be the caller's own: the lock belongs to the session. A transaction
//! pooler between them is noticed and refused.

mod plan;
mod store;

use std::time::Duration;

use tokio_postgres::Client;

pub use plan::{Disorder, checksum};

/// Longest wait for another runner to finish.
const RUNNER_WAIT: Duration = Duration::from_secs(180);
/// Longest wait of a migration for a lock: whoever waits for a table lets nobody else at it.
const TABLE_LOCK_WAIT: Duration = Duration::from_secs(5);

/// One step of a schema.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// `V0001__relations`: numbered from 1 without gaps.
    pub name: &'static str,
    /// Any number of statements, without transaction control. Runs with the schema as `search_path`.
    pub sql: &'static str,
}

/// Why a schema was not brought up to date. What was applied before stays.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A schema name is not made of `[a-z0-9_]`.
    #[error("{0:?} is no schema name of ours")]
    SchemaName(String),
    /// The migrations disagree with each other or with what was applied.
    #[error("schema {schema}")]
    Disorder {
        /// The schema.
        schema: String,
        /// How they disagree.
        source: Disorder,
    },
    /// Another runner is at work for too long.
    #[error("schema {0}: another process has been migrating it for minutes; look for it in pg_stat_activity")]
    Locked(String),
    /// The lock is not ours although we took it: statements go to different sessions.
    #[error(
        "schema {0}: the connection does not keep its session; connect to PostgreSQL directly, not through a pooler"
    )]
    Pooler(String),
    /// A migration ended its transaction.
    #[error("schema {schema}: migration {name} begins or ends transactions, which it must not")]
    Transaction {
        /// The schema.
        schema: String,
        /// The migration.
        name: &'static str,
    },
    /// A migration failed and left nothing behind.
    #[error("schema {schema}: apply migration {name}")]
    Apply {
        /// The schema.
        schema: String,
        /// The migration.
        name: &'static str,
        /// Why.
        source: tokio_postgres::Error,
    },
    /// The runner's own statements failed.
    #[error("schema {schema}: {doing}")]
    Runner {
        /// The schema.
        schema: String,
        /// What was being done.
        doing: &'static str,
        /// Why.
        source: tokio_postgres::Error,
    },
}

/// Creates `schema` if it is missing and applies what was not applied yet. Answers the names of what it applied.
/// `client` is a connection of its own, which has `search_path` = `schema` afterwards.
///
/// # Errors
/// [`Error`]; the schema is then at some migration, whole.
pub async fn migrate(client: &Client, schema: &str, migrations: &[Migration]) -> Result<Vec<String>, Error> {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if schema.is_empty() || !schema.chars().all(allowed) {
        return Err(Error::SchemaName(schema.to_owned()));
    }
    let runner = store::Runner { client, schema };
    runner.lock(RUNNER_WAIT, TABLE_LOCK_WAIT).await?;
    let applied = apply(&runner, migrations).await;
    if applied.is_err() {
        // The error to tell is the first one; the end of the session undoes the rest.
        let _ = runner.rollback().await;
    }
    let unlocked = runner.unlock().await;
    let applied = applied?;
    unlocked?;
    Ok(applied)
}

async fn apply(runner: &store::Runner<'_>, migrations: &[Migration]) -> Result<Vec<String>, Error> {
    runner.prepare().await?;
    let recorded = runner.recorded().await?;
    let pending = plan::pending(migrations, &recorded)
        .map_err(|source| Error::Disorder { schema: runner.schema.to_owned(), source })?;
    let mut applied = Vec::new();
    for migration in pending {
        runner.apply(migration).await?;
        tracing::info!(schema = runner.schema, migration = migration.name, "migration applied");
        applied.push(migration.name.to_owned());
    }
    Ok(applied)
}
