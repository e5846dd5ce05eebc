//! The services that publish or consume lanes: `LaneService` of each. Wire types of the contract stop here.

use std::time::Duration;

use futures::future::join_all;
use likewise_kit::auth::ServiceTokens;
use likewise_kit::clients::{self, Outbound};
use likewise_kit::config::Endpoints;
use likewise_kit::deadline;
use likewise_proto::convert::parse_timestamp;
use likewise_proto::lanes::v1::lane_service_client::LaneServiceClient;
use likewise_proto::lanes::v1::{
    ConsumerWatermark, GetWatermarksRequest, GetWatermarksResponse, LaneEpoch, LaneWatermark,
};
use tonic::Request;

use crate::board::{Consumed, Epoch, Published};

/// An address that answers for the lanes of one or more services.
#[derive(Clone)]
struct Observed {
    /// The services that share it, as operators are told.
    services: Vec<&'static str>,
    client: LaneServiceClient<Outbound>,
}

/// Everybody who can tell where lanes stand.
#[derive(Clone)]
pub struct Fleet {
    observed: Vec<Observed>,
    timeout: Duration,
}

/// What the fleet says.
#[derive(Debug, Default)]
pub struct Heard {
    /// From publishers.
    pub published: Vec<Published>,
    /// From consumers.
    pub consumed: Vec<Consumed>,
    /// Services without an answer.
    pub unanswered: Vec<String>,
}

impl Fleet {
    /// The services of `endpoints`; those at one address are asked once.
    ///
    /// # Errors
    /// When an endpoint is no address.
    pub fn new(endpoints: &Endpoints, tokens: &ServiceTokens, timeout: Duration) -> Result<Self, clients::Error> {
        let all = [
            ("command", &endpoints.command),
            ("content", &endpoints.content),
            ("counter", &endpoints.counter),
            ("reverse-index", &endpoints.reverse_index),
        ];
        let mut observed: Vec<(&str, Observed)> = Vec::new();
        for (service, endpoint) in all {
            if let Some((_, known)) = observed.iter_mut().find(|(address, _)| address == endpoint) {
                known.services.push(service);
                continue;
            }
            let client = LaneServiceClient::new(clients::outbound(endpoint, tokens)?);
            observed.push((endpoint, Observed { services: vec![service], client }));
        }
        Ok(Self { observed: observed.into_iter().map(|(_, observed)| observed).collect(), timeout })
    }

    /// Asks all at once. A silent one costs its own rows only.
    pub async fn ask(&self) -> Heard {
        let timeout = deadline::remaining().map_or(self.timeout, |left| left.min(self.timeout));
        let answers = join_all(self.observed.iter().map(|one| one.ask(timeout))).await;
        let mut heard = Heard::default();
        for (one, answer) in self.observed.iter().zip(answers) {
            let Some(answer) = answer else {
                heard.unanswered.extend(one.services.iter().map(|service| (*service).to_owned()));
                continue;
            };
            heard.published.extend(answer.lanes.into_iter().map(published));
            heard.consumed.extend(answer.consumers.into_iter().map(consumed));
        }
        heard
    }
}

impl Observed {
    async fn ask(&self, timeout: Duration) -> Option<GetWatermarksResponse> {
        let mut request = Request::new(GetWatermarksRequest {});
        request.set_timeout(timeout);
        // The header asks the other side to give up; this also ends a wait for a side that cannot be reached.
        let answer = tokio::time::timeout(timeout, self.client.clone().get_watermarks(request)).await;
        match answer {
            Ok(Ok(answer)) => Some(answer.into_inner()),
            Ok(Err(status)) => {
                tracing::warn!(services = ?self.services, code = ?status.code(), "no watermarks");
                None
            }
            Err(_) => {
                tracing::warn!(services = ?self.services, "no watermarks in time");
                None
            }
        }
    }
}

fn published(wire: LaneWatermark) -> Published {
    Published {
        lane: wire.lane,
        epoch: wire.epoch,
        committed_seq: wire.committed_seq,
        published_seq: wire.published_seq,
        oldest_unpublished_at: wire.oldest_unpublished_at.as_ref().and_then(parse_timestamp),
        last_error: wire.last_error,
        status: wire.status,
        epochs: wire.epochs.iter().map(epoch).collect(),
    }
}

fn epoch(wire: &LaneEpoch) -> Epoch {
    Epoch {
        epoch: wire.epoch,
        first_seq: wire.first_seq,
        began_at: wire.began_at.as_ref().and_then(parse_timestamp),
        served_at: wire.served_at.as_ref().and_then(parse_timestamp),
        lost: wire.lost,
        restated: wire.restated,
    }
}

fn consumed(wire: ConsumerWatermark) -> Consumed {
    Consumed {
        projection: wire.projection,
        lane: wire.lane,
        epoch: wire.epoch,
        next_offset: wire.next_offset,
        updated_at: wire.updated_at.as_ref().and_then(parse_timestamp),
        status: wire.status,
        last_error: wire.last_error,
        quarantined: wire.quarantined,
    }
}
