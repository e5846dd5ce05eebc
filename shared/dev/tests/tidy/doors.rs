//! Doors: each driver is named only in the modules that are made for it.

use crate::source::{File, files, none, without_tests};

/// Where a crate may be named, as modules of the crate below the prefix.
struct Door {
    below: &'static str,
    crates: &'static [&'static str],
    modules: &'static [&'static str],
}

const DOORS: [Door; 8] = [
    Door { below: "services/", crates: &["tokio_postgres", "deadpool_postgres"], modules: &["store"] },
    Door { below: "services/", crates: &["fred"], modules: &["cache"] },
    Door { below: "services/", crates: &["async_nats"], modules: &[] },
    Door {
        below: "services/",
        crates: &["tonic", "prost", "prost_types", "tonic_types", "likewise_proto"],
        modules: &["grpc", "clients", "consumer", "publisher", "lib"],
    },
    Door {
        below: "shared/kit/",
        crates: &["tokio_postgres", "deadpool_postgres"],
        modules: &["pg", "lease", "lanes", "run"],
    },
    Door { below: "shared/kit/", crates: &["fred"], modules: &["redis", "run"] },
    Door { below: "shared/kit/", crates: &["async_nats"], modules: &["lanes", "run"] },
    Door {
        below: "shared/domain/",
        crates: &[
            "tokio",
            "tonic",
            "prost",
            "likewise_proto",
            "tokio_postgres",
            "fred",
            "async_nats",
            "std::fs",
            "std::net",
            "std::env",
            "std::process",
        ],
        modules: &[],
    },
];

/// Clocks and chance, which are arguments of everything pure.
const RIM: [&str; 5] = ["SystemTime::now", "Instant::now", "OffsetDateTime::now_utc", "rand::rng", "Uuid::new_v4"];

/// The top module of a source file: `store` for `services/command/src/store/outbox.rs`.
fn module(file: &File) -> Option<&str> {
    let inside = file.path.split_once("/src/")?.1;
    let first = inside.split('/').next()?;
    Some(first.trim_end_matches(".rs"))
}

fn sources(below: &str) -> Vec<File> {
    files(&[".rs"]).into_iter().filter(|file| file.path.starts_with(below) && file.path.contains("/src/")).collect()
}

/// Lines of code that name the path, comments left out.
fn named<'a>(text: &'a str, path: &'a str) -> impl Iterator<Item = usize> + 'a {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines.filter(move |(_, line)| names(line, path)).map(|(number, _)| number + 1)
}

fn names(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        let is_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        let is_path = line[at + path.len()..].starts_with("::") || line.trim_start().starts_with("use ");
        !is_word(before) && !is_word(after) && before != Some('"') && (is_path || path.contains("::"))
    })
}

#[test]
fn drivers_are_named_only_at_their_doors() {
    let mut findings = Vec::new();
    for door in &DOORS {
        for file in sources(door.below) {
            let here = module(&file).unwrap_or_default();
            if door.modules.contains(&here) {
                continue;
            }
            for name in door.crates {
                let lines = named(without_tests(&file.text), name).map(|line| format!("{}:{line}: {name}", file.path));
                findings.extend(lines);
            }
        }
    }
    none("a driver or wire type is named behind its door", &findings);
}

#[test]
fn domain_asks_no_clock_and_no_dice() {
    let mut findings = Vec::new();
    for file in sources("shared/domain/") {
        for name in RIM {
            findings.extend(named(without_tests(&file.text), name).map(|line| format!("{}:{line}: {name}", file.path)));
        }
    }
    none("time, chance and identity are arguments", &findings);
}

#[test]
fn kit_knows_no_word_of_the_domain() {
    let mut findings = Vec::new();
    for file in sources("shared/kit/") {
        let words = ["relation", "LikeState", "vbucket", "liker"];
        for (number, line) in without_tests(&file.text).lines().enumerate() {
            let is_code = !line.trim_start().starts_with("//");
            let found = words.iter().filter(|word| is_code && line.to_lowercase().contains(&word.to_lowercase()));
            findings.extend(found.map(|word| format!("{}:{}: {word}", file.path, number + 1)));
        }
    }
    none("kit is machinery", &findings);
}

#[test]
fn a_name_is_found_as_a_path_and_not_inside_another() {
    assert!(names("use fred::clients::Pool;", "fred"));
    assert!(names("let pool: fred::clients::Pool = x;", "fred"));
    assert!(!names("let alfred::x = 1;", "fred"));
    assert!(!names("fn fred() {}", "fred"));
    assert!(!names("likewise_kit::tonic_types::x", "tonic"));
}
