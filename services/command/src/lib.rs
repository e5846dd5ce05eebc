//! The relation is the fact: does a user like a video now.
//!
//! Promises: an answer leaves after its commit. One operation id has one verdict, told again to every retry, whatever has
//! happened since. A relation changes only under its shard's lock, by the rule of [`likewise_domain::decide`], together
//! with its operation record and its outbox row, whose numbers are dense and in commit order. A handler owns no
//! transaction, so no dropped call stops a commit half-way; while an outcome is unknown the answer says so, and never that
//! it failed.
//!
//! Never: acts for anybody but the subject of the verified token, decides on what it read before the lock, lets a policy
//! speak before the operation look-up, refuses an unlike because of a policy, or keeps a count.
//!
//! Reading order, pure first: [`intent`] (what travels), [`limits`], [`queue`] (what makes a batch), [`policy`],
//! [`partitions`]. Then the use cases in `app`: admission, the writer of a shard, the memory of policies, the maintenance and
//! the sweeps over accounts. Doors: [`grpc`], [`publisher`] and [`consumer`] (messages), [`store`] (PostgreSQL; the batch
//! itself is `migrations/V0005__apply_commands.sql`), [`cache`] (Redis), [`clients`] (the authority for accounts and videos).

mod app;
mod cache;
mod clients;
pub mod config;
mod consumer;
mod grpc;
pub mod intent;
pub mod limits;
mod metrics;
pub mod partitions;
pub mod policy;
mod publisher;
mod queue;
pub mod risk;
pub mod store;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use likewise_domain::hash::ContractError;
use likewise_kit::config::Loader;
use likewise_kit::lanes::{Consumer, Publisher, PublisherHandle, WatermarkSource};
use likewise_kit::run::{BoxError, Context, Program, ReadyCheck, Service};
use likewise_proto::command::v1::like_command_service_server::LikeCommandServiceServer;
use likewise_proto::facts::v1::relation_facts_service_server::RelationFactsServiceServer;
use likewise_proto::risk::v1::risk_service_server::RiskServiceServer;
use tokio::sync::Semaphore;
use tonic::service::Routes;

pub use config::{DEFAULTS, Settings};
pub use publisher::LANE_CLASS;

use crate::app::acts::Acts;
use crate::app::limits::Limits;
use crate::app::policies::Policies;
use crate::app::shards::{Shard, Shards};
use crate::app::writer::{Link, Writer};
use crate::app::{maintenance, sweeps};
use crate::cache::Exchange;
use crate::clients::Authority;
use crate::consumer::{AUTHORITY_LANE, Accounts, follow};
use crate::grpc::{Commands, Facts, Risk};
use crate::metrics::{LimitMetrics, StreamMetrics, SweepMetrics, WriterMetrics};
use crate::publisher::{RelationOutbox, Signals};
use crate::store::{ledger, shard};

/// Shards brought up at once.
const STARTING_MAX: usize = 8;

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The contract from users to shards.
    #[error("read the contract from users to shards")]
    Contract(#[from] ContractError),
    /// The store, or what it holds.
    #[error("open the relation shards")]
    Store(#[from] store::Error),
    /// The address of the authority.
    #[error("set up the client of the authority for accounts and videos")]
    Client(#[from] likewise_kit::clients::Error),
}

/// The service as a program of its own.
pub struct CommandService;

impl Program for CommandService {
    const NAME: &'static str = "command";
    type Settings = Settings;

    fn settings(loader: &mut Loader) -> Option<Settings> {
        loader.section("command", DEFAULTS)
    }

    async fn migrate(context: Context, settings: Settings) -> Result<(), BoxError> {
        Ok(migrate(&context, &settings).await?)
    }

    async fn start(context: Context, settings: Settings) -> Result<Vec<Service>, BoxError> {
        Ok(vec![start(context, settings).await?])
    }
}

/// Brings every shard's schema up to date and states its contract, or checks the one that is stated.
///
/// # Errors
/// [`StartError`] says what to correct.
pub async fn migrate(context: &Context, settings: &Settings) -> Result<(), StartError> {
    for number in 0..settings.shards {
        shard::prepare(&context.servers, settings, number).await?;
    }
    ledger::prepare(&context.servers, settings).await?;
    Ok(())
}

/// Starts the roles that the settings switch on. Everything is wired here. A shard whose server is away does not keep the
/// others from starting; a contract that disagrees with the settings does.
///
/// # Errors
/// [`StartError`] says what to correct.
pub async fn start(context: Context, settings: Settings) -> Result<Service, StartError> {
    let settings = Arc::new(settings);
    let shards = Arc::new(open_shards(&context, &settings)?);
    let metrics = WriterMetrics::new(&context.metrics);
    let writers = bring_up(&context, &settings, &shards, &metrics).await?;
    let acts = Arc::new(acts(&context, &settings, &shards)?);

    let mut service = Service {
        name: "command",
        routes: Routes::default(),
        grpc_names: Vec::new(),
        watermarks: Vec::new(),
        ready: Vec::new(),
    };
    // Whoever only publishes asks nobody.
    let asks = settings.api || settings.maintenance;
    let authority = asks.then(|| authority(&context, &settings)).transpose()?;
    let publishers = if settings.publisher { publish(&context, &shards, &mut service) } else { Vec::new() };
    if settings.maintenance
        && let Some(authority) = &authority
    {
        context.spawn("command risk acts", Arc::clone(&acts).run(context.stop.clone()));
        let every = Duration::from_millis(settings.authority_sweep_ms);
        let stream_age = time::Duration::days(context.common.lanes.max_age_days.into());
        let keeping = maintenance::Keeping { settings: Arc::clone(&settings), stream_age, metrics: metrics.clone() };
        for shard in shards.all() {
            let pass = maintenance::run(Arc::clone(shard), keeping.clone(), context.stop.clone());
            context.spawn("command partitions", pass);
            let swept = SweepMetrics::new(&context.metrics);
            let work = sweeps::run(Arc::clone(shard), Arc::clone(&settings), swept, context.stop.clone());
            context.spawn("command sweeps", work);
            let (shard, all) = (Arc::clone(shard), Arc::clone(&shards));
            let read = app::authority::run(shard, all, authority.clone(), every, context.stop.clone());
            context.spawn("command authority", read);
        }
    }
    if settings.api
        && let Some(authority) = authority
    {
        for (number, mut writer) in writers.into_iter().enumerate() {
            if let Some(publisher) = publishers.get(number) {
                let (woken, doubted) = (Arc::clone(publisher), Arc::clone(publisher));
                writer.committed = Box::new(move || woken.wake());
                writer.doubt = Box::new(move || doubted.doubt());
            }
            context.spawn("command writer", writer.run());
        }
        serve(&context, &settings, &shards, (acts, authority), &mut service)?;
    }
    Ok(service)
}

fn open_shards(context: &Context, settings: &Settings) -> Result<Shards, StartError> {
    let mut shards = Vec::with_capacity(settings.shards.into());
    for number in 0..settings.shards {
        let server = shard::server(settings, number)?;
        let pool = context.servers.pool(server, &shard::schema(number), settings.reads_per_shard_max);
        let pool = pool.map_err(store::Error::from)?;
        shards.push(Arc::new(Shard::new(number, pool, settings.queue_max)));
    }
    Ok(Shards::new(settings.contract()?, shards))
}

/// Writers of all shards, connected where the server answers.
async fn bring_up(
    context: &Context,
    settings: &Arc<Settings>,
    shards: &Shards,
    metrics: &WriterMetrics,
) -> Result<Vec<Writer>, store::Error> {
    let mut flights: HashMap<&str, Arc<Semaphore>> = HashMap::new();
    let mut writers = Vec::with_capacity(shards.all().len());
    for shard in shards.all() {
        let server = shard::server(settings, shard.number)?;
        let room = || Arc::new(Semaphore::new(settings.flights_per_server()));
        writers.push(Writer {
            shard: Arc::clone(shard),
            servers: context.servers.clone(),
            settings: Arc::clone(settings),
            rules: settings.rules(),
            flights: Arc::clone(flights.entry(server).or_insert_with(room)),
            committed: Box::new(|| {}),
            doubt: Box::new(|| {}),
            metrics: metrics.clone(),
            stop: context.stop.clone(),
            draining: context.draining.clone(),
            link: Link::default(),
        });
    }
    let connected = futures::stream::iter(writers).map(|mut writer| async move {
        writer.bring_up().await?;
        Ok(writer)
    });
    connected.buffered(STARTING_MAX).try_collect().await
}

fn publish(context: &Context, shards: &Arc<Shards>, service: &mut Service) -> Vec<Arc<PublisherHandle>> {
    let mut publishers = Vec::with_capacity(shards.all().len());
    for shard in shards.all() {
        let outbox = RelationOutbox { shard: shard.number, pool: shard.pool.clone() };
        let publisher = Publisher::spawn(context, Arc::new(outbox));
        service.watermarks.push(Arc::clone(&publisher) as Arc<dyn WatermarkSource>);
        publishers.push(publisher);
        let accounts = Accounts { shard: Arc::clone(shard), shards: Arc::clone(shards) };
        service.watermarks.push(Consumer::spawn(context, shard.pool.clone(), AUTHORITY_LANE, Arc::new(accounts)));
    }
    publishers
}

fn serve(
    context: &Context,
    settings: &Arc<Settings>,
    shards: &Arc<Shards>,
    (acts, authority): (Arc<Acts>, Authority),
    service: &mut Service,
) -> Result<(), StartError> {
    let policies = Arc::new(Policies::new(authority, settings));
    context.spawn("command policies", Arc::clone(&policies).ask(context.stop.clone()));
    context.spawn("command policy events", follow(context.into(), Arc::clone(&policies), context.stop.clone()));

    let commands = Commands {
        shards: Arc::clone(shards),
        policies,
        settings: Arc::clone(settings),
        limits: limits(context, settings),
        trusted_proxies: context.common.server.trusted_proxies,
        verifier: context.verifier.clone(),
        streams: StreamMetrics::new(&context.metrics),
        draining: context.draining.clone(),
    };
    let facts = Facts {
        shards: Arc::clone(shards),
        settings: Arc::clone(settings),
        servers: context.servers.clone(),
        scans: Arc::new(Semaphore::new(settings.scans_max)),
    };
    let routes = std::mem::take(&mut service.routes);
    let risk = Risk { acts, settings: Arc::clone(settings), cursors: Arc::clone(&context.cursors) };
    service.routes = routes
        .add_service(LikeCommandServiceServer::new(commands))
        .add_service(RelationFactsServiceServer::new(facts))
        .add_service(RiskServiceServer::new(risk));
    service.grpc_names = vec![
        "likewise.command.v1.LikeCommandService",
        "likewise.facts.v1.RelationFactsService",
        "likewise.risk.v1.RiskService",
    ];
    service.ready = vec![("relation shards", ready(shards))];
    Ok(())
}

fn authority(context: &Context, settings: &Settings) -> Result<Authority, StartError> {
    let endpoints = &context.common.endpoints;
    let endpoint = if endpoints.policy.is_empty() { &endpoints.content } else { &endpoints.policy };
    let channel = likewise_kit::clients::outbound(endpoint, &context.tokens)?;
    Ok(Authority::new(channel, Duration::from_millis(settings.policy_timeout_ms)))
}

/// What carries out risk acts; its ledger lives with the first shard.
fn acts(context: &Context, settings: &Settings, shards: &Arc<Shards>) -> Result<Acts, store::Error> {
    let ledger = context.servers.pool(ledger::server(settings)?, ledger::SCHEMA, settings.reads_per_shard_max)?;
    Ok(Acts::new(Arc::clone(shards), ledger, context.servers.clone(), Arc::new(settings.clone())))
}

/// Limits of this process, which tells others in the background.
fn limits(context: &Context, settings: &Settings) -> Arc<Limits> {
    let signals = Signals::spawn(context, settings.bounds());
    let limits = Arc::new(Limits::new(settings, LimitMetrics::new(&context.metrics), signals));
    let exchange = Exchange::new(context.redis.clone(), &context.common.redis.key_prefix);
    let (every, stop, told) =
        (Duration::from_millis(settings.limits_exchange_ms), context.stop.clone(), Arc::clone(&limits));
    context.spawn("command limits", async move { told.exchange(exchange, every, stop).await });
    limits
}

/// Ready while every shard's writer is connected. NATS and the authority may be away.
fn ready(shards: &Arc<Shards>) -> ReadyCheck {
    let shards = Arc::clone(shards);
    Arc::new(move || {
        let stood: Result<(), String> = shards.all().iter().try_for_each(|shard| shard.readiness());
        Box::pin(std::future::ready(stood))
    })
}
