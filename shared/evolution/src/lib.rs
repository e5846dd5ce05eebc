//! Applies a service's schema migrations in order, each once, under a lock.
//!
//! Promises: however many processes start at once, one applies and the others wait and then find nothing to do. A
//! migration and its record commit together, so a kill at any moment leaves either both or neither. A migration that was
//! applied is never applied again, and never silently differs from what the build holds.
//!
//! The connection must go straight to PostgreSQL: the lock belongs to the session.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

/// Class of the session lock of this runner; the second key is made of the schema's name.
const LOCK_CLASS: i32 = 7_401;
/// How long to wait for another process that is migrating the same schema.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(120);
/// How often to try again.
const LOCK_POLL: Duration = Duration::from_millis(50);

const LOCK: &str = include_str!("runner/lock.sql");
const UNLOCK: &str = include_str!("runner/unlock.sql");
const APPLIED: &str = include_str!("runner/applied.sql");
const RECORD: &str = include_str!("runner/record.sql");

/// One step of a schema.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// `V0001__what_it_does`; numbers without gaps.
    pub name: &'static str,
    /// Its statements; they run in one transaction.
    pub sql: &'static str,
}

/// Why a schema was not brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The schema's name is not made of `[a-z0-9_]`.
    #[error("{0:?} is no schema name of ours")]
    SchemaName(String),
    /// Another process holds the lock.
    #[error("schema {0}: another process has been migrating it for two minutes; look for it in pg_stat_activity")]
    Locked(String),
    /// What was applied is not what this build holds.
    #[error(
        "schema {schema}: migration {name} was changed after it was applied; restore its text and add a new migration"
    )]
    Changed {
        /// The schema.
        schema: String,
        /// The migration.
        name: String,
    },
    /// The schema is ahead of this build.
    #[error("schema {schema}: migration {name} is applied but unknown to this build; use a newer build")]
    Unknown {
        /// The schema.
        schema: String,
        /// The migration.
        name: String,
    },
    /// A statement failed.
    #[error("schema {schema}: {action}")]
    Statement {
        /// The schema.
        schema: String,
        /// What was being done.
        action: String,
        /// Why it failed.
        source: tokio_postgres::Error,
    },
}

/// Brings `schema` up to date, creating it if it is missing, and answers the names of what was applied now.
///
/// # Errors
/// [`Error`] says which migration failed; those before it stay applied.
pub async fn migrate(client: &Client, schema: &str, migrations: &[Migration]) -> Result<Vec<String>, Error> {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if schema.is_empty() || !schema.chars().all(allowed) {
        return Err(Error::SchemaName(schema.to_owned()));
    }
    let runner = Runner { client, schema };
    runner.lock().await?;
    let outcome = runner.apply(migrations).await;
    // The lock ends with the session anyway; a failure here must not hide the outcome.
    if let Err(error) = client.query_one(UNLOCK, &[&LOCK_CLASS, &schema]).await {
        tracing::debug!(%schema, %error, "the migration lock was not released");
    }
    outcome
}

struct Runner<'a> {
    client: &'a Client,
    schema: &'a str,
}

impl Runner<'_> {
    async fn lock(&self) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            let row = self.client.query_one(LOCK, &[&LOCK_CLASS, &self.schema]).await;
            if row.map_err(|source| self.failed("take the lock", source))?.get(0) {
                return Ok(());
            }
            if start.elapsed() > LOCK_WAIT_MAX {
                return Err(Error::Locked(self.schema.to_owned()));
            }
            sleep(LOCK_POLL).await;
        }
    }

    async fn apply(&self, migrations: &[Migration]) -> Result<Vec<String>, Error> {
        // A migration may build an index on a large table; lock waits stay bounded by the connection's setting.
        let prepare = format!(
            "set statement_timeout = 0; create schema if not exists {schema}; set search_path = {schema}; \
             create table if not exists schema_migration (name text primary key, checksum bytea not null, \
             applied_at timestamptz not null default now())",
            schema = self.schema
        );
        self.run("prepare the schema", &prepare).await?;
        let rows = self.client.query(APPLIED, &[]).await;
        let rows = rows.map_err(|source| self.failed("read what is applied", source))?;
        let mut applied = Vec::new();
        for row in rows {
            let (name, checksum): (String, Vec<u8>) = (row.get(0), row.get(1));
            match migrations.iter().find(|migration| migration.name == name) {
                None => return Err(Error::Unknown { schema: self.schema.to_owned(), name }),
                Some(known) if checksum_of(known) != checksum => {
                    return Err(Error::Changed { schema: self.schema.to_owned(), name });
                }
                Some(_) => applied.push(name),
            }
        }
        let mut now = Vec::new();
        for migration in migrations.iter().filter(|migration| !applied.iter().any(|name| name == migration.name)) {
            self.step(migration).await?;
            tracing::info!(schema = self.schema, migration = migration.name, "migration applied");
            now.push(migration.name.to_owned());
        }
        Ok(now)
    }

    async fn step(&self, migration: &Migration) -> Result<(), Error> {
        self.run("begin", "begin").await?;
        let done = async {
            self.run(migration.name, migration.sql).await?;
            let recorded = self.client.execute(RECORD, &[&migration.name, &checksum_of(migration)]).await;
            recorded.map_err(|source| self.failed(migration.name, source))?;
            self.run(migration.name, "commit").await
        }
        .await;
        if done.is_err() {
            // The connection may be gone, then so is the transaction.
            let _ = self.client.batch_execute("rollback").await;
        }
        done
    }

    async fn run(&self, action: &str, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await.map_err(|source| self.failed(action, source))
    }

    fn failed(&self, action: &str, source: tokio_postgres::Error) -> Error {
        Error::Statement { schema: self.schema.to_owned(), action: action.to_owned(), source }
    }
}

fn checksum_of(migration: &Migration) -> Vec<u8> {
    Sha256::digest(migration.sql.as_bytes()).to_vec()
}
