//! Calls to the authority for accounts and videos.

use std::time::Duration;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::visibility::{Standing, VideoPolicy};
use likewise_kit::clients::Outbound;
use likewise_proto::convert::visibility::{standing, video_policy};
use likewise_proto::policy::v1::policy_service_client::PolicyServiceClient;
use likewise_proto::policy::v1::{
    AccountPolicy, BatchCheckPairsRequest, BatchGetAccountPoliciesRequest, BatchGetVideoPoliciesRequest,
    ListChangedSinceRequest,
};
use time::OffsetDateTime;
use tonic::{Request, Status};

use crate::policy::{BlockSet, VideoSnapshot};
use crate::store::accounts::Account;

/// Videos in one question; the contract allows no more.
pub(crate) const VIDEOS_MAX: usize = 200;

/// The authority did not answer, or not what was asked. The cause was logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the authority does not answer")]
pub(crate) struct Away;

/// The authority.
#[derive(Clone)]
pub(crate) struct Authority {
    client: PolicyServiceClient<Outbound>,
    timeout: Duration,
}

impl Authority {
    pub(crate) fn new(channel: Outbound, timeout: Duration) -> Self {
        Self { client: PolicyServiceClient::new(channel), timeout }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    /// Policies of at most [`VIDEOS_MAX`] videos, in the order asked for.
    pub(crate) async fn videos(&self, ids: &[VideoId]) -> Result<Vec<VideoSnapshot>, Away> {
        let video_ids = ids.iter().map(ToString::to_string).collect();
        let request = self.request(BatchGetVideoPoliciesRequest { video_ids });
        let answer = self.client.clone().batch_get_video_policies(request).await.map_err(|status| away(&status))?;
        let policies = answer.into_inner().policies;
        if policies.len() != ids.len() || policies.iter().zip(ids).any(|(policy, id)| policy.video_id != id.as_str()) {
            tracing::error!("the authority answered for other videos than those it was asked for");
            return Err(Away);
        }
        Ok(policies.iter().map(snapshot).collect())
    }

    /// Everybody whom `user` blocks or who blocks them.
    pub(crate) async fn block_set(&self, user: &UserId) -> Result<BlockSet, Away> {
        let user_ids = vec![user.to_string()];
        let message = BatchGetAccountPoliciesRequest { user_ids, block_set_of: Some(user.to_string()) };
        let request = self.request(message);
        let answer = self.client.clone().batch_get_account_policies(request).await.map_err(|status| away(&status))?;
        let Some(set) = answer.into_inner().block_set else {
            tracing::error!("the authority answered without the block set it was asked for");
            return Err(Away);
        };
        let others = set.others.iter().filter_map(|id| UserId::parse(id).ok()).collect();
        Ok(BlockSet { others, truncated: set.truncated, version: set.version })
    }

    /// Accounts that changed after a cursor, as they are now, and where to go on; the cursor itself when nothing is left. An
    /// account this build cannot read is left to the lane, which keeps its bytes.
    pub(crate) async fn changed_since(&self, cursor: &str) -> Result<(Vec<Account>, String), Away> {
        let request = self.request(ListChangedSinceRequest { cursor: cursor.to_owned(), page_size: 0 });
        let answer = self.client.clone().list_changed_since(request).await.map_err(|status| away(&status))?;
        let answer = answer.into_inner();
        let now = OffsetDateTime::now_utc();
        let account = |policy: &AccountPolicy| {
            let user_id = UserId::parse(&policy.user_id).ok()?;
            let state = i16::try_from(policy.state).ok()?;
            Some(Account { user_id, state, version: policy.version, changed_at: now })
        };
        let mut accounts: Vec<Account> = answer.accounts.iter().filter_map(account).collect();
        // One row each, at its highest version.
        accounts.sort_unstable_by(|one, other| one.user_id.cmp(&other.user_id).then(other.version.cmp(&one.version)));
        accounts.dedup_by(|later, kept| later.user_id == kept.user_id);
        Ok((accounts, answer.next_cursor))
    }

    /// How `viewer` stands to `other`.
    pub(crate) async fn pair(&self, viewer: &UserId, other: &UserId) -> Result<Standing, Away> {
        let message = BatchCheckPairsRequest { viewer_id: viewer.to_string(), other_ids: vec![other.to_string()] };
        let request = self.request(message);
        let answer = self.client.clone().batch_check_pairs(request).await.map_err(|status| away(&status))?;
        match answer.into_inner().pairs.as_slice() {
            [pair] if pair.other_id == other.as_str() => Ok(standing(pair)),
            _ => {
                tracing::error!("the authority answered for another pair than the one it was asked for");
                Err(Away)
            }
        }
    }
}

/// A policy of the wire, with its version.
pub(crate) fn snapshot(policy: &likewise_proto::policy::v1::VideoPolicy) -> VideoSnapshot {
    let version = policy.version;
    let policy = video_policy(policy);
    VideoSnapshot { version: if policy == VideoPolicy::NOT_FOUND { 0 } else { version }, policy }
}

fn away(status: &Status) -> Away {
    tracing::warn!(code = ?status.code(), message = status.message(), "the authority does not answer");
    Away
}
