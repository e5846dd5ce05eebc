//! Requests, parsed once into types that carry their rules.

use std::collections::HashSet;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::lane::Position;
use likewise_kit::errors;
use likewise_proto::query::v1 as wire;
use tonic::{Code, Status};

use crate::page::Batch;

/// Limits of the contract.
const LIKES_MAX: usize = 100;
const COUNTS_MAX: usize = 200;
const PAGE_SIZE_MAX: u32 = 100;
const PAGE_SIZE_DEFAULT: u32 = 20;

/// The subject of a verified token as a user id.
pub(super) fn user(subject: &str) -> Result<UserId, Status> {
    UserId::parse(subject)
        .map_err(|_| errors::refused(Code::Unauthenticated, "TOKEN_INVALID", "the token's subject is no user id"))
}

type Faults = Vec<(String, String)>;

fn batch(ids: &[String], max: usize, faults: &mut Faults) -> Batch {
    if ids.is_empty() || ids.len() > max {
        faults.push(("video_ids".to_owned(), format!("must hold 1..{max} ids")));
        return Batch::new(Vec::new());
    }
    let mut videos = Vec::with_capacity(ids.len());
    for (index, id) in ids.iter().enumerate() {
        match VideoId::parse(id) {
            Ok(video) => videos.push(video),
            Err(error) => faults.push((format!("video_ids[{index}]"), error.to_string())),
        }
    }
    Batch::new(videos)
}

fn position(text: Option<&String>, faults: &mut Faults) -> Option<Position> {
    let position = Position::parse(text?);
    if position.is_none() {
        faults.push(("position".to_owned(), "is none that SetLike answered".to_owned()));
    }
    position
}

fn checked<T>(value: T, faults: Faults) -> Result<T, Status> {
    if faults.is_empty() { Ok(value) } else { Err(errors::invalid_fields(faults)) }
}

/// The minimum versions are only checked here: facts come from the primary, which no client is ahead of. A cache between the
/// two has to honour them.
pub(super) fn likes(request: &wire::BatchGetLikesRequest) -> Result<(Batch, Option<Position>), Status> {
    let mut faults = Vec::new();
    let batch = batch(&request.video_ids, LIKES_MAX, &mut faults);
    if request.min_relation_versions.len() > LIKES_MAX {
        faults.push(("min_relation_versions".to_owned(), format!("must hold at most {LIKES_MAX} versions")));
    } else {
        let asked: HashSet<&str> = request.video_ids.iter().map(String::as_str).collect();
        let mut strangers: Vec<_> =
            request.min_relation_versions.keys().filter(|id| !asked.contains(id.as_str())).collect();
        strangers.sort();
        for id in strangers {
            let problem = match VideoId::parse(id) {
                Ok(_) => "names a video that is not asked for".to_owned(),
                Err(error) => error.to_string(),
            };
            faults.push(("min_relation_versions".to_owned(), problem));
        }
    }
    let position = position(request.position.as_ref(), &mut faults);
    checked((batch, position), faults)
}

pub(super) fn counts(request: &wire::BatchGetCountsRequest) -> Result<(Batch, Option<Position>), Status> {
    let mut faults = Vec::new();
    let batch = batch(&request.video_ids, COUNTS_MAX, &mut faults);
    let position = position(request.position.as_ref(), &mut faults);
    checked((batch, position), faults)
}

fn size(asked: u32, faults: &mut Faults) -> u32 {
    if asked > PAGE_SIZE_MAX {
        faults.push(("page_size".to_owned(), format!("must be at most {PAGE_SIZE_MAX}")));
    }
    if asked == 0 { PAGE_SIZE_DEFAULT } else { asked }
}

pub(super) fn page_size(asked: u32) -> Result<u32, Status> {
    let mut faults = Vec::new();
    let size = size(asked, &mut faults);
    checked(size, faults)
}

pub(super) fn likers(request: &wire::ListLikersRequest) -> Result<(VideoId, u32), Status> {
    let mut faults = Vec::new();
    let size = size(request.page_size, &mut faults);
    match VideoId::parse(&request.video_id) {
        Ok(video) => checked((video, size), faults),
        Err(error) => {
            faults.insert(0, ("video_id".to_owned(), error.to_string()));
            Err(errors::invalid_fields(faults))
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt as _;

    use super::*;

    fn fields(status: &Status) -> Vec<String> {
        let details = status.get_details_bad_request().expect("details");
        details.field_violations.into_iter().map(|fault| fault.field).collect()
    }

    #[test]
    fn every_field_at_fault_is_named() {
        let ask = |ids: &[&str], versions: &[&str], position: Option<&str>| {
            let request = wire::BatchGetLikesRequest {
                video_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
                min_relation_versions: versions.iter().map(|id| ((*id).to_owned(), 1)).collect(),
                position: position.map(str::to_owned),
            };
            likes(&request).map_err(|status| fields(&status))
        };
        assert!(ask(&["a", "a"], &["a"], Some("r3.0.17")).is_ok());
        assert_eq!(ask(&[], &[], None), Err(vec!["video_ids".to_owned()]));
        assert_eq!(ask(&["a"; 101], &[], None), Err(vec!["video_ids".to_owned()]));
        let all = ask(&["a", "b c", ""], &["d"], Some("17"));
        let expected = ["video_ids[1]", "video_ids[2]", "min_relation_versions", "position"].map(str::to_owned);
        assert_eq!(all, Err(expected.to_vec()));
    }

    #[test]
    fn a_page_has_its_default_size_and_its_limit() {
        assert_eq!(page_size(0).ok(), Some(20));
        assert_eq!(page_size(100).ok(), Some(100));
        assert_eq!(page_size(101).map_err(|status| fields(&status)), Err(vec!["page_size".to_owned()]));
        let request = wire::ListLikersRequest { video_id: "a b".to_owned(), page_size: 101, page_token: String::new() };
        assert_eq!(
            likers(&request).map_err(|status| fields(&status)),
            Err(vec!["video_id".to_owned(), "page_size".to_owned()])
        );
    }
}
