//! Lists over gRPC: order, pages, and what today's privacy hides.

use std::collections::BTreeSet;

use likewise_proto::policy::v1::{AccountState, LikersVisible, VideoStatus, VideoVisibility};
use likewise_proto::reverse_index::v1::ListLikersRequest;

use crate::authority::{AUTHOR, Authority};
use crate::rig::{Rig, Running, VIDEO, keys, names, refusal};

/// An installation with a story applied, and a service that asks a stand-in authority.
struct Stage {
    rig: Rig,
    authority: Authority,
    service: Running,
}

impl Stage {
    async fn new(story: &str, changes: &[(&str, &str)]) -> Self {
        let mut rig = Rig::with(changes).await;
        rig.apply(story).await;
        let authority = Authority::new();
        let endpoint = authority.serve().await;
        let mut all = vec![("ENDPOINTS__POLICY", endpoint.as_str())];
        all.extend_from_slice(changes);
        let service = Running::start(&rig.config, &all).await;
        Self { rig, authority, service }
    }
}

/// `u001+1=..`: users 1 to `count`, each liking a second later than the one before; every `tied` of them at one second.
fn crowd(count: i64, tied: i64) -> String {
    (1..=count).map(|user| format!("u{user:03}+1={} ", user / tied)).collect()
}

/// The crowd as a list has it: latest second first, within it by name.
fn listed(count: i64, tied: i64) -> Vec<String> {
    let mut keys: Vec<_> = (1..=count).map(|user| (-(user / tied), format!("u{user:03}"))).collect();
    keys.sort();
    keys.into_iter().map(|(_, name)| name).collect()
}

#[tokio::test]
async fn case_15_after_a_backlog_the_order_is_that_of_the_relations_own_transactions() {
    let mut stage = Stage::new("", &[]).await;
    // Delivered late, out of order and from several lanes' point of view at once; only state_changed_at counts.
    for story in ["mei+1=50", "lin+3=10 noa+1=70", "ava+1=60 lin+1=90", "kim+1=10 noa+1=70"] {
        stage.rig.apply(story).await;
    }
    assert_eq!(stage.service.names("").await, "noa ava mei kim lin");
    let page = stage.service.page("", 1, None).await.expect("a page");
    assert_eq!(
        page.likers[0].liked_at.expect("a time").seconds,
        1_700_000_070,
        "the time of the like, not of its arrival"
    );
}

#[tokio::test]
async fn case_32_pages_through_all_shards_and_parts_skip_and_repeat_nobody() {
    let changes = [("REVERSE_INDEX__REVERSE_SHARDS", "8"), ("REVERSE_INDEX__PARTS", "4")];
    // Ties over shards, and more candidates than one prefetch holds.
    let stage = Stage::new(&crowd(190, 7), &changes).await;
    let filled = stage.rig.stored().await.len();
    assert_eq!((filled, stage.rig.parts), (190, 4));
    for size in [1, 3, 7, 50, 100] {
        let pages = stage.service.pages("lin", size).await;
        let read: Vec<String> = pages.iter().flat_map(|page| &page.likers).map(|liker| liker.user_id.clone()).collect();
        assert_eq!(read, listed(190, 7), "pages of {size}");
        let short = pages.iter().rev().skip(1).find(|page| page.likers.len() != size as usize);
        assert!(short.is_none(), "only the last page is short");
    }
}

#[tokio::test]
async fn case_31_a_page_that_is_all_hidden_still_moves() {
    let stage = Stage::new(&crowd(60, 3), &[("REVERSE_INDEX__SCAN_MAX", "10")]).await;
    for user in listed(60, 3).iter().take(45) {
        stage.authority.account(user, |account| account.is_private = true);
    }
    let pages = stage.service.pages("lin", 5).await;
    assert!(pages[0].likers.is_empty() && pages[0].next.is_some(), "the first ten are hidden: {:?}", pages[0]);
    let hidden: u32 = pages.iter().map(|page| page.hidden_by_policy).sum();
    let read: Vec<String> = pages.iter().flat_map(|page| &page.likers).map(|liker| liker.user_id.clone()).collect();
    assert_eq!((hidden, read), (45, listed(60, 3)[45..].to_vec()));
    assert!(pages.iter().all(|page| page.likers.len() + page.hidden_by_policy as usize <= 10), "bounded");
}

#[tokio::test]
async fn case_30_who_unlikes_and_likes_again_while_somebody_pages_moves_and_nobody_else_does() {
    let mut stage = Stage::new(&crowd(40, 4), &[]).await;
    let first = stage.service.page("lin", 10, None).await.expect("a page");
    // One who was read comes again on top, one who was not leaves, one who was not moves to the top.
    stage.rig.apply("u039-2 u039+3=500 u002-2 u004-2 u004+3=501").await;
    let mut read: Vec<String> = names(&first).split(' ').map(str::to_owned).collect();
    let mut after = first.next;
    while after.is_some() {
        let page = stage.service.page("lin", 10, after).await.expect("a page");
        read.extend(page.likers.iter().map(|liker| liker.user_id.clone()));
        after = page.next;
    }
    let expected: Vec<String> = listed(40, 4).into_iter().filter(|name| name != "u002" && name != "u004").collect();
    assert_eq!(read, expected);
    let refreshed = stage.service.pages("lin", 100).await;
    assert!(names(&refreshed[0]).starts_with("u004 u039 u040 "), "{}", names(&refreshed[0]));
}

#[tokio::test]
async fn inv_23_todays_privacy_decides_for_each_viewer() {
    let stage = Stage::new("lin+1=1 mei+1=2 noa+1=3 ava+1=4", &[]).await;
    let (service, authority) = (&stage.service, &stage.authority);
    assert_eq!(service.names("kim").await, "ava noa mei lin");
    authority.account("noa", |account| account.is_private = true);
    assert_eq!(service.names("kim").await, "ava mei lin", "the next call already follows");
    authority.tell().follows.insert(("kim".to_owned(), "noa".to_owned()));
    assert_eq!(service.names("kim").await, "ava noa mei lin", "an approved follower");
    assert_eq!(service.names("").await, "ava mei lin", "nobody in particular");
    assert_eq!(service.names("noa").await, "ava noa mei lin", "oneself");
    authority.account("noa", |account| account.is_private = false);
    authority.tell().blocks.insert(("mei".to_owned(), "kim".to_owned()));
    assert_eq!(service.names("kim").await, "ava noa lin", "whoever of the two blocks");
    assert_eq!(service.names("lin").await, "ava noa mei lin", "a block concerns the two alone");
    for state in [AccountState::Deactivated, AccountState::Banned, AccountState::Deleted, AccountState::NotFound] {
        authority.account("lin", |account| account.state = state.into());
        assert_eq!(service.names("kim").await, "ava noa", "{state:?}");
        authority.account("lin", |account| account.state = AccountState::Active.into());
        assert_eq!(service.names("kim").await, "ava noa lin", "and back without a rebuild");
    }
    authority.account("ava", |account| account.listable = false);
    let page = service.page("kim", 100, None).await.expect("a page");
    assert_eq!((names(&page).as_str(), page.hidden_by_policy), ("noa lin", 2));
}

#[tokio::test]
async fn inv_23_who_may_not_see_the_video_or_its_likers_is_told_so_and_no_name() {
    let stage = Stage::new("lin+1 mei+1", &[]).await;
    let (service, authority) = (&stage.service, &stage.authority);
    authority.tell().video.likers_visible = LikersVisible::AuthorOnly.into();
    assert_eq!(refusal(service.page("kim", 10, None).await), "FailedPrecondition LIKERS_NOT_VISIBLE");
    assert_eq!(refusal(service.page("", 10, None).await), "FailedPrecondition LIKERS_NOT_VISIBLE");
    assert_eq!(service.names(AUTHOR).await, "lin mei");
    authority.tell().video.likers_visible = LikersVisible::Nobody.into();
    assert_eq!(refusal(service.page(AUTHOR, 10, None).await), "FailedPrecondition LIKERS_NOT_VISIBLE");
    authority.tell().video.likers_visible = LikersVisible::Everyone.into();
    authority.tell().video.visibility = VideoVisibility::Friends.into();
    assert_eq!(refusal(service.page("kim", 10, None).await), "NotFound VIDEO_NOT_FOUND");
    for pair in [("kim", AUTHOR), (AUTHOR, "kim")] {
        authority.tell().follows.insert((pair.0.to_owned(), pair.1.to_owned()));
    }
    assert_eq!(service.names("kim").await, "lin mei", "a friend");
    authority.tell().blocks.insert((AUTHOR.to_owned(), "kim".to_owned()));
    assert_eq!(refusal(service.page("kim", 10, None).await), "NotFound VIDEO_NOT_FOUND");
    authority.tell().video.visibility = VideoVisibility::Public.into();
    for (status, expected) in [
        (VideoStatus::Draft, "NotFound VIDEO_NOT_FOUND"),
        (VideoStatus::TakenDown, "FailedPrecondition VIDEO_GONE"),
        (VideoStatus::Deleted, "FailedPrecondition VIDEO_GONE"),
    ] {
        authority.tell().video.status = status.into();
        assert_eq!(refusal(service.page("mei", 10, None).await), expected);
    }
    let unknown = ListLikersRequest { video_id: "V1".to_owned(), page_size: 10, ..ListLikersRequest::default() };
    let answer = service.call(Some(&keys().mint_service("query")), unknown).await;
    assert_eq!(refusal(answer), "NotFound VIDEO_NOT_FOUND");
}

#[tokio::test]
async fn case_34_a_late_like_of_a_deleted_video_shows_nobody() {
    let mut stage = Stage::new("lin+1", &[]).await;
    stage.authority.tell().video.status = VideoStatus::Deleted.into();
    stage.rig.apply("mei+1").await;
    assert_eq!(refusal(stage.service.page("kim", 10, None).await), "FailedPrecondition VIDEO_GONE");
}

#[tokio::test]
async fn inv_23_without_the_authority_no_identity_leaves() {
    let stage = Stage::new("lin+1 mei+1", &[("REVERSE_INDEX__POLICY_TIMEOUT_MS", "500")]).await;
    for question in ["video", "account", "pair"] {
        stage.authority.tell().away.insert(question);
        let answer = stage.service.page("kim", 10, None).await;
        assert_eq!(refusal(answer), "Unavailable POLICY_UNAVAILABLE", "{question}");
        stage.authority.tell().away.clear();
        assert_eq!(stage.service.names("kim").await, "lin mei");
    }
    stage.authority.tell().forgotten = Some("lin".to_owned());
    let answer = stage.service.page("kim", 10, None).await;
    assert_eq!(refusal(answer), "Unavailable POLICY_UNAVAILABLE", "an answer with a gap is no answer");
}

#[tokio::test]
async fn inv_22_a_frontier_of_another_generation_is_expired_and_an_altered_one_refused() {
    let stage = Stage::new(&crowd(20, 2), &[]).await;
    let next = stage.service.page("lin", 5, None).await.expect("a page").next.expect("more");
    let mut older = next.clone();
    older.generation += 1;
    assert_eq!(refusal(stage.service.page("lin", 5, Some(older)).await), "FailedPrecondition CURSOR_EXPIRED");
    let mut foreign = next.clone();
    foreign.shards[0].user_id = "x y".to_owned();
    assert_eq!(refusal(stage.service.page("lin", 5, Some(foreign)).await), "InvalidArgument CURSOR_INVALID");
    let mut elsewhere = next.clone();
    elsewhere.shards[0].reverse_shard = 99;
    assert_eq!(refusal(stage.service.page("lin", 5, Some(elsewhere)).await), "InvalidArgument CURSOR_INVALID");
    let mut twice = next.clone();
    twice.shards.push(twice.shards[0].clone());
    assert_eq!(refusal(stage.service.page("lin", 5, Some(twice)).await), "InvalidArgument CURSOR_INVALID");
    assert_eq!(stage.service.page("lin", 5, Some(next)).await.expect("a page").likers.len(), 5);
}

#[tokio::test]
async fn only_services_may_ask_and_every_bad_field_is_named() {
    let stage = Stage::new("lin+1", &[]).await;
    let good = ListLikersRequest { video_id: VIDEO.to_owned(), page_size: 10, ..ListLikersRequest::default() };
    for (token, expected) in [
        (None, "Unauthenticated TOKEN_MISSING"),
        (Some(keys().mint_user("lin")), "PermissionDenied ROLE_REQUIRED"),
        (Some(keys().mint_operator("olga", &["viewer"])), "PermissionDenied ROLE_REQUIRED"),
        (Some(keys().mint_forged("lin")), "Unauthenticated TOKEN_INVALID"),
    ] {
        assert_eq!(refusal(stage.service.call(token.as_deref(), good.clone()).await), expected);
    }
    let token = keys().mint_service("query");
    for bad in [
        ListLikersRequest { video_id: String::new(), ..good.clone() },
        ListLikersRequest { video_id: "a b".to_owned(), ..good.clone() },
        ListLikersRequest { viewer_id: "a b".to_owned(), ..good.clone() },
        ListLikersRequest { page_size: 0, ..good.clone() },
        ListLikersRequest { page_size: 101, ..good.clone() },
    ] {
        let answer = stage.service.call(Some(&token), bad.clone()).await;
        assert!(refusal(answer).starts_with("InvalidArgument"), "{bad:?}");
    }
}

#[tokio::test]
async fn a_page_says_how_far_the_index_has_come() {
    let stage = Stage::new("lin+1", &[]).await;
    let text = "insert into reverse_index.consumer_checkpoint (projection, lane, epoch, next_offset, owner_epoch, updated_at) \
                values ('reverse_index.g1', 'rel-09', 0, 42, 1, now())";
    stage.rig.sql.batch_execute(text).await.expect("a checkpoint");
    let page = stage.service.page("", 10, None).await.expect("a page");
    let lanes: BTreeSet<_> = page.watermarks.iter().map(|at| (at.lane.as_str(), at.seq)).collect();
    assert!(lanes.contains(&("rel-09", 41)), "{lanes:?}");
}
