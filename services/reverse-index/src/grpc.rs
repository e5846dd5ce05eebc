//! `ReverseIndexService` for the services that answer people.

use std::time::Duration;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::merge::LikerKey;
use likewise_kit::{auth, errors};
use likewise_proto::convert;
use likewise_proto::reverse_index::v1 as wire;
use likewise_proto::reverse_index::v1::reverse_index_service_server::ReverseIndexService;
use likewise_proto::types::v1::LaneOffset;
use tonic::{Code, Request, Response, Status};

use crate::app::{Ask, Likers, Page, Refusal};
use crate::contract::Contract;

/// Longest page of the contract.
const PAGE_SIZE_MAX: u32 = 100;
/// When to try again what an absent store or authority refused.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The door.
pub struct Door {
    likers: Likers,
}

impl Door {
    /// Over the use case.
    #[must_use]
    pub const fn new(likers: Likers) -> Self {
        Self { likers }
    }

    fn refuse(&self, refusal: &Refusal) -> Status {
        match refusal {
            Refusal::NotFound => {
                errors::refused(Code::NotFound, "VIDEO_NOT_FOUND", "there is no such video for this viewer")
            }
            Refusal::Gone => {
                errors::refused(Code::FailedPrecondition, "VIDEO_GONE", "the video was deleted or taken down")
            }
            Refusal::LikersHidden => errors::refused(
                Code::FailedPrecondition,
                "LIKERS_NOT_VISIBLE",
                "the author does not show this viewer who likes the video",
            ),
            Refusal::Away(away) => {
                self.likers.metrics.authority_away.inc();
                tracing::warn!(%away, "likers cannot be listed");
                errors::unavailable("policy", RETRY_AFTER)
            }
            Refusal::Store(error) if error.is_passing() => {
                tracing::warn!(error = error.chain(), "likers cannot be listed");
                errors::unavailable("reverse index", RETRY_AFTER)
            }
            Refusal::Store(error) => {
                tracing::error!(error = error.chain(), "likers cannot be listed");
                errors::internal()
            }
            Refusal::Watermarks(error) => {
                tracing::warn!(error = error.chain(), "likers cannot be listed");
                errors::unavailable("reverse index", RETRY_AFTER)
            }
        }
    }
}

#[tonic::async_trait]
impl ReverseIndexService for Door {
    async fn list_likers(
        &self,
        request: Request<wire::ListLikersRequest>,
    ) -> Result<Response<wire::ListLikersResponse>, Status> {
        auth::service(&request)?;
        let ask = parse(&self.likers.contract, request.into_inner())?;
        let page = self.likers.page(ask).await.map_err(|refusal| self.refuse(&refusal))?;
        Ok(Response::new(answer(self.likers.contract.generation(), page)))
    }
}

fn parse(contract: &Contract, request: wire::ListLikersRequest) -> Result<Ask, Status> {
    let mut faults = Vec::new();
    let mut fault = |field: &str, problem: String| faults.push((field.to_owned(), problem));
    let video = VideoId::parse(&request.video_id).map_err(|error| fault("video_id", error.to_string())).ok();
    let viewer = match request.viewer_id.as_str() {
        "" => None,
        id => UserId::parse(id).map_err(|error| fault("viewer_id", error.to_string())).ok(),
    };
    if !(1..=PAGE_SIZE_MAX).contains(&request.page_size) {
        fault("page_size", format!("must be 1..{PAGE_SIZE_MAX}"));
    }
    let after = frontiers(contract, request.after)?;
    match video {
        Some(video) if faults.is_empty() => {
            let page_size = usize::try_from(request.page_size).unwrap_or(1);
            Ok(Ask { video, viewer, page_size, after })
        }
        _ => Err(errors::invalid_fields(faults)),
    }
}

/// The frontier as one key per shard. Keys of another generation name other shards and are refused.
fn frontiers(contract: &Contract, after: Option<wire::Frontier>) -> Result<Vec<Option<LikerKey>>, Status> {
    let shards = usize::try_from(contract.reverse_shards()).unwrap_or(1);
    let mut frontiers = vec![None; shards];
    let Some(after) = after else { return Ok(frontiers) };
    if i32::try_from(after.generation) != Ok(contract.generation()) {
        return Err(errors::refused(
            Code::FailedPrecondition,
            "CURSOR_EXPIRED",
            "the list was rebuilt; start from the first page",
        ));
    }
    for shard in &after.shards {
        // Only a list of ours makes frontiers: whoever altered one has no right to it.
        let (slot, key) = frontier(contract, shard)
            .filter(|(slot, _)| frontiers.get(*slot).is_some_and(Option::is_none))
            .ok_or_else(|| {
                errors::refused(Code::InvalidArgument, "CURSOR_INVALID", "the frontier is not one of this list")
            })?;
        frontiers[slot] = Some(key);
    }
    Ok(frontiers)
}

fn frontier(contract: &Contract, shard: &wire::ShardFrontier) -> Option<(usize, LikerKey)> {
    let user_id = UserId::parse(&shard.user_id).ok()?;
    let liked_at = convert::parse_timestamp(shard.liked_at.as_ref()?)?;
    let its_own = contract.reverse_shard(&user_id) == shard.reverse_shard;
    its_own.then_some((usize::try_from(shard.reverse_shard).ok()?, LikerKey { liked_at, user_id }))
}

fn answer(generation: i32, page: Page) -> wire::ListLikersResponse {
    let frontier = |keys: Vec<Option<LikerKey>>| wire::Frontier {
        generation: u64::from(generation.unsigned_abs()),
        shards: (0..)
            .zip(keys)
            .filter_map(|(reverse_shard, key)| {
                let key = key?;
                let liked_at = Some(convert::timestamp(key.liked_at));
                Some(wire::ShardFrontier { reverse_shard, liked_at, user_id: key.user_id.as_str().to_owned() })
            })
            .collect(),
    };
    let liker = |key: LikerKey| wire::Liker {
        user_id: key.user_id.as_str().to_owned(),
        liked_at: Some(convert::timestamp(key.liked_at)),
    };
    let watermark = |(lane, Offset { epoch, seq })| LaneOffset { lane, epoch: u64::from(epoch), seq };
    wire::ListLikersResponse {
        likers: page.likers.into_iter().map(liker).collect(),
        next: page.next.map(frontier),
        hidden_by_policy: u32::try_from(page.hidden).unwrap_or(u32::MAX),
        watermarks: page.watermarks.into_iter().map(watermark).collect(),
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;
    use crate::contract::Frozen;

    fn contract() -> Contract {
        let frozen = Frozen {
            generation: 1,
            hash_algorithm: "xxh64".to_owned(),
            hash_seed: 42,
            key_encoding: "lp32be".to_owned(),
            reverse_shards: 4,
            parts: 2,
            lanes: 4,
        };
        Contract::parse(&frozen).expect("known names")
    }

    fn after(generation: u64, reverse_shard: u32) -> wire::Frontier {
        let liked_at = Some(Timestamp { seconds: 1_700_000_000, nanos: 0 });
        wire::Frontier {
            generation,
            shards: vec![wire::ShardFrontier { reverse_shard, liked_at, user_id: "lin".to_owned() }],
        }
    }

    #[test]
    fn inv_22_a_frontier_of_another_generation_or_shape_is_refused() {
        let shard = contract().reverse_shard(&UserId::parse("lin").expect("an id"));
        let reason = |frontier| frontiers(&contract(), Some(frontier)).map_err(|status| errors::reason(&status));
        assert!(reason(after(1, shard)).is_ok_and(|keys| keys.iter().flatten().count() == 1));
        assert_eq!(reason(after(2, shard)), Err(Some("CURSOR_EXPIRED".to_owned())));
        for shape in [after(1, (shard + 1) % 4), after(1, 4)] {
            assert_eq!(reason(shape), Err(Some("CURSOR_INVALID".to_owned())));
        }
        let mut twice = after(1, shard);
        twice.shards.push(twice.shards[0].clone());
        assert_eq!(reason(twice), Err(Some("CURSOR_INVALID".to_owned())));
    }

    #[test]
    fn a_frontier_reads_back() {
        let page = Page {
            likers: Vec::new(),
            hidden: 0,
            next: Some(frontiers(&contract(), Some(after(1, 3))).expect("a good frontier")),
            watermarks: Vec::new(),
        };
        assert_eq!(answer(1, page).next, Some(after(1, 3)));
    }

    #[test]
    fn every_field_at_fault_is_named() {
        let request = wire::ListLikersRequest {
            video_id: "V 1".to_owned(),
            viewer_id: "x y".to_owned(),
            page_size: 101,
            after: None,
        };
        let status = parse(&contract(), request).expect_err("three faults");
        let details = tonic_types::StatusExt::get_details_bad_request(&status).expect("details");
        let fields: Vec<_> = details.field_violations.into_iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["video_id", "viewer_id", "page_size"]);
    }
}
