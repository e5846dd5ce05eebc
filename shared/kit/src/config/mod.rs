//! Configuration: documented defaults compiled in, then one TOML file, then the environment. Read whole at start; every
//! fault of every section is reported at once.
//!
//! A section's defaults are a TOML text in which every legal key stands with a comment that explains it. An empty table
//! or array is open: its keys or items are the operator's (names of servers, for example). A key of the environment is
//! `LIKEWISE__SECTION__KEY`, for example `LIKEWISE__COMMAND__BATCH_MAX=256`.

mod common;
mod merge;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::{Table, Value};

pub use common::{
    AuthSettings, COMMON_DEFAULTS, Common, Endpoints, LogSettings, NatsSettings, PostgresSettings, RedisSettings,
    ServerSettings,
};

/// Prefix of environment variables that are settings.
const ENVIRONMENT_PREFIX: &str = "LIKEWISE__";

/// One thing wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Full key, for example `command.batch_max`.
    pub key: String,
    /// What is wrong and what is expected.
    pub problem: String,
}

impl Fault {
    /// A fault of one key.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }
}

/// Everything wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the configuration has {} fault(s):", self.0.len())?;
        for fault in &self.0 {
            write!(out, "\n  {}: {}", fault.key, fault.problem)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Rules between and beyond types: ranges, and keys that depend on each other.
pub trait Validate {
    /// Adds every broken rule to `faults`, with the key's name within the section.
    fn validate(&self, faults: &mut Vec<Fault>) {
        let _ = faults;
    }
}

/// Reads sections and collects every fault.
pub struct Loader {
    file: Table,
    environment: BTreeMap<String, String>,
    faults: Vec<Fault>,
    effective: Table,
}

impl Loader {
    /// Reads the file, if there is one, and takes the settings among the environment's variables.
    pub fn new(file: Option<&Path>, environment: impl Iterator<Item = (String, String)>) -> Self {
        let mut faults = Vec::new();
        let file = file.map_or_else(Table::new, |path| read(path, &mut faults));
        let environment = environment.filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX)).collect();
        Self { file, environment, faults, effective: Table::new() }
    }

    /// Reads a section into its type. `None` when something is wrong with it; [`finish`](Self::finish) tells what.
    pub fn section<T: DeserializeOwned + Validate>(&mut self, name: &'static str, defaults: &'static str) -> Option<T> {
        let before = self.faults.len();
        let mut table: Table = match defaults.parse() {
            Ok(table) => table,
            Err(error) => {
                self.faults.push(Fault::new(name, format!("the compiled-in defaults are broken: {error}")));
                return None;
            }
        };
        if let Some(given) = self.file.remove(name) {
            merge::file(name, &mut table, given, &mut self.faults);
        }
        merge::environment(name, &mut table, &mut self.environment, &mut self.faults);
        self.effective.insert(name.to_owned(), Value::Table(table.clone()));
        if self.faults.len() > before {
            return None;
        }
        match table.try_into::<T>() {
            Ok(settings) => {
                let mut broken = Vec::new();
                settings.validate(&mut broken);
                self.faults
                    .extend(broken.into_iter().map(|fault| Fault::new(format!("{name}.{}", fault.key), fault.problem)));
                (self.faults.len() == before).then_some(settings)
            }
            Err(error) => {
                self.faults.push(Fault::new(name, error.message().to_owned()));
                None
            }
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`Faults`] lists everything that is wrong, sections and variables that nobody asked for included.
    pub fn finish(mut self) -> Result<(), Faults> {
        for name in self.file.keys() {
            self.faults.push(Fault::new(name, "no such section here"));
        }
        for name in self.environment.keys() {
            self.faults.push(Fault::new(name, "no such setting here"));
        }
        if self.faults.is_empty() { Ok(()) } else { Err(Faults(self.faults)) }
    }

    /// The configuration that is in force, as TOML, with passwords hidden.
    #[must_use]
    pub fn print(&self) -> String {
        let mut shown = Value::Table(self.effective.clone());
        hide_passwords(&mut shown);
        toml::to_string(&shown).unwrap_or_default()
    }
}

fn read(path: &Path, faults: &mut Vec<Fault>) -> Table {
    let shown = PathBuf::from(path).display().to_string();
    match std::fs::read_to_string(path) {
        Err(error) => faults.push(Fault::new(shown, format!("cannot be read: {error}"))),
        Ok(text) => match text.parse() {
            Ok(table) => return table,
            Err(error) => faults.push(Fault::new(shown, format!("is not TOML: {error}"))),
        },
    }
    Table::new()
}

fn hide_passwords(value: &mut Value) {
    match value {
        Value::Table(table) => table.iter_mut().for_each(|(_, value)| hide_passwords(value)),
        Value::Array(items) => items.iter_mut().for_each(hide_passwords),
        Value::String(text) => {
            if let (Some(scheme), Some(host)) = (text.find("://"), text.rfind('@'))
                && scheme < host
            {
                text.replace_range(scheme + 3..host, "***");
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    const DEFAULTS: &str = "size = 5\nname = \"a\"\nratio = 0.5\non = true\n[servers]\n";

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Thing {
        size: usize,
        name: String,
        ratio: f64,
        on: bool,
        servers: BTreeMap<String, String>,
    }

    impl Validate for Thing {
        fn validate(&self, faults: &mut Vec<Fault>) {
            if self.size > 10 {
                faults.push(Fault::new("size", "must be at most 10"));
            }
        }
    }

    fn load(file: &str, environment: &[(&str, &str)]) -> (Option<Thing>, Result<(), Faults>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("likewise.toml");
        std::fs::write(&path, file).expect("written");
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut loader = Loader::new(Some(&path), environment);
        let thing = loader.section("thing", DEFAULTS);
        (thing, loader.finish())
    }

    #[test]
    fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
        let (thing, faults) = load(
            "[thing]\nsize = 6\nname = \"b\"\nratio = 1\nservers = { main = \"x\" }",
            &[("LIKEWISE__THING__SIZE", "7"), ("LIKEWISE__THING__SERVERS__SPARE", "y"), ("LIKEWISE_CRASH_POINT", "z")],
        );
        assert_eq!(faults, Ok(()));
        let servers = BTreeMap::from([("main".to_owned(), "x".to_owned()), ("spare".to_owned(), "y".to_owned())]);
        assert_eq!(thing, Some(Thing { size: 7, name: "b".to_owned(), ratio: 1.0, on: true, servers }));
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let (thing, faults) = load(
            "[thing]\nsize = \"many\"\nsice = 6\non = 1\n[other]\nx = 1",
            &[("LIKEWISE__THING__RATIO", "half"), ("LIKEWISE__NOWHERE__KEY", "1")],
        );
        assert_eq!(thing, None);
        let keys: Vec<String> = faults.expect_err("faults").0.into_iter().map(|fault| fault.key).collect();
        for key in ["thing.size", "thing.sice", "thing.on", "thing.ratio", "other", "LIKEWISE__NOWHERE__KEY"] {
            assert!(keys.contains(&key.to_owned()), "{key} in {keys:?}");
        }
    }

    #[test]
    fn a_broken_rule_names_its_key() {
        let (_, faults) = load("[thing]\nsize = 11", &[]);
        assert_eq!(faults.expect_err("a fault").0, [Fault::new("thing.size", "must be at most 10")]);
    }

    #[test]
    fn inv_27_printing_hides_passwords() {
        let mut value = Value::String("postgres://likewise:secret@db:5432/x".to_owned());
        hide_passwords(&mut value);
        assert_eq!(value, Value::String("postgres://***@db:5432/x".to_owned()));
    }
}
