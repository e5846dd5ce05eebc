//! Page tokens: what they hold, and what they are bound to. Everybody's token opens only for them, for the list they were reading.

use likewise_domain::id::{UserId, VideoId};
use likewise_kit::cursor::{Binding, CursorError, CursorKeys};
use likewise_proto::convert;
use likewise_proto::facts::v1::UserLikesKey;
use prost::Message as _;
use time::OffsetDateTime;

use crate::clients::LikedKey;

/// Binding of a page of one's own likes.
pub(super) fn my_likes(user: &UserId) -> Binding<'_> {
    let rpc = "likewise.query.v1.LikeQueryService/ListMyLikes";
    Binding { rpc, caller: user.as_str(), filter: "", generation: 0 }
}

/// Binding of a page of likers. The generation of the index travels inside, in the frontier; the index refuses one of
/// another generation.
pub(super) fn likers<'a>(viewer: &'a UserId, video: &'a VideoId) -> Binding<'a> {
    let rpc = "likewise.query.v1.LikeQueryService/ListLikers";
    Binding { rpc, caller: viewer.as_str(), filter: video.as_str(), generation: 0 }
}

/// Opens the token of a request; `None` for the first page.
pub(super) fn open(
    keys: &CursorKeys,
    bound: &Binding<'_>,
    now: OffsetDateTime,
    token: &str,
) -> Result<Option<Vec<u8>>, CursorError> {
    if token.is_empty() { Ok(None) } else { keys.open(bound, now, token).map(Some) }
}

/// The token of the next page; empty at the end of the list.
pub(super) fn seal(
    keys: &CursorKeys,
    bound: &Binding<'_>,
    expires_at: OffsetDateTime,
    payload: Option<&[u8]>,
) -> String {
    payload.map(|payload| keys.seal(bound, expires_at, payload)).unwrap_or_default()
}

pub(super) fn write_key(key: &LikedKey) -> Vec<u8> {
    let state_changed_at = Some(convert::timestamp(key.liked_at));
    UserLikesKey { state_changed_at, video_id: key.video.as_str().to_owned() }.encode_to_vec()
}

/// Only we seal tokens: what does not decode was sealed by another version of ours.
pub(super) fn read_key(payload: &[u8]) -> Result<LikedKey, CursorError> {
    let key = UserLikesKey::decode(payload).map_err(|_| CursorError::Invalid)?;
    let liked_at = key.state_changed_at.as_ref().and_then(convert::parse_timestamp).ok_or(CursorError::Invalid)?;
    let video = VideoId::parse(&key.video_id).map_err(|_| CursorError::Invalid)?;
    Ok(LikedKey { liked_at, video })
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    #[test]
    fn inv_22_a_token_opens_for_its_owner_and_its_list_alone() {
        let keys = CursorKeys::parse("k:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=").expect("a key");
        let (lin, mei) = (UserId::parse("lin").expect("an id"), UserId::parse("mei").expect("an id"));
        let (one, two) = (VideoId::parse("V1").expect("an id"), VideoId::parse("V2").expect("an id"));
        let key = LikedKey { liked_at: NOW + Duration::microseconds(1_234_567), video: one.clone() };
        let token = seal(&keys, &my_likes(&lin), NOW + Duration::HOUR, Some(&write_key(&key)));
        let opened = open(&keys, &my_likes(&lin), NOW, &token).expect("ours").expect("a payload");
        assert_eq!(read_key(&opened), Ok(key));
        assert_eq!(open(&keys, &my_likes(&mei), NOW, &token), Err(CursorError::Invalid));
        assert_eq!(open(&keys, &likers(&lin, &one), NOW, &token), Err(CursorError::Invalid));
        assert_eq!(open(&keys, &my_likes(&lin), NOW + Duration::HOUR, &token), Err(CursorError::Expired));

        let list = seal(&keys, &likers(&lin, &one), NOW + Duration::HOUR, Some(b"frontier"));
        assert_eq!(open(&keys, &likers(&lin, &one), NOW, &list), Ok(Some(b"frontier".to_vec())));
        for other in [likers(&lin, &two), likers(&mei, &one), my_likes(&lin)] {
            assert_eq!(open(&keys, &other, NOW, &list), Err(CursorError::Invalid));
        }
        assert_eq!(open(&keys, &my_likes(&lin), NOW, ""), Ok(None), "the first page");
        assert_eq!(seal(&keys, &my_likes(&lin), NOW, None), "", "the end of the list");
    }
}
