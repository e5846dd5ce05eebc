//! One `LaneService` for all lanes of a process.

mod registry;

use std::sync::Arc;
use std::time::Duration;

use likewise_domain::lane::Offset;
use likewise_proto::convert::timestamp;
use likewise_proto::lanes::v1::lane_service_server::LaneService;
use likewise_proto::lanes::v1::{
    GetWatermarksRequest, GetWatermarksResponse, ListConsumersRequest, ListConsumersResponse, RegisterConsumerRequest,
    RegisterConsumerResponse, ReleaseConsumerRequest, ReleaseConsumerResponse, ReleaseHoldRequest, ReleaseHoldResponse,
    ReportProgressRequest, ReportProgressResponse, SourceMessage, TailSourceRequest, TailSourceResponse,
    TakeHoldRequest, TakeHoldResponse,
};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use crate::auth::{self, Role};
use crate::errors;
use crate::lanes::{Error, LaneEpoch, OutboxMessage, TailSource, WatermarkSource};

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

    fn source(&self, lane: &str) -> Result<Arc<dyn TailSource>, Status> {
        self.sources.iter().find_map(|source| source.tail(lane)).ok_or_else(|| {
            errors::refused(Code::NotFound, "LANE_NOT_FOUND", "this process publishes no lane of that name")
        })
    }
}

/// What is asked for is not in the outbox any more.
fn expired(first: u64) -> Status {
    let first = [("first_seq", first.to_string())];
    errors::refused_with(Code::FailedPrecondition, "LOG_EXPIRED", "the outbox begins later", &first)
}

fn away(error: &Error) -> Status {
    tracing::warn!(error = error.chain(), "an outbox cannot be read");
    errors::unavailable("outbox", RETRY_AFTER)
}

/// Sends what is committed now, from `from` on, and belongs to its epoch.
async fn send(
    source: &dyn TailSource,
    from: Offset,
    parts: &mpsc::Sender<Result<TailSourceResponse, Status>>,
) -> Result<(), Status> {
    let committed = source.committed().await.map_err(|error| away(&error))?;
    let mut next = from.seq;
    while next <= committed {
        let rows = source.after(next - 1, PART).await.map_err(|error| away(&error))?;
        // Numbers have no holes; what begins later has lost its beginning.
        if rows.first().is_none_or(|row| row.seq != next) {
            return Err(expired(rows.first().map_or(committed + 1, |row| row.seq)));
        }
        // Asked after the rows were read: a repair that begins now changes nothing about them.
        let last = last(source, Offset { seq: next, ..from }).await?.min(committed);
        next = rows.last().map_or(next, |row| row.seq + 1);
        let messages = rows.into_iter().filter(|row| row.seq <= last).map(wire).collect();
        if parts.send(Ok(TailSourceResponse { messages })).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Last number that the outbox shares with the epoch of `from`; refused when that is before `from`.
async fn last(source: &dyn TailSource, from: Offset) -> Result<u64, Status> {
    let epochs = source.epochs().await.map_err(|error| away(&error))?;
    shared(&epochs, from).map_err(|next| {
        let message = "the number belongs to another epoch of the lane";
        let told = next.map(|next| [("next_epoch", next.epoch.to_string()), ("first_seq", next.seq.to_string())]);
        let told = told.as_ref().map_or(&[][..], |told| &told[..]);
        errors::refused_with(Code::FailedPrecondition, "EPOCH_CHANGED", message, told)
    })
}

/// Last number up to which the outbox holds what was published in the epoch of `from`; without an end for the present epoch.
/// `Err` with the beginning of the next epoch when `from` is past that, and with nothing for an epoch that is not known yet.
fn shared(epochs: &[LaneEpoch], from: Offset) -> Result<u64, Option<Offset>> {
    // One of the past may be missing here: the database lost the record of its repair, but not its stream.
    if epochs.iter().all(|known| known.epoch < from.epoch) {
        return Err(None);
    }
    let later = epochs.iter().filter(|known| known.epoch > from.epoch);
    let first = later.clone().map(|known| known.first_seq).min().unwrap_or(u64::MAX);
    if from.seq < first {
        return Ok(first - 1);
    }
    Err(later.min_by_key(|known| known.epoch).map(|next| Offset { epoch: next.epoch, seq: next.first_seq }))
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
        let source = self.source(&lane)?;
        let from = Offset { epoch: u32::try_from(epoch).unwrap_or(u32::MAX), seq: from_seq };
        last(&*source, from).await?;
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| errors::overloaded(RETRY_AFTER))?;
        let (parts, outgoing) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            let _room = room;
            if let Err(status) = send(&*source, from, &parts).await {
                let _ = parts.send(Err(status)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }

    async fn register_consumer(
        &self,
        request: Request<RegisterConsumerRequest>,
    ) -> Result<Response<RegisterConsumerResponse>, Status> {
        let owner = auth::service(&request)?;
        let (asked, source) = (request.get_ref(), self.source(&request.get_ref().lane)?);
        let expires_at = registry::register_consumer(&*source, &owner, asked).await?;
        Ok(Response::new(RegisterConsumerResponse { expires_at: Some(timestamp(expires_at)) }))
    }

    async fn report_progress(
        &self,
        request: Request<ReportProgressRequest>,
    ) -> Result<Response<ReportProgressResponse>, Status> {
        let owner = auth::service(&request)?;
        let (asked, source) = (request.get_ref(), self.source(&request.get_ref().lane)?);
        let expires_at = registry::report_progress(&*source, &owner, asked).await?;
        Ok(Response::new(ReportProgressResponse { expires_at: Some(timestamp(expires_at)) }))
    }

    async fn list_consumers(
        &self,
        request: Request<ListConsumersRequest>,
    ) -> Result<Response<ListConsumersResponse>, Status> {
        auth::service_or_operator(&request, Role::Viewer)?;
        let source = self.source(&request.get_ref().lane)?;
        Ok(Response::new(registry::list(&*source).await?))
    }

    async fn release_consumer(
        &self,
        request: Request<ReleaseConsumerRequest>,
    ) -> Result<Response<ReleaseConsumerResponse>, Status> {
        let actor = auth::service_or_operator(&request, Role::Operator)?;
        let (asked, source) = (request.get_ref(), self.source(&request.get_ref().lane)?);
        let was_there = registry::release_consumer(&*source, &actor, &asked.consumer).await?;
        tracing::info!(lane = asked.lane, consumer = asked.consumer, actor, was_there, "consumer released");
        Ok(Response::new(ReleaseConsumerResponse { was_there }))
    }

    async fn take_hold(&self, request: Request<TakeHoldRequest>) -> Result<Response<TakeHoldResponse>, Status> {
        let owner = auth::service_or_operator(&request, Role::Operator)?;
        let (asked, source) = (request.get_ref(), self.source(&request.get_ref().lane)?);
        let (from_seq, expires_at) = registry::hold(&*source, &owner, asked).await?;
        tracing::info!(lane = asked.lane, hold = asked.hold, owner, from_seq, %expires_at, "hold taken");
        Ok(Response::new(TakeHoldResponse { from_seq, expires_at: Some(timestamp(expires_at)) }))
    }

    async fn release_hold(
        &self,
        request: Request<ReleaseHoldRequest>,
    ) -> Result<Response<ReleaseHoldResponse>, Status> {
        let actor = auth::service_or_operator(&request, Role::Operator)?;
        let (asked, source) = (request.get_ref(), self.source(&request.get_ref().lane)?);
        let was_there = registry::release_hold(&*source, &actor, &asked.hold).await?;
        tracing::info!(lane = asked.lane, hold = asked.hold, actor, was_there, "hold released");
        Ok(Response::new(ReleaseHoldResponse { was_there }))
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn inv_25_an_epoch_is_told_what_it_has_in_common_with_all_that_came_after() {
        let epoch = |epoch, first_seq| LaneEpoch {
            epoch,
            first_seq,
            began_at: OffsetDateTime::UNIX_EPOCH,
            served_at: None,
            lost: 0,
            restated: 0,
        };
        let epochs = [epoch(0, 1), epoch(1, 81), epoch(3, 61)];
        let ask = |epoch, seq| shared(&epochs, Offset { epoch, seq });
        assert_eq!(ask(0, 5), Ok(60), "the second repair found less than the first");
        assert_eq!(ask(1, 60), Ok(60));
        assert_eq!(ask(3, 61), Ok(u64::MAX - 1));
        assert_eq!(ask(0, 61), Err(Some(Offset { epoch: 1, seq: 81 })));
        assert_eq!(ask(1, 81), Err(Some(Offset { epoch: 3, seq: 61 })));
        assert_eq!(ask(2, 60), Ok(60), "its record was lost");
        assert_eq!(ask(4, 5), Err(None), "a backup that does not know it yet");
    }
}
