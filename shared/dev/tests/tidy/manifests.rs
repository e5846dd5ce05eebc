//! What the manifests say: one version of everything, one set of lints, and who may depend on whom.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::source::{files, none, root};

/// Crates that do input and output, tell the time, or are wire types.
const NOT_PURE: [&str; 13] = [
    "tokio",
    "mio",
    "socket2",
    "hyper",
    "tonic",
    "prost",
    "tokio-postgres",
    "deadpool-postgres",
    "fred",
    "async-nats",
    "tracing-subscriber",
    "reqwest",
    "rustix",
];

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // A fresh machine holds no package of other platforms.
    let version = Command::new(&cargo).arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo tells its host");
    let arguments = ["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host];
    let output = Command::new(cargo).current_dir(root()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Names of what each package depends on when it is built for use, by package id.
fn normal_dependencies(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let edges = nodes.iter().map(|node| {
        let normal = node["deps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|edge| edge["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].is_null()));
        let ids = normal.map(|edge| edge["pkg"].as_str().unwrap().to_owned()).collect();
        (node["id"].as_str().unwrap().to_owned(), ids)
    });
    edges.collect()
}

fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    let ids: BTreeSet<&str> =
        metadata["workspace_members"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    metadata["packages"].as_array().unwrap().iter().filter(move |package| ids.contains(package["id"].as_str().unwrap()))
}

#[test]
fn domain_reaches_no_crate_that_does_input_or_output() {
    let metadata = metadata();
    let names: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package["name"].as_str().unwrap()))
        .collect();
    let edges = normal_dependencies(&metadata);
    let domain = names.iter().find(|(_, name)| **name == "likewise-domain").unwrap().0;
    let (mut seen, mut open) = (BTreeSet::new(), vec![(*domain).to_owned()]);
    while let Some(id) = open.pop() {
        if seen.insert(id.clone()) {
            open.extend(edges.get(&id).into_iter().flatten().cloned());
        }
    }
    let impure = seen.iter().map(|id| names[id.as_str()]).filter(|name| NOT_PURE.contains(name));
    none("likewise-domain must stay pure, but reaches", &impure.map(str::to_owned).collect::<Vec<_>>());
}

#[test]
fn no_service_depends_on_a_service() {
    let metadata = metadata();
    let is_service = |package: &Value| package["manifest_path"].as_str().unwrap().contains("/services/");
    let services: BTreeSet<&str> = members(&metadata)
        .filter(|package| is_service(package))
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let mut findings = Vec::new();
    for package in members(&metadata).filter(|package| is_service(package)) {
        let name = package["name"].as_str().unwrap();
        let uses = package["dependencies"].as_array().unwrap().iter().map(|used| used["name"].as_str().unwrap());
        let others = uses.filter(|used| services.contains(used) && name != "likewise-standalone");
        findings.extend(others.map(|used| format!("{name} depends on {used}")));
    }
    none("services speak gRPC to each other; only standalone links them", &findings);
}

#[test]
fn development_crates_are_not_shipped() {
    let metadata = metadata();
    let development = ["likewise-devstack", "likewise-dev"];
    let mut findings = Vec::new();
    for package in members(&metadata) {
        let name = package["name"].as_str().unwrap();
        if name == "likewise-dev" {
            continue;
        }
        let used = package["dependencies"].as_array().unwrap().iter();
        let shipped = used.filter(|used| used["kind"].is_null()).map(|used| used["name"].as_str().unwrap());
        findings.extend(shipped.filter(|used| development.contains(used)).map(|used| format!("{name} ships {used}")));
    }
    none("development crates are dev-dependencies", &findings);
}

#[test]
fn manifests_take_versions_and_lints_from_the_workspace() {
    let mut findings = Vec::new();
    let inherited = ["version", "edition", "rust-version", "license", "publish"];
    for file in files(&["Cargo.toml"]).into_iter().filter(|file| file.path != "Cargo.toml") {
        let manifest: toml::Table = file.text.parse().unwrap();
        let from_workspace = |value: Option<&toml::Value>| {
            value.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
        };
        let missing = inherited.iter().filter(|key| !from_workspace(manifest["package"].get(**key)));
        findings.extend(missing.map(|key| format!("{}: {key}.workspace = true is missing", file.path)));
        if !from_workspace(manifest.get("lints")) {
            findings.push(format!("{}: [lints] workspace = true is missing", file.path));
        }
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let named = manifest.get(kind).and_then(toml::Value::as_table).into_iter().flatten();
            let own = named.filter(|(_, value)| !from_workspace(Some(value)));
            findings.extend(own.map(|(name, _)| format!("{}: {name} does not come from the workspace", file.path)));
        }
    }
    none("one version of everything stands in the root manifest", &findings);
}
