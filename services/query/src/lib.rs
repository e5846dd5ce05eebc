//! Fast, honest reads of likes and counts.
//!
//! Promises: a heart is the relation as committed and never follows a number; a number says how current it is, by what was known
//! before it was read, and an unknown one is absent, never 0; who may see what is decided when they ask. One page costs one call for
//! hearts, whatever its size. Page tokens open only for their owner and their list.
//!
//! Never: writes a cache outside this process, writes anything at all to Redis or PostgreSQL, guesses a heart, or counts.
//!
//! Reading order, pure first: [`count`] (what a number says of itself, and to whom), [`page`] (repeats and order), [`flight`] (one
//! load at a time). Then the use cases in [`app`]. Doors: [`grpc`], [`cache`] (Redis, read only), [`clients`] (other services).

pub mod app;
pub mod cache;
pub mod clients;
pub mod config;
pub mod count;
pub mod flight;
pub mod grpc;
pub mod metrics;
pub mod page;

use std::sync::Arc;

use likewise_kit::clients::outbound;
use likewise_kit::config::Loader;
use likewise_kit::run::{BoxError, Context, Program, Service};
use likewise_proto::query::v1::like_query_service_server::LikeQueryServiceServer;
use tonic::service::Routes;

pub use config::{DEFAULTS, SECTION, Settings};

use crate::app::counts::Counts;
use crate::app::likes::Likes;
use crate::app::lists::Lists;
use crate::app::policies::Policies;
use crate::cache::Views;
use crate::clients::{Authority, Counter, Facts, ReverseIndex};
use crate::grpc::Door;
use crate::metrics::Metrics;

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of another service.
    #[error("set up the client of {service}")]
    Client {
        /// The service.
        service: &'static str,
        /// What is wrong with the address.
        source: likewise_kit::clients::Error,
    },
}

/// The service as a program of its own.
pub struct Query;

impl Program for Query {
    const NAME: &'static str = "query";
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

/// Answers reads. Everything is wired here. It is ready at once: what is away is said in each answer.
///
/// # Errors
/// [`Error`] says what to correct.
// The shape every service starts in.
#[allow(clippy::unused_async, clippy::needless_pass_by_value)]
pub async fn start(context: Context, settings: Settings) -> Result<Service, Error> {
    let endpoints = &context.common.endpoints;
    let timeout = settings.call_timeout();
    let channel = |service, endpoint: &str| {
        outbound(endpoint, &context.tokens).map_err(|source| Error::Client { service, source })
    };
    let facts = Facts::new(channel("command", &endpoints.command)?, timeout);
    let counter = Counter::new(channel("counter", &endpoints.counter)?, timeout);
    let authority = Authority::new(channel("policy", &endpoints.policy)?, timeout);
    let reverse = ReverseIndex::new(channel("reverse-index", &endpoints.reverse_index)?, timeout);

    let metrics = Metrics::new(&context.metrics);
    let views = Views::new(context.redis.clone(), &context.common.redis.key_prefix);
    let policies = Arc::new(Policies::new(authority, &settings, context.tasks.clone()));
    let door = Door {
        likes: Likes {
            facts: facts.clone(),
            counts: Counts::new(views, counter, &settings, context.tasks.clone(), metrics.clone()),
            policies: Arc::clone(&policies),
            window: settings.fresh_window(),
        },
        lists: Lists { facts, policies, scan_max: settings.scan_max, metrics },
        reverse,
        cursors: Arc::clone(&context.cursors),
        cursor_ttl: settings.cursor_ttl(),
        anonymous_counts: context.common.auth.anonymous_counts,
    };
    Ok(Service {
        name: "query",
        routes: Routes::new(LikeQueryServiceServer::new(door)),
        grpc_names: vec!["likewise.query.v1.LikeQueryService"],
        watermarks: Vec::new(),
        ready: Vec::new(),
    })
}
