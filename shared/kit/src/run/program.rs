//! The command line that every binary has.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tokio_util::sync::CancellationToken;

use super::{Bound, Context, Service, bind, check, init_log, serve};
use crate::config::{Common, Loader};

/// Any error of a service.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Exit code for a configuration that is wrong, to tell it from a failure.
const EXIT_CONFIGURATION: u8 = 2;
/// Exit code after a second signal: 128 + SIGINT.
const EXIT_FORCED: i32 = 130;

/// A program: one service, or several in one process.
pub trait Program: 'static {
    /// Its name, as `[a-z-]+`.
    const NAME: &'static str;
    /// Its sections of the configuration.
    type Settings: Clone + Send + 'static;

    /// Reads its sections. Reads them all even when one is wrong, so that every fault is reported at once.
    fn settings(loader: &mut Loader) -> Option<Self::Settings>;

    /// Last change to the common settings, when the process knows where it listens.
    fn wire(common: &mut Common, bound: &Bound) {
        let _ = (common, bound);
    }

    /// Brings its schemas up to date and returns (`--migrate-only`).
    fn migrate(context: Context, settings: Self::Settings) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Starts its services.
    fn start(context: Context, settings: Self::Settings)
    -> impl Future<Output = Result<Vec<Service>, BoxError>> + Send;
}

#[derive(Debug, Parser)]
struct Arguments {
    /// Configuration file (TOML). Environment variables LIKEWISE__SECTION__KEY win over it.
    #[arg(long, env = "LIKEWISE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Prints the configuration that is in force, with secrets hidden, and ends.
    #[arg(long)]
    print_config: bool,
    /// Checks the configuration and the keys, touches no store, and ends.
    #[arg(long)]
    check: bool,
    /// Brings the database schemas up to date and ends.
    #[arg(long)]
    migrate_only: bool,
}

/// Runs a program to its end. Exit codes: 0 ended in order, 1 failed, 2 the configuration is wrong.
#[must_use]
pub fn main_of<P: Program>() -> ExitCode {
    let command = <Arguments as clap::CommandFactory>::command()
        .name(P::NAME)
        .display_name(format!("likewise-{}", P::NAME))
        .version(env!("CARGO_PKG_VERSION"));
    let arguments = match <Arguments as clap::FromArgMatches>::from_arg_matches(&command.get_matches()) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let mut loader = Loader::new(arguments.config.as_deref(), std::env::vars());
    let common = Common::load(&mut loader);
    let settings = P::settings(&mut loader);
    let printed = loader.print();
    let (common, settings) = match (loader.finish(), common, settings) {
        (Ok(()), Some(common), Some(settings)) => (common, settings),
        (Ok(()), ..) => return complain("the configuration is wrong in a way that was not reported"),
        (Err(faults), ..) => return complain(&faults.to_string()),
    };
    if arguments.print_config {
        print(&printed);
        return ExitCode::SUCCESS;
    }
    init_log(&common.log);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    match runtime.block_on(carry_out::<P>(&arguments, common, settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error),
    }
}

async fn carry_out<P: Program>(
    arguments: &Arguments,
    mut common: Common,
    settings: P::Settings,
) -> Result<(), BoxError> {
    if arguments.check {
        check(&common, P::NAME).await?;
        print("the configuration is in order\n");
        return Ok(());
    }
    if arguments.migrate_only {
        let context = Context::new(common, P::NAME).await?;
        return P::migrate(context, settings).await;
    }
    let bound = bind(&common.server).await?;
    P::wire(&mut common, &bound);
    let context = Context::new(common, P::NAME).await?;
    stop_on_signals(context.draining.clone())?;
    let services = tokio::select! {
        services = P::start(context.clone(), settings) => services?,
        () = context.draining.cancelled() => return Ok(()),
    };
    Ok(serve(context, bound, services).await?)
}

/// SIGTERM and ctrl-c cancel `draining`; the second one ends the process at once.
///
/// # Errors
/// When the signals cannot be listened to.
pub fn stop_on_signals(draining: CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if draining.is_cancelled() {
                tracing::warn!("asked to end again; ending at once");
                #[allow(clippy::disallowed_methods, reason = "to skip the drain is what the second signal asks for")]
                std::process::exit(EXIT_FORCED);
            }
            draining.cancel();
        }
    });
    Ok(())
}

fn fail(error: &dyn StdError) -> ExitCode {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    tracing::error!("{text}");
    ExitCode::FAILURE
}

fn complain(problem: &str) -> ExitCode {
    use std::io::Write as _;
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(std::io::stderr(), "{problem}");
    ExitCode::from(EXIT_CONFIGURATION)
}

fn print(text: &str) {
    use std::io::Write as _;
    let _ = write!(std::io::stdout(), "{text}");
}
