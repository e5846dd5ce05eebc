//! One `LaneService` for all lanes of a process.

use std::sync::Arc;
use std::time::Duration;

use likewise_proto::convert::timestamp;
use likewise_proto::lanes::v1::lane_service_server::LaneService;
use likewise_proto::lanes::v1::{
    GetWatermarksRequest, GetWatermarksResponse, SourceMessage, TailSourceRequest, TailSourceResponse,
};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use crate::auth::{self, Role};
use crate::errors;
use crate::lanes::{Error, OutboxMessage, TailSource, WatermarkSource};

/// Messages in one answer, and answers that wait for a slow reader.
const PART: usize = 500;
const AHEAD: usize = 2;
/// Tails read at once by one process.
const TAILS_MAX: usize = 16;
/// Told to those for whom there is no room, and when the outbox does not answer.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Answers for every source of the process.
pub(super) struct Lanes {
    sources: Vec<Arc<dyn WatermarkSource>>,
    room: Arc<Semaphore>,
}

type Tail = ReceiverStream<Result<TailSourceResponse, Status>>;

impl Lanes {
    pub(super) fn new(sources: Vec<Arc<dyn WatermarkSource>>) -> Self {
        Self { sources, room: Arc::new(Semaphore::new(TAILS_MAX)) }
    }
}

fn away(error: &Error) -> Status {
    tracing::warn!(error = error.chain(), "an outbox cannot be read");
    errors::unavailable("outbox", RETRY_AFTER)
}

/// Sends what is committed now, from `from` on.
async fn send(
    source: &dyn TailSource,
    from: u64,
    epoch: u64,
    parts: &mpsc::Sender<Result<TailSourceResponse, Status>>,
) -> Result<(), Status> {
    let committed = source.committed().await.map_err(|error| away(&error))?;
    let mut next = from;
    while next <= committed {
        let rows = source.after(next - 1, PART).await.map_err(|error| away(&error))?;
        // Numbers have no holes; what begins later has lost its beginning.
        if rows.first().is_none_or(|row| row.seq != next) {
            let message = "the outbox begins later";
            let first = rows.first().map_or(committed + 1, |row| row.seq);
            let first = [("first_seq", first.to_string())];
            return Err(errors::refused_with(Code::FailedPrecondition, "LOG_EXPIRED", message, &first));
        }
        if u64::from(source.epoch().await.map_err(|error| away(&error))?) != epoch {
            return Err(epoch_changed());
        }
        next = rows.last().map_or(next, |row| row.seq + 1);
        let messages = rows.into_iter().filter(|row| row.seq <= committed).map(wire).collect();
        if parts.send(Ok(TailSourceResponse { messages })).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn epoch_changed() -> Status {
    errors::refused(Code::FailedPrecondition, "EPOCH_CHANGED", "the number belongs to another epoch of the lane")
}

fn wire(row: OutboxMessage) -> SourceMessage {
    SourceMessage {
        seq: row.seq,
        event_id: row.event_id.to_string(),
        schema: row.schema.to_owned(),
        payload: row.payload,
        committed_at: Some(timestamp(row.created_at)),
    }
}

#[tonic::async_trait]
impl LaneService for Lanes {
    type TailSourceStream = Tail;

    async fn get_watermarks(
        &self,
        request: Request<GetWatermarksRequest>,
    ) -> Result<Response<GetWatermarksResponse>, Status> {
        auth::service_or_operator(&request, Role::Viewer)?;
        let lanes = futures::future::join_all(self.sources.iter().map(|source| source.lanes())).await;
        let consumers = futures::future::join_all(self.sources.iter().map(|source| source.consumers())).await;
        Ok(Response::new(GetWatermarksResponse {
            lanes: lanes.into_iter().flatten().collect(),
            consumers: consumers.into_iter().flatten().collect(),
        }))
    }

    async fn tail_source(&self, request: Request<TailSourceRequest>) -> Result<Response<Tail>, Status> {
        auth::service_or_operator(&request, Role::Viewer)?;
        let TailSourceRequest { lane, epoch, from_seq } = request.into_inner();
        if from_seq == 0 {
            return Err(errors::invalid_field("from_seq", "must be 1 or more"));
        }
        let source = self.sources.iter().find_map(|source| source.tail(&lane)).ok_or_else(|| {
            errors::refused(Code::NotFound, "LANE_NOT_FOUND", "this process publishes no lane of that name")
        })?;
        if u64::from(source.epoch().await.map_err(|error| away(&error))?) != epoch {
            return Err(epoch_changed());
        }
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| errors::overloaded(RETRY_AFTER))?;
        let (parts, outgoing) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            let _room = room;
            if let Err(status) = send(&*source, from_seq, epoch, &parts).await {
                let _ = parts.send(Err(status)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}
