//! An answer whose end is seen: for metrics, for what it holds while it runs, and so that a stream ends when the process
//! does.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::errors;
use crate::metrics::Counters;

/// Counts one call when it ends, however it ends: a caller that goes away leaves it CANCELLED.
pub(super) struct Record {
    pub(super) method: String,
    pub(super) calls: Counters,
    pub(super) seconds: prometheus_client::metrics::histogram::Histogram,
    pub(super) started: Instant,
    pub(super) code: Code,
}

impl Record {
    /// Takes the outcome from headers or trailers that tell it.
    pub(super) fn see(&mut self, headers: &HeaderMap) {
        if let Some(code) = headers.get(Status::GRPC_STATUS) {
            self.code = Code::from_bytes(code.as_bytes());
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let labels = vec![("method", std::mem::take(&mut self.method)), ("code", format!("{:?}", self.code))];
        self.calls.get_or_create(&labels).inc();
        self.seconds.observe(self.started.elapsed().as_secs_f64());
    }
}

/// The body of an answer.
pub(super) struct Observed {
    pub(super) body: Body,
    pub(super) record: Record,
    /// Ends the stream when the process drains.
    pub(super) draining: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Room among the streams, given back at the end.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

impl http_body::Body for Observed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(task);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    this.record.see(trailers);
                }
            }
            Poll::Ready(Some(Err(status))) => this.record.code = status.code(),
            Poll::Ready(None) => {}
            Poll::Pending => {
                if let Some(draining) = &mut this.draining
                    && draining.as_mut().poll(task).is_ready()
                {
                    return Poll::Ready(this.end());
                }
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Observed {
    fn end(&mut self) -> Option<Result<Frame<Bytes>, Status>> {
        self.draining = None;
        self.body = Body::empty();
        let status = errors::stopping();
        self.record.code = status.code();
        let mut trailers = HeaderMap::new();
        Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers)))
    }
}
