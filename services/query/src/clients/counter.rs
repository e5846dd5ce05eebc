//! Durable counts and how far they have come.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use likewise_domain::id::VideoId;
use likewise_domain::lane::Offset;
use likewise_kit::clients::Outbound;
use likewise_proto::convert;
use likewise_proto::counter::v1 as wire;
use likewise_proto::counter::v1::count_service_client::CountServiceClient;

use super::{Failure, timed};
use crate::count::{Numbers, Progress, Reading};

const SERVICE: &str = "counter";

/// The counter.
#[derive(Clone)]
pub struct Counter {
    client: CountServiceClient<Outbound>,
    timeout: Duration,
}

impl Counter {
    /// Most ids of one call, by the contract.
    pub const VIDEOS_MAX: usize = 200;

    /// Over a channel with our token.
    #[must_use]
    pub fn new(channel: Outbound, timeout: Duration) -> Self {
        Self { client: CountServiceClient::new(channel), timeout }
    }

    /// How far rows and views have come.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn progress(&self) -> Result<Progress, Failure> {
        let answer = self.client.clone().get_progress(timed(wire::GetProgressRequest {}, self.timeout)).await;
        let answer = answer.map_err(Failure::of(SERVICE))?.into_inner();
        progress(answer.progress).ok_or_else(|| Failure::incomplete(SERVICE))
    }

    /// Rows of at most [`VIDEOS_MAX`](Self::VIDEOS_MAX) videos, with the progress from before they were read.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn counts(&self, videos: &[VideoId]) -> Result<HashMap<VideoId, Arc<Reading>>, Failure> {
        let video_ids = videos.iter().map(|video| video.as_str().to_owned()).collect();
        let request = timed(wire::BatchGetCountsRequest { video_ids }, self.timeout);
        let answer = self.client.clone().batch_get_counts(request).await.map_err(Failure::of(SERVICE))?.into_inner();
        let progress = Arc::new(progress(answer.progress).ok_or_else(|| Failure::incomplete(SERVICE))?);
        let reading = |count| {
            let (video, numbers) = numbers(count)?;
            Some((video, Arc::new(Reading { numbers, progress: Arc::clone(&progress) })))
        };
        let counts: Option<_> = answer.counts.into_iter().map(reading).collect();
        counts.ok_or_else(|| Failure::incomplete(SERVICE))
    }
}

fn progress(wire: Option<wire::Progress>) -> Option<Progress> {
    let wire = wire?;
    let next = |at: likewise_proto::types::v1::LaneOffset| {
        Some((at.lane, Offset { epoch: u32::try_from(at.epoch).ok()?, seq: at.seq }))
    };
    let covered_until = match &wire.covered_until {
        Some(at) => Some(convert::parse_timestamp(at)?),
        None => None,
    };
    Some(Progress {
        generation: wire.generation,
        next_offsets: wire.next_offsets.into_iter().map(next).collect::<Option<_>>()?,
        covered_until,
        incomplete: wire.incomplete,
    })
}

fn numbers(count: wire::DisplayCount) -> Option<(VideoId, Numbers)> {
    let numbers = Numbers {
        display: count.display,
        raw: count.raw,
        risk_hidden: count.risk_hidden,
        policy_hidden: count.policy_hidden,
        generated_at: convert::parse_timestamp(count.generated_at.as_ref()?)?,
        snapshot_id: count.snapshot_id,
        approximate: count.approximate,
    };
    Some((VideoId::parse(&count.video_id).ok()?, numbers))
}
