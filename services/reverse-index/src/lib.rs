//! Who liked this video, under today's privacy.
//!
//! Promises: a list is a projection of relation events, in which a higher version wins whatever is repeated, overtaken or
//! killed; its order is that of the relation's own transactions. What a viewer sees is decided when they ask, by the
//! authority for accounts and videos; without its answer no identity leaves. Paging skips and repeats nobody.
//!
//! Never: changes a relation, counts likes, reads another service's tables, or remembers what a viewer may see.
//!
//! Reading order, pure first: [`contract`] (where a liker's rows stand), [`fold`] (what a batch asks of each part). Then
//! [`app`] (one page for one viewer). Doors: [`consumer`] (messages), [`grpc`], [`store`] (PostgreSQL), [`clients`] (the
//! authority).

pub mod app;
pub mod bootstrap;
pub mod clients;
pub mod config;
pub mod consumer;
pub mod contract;
pub mod fold;
pub mod grpc;
pub mod metrics;
pub mod store;

use std::sync::Arc;

use likewise_kit::config::Loader;
use likewise_kit::lanes::{Consumer, Lane, WatermarkSource};
use likewise_kit::run::{BoxError, Context, Program, ReadyCheck, Service};
use likewise_proto::reverse_index::v1::reverse_index_service_server::ReverseIndexServiceServer;
use tonic::service::Routes;

pub use bootstrap::{Error, migrate};
pub use config::{DEFAULTS, SECTION, Settings};

use crate::app::Likers;
use crate::bootstrap::Opened;
use crate::consumer::ReverseProjection;
use crate::grpc::Door;
use crate::metrics::Metrics;
use crate::store::Metadata;

/// Class of the lanes that are consumed.
const LANE_CLASS: &str = "rel";

/// The service as a program of its own.
pub struct ReverseIndex;

impl Program for ReverseIndex {
    const NAME: &'static str = "reverse-index";
    type Settings = Settings;

    fn settings(loader: &mut Loader) -> Option<Settings> {
        loader.section(SECTION, DEFAULTS)
    }

    async fn migrate(context: Context, settings: Settings) -> Result<(), BoxError> {
        migrate(&context, &settings).await?;
        Ok(())
    }

    async fn start(context: Context, settings: Settings) -> Result<Vec<Service>, BoxError> {
        Ok(vec![start(context, settings).await?])
    }
}

/// Brings the schemas up to date, follows every lane, and answers lists. Everything is wired here.
///
/// # Errors
/// [`Error`] says what to correct.
pub async fn start(context: Context, settings: Settings) -> Result<Service, Error> {
    let Opened { contract, lanes, metadata, parts } = migrate(&context, &settings).await?;
    let metrics = Metrics::new(&context.metrics);
    let contract = Arc::new(contract);
    let projection =
        Arc::new(ReverseProjection::new(Arc::clone(&contract), metadata.clone(), Arc::clone(&parts), metrics.clone()));
    let follow = |shard| -> Arc<dyn WatermarkSource> {
        let lane = Lane { class: LANE_CLASS, shard };
        Consumer::spawn(&context, metadata.pool().clone(), lane, Arc::clone(&projection))
    };
    let watermarks = (0..lanes).map(follow).collect();

    let policy = &context.common.endpoints.policy;
    let authority = clients::authority(policy, &context.tokens, settings.policy_timeout())?;
    let likers =
        Likers { contract, parts, metadata: metadata.clone(), authority, settings: Arc::new(settings), metrics };
    Ok(Service {
        name: "reverse-index",
        routes: Routes::new(ReverseIndexServiceServer::new(Door::new(likers))),
        grpc_names: vec!["likewise.reverse_index.v1.ReverseIndexService"],
        watermarks,
        ready: vec![("reverse index database", ready(metadata))],
    })
}

/// Ready while the metadata answers. Lanes and the authority may be away: lists then lag, or refuse by themselves.
fn ready(metadata: Metadata) -> ReadyCheck {
    Arc::new(move || {
        let metadata = metadata.clone();
        Box::pin(async move { metadata.ping().await.map_err(|error| error.chain()) })
    })
}
