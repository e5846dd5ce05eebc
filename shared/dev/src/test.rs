//! `cargo dev test`: the servers once, then `cargo test`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};
use likewise_devstack::{Stack, StackSpec, interrupt_group, run_shown, workspace};

use crate::site::step;
use crate::up::ended;

/// What to test.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Passed to `cargo test`, for example `-p likewise-command inv_03`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo: Vec<String>,
}

/// Whole-system tests wait for stores most of the time; more of them at once than this only wait for each other.
const THREADS_MAX: usize = 8;

/// Builds everything, starts the servers, runs the tests, stops the servers.
///
/// # Errors
/// When something does not build or start, or a test fails.
pub async fn run(arguments: Arguments) -> Result<()> {
    let is_whole = !names_packages(&arguments.cargo);
    let binaries = if is_whole { Some(build_all()?) } else { None };
    let stack = tokio::task::spawn_blocking(|| Stack::start(StackSpec::default())).await??;
    let file = stack.address().folder.join("stack.json");
    stack.describe(&file)?;

    let mut test = cargo_test(&arguments.cargo, is_whole, &file);
    if let Some(folder) = &binaries {
        test.env("LIKEWISE_BIN_DIR", folder);
    }
    step(&format!("running {test:?}"));
    let mut test = tokio::process::Command::from(test);
    let mut child = test.process_group(0).spawn().context("starting cargo test")?;
    let leader = child.id();
    let status: Option<ExitStatus> = tokio::select! {
        status = child.wait() => Some(status?),
        () = ended() => None,
    };
    if status.is_none() {
        step("interrupted: stopping");
        leader.into_iter().for_each(interrupt_group);
        let _ = child.wait().await;
    }
    tokio::task::spawn_blocking(move || stack.stop()).await?;
    match status {
        Some(status) if status.success() => Ok(()),
        Some(_) => bail!("a test failed; the same test alone: cargo dev test -p PACKAGE NAME"),
        None => bail!("interrupted"),
    }
}

/// Libraries, binaries and tests with one set of features, so that nothing is built twice.
fn build_all() -> Result<PathBuf> {
    step("building everything with its tests");
    run_shown(cargo().args(["build", "--workspace", "--lib", "--bins", "--tests"]))?;
    let own = std::env::current_exe().context("the path of this program")?;
    let target = own.ancestors().nth(2).context("the target folder of this program")?;
    Ok(target.join("debug"))
}

fn cargo_test(arguments: &[String], is_whole: bool, stack: &Path) -> Command {
    let mut test = cargo();
    test.arg("test");
    if is_whole {
        test.arg("--workspace");
    }
    if !arguments.iter().any(|argument| argument == "--no-run" || argument == "--no-fail-fast") {
        test.arg("--no-fail-fast");
    }
    test.args(arguments).env("LIKEWISE_TEST_STACK", stack);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        test.env("RUST_TEST_THREADS", cores.clamp(2, THREADS_MAX).to_string());
    }
    test
}

/// Whether the arguments choose packages themselves.
fn names_packages(arguments: &[String]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| {
        argument == "-p"
            || argument.starts_with("--package")
            || argument.starts_with("-p") && !argument.starts_with("--")
    })
}

/// The cargo that runs us, in the workspace.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_recognised_in_every_notation() {
        let check = |line: &str, expected: bool| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(names_packages(&words), expected, "{line}");
        };
        check("-p likewise-command inv_03", true);
        check("-plikewise-command", true);
        check("--package=likewise-command", true);
        check("inv_03", false);
        check("inv_03 -- -p", false);
        check("--profile release", false);
    }
}
