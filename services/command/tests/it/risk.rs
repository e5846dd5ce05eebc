//! Acts against abuse: who may, what they do, and that they can be undone whole.

use likewise_devstack::{TestConfig, TestStack};
use likewise_proto::risk::v1 as risk;
use likewise_proto::risk::v1::risk_service_client::RiskServiceClient;
use likewise_proto::risk::v1::{ActKind, ActStatus, ActTarget};
use likewise_proto::types::v1::LikeState::{Liked, Unliked};
use tonic::transport::Channel;
use tonic::{Request, Status};
use uuid::Uuid;

use crate::authority::Authority;
use crate::rig::{Running, count, eventually, fresh_id, keys, refusal, told, with_token};

fn target(user: &str, video: &str) -> ActTarget {
    ActTarget { user_id: user.to_owned(), video_id: video.to_owned() }
}

fn by_risk<T>(message: T) -> Request<T> {
    with_token(message, &keys().mint_service("risk"))
}

fn by<T>(message: T, name: &str, roles: &[&str]) -> Request<T> {
    with_token(message, &keys().mint_operator(name, roles))
}

fn exclude(id: &Uuid, targets: &[ActTarget]) -> risk::ExcludeFromCountRequest {
    risk::ExcludeFromCountRequest {
        act_id: id.to_string(),
        targets: targets.to_vec(),
        reason: "a farm".to_owned(),
        evidence: "case 7".to_owned(),
    }
}

fn freeze(id: &Uuid, targets: &[ActTarget]) -> risk::FreezeRequest {
    risk::FreezeRequest {
        act_id: id.to_string(),
        targets: targets.to_vec(),
        reason: "a storm".to_owned(),
        evidence: "case 8".to_owned(),
        until: None,
    }
}

fn restore(id: &Uuid, of: &Uuid) -> risk::RestoreRequest {
    risk::RestoreRequest {
        act_id: id.to_string(),
        restores_act_id: of.to_string(),
        reason: "an error".to_owned(),
        evidence: "case 9".to_owned(),
    }
}

/// A service with two shards and public videos V0..V4; and a connection to its database.
struct World {
    running: Running,
    sql: tokio_postgres::Client,
    _config: TestConfig,
}

const RELATIONS: &str = "(select * from relation_00.like_relation union all select * from relation_01.like_relation) r";

impl World {
    async fn start() -> Self {
        Self::start_on(TestStack::get().config().await, &[]).await
    }

    async fn start_on(config: TestConfig, changes: &[(&str, &str)]) -> Self {
        let authority = Authority::default();
        for number in 0..5 {
            authority.publish(&format!("V{number}"));
        }
        let endpoint = authority.serve().await;
        let mut all = vec![
            ("ENDPOINTS__POLICY", endpoint.as_str()),
            ("COMMAND__SHARDS", "2"),
            ("COMMAND__RISK_AUTO_TARGETS_MAX", "3"),
        ];
        all.extend_from_slice(changes);
        let running = Running::start(&config, &all).await;
        let sql = config.database.connect().await.expect("connected");
        Self { running, sql, _config: config }
    }

    fn client(&self) -> RiskServiceClient<Channel> {
        RiskServiceClient::new(self.running.channel.clone())
    }

    async fn like_all(&self, user: &str) {
        for number in 0..5 {
            self.running.as_user(user).like(&fresh_id(), &format!("V{number}")).await;
        }
    }

    async fn get(&self, id: &Uuid) -> Result<risk::Act, Status> {
        let ask = risk::GetActRequest { act_id: id.to_string() };
        let found = self.client().get_act(by(ask, "vera", &["viewer"])).await?.into_inner();
        Ok(found.act.expect("an act"))
    }

    async fn reaches(&self, id: &Uuid, status: ActStatus) -> risk::Act {
        eventually("the act goes on", async || {
            let act = self.get(id).await.expect("the act is kept");
            if act.status() == status { Ok(act) } else { Err(act) }
        })
        .await
    }

    async fn approve(&self, id: &Uuid, who: &str) -> Result<risk::Act, Status> {
        let ask = risk::ApproveActRequest { act_id: id.to_string() };
        Ok(self.client().approve_act(by(ask, who, &["approver"])).await?.into_inner().act.expect("an act"))
    }

    async fn hidden(&self, user: &str) -> i64 {
        count(&self.sql, &format!("{RELATIONS} where user_id = '{user}' and state = 1 and hidden_reasons = 1")).await
    }
}

fn figures(act: &risk::Act) -> [u64; 4] {
    let (before, after) = (act.before.expect("figures before"), act.after.expect("figures after"));
    [before.liked, before.counted, after.liked, after.counted]
}

#[tokio::test]
async fn inv_10_inv_24_scn_c13_an_exclusion_hides_and_its_restore_shows_and_the_relation_stands() {
    let world = World::start().await;
    for user in ["bot1", "bot2", "lin"] {
        world.like_all(user).await;
    }
    let id = Uuid::new_v4();
    let asked = exclude(&id, &[target("bot1", ""), target("bot2", "V3")]);
    let kept = world.client().exclude_from_count(by_risk(asked.clone())).await.expect("kept").into_inner();
    assert_eq!(kept.act.expect("an act").status(), ActStatus::Running, "a small act of the risk service runs at once");
    let act = world.reaches(&id, ActStatus::Applied).await;
    assert_eq!(
        (act.kind(), act.requester.as_str(), act.targets, act.targets_done),
        (ActKind::Exclude, "service:risk", 2, 2)
    );
    assert_eq!(figures(&act), [6, 6, 6, 0], "five likes of one, one of the other");
    assert_eq!((world.hidden("bot1").await, world.hidden("bot2").await, world.hidden("lin").await), (5, 1, 0));
    assert_eq!(count(&world.sql, &format!("{RELATIONS} where state = 1")).await, 15, "the relations stand");
    // What the excluded user does later carries the axis with it.
    let bot = world.running.as_user("bot1");
    bot.unlike(&fresh_id(), "V0").await;
    bot.like(&fresh_id(), "V0").await;
    assert_eq!(world.hidden("bot1").await, 5);

    let again = world.client().exclude_from_count(by_risk(asked)).await.expect("the same act").into_inner();
    assert_eq!(again.act.expect("an act").status(), ActStatus::Applied, "sent again it changes nothing");
    let other = world.client().exclude_from_count(by_risk(exclude(&id, &[target("lin", "")]))).await;
    assert_eq!(refusal(other), "AlreadyExists ACT_ID_REUSED");

    let undo = Uuid::new_v4();
    let kept = world.client().restore(by_risk(restore(&undo, &id))).await.expect("kept").into_inner();
    assert_eq!(kept.act.expect("an act").status(), ActStatus::Proposed, "a restore always waits");
    assert_eq!(
        refusal(world.client().restore(by_risk(restore(&Uuid::new_v4(), &id))).await),
        "FailedPrecondition RESTORE_EXISTS"
    );
    world.approve(&undo, "ada").await.expect("approved");
    assert_eq!(figures(&world.reaches(&undo, ActStatus::Applied).await), [6, 0, 6, 6]);
    assert_eq!(world.get(&id).await.expect("kept").status(), ActStatus::Restored);
    assert_eq!((world.hidden("bot1").await, world.hidden("bot2").await), (0, 0));
    let versions = "(select kind, hidden_version, hidden_reasons from relation_00.outbox where user_id = 'bot1' and video_id = 'V1' \
                    union all select kind, hidden_version, hidden_reasons from relation_01.outbox where user_id = 'bot1' and video_id = 'V1') o \
                    where (kind, hidden_version, hidden_reasons) in ((1, 0, 0), (2, 1, 1), (2, 2, 0))";
    assert_eq!(count(&world.sql, versions).await, 3, "and every step is an event");
}

#[tokio::test]
async fn a_freeze_refuses_both_ways_for_a_user_a_video_or_both_until_it_is_restored() {
    let world = World::start().await;
    for user in ["lin", "mei", "ann"] {
        world.running.as_user(user).like(&fresh_id(), "V0").await;
    }
    let id = Uuid::new_v4();
    let targets = [target("lin", ""), target("", "V4"), target("mei", "V0")];
    world.client().freeze(by_risk(freeze(&id, &targets))).await.expect("kept");
    world.reaches(&id, ActStatus::Applied).await;
    let (lin, mei, ann) = (world.running.as_user("lin"), world.running.as_user("mei"), world.running.as_user("ann"));
    assert_eq!(told(&lin.unlike(&fresh_id(), "V0").await), "FROZEN LIKED v1, now LIKED v1");
    assert_eq!(told(&lin.like(&fresh_id(), "V1").await), "FROZEN UNLIKED v0, now UNLIKED v0");
    assert_eq!(told(&ann.like(&fresh_id(), "V4").await), "FROZEN UNLIKED v0, now UNLIKED v0", "a video, for everybody");
    assert_eq!(told(&mei.unlike(&fresh_id(), "V0").await), "FROZEN LIKED v1, now LIKED v1");
    assert_eq!(told(&mei.like(&fresh_id(), "V1").await), "APPLIED LIKED v1, now LIKED v1", "and nothing else of hers");
    let undo = Uuid::new_v4();
    world.client().restore(by(restore(&undo, &id), "olga", &["operator"])).await.expect("kept");
    world.approve(&undo, "ada").await.expect("approved");
    world.reaches(&undo, ActStatus::Applied).await;
    assert_eq!(
        told(&lin.set(&fresh_id(), "V0", Unliked).await.expect("an answer")),
        "APPLIED UNLIKED v2, now UNLIKED v2"
    );
    assert_eq!(told(&ann.set(&fresh_id(), "V4", Liked).await.expect("an answer")), "APPLIED LIKED v1, now LIKED v1");
}

#[tokio::test]
async fn inv_10_acts_of_persons_and_large_ones_need_a_second_person() {
    let world = World::start().await;
    world.like_all("lin").await;
    let id = Uuid::new_v4();
    let asked = exclude(&id, &[target("lin", "")]);
    let kept = world.client().exclude_from_count(by(asked, "olga", &["operator", "approver"])).await.expect("kept");
    assert_eq!(kept.into_inner().act.expect("an act").status(), ActStatus::Proposed);
    assert_eq!(refusal(world.approve(&id, "olga").await), "FailedPrecondition OWN_ACT");
    assert_eq!(world.hidden("lin").await, 0, "nothing happens before that");
    world.approve(&id, "ada").await.expect("approved");
    assert_eq!(refusal(world.approve(&id, "eve").await), "FailedPrecondition ACT_NOT_PROPOSED");
    let act = world.reaches(&id, ActStatus::Applied).await;
    assert_eq!((act.requester.as_str(), act.approver.as_str()), ("operator:olga", "operator:ada"));

    let large = Uuid::new_v4();
    let many: Vec<ActTarget> = (0..4).map(|number| target(&format!("bot{number}"), "")).collect();
    let kept = world.client().exclude_from_count(by_risk(exclude(&large, &many))).await.expect("kept").into_inner();
    assert_eq!(kept.act.expect("an act").status(), ActStatus::Proposed, "larger than three");
    let reject = risk::RejectActRequest { act_id: large.to_string() };
    world.client().reject_act(by(reject, "ada", &["approver"])).await.expect("rejected");
    assert_eq!(world.get(&large).await.expect("kept").status(), ActStatus::Rejected);
    assert_eq!(
        refusal(world.client().restore(by_risk(restore(&Uuid::new_v4(), &large))).await),
        "FailedPrecondition ACT_NOT_APPLIED"
    );

    let list = async |status: ActStatus, token: &str| {
        let ask = risk::ListActsRequest { page_size: 1, page_token: token.to_owned(), status: status.into() };
        world.client().list_acts(by(ask, "vera", &["viewer"])).await.expect("a page").into_inner()
    };
    let first = list(ActStatus::Unspecified, "").await;
    assert_eq!(first.acts[0].act_id, large.to_string(), "newest first");
    let second = list(ActStatus::Unspecified, &first.next_page_token).await;
    assert_eq!(second.acts[0].act_id, id.to_string());
    assert!(list(ActStatus::Unspecified, &second.next_page_token).await.acts.is_empty());
    assert_eq!(list(ActStatus::Applied, "").await.acts[0].act_id, id.to_string());
}

#[tokio::test]
async fn acts_are_refused_to_others_and_when_malformed() {
    let world = World::start().await;
    let id = Uuid::new_v4();
    let one = [target("lin", "")];
    let calls = [
        with_token(exclude(&id, &one), &keys().mint_user("lin")),
        with_token(exclude(&id, &one), &keys().mint_service("query")),
        by(exclude(&id, &one), "vera", &["viewer"]),
        by(exclude(&id, &one), "ada", &["approver"]),
    ];
    for call in calls {
        assert_eq!(refusal(world.client().exclude_from_count(call).await), "PermissionDenied ROLE_REQUIRED");
    }
    for bad in [
        exclude(&id, &[]),
        exclude(&id, &[target("", "V1")]),
        exclude(&id, &[target("l n", "")]),
        risk::ExcludeFromCountRequest { reason: String::new(), ..exclude(&id, &one) },
        risk::ExcludeFromCountRequest { evidence: "a\0".to_owned(), ..exclude(&id, &one) },
        risk::ExcludeFromCountRequest { act_id: "7".to_owned(), ..exclude(&id, &one) },
    ] {
        assert_eq!(refusal(world.client().exclude_from_count(by_risk(bad)).await), "InvalidArgument INVALID_ARGUMENT");
    }
    assert_eq!(
        refusal(world.client().freeze(by_risk(freeze(&id, &[target("", "")]))).await),
        "InvalidArgument INVALID_ARGUMENT"
    );
    assert_eq!(refusal(world.get(&id).await), "NotFound ACT_NOT_FOUND");
    assert_eq!(refusal(world.approve(&id, "ada").await), "NotFound ACT_NOT_FOUND");
}

#[tokio::test]
async fn the_ledger_is_waited_for_while_its_schema_is_made() {
    let config = TestStack::get().config().await;
    let mut sql = config.database.connect().await.expect("connected");
    let held = sql.transaction().await.expect("begun");
    let id = Uuid::new_v4();
    held.batch_execute("create schema command_ledger").await.expect("nobody else made it");
    let world = World::start_on(config, &[("COMMAND__READ_TIMEOUT_MS", "300")]).await;
    assert_eq!(refusal(world.get(&id).await), "Unavailable RELATION_SHARD_UNAVAILABLE");
    held.rollback().await.expect("rolled back");
    eventually("the ledger answers", async || match refusal(world.get(&id).await).as_str() {
        "NotFound ACT_NOT_FOUND" => Ok(()),
        other => Err(other.to_owned()),
    })
    .await;
}
