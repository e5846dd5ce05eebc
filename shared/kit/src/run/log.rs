//! Logs: text for people, JSON for machines, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::LogSettings;

/// Sends logs to standard error as the settings say, panics included. Does nothing when logs go somewhere already.
pub fn init(settings: &LogSettings) {
    // The filter was checked with the other settings.
    let filter = EnvFilter::try_new(&settings.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = if settings.format == "json" {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.with_ansi(std::io::stderr().is_terminal()).try_init()
    };
    if installed.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string);
            let payload = panic.payload();
            let message = payload.downcast_ref::<&str>().copied();
            let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            tracing::error!(place, "panic: {}", message.unwrap_or("no message"));
        }));
    }
}
