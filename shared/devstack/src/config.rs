//! The settings that make a service use this stack: one TOML file on a fresh database.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::database::TestDatabase;
use crate::keys::{DevKeys, ISSUER};
use crate::stack::StackAddress;

/// A complete configuration file for `standalone`, or for any one service, and what it points at.
#[derive(Debug)]
pub struct TestConfig {
    path: PathBuf,
    /// The database named `main`.
    pub database: TestDatabase,
    /// Databases on further servers, named `second`, `third`, ...
    pub others: Vec<TestDatabase>,
    /// `[lanes] stream_prefix`.
    pub stream_prefix: String,
    /// `[redis] key_prefix`.
    pub redis_prefix: String,
    /// The stack it points at.
    pub address: StackAddress,
}

/// Names of PostgreSQL servers in the settings.
const SERVERS: [&str; 6] = ["main", "second", "third", "fourth", "fifth", "sixth"];

impl TestConfig {
    /// Creates the databases and writes the file into a folder of its own.
    pub(crate) async fn create(address: &StackAddress, keys: &DevKeys, unique: &str) -> Result<Self> {
        let folder = address.folder.join("tests").join(unique);
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let mut databases = Vec::new();
        for admin in address.postgres.iter().take(SERVERS.len()) {
            databases.push(TestDatabase::create(admin, unique).await?);
        }
        let mut databases = databases.into_iter();
        let database = databases.next().context("a stack without PostgreSQL")?;
        let config = Self {
            path: folder.join("likewise.toml"),
            database,
            others: databases.collect(),
            stream_prefix: unique.to_uppercase(),
            redis_prefix: format!("{unique}:"),
            address: address.clone(),
        };
        fs::write(&config.path, config.text(keys)?).with_context(|| format!("writing {}", config.path.display()))?;
        Ok(config)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the file, for whatever else belongs to this test.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    fn text(&self, keys: &DevKeys) -> Result<String> {
        let mut servers = toml::Table::new();
        let databases = std::iter::once(&self.database).chain(&self.others);
        for (name, database) in SERVERS.iter().zip(databases) {
            servers.insert((*name).to_owned(), database.dsn().into());
        }
        let file = |path: PathBuf| path.to_string_lossy().into_owned();
        let whole = toml::toml! {
            [server]
            address = "127.0.0.1:0"
            admin_address = "127.0.0.1:0"
            [auth]
            audience = "likewise"
            service_audience = "likewise-internal"
        };
        let mut whole = whole;
        put(&mut whole, "auth", "issuer", ISSUER);
        put(&mut whole, "auth", "keys_file", file(keys.jwks()));
        put(&mut whole, "auth", "service_key_file", file(keys.service_key()));
        put(&mut whole, "auth", "service_key_id", keys.service_key_id());
        put(&mut whole, "auth", "cursor_keys_file", file(keys.cursor_keys()));
        put(&mut whole, "postgres", "servers", servers);
        put(&mut whole, "nats", "url", self.address.nats.as_str());
        put(&mut whole, "redis", "url", self.address.redis.as_str());
        put(&mut whole, "redis", "key_prefix", self.redis_prefix.as_str());
        put(&mut whole, "lanes", "stream_prefix", self.stream_prefix.as_str());
        toml::to_string_pretty(&whole).context("writing the configuration")
    }
}

fn put(table: &mut toml::Table, section: &str, key: &str, value: impl Into<toml::Value>) {
    let section = table.entry(section).or_insert_with(|| toml::Table::new().into());
    if let Some(section) = section.as_table_mut() {
        section.insert(key.to_owned(), value.into());
    }
}
