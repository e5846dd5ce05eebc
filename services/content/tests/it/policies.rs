//! What the authority tells other services.

use std::collections::BTreeMap;

use likewise_proto::policy::v1::{AccountState, VideoStatus};

use crate::world::{World, refusal};

#[tokio::test]
async fn what_is_not_known_is_said_to_be_missing_in_the_order_asked() {
    let world = World::start().await;
    let (ava, service) = (world.user("ava").await, world.service());
    ava.create("V1").await.unwrap();
    let policies = service.video_policies(&["nowhere", "V1", "V1"]).await.unwrap();
    let told: Vec<_> =
        policies.iter().map(|policy| (policy.video_id.as_str(), policy.status(), policy.version)).collect();
    let published = ("V1", VideoStatus::Published, 1);
    assert_eq!(told, [("nowhere", VideoStatus::NotFound, 0), published, published]);
    let accounts = service.accounts(&["ava", "nobody"], None).await.unwrap().policies;
    let told: Vec<_> = accounts.iter().map(|policy| (policy.user_id.as_str(), policy.state())).collect();
    assert_eq!(told, [("ava", AccountState::Active), ("nobody", AccountState::NotFound)]);
    assert_eq!(refusal(service.video_policies(&[]).await), "InvalidArgument INVALID_ARGUMENT");
    assert_eq!(refusal(service.video_policies(&["a b"]).await), "InvalidArgument INVALID_ARGUMENT");
}

#[tokio::test]
async fn friends_follow_each_other_and_a_block_works_both_ways() {
    let world = World::start().await;
    let (ava, lin, service) = (world.user("ava").await, world.user("lin").await, world.service());
    world.user("mei").await;
    ava.follow("lin").await.unwrap();
    ava.follow("lin").await.unwrap();
    assert_eq!(service.pairs("ava", &["lin", "mei"]).await, ["lin: follows", "mei: "]);
    lin.follow("ava").await.unwrap();
    assert_eq!(service.pairs("ava", &["lin"]).await, ["lin: friends follows"]);
    lin.unfollow("ava").await.unwrap();
    assert_eq!(service.pairs("lin", &["ava"]).await, ["ava: "]);

    assert_eq!(refusal(lin.block("lin").await), "InvalidArgument INVALID_ARGUMENT");
    assert_eq!(refusal(lin.block("nobody").await), "NotFound ACCOUNT_NOT_FOUND");
    lin.block("mei").await.unwrap();
    lin.block("mei").await.unwrap();
    assert_eq!(service.pairs("mei", &["lin"]).await, ["lin: blocked"]);
    assert_eq!(service.pairs("lin", &["mei"]).await, ["mei: blocked"]);
    let set = async |user: &str| service.accounts(&[], Some(user)).await.unwrap().block_set.unwrap();
    assert_eq!((set("mei").await.others, set("mei").await.version), (vec!["lin".to_owned()], 1));
    assert_eq!((set("lin").await.others, set("lin").await.version), (vec!["mei".to_owned()], 1));
    lin.unblock("mei").await.unwrap();
    assert_eq!((set("mei").await.others, set("mei").await.version), (Vec::new(), 2));
}

#[tokio::test]
async fn a_sweep_misses_no_change_whatever_the_page() {
    let world = World::start().await;
    let (ava, service) = (world.user("ava").await, world.service());
    for number in 0..7 {
        ava.create(&format!("V{number}")).await.unwrap();
        world.user(&format!("u{number}")).await;
    }
    ava.delete_post("V3").await.unwrap();
    world.person("u2").delete().await.unwrap();
    let (mut videos, mut accounts, mut cursor) = (BTreeMap::new(), BTreeMap::new(), String::new());
    loop {
        let page = service.changed_since(&cursor, 3).await.unwrap();
        assert!(page.videos.len() + page.accounts.len() <= 3);
        let is_done = page.videos.is_empty() && page.accounts.is_empty();
        videos.extend(page.videos.into_iter().map(|policy| (policy.video_id.clone(), policy.status())));
        accounts.extend(page.accounts.into_iter().map(|policy| (policy.user_id.clone(), policy.state())));
        cursor = page.next_cursor;
        if is_done {
            break;
        }
    }
    assert_eq!((videos.len(), videos["V3"]), (7, VideoStatus::Deleted));
    assert_eq!((accounts.len(), accounts["u2"]), (8, AccountState::Deleted));
    assert_eq!(refusal(service.changed_since("somewhere", 3).await), "InvalidArgument INVALID_ARGUMENT");
}
