//! Laying a file's table and the environment's variables over the defaults.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::{ENVIRONMENT_PREFIX, Fault};

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

/// Lays what a file gives for `path` over the defaults.
pub(super) fn file(path: &str, defaults: &mut Table, given: Value, faults: &mut Vec<Fault>) {
    let Value::Table(given) = given else {
        faults.push(Fault::new(path, "must be a table"));
        return;
    };
    // A table that is empty in the defaults is open: its keys are the operator's.
    let open = defaults.is_empty();
    for (key, value) in given {
        let full = format!("{path}.{key}");
        match defaults.get_mut(&key) {
            None if open => {
                defaults.insert(key, value);
            }
            None => faults.push(Fault::new(full, "no such setting (in the configuration file)")),
            Some(Value::Table(inner)) => file(&full, inner, value, faults),
            Some(default) => match fit(default, value) {
                Ok(value) => *default = value,
                Err(expected) => faults.push(Fault::new(full, format!("must be {expected} (in the configuration file)"))),
            },
        }
    }
}

fn fit(default: &Value, given: Value) -> Result<Value, &'static str> {
    match (default, given) {
        (Value::Float(_), Value::Integer(number)) => {
            #[allow(clippy::cast_precision_loss, reason = "a setting is far below 2^52")]
            Ok(Value::Float(number as f64))
        }
        (default, given) if default.same_type(&given) => Ok(given),
        (default, _) => Err(kind(default)),
    }
}

/// Lays the variables that name `section` over the defaults and takes them out of `variables`.
pub(super) fn environment(
    section: &str,
    defaults: &mut Table,
    variables: &mut BTreeMap<String, String>,
    faults: &mut Vec<Fault>,
) {
    let prefix = format!("{ENVIRONMENT_PREFIX}{}__", section.to_uppercase());
    let names: Vec<String> = variables.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
    for name in names {
        let Some(text) = variables.remove(&name) else { continue };
        let path: Vec<String> = name[prefix.len()..].split("__").map(str::to_lowercase).collect();
        let full = format!("{section}.{}", path.join("."));
        if let Err(problem) = set(defaults, &path, &text) {
            faults.push(Fault::new(full, format!("{problem} (in the environment variable {name})")));
        }
    }
}

fn set(table: &mut Table, path: &[String], text: &str) -> Result<(), String> {
    let Some((key, rest)) = path.split_first() else { return Err("no such setting".to_owned()) };
    let open = table.is_empty() || table.values().all(|value| matches!(value, Value::String(_)));
    match table.get_mut(key) {
        Some(Value::Table(inner)) if !rest.is_empty() => set(inner, rest, text),
        Some(default) if rest.is_empty() => {
            *default = parse(default, text)?;
            Ok(())
        }
        None if open && rest.is_empty() => {
            table.insert(key.clone(), Value::String(text.to_owned()));
            Ok(())
        }
        _ => Err("no such setting".to_owned()),
    }
}

fn parse(default: &Value, text: &str) -> Result<Value, String> {
    let parsed = match default {
        Value::String(_) => Some(Value::String(text.to_owned())),
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Float(_) => text.parse().ok().map(Value::Float),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        Value::Array(_) | Value::Table(_) | Value::Datetime(_) => {
            let whole: Option<Table> = format!("value = {text}").parse().ok();
            whole.and_then(|mut table| table.remove("value")).filter(|value| value.same_type(default))
        }
    };
    parsed.ok_or_else(|| format!("must be {}", kind(default)))
}
