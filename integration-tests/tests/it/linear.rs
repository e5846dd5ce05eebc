//! Recorded histories of several devices of one account, with crashes and cuts, held against what one relation with one
//! order of changes could have told.
//!
//! The object is a register that tells its version with every answer, so the order of changes is in the history itself and the
//! check is complete: a history passes exactly if its calls can be put in one order that respects both versions and time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use likewise_devstack::Cut;
use likewise_proto::command::v1::{CommandOutcome, CurrentRelation, OperationVerdict};
use likewise_proto::types::v1::LikeState;
use rand::RngExt as _;
use tonic::Code;

use crate::world::{Caller, World, eventually, operation};

const USERS: [&str; 3] = ["ann", "ben", "cai"];
const VIDEOS: [&str; 2] = ["V0", "V1"];
const DEVICES: usize = 4;

/// Outcome, state and version; and the relation at some moment of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    verdict: (CommandOutcome, LikeState, u64),
    current: (LikeState, u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    invoked: Duration,
    returned: Duration,
    relation: (String, String),
    operation: String,
    answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Told(Told),
    /// A question was answered: no verdict yet.
    NoVerdict,
    /// A command was sent, and nobody knows what became of it.
    Unknown,
}

impl Call {
    fn told(&self) -> Option<Told> {
        match self.answer {
            Answer::Told(told) => Some(told),
            Answer::NoVerdict | Answer::Unknown => None,
        }
    }
}

/// An intent: operation, user, video, state.
type Intent = (String, String, String, LikeState);

fn told(verdict: Option<OperationVerdict>, current: Option<CurrentRelation>) -> Told {
    let (verdict, current) = (verdict.expect("a verdict"), current.expect("the relation"));
    Told {
        verdict: (verdict.outcome(), verdict.state(), verdict.relation_version),
        current: (current.state(), current.relation_version),
    }
}

/// Why a history of one relation cannot have happened in one order.
fn check_relation(calls: &[&Call]) -> Result<(), String> {
    let mut verdicts: BTreeMap<&str, (CommandOutcome, LikeState, u64)> = BTreeMap::new();
    let mut states: BTreeMap<u64, LikeState> = BTreeMap::from([(0, LikeState::Unliked)]);
    let mut appliers: BTreeMap<u64, &str> = BTreeMap::new();
    for call in calls {
        let Some(told) = call.told() else { continue };
        let kept = *verdicts.entry(&call.operation).or_insert(told.verdict);
        if kept != told.verdict {
            return Err(format!("{} was told {kept:?} and {:?}", call.operation, told.verdict));
        }
        let (outcome, state, version) = told.verdict;
        for (state, version) in [(state, version), told.current] {
            if *states.entry(version).or_insert(state) != state {
                return Err(format!("version {version} has two states"));
            }
        }
        if outcome == CommandOutcome::Applied && *appliers.entry(version).or_insert(&call.operation) != call.operation {
            return Err(format!("version {version} was made twice"));
        }
        if told.current.1 < version {
            return Err(format!("{}: the relation is older than the verdict", call.operation));
        }
    }
    let versions = states.keys().copied().collect::<Vec<_>>();
    if let Some(hole) = (1..=versions.last().copied().unwrap_or(0)).find(|version| !appliers.contains_key(version)) {
        return Err(format!("nobody made version {hole}"));
    }
    if let Some((version, _)) =
        states.iter().zip(states.iter().skip(1)).find_map(|((one, a), (_, b))| (a == b).then_some((*one, a)))
    {
        return Err(format!("version {} changed nothing", version + 1));
    }
    in_time(calls)
}

/// What was seen before a call began is not older than what the call saw, and no operation was decided before it was sent.
fn in_time(calls: &[&Call]) -> Result<(), String> {
    let mut by_return: Vec<&&Call> = calls.iter().filter(|call| call.told().is_some()).collect();
    by_return.sort_by_key(|call| call.returned);
    let seen_before = |moment: Duration| {
        let before = by_return.iter().take_while(|call| call.returned < moment);
        before.filter_map(|call| call.told().map(|told| told.current.1)).max().unwrap_or(0)
    };
    let mut first_sent: BTreeMap<&str, Duration> = BTreeMap::new();
    for call in calls {
        let first = first_sent.entry(&call.operation).or_insert(call.invoked);
        *first = (*first).min(call.invoked);
    }
    for call in calls {
        let Some(told) = call.told() else {
            let known = call.answer == Answer::NoVerdict
                && by_return.iter().any(|other| other.operation == call.operation && other.returned < call.invoked);
            if known {
                return Err(format!("{} was forgotten", call.operation));
            }
            continue;
        };
        let before = seen_before(call.invoked);
        if told.current.1 < before {
            return Err(format!("{} saw version {} after {before} was seen", call.operation, told.current.1));
        }
        let (outcome, _, version) = told.verdict;
        let before = seen_before(first_sent[call.operation.as_str()]);
        let least = if outcome == CommandOutcome::Applied { version.saturating_sub(1) } else { version };
        if before > least {
            return Err(format!("{} was decided at {version} after {before} was seen", call.operation));
        }
    }
    Ok(())
}

fn check(calls: &[Call]) -> Result<(), String> {
    let mut relations: BTreeMap<&(String, String), Vec<&Call>> = BTreeMap::new();
    for call in calls {
        relations.entry(&call.relation).or_default().push(call);
    }
    relations
        .iter()
        .try_for_each(|(relation, calls)| check_relation(calls).map_err(|problem| format!("{relation:?}: {problem}")))
}

/// Writes down what is called and told.
#[derive(Clone)]
struct Recorder {
    began: Instant,
    calls: Arc<Mutex<Vec<Call>>>,
    /// Every intent so far: operation, relation, state.
    intents: Arc<Mutex<Vec<Intent>>>,
}

impl Recorder {
    fn new() -> Self {
        Self { began: Instant::now(), calls: Arc::default(), intents: Arc::default() }
    }

    async fn set(&self, caller: &Caller, video: &str, state: LikeState, id: &str) -> bool {
        let invoked = self.began.elapsed();
        match caller.set(video, state, id, None).await {
            Ok(answer) => {
                self.keep(caller, video, id, invoked, Answer::Told(told(answer.operation, answer.current)));
                true
            }
            Err(status) => {
                let honest = [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded, Code::Unknown, Code::Cancelled];
                assert!(honest.contains(&status.code()), "{status:?}");
                self.keep(caller, video, id, invoked, Answer::Unknown);
                false
            }
        }
    }

    async fn ask(&self, caller: &Caller, video: &str, id: &str) {
        let invoked = self.began.elapsed();
        match caller.operation(id).await {
            Ok(found) => self.keep(caller, video, id, invoked, Answer::Told(told(found.operation, found.current))),
            Err(status) if status.code() == Code::NotFound => {
                self.keep(caller, video, id, invoked, Answer::NoVerdict);
            }
            Err(_) => {}
        }
    }

    fn keep(&self, caller: &Caller, video: &str, id: &str, invoked: Duration, answer: Answer) {
        let relation = (caller.name.clone(), video.to_owned());
        let returned = self.began.elapsed();
        let call = Call { invoked, returned, relation, operation: id.to_owned(), answer };
        self.calls.lock().unwrap().push(call);
    }

    /// One device: new intents, old ones again, and questions.
    async fn device(self, caller: Caller, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            let own = |intent: &&Intent| intent.1 == caller.name;
            let known: Vec<_> = self.intents.lock().unwrap().iter().filter(own).cloned().collect();
            let chance = rand::rng().random_range(0..10);
            if chance < 5 || known.is_empty() {
                let video = VIDEOS[rand::rng().random_range(0..VIDEOS.len())];
                let state = if rand::rng().random_bool(0.5) { LikeState::Liked } else { LikeState::Unliked };
                let id = operation();
                self.intents.lock().unwrap().push((id.clone(), caller.name.clone(), video.to_owned(), state));
                self.set(&caller, video, state, &id).await;
            } else {
                let (id, _, video, state) = known[rand::rng().random_range(0..known.len())].clone();
                if chance < 8 {
                    self.set(&caller, &video, state, &id).await;
                } else {
                    self.ask(&caller, &video, &id).await;
                }
            }
            let pause = Duration::from_millis(rand::rng().random_range(0..8));
            tokio::time::sleep(pause).await;
        }
    }
}

/// All devices for a while.
struct Devices {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Devices {
    fn start(recorder: &Recorder, people: &[Caller]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let devices = people.iter().flat_map(|person| (0..DEVICES).map(move |_| person.clone()));
        let tasks = devices.map(|person| tokio::spawn(recorder.clone().device(person, Arc::clone(&stop)))).collect();
        Self { stop, tasks }
    }

    async fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("no device is told a lie");
        }
    }
}

async fn people(world: &World) -> Vec<Caller> {
    for video in VIDEOS {
        world.video("ava", video).await;
    }
    let mut people = Vec::new();
    for user in USERS {
        people.push(world.user(user).await);
    }
    people
}

/// Every intent gets its verdict, then the whole history is checked.
async fn conclude(recorder: &Recorder, people: &[Caller]) -> Result<(), String> {
    let intents = recorder.intents.lock().unwrap().clone();
    for (id, user, video, state) in &intents {
        let caller = people.iter().find(|person| person.name == *user).expect("a person");
        eventually("a verdict", async || {
            if recorder.set(caller, video, *state, id).await { Ok(()) } else { Err("none yet".to_owned()) }
        })
        .await;
    }
    let calls = recorder.calls.lock().unwrap().clone();
    assert!(calls.len() > 200, "{} calls prove little", calls.len());
    check(&calls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_01_inv_02_case_38_histories_with_kills_have_one_order() {
    let mut world = World::start().await;
    let mut people = people(&world).await;
    let recorder = Recorder::new();
    for _ in 0..4 {
        let devices = Devices::start(&recorder, &people);
        let pause = Duration::from_millis(rand::rng().random_range(500..1_500));
        tokio::time::sleep(pause).await;
        world.process.kill().await;
        devices.finish().await;
        world.restart_after_kill(&[]).await;
        people = people.iter().map(|person| world.again(person)).collect();
    }
    conclude(&recorder, &people).await.expect("one order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_01_inv_02_case_48_histories_with_cut_commits_have_one_order() {
    let (world, line) = World::start_behind_a_line().await;
    let people = people(&world).await;
    let recorder = Recorder::new();
    let devices = Devices::start(&recorder, &people);
    for number in 0..12 {
        line.cut_at(if number % 2 == 0 { Cut::AfterCommit } else { Cut::BeforeCommit });
        eventually("a commit is met", async || if line.was_cut() { Ok(()) } else { Err("not yet".to_owned()) }).await;
        if number % 4 == 3 {
            line.abandon();
        }
    }
    eventually("enough was called", async || match recorder.calls.lock().unwrap().len() {
        0..400 => Err("too little".to_owned()),
        _ => Ok(()),
    })
    .await;
    devices.finish().await;
    conclude(&recorder, &people).await.expect("one order");
}

/// The check is worth something: without the look-up of operations a history has none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_02_without_the_look_up_of_operations_histories_have_no_order() {
    let world = World::start().await;
    let people = people(&world).await;
    let migration = include_str!("../../../services/command/migrations/V0005__apply_commands.sql");
    let begin = migration.find("create function apply_commands(").expect("the function");
    let end = begin + migration[begin..].find("end $$;").expect("its end") + "end $$;".len();
    let forgetful = migration[begin..end]
        .replace("create function", "create or replace function")
        .replace("limit 1) c on true", "limit 1) c on false")
        .replace(
            "where d.k_outcome is null and d.verdict < 10",
            "where d.k_outcome is null and d.verdict < 10 on conflict do nothing",
        );
    assert_eq!(forgetful.matches("c on false").count(), 1);
    assert_eq!(forgetful.matches("on conflict do nothing").count(), 1);
    let sql = world.sql().await;
    for shard in 0..4 {
        sql.batch_execute(&format!("set search_path = relation_{shard:02}; {forgetful}")).await.expect("replaced");
    }
    let recorder = Recorder::new();
    let devices = Devices::start(&recorder, &people);
    tokio::time::sleep(Duration::from_secs(3)).await;
    devices.finish().await;
    let problem = conclude(&recorder, &people).await.expect_err("operations are decided again and again");
    println!("found: {problem}");
}

#[test]
fn a_history_without_one_order_is_found() {
    let call = |invoked: u64, returned: u64, operation: &str, told: Option<(CommandOutcome, u64, u64)>| {
        let state = |version: u64| if version % 2 == 1 { LikeState::Liked } else { LikeState::Unliked };
        Call {
            invoked: Duration::from_millis(invoked),
            returned: Duration::from_millis(returned),
            relation: ("u".to_owned(), "v".to_owned()),
            operation: operation.to_owned(),
            answer: told.map_or(Answer::NoVerdict, |(outcome, version, current)| {
                Answer::Told(Told { verdict: (outcome, state(version), version), current: (state(current), current) })
            }),
        }
    };
    use CommandOutcome::{Applied, Unchanged};
    let first = call(0, 10, "a", Some((Applied, 1, 1)));
    let second = call(20, 30, "b", Some((Applied, 2, 2)));
    let of = |calls: &[Call]| check(calls).err().unwrap_or_default();
    assert_eq!(of(&[first.clone(), second.clone(), call(40, 50, "a", Some((Applied, 1, 2)))]), "");
    assert!(of(&[first.clone(), call(5, 30, "a", Some((Applied, 3, 3)))]).contains("was told"));
    assert!(of(&[first.clone(), call(5, 30, "b", Some((Applied, 1, 1)))]).contains("made twice"));
    assert!(of(std::slice::from_ref(&second)).contains("nobody made version 1"));
    assert!(
        of(&[first.clone(), second.clone(), call(40, 50, "a", Some((Applied, 1, 1)))]).contains("after 2 was seen")
    );
    assert!(of(&[first.clone(), second.clone(), call(40, 50, "c", Some((Unchanged, 1, 2)))]).contains("decided at 1"));
    assert!(of(&[first, second, call(40, 50, "a", None)]).contains("forgotten"));
}
