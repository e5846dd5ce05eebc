//! Runs services: one gRPC port with everything a caller needs, one admin port, and an orderly end.
//!
//! Promises: gRPC, gRPC-Web, health and reflection (v1 and v1alpha, listing what is served) on one port; a verified
//! [`Identity`](crate::auth::Identity) in each request's extensions; a deadline on every call, a limit on everything
//! that can be in flight; a panic in a handler fails that call alone. On SIGTERM calls in flight end before the tasks
//! they rely on stop, both within a bound.
//!
//! # The shape of a service
//!
//! ```text
//! // lib.rs: the only place that wires
//! pub struct Command;
//!
//! impl run::Program for Command {
//!     const NAME: &'static str = "command";
//!     type Settings = config::Settings;
//!
//!     fn settings(loader: &mut Loader) -> Option<config::Settings> {
//!         loader.section("command", config::DEFAULTS)
//!     }
//!     async fn migrate(context: Context, settings: config::Settings) -> Result<(), run::BoxError> {
//!         Ok(crate::migrate(&context, &settings).await?)
//!     }
//!     async fn start(context: Context, settings: config::Settings) -> Result<Vec<Service>, run::BoxError> {
//!         Ok(vec![crate::start(context, settings).await?])   // migrates, spawns its tasks, answers its routes
//!     }
//! }
//!
//! // main.rs
//! fn main() -> std::process::ExitCode {
//!     likewise_kit::run::main_of::<likewise_command::Command>()
//! }
//! ```
//!
//! Every binary then takes `--config FILE`, `--print-config`, `--check` and `--migrate-only`. A process that runs
//! several services calls the `start` of each with [`Context::with_service`], and fills the endpoints with its own
//! address in [`Program::wire`].
//!
//! Background work is spawned with [`Context::spawn`] and ends when [`Context::stop`] is cancelled. A stream that a
//! handler keeps open ends when [`Context::draining`] is cancelled; streams that only the server writes are ended for
//! the handler, with UNAVAILABLE.

mod admin;
mod connections;
mod context;
mod guard;
mod lane_service;
mod listen;
mod log;
mod message_limit;
mod methods;
mod observed;
mod program;
mod readiness;
mod serve;

pub use context::{Context, Error as ContextError, check, connect_nats};
pub use listen::{Bound, bind};
pub use log::init as init_log;
pub use program::{BoxError, Program, main_of, stop_on_signals};
pub use readiness::ReadyCheck;
pub use serve::{Error, serve};

use std::sync::Arc;

use crate::lanes::WatermarkSource;

/// What a service gives to the process that runs it.
pub struct Service {
    /// Name of the service, for logs and readiness.
    pub name: &'static str,
    /// Its gRPC services.
    pub routes: tonic::service::Routes,
    /// Their full names, for reflection and health.
    pub grpc_names: Vec<&'static str>,
    /// Its lanes; the runner answers for all of a process with one `LaneService`.
    pub watermarks: Vec<Arc<dyn WatermarkSource>>,
    /// What must hold before callers should come, by name. Liveness never asks.
    pub ready: Vec<(&'static str, ReadyCheck)>,
}
