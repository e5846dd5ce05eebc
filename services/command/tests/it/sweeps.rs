//! What happens to all relations of an account when its state changes.

use std::time::Duration;

use likewise_command::intent::Intent;
use likewise_command::store::accounts::{self, Account, Owner};
use likewise_command::store::shard;
use likewise_command::store::sweeps::{self, Part, Phase, Sweep};
use likewise_domain::relation::LikeState;
use likewise_kit::pg::Pool;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use time::OffsetDateTime;

use crate::rig::{Rig, fresh_id, intent, user};

const ACTIVE: i16 = 2;
const DEACTIVATED: i16 = 3;
const BANNED: i16 = 4;
const DELETED: i16 = 5;

/// A shard and the pool that its consumer and its sweeps use.
struct Shard {
    rig: Rig,
    pool: Pool,
    version: u64,
}

impl Shard {
    async fn new() -> Self {
        let rig = Rig::new(&[]).await;
        let pool = rig.servers.pool("main", &shard::schema(0), 4).expect("a pool");
        Self { rig, pool, version: 0 }
    }

    async fn set(&self, who: &str, videos: impl Iterator<Item = usize>, state: LikeState) {
        let intents: Vec<Intent> =
            videos.map(|video| intent(who, &fresh_id(), &format!("v{video:04}"), state)).collect();
        let connection = self.rig.connection().await;
        for batch in intents.chunks(500) {
            let batch: Vec<&Intent> = batch.iter().collect();
            connection.apply(&batch, &self.rig.settings.rules()).await.expect("applied");
        }
    }

    /// The authority's word on an account, as its lane tells it.
    async fn account(&mut self, who: &str, state: i16) {
        self.version += 1;
        let account =
            Account { user_id: user(who), state, version: self.version, changed_at: OffsetDateTime::now_utc() };
        let owner = Owner { projection: "test", lane: "content-00", epoch: 1 };
        assert!(accounts::apply(&self.pool, 0, owner, &[account], &[]).await.expect("written"));
    }

    async fn claim(&self) -> Option<Sweep> {
        sweeps::claim(&self.pool, Duration::from_secs(5)).await.expect("looked")
    }

    async fn step(&self, sweep: &Sweep, limit: u32) -> Part {
        sweeps::step(&self.pool, 0, sweep, limit).await.expect("a part")
    }

    /// Works until nothing waits; how many parts that took.
    async fn sweep(&self, limit: u32) -> usize {
        // A claim of somebody who was killed has run out.
        self.rig.sql.batch_execute("update account_sweep set claimed_till = '-infinity'").await.expect("run out");
        let mut parts = 0;
        while let Some(mut sweep) = self.claim().await {
            loop {
                parts += 1;
                match (self.step(&sweep, limit).await, sweep.phase) {
                    (Part::More, _) => {}
                    (Part::Done, Phase::Relations) => sweep.phase = Phase::Hidden,
                    (Part::Done, Phase::Hidden) => break,
                    (other, _) => panic!("{other:?}"),
                }
            }
            sweeps::finish(&self.pool, &sweep).await.expect("finished").expect("nobody asked again");
        }
        parts
    }

    async fn count(&self, of: &str) -> i64 {
        self.rig.count(of).await
    }

    /// Every row of the outbox belongs to a version of its relation's axes, and the numbers are dense.
    async fn in_order(&self) {
        let gaps = "(select seq, row_number() over (order by seq) as place from outbox) o where seq <> place";
        assert_eq!(self.count(gaps).await, 0);
        let last = "like_relation r join lateral (select * from outbox o where o.user_id = r.user_id \
                    and o.video_id = r.video_id order by seq desc limit 1) o on true \
                    where (r.relation_version, r.state, r.hidden_version, r.hidden_reasons) is distinct from \
                          (o.relation_version, o.state, o.hidden_version, o.hidden_reasons)";
        assert_eq!(self.count(last).await, 0, "the last event of a relation tells both axes as they are");
        let doubled =
            "(select from outbox where kind = 1 group by user_id, video_id, relation_version having count(*) > 1) o";
        assert_eq!(self.count(doubled).await, 0);
    }
}

#[tokio::test]
async fn case_35_scn_c05_scn_d05_a_deletion_takes_every_like_and_a_restore_gives_back_these_and_no_others() {
    let mut shard = Shard::new().await;
    shard.set("lin", 0..1_050, LikeState::Liked).await;
    shard.set("lin", 0..50, LikeState::Unliked).await;
    shard.set("mei", 0..10, LikeState::Liked).await;
    shard.account("lin", DELETED).await;
    assert!(shard.sweep(200).await >= 5, "in parts");
    assert_eq!(shard.count("like_relation where user_id = 'lin' and state = 1").await, 0);
    assert_eq!(shard.count("outbox where user_id = 'lin' and cause = 2 and state = 2").await, 1_000);
    assert_eq!(shard.count("like_relation where user_id = 'lin' and relation_version <> 2").await, 0);
    assert_eq!(shard.count("like_relation where user_id = 'mei' and state = 1").await, 10);

    // Once more, as after a crash before the request was forgotten: nothing changes.
    shard.rig.sql.batch_execute("insert into account_sweep (user_id) values ('lin')").await.expect("asked");
    shard.sweep(200).await;
    assert_eq!(shard.count("outbox").await, 1_050 + 50 + 10 + 1_000);

    shard.account("lin", ACTIVE).await;
    shard.sweep(200).await;
    assert_eq!(shard.count("like_relation where user_id = 'lin' and state = 1 and cause = 6").await, 1_000);
    let taken_back = "like_relation where user_id = 'lin' and state = 2 and cause = 1 and relation_version = 2";
    assert_eq!(shard.count(taken_back).await, 50, "what the user took back stays taken back");
    shard.in_order().await;
}

#[tokio::test]
async fn case_35_a_restore_in_the_middle_of_a_deletion_supersedes_it() {
    let mut shard = Shard::new().await;
    shard.set("lin", 0..100, LikeState::Liked).await;
    shard.account("lin", DELETED).await;
    let deletion = shard.claim().await.expect("a sweep");
    assert_eq!(shard.step(&deletion, 30).await, Part::More);
    shard.account("lin", ACTIVE).await;
    assert_eq!(shard.step(&deletion, 30).await, Part::Superseded);
    assert_eq!(sweeps::finish(&shard.pool, &deletion).await.expect("asked"), None, "it is not done");
    shard.sweep(30).await;
    assert_eq!(shard.count("like_relation where state = 1").await, 100);
    assert_eq!(shard.count("outbox where cause = 6").await, 30);
    shard.in_order().await;
}

#[tokio::test]
async fn inv_24_scn_c03_a_ban_hides_likes_from_counts_and_its_end_shows_them_again() {
    let mut shard = Shard::new().await;
    shard.set("lin", 0..40, LikeState::Liked).await;
    shard.set("lin", 30..40, LikeState::Unliked).await;
    let changes = shard.count("outbox").await;
    shard.account("lin", BANNED).await;
    shard.sweep(7).await;
    assert_eq!(shard.count("outbox where kind = 2 and hidden_reasons = 2 and hidden_version = 1").await, 30);
    assert_eq!(shard.count("like_relation where state = 1 and relation_version = 1").await, 30, "the relation stands");
    shard.account("lin", DEACTIVATED).await;
    shard.sweep(7).await;
    assert_eq!(shard.count("outbox").await, changes + 30, "hidden already, for the same reason");
    shard.account("lin", ACTIVE).await;
    shard.sweep(7).await;
    assert_eq!(shard.count("outbox where kind = 2 and hidden_reasons = 0 and hidden_version = 2").await, 30);
    assert_eq!(shard.count("like_relation where hidden_reasons <> 0").await, 0);
    shard.in_order().await;
}

#[tokio::test]
async fn case_46_a_sweep_changes_nothing_behind_a_barrier() {
    let mut shard = Shard::new().await;
    shard.set("lin", 0..10, LikeState::Liked).await;
    shard.account("lin", DELETED).await;
    let raise = "update shard_meta set barrier_token = gen_random_uuid(), barrier_until = now() + interval '1 hour'";
    shard.rig.sql.batch_execute(raise).await.expect("raised");
    let sweep = shard.claim().await.expect("a sweep");
    assert_eq!(shard.step(&sweep, 10).await, Part::Closed);
    assert_eq!(shard.step(&Sweep { phase: Phase::Hidden, ..sweep.clone() }, 10).await, Part::Closed);
    assert_eq!(shard.count("outbox").await, 10);
    let fall = "update shard_meta set barrier_token = null, barrier_until = null";
    shard.rig.sql.batch_execute(fall).await.expect("fallen");
    shard.sweep(10).await;
    assert_eq!(shard.count("like_relation where state = 1").await, 0);
}

/// Account states, risk acts and commands of the user come in any order, and sweeps are abandoned half-way. Afterwards the
/// relations are what the last word on the account says.
#[tokio::test]
async fn case_35_inv_25_sweeps_that_are_killed_and_begun_anew_end_in_line_with_the_last_word() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut shard = Shard::new().await;
    shard.set("lin", 0..60, LikeState::Liked).await;
    let mut state = ACTIVE;
    let mut liked = [true; 60];
    for round in 0..40 {
        match rng.random_range(0..4) {
            0 => {
                state = [ACTIVE, ACTIVE, BANNED, DELETED][rng.random_range(0..4)];
                shard.account("lin", state).await;
            }
            1 if state == ACTIVE => {
                // Only a user whose relations are in line again takes something back here, so that the outcome is known.
                shard.sweep(20).await;
                let video = rng.random_range(0..60);
                liked[video] = rng.random_bool(0.5);
                let wanted = if liked[video] { LikeState::Liked } else { LikeState::Unliked };
                shard.set("lin", video..=video, wanted).await;
            }
            2 => {
                let insert = "delete from risk_state; insert into risk_state (act_id, user_id, video_id, kind) \
                              select 'a', 'lin', 'v0007', 1 where random() < 0.5; \
                              insert into account_sweep (user_id, phase) values ('lin', 2) on conflict (user_id) do update \
                              set request = account_sweep.request + 1, after_video = '', claimed_till = '-infinity'";
                shard.rig.sql.batch_execute(insert).await.expect("written");
            }
            _ => {
                if let Some(sweep) = shard.claim().await {
                    shard.step(&sweep, rng.random_range(1..40)).await;
                }
            }
        }
        assert!(shard.count("like_relation").await == 60, "round {round}");
    }
    shard.sweep(rng.random_range(1..40)).await;
    let rows = "select state, hidden_reasons from like_relation order by video_id";
    let rows = shard.rig.sql.query(rows, &[]).await.expect("read");
    let acts = shard.count("risk_state").await;
    for (video, row) in rows.iter().enumerate() {
        let (found, hidden): (i16, i16) = (row.get(0), row.get(1));
        let expected = if liked[video] && state != DELETED { 1 } else { 2 };
        assert_eq!(found, expected, "seed {seed}: video {video}, account {state}");
        if found == 1 {
            let risk = i16::from(acts > 0 && video == 7);
            assert_eq!(hidden, risk | if state == BANNED { 2 } else { 0 }, "seed {seed}: video {video}");
        }
    }
    shard.in_order().await;
}
