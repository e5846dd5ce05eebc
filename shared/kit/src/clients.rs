//! Calls to other services.

use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::auth::{MintError, ServiceTokens};
use crate::{deadline, errors};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// A call that has no more than this left has run out of time: timers are not finer.
const OUT_OF_TIME: Duration = Duration::from_millis(2);
/// Told to the caller when a service of ours does not answer.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The endpoint cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("{endpoint:?} is no endpoint; write http://HOST:PORT")]
pub struct Error {
    endpoint: String,
    source: tonic::transport::Error,
}

/// A channel to another service that carries our token and the deadline of the call being answered.
///
/// When its time runs out, tonic tells `CANCELLED`; [`failure`] knows.
pub type Outbound = InterceptedService<Channel, ServiceAuth>;

/// A channel that connects when first used, and again after a failure.
///
/// # Errors
/// [`Error`] when the endpoint is no URL.
pub fn channel(endpoint: &str) -> Result<Channel, Error> {
    Ok(channel_settings(endpoint)?.connect_lazy())
}

/// How a channel connects; needs no Tokio runtime.
pub(crate) fn channel_settings(endpoint: &str) -> Result<Endpoint, Error> {
    let parsed =
        Endpoint::from_shared(endpoint.to_owned()).map_err(|source| Error { endpoint: endpoint.to_owned(), source })?;
    Ok(parsed
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

/// A channel that carries our token.
///
/// # Errors
/// [`Error`] when the endpoint is no URL.
pub fn outbound(endpoint: &str, tokens: &ServiceTokens) -> Result<Outbound, Error> {
    outbound_as(endpoint, Arc::new(tokens.clone()))
}

/// A channel that carries somebody's token.
///
/// # Errors
/// [`Error`] when the endpoint is no URL.
pub fn outbound_as(endpoint: &str, bearer: Arc<dyn Bearer>) -> Result<Outbound, Error> {
    Ok(InterceptedService::new(channel(endpoint)?, ServiceAuth { bearer }))
}

/// Whoever has a token. Asked for each call, so that a token may be replaced before it expires.
pub trait Bearer: Send + Sync {
    /// The value of the header `authorization`. Must not block.
    ///
    /// # Errors
    /// When there is no token; the call is not made.
    fn header(&self) -> Result<MetadataValue<Ascii>, MintError>;
}

impl Bearer for ServiceTokens {
    fn header(&self) -> Result<MetadataValue<Ascii>, MintError> {
        Self::header(self)
    }
}

/// Adds our token to each call, and what is left of the time of the call being answered unless the request has its own.
#[derive(Clone)]
pub struct ServiceAuth {
    bearer: Arc<dyn Bearer>,
}

impl Interceptor for ServiceAuth {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let header = self.bearer.header().map_err(|error| {
            tracing::error!(%error, "no service token");
            errors::internal()
        })?;
        request.metadata_mut().insert("authorization", header);
        if !request.metadata().contains_key("grpc-timeout")
            && let Some(left) = deadline::remaining()
        {
            request.set_timeout(left);
        }
        Ok(request)
    }
}

/// What the caller of ours is told when a call to `dependency` failed: UNAVAILABLE that names it, or what the other
/// service refused when our caller can do something about it.
#[must_use]
pub fn failure(dependency: &'static str, status: &Status) -> Status {
    match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::ResourceExhausted => status.clone(),
        // Our caller's time is up; nothing is known to be wrong with the other service.
        Code::Cancelled | Code::DeadlineExceeded if deadline::remaining().is_some_and(|left| left <= OUT_OF_TIME) => {
            errors::deadline_exceeded()
        }
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Aborted => {
            tracing::warn!(dependency, code = ?status.code(), "a service does not answer");
            errors::unavailable(dependency, RETRY_AFTER)
        }
        code => {
            tracing::error!(dependency, ?code, message = status.message(), "a service refused our call");
            errors::unavailable(dependency, RETRY_AFTER)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_out_of_time_blames_nobody_else() {
        let told = async { failure("counter", &Status::cancelled("x")) };
        let soon = tokio::time::Instant::now() + Duration::from_millis(1);
        let told = deadline::within(soon, told).await.expect("at once");
        assert_eq!(errors::reason(&told).as_deref(), Some("DEADLINE_EXCEEDED"));
    }

    #[test]
    fn a_dependency_that_is_away_is_named_and_a_refusal_passed_on() {
        for code in [Code::Unavailable, Code::Cancelled, Code::DeadlineExceeded, Code::Unauthenticated] {
            let told = failure("counter", &Status::new(code, "x"));
            assert_eq!(told.code(), Code::Unavailable);
            assert_eq!(errors::reason(&told).as_deref(), Some("COUNTER_UNAVAILABLE"));
        }
        assert_eq!(failure("counter", &errors::invalid_field("a", "is bad")).code(), Code::InvalidArgument);
    }
}
