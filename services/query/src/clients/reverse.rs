//! Lists of likers.

use std::time::Duration;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::merge::LikerKey;
use likewise_kit::clients::Outbound;
use likewise_proto::convert;
use likewise_proto::reverse_index::v1 as wire;
use likewise_proto::reverse_index::v1::reverse_index_service_client::ReverseIndexServiceClient;
use prost::Message as _;

use super::{Failure, timed};

const SERVICE: &str = "reverse index";

/// A page of likers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LikerPage {
    /// Those the viewer may see.
    pub likers: Vec<LikerKey>,
    /// Where the list goes on, in words of the index; `None` at its end.
    pub next: Option<Vec<u8>>,
    /// Likers passed because of policy.
    pub hidden: u32,
    /// How far the index has come, by lane name.
    pub watermarks: Vec<(String, Offset)>,
}

/// The index.
#[derive(Clone)]
pub struct ReverseIndex {
    client: ReverseIndexServiceClient<Outbound>,
    timeout: Duration,
}

impl ReverseIndex {
    /// Over a channel with our token.
    #[must_use]
    pub fn new(channel: Outbound, timeout: Duration) -> Self {
        Self { client: ReverseIndexServiceClient::new(channel), timeout }
    }

    /// A page for this viewer; `after` is the `next` of the page before.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn likers(
        &self,
        video: &VideoId,
        viewer: &UserId,
        page_size: u32,
        after: Option<&[u8]>,
    ) -> Result<LikerPage, Failure> {
        let after = after.map(wire::Frontier::decode).transpose();
        let request = wire::ListLikersRequest {
            video_id: video.as_str().to_owned(),
            viewer_id: viewer.as_str().to_owned(),
            page_size,
            // Only we seal tokens: what does not decode was sealed by another version of ours.
            after: after.map_err(|_| Failure::of(SERVICE)(likewise_kit::cursor::CursorError::Invalid.into()))?,
        };
        let answer = self.client.clone().list_likers(timed(request, self.timeout)).await;
        let answer = answer.map_err(Failure::of(SERVICE))?.into_inner();
        let liker = |liker: wire::Liker| {
            let liked_at = convert::parse_timestamp(liker.liked_at.as_ref()?)?;
            Some(LikerKey { liked_at, user_id: UserId::parse(&liker.user_id).ok()? })
        };
        let watermark = |at: likewise_proto::types::v1::LaneOffset| {
            Some((at.lane, Offset { epoch: u32::try_from(at.epoch).ok()?, seq: at.seq }))
        };
        let likers: Option<_> = answer.likers.into_iter().map(liker).collect();
        Ok(LikerPage {
            likers: likers.ok_or_else(|| Failure::incomplete(SERVICE))?,
            next: answer.next.map(|next| next.encode_to_vec()),
            hidden: answer.hidden_by_policy,
            watermarks: answer.watermarks.into_iter().filter_map(watermark).collect(),
        })
    }
}
