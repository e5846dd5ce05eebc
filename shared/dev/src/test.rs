//! `cargo dev test`: the servers once, then `cargo test`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use likewise_devstack::{Stack, StackSpec, interrupt_group, run_shown, workspace};
use tokio::io::{AsyncBufReadExt, BufReader};

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
    let outcome = watch(test).await;
    tokio::task::spawn_blocking(move || stack.stop()).await?;
    let (status, tally) = outcome?;
    println!("\n{tally}");
    match status {
        Some(status) if status.success() => Ok(()),
        Some(_) => bail!("a test failed; the same test alone: cargo dev test -p PACKAGE NAME"),
        None => bail!("interrupted"),
    }
}

/// What the test binaries said in all.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    /// Adds a closing line of a test binary: `test result: ok. 8 passed; 0 failed; 0 ignored; ...`.
    fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        for (part, sum) in
            [(" passed", &mut self.passed), (" failed", &mut self.failed), (" ignored", &mut self.ignored)]
        {
            let before = rest.split(part).next().and_then(|before| before.rsplit(' ').next());
            *sum += before.and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)?;
        if self.ignored > 0 { write!(out, ", {} skipped", self.ignored) } else { Ok(()) }
    }
}

/// Runs the tests, passes on what they print, and counts; without a status when the person ended it.
async fn watch(test: Command) -> Result<(Option<ExitStatus>, Tally)> {
    let mut test = tokio::process::Command::from(test);
    let mut child = test.process_group(0).stdout(Stdio::piped()).spawn().context("starting cargo test")?;
    let leader = child.id();
    let mut lines = BufReader::new(child.stdout.take().context("what cargo test prints")?).lines();
    let mut tally = Tally::default();
    let read = async {
        while let Some(line) = lines.next_line().await? {
            tally.add(&line);
            println!("{line}");
        }
        anyhow::Ok(child.wait().await?)
    };
    let status = tokio::select! {
        status = read => Some(status?),
        () = ended() => None,
    };
    if status.is_none() {
        step("interrupted: stopping");
        leader.into_iter().for_each(interrupt_group);
        let _ = child.wait().await;
    }
    Ok((status, tally))
}

/// Libraries, binaries and tests with one set of features, so that nothing is built twice.
fn build_all() -> Result<PathBuf> {
    step("building everything with its tests");
    run_shown(cargo().args(["build", "--workspace", "--lib", "--bins", "--tests", "--examples"]))?;
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
    fn closing_lines_add_up() {
        let mut tally = Tally::default();
        tally.add("running 3 tests");
        tally.add("test result: ok. 8 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s");
        tally.add("test result: FAILED. 20 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.46s");
        assert_eq!(tally, Tally { passed: 28, failed: 5, ignored: 1 });
        assert_eq!(tally.to_string(), "28 passed, 5 failed, 1 skipped");
    }

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
