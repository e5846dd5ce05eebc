//! Accepts connections within limits and ends them in order.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;
use tower::{Service, ServiceExt as _};

/// A new connection that has not even said which protocol it speaks by then is closed.
const HELLO_MAX: Duration = Duration::from_secs(10);
/// Length of the opening words of HTTP/2; no HTTP/1 request of use is shorter.
const HELLO_BYTES: usize = 24;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
const HTTP1_HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Headers of one request; a token has below 8 KiB.
const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Out of file descriptors and the like: time for some connection to end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of one listener.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) connections_max: usize,
    pub(super) streams_per_connection_max: u32,
    /// A connection is asked to end at about this age, so that callers spread over new servers; zero for never.
    pub(super) connection_age: Duration,
}

/// How the connections of a listener are told to end.
#[derive(Debug, Clone, Default)]
pub(super) struct End {
    /// No new calls: HTTP/2 connections get GOAWAY, calls in flight go on.
    pub(super) drain: CancellationToken,
    /// Close whatever is left.
    pub(super) close: CancellationToken,
}

/// Serves until `end.drain`. Connections live on in `connections`, until they end or `end.close`.
pub(super) async fn serve<S>(listener: TcpListener, service: S, limits: Limits, end: End, connections: TaskTracker)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let builder = builder(&limits);
    loop {
        let accepted = end.drain.run_until_cancelled(accept(&listener, &room)).await;
        let Some((stream, permit)) = accepted else { return };
        let info = TcpConnectInfo { local_addr: stream.local_addr().ok(), remote_addr: stream.peer_addr().ok() };
        let service = service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(info.clone());
            request.map(Body::new)
        });
        let age = jittered(limits.connection_age);
        let (builder, end) = (builder.clone(), end.clone());
        connections.spawn(async move {
            connection(stream, TowerToHyperService::new(service), builder, age, end).await;
            drop(permit);
        });
    }
}

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let permit = Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Only delays small answers where it fails.
                let _ = stream.set_nodelay(true);
                return (stream, permit);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_per_connection_max)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .max_header_list_size(HEADER_BYTES_MAX);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HTTP1_HEADER_TIMEOUT);
    builder
}

/// Nine to eleven tenths, so that connections made together do not end together.
fn jittered(age: Duration) -> Duration {
    age.mul_f64(rand::random_range(0.9..1.1))
}

async fn connection<S>(
    stream: TcpStream,
    service: TowerToHyperService<S>,
    builder: Builder<TokioExecutor>,
    age: Duration,
    end: End,
) where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let heard = Arc::new(AtomicUsize::new(0));
    let io = TokioIo::new(Counted { stream, heard: Arc::clone(&heard) });
    let mut connection = pin!(builder.serve_connection(io, service));
    let started = Instant::now();
    let mut hello = pin!(sleep_until(started + HELLO_MAX));
    let mut old = pin!(sleep_until(started + age));
    let (mut greeted, mut ending) = (false, false);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "a connection ended");
                }
                return;
            }
            () = &mut hello, if !greeted => {
                if heard.load(Ordering::Relaxed) < HELLO_BYTES {
                    return;
                }
                greeted = true;
            }
            () = &mut old, if !ending && !age.is_zero() => {
                connection.as_mut().graceful_shutdown();
                ending = true;
            }
            () = end.drain.cancelled(), if !ending => {
                connection.as_mut().graceful_shutdown();
                ending = true;
            }
            () = end.close.cancelled() => return,
        }
    }
}

/// Counts the bytes heard from the other side.
struct Counted {
    stream: TcpStream,
    heard: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(self: Pin<&mut Self>, task: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(task, into))?;
        this.heard.fetch_add(into.filled().len() - before, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(task, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(task)
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(task)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(task, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
