//! The authority for accounts and videos.

use std::collections::HashMap;
use std::time::Duration;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::visibility::{AccountPolicy, Standing, VideoPolicy};
use likewise_kit::clients::{self, Outbound};
use likewise_kit::deadline;
use likewise_proto::convert::visibility;
use likewise_proto::policy::v1 as wire;
use likewise_proto::policy::v1::policy_service_client::PolicyServiceClient;
use tonic::{Code, Request, Status};

/// The authority did not answer, or not all of what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("the authority for accounts and videos does not answer ({code:?}): {message}")]
pub struct Away {
    code: Code,
    message: String,
}

impl Away {
    /// An answer in which something is missing, that is, none.
    pub const INCOMPLETE: Self = Self { code: Code::DataLoss, message: String::new() };
}

impl From<Status> for Away {
    fn from(status: Status) -> Self {
        Self { code: status.code(), message: status.message().to_owned() }
    }
}

/// Asks the authority. Nothing is remembered: what is answered holds for this call.
#[derive(Clone)]
pub struct Authority {
    client: PolicyServiceClient<Outbound>,
    timeout: Duration,
}

impl Authority {
    /// Over a channel with our token; every question waits at most `timeout`.
    #[must_use]
    pub fn new(channel: Outbound, timeout: Duration) -> Self {
        Self { client: PolicyServiceClient::new(channel), timeout }
    }

    /// Policy of one video.
    ///
    /// # Errors
    /// [`Away`].
    pub async fn video(&self, video: &VideoId) -> Result<VideoPolicy, Away> {
        let request = wire::BatchGetVideoPoliciesRequest { video_ids: vec![video.as_str().to_owned()] };
        let answer = self.client.clone().batch_get_video_policies(self.request(request)).await?.into_inner();
        let policy = answer.policies.iter().find(|policy| policy.video_id == video.as_str());
        policy.map(visibility::video_policy).ok_or(Away::INCOMPLETE)
    }

    /// Policies of up to 200 accounts.
    ///
    /// # Errors
    /// [`Away`].
    pub async fn accounts(&self, users: &[UserId]) -> Result<HashMap<UserId, AccountPolicy>, Away> {
        if users.is_empty() {
            return Ok(HashMap::new());
        }
        let request = wire::BatchGetAccountPoliciesRequest { user_ids: texts(users), block_set_of: None };
        let answer = self.client.clone().batch_get_account_policies(self.request(request)).await?.into_inner();
        let policy = |policy: &wire::AccountPolicy| {
            Some((UserId::parse(&policy.user_id).ok()?, visibility::account_policy(policy)))
        };
        Ok(answer.policies.iter().filter_map(policy).collect())
    }

    /// How `viewer` stands to up to 200 others.
    ///
    /// # Errors
    /// [`Away`].
    pub async fn standings(&self, viewer: &UserId, others: &[UserId]) -> Result<HashMap<UserId, Standing>, Away> {
        if others.is_empty() {
            return Ok(HashMap::new());
        }
        let request = wire::BatchCheckPairsRequest { viewer_id: viewer.as_str().to_owned(), other_ids: texts(others) };
        let answer = self.client.clone().batch_check_pairs(self.request(request)).await?.into_inner();
        let pair = |pair: &wire::Pair| Some((UserId::parse(&pair.other_id).ok()?, visibility::standing(pair)));
        Ok(answer.pairs.iter().filter_map(pair).collect())
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(deadline::remaining().map_or(self.timeout, |left| left.min(self.timeout)));
        request
    }
}

fn texts(users: &[UserId]) -> Vec<String> {
    users.iter().map(|user| user.as_str().to_owned()).collect()
}

/// The channel to the authority.
///
/// # Errors
/// When the endpoint is no URL.
pub fn authority(
    endpoint: &str,
    tokens: &likewise_kit::auth::ServiceTokens,
    timeout: Duration,
) -> Result<Authority, clients::Error> {
    Ok(Authority::new(clients::outbound(endpoint, tokens)?, timeout))
}
