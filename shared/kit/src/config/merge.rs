//! Laying a file's table and the environment's variables over the defaults.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::{ENVIRONMENT_PREFIX, Fault};

/// Says in words that it was the file.
pub(super) const FILE: &str = "in the configuration file";

/// Says in words which variable it was.
fn variable(name: &str) -> String {
    format!("in the environment variable {name}")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a time",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// One section in the making: what is legal in it, and where its values came from.
pub(super) struct Section<'a> {
    pub(super) name: &'static str,
    /// The defaults. A table that is empty here is open: its keys are the operator's.
    pub(super) legal: &'a Table,
    pub(super) faults: &'a mut Vec<Fault>,
    /// Full key -> where its value was set.
    pub(super) origins: &'a mut BTreeMap<String, String>,
}

impl Section<'_> {
    /// Lays what a file gives over `table`.
    pub(super) fn file(&mut self, table: &mut Table, given: Value) {
        let legal = self.legal;
        self.file_table(self.name, legal, table, given);
    }

    fn file_table(&mut self, path: &str, legal: &Table, table: &mut Table, given: Value) {
        let Value::Table(given) = given else {
            self.faults.push(Fault::new(path, format!("must be a table ({FILE})")));
            return;
        };
        for (key, value) in given {
            let full = format!("{path}.{key}");
            match (legal.get(&key), table.get_mut(&key)) {
                (Some(Value::Table(legal)), Some(Value::Table(inner))) => self.file_table(&full, legal, inner, value),
                (Some(default), _) => match fit(default, value) {
                    Ok(value) => self.set(full, table, key, value, FILE.to_owned()),
                    Err(expected) => self.faults.push(Fault::new(full, format!("must be {expected} ({FILE})"))),
                },
                (None, _) if legal.is_empty() => self.set(full, table, key, value, FILE.to_owned()),
                (None, _) => self.faults.push(Fault::new(full, format!("no such setting ({FILE})"))),
            }
        }
    }

    fn set(&mut self, full: String, table: &mut Table, key: String, value: Value, origin: String) {
        self.origins.insert(full, origin);
        table.insert(key, value);
    }

    /// Lays the variables that name this section over `table` and takes them out of `variables`.
    pub(super) fn environment(&mut self, table: &mut Table, variables: &mut BTreeMap<String, String>) {
        let prefix = format!("{ENVIRONMENT_PREFIX}{}__", self.name.to_uppercase());
        let ours = |name: &String| name.starts_with(&prefix);
        let names: Vec<String> = variables.keys().filter(|name| ours(name)).cloned().collect();
        for name in names {
            let Some(text) = variables.remove(&name) else { continue };
            let path: Vec<String> = name[prefix.len()..].split("__").map(str::to_lowercase).collect();
            let full = format!("{}.{}", self.name, path.join("."));
            match put(self.legal, table, &path, &text) {
                Ok(()) => drop(self.origins.insert(full, variable(&name))),
                Err(problem) => self.faults.push(Fault::new(full, format!("{problem} ({})", variable(&name)))),
            }
        }
    }
}

fn fit(default: &Value, given: Value) -> Result<Value, &'static str> {
    match (default, given) {
        (Value::Float(_), Value::Integer(number)) =>
        {
            #[allow(clippy::cast_precision_loss, reason = "a setting is far below 2^52")]
            Ok(Value::Float(number as f64))
        }
        (default, given) if default.same_type(&given) => Ok(given),
        (default, _) => Err(kind(default)),
    }
}

fn put(legal: &Table, table: &mut Table, path: &[String], text: &str) -> Result<(), String> {
    let missing = || Err("no such setting".to_owned());
    let Some((key, rest)) = path.split_first() else { return missing() };
    match (legal.get(key), table.get_mut(key)) {
        (Some(Value::Table(legal)), Some(Value::Table(inner))) if !rest.is_empty() => put(legal, inner, rest, text),
        (Some(default), Some(value)) if rest.is_empty() => {
            *value = parse(default, text)?;
            Ok(())
        }
        (None, Some(value)) if rest.is_empty() => {
            // Set by the file in an open table, which tells the type.
            *value = parse(value, text)?;
            Ok(())
        }
        (None, None) if legal.is_empty() && rest.is_empty() => {
            table.insert(key.clone(), Value::String(text.to_owned()));
            Ok(())
        }
        _ => missing(),
    }
}

fn parse(like: &Value, text: &str) -> Result<Value, String> {
    let parsed = match like {
        Value::String(_) => Some(Value::String(text.to_owned())),
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Float(_) => text.parse().ok().map(Value::Float),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        Value::Array(_) | Value::Table(_) | Value::Datetime(_) => {
            let whole: Option<Table> = format!("value = {text}").parse().ok();
            whole.and_then(|mut table| table.remove("value")).filter(|value| value.same_type(like))
        }
    };
    parsed.ok_or_else(|| format!("must be {}", kind(like)))
}
