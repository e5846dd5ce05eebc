//! Connections to PostgreSQL that cannot hang: every one has time limits on both sides and a fixed `search_path`, so that
//! statements are static text without schema names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod, Runtime};
use secrecy::{ExposeSecret, SecretString};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use crate::config::PostgresSettings;

/// A pool of connections to one schema on one server.
pub type Pool = deadpool_postgres::Pool;

/// Oldest server this system runs on.
pub const SERVER_VERSION_MIN: i32 = 18;

const CHECK_SERVER: &str = include_str!("pg/check_server.sql");

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting names a server that `[postgres.servers]` does not have.
    #[error("no server {0:?} in [postgres.servers]")]
    UnknownServer(String),
    /// A schema name is not made of `[a-z0-9_]`.
    #[error("{0:?} is no schema name of ours")]
    SchemaName(String),
    /// A connection string cannot be read. Its text is not shown, it may hold a password.
    #[error("the connection string of server {0:?} cannot be read")]
    ConnectionString(String),
    /// The pool could not be built.
    #[error("build a pool for server {server:?}")]
    Build {
        /// The server.
        server: String,
        /// Why.
        source: deadpool_postgres::BuildError,
    },
    /// No connection in time.
    #[error("connect to server {0:?}: no answer in time")]
    ConnectTimeout(String),
    /// The connection failed.
    #[error("connect to server {server:?}")]
    Connect {
        /// The server.
        server: String,
        /// Why.
        source: tokio_postgres::Error,
    },
    /// A server that this system must not run on.
    #[error("server {server:?}: {problem}")]
    Unsuitable {
        /// The server.
        server: String,
        /// What is wrong and what to do.
        problem: String,
    },
}

/// The PostgreSQL servers by name.
#[derive(Clone)]
pub struct Servers {
    servers: Arc<BTreeMap<String, SecretString>>,
    settings: Arc<PostgresSettings>,
    application: &'static str,
}

impl Servers {
    /// Servers of the section `[postgres]`; `application` is the name the server's views show.
    #[must_use]
    pub fn new(settings: &PostgresSettings, application: &'static str) -> Self {
        Self { servers: Arc::new(settings.servers.clone()), settings: Arc::new(settings.clone()), application }
    }

    /// The same servers, under another application name.
    #[must_use]
    pub fn named(&self, application: &'static str) -> Self {
        Self { application, ..self.clone() }
    }

    /// Names of all servers.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.servers.keys().cloned().collect()
    }

    /// A pool of at most `size` connections whose `search_path` is `schema`. Connects when first used.
    ///
    /// # Errors
    /// [`Error`] when the names or the connection string are wrong.
    pub fn pool(&self, server: &str, schema: &str, size: usize) -> Result<Pool, Error> {
        let manager = Manager::from_config(
            self.config(server, schema)?,
            NoTls,
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let wait = Duration::from_millis(self.settings.pool_wait_ms);
        let connect = Duration::from_millis(self.settings.connect_timeout_ms);
        Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(wait))
            .create_timeout(Some(connect))
            .recycle_timeout(Some(connect))
            .build()
            .map_err(|source| Error::Build { server: server.to_owned(), source })
    }

    /// One connection of its own, its driver running in a task that ends with it.
    ///
    /// # Errors
    /// [`Error`] when the names are wrong, or there is no connection in time.
    pub async fn dedicated(&self, server: &str, schema: &str) -> Result<Client, Error> {
        let config = self.config(server, schema)?;
        let timeout = Duration::from_millis(self.settings.connect_timeout_ms);
        let connected = tokio::time::timeout(timeout, config.connect(NoTls))
            .await
            .map_err(|_| Error::ConnectTimeout(server.to_owned()))?;
        let (client, connection) = connected.map_err(|source| Error::Connect { server: server.to_owned(), source })?;
        let server = server.to_owned();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%server, %error, "a PostgreSQL connection ended");
            }
        });
        Ok(client)
    }

    fn config(&self, server: &str, schema: &str) -> Result<Config, Error> {
        let dsn = self.servers.get(server).ok_or_else(|| Error::UnknownServer(server.to_owned()))?;
        let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        if schema.is_empty() || !schema.chars().all(allowed) {
            return Err(Error::SchemaName(schema.to_owned()));
        }
        let mut config: Config = dsn.expose_secret().parse().map_err(|_| Error::ConnectionString(server.to_owned()))?;
        let settings = &self.settings;
        let given = config.get_options().map(|options| format!("{options} ")).unwrap_or_default();
        config
            .application_name(self.application)
            .connect_timeout(Duration::from_millis(settings.connect_timeout_ms))
            .tcp_user_timeout(Duration::from_millis(settings.tcp_user_timeout_ms))
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3)
            .options(format!(
                "{given}-c search_path={schema} -c statement_timeout={} -c lock_timeout={} \
                 -c idle_in_transaction_session_timeout={} -c client_connection_check_interval={}",
                settings.statement_timeout_ms,
                settings.lock_timeout_ms,
                settings.idle_in_transaction_timeout_ms,
                settings.client_check_interval_ms,
            ));
        Ok(config)
    }
}

/// Refuses a server that is too old, or that may lose a commit it has acknowledged.
///
/// # Errors
/// [`Error::Unsuitable`] names the setting and what it must be; [`Error::Connect`] when the server cannot be asked.
pub async fn check_server(client: &Client, server: &str) -> Result<(), Error> {
    let unsuitable = |problem: String| Error::Unsuitable { server: server.to_owned(), problem };
    let failed = |source| Error::Connect { server: server.to_owned(), source };
    let row = client.query_one(CHECK_SERVER, &[]).await.map_err(failed)?;
    let version: i32 = row.get(0);
    if version / 10_000 < SERVER_VERSION_MIN {
        let found = version / 10_000;
        return Err(unsuitable(format!("is PostgreSQL {found}, {SERVER_VERSION_MIN} or newer is needed: upgrade it")));
    }
    for (index, setting) in [(1, "fsync"), (2, "full_page_writes"), (3, "synchronous_commit")] {
        let value: String = row.get(index);
        if value == "off" {
            return Err(unsuitable(format!("has {setting} = off, which loses acknowledged commits: switch it on")));
        }
    }
    Ok(())
}

/// What a failed statement means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Lost a race: serialization, deadlock, lock wait. Run it again.
    Retry,
    /// The server or the connection is not there, or too slow. Back off and run it again.
    Unavailable,
    /// The data is at fault: a constraint, a value out of range. Running it again fails again.
    Data,
    /// The statement is at fault.
    Bug,
}

/// Sorts a failure.
#[must_use]
pub fn failure_kind(error: &tokio_postgres::Error) -> FailureKind {
    if let Some(state) = error.code() {
        return kind_of(state);
    }
    // Without a state the server did not answer, or we misread what it did answer.
    let io = std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>());
    let told = error.to_string();
    if io || error.is_closed() || told.starts_with("error connecting") || told.starts_with("timeout") {
        FailureKind::Unavailable
    } else {
        FailureKind::Bug
    }
}

fn kind_of(state: &SqlState) -> FailureKind {
    let unavailable = [
        SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    if unavailable.contains(state) {
        return FailureKind::Unavailable;
    }
    if *state == SqlState::LOCK_NOT_AVAILABLE {
        return FailureKind::Retry;
    }
    match &state.code()[..2] {
        "40" => FailureKind::Retry,
        // Connections, resources, the operator (also a statement that took too long), the system below.
        "08" | "53" | "57" | "58" => FailureKind::Unavailable,
        "22" | "23" => FailureKind::Data,
        _ => FailureKind::Bug,
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;

    fn servers(dsn: &str) -> Servers {
        let defaults = include_str!("../defaults/postgres.toml");
        let mut settings: PostgresSettings = toml::from_str(defaults).expect("the defaults");
        settings.servers.insert("main".to_owned(), dsn.into());
        Servers::new(&settings, "test")
    }

    #[test]
    fn failures_are_sorted_by_what_to_do() {
        for (state, kind) in [
            ("40001", FailureKind::Retry),
            ("40P01", FailureKind::Retry),
            ("55P03", FailureKind::Retry),
            ("40003", FailureKind::Unavailable),
            ("25006", FailureKind::Unavailable),
            ("25P03", FailureKind::Unavailable),
            ("57P01", FailureKind::Unavailable),
            ("57014", FailureKind::Unavailable),
            ("08006", FailureKind::Unavailable),
            ("53300", FailureKind::Unavailable),
            ("23514", FailureKind::Data),
            ("22P02", FailureKind::Data),
            ("25P02", FailureKind::Bug),
            ("42P01", FailureKind::Bug),
        ] {
            assert_eq!(kind_of(&SqlState::from_code(state)), kind, "{state}");
        }
    }

    #[tokio::test]
    async fn a_server_that_refuses_the_connection_is_unavailable() {
        let error = Config::from_str("host=127.0.0.1 port=1 user=x").expect("a config").connect(NoTls).await;
        assert_eq!(failure_kind(&error.err().expect("refused")), FailureKind::Unavailable);
    }

    #[test]
    fn inv_27_wrong_names_are_told_and_connection_strings_never() {
        let told = |servers: Servers, server: &str, schema: &str| {
            format!("{:?}", servers.pool(server, schema, 1).expect_err("refused"))
        };
        assert!(told(servers("host=x"), "other", "a").contains("UnknownServer"));
        for schema in ["", "Relation", "a-b", "a; drop"] {
            assert!(told(servers("host=x"), "main", schema).contains("SchemaName"), "{schema}");
        }
        let told = told(servers("postgres://u:secret@:::"), "main", "a");
        assert!(told.contains("ConnectionString") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn options_of_the_connection_string_stay() {
        let config = servers("host=x options='-c work_mem=8MB'").config("main", "relation_00").expect("a config");
        let options = config.get_options().expect("options");
        assert!(options.starts_with("-c work_mem=8MB -c search_path=relation_00 "), "{options}");
    }
}
