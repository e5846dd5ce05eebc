//! Documents say what is there.

use std::collections::BTreeSet;

use likewise_dev::{matrix, settings};

use crate::source::{File, files, none, root};

/// Folders whose paths, written as code in a document, must exist.
const OURS: [&str; 8] = ["services/", "shared/", "proto/", "docs/", "integration-tests/", "helm/", ".ci/", ".cargo/"];

/// Targets of `[text](target)` outside code.
fn links(text: &str) -> Vec<String> {
    let parts = text.split("](").skip(1);
    parts.filter_map(|part| part.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// Words in single backticks, fenced blocks left out.
fn code_words(text: &str) -> Vec<String> {
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    prose.iter().flat_map(|part| part.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let heads = text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#').trim());
    let slug = |head: &str| -> String {
        let kept = head.to_lowercase();
        let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    heads.map(slug).collect()
}

fn documents() -> Vec<File> {
    files(&[".md"])
}

#[test]
fn links_lead_somewhere() {
    let mut findings = Vec::new();
    for file in documents() {
        let folder = root().join(&file.path).parent().unwrap().to_path_buf();
        for target in links(&file.text).into_iter().filter(|target| !target.contains("://")) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let whole = if path.is_empty() { root().join(&file.path) } else { folder.join(path) };
            if !whole.exists() {
                findings.push(format!("{}: {target}", file.path));
            } else if !anchor.is_empty() && whole.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&whole).unwrap();
                if !anchors(&text).contains(anchor) {
                    findings.push(format!("{}: {target} (no such heading)", file.path));
                }
            }
        }
    }
    none("a link leads nowhere", &findings);
}

#[test]
fn paths_in_documents_exist() {
    let mut findings = Vec::new();
    for file in documents() {
        for word in code_words(&file.text) {
            let is_plain = !word.contains(['*', '{', '<', ' ', '$']) && !word.contains("...");
            if is_plain && OURS.iter().any(|folder| word.starts_with(folder)) {
                let path = word.split_once(':').map_or(word.as_str(), |(path, _)| path);
                if !root().join(path).exists() {
                    findings.push(format!("{}: {word}", file.path));
                }
            }
        }
    }
    none("a path does not exist", &findings);
}

#[test]
fn settings_document_equals_the_defaults() {
    let written = std::fs::read_to_string(root().join("docs/settings.md")).unwrap_or_default();
    let wanted = settings::render(&root()).unwrap();
    assert!(written == wanted, "docs/settings.md differs from the defaults; type `cargo dev settings`");
}

#[test]
fn every_default_is_valid_toml() {
    for path in settings::files(&root()).unwrap() {
        let parsed: Result<toml::Table, _> = std::fs::read_to_string(&path).unwrap().parse();
        assert!(parsed.is_ok(), "{}: {parsed:?}", path.display());
    }
}

#[test]
fn nothing_is_left_to_do_without_an_issue() {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    let mut findings = Vec::new();
    for file in files(&[".rs", ".sql", ".lua", ".proto", ".md", ".toml", ".py", ".yaml"]) {
        for (number, line) in file.text.lines().enumerate() {
            let open = words.iter().any(|word| line.contains(word)) && !line.contains("(#");
            let third_party = ["proto/buf/", "proto/google/"].iter().any(|folder| file.path.starts_with(folder));
            if open && !third_party {
                findings.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    none("an open end names its issue, as in (#12)", &findings);
}

#[test]
fn tests_name_only_promises_that_exist() {
    let promises = matrix::promises(&root()).unwrap();
    let mut findings = Vec::new();
    for file in files(&[".rs"]).into_iter().filter(|file| !file.path.starts_with("shared/dev/")) {
        let words = file.text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let ids: BTreeSet<String> = words.flat_map(matrix::ids_in).collect();
        findings
            .extend(ids.into_iter().filter(|id| !promises.contains_key(id)).map(|id| format!("{}: {id}", file.path)));
    }
    none("no document has this id", &findings);
}

#[test]
fn no_registry_host_is_named() {
    let hosts = [
        concat!("pypi", ".org"),
        concat!("registry.", "npmjs"),
        concat!("index.", "crates.io"),
        concat!("deb.", "debian"),
    ];
    let mut findings = Vec::new();
    for file in files(&[".rs", ".sh", ".md", ".toml", ".py", ".yaml", ".json", "run", ".txt"]) {
        let found = hosts.iter().filter(|host| file.text.contains(**host));
        findings.extend(found.map(|host| format!("{}: {host}", file.path)));
    }
    none("package managers know their hosts", &findings);
}

#[test]
fn code_words_and_anchors_are_read_as_people_write_them() {
    assert_eq!(code_words("a `b/c` d\n```\n`x`\n```\n`e`"), ["b/c", "e"]);
    assert!(anchors("# A b\n## What's `c`?\n").contains("whats-c"));
    assert_eq!(links("see [x](y.md#z) and [w](v)"), ["y.md#z", "v"]);
}
