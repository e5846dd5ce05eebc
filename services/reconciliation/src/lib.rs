//! What was committed, published and consumed, and what stands still.
//!
//! Promises: committed, published and consumed stand beside each other and are never mixed; who did not answer is named,
//! and what is unknown is absent, never 0.
//!
//! Never: changes anything, counts likes, or reads another service's tables.
//!
//! Reading order, pure first: [`board`] (answers of several processes as one table). Doors: [`grpc`], [`clients`] (the services
//! that publish or consume lanes).

pub mod board;
pub mod clients;
pub mod config;
pub mod grpc;

use likewise_kit::config::Loader;
use likewise_kit::run::{BoxError, Context, Program, Service};
use likewise_proto::reconciliation::v1::operations_service_server::{self, OperationsServiceServer};
use tonic::service::Routes;

pub use config::{DEFAULTS, SECTION, Settings};

use crate::clients::Fleet;
use crate::grpc::Door;

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of a service.
    #[error("set up the clients of the services on the board")]
    Client(#[from] likewise_kit::clients::Error),
}

/// The service as a program of its own.
pub struct Reconciliation;

impl Program for Reconciliation {
    const NAME: &'static str = "reconciliation";
    type Settings = Settings;

    fn settings(loader: &mut Loader) -> Option<Settings> {
        loader.section(SECTION, DEFAULTS)
    }

    /// It has no schema yet.
    async fn migrate(_: Context, _: Settings) -> Result<(), BoxError> {
        Ok(())
    }

    async fn start(context: Context, settings: Settings) -> Result<Vec<Service>, BoxError> {
        Ok(vec![start(context, settings).await?])
    }
}

/// Answers operators. Everything is wired here. It is ready at once: who is away is said in each answer.
///
/// # Errors
/// [`Error`] says what to correct.
// The shape every service starts in.
#[allow(clippy::unused_async, clippy::needless_pass_by_value)]
pub async fn start(context: Context, settings: Settings) -> Result<Service, Error> {
    let fleet = Fleet::new(&context.common.endpoints, &context.tokens, settings.call_timeout())?;
    Ok(Service {
        name: "reconciliation",
        routes: Routes::new(OperationsServiceServer::new(Door { fleet })),
        grpc_names: vec![operations_service_server::SERVICE_NAME],
        watermarks: Vec::new(),
        ready: Vec::new(),
    })
}
