//! The runner's statements.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use crate::plan::checksum;
use crate::{Error, Migration};

const LOCK: &str = include_str!("store/lock.sql");
const UNLOCK: &str = include_str!("store/unlock.sql");
const TABLE: &str = include_str!("store/table.sql");
const RECORDED: &str = include_str!("store/recorded.sql");
const RECORD: &str = include_str!("store/record.sql");
const SESSION: &str = include_str!("store/session.sql");

/// How often a held lock is asked for.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// A connection at work on one schema.
pub(crate) struct Runner<'a> {
    pub(crate) client: &'a Client,
    pub(crate) schema: &'a str,
}

impl Runner<'_> {
    /// Waits until no other runner is at work on the schema, then sets the session up for migrations. Asks again and
    /// again: a statement that waits keeps a snapshot, and an index that is built concurrently waits for that.
    pub(crate) async fn lock(&self, wait: Duration, table_wait: Duration) -> Result<(), Error> {
        let until = Instant::now() + wait;
        loop {
            let row = self.client.query_one(LOCK, &[&self.key()]).await.map_err(self.failed("take the lock"))?;
            if row.get(0) {
                break;
            }
            if Instant::now() > until {
                return Err(Error::Locked(self.schema.to_owned()));
            }
            sleep(LOCK_POLL).await;
        }
        let session = format!(
            "set statement_timeout = 0; set lock_timeout = {}; set search_path = {}",
            table_wait.as_millis(),
            self.schema
        );
        self.client.batch_execute(&session).await.map_err(self.failed("set up the session"))
    }

    pub(crate) async fn unlock(&self) -> Result<(), Error> {
        let row = self.client.query_one(UNLOCK, &[&self.key()]).await.map_err(self.failed("end the run"))?;
        if row.get(0) { Ok(()) } else { Err(Error::Pooler(self.schema.to_owned())) }
    }

    pub(crate) async fn rollback(&self) -> Result<(), Error> {
        self.client.batch_execute("rollback").await.map_err(self.failed("undo what failed"))
    }

    /// Creates the schema and the table that records what was applied.
    pub(crate) async fn prepare(&self) -> Result<(), Error> {
        let create = format!("create schema if not exists {}", self.schema);
        self.client.batch_execute(&create).await.map_err(self.failed("create the schema"))?;
        self.client.batch_execute(TABLE).await.map_err(self.failed("create the record of migrations"))
    }

    /// Name and checksum of everything applied, by name.
    pub(crate) async fn recorded(&self) -> Result<Vec<(String, String)>, Error> {
        let rows = self.client.query(RECORDED, &[]).await.map_err(self.failed("read what was applied"))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Applies and records one migration in one transaction.
    pub(crate) async fn apply(&self, migration: &Migration) -> Result<(), Error> {
        let name = migration.name;
        let failed = |source| Error::Apply { schema: self.schema.to_owned(), name, source };
        self.client.batch_execute("begin").await.map_err(failed)?;
        let (locked, transaction) = self.session().await?;
        if !locked {
            return Err(Error::Pooler(self.schema.to_owned()));
        }
        self.client.batch_execute(migration.sql).await.map_err(failed)?;
        if self.session().await?.1 != transaction {
            return Err(Error::Transaction { schema: self.schema.to_owned(), name });
        }
        self.client.execute(RECORD, &[&name, &checksum(migration.sql)]).await.map_err(failed)?;
        self.client.batch_execute("commit").await.map_err(failed)
    }

    /// Whether this session holds our lock, and its transaction's id.
    async fn session(&self) -> Result<(bool, String), Error> {
        let row = self.client.query_one(SESSION, &[&self.key()]).await.map_err(self.failed("look at the session"))?;
        Ok((row.get(0), row.get(1)))
    }

    /// One lock per schema. Locks of other uses have two keys, a space of their own.
    fn key(&self) -> i64 {
        let digest = Sha256::digest(format!("likewise migrations of {}", self.schema));
        let first = digest.first_chunk::<8>().expect("a SHA-256 has 32 bytes");
        i64::from_be_bytes(*first)
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
        let schema = self.schema.to_owned();
        move |source| Error::Runner { schema, doing, source }
    }
}
