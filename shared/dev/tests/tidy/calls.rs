//! Who calls whom: the table of ARCHITECTURE.md equals the clients that services use, and has no cycle.
//!
//! The table stands below the heading `Who calls whom`; each row names one caller and one callee:
//! `` | `query` | `counter` | `CountService` | ``.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{files, none, root};

type Call = (String, String, String);

/// The table: caller, callee, gRPC service.
fn documented() -> BTreeSet<Call> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap_or_default();
    let below = text.split_once("Who calls whom").map_or("", |(_, below)| below);
    let section = below.split("\n## ").next().unwrap_or_default();
    let mut calls = BTreeSet::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [caller, callee, services, ..] = cells.as_slice() else { continue };
        let plain = |cell: &str| cell.replace('`', "");
        for service in plain(services).split(',').map(str::trim) {
            calls.insert((plain(caller), plain(callee), service.to_owned()));
        }
    }
    calls
}

/// Which service serves a gRPC service: the one whose package it is in. The policy contract is served by content, facts
/// by command. Lanes are served by every service, so the client's field says which one is meant.
fn owner(package: &str) -> &str {
    match package {
        "policy" => "content",
        "facts" => "command",
        "reverse_index" => "reverse-index",
        other => other,
    }
}

/// Clients named in `clients.rs` and `clients/` of each service: caller, package, gRPC service.
fn used() -> BTreeSet<Call> {
    let mut calls = BTreeSet::new();
    for file in files(&[".rs"]) {
        let Some((service, inside)) = file.path.strip_prefix("services/").and_then(|rest| rest.split_once("/src/"))
        else {
            continue;
        };
        if inside != "clients.rs" && !inside.starts_with("clients/") {
            continue;
        }
        for line in file.text.lines().filter(|line| line.trim_start().starts_with("use likewise_proto::")) {
            let words: Vec<&str> = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
            let package = words.iter().position(|word| *word == "likewise_proto").and_then(|at| words.get(at + 2));
            let clients = words.iter().filter_map(|word| word.strip_suffix("Client"));
            for client in clients {
                calls.insert((service.to_owned(), (*package.unwrap()).to_owned(), client.to_owned()));
            }
        }
    }
    calls
}

#[test]
fn the_call_table_equals_the_clients_that_are_used() {
    let documented = documented();
    let mut findings = Vec::new();
    for (caller, package, service) in used() {
        let is_there = documented.iter().any(|(from, to, named)| {
            *from == caller && *named == service && (package == "lanes" || to == owner(&package))
        });
        if !is_there {
            findings.push(format!("services/{caller} uses {service} of {package}; ARCHITECTURE.md does not say so"));
        }
    }
    let used = used();
    for (from, to, service) in &documented {
        let is_used = used.iter().any(|(caller, package, named)| {
            caller == from && named == service && (package == "lanes" || owner(package) == to)
        });
        if !is_used {
            findings.push(format!("ARCHITECTURE.md lets {from} call {service} of {to}; no client of it is there"));
        }
    }
    none("the table `Who calls whom` and the clients differ", &findings);
}

/// Watching lanes is no dependency: it answers from what the process knows and calls nobody.
#[test]
fn calls_have_no_cycle() {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to, service) in documented() {
        if service != "LaneService" {
            edges.entry(from).or_default().insert(to);
        }
    }
    let mut findings = Vec::new();
    for start in edges.keys() {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(at) = open.pop() {
            for next in edges.get(at).into_iter().flatten() {
                if next == start {
                    findings.push(format!("{start} is called on behalf of its own call, by {at}"));
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
    }
    none("calls go round in circles", &findings);
}
