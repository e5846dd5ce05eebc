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
    /// Full key -> where its value was set.
    origins: BTreeMap<String, String>,
    effective: Table,
}

impl Loader {
    /// Reads the file, if there is one, and takes the settings among the environment's variables.
    pub fn new(file: Option<&Path>, environment: impl Iterator<Item = (String, String)>) -> Self {
        let mut faults = Vec::new();
        let file = file.map_or_else(Table::new, |path| read(path, &mut faults));
        let environment = environment.filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX)).collect();
        Self { file, environment, faults, origins: BTreeMap::new(), effective: Table::new() }
    }

    /// Reads a section into its type. `None` when something is wrong with it; [`finish`](Self::finish) tells what.
    pub fn section<T: DeserializeOwned + Validate>(&mut self, name: &'static str, defaults: &'static str) -> Option<T> {
        let before = self.faults.len();
        let legal: Table = match defaults.parse() {
            Ok(table) => table,
            Err(error) => {
                self.faults.push(Fault::new(name, format!("the compiled-in defaults are broken: {error}")));
                return None;
            }
        };
        let mut table = legal.clone();
        let (faults, origins) = (&mut self.faults, &mut self.origins);
        let mut section = merge::Section { name, legal: &legal, faults, origins };
        if let Some(given) = self.file.remove(name) {
            section.file(&mut table, given);
        }
        section.environment(&mut table, &mut self.environment);
        self.effective.insert(name.to_owned(), Value::Table(table.clone()));
        // A wrong value stands as its default in the table, so that the rules of the others are checked all the same.
        match table.try_into::<T>() {
            Ok(settings) => {
                let mut broken = Vec::new();
                settings.validate(&mut broken);
                let named = broken.iter().map(|fault| self.name_origin(name, fault)).collect::<Vec<_>>();
                self.faults.extend(named);
                (self.faults.len() == before).then_some(settings)
            }
            Err(error) => {
                self.faults.push(Fault::new(name, error.to_string().trim_end().replace('\n', " ")));
                None
            }
        }
    }

    /// A broken rule with the full key and where its value was set.
    fn name_origin(&self, section: &str, fault: &Fault) -> Fault {
        let key = format!("{section}.{}", fault.key);
        let origin = self.origins.get(&key).map_or("by default", String::as_str);
        Fault { problem: format!("{} ({origin})", fault.problem), key }
    }

    /// Ends the reading. One file may serve a whole installation: sections of services that run elsewhere are passed
    /// over.
    ///
    /// # Errors
    /// [`Faults`] lists everything that is wrong, sections and variables that nobody knows included.
    pub fn finish(mut self) -> Result<(), Faults> {
        let elsewhere = common::service_sections();
        for name in self.file.keys().filter(|name| !elsewhere.contains_key(*name)) {
            self.faults.push(Fault::new(name, format!("no such section ({})", merge::FILE)));
        }
        for name in self.environment.keys() {
            let section = name[ENVIRONMENT_PREFIX.len()..].split("__").next().unwrap_or_default().to_lowercase();
            if self.effective.contains_key(&section) || !elsewhere.contains_key(&section) {
                self.faults.push(Fault::new(name, "no such setting (in the environment)"));
            }
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
        Ok(text) => match text.parse::<Table>() {
            Ok(table) => return table,
            // Not the error's own text, which repeats the line: it may hold a password.
            Err(error) => {
                let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
                faults.push(Fault::new(shown, format!("line {line} is not TOML: {}", error.message())));
            }
        },
    }
    Table::new()
}

/// Keys of connection strings whose values are secret.
const SECRET_KEYS: [&str; 2] = ["password=", "token="];

fn hide_passwords(value: &mut Value) {
    match value {
        Value::Table(table) => table.iter_mut().for_each(|(_, value)| hide_passwords(value)),
        Value::Array(items) => items.iter_mut().for_each(hide_passwords),
        Value::String(text) => *text = without_passwords(text),
        _ => {}
    }
}

/// Takes user and password out of `scheme://user:password@host`, and everything from `password=` on. Rather too much
/// than too little: a password may hold any letter.
fn without_passwords(text: &str) -> String {
    let mut hidden = text.to_owned();
    if let (Some(scheme), Some(host)) = (hidden.find("://"), hidden.rfind('@'))
        && scheme < host
    {
        hidden.replace_range(scheme + 3..host, "***");
    }
    for key in SECRET_KEYS {
        if let Some(at) = hidden.find(key) {
            hidden.replace_range(at + key.len().., "***");
        }
    }
    hidden
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
    fn a_broken_rule_names_its_key_and_where_it_was_set() {
        let only = |file: &str, environment: &[(&str, &str)]| {
            let faults = load(file, environment).1.expect_err("a fault").0;
            faults.into_iter().map(|fault| format!("{}: {}", fault.key, fault.problem)).collect::<Vec<_>>()
        };
        assert_eq!(only("[thing]\nsize = 11", &[]), ["thing.size: must be at most 10 (in the configuration file)"]);
        assert_eq!(
            only("[thing]\nsize = 5", &[("LIKEWISE__THING__SIZE", "12")]),
            ["thing.size: must be at most 10 (in the environment variable LIKEWISE__THING__SIZE)"]
        );
        // A wrong value elsewhere hides no broken rule.
        let both = only("[thing]\nsize = 11\non = 1", &[]);
        assert_eq!(both.len(), 2, "{both:?}");
    }

    #[test]
    fn what_the_type_refuses_is_told_with_its_key() {
        let faults = load("[thing]\nsize = -1", &[]).1.expect_err("a fault").to_string();
        assert!(faults.contains("size"), "{faults}");
    }

    #[test]
    fn sections_of_services_that_run_elsewhere_are_passed_over() {
        let (thing, faults) = load("[counter]\nanything = 1", &[("LIKEWISE__QUERY__ANYTHING", "x")]);
        assert_eq!((thing.is_some(), faults), (true, Ok(())));
    }

    #[test]
    fn only_open_tables_take_new_keys() {
        for name in ["LIKEWISE__THING__NAMES", "LIKEWISE__THING__NAME__FIRST", "LIKEWISE__THING__SERVERS__A__B"] {
            let faults = load("", &[(name, "x")]).1.expect_err("a fault").0;
            assert_eq!(faults.len(), 1, "{name}");
            assert!(faults[0].problem.contains("no such setting"), "{name}: {faults:?}");
        }
    }

    #[test]
    fn a_file_that_is_missing_or_no_toml_is_a_fault() {
        let faults = Loader::new(Some(Path::new("/nowhere/likewise.toml")), std::iter::empty()).finish();
        assert!(faults.expect_err("a fault").to_string().contains("/nowhere/likewise.toml: cannot be read"));
        let faults = load("\n[thing]\nname = \"secret", &[]).1.expect_err("a fault").to_string();
        assert!(faults.contains("line 3 is not TOML"), "{faults}");
        assert!(!faults.contains("secret"), "{faults}");
    }

    #[test]
    fn the_defaults_of_every_common_section_are_what_their_types_want() {
        let mut loader = Loader::new(None, std::iter::empty());
        assert!(Common::load(&mut loader).is_none(), "keys and servers have no default");
        let keys: Vec<String> = loader.finish().expect_err("faults").0.into_iter().map(|fault| fault.key).collect();
        let missing = ["auth.keys_file", "auth.service_key_file", "auth.cursor_keys_file", "postgres.servers"];
        assert_eq!(keys, missing);
    }

    #[test]
    fn inv_27_printing_hides_passwords() {
        for (text, shown) in [
            ("postgres://likewise:secret@db:5432/x", "postgres://***@db:5432/x"),
            ("host=db user=likewise password=secret", "host=db user=likewise password=***"),
            ("postgres://db/x?password=secret&sslmode=require", "postgres://db/x?password=***"),
            ("nats://a:secret@one:4222, nats://b:secret@two:4222", "nats://***@two:4222"),
            ("redis://:sec@ret@db:6379", "redis://***@db:6379"),
            ("postgres://a:se,cr@et@db/x", "postgres://***@db/x"),
            ("sslpassword=secret password=secret", "sslpassword=***"),
            ("127.0.0.1:7400", "127.0.0.1:7400"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }

    #[test]
    fn inv_27_settings_show_no_password_when_printed_for_debugging() {
        let mut loader = Loader::new(None, std::iter::empty());
        let redis: RedisSettings =
            loader.section("redis", "url = \"redis://:secret@db\"\nkey_prefix = \"\"\nconnections = 1\ncommand_timeout_ms = 1\nqueue_max = 1").expect("valid");
        assert!(!format!("{redis:?}").contains("secret"));
        assert!(!loader.print().contains("secret"));
    }
}
