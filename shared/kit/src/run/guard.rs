//! What happens to every call before and after its handler: room, identity, size, time, panics, metrics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::{HeaderMap, Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt as _;

use super::message_limit::Limited;
use super::methods::{Method, Methods};
use super::observed::{Observed, Record};
use crate::auth::Verifier;
use crate::config::ServerSettings;
use crate::metrics::{Counters, Metrics};
use crate::{deadline, errors};

/// Told to callers for whom there is no room.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// Answered even when there is no room: a full server is not a dead one.
const HEALTH: &str = "grpc.health.v1.Health/";

/// Wraps every call of a process.
pub(super) struct Guard {
    routes: Routes,
    methods: Methods,
    verifier: Verifier,
    calls_room: Arc<Semaphore>,
    streams_room: Arc<Semaphore>,
    deadline_max: Duration,
    request_bytes_max: usize,
    draining: CancellationToken,
    calls: Counters,
}

impl Guard {
    pub(super) fn new(
        routes: Routes,
        methods: Methods,
        verifier: Verifier,
        settings: &ServerSettings,
        metrics: &Metrics,
        draining: CancellationToken,
    ) -> Self {
        Self {
            routes,
            methods,
            verifier,
            calls_room: Arc::new(Semaphore::new(settings.calls_max)),
            streams_room: Arc::new(Semaphore::new(settings.streams_max)),
            deadline_max: Duration::from_millis(settings.deadline_ms_max),
            request_bytes_max: settings.request_bytes_max,
            draining,
            calls: metrics.counters("likewise_grpc_calls", "Calls answered, by method and status code"),
        }
    }

    /// Answers one call.
    pub(super) async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let method = self.methods.at(request.uri().path());
        let mut record = Record {
            method: method.name.clone(),
            calls: self.calls.clone(),
            seconds: method.seconds.clone(),
            started: Instant::now(),
            code: tonic::Code::Cancelled,
        };
        let (response, room) = match self.call(method, request).await {
            Ok((response, room)) => (decodable(response), room),
            Err(status) => (status.into_http(), None),
        };
        record.see(response.headers());
        // Streams that the client also writes are ended by their handlers, which know what is in flight.
        let watch = method.server_streaming && !method.client_streaming;
        let draining = watch.then(|| Box::pin(self.draining.clone().cancelled_owned()));
        response.map(|body| Body::new(Observed { body, record, draining, _room: room }))
    }

    async fn call(
        &self,
        method: &Method,
        request: Request<Body>,
    ) -> Result<(Response<Body>, Option<OwnedSemaphorePermit>), Status> {
        if self.methods.is_unknown(method) {
            return Err(errors::unknown_method());
        }
        let room = self.room(method)?;
        let at = self.deadline(request.headers())?;
        let mut request = request.map(|body| Body::new(Limited::new(body, self.request_bytes_max)));
        if method.server_streaming {
            let identity = self.verifier.identify(request.headers()).await?;
            request.extensions_mut().insert(identity);
            return Ok((self.handle(method, request).await?, room));
        }
        let work = async {
            let identity = self.verifier.identify(request.headers()).await?;
            request.extensions_mut().insert(identity);
            self.handle(method, request).await
        };
        // The room of a single answer is free as soon as the answer stands.
        let answer = deadline::within(at, work).await.unwrap_or_else(|| Err(errors::deadline_exceeded()))?;
        Ok((answer, None))
    }

    fn room(&self, method: &Method) -> Result<Option<OwnedSemaphorePermit>, Status> {
        if method.name.starts_with(HEALTH) {
            return Ok(None);
        }
        let room = if method.server_streaming { &self.streams_room } else { &self.calls_room };
        let permit = Arc::clone(room).try_acquire_owned().map_err(|_| errors::overloaded(RETRY_AFTER))?;
        Ok(Some(permit))
    }

    fn deadline(&self, headers: &HeaderMap) -> Result<Instant, Status> {
        let asked = match headers.get("grpc-timeout") {
            None => self.deadline_max,
            Some(value) => value
                .to_str()
                .ok()
                .and_then(deadline::parse_timeout)
                .ok_or_else(|| errors::invalid_field("grpc-timeout", "must be at most eight digits and a unit"))?,
        };
        Ok(Instant::now() + asked.min(self.deadline_max))
    }

    async fn handle(&self, method: &Method, request: Request<Body>) -> Result<Response<Body>, Status> {
        let handler = AssertUnwindSafe(self.routes.clone().oneshot(request)).catch_unwind();
        match handler.await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(never)) => match never {},
            Err(_) => {
                tracing::error!(method = method.name, "a handler panicked");
                Err(errors::internal())
            }
        }
    }
}

/// Says whose fault it is when a message could not be decoded.
fn decodable(response: Response<Body>) -> Response<Body> {
    let status = Status::from_header_map(response.headers());
    status.as_ref().and_then(errors::undecodable).map_or(response, Status::into_http)
}
