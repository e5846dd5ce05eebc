//! `cargo dev lint`: everything that can be checked without running the product.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use likewise_devstack::{Place, buf, run_shown, workspace};

use crate::site::step;
use crate::test::cargo;

/// What to check.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Version of the contracts that must not be broken, as git names it
    #[arg(long, env = "LIKEWISE_BREAKING_BASE")]
    base: Option<String>,
}

/// Runs every check, also after one failed, and names those that did.
///
/// # Errors
/// When a check failed; with the commands that show it alone.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut failed = Vec::new();
    let mut check = |what: &str, command: &mut Command| {
        step(what);
        if let Err(error) = run_shown(command.current_dir(workspace())) {
            eprintln!("cargo dev: {error:#}");
            failed.push(format!("{what}: {}", shown(command)));
        }
    };
    check("format", cargo().args(["fmt", "--all", "--check"]));
    check("clippy", cargo().args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    check(
        "the rules of this repository",
        cargo().args(["test", "--quiet", "--package", "likewise-dev", "--test", "tidy"]),
    );

    let buf = buf(&Place::find()?)?;
    check("contracts", Command::new(&buf).args(["lint", "proto"]));
    match base(arguments.base.as_deref()) {
        Some(base) => {
            let against = format!(".git#ref={base},subdir=proto");
            check(
                "contracts against the last landed ones",
                Command::new(&buf).args(["breaking", "proto", "--against", &against]),
            );
        }
        None => step("contracts against the last landed ones: left out, there is no earlier commit here"),
    }
    if crate::test::cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        check(
            "licences and sources",
            cargo().args(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]),
        );
    } else {
        step("licences and sources: left out, type `cargo install --locked cargo-deny` to have them checked");
    }
    if failed.is_empty() {
        step("all checks passed");
        return Ok(());
    }
    bail!("{} checks failed; each alone:\n  {}", failed.len(), failed.join("\n  "))
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The commit of the last landed contracts: the remote's main, else our own.
fn base(named: Option<&str>) -> Option<String> {
    let candidates = named.into_iter().chain(["origin/main", "main", "HEAD"]);
    candidates.into_iter().find_map(|name| commit(name).filter(|commit| has_contracts(commit)))
}

fn commit(name: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(workspace()).args(["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")]);
    let output = git.stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn has_contracts(commit: &str) -> bool {
    let mut git = Command::new("git");
    git.current_dir(workspace()).args(["cat-file", "-e", &format!("{commit}:proto/buf.yaml")]);
    git.stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
