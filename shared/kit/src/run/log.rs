//! Logs: text for people, JSON for machines, on standard error.

use std::io::IsTerminal as _;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogSettings;

/// Libraries that show what travels, tokens included, when they are asked to say more than this.
const TALKATIVE: [&str; 9] =
    ["h2", "hyper", "hyper_util", "tonic", "tonic_web", "tower_http", "async_nats", "tokio_postgres", "fred"];
const TALKATIVE_MAX: Level = Level::INFO;

/// Sends logs to standard error as the settings say, panics included. Does nothing when logs go somewhere already.
pub fn init(settings: &LogSettings) {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = if settings.format == "json" {
        layer.json().flatten_event(true).boxed()
    } else {
        layer.with_ansi(std::io::stderr().is_terminal()).boxed()
    };
    // The filter was checked with the other settings. None of them brings tokens into a log (INV-27).
    let asked = EnvFilter::try_new(&settings.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let layer = layer.with_filter(asked.and(filter_fn(discreet)));
    if tracing_subscriber::registry().with(layer).try_init().is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string);
            let payload = panic.payload();
            let message = payload.downcast_ref::<&str>().copied();
            let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            tracing::error!(place, "panic: {}", message.unwrap_or("no message"));
        }));
    }
}

fn discreet(event: &Metadata<'_>) -> bool {
    let library = event.target().split("::").next().unwrap_or_default();
    *event.level() <= TALKATIVE_MAX || !TALKATIVE.contains(&library)
}
