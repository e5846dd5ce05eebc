//! `cargo dev matrix`: which promises have a test. Ids come from the documents, proofs from the test binaries themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use likewise_devstack::workspace;

use crate::site::step;
use crate::test::cargo;

/// What to list.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Ids that must have a test, for example `INV-01..06,CASE-46`; names the missing ones and fails
    #[arg(long, value_delimiter = ',', value_name = "ID,ID")]
    require: Vec<String>,
    /// List the tests of each id, too
    #[arg(long)]
    tests: bool,
}

/// The documents that state promises.
const DOCUMENTS: [&str; 2] = ["docs/invariants.md", "docs/scenarios.md"];
/// Kinds of ids, as documents and tests write them.
const KINDS: [(&str, &str); 4] = [("INV", "inv"), ("CASE", "case"), ("DRILL", "drill"), ("SCN", "scn")];

/// Lists all ids with their proofs.
///
/// # Errors
/// When tests do not build, a test names an id that no document has, or a required id has no test.
pub fn run(arguments: &Arguments) -> Result<()> {
    let promises = promises(&workspace())?;
    let mut proofs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for test in list_tests()? {
        for id in ids_in(&test) {
            proofs.entry(id).or_default().insert(test.clone());
        }
    }
    let unknown: Vec<&String> = proofs.keys().filter(|id| !promises.contains_key(*id)).collect();
    print(&promises, &proofs, arguments.tests);
    if !unknown.is_empty() {
        bail!("tests name ids that no document has: {unknown:?}");
    }
    let mut missing = Vec::new();
    for id in expand(&arguments.require)? {
        if !promises.contains_key(&id) {
            bail!("no document has {id}");
        }
        if !proofs.contains_key(&id) {
            missing.push(id);
        }
    }
    if !missing.is_empty() {
        bail!("required and without a test: {}", missing.join(", "));
    }
    Ok(())
}

fn print(promises: &BTreeMap<String, String>, proofs: &BTreeMap<String, BTreeSet<String>>, with_tests: bool) {
    for (id, statement) in promises {
        let tests = proofs.get(id).map_or(0, BTreeSet::len);
        let mark = if tests == 0 { "  -".to_owned() } else { format!("{tests:>3}") };
        let short: String = statement.chars().take(90).collect();
        println!("{id:<9} {mark}  {short}{}", if short.len() < statement.len() { "..." } else { "" });
        if with_tests {
            proofs.get(id).into_iter().flatten().for_each(|test| println!("               {test}"));
        }
    }
    let proven = promises.keys().filter(|id| proofs.contains_key(*id)).count();
    println!("\n{proven} of {} promises have a test", promises.len());
}

/// Ids and statements: the rows of tables whose first cell is an id.
///
/// # Errors
/// When a document cannot be read, or states an id twice.
pub fn promises(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for name in DOCUMENTS {
        let text = fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"))?;
        for line in text.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let Some(id) = cells.first().filter(|id| is_id(id)) else { continue };
            if all.insert((*id).to_owned(), cells[1..].join(": ")).is_some() {
                bail!("{name} states {id} twice");
            }
        }
    }
    Ok(all)
}

fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(kind, number)| {
        KINDS.iter().any(|(upper, _)| *upper == kind) && number.chars().any(|letter| letter.is_ascii_digit())
    })
}

/// The ids that a test's name carries: `inv_03`, `case_14`, `drill_07`, `scn_b03`, anywhere in its last segment.
pub fn ids_in(test: &str) -> BTreeSet<String> {
    let name = test.rsplit("::").next().unwrap_or(test);
    let words: Vec<&str> = name.split('_').collect();
    let pairs = words.windows(2).filter_map(|pair| {
        let (upper, _) = KINDS.iter().find(|(_, lower)| *lower == pair[0])?;
        let digits = pair[1].trim_start_matches(|letter: char| *upper == "SCN" && letter.is_ascii_alphabetic());
        let is_number = digits.len() == 2 && digits.chars().all(|digit| digit.is_ascii_digit());
        is_number.then(|| format!("{upper}-{}", pair[1].to_uppercase()))
    });
    pairs.collect()
}

/// Turns `INV-01..06` into its ids.
fn expand(named: &[String]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for word in named.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
        let Some((from, to)) = word.split_once("..") else {
            all.push(word.to_owned());
            continue;
        };
        let parts = from.split_once('-').and_then(|(kind, from)| Some((kind, from.parse().ok()?, to.parse().ok()?)));
        let Some((kind, from, to)): Option<(&str, u32, u32)> = parts else { bail!("{word} is no range of ids") };
        all.extend((from..=to).map(|number| format!("{kind}-{number:02}")));
    }
    Ok(all)
}

/// Builds all tests and asks each binary what it holds.
fn list_tests() -> Result<Vec<String>> {
    step("building all tests");
    let mut build = cargo();
    build.args(["test", "--quiet", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let output = build.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("starting cargo test")?;
    if !output.status.success() {
        bail!("the tests do not build; its own words stand above");
    }
    let mut all = Vec::new();
    for binary in executables(&String::from_utf8_lossy(&output.stdout)) {
        let listed = Command::new(&binary).args(["--list", "--format", "terse"]).stdin(Stdio::null()).output();
        let listed = listed.with_context(|| format!("asking {}", binary.display()))?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        all.extend(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned));
    }
    Ok(all)
}

fn executables(messages: &str) -> Vec<PathBuf> {
    let parsed = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let tests = parsed.filter(|message| message["profile"]["test"] == true);
    tests.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_ids() {
        let check = |name: &str, expected: &[&str]| {
            let expected: BTreeSet<String> = expected.iter().map(|id| (*id).to_owned()).collect();
            assert_eq!(ids_in(name), expected, "{name}");
        };
        check("crash::inv_01_inv_06_killed_at_random", &["INV-01", "INV-06"]);
        check("it::scn_b03_first_seen_unliked", &["SCN-B03"]);
        check("case_46_account_half", &["CASE-46"]);
        check("inv_03::other_case_by_case", &[]);
        check("in_case_100", &[]);
    }

    #[test]
    fn ranges_expand() {
        let named = ["INV-01..03".to_owned(), "CASE-46".to_owned()];
        assert_eq!(expand(&named).unwrap(), ["INV-01", "INV-02", "INV-03", "CASE-46"]);
        assert!(expand(&["INV..3".to_owned()]).is_err());
    }

    #[test]
    fn rows_of_tables_are_promises() {
        let folder = workspace();
        let all = promises(&folder).unwrap();
        assert!(all.keys().all(|id| is_id(id)));
        assert!(all.contains_key("INV-27") && all.contains_key("CASE-52") && all.contains_key("SCN-J09"));
    }
}
