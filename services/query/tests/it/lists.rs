//! Lists and their page tokens.

use likewise_proto::policy::v1::{VideoStatus, VideoVisibility};
use likewise_proto::query::v1::{LikedVideoStatus, ListLikersResponse, ListMyLikesResponse};
use tonic::Code;

use crate::rig::{Caller, Rig, eventually, ids, refusal};

fn videos(page: &ListMyLikesResponse) -> Vec<String> {
    page.likes.iter().map(|like| like.video_id.clone()).collect()
}

fn names(page: &ListLikersResponse) -> String {
    page.likers.iter().map(|liker| liker.user_id.as_str()).collect::<Vec<_>>().join(" ")
}

/// All pages to the end.
async fn pages(caller: &Caller, size: u32) -> Vec<ListMyLikesResponse> {
    let (mut pages, mut token) = (Vec::new(), String::new());
    loop {
        let page = caller.my_likes(size, &token).await.expect("a page");
        token.clone_from(&page.next_page_token);
        pages.push(page);
        if token.is_empty() {
            return pages;
        }
        assert!(pages.len() < 1000, "a list ends");
    }
}

/// lin likes V000.. up to `count`, five at a second.
fn many(count: i64) -> String {
    (0..count).map(|number| format!("lin+1@V{number:03}={} ", number / 5)).collect()
}

#[tokio::test]
async fn my_likes_come_newest_first_and_pages_skip_and_repeat_nothing() {
    let rig = Rig::new().await;
    rig.stand.relations(&many(73));
    rig.stand.relations("mei+1@V500=9 lin-2@V501=9");
    let lin = rig.user("lin");
    let expected: Vec<String> = (0..73).rev().map(|number| format!("V{number:03}")).collect();
    for size in [1, 7, 20, 73, 100] {
        let read: Vec<String> = pages(&lin, size).await.iter().flat_map(videos).collect();
        assert_eq!(read, expected, "pages of {size}");
    }
    assert_eq!(lin.my_likes(0, "").await.expect("a page").likes.len(), 20, "the default");
    assert_eq!(videos(&rig.user("mei").my_likes(10, "").await.expect("a page")), ["V500"]);
    assert!(pages(&rig.user("noa"), 10).await[0].likes.is_empty());
}

#[tokio::test]
async fn case_31_my_likes_move_on_over_what_is_hidden() {
    let rig = Rig::with(&[("QUERY__SCAN_MAX", "10")]).await;
    rig.stand.relations(&many(60));
    for number in 15..60 {
        rig.stand.video(&format!("V{number:03}"), |video| video.visibility = VideoVisibility::Private.into());
    }
    let pages = pages(&rig.user("lin"), 5).await;
    assert!(pages[0].likes.is_empty() && !pages[0].next_page_token.is_empty(), "ten rows are looked at, no more");
    let hidden: u32 = pages.iter().map(|page| page.hidden_by_policy).sum();
    let read: Vec<String> = pages.iter().flat_map(videos).collect();
    let expected: Vec<String> = (0..15).rev().map(|number| format!("V{number:03}")).collect();
    assert_eq!((hidden, read), (45, expected));
}

#[tokio::test]
async fn inv_23_my_likes_follow_todays_rules_and_gone_videos_keep_a_placeholder() {
    let rig = Rig::with(&[("QUERY__POLICY_TTL_MS", "10000")]).await;
    rig.stand.relations("lin+1@V1=1 lin+1@V2=2 lin+1@V3=3");
    let lin = rig.user("lin");
    lin.counts("V1 V2 V3").await;
    assert_eq!(videos(&lin.my_likes(10, "").await.expect("a page")), ["V3", "V2", "V1"]);
    rig.stand.video("V2", |video| video.visibility = VideoVisibility::Private.into());
    rig.stand.video("V3", |video| video.status = VideoStatus::TakenDown.into());
    let page = lin.my_likes(10, "").await.expect("a page");
    let told: Vec<_> = page.likes.iter().map(|like| (like.video_id.as_str(), like.status())).collect();
    assert_eq!(
        told,
        [("V3", LikedVideoStatus::Gone), ("V1", LikedVideoStatus::Available)],
        "no old policy is believed"
    );
    assert_eq!(page.hidden_by_policy, 1);
    rig.stand.tell().away.insert("policy");
    assert_eq!(refusal(lin.my_likes(10, "").await), "Unavailable POLICY_UNAVAILABLE");
    rig.stand.tell().away.clear();
    rig.stand.tell().away.insert("likes");
    assert_eq!(refusal(lin.my_likes(10, "").await), "Unavailable FACTS_UNAVAILABLE");
}

#[tokio::test]
async fn likers_come_from_the_index_for_the_caller_and_nobody_else() {
    let rig = Rig::new().await;
    rig.stand.tell().likers = ids("eli kim lin mei noa");
    rig.stand.tell().private.insert("mei".to_owned());
    let page = rig.user("lin").likers("V1", 10, "").await.expect("a page");
    assert_eq!((names(&page).as_str(), page.hidden_by_policy), ("eli kim lin noa", 1));
    assert_eq!((page.index_watermarks[0].lane.as_str(), page.index_watermarks[0].seq), ("rel-00", 41));
    assert_eq!(names(&rig.user("mei").likers("V1", 10, "").await.expect("a page")), "eli kim lin mei noa");
    let (mut read, mut token) = (Vec::new(), String::new());
    loop {
        let page = rig.user("kim").likers("V1", 2, &token).await.expect("a page");
        read.extend(ids(&names(&page)));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(read, ids("eli kim lin noa"));
}

#[tokio::test]
async fn inv_23_what_the_index_refuses_is_told_and_no_name_leaves() {
    let rig = Rig::new().await;
    rig.stand.tell().likers = ids("mei");
    let lin = rig.user("lin");
    for (code, reason, expected) in [
        (Code::NotFound, "VIDEO_NOT_FOUND", "NotFound VIDEO_NOT_FOUND"),
        (Code::FailedPrecondition, "VIDEO_GONE", "FailedPrecondition VIDEO_GONE"),
        (Code::FailedPrecondition, "LIKERS_NOT_VISIBLE", "FailedPrecondition LIKERS_NOT_VISIBLE"),
        (Code::Unavailable, "POLICY_UNAVAILABLE", "Unavailable REVERSE_INDEX_UNAVAILABLE"),
        (Code::PermissionDenied, "ROLE_REQUIRED", "Unavailable REVERSE_INDEX_UNAVAILABLE"),
        (Code::Internal, "INTERNAL", "Unavailable REVERSE_INDEX_UNAVAILABLE"),
    ] {
        rig.stand.tell().refusal = Some((code, reason));
        assert_eq!(refusal(lin.likers("V1", 10, "").await), expected);
    }
}

#[tokio::test]
async fn inv_22_a_token_opens_for_its_owner_and_its_list_alone() {
    let rig = Rig::new().await;
    rig.stand.relations(&many(9));
    rig.stand.tell().likers = ids("eli kim lin mei noa");
    let (lin, mei) = (rig.user("lin"), rig.user("mei"));
    let mine = lin.my_likes(2, "").await.expect("a page").next_page_token;
    let likers = lin.likers("V1", 2, "").await.expect("a page").next_page_token;
    for word in ["lin", "kim", "V00"] {
        assert!(!mine.contains(word) && !likers.contains(word), "nothing can be read in a token");
    }
    let invalid = "InvalidArgument CURSOR_INVALID";
    assert_eq!(refusal(mei.my_likes(2, &mine).await), invalid, "another user");
    assert_eq!(refusal(mei.likers("V1", 2, &likers).await), invalid, "another user");
    assert_eq!(refusal(lin.likers("V2", 2, &likers).await), invalid, "another video");
    assert_eq!(refusal(lin.likers("V1", 2, &mine).await), invalid, "another list");
    assert_eq!(refusal(lin.my_likes(2, &likers).await), invalid, "another list");
    for token in [&mine, &likers] {
        for at in [0, token.len() / 2, token.len() - 1] {
            let mut altered = token.clone().into_bytes();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(altered).expect("text");
            assert_eq!(refusal(lin.my_likes(2, &altered).await), invalid, "byte {at}");
            assert_eq!(refusal(lin.likers("V1", 2, &altered).await), invalid, "byte {at}");
        }
    }
    assert_eq!(refusal(lin.my_likes(2, "nonsense").await), invalid);
    assert_eq!(lin.my_likes(2, &mine).await.expect("a page").likes.len(), 2);
    assert_eq!(names(&lin.likers("V1", 2, &likers).await.expect("a page")), "lin mei");
}

#[tokio::test]
async fn inv_22_case_33_tokens_expire_with_time_and_with_the_generation_of_the_index() {
    let rig = Rig::with(&[("QUERY__CURSOR_TTL_S", "1")]).await;
    rig.stand.relations(&many(9));
    rig.stand.tell().likers = ids("eli kim lin mei noa");
    let lin = rig.user("lin");
    let likers = lin.likers("V1", 2, "").await.expect("a page").next_page_token;
    rig.stand.tell().generation = 2;
    assert_eq!(refusal(lin.likers("V1", 2, &likers).await), "FailedPrecondition CURSOR_EXPIRED");
    rig.stand.tell().generation = 1;
    let mine = lin.my_likes(2, "").await.expect("a page").next_page_token;
    let answer = eventually("the token ends", async || match lin.my_likes(2, &mine).await {
        Err(status) => Ok(status),
        Ok(page) => Err(page),
    })
    .await;
    assert_eq!(refusal::<()>(Err(answer)), "FailedPrecondition CURSOR_EXPIRED");
}
