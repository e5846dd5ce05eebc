//! `cargo dev`: everything a person does with this repository, one word each.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use likewise_dev::{bench, demo, lint, matrix, settings, test, token, up};

/// Develop, try and check Likewise.
#[derive(Debug, Parser)]
#[command(name = "cargo dev", bin_name = "cargo dev", disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show one like from end to end on real servers; succeeds only if every figure is right
    Demo(demo::Arguments),
    /// Run everything in the foreground, with videos and accounts to try things on
    Up(up::Arguments),
    /// Print a token for what `cargo dev up` runs
    Token(token::Arguments),
    /// Start the servers once and run all tests; arguments go to `cargo test`
    Test(test::Arguments),
    /// Check format, clippy, contracts, licences and the rules of this repository
    Lint(lint::Arguments),
    /// Measure this machine
    Bench(bench::Arguments),
    /// List the promises with and without a test
    Matrix(matrix::Arguments),
    /// Write docs/settings.md from the defaults that are compiled in
    Settings(settings::Arguments),
}

/// Exit code 1 and the whole chain of causes, in words; a backtrace of our own code would not help anybody.
#[tokio::main]
async fn main() -> ExitCode {
    match run(Line::parse().verb).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo dev: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Demo(arguments) => demo::run(arguments).await,
        Verb::Up(arguments) => up::run(arguments).await,
        Verb::Token(arguments) => token::run(&arguments),
        Verb::Test(arguments) => test::run(arguments).await,
        Verb::Lint(arguments) => lint::run(&arguments),
        Verb::Bench(arguments) => bench::run(arguments).await,
        Verb::Matrix(arguments) => matrix::run(&arguments),
        Verb::Settings(arguments) => settings::run(&arguments),
    }
}
