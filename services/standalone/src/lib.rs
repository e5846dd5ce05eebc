//! All six services in one process on one port.
//!
//! Promises: it is the same services, wired the same way as when each runs alone; they speak to each other by gRPC over the
//! process's own address, with a service token each, so who calls whom is the same in every layout.
//!
//! Never: decides anything itself.

use likewise_command::CommandService;
use likewise_content::Content;
use likewise_counter::Counter;
use likewise_kit::config::{Common, Loader};
use likewise_kit::run::{Bound, BoxError, Context, Program, Service};
use likewise_query::Query;
use likewise_reconciliation::Reconciliation;
use likewise_reverse_index::ReverseIndex;

/// Settings of one service.
type Of<P> = <P as Program>::Settings;

/// Sections of all six services.
#[derive(Clone)]
pub struct Settings {
    content: Of<Content>,
    command: Of<CommandService>,
    counter: Of<Counter>,
    reverse_index: Of<ReverseIndex>,
    query: Of<Query>,
    reconciliation: Of<Reconciliation>,
}

/// All six as one program.
pub struct Standalone;

impl Program for Standalone {
    const NAME: &'static str = "standalone";
    type Settings = Settings;

    fn settings(loader: &mut Loader) -> Option<Settings> {
        // All are read before any is missed, so that every fault is reported at once.
        let content = Content::settings(loader);
        let command = CommandService::settings(loader);
        let counter = Counter::settings(loader);
        let reverse_index = ReverseIndex::settings(loader);
        let query = Query::settings(loader);
        let reconciliation = Reconciliation::settings(loader);
        Some(Settings {
            content: content?,
            command: command?,
            counter: counter?,
            reverse_index: reverse_index?,
            query: query?,
            reconciliation: reconciliation?,
        })
    }

    fn wire(common: &mut Common, bound: &Bound) {
        common.endpoints.fill_with(&bound.own_endpoint());
    }

    async fn migrate(context: Context, settings: Settings) -> Result<(), BoxError> {
        Content::migrate(context.with_service(Content::NAME), settings.content).await?;
        CommandService::migrate(context.with_service(CommandService::NAME), settings.command).await?;
        Counter::migrate(context.with_service(Counter::NAME), settings.counter).await?;
        ReverseIndex::migrate(context.with_service(ReverseIndex::NAME), settings.reverse_index).await?;
        Query::migrate(context.with_service(Query::NAME), settings.query).await?;
        Reconciliation::migrate(context.with_service(Reconciliation::NAME), settings.reconciliation).await
    }

    async fn start(context: Context, settings: Settings) -> Result<Vec<Service>, BoxError> {
        let mut services = Content::start(context.with_service(Content::NAME), settings.content).await?;
        services.extend(CommandService::start(context.with_service(CommandService::NAME), settings.command).await?);
        services.extend(Counter::start(context.with_service(Counter::NAME), settings.counter).await?);
        services.extend(ReverseIndex::start(context.with_service(ReverseIndex::NAME), settings.reverse_index).await?);
        services.extend(Query::start(context.with_service(Query::NAME), settings.query).await?);
        let reconciliation = context.with_service(Reconciliation::NAME);
        services.extend(Reconciliation::start(reconciliation, settings.reconciliation).await?);
        Ok(services)
    }
}
