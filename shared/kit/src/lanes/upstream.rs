//! What a consumer asks of the publisher of its lane: messages that the stream lacks. In the outbox the number of a
//! change is the offset of its message.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::BoxFuture;
use likewise_domain::lane::Offset;
use likewise_proto::convert::parse_timestamp;
use likewise_proto::lanes::v1::lane_service_client::LaneServiceClient;
use likewise_proto::lanes::v1::{RegisterConsumerRequest, ReportProgressRequest, SourceMessage, TailSourceRequest};
use time::OffsetDateTime;
use tonic::{Request, Status};
use tonic_types::StatusExt as _;
use uuid::Uuid;

use super::{Error, Lane, LaneMessage};
use crate::clients::{self, Outbound};
use crate::errors;

/// Longest wait for an answer, and for each part of one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time that one read may take as a whole.
const READ_MAX: Duration = Duration::from_secs(60);
/// What was being done when it failed.
const READ: &str = "read the outbox of the lane";
const REGISTER: &str = "register with the publisher of the lane";
const REPORT: &str = "report to the publisher of the lane";

/// The publishers of the lanes that a process consumes.
pub trait Upstream: Send + Sync {
    /// Messages of a lane from its outbox: from `from` on, in order and without holes, at least one, at most `limit`.
    ///
    /// # Errors
    /// [`Error::RetentionGap`] when the outbox begins later, [`Error::EpochChanged`] when `from` is beyond what its epoch has
    /// in common with the next; anything else is worth another try.
    fn read(&self, lane: Lane, from: Offset, limit: usize) -> BoxFuture<'_, Result<Vec<LaneMessage>, Error>>;

    /// Names a consumer of a lane and where it goes on, so that the outbox keeps what it has not applied until it has said
    /// nothing for `ttl`. By default nothing is done: what never drops anything need not be told.
    ///
    /// # Errors
    /// [`Error::RetentionGap`] when the outbox begins later; anything else is worth another try.
    fn register<'a>(
        &'a self,
        lane: Lane,
        consumer: &'a str,
        next: Offset,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let _ = (lane, consumer, next, ttl);
        Box::pin(async { Ok(()) })
    }

    /// Says how far a consumer is. Answers whether it is registered.
    ///
    /// # Errors
    /// Each is worth another try.
    fn report<'a>(&'a self, lane: Lane, consumer: &'a str, next: Offset) -> BoxFuture<'a, Result<bool, Error>> {
        let _ = (lane, consumer, next);
        Box::pin(async { Ok(true) })
    }
}

/// Publishers reached through their `LaneService`.
pub struct Publishers {
    clients: HashMap<&'static str, LaneServiceClient<Outbound>>,
}

impl Publishers {
    /// Publishers by class of lanes.
    #[must_use]
    pub fn new(channels: impl IntoIterator<Item = (&'static str, Outbound)>) -> Self {
        let clients = channels.into_iter().map(|(class, channel)| (class, LaneServiceClient::new(channel)));
        Self { clients: clients.collect() }
    }

    fn client(&self, lane: Lane, what: &'static str) -> Result<LaneServiceClient<Outbound>, Error> {
        let known = self.clients.get(lane.class).cloned();
        known.ok_or_else(|| Error::outbox(what, "section [endpoints] does not name its publisher"))
    }

    async fn tail(&self, lane: Lane, from: Offset, limit: usize) -> Result<Vec<LaneMessage>, Error> {
        let mut client = self.client(lane, READ)?;
        let asked = TailSourceRequest { lane: lane.to_string(), epoch: from.epoch.into(), from_seq: from.seq };
        let mut request = Request::new(asked);
        request.set_timeout(READ_MAX);
        let told = within(READ, client.tail_source(request)).await?;
        let mut parts = told.map_err(|status| refused(READ, lane, from, &status))?.into_inner();
        let mut messages = Vec::new();
        while messages.len() < limit {
            let part = within(READ, parts.message()).await?.map_err(|status| refused(READ, lane, from, &status))?;
            let Some(part) = part else { break };
            for message in part.messages.into_iter().take(limit - messages.len()) {
                let due = Offset { seq: from.seq + messages.len() as u64, ..from };
                messages.push(understood(lane, due, message)?);
            }
        }
        if messages.is_empty() { Err(Error::outbox(READ, "it has nothing there yet")) } else { Ok(messages) }
    }
}

impl Upstream for Publishers {
    fn read(&self, lane: Lane, from: Offset, limit: usize) -> BoxFuture<'_, Result<Vec<LaneMessage>, Error>> {
        Box::pin(self.tail(lane, from, limit))
    }

    fn register<'a>(
        &'a self,
        lane: Lane,
        consumer: &'a str,
        next: Offset,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let asked = RegisterConsumerRequest {
                lane: lane.to_string(),
                consumer: consumer.to_owned(),
                epoch: next.epoch.into(),
                next_seq: next.seq,
                ttl_seconds: ttl.as_secs(),
            };
            let told = within(REGISTER, self.client(lane, REGISTER)?.register_consumer(patient(asked))).await?;
            told.map(drop).map_err(|status| refused(REGISTER, lane, next, &status))
        })
    }

    fn report<'a>(&'a self, lane: Lane, consumer: &'a str, next: Offset) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let (lane_name, consumer) = (lane.to_string(), consumer.to_owned());
            let asked =
                ReportProgressRequest { lane: lane_name, consumer, epoch: next.epoch.into(), next_seq: next.seq };
            match within(REPORT, self.client(lane, REPORT)?.report_progress(patient(asked))).await? {
                Ok(_) => Ok(true),
                Err(status) if errors::reason(&status).as_deref() == Some("CONSUMER_NOT_REGISTERED") => Ok(false),
                Err(status) => Err(refused(REPORT, lane, next, &status)),
            }
        })
    }
}

/// A request that its server, too, gives up after our patience.
fn patient<T>(asked: T) -> Request<T> {
    let mut request = Request::new(asked);
    request.set_timeout(PATIENCE);
    request
}

async fn within<T>(what: &'static str, call: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, call).await.map_err(|elapsed| Error::outbox(what, elapsed))
}

fn refused(what: &'static str, lane: Lane, from: Offset, status: &Status) -> Error {
    match errors::reason(status).as_deref() {
        Some("LOG_EXPIRED") => Error::RetentionGap { lane: lane.to_string(), seq: from.seq },
        Some("EPOCH_CHANGED") if next_epoch(status).is_some_and(|next| next.epoch > from.epoch) => {
            Error::EpochChanged { lane: lane.to_string(), next: next_epoch(status).unwrap_or(from) }
        }
        _ => Error::outbox(what, clients::failure("publisher", status)),
    }
}

/// Where the lane goes on, as a refusal tells it.
fn next_epoch(status: &Status) -> Option<Offset> {
    let told = status.get_details_error_info()?.metadata;
    Some(Offset { epoch: told.get("next_epoch")?.parse().ok()?, seq: told.get("first_seq")?.parse().ok()? })
}

/// A message of the outbox as the stream would have brought it.
fn understood(lane: Lane, due: Offset, message: SourceMessage) -> Result<LaneMessage, Error> {
    let SourceMessage { seq, event_id, schema, payload, committed_at } = message;
    if seq != due.seq {
        return Err(Error::OutboxHole { lane: lane.to_string(), expected: due.seq, found: seq });
    }
    let event_id = Uuid::try_parse(&event_id).map_err(|error| Error::outbox(READ, error))?;
    let published_at = committed_at.as_ref().and_then(parse_timestamp).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    Ok(LaneMessage { lane, offset: due, event_id, schema, payload, published_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Lane = Lane { class: "rel", shard: 1 };

    #[test]
    fn inv_19_a_message_at_another_number_is_a_hole_and_not_read() {
        let message = |seq, event_id: &str| SourceMessage { seq, event_id: event_id.to_owned(), ..Default::default() };
        let due = Offset { epoch: 2, seq: 7 };
        let id = Uuid::from_u128(9);
        let read = understood(LANE, due, message(7, &id.to_string())).expect("read");
        assert_eq!((read.offset, read.event_id), (due, id));
        assert!(matches!(understood(LANE, due, message(8, &id.to_string())), Err(Error::OutboxHole { .. })));
        assert!(understood(LANE, due, message(7, "junk")).is_err());
    }

    #[test]
    fn an_outbox_that_begins_later_is_told_apart_from_one_that_is_away() {
        let from = Offset { epoch: 0, seq: 3 };
        let expired = errors::refused(tonic::Code::FailedPrecondition, "LOG_EXPIRED", "x");
        assert!(refused(READ, LANE, from, &expired).is_final());
        assert!(!refused(READ, LANE, from, &Status::unavailable("x")).is_final());
    }

    #[test]
    fn inv_25_a_refusal_tells_where_the_lane_goes_on() {
        let from = Offset { epoch: 1, seq: 3 };
        let told = |epoch: &str| {
            let told = [("next_epoch", epoch.to_owned()), ("first_seq", "9".to_owned())];
            errors::refused_with(tonic::Code::FailedPrecondition, "EPOCH_CHANGED", "x", &told)
        };
        let next = Offset { epoch: 2, seq: 9 };
        let changed = refused(READ, LANE, from, &told("2"));
        assert!(matches!(changed, Error::EpochChanged { next: found, .. } if found == next), "{changed}");
        for elsewhere in ["1", "junk", ""] {
            assert!(!matches!(refused(READ, LANE, from, &told(elsewhere)), Error::EpochChanged { .. }), "{elsewhere}");
        }
    }
}
