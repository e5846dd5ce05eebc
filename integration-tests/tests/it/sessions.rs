//! What pages of likes promise one session, with two processes, one of which is killed: never a version below what the session
//! has seen, and of each version one state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use likewise_proto::types::v1::LikeState;
use rand::RngExt as _;
use tonic::{Code, Status};

use crate::world::{Caller, World, eventually, operation};

const USERS: [&str; 2] = ["ann", "ben"];
const VIDEOS: [&str; 3] = ["V0", "V1", "V2"];
const DEVICES: usize = 3;

/// What is known of one relation.
type Seen = (u64, LikeState);

/// States by user, video and version, whoever saw them.
#[derive(Debug, Default)]
struct Truth(BTreeMap<(String, String, u64), LikeState>);

impl Truth {
    fn agree(&mut self, user: &str, video: &str, (version, state): Seen) -> Result<(), String> {
        let kept = *self.0.entry((user.to_owned(), video.to_owned(), version)).or_insert(state);
        if kept == state { Ok(()) } else { Err(format!("{user}, {video}: version {version} has two states")) }
    }
}

/// What one device has seen so far.
#[derive(Debug, Default)]
struct Session(BTreeMap<String, u64>);

impl Session {
    fn see(&mut self, video: &str, version: u64) -> Result<(), String> {
        let seen = self.0.entry(video.to_owned()).or_default();
        if version < *seen {
            return Err(format!("{video}: version {version} after {seen}"));
        }
        *seen = version;
        Ok(())
    }
}

/// A process that dies answers nobody, or says so.
fn is_honest(status: &Status) -> bool {
    [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded, Code::Unknown, Code::Cancelled].contains(&status.code())
}

/// One device for a while, which speaks to any of the processes; how often it was answered a page.
async fn device(callers: Vec<Caller>, truth: Arc<Mutex<Truth>>, stop: Arc<AtomicBool>) -> Result<usize, String> {
    let (mut session, mut pages) = (Session::default(), 0);
    while !stop.load(Ordering::Relaxed) {
        let caller = &callers[rand::rng().random_range(0..callers.len())];
        if rand::rng().random_bool(0.4) {
            let video = VIDEOS[rand::rng().random_range(0..VIDEOS.len())];
            let state = if rand::rng().random_bool(0.5) { LikeState::Liked } else { LikeState::Unliked };
            match caller.set(video, state, &operation(), None).await {
                Ok(answer) => {
                    let now = answer.current.expect("the relation");
                    truth.lock().unwrap().agree(&caller.name, video, (now.relation_version, now.state()))?;
                    session.see(video, now.relation_version)?;
                }
                Err(status) if is_honest(&status) => {}
                Err(status) => return Err(format!("{status:?}")),
            }
        } else {
            match caller.likes_since(&VIDEOS, &session.0).await {
                Ok(page) => {
                    pages += 1;
                    for like in page {
                        let now = (like.relation_version, like.my_state());
                        truth.lock().unwrap().agree(&caller.name, &like.video_id, now)?;
                        session.see(&like.video_id, like.relation_version)?;
                    }
                }
                Err(status) if is_honest(&status) => {}
                Err(status) => return Err(format!("{status:?}")),
            }
        }
        let pause = Duration::from_millis(rand::rng().random_range(0..8));
        tokio::time::sleep(pause).await;
    }
    Ok(pages)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_01_case_38_a_session_never_sees_its_relations_go_back_whoever_answers_and_dies() {
    let mut world = World::start().await;
    for video in VIDEOS {
        world.video("ava", video).await;
    }
    let twin = world.twin().await;
    let truth = Arc::new(Mutex::new(Truth::default()));
    let mut pages = 0;
    for round in 0..3 {
        let stop = Arc::new(AtomicBool::new(false));
        let mut devices = Vec::new();
        for user in USERS {
            let here = world.user(user).await;
            let there = twin.again(&here);
            for _ in 0..DEVICES {
                let callers = vec![here.clone(), there.clone()];
                devices.push(tokio::spawn(device(callers, Arc::clone(&truth), Arc::clone(&stop))));
            }
        }
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(500..1_500))).await;
        if round < 2 {
            world.process.kill().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        stop.store(true, Ordering::Relaxed);
        for device in devices {
            pages += device.await.expect("a device").expect("its session");
        }
        world.restart_after_kill(&[]).await;
    }
    assert!(pages > 100, "{pages} pages prove little");
    // Every process tells the same in the end, and what it tells was told before.
    for user in USERS {
        let here = world.user(user).await;
        let one = here.likes(&VIDEOS).await;
        eventually("both agree", async || {
            let other = twin.again(&here).likes(&VIDEOS).await;
            let same = one.iter().zip(&other).all(|(one, other)| one.relation_version == other.relation_version);
            if same { Ok(()) } else { Err(format!("{one:?} and {other:?}")) }
        })
        .await;
        for like in one {
            truth
                .lock()
                .unwrap()
                .agree(user, &like.video_id, (like.relation_version, like.my_state()))
                .expect("one state");
        }
    }
}

#[test]
fn a_step_back_is_found() {
    let mut session = Session::default();
    assert_eq!((session.see("V", 3), session.see("V", 3), session.see("W", 1)), (Ok(()), Ok(()), Ok(())));
    assert!(session.see("V", 2).is_err());
    let mut truth = Truth::default();
    assert_eq!(truth.agree("u", "V", (1, LikeState::Liked)), Ok(()));
    assert_eq!(truth.agree("u", "V", (1, LikeState::Liked)), Ok(()));
    assert!(truth.agree("u", "V", (1, LikeState::Unliked)).is_err());
}
