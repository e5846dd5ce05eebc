//! The count is a projection that can prove itself.
//!
//! Promises: every relation change of the lanes is folded exactly once in effect, whatever is repeated, overtaken, cut
//! differently or killed; the change of a count is computed from what the projection held, so no count comes from a number
//! anybody sent and none falls below zero. State, count and receipt of a group commit together. A display row never goes back,
//! and the progress it is answered with is a lower bound of what it includes.
//!
//! Never: changes a relation, reads another service's tables, clamps a count, or answers an unknown count as 0.
//!
//! Reading order, pure first: [`bucket`] (which virtual bucket), [`route`] (which partition), [`fold`] (what a batch asks of each
//! partition), [`vector`] and [`ledger`] (what is complete), [`freshness`], [`display`]. Then the use cases in [`app`]. Doors:
//! [`consumer`] (messages), [`grpc`], [`store`] (PostgreSQL), [`cache`] (Redis), [`clients`] (command's watermarks).

pub mod app;
pub mod bucket;
pub mod cache;
pub mod clients;
pub mod config;
pub mod consumer;
pub mod display;
pub mod fold;
pub mod freshness;
pub mod grpc;
pub mod ledger;
pub mod metrics;
pub mod migrations;
pub mod route;
pub mod store;
pub mod vector;

use std::sync::Arc;
use std::time::Duration;

use likewise_kit::config::Loader;
use likewise_kit::lanes::{Consumer, Lane, WatermarkSource};
use likewise_kit::run::{BoxError, Context, Program, ReadyCheck, Service};
use likewise_proto::counter::v1::count_service_server::CountServiceServer;
use likewise_proto::counter::v1::counter_admin_service_server::CounterAdminServiceServer;
use tokio::sync::Notify;
use tonic::service::Routes;

pub use config::{DEFAULTS, Settings};

use crate::app::aggregator::Aggregator;
use crate::app::counts::Counts;
use crate::app::live::Live;
use crate::app::projector::Projector;
use crate::cache::{Lives, Views};
use crate::clients::Source;
use crate::grpc::Grpc;
use crate::metrics::Metrics;

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store, or what it holds.
    #[error("open the counter's databases")]
    Store(#[from] store::Error),
    /// The address of command.
    #[error("set up the client of command")]
    Client(#[from] likewise_kit::clients::Error),
}

/// The service as a program of its own.
pub struct Counter;

impl Program for Counter {
    const NAME: &'static str = "counter";
    type Settings = Settings;

    fn settings(loader: &mut Loader) -> Option<Settings> {
        loader.section("counter", DEFAULTS)
    }

    async fn migrate(context: Context, settings: Settings) -> Result<(), BoxError> {
        Ok(migrate(&context, &settings).await?)
    }

    async fn start(context: Context, settings: Settings) -> Result<Vec<Service>, BoxError> {
        Ok(vec![start(context, settings).await?])
    }
}

/// Applies the migrations of every schema and states the first contracts where nothing is stored.
///
/// # Errors
/// [`StartError`] says what to correct.
pub async fn migrate(context: &Context, settings: &Settings) -> Result<(), StartError> {
    app::bootstrap::start(&context.servers, settings).await?;
    Ok(())
}

/// Starts the roles that the settings switch on. Everything is wired here.
///
/// # Errors
/// [`StartError`] says what to correct.
pub async fn start(context: Context, settings: Settings) -> Result<Service, StartError> {
    let live = Arc::new(app::bootstrap::start(&context.servers, &settings).await?);
    let metrics = Metrics::new(&context.metrics);
    let wake = Arc::new(Notify::new());
    let lives = Lives { view_s: settings.view_ttl_s, absent_s: settings.view_absent_ttl_s };
    let prefix = &context.common.redis.key_prefix;
    let views = Views::new(context.redis.clone(), prefix, live.generation(), lives);

    let mut watermarks: Vec<Arc<dyn WatermarkSource>> = Vec::new();
    if settings.projector {
        let projector = Arc::new(Projector::new(Arc::clone(&live), Arc::clone(&wake), metrics.clone()));
        for shard in 0..live.lanes() {
            let lane = Lane { class: consumer::LANE_CLASS, shard };
            let pool = live.store().metadata().clone();
            watermarks.push(Consumer::spawn(&context, pool, lane, Arc::clone(&projector)));
        }
    }
    if settings.aggregator {
        let aggregator =
            Aggregator::new(Arc::clone(&live), views.clone(), settings.clone(), Arc::clone(&wake), metrics);
        let stop = context.stop.clone();
        context.spawn("counter aggregator", async move { aggregator.run(&stop).await });
    }
    let mut routes = Routes::default();
    let mut grpc_names = Vec::new();
    if settings.api {
        let counts = Arc::new(Counts::new(Arc::clone(&live), settings.hints_max));
        let source = Source::new(&context.common.endpoints.command, &context.tokens)?;
        spawn_watch(&context, &settings, Arc::clone(&counts), source);
        spawn_hints(&context, Arc::clone(&counts), views, wake);
        let grpc = Grpc::new(counts);
        routes =
            routes.add_service(CountServiceServer::new(grpc.clone())).add_service(CounterAdminServiceServer::new(grpc));
        grpc_names.push("likewise.counter.v1.CountService");
        grpc_names.push("likewise.counter.v1.CounterAdminService");
    }
    Ok(Service { name: "counter", routes, grpc_names, watermarks, ready: vec![("counter database", ready(live))] })
}

fn spawn_watch(context: &Context, settings: &Settings, counts: Arc<Counts>, source: Source) {
    let every = Duration::from_millis(settings.watermark_poll_ms);
    let within = Duration::from_millis(settings.watermark_timeout_ms);
    let stop = context.stop.clone();
    context.spawn("counter freshness", async move { counts.watch_source(&source, every, within, &stop).await });
}

fn spawn_hints(context: &Context, counts: Arc<Counts>, views: Views, wake: Arc<Notify>) {
    let stop = context.stop.clone();
    context.spawn("counter hints", async move { counts.file_hints(&views, &wake, &stop).await });
}

/// Ready while the metadata answers: without it nothing can be counted or told. Redis and the lanes may be away.
fn ready(live: Arc<Live>) -> ReadyCheck {
    Arc::new(move || {
        let live = Arc::clone(&live);
        Box::pin(async move { live.refresh().await.map_err(|error| error.chain()) })
    })
}
