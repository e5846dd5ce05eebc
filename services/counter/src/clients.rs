//! The service this one asks: `LaneService` of command, for how far relations are committed.

use std::time::Duration;

use likewise_domain::lane::Offset;
use likewise_kit::clients::{self, Outbound};
use likewise_kit::lanes::Lane;
use likewise_proto::lanes::v1::GetWatermarksRequest;
use likewise_proto::lanes::v1::lane_service_client::LaneServiceClient;
use time::OffsetDateTime;

use crate::consumer::LANE_CLASS;
use crate::freshness::Observation;

/// The source of relation changes.
pub struct Source {
    lanes: LaneServiceClient<Outbound>,
}

impl Source {
    /// The source at an endpoint. Connects when first asked.
    ///
    /// # Errors
    /// When the endpoint is no address.
    pub fn new(endpoint: &str, tokens: &likewise_kit::auth::ServiceTokens) -> Result<Self, clients::Error> {
        Ok(Self { lanes: LaneServiceClient::new(clients::outbound(endpoint, tokens)?) })
    }

    /// How far every lane is committed, as of before the question.
    ///
    /// # Errors
    /// In our words: no answer, or a lane that nobody answered for.
    pub async fn observe(&self, lanes: u16, within: Duration) -> Result<Observation, String> {
        let at = OffsetDateTime::now_utc();
        let mut request = tonic::Request::new(GetWatermarksRequest {});
        request.set_timeout(within);
        let answer = self.lanes.clone().get_watermarks(request).await.map_err(|status| status.message().to_owned())?;
        let published = answer.into_inner().lanes;
        let committed = (0..lanes).map(|shard| {
            let name = Lane { class: LANE_CLASS, shard }.to_string();
            let found = published.iter().find(|lane| lane.lane == name);
            let lane = found.ok_or_else(|| format!("nobody answers for lane {name}"))?;
            let epoch = u32::try_from(lane.epoch).map_err(|_| format!("lane {name} has an impossible epoch"))?;
            // A lane in which nothing was ever committed is covered by anybody.
            let next = match lane.committed_seq {
                0 => Offset::FIRST,
                committed => Offset { epoch, seq: committed + 1 },
            };
            Ok::<_, String>((name, next))
        });
        Ok(Observation { at, committed: committed.collect::<Result<_, _>>()? })
    }
}
