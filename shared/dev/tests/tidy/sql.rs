//! SQL lives in files of its own: one statement with one name, used by one `include_str!`. Migrations have no gaps.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{File, files, none};

fn statements() -> Vec<File> {
    files(&[".sql"])
        .into_iter()
        .filter(|file| !file.path.contains("/migrations/") && file.path.contains("/src/"))
        .collect()
}

/// The text without comments and quoted strings.
fn bare(text: &str) -> String {
    let code: Vec<&str> = text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    code.join("\n").split('\'').step_by(2).collect::<Vec<_>>().join("''")
}

#[test]
fn a_statement_has_a_name_and_is_alone() {
    let mut findings = Vec::new();
    for file in statements() {
        let first = file.text.lines().next().unwrap_or_default();
        let name = first.strip_prefix("-- ").and_then(|rest| rest.split_once(": ")).map_or("", |(name, _)| name);
        let stem = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".sql");
        if name.rsplit_once('.').is_none_or(|(_, last)| last != stem) {
            findings.push(format!("{}: line 1 must be `-- <owner>.{stem}: what it does`", file.path));
        }
        let code = bare(&file.text).to_lowercase();
        let parts: Vec<&str> = code.split(';').map(str::trim).filter(|part| !part.is_empty()).collect();
        // Settings of a transaction are one act.
        let are_settings = parts.iter().all(|part| part.starts_with("set local "));
        if parts.len() != 1 && !are_settings {
            findings.push(format!("{}: more than one statement", file.path));
        }
    }
    none("one statement, one name, one file", &findings);
}

#[test]
fn every_statement_is_used() {
    let sources = files(&[".rs"]);
    let mut findings = Vec::new();
    for file in files(&[".sql", ".lua"])
        .into_iter()
        .filter(|file| file.path.contains("/src/") || file.path.contains("/migrations/"))
    {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let stem = name.split('.').next().unwrap_or_default();
        let owner: String = file.path.split('/').take(2).collect::<Vec<_>>().join("/");
        let mut own = sources.iter().filter(|source| source.path.starts_with(&owner));
        // By its whole name, or by its stem where a macro puts the path together.
        if !own.any(|source| source.text.contains(name) || source.text.contains(&format!("\"{stem}\""))) {
            findings.push(format!("{}: nobody includes it", file.path));
        }
    }
    none("no dead SQL", &findings);
}

#[test]
fn rust_holds_no_statements() {
    let verbs = ["\"SELECT ", "\"INSERT ", "\"UPDATE ", "\"DELETE ", "\"WITH "];
    let mut findings = Vec::new();
    for file in
        files(&[".rs"]).into_iter().filter(|file| file.path.starts_with("services/") && file.path.contains("/src/"))
    {
        let code = crate::source::without_tests(&file.text);
        let lines = code.lines().enumerate().filter(|(_, line)| verbs.iter().any(|verb| line.contains(verb)));
        findings.extend(lines.map(|(number, _)| format!("{}:{}", file.path, number + 1)));
    }
    none("SQL stands in .sql files", &findings);
}

#[test]
fn migrations_are_numbered_without_gaps() {
    let mut folders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files(&[".sql"]).into_iter().filter(|file| file.path.contains("/migrations/")) {
        let (folder, name) = file.path.rsplit_once('/').unwrap();
        folders.entry(folder.to_owned()).or_default().push(name.to_owned());
    }
    let mut findings = Vec::new();
    for (folder, names) in folders {
        for (number, name) in names.iter().filter(|name| !name.contains(".undo.")).enumerate() {
            if !name.starts_with(&format!("V{:04}__", number + 1)) {
                findings.push(format!("{folder}/{name}: expected V{:04}__...", number + 1));
            }
        }
    }
    none("migrations are numbered from V0001 without gaps", &findings);
}

/// Tables that each service's migrations create.
fn tables() -> BTreeMap<String, BTreeSet<String>> {
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files(&[".sql"]).into_iter().filter(|file| file.path.contains("/migrations/")) {
        let Some(service) = file.path.split('/').nth(1) else { continue };
        let code = bare(&file.text).to_lowercase();
        for rest in code.split("create table ").skip(1) {
            let rest = rest.trim_start_matches("if not exists ");
            let name: String = rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
            owners.entry(name).or_default().insert(service.to_owned());
        }
    }
    owners
}

/// Names after the words that precede a table.
fn named_tables(code: &str) -> BTreeSet<String> {
    let words: Vec<&str> = code.split_whitespace().collect();
    let before = ["from", "join", "into", "update", "only"];
    let pairs = words.windows(2).filter(|pair| before.contains(&pair[0]));
    let named = pairs.map(|pair| pair[1].trim_matches(['(', ')', ',', ';']));
    named.filter(|name| *name != "only").map(str::to_owned).collect()
}

#[test]
fn a_service_names_only_its_own_tables() {
    let owners = tables();
    let mut findings = Vec::new();
    for file in files(&[".sql"]).into_iter().filter(|file| file.path.starts_with("services/")) {
        let service = file.path.split('/').nth(1).unwrap_or_default();
        for name in named_tables(&bare(&file.text).to_lowercase()) {
            let (schema, table) = name.split_once('.').unwrap_or(("", &name));
            let is_foreign = owners.get(table).is_some_and(|owners| !owners.contains(service));
            let is_reached = !schema.is_empty() && !["pg_catalog", "information_schema"].contains(&schema);
            if is_foreign || (is_reached && owners.contains_key(table)) {
                findings.push(format!("{}: {name}", file.path));
            }
        }
    }
    none("a table is named only by the service whose migrations create it, without a schema", &findings);
}

#[test]
fn tables_are_found_where_statements_name_them() {
    let named = named_tables("insert into a (x) select 1 from b, lateral (select from only c) join content.post p");
    assert_eq!(named.into_iter().collect::<Vec<_>>(), ["a", "b", "c", "content.post"]);
    let owners = tables();
    assert!(owners["like_relation"].contains("command") && owners["account"].contains("content"));
}
