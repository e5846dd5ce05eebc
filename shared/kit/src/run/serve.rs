//! Puts the services of a process behind its two ports, and takes them down in order.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response};
use likewise_proto::lanes::v1::lane_service_server::LaneServiceServer;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::service::Routes;
use tonic_web::GrpcWebLayer;
use tower::{Layer as _, Service as _, service_fn};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::connections::{self, End, Limits};
use super::guard::Guard;
use super::lane_service::Lanes;
use super::methods::Methods;
use super::readiness::Readiness;
use super::{Bound, Context, Service, admin, listen};
use crate::config::ServerSettings;

const LANE_SERVICE: &str = "likewise.lanes.v1.LaneService";
const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION: [&str; 2] = ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];
/// Probes and scrapers are few.
const ADMIN_CONNECTIONS_MAX: usize = 64;
const ADMIN_STREAMS_MAX: u32 = 16;
/// How long browsers may remember what they are allowed.
const CORS_MAX_AGE: Duration = Duration::from_secs(3600);

/// Why a process cannot serve, or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("listen on {address}")]
    Bind {
        /// The address of the settings.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file that tells where we listen cannot be written.
    #[error("write the port file {path:?}")]
    PortFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The compiled-in contracts cannot be read.
    #[error("read the compiled-in contracts")]
    Descriptors(#[source] prost::DecodeError),
    /// Reflection could not be set up.
    #[error("set up reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// A service names a gRPC service that no contract has.
    #[error("{0} is in no contract")]
    UnknownService(&'static str),
    /// A background task panicked.
    #[error("the background task {0:?} panicked")]
    TaskPanicked(&'static str),
}

/// Serves until the process is asked to end, then drains: readiness goes first, then no new calls, then calls in flight
/// end within `drain_ms_max`, then background tasks within `stop_ms_max`.
///
/// # Errors
/// [`Error`] when serving cannot begin, or a background task panicked.
pub async fn serve(context: Context, bound: Bound, services: Vec<Service>) -> Result<(), Error> {
    let settings = context.common.server.clone();
    let readiness = Readiness::new(&services, context.draining.clone());
    let (reporter, health) = tonic_health::server::health_reporter();
    let guard = guard(&context, services, health)?;

    let (grpc_end, admin_end) = (End::default(), End::default());
    let (grpc_connections, admin_connections) = (TaskTracker::new(), TaskTracker::new());
    let grpc = connections::serve(
        bound.grpc_listener,
        front(guard, &settings),
        Limits {
            connections_max: settings.connections_max,
            streams_per_connection_max: settings.streams_per_connection_max,
            connection_age: Duration::from_secs(settings.connection_age_s),
        },
        grpc_end.clone(),
        grpc_connections.clone(),
    );
    let grpc = tokio::spawn(grpc);
    let router = admin::router(context.metrics.clone(), readiness.clone());
    let admin = connections::serve(
        bound.admin_listener,
        service_fn(move |request: Request<Body>| {
            let answer = router.clone().call(request);
            async move { answer.await.map(|response| response.map(Body::new)) }
        }),
        Limits {
            connections_max: ADMIN_CONNECTIONS_MAX,
            streams_per_connection_max: ADMIN_STREAMS_MAX,
            connection_age: Duration::ZERO,
        },
        admin_end.clone(),
        admin_connections.clone(),
    );
    tokio::spawn(admin);
    let reporting = tokio::spawn(readiness.report(reporter));
    if !settings.port_file.as_os_str().is_empty() {
        listen::write_port_file(&settings.port_file, bound.grpc, bound.admin)?;
    }
    tracing::info!(grpc = %bound.grpc, admin = %bound.admin, "serving");

    tokio::select! {
        () = context.draining.cancelled() => {}
        () = context.stop.cancelled() => context.draining.cancel(),
    }
    tracing::info!("draining");
    // Watchers of health hear it before their connection is told to end.
    let _ = reporting.await;
    end(&grpc_end, &grpc_connections, Duration::from_millis(settings.drain_ms_max), "calls").await;
    let _ = grpc.await;
    context.stop.cancel();
    context.tasks.close();
    let stop_max = Duration::from_millis(settings.stop_ms_max);
    if tokio::time::timeout(stop_max, context.tasks.wait()).await.is_err() {
        tracing::warn!(tasks = context.tasks.len(), "some background tasks did not end in time");
    }
    end(&admin_end, &admin_connections, Duration::ZERO, "probes").await;
    tracing::info!("stopped");
    context.failed.get().map_or(Ok(()), |task| Err(Error::TaskPanicked(task)))
}

/// No new calls, then time for the ones in flight, then the end of what is left.
async fn end(end: &End, connections: &TaskTracker, time: Duration, what: &'static str) {
    end.drain.cancel();
    connections.close();
    if tokio::time::timeout(time, connections.wait()).await.is_err() && time > Duration::ZERO {
        tracing::warn!(what, connections = connections.len(), "not all ended in time; closing them");
    }
    end.close.cancel();
    connections.wait().await;
}

/// CORS and gRPC-Web before the guard, which sees gRPC only.
fn front(
    guard: Guard,
    settings: &ServerSettings,
) -> impl tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    let guard = Arc::new(guard);
    let guarded = service_fn(move |request: Request<Body>| {
        let guard = Arc::clone(&guard);
        // Boxed: the future of a call with everything around it is large, and is moved a few times.
        Box::pin(async move { Ok::<_, Infallible>(guard.answer(request).await) })
    });
    cors(settings).layer(GrpcWebLayer::new().layer(guarded))
}

fn cors(settings: &ServerSettings) -> CorsLayer {
    let origins = if settings.cors_origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(settings.cors_origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    let exposed = ["grpc-status", "grpc-message", "grpc-status-details-bin"].map(HeaderName::from_static);
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([http::Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed)
        .max_age(CORS_MAX_AGE)
}

fn guard<H>(context: &Context, services: Vec<Service>, health: H) -> Result<Guard, Error>
where
    H: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + tonic::server::NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    H::Future: Send + 'static,
{
    let settings = &context.common.server;
    let mut names: Vec<&'static str> = vec![LANE_SERVICE];
    let mut sources = Vec::new();
    let mut router = axum::Router::new();
    for service in services {
        names.extend(service.grpc_names);
        sources.extend(service.watermarks);
        router = router.merge(service.routes.into_axum_router().reset_fallback());
    }
    // A fresh `Routes` brings the answer for methods that nobody serves.
    let routes = Routes::default()
        .add_service(LaneServiceServer::new(Lanes::new(sources)))
        .add_service(health)
        .add_service(reflection(&names).build_v1().map_err(Error::Reflection)?)
        .add_service(reflection(&names).build_v1alpha().map_err(Error::Reflection)?);
    let routes = Routes::from(routes.into_axum_router().merge(router)).prepare();

    let mut known = names.clone();
    known.push(HEALTH);
    known.extend(REFLECTION);
    let sets = [
        likewise_proto::DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let methods = Methods::read(&sets, &known, &context.metrics)?;
    if let Some(unknown) = names.into_iter().find(|name| !methods.knows(name)) {
        return Err(Error::UnknownService(unknown));
    }
    let draining = context.draining.clone();
    Ok(Guard::new(routes, methods, context.verifier.clone(), settings, &context.metrics, draining))
}

fn reflection<'a>(names: &[&'static str]) -> tonic_reflection::server::Builder<'a> {
    // Both versions are listed, so both have to be described, whichever is asked.
    let builder = tonic_reflection::server::Builder::configure()
        .include_reflection_service(false)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(likewise_proto::DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(HEALTH);
    names.iter().chain(&REFLECTION).fold(builder, |builder, name| builder.with_service_name(*name))
}
