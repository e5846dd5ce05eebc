//! The authority for accounts and videos.

use std::collections::HashMap;
use std::time::Duration;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::visibility::{Standing, VideoPolicy};
use likewise_kit::clients::Outbound;
use likewise_proto::convert::visibility;
use likewise_proto::policy::v1 as wire;
use likewise_proto::policy::v1::policy_service_client::PolicyServiceClient;

use super::{Failure, timed};

const SERVICE: &str = "policy";

/// Asks the authority.
#[derive(Clone)]
pub struct Authority {
    client: PolicyServiceClient<Outbound>,
    timeout: Duration,
}

impl Authority {
    /// Over a channel with our token.
    #[must_use]
    pub fn new(channel: Outbound, timeout: Duration) -> Self {
        Self { client: PolicyServiceClient::new(channel), timeout }
    }

    /// Policies of up to 200 videos, all of them.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn videos(&self, videos: &[VideoId]) -> Result<HashMap<VideoId, VideoPolicy>, Failure> {
        let video_ids = videos.iter().map(|video| video.as_str().to_owned()).collect();
        let request = timed(wire::BatchGetVideoPoliciesRequest { video_ids }, self.timeout);
        let answer = self.client.clone().batch_get_video_policies(request).await;
        let answer = answer.map_err(Failure::of(SERVICE))?.into_inner();
        let policy = |policy: &wire::VideoPolicy| {
            Some((VideoId::parse(&policy.video_id).ok()?, visibility::video_policy(policy)))
        };
        complete(videos, answer.policies.iter().filter_map(policy).collect())
    }

    /// How `viewer` stands to up to 200 others, all of them.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn standings(&self, viewer: &UserId, others: &[UserId]) -> Result<HashMap<UserId, Standing>, Failure> {
        let request = wire::BatchCheckPairsRequest {
            viewer_id: viewer.as_str().to_owned(),
            other_ids: others.iter().map(|other| other.as_str().to_owned()).collect(),
        };
        let answer = self.client.clone().batch_check_pairs(timed(request, self.timeout)).await;
        let answer = answer.map_err(Failure::of(SERVICE))?.into_inner();
        let pair = |pair: &wire::Pair| Some((UserId::parse(&pair.other_id).ok()?, visibility::standing(pair)));
        complete(others, answer.pairs.iter().filter_map(pair).collect())
    }
}

fn complete<K: Eq + std::hash::Hash, V>(asked: &[K], found: HashMap<K, V>) -> Result<HashMap<K, V>, Failure> {
    if asked.iter().all(|key| found.contains_key(key)) { Ok(found) } else { Err(Failure::incomplete(SERVICE)) }
}
