//! `PolicyService`, the contract that any authority for accounts and videos can implement.

use std::collections::HashMap;

use likewise_kit::{auth, errors};
use likewise_proto::policy::v1 as pb;
use likewise_proto::policy::v1::policy_service_server::PolicyService;
use tonic::{Request, Response, Status};

use super::{id, ids, store_failed, wire};
use crate::model::Pair;
use crate::store::{Changed, Reader};

const CHANGES_MAX: u32 = 1000;
const CHANGES_DEFAULT: u32 = 500;

/// The door.
pub struct PolicyDoor {
    /// Reads policies.
    pub reader: Reader,
    /// Entries of a block set that are handed out whole.
    pub block_set_max: i64,
}

#[tonic::async_trait]
impl PolicyService for PolicyDoor {
    async fn batch_get_video_policies(
        &self,
        request: Request<pb::BatchGetVideoPoliciesRequest>,
    ) -> Result<Response<pb::BatchGetVideoPoliciesResponse>, Status> {
        auth::service(&request)?;
        let wanted = request.into_inner().video_ids;
        ids("video_ids", &wanted)?;
        let found = self.reader.post_policies(&wanted).await.map_err(|error| store_failed(&error))?;
        let found: HashMap<String, pb::VideoPolicy> =
            found.into_iter().map(|policy| (policy.post_id.clone(), wire::video_policy(policy))).collect();
        let policies = wanted.iter().map(|id| found.get(id).cloned().unwrap_or_else(|| wire::no_video(id))).collect();
        Ok(Response::new(pb::BatchGetVideoPoliciesResponse { policies }))
    }

    async fn batch_get_account_policies(
        &self,
        request: Request<pb::BatchGetAccountPoliciesRequest>,
    ) -> Result<Response<pb::BatchGetAccountPoliciesResponse>, Status> {
        auth::service(&request)?;
        let request = request.into_inner();
        let wanted = request.user_ids;
        // A caller may want a block set alone.
        if !wanted.is_empty() || request.block_set_of.is_none() {
            ids("user_ids", &wanted)?;
        }
        let found = self.reader.account_policies(&wanted).await.map_err(|error| store_failed(&error))?;
        let found: HashMap<String, pb::AccountPolicy> =
            found.into_iter().map(|policy| (policy.user_id.clone(), wire::account_policy(policy))).collect();
        let policies = wanted.iter().map(|id| found.get(id).cloned().unwrap_or_else(|| wire::no_account(id))).collect();
        let block_set = match request.block_set_of {
            None => None,
            Some(user) => {
                let user_id = id("block_set_of", &user)?;
                let set = self.reader.block_set(&user_id, self.block_set_max).await;
                let set = set.map_err(|error| store_failed(&error))?;
                Some(pb::BlockSet { user_id, others: set.others, truncated: set.truncated, version: set.version })
            }
        };
        Ok(Response::new(pb::BatchGetAccountPoliciesResponse { policies, block_set }))
    }

    async fn batch_check_pairs(
        &self,
        request: Request<pb::BatchCheckPairsRequest>,
    ) -> Result<Response<pb::BatchCheckPairsResponse>, Status> {
        auth::service(&request)?;
        let request = request.into_inner();
        let viewer = id("viewer_id", &request.viewer_id)?;
        ids("other_ids", &request.other_ids)?;
        let found = self.reader.pairs(&viewer, &request.other_ids).await.map_err(|error| store_failed(&error))?;
        let found: HashMap<String, Pair> = found.into_iter().map(|pair| (pair.other_id.clone(), pair)).collect();
        let stranger = |id: &String| Pair { other_id: id.clone(), ..Pair::default() };
        let pairs = request.other_ids.iter().map(|id| wire::pair(found.get(id).unwrap_or(&stranger(id)))).collect();
        Ok(Response::new(pb::BatchCheckPairsResponse { pairs }))
    }

    async fn list_changed_since(
        &self,
        request: Request<pb::ListChangedSinceRequest>,
    ) -> Result<Response<pb::ListChangedSinceResponse>, Status> {
        auth::service(&request)?;
        let request = request.into_inner();
        let seq = if request.cursor.is_empty() {
            0
        } else {
            let parsed = request.cursor.parse::<i64>().ok().filter(|seq| *seq >= 0);
            parsed.ok_or_else(|| errors::invalid_field("cursor", "is not a cursor of this call"))?
        };
        let size = match request.page_size {
            0 => CHANGES_DEFAULT,
            1..=CHANGES_MAX => request.page_size,
            _ => return Err(errors::invalid_field("page_size", format!("must be at most {CHANGES_MAX}"))),
        };
        let changed = self.reader.changed_since(seq, i64::from(size)).await.map_err(|error| store_failed(&error))?;
        Ok(Response::new(cut(changed, seq, size as usize)))
    }
}

/// The first `size` of both lists together, by number; the cursor is the last number taken.
fn cut(changed: Changed, seq: i64, size: usize) -> pb::ListChangedSinceResponse {
    let mut numbers: Vec<i64> = changed.accounts.iter().map(|(seq, _)| *seq).collect();
    numbers.extend(changed.posts.iter().map(|(seq, _)| *seq));
    numbers.sort_unstable();
    numbers.truncate(size);
    let last = numbers.last().copied().unwrap_or(seq);
    let accounts = changed.accounts.into_iter().filter(|(seq, _)| *seq <= last);
    let posts = changed.posts.into_iter().filter(|(seq, _)| *seq <= last);
    pb::ListChangedSinceResponse {
        accounts: accounts.map(|(_, policy)| wire::account_policy(policy)).collect(),
        videos: posts.map(|(_, policy)| wire::video_policy(policy)).collect(),
        next_cursor: last.to_string(),
    }
}
