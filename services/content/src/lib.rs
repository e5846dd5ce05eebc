//! The built-in authority for accounts and videos: who exists, what may be seen, who follows and blocks whom.
//!
//! Promises: a change and its event commit together, numbered densely in commit order; every object has a version that
//! only grows; a policy answered is the one committed last. Never: knows likes or counts, or lets an act stop half-way
//! because its caller went away.
//!
//! A platform that has its own authority implements `likewise.policy.v1.PolicyService`, emits the same events, and does
//! not deploy this service.
//!
//! Reading order: [`model`], [`transitions`] (which states follow which), [`act`] (what can be asked for), [`app`] (doing
//! it), then the doors: [`store`], [`publisher`], [`grpc`].

pub mod act;
pub mod app;
pub mod config;
pub mod grpc;
pub mod model;
pub mod publisher;
pub mod store;
pub mod transitions;

use std::sync::Arc;

use likewise_kit::config::Loader;
use likewise_kit::lanes::Publisher;
use likewise_kit::run::{self, BoxError, Context, ReadyCheck, Service};
use likewise_proto::content::v1::content_admin_service_server::{self, ContentAdminServiceServer};
use likewise_proto::content::v1::follow_service_server::{self, FollowServiceServer};
use likewise_proto::content::v1::post_service_server::{self, PostServiceServer};
use likewise_proto::content::v1::user_service_server::{self, UserServiceServer};
use likewise_proto::policy::v1::policy_service_server::{self, PolicyServiceServer};
use tonic::service::Routes;

use crate::app::Author;
use crate::config::Settings;
use crate::grpc::{AdminDoor, FollowDoor, Pages, PolicyDoor, PostDoor, UserDoor};
use crate::publisher::ContentOutbox;
use crate::store::Reader;

/// The service as a program of its own.
pub struct Content;

impl run::Program for Content {
    const NAME: &'static str = "content";
    type Settings = Settings;

    fn settings(loader: &mut Loader) -> Option<Settings> {
        loader.section(config::SECTION, config::DEFAULTS)
    }

    async fn migrate(context: Context, settings: Settings) -> Result<(), BoxError> {
        migrate(&context, &settings).await
    }

    async fn start(context: Context, settings: Settings) -> Result<Vec<Service>, BoxError> {
        Ok(vec![start(context, settings).await?])
    }
}

/// Brings the schema up to date.
///
/// # Errors
/// When the server does not answer, is unsuitable, or a migration fails.
pub async fn migrate(context: &Context, settings: &Settings) -> Result<(), BoxError> {
    let client = context.servers.dedicated(&settings.server, store::SCHEMA).await?;
    likewise_kit::pg::check_server(&client, &settings.server).await?;
    likewise_evolution::migrate(&client, store::SCHEMA, store::MIGRATIONS).await?;
    Ok(())
}

/// Migrates, starts the publisher, and answers what the process has to serve.
///
/// # Errors
/// When the schema cannot be brought up to date.
pub async fn start(context: Context, settings: Settings) -> Result<Service, BoxError> {
    migrate(&context, &settings).await?;
    let pool = context.servers.pool(&settings.server, store::SCHEMA, settings.connections)?;
    // Apart from the pool of callers, so that a crowd of them cannot keep the lane from moving.
    let lane_pool = context.servers.pool(&settings.server, store::SCHEMA, 3)?;
    let publisher = Publisher::spawn(&context, Arc::new(ContentOutbox { pool: lane_pool }));
    let author = Author::new(pool.clone(), Arc::clone(&publisher), settings.grace());
    let reader = Reader::new(pool);
    let pages = Pages::new(Arc::clone(&context.cursors), settings.page_token_life());

    let mut routes = Routes::builder();
    routes
        .add_service(UserServiceServer::new(UserDoor { author: author.clone() }))
        .add_service(PostServiceServer::new(PostDoor {
            author: author.clone(),
            reader: reader.clone(),
            pages: pages.clone(),
        }))
        .add_service(FollowServiceServer::new(FollowDoor { author: author.clone(), reader: reader.clone(), pages }))
        .add_service(ContentAdminServiceServer::new(AdminDoor { author }))
        .add_service(PolicyServiceServer::new(PolicyDoor {
            reader: reader.clone(),
            block_set_max: settings.block_set_max,
        }));
    let database: ReadyCheck = Arc::new(move || {
        let reader = reader.clone();
        Box::pin(async move { reader.ping().await.map_err(|error| error.to_string()) })
    });
    Ok(Service {
        name: "content",
        routes: routes.routes(),
        grpc_names: vec![
            user_service_server::SERVICE_NAME,
            post_service_server::SERVICE_NAME,
            follow_service_server::SERVICE_NAME,
            content_admin_service_server::SERVICE_NAME,
            policy_service_server::SERVICE_NAME,
        ],
        watermarks: vec![publisher],
        ready: vec![("database", database)],
    })
}
