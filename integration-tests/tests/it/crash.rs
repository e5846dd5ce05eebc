//! kill -9, at named points and at random moments, under load: afterwards relations, outbox, stream, projection,
//! buckets, display and list agree, and every operation has the verdict its caller was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use likewise_proto::command::v1::{CommandOutcome, OperationVerdict};
use likewise_proto::types::v1::LikeState;
use rand::RngExt;
use tonic::Code;

use crate::agree;
use crate::world::{Caller, World, eventually, operation};

const USERS: usize = 12;
const VIDEOS: usize = 5;

/// What the callers were told, by user and operation id.
pub type Verdicts = BTreeMap<(String, String), OperationVerdict>;

/// One user who sets random states, one after the other, and repeats an operation until it has a verdict.
async fn tap(caller: Caller, stop: Arc<AtomicBool>) -> Verdicts {
    let mut told = Verdicts::new();
    while !stop.load(Ordering::Relaxed) {
        let video = format!("V{}", rand::rng().random_range(0..VIDEOS));
        let state = if rand::rng().random_bool(0.6) { LikeState::Liked } else { LikeState::Unliked };
        let id = operation();
        // An intent without a verdict is repeated with the same id, by this process or after the restart.
        while !stop.load(Ordering::Relaxed) {
            match caller.set(&video, state, &id, None).await {
                Ok(answer) => {
                    told.insert((caller.name.clone(), id), answer.operation.expect("a verdict"));
                    break;
                }
                Err(status) => {
                    let retry =
                        [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded, Code::Unknown, Code::Cancelled];
                    assert!(retry.contains(&status.code()), "an error that lies: {status:?}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
    told
}

async fn world_with_people(environment: &[(&str, &str)]) -> (World, Vec<Caller>) {
    let world = World::start_with(environment).await;
    let users = people(&world).await;
    (world, users)
}

/// Videos to like, and users to do it.
pub async fn people(world: &World) -> Vec<Caller> {
    for number in 0..VIDEOS {
        world.video("ava", &format!("V{number}")).await;
    }
    let mut users = Vec::new();
    for number in 0..USERS {
        users.push(world.user(&format!("u{number:02}")).await);
    }
    users
}

pub struct Load {
    stop: Arc<AtomicBool>,
    taps: Vec<tokio::task::JoinHandle<Verdicts>>,
}

impl Load {
    pub fn start(users: &[Caller]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let taps = users.iter().map(|user| tokio::spawn(tap(user.clone(), stop.clone()))).collect();
        Self { stop, taps }
    }

    pub async fn finish(self) -> Verdicts {
        self.stop.store(true, Ordering::Relaxed);
        let mut told = Verdicts::new();
        for tap in self.taps {
            told.extend(tap.await.expect("a caller never sees an error that lies"));
        }
        told
    }
}

/// Every verdict that was told is told again, to the letter.
pub async fn verdicts_stand(world: &World, told: &Verdicts) {
    for ((user, id), verdict) in told {
        let caller = world.user(user).await;
        let kept = caller.operation(id).await.unwrap_or_else(|status| panic!("{user} {id}: {status:?}"));
        assert_eq!(kept.operation.as_ref(), Some(verdict), "{user} {id}");
    }
    let applied = told.values().filter(|verdict| verdict.outcome() == CommandOutcome::Applied).count();
    assert!(applied > 0, "the load changed something");
}

async fn killed_at(point: &str) {
    let passes = rand::rng().random_range(3..12);
    let armed = format!("{point}:{passes}");
    let (mut world, users) = world_with_people(&[]).await;
    // Nothing is left to do for the armed process before it serves.
    world.settled().await;
    world.restart_after_kill(&[("LIKEWISE_CRASH_POINT", &armed)]).await;
    let users: Vec<Caller> = users.iter().map(|user| world.again(user)).collect();
    let load = Load::start(&users);
    assert!(world.process.ended_within(Duration::from_secs(60)).await, "{armed} was never passed");
    let mut told = load.finish().await;

    world.restart_after_kill(&[]).await;
    let users: Vec<Caller> = users.iter().map(|user| world.again(user)).collect();
    let load = Load::start(&users);
    eventually("the load goes on after the restart", async || {
        let relations = agree::relations(&world).await.len();
        if relations > USERS { Ok(()) } else { Err(format!("{relations} relations")) }
    })
    .await;
    told.extend(load.finish().await);
    world.settled().await;
    agree::check(&world).await;
    verdicts_stand(&world, &told).await;
}

macro_rules! killed_at {
    ($($name:ident => $point:literal),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            killed_at($point).await;
        }
    )+};
}

killed_at! {
    inv_17_killed_before_the_commit => "writer.before_commit",
    case_04_killed_after_the_commit_before_the_answer => "writer.after_commit",
    inv_18_killed_before_publishing => "publisher.before_publish",
    case_08_killed_after_publishing_before_the_ack => "publisher.after_publish",
    inv_09_killed_after_the_ack_before_the_evidence => "publisher.after_ack",
    inv_09_killed_after_the_evidence => "publisher.after_evidence",
    drill_04_killed_before_the_projection_commit => "projector.before_commit",
    case_09_killed_after_the_projection_commit_before_the_checkpoint => "projector.after_commit",
    inv_19_killed_after_the_checkpoint => "projector.after_checkpoint",
    inv_14_killed_before_the_list_commit => "reverse.before_commit",
    inv_14_killed_after_the_list_commit => "reverse.after_commit",
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_01_inv_06_inv_09_killed_at_random_moments() {
    let (mut world, mut users) = world_with_people(&[]).await;
    let mut told = Verdicts::new();
    for _ in 0..5 {
        let load = Load::start(&users);
        let moment = rand::rng().random_range(200..1500);
        tokio::time::sleep(Duration::from_millis(moment)).await;
        world.process.kill().await;
        told.extend(load.finish().await);
        world.restart_after_kill(&[]).await;
        users = users.iter().map(|user| world.again(user)).collect();
    }
    world.settled().await;
    agree::check(&world).await;
    verdicts_stand(&world, &told).await;
}
