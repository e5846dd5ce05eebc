//! Fresh databases on a running server.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::NoTls;

/// How long the drop of a database may hold up the end of its test.
const DROP_BOUND: Duration = Duration::from_secs(5);

/// A database of its own, dropped with this value as far as that is possible.
#[derive(Debug)]
pub struct TestDatabase {
    admin: String,
    name: String,
    dsn: String,
}

impl TestDatabase {
    /// Creates it on the server whose superuser connects with `admin` (a URL with database `postgres`).
    pub(crate) async fn create(admin: &str, name: &str) -> Result<Self> {
        execute(admin, &format!("CREATE DATABASE \"{name}\"")).await.with_context(|| format!("creating {name}"))?;
        let server = admin.rsplit_once('/').map_or(admin, |(server, _)| server);
        Ok(Self { admin: admin.to_owned(), name: name.to_owned(), dsn: format!("{server}/{name}") })
    }

    /// `postgres://` address with user and password.
    pub fn dsn(&self) -> &str {
        &self.dsn
    }

    /// Its name on the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection of its own, whose driver ends with it.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn connect(&self) -> Result<tokio_postgres::Client> {
        connect(&self.dsn).await
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // Without this the server fills up over a run. A server that is down has nothing to drop.
        let (admin, name) = (self.admin.clone(), self.name.clone());
        let drop = move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            let statement = format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)");
            let bounded = async { tokio::time::timeout(DROP_BOUND, execute(&admin, &statement)).await };
            let _ = runtime.block_on(bounded);
        };
        let _ = std::thread::spawn(drop).join();
    }
}

pub(crate) async fn connect(dsn: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(dsn, NoTls).await.context("connecting to PostgreSQL")?;
    tokio::spawn(connection);
    Ok(client)
}

async fn execute(dsn: &str, statement: &str) -> Result<()> {
    Ok(connect(dsn).await?.batch_execute(statement).await?)
}
