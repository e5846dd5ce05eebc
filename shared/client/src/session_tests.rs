use likewise_domain::decide::{
    BasePolicy, Decision, OperationRecord, Outcome, Relation, Rules, ShardFacts, Verdict, decide,
};
use likewise_domain::id::VideoId;
use likewise_domain::relation::{Cause, HiddenReasons};
use proptest::prelude::*;
use std::collections::HashMap;
use time::OffsetDateTime;

use super::LikeState::{Liked, Unliked};
use super::*;

/// The service, by its own rule.
#[derive(Default)]
struct Service {
    relation: Option<Relation>,
    operations: HashMap<String, OperationRecord>,
    /// States by version, for reads that are out of date.
    history: Vec<Known>,
}

impl Service {
    fn now(&self) -> Known {
        self.relation.map_or(Known { state: Unliked, version: 0 }, |relation| Known {
            state: relation.state,
            version: relation.version,
        })
    }

    fn decide(&mut self, command: &Command) -> Answer {
        let rules =
            Rules { base: BasePolicy::Reject, transitions_max: 1_000, transition_window: time::Duration::minutes(1) };
        let facts =
            ShardFacts { epoch: 0, open: true, account_active: true, frozen: false, hides: HiddenReasons::NONE };
        let asked = likewise_domain::decide::Command {
            video_id: VideoId::parse("v").expect("an id"),
            desired_state: command.desired_state,
            dated: None,
            base_version: command.base_version,
            refusal: None,
            cause: Cause::User,
        };
        let known = self.operations.get(&command.operation_id);
        let verdict = match decide(self.relation.as_ref(), known, &asked, &facts, &rules, OffsetDateTime::UNIX_EPOCH) {
            Decision::Known(verdict) => verdict,
            Decision::Decided(verdict, change) => {
                if let Some(next) = change {
                    self.relation = Some(next);
                    self.history.push(self.now());
                }
                self.record(command, &asked, verdict);
                verdict
            }
            Decision::Refused(refusal) => panic!("{refusal:?}"),
        };
        let current = self.now();
        match verdict.outcome {
            Outcome::StaleBase => Answer::Stale { current },
            _ => Answer::Settled { current, position: format!("p{}", current.version) },
        }
    }

    fn record(&mut self, command: &Command, asked: &likewise_domain::decide::Command, verdict: Verdict) {
        let record = OperationRecord { video_id: asked.video_id.clone(), desired_state: asked.desired_state, verdict };
        self.operations.insert(command.operation_id.clone(), record);
    }

    /// Another device of the same account.
    fn other_device(&mut self, state: LikeState, number: usize) {
        let operation_id = format!("other-{number}");
        self.decide(&Command { operation_id, desired_state: state, base_version: None });
    }
}

fn known(state: LikeState, version: u64) -> Known {
    Known { state, version }
}

fn send(session: &mut LikeSession, id: &str) -> Command {
    match session.next(|| id.to_owned()) {
        Next::Send(command) => command,
        other => panic!("{other:?}"),
    }
}

#[test]
fn taps_replace_the_target_while_one_command_is_out() {
    let mut session = LikeSession::new(Some(known(Unliked, 0)));
    session.tap(Liked);
    let first = send(&mut session, "a");
    assert_eq!((first.desired_state, first.base_version), (Liked, Some(0)));
    for state in [Unliked, Liked, Unliked] {
        session.tap(state);
        assert_eq!(session.next(|| panic!("one in flight")), Next::Waiting);
    }
    assert_eq!(session.heart(known(Unliked, 0)), Unliked, "what the user wants is shown at once");
    session.answered("a", Answer::Settled { current: known(Liked, 1), position: "p1".to_owned() });
    let second = send(&mut session, "b");
    assert_eq!((second.desired_state, second.base_version), (Unliked, Some(1)), "the last tap, on what is confirmed");
}

#[test]
fn case_04_a_lost_answer_is_asked_for_with_the_same_id_before_anything_else() {
    let mut session = LikeSession::new(Some(known(Unliked, 0)));
    session.tap(Liked);
    let first = send(&mut session, "a");
    session.tap(Unliked);
    session.lost("a");
    assert_eq!(send(&mut session, "never drawn"), first);
    session.answered("a", Answer::Settled { current: known(Liked, 1), position: "p1".to_owned() });
    assert_eq!(send(&mut session, "b").base_version, Some(1));
}

#[test]
fn case_04_a_call_turned_away_settles_nothing_that_may_be_decided_already() {
    let mut session = LikeSession::new(Some(known(Unliked, 0)));
    session.tap(Liked);
    let first = send(&mut session, "a");
    session.lost("a");
    assert_eq!(send(&mut session, "never drawn"), first);
    assert!(!session.turned_away("a", "the token has run out".to_owned()));
    assert_eq!(session.heart(known(Unliked, 0)), Liked, "it may be committed");
    assert_eq!(session.refusal(), None);
    assert_eq!(send(&mut session, "never drawn"), first, "with the next token");
    session.answered("a", Answer::Settled { current: known(Liked, 1), position: "p1".to_owned() });
    session.tap(Unliked);
    send(&mut session, "b");
    assert!(session.turned_away("b", "malformed".to_owned()), "sent once only: nothing can have come of it");
    assert_eq!(session.next(|| panic!("nothing to send")), Next::Settled);
    assert_eq!(session.refusal(), Some("malformed"));
}

#[test]
fn an_unlike_of_a_relation_that_was_never_read_is_sent() {
    let mut session = LikeSession::new(None);
    assert_eq!(session.next(|| panic!("nothing to send")), Next::Settled);
    session.tap(Unliked);
    assert_eq!(send(&mut session, "a").desired_state, Unliked);
    session.answered("a", Answer::Settled { current: known(Unliked, 2), position: "p2".to_owned() });
    assert!(session.is_settled());
}

#[test]
fn case_38_a_late_read_never_takes_back_what_is_confirmed() {
    let mut session = LikeSession::new(None);
    session.tap(Liked);
    let first = send(&mut session, "a");
    assert_eq!(first.base_version, None, "nothing is known yet");
    session.answered("a", Answer::Settled { current: known(Liked, 3), position: "p3".to_owned() });
    assert_eq!(session.heart(known(Unliked, 2)), Liked, "an old answer");
    assert_eq!(session.heart(known(Unliked, 4)), Unliked, "another device, later");
    assert!(session.is_settled(), "and it is not fought");
}

#[test]
fn scn_a07_scn_b09_the_number_moves_once_and_the_overlay_ends_with_the_position() {
    let mut session = LikeSession::new(Some(known(Unliked, 0)));
    assert_eq!(session.count(10, None), 10);
    session.tap(Liked);
    assert_eq!(session.count(10, None), 11);
    send(&mut session, "a");
    assert_eq!(session.count(11, None), 11, "counted before the answer came");
    session.answered("a", Answer::Settled { current: known(Liked, 1), position: "p1".to_owned() });
    assert_eq!(session.position(), Some("p1"));
    assert_eq!(session.count(10, Some(false)), 11, "not counted yet");
    assert_eq!(session.count(11, Some(false)), 11, "nobody knows whether it is");
    assert_eq!(session.count(11, Some(true)), 11, "counted: nothing is added any more");
    assert_eq!(session.count(11, None), 11);
    session.tap(Unliked);
    assert_eq!(session.count(11, None), 10);
    let mut unread = LikeSession::new(None);
    unread.tap(Liked);
    assert_eq!((unread.count(0, None), unread.count(5, None)), (1, 5), "without a number from before");
}

#[test]
fn case_39_a_limit_rests_and_a_refusal_gives_the_heart_back() {
    let mut session = LikeSession::new(Some(known(Unliked, 4)));
    session.tap(Liked);
    send(&mut session, "a");
    let retry_after = Duration::from_secs(3);
    session.answered("a", Answer::RateLimited { current: known(Unliked, 4), retry_after });
    assert_eq!(session.next(|| panic!("it rests")), Next::Rest(retry_after));
    session.rested();
    send(&mut session, "b");
    session.answered("b", Answer::Refused { reason: "VIDEO_GONE".to_owned(), current: None });
    assert_eq!((session.heart(known(Unliked, 4)), session.refusal()), (Unliked, Some("VIDEO_GONE")));
    assert_eq!(session.next(|| panic!("nothing to send")), Next::Settled);
    session.tap(Liked);
    send(&mut session, "b2");
    session.answered("b2", Answer::Refused { reason: "FROZEN".to_owned(), current: Some(known(Liked, 5)) });
    assert_eq!(session.heart(known(Unliked, 4)), Liked, "another device was faster, and the refusal tells of it");
    session.tap(Unliked);
    send(&mut session, "b3");
    session.answered("b3", Answer::Settled { current: known(Unliked, 6), position: "p".to_owned() });
    session.tap(Liked);
    send(&mut session, "c");
    session.answered("c", Answer::Expired);
    assert_eq!(send(&mut session, "d").desired_state, Liked, "the same intent with a new id");
}

#[derive(Debug, Clone)]
enum Step {
    Tap(bool),
    /// The session sends, and the answer is: delivered, lost after the decision, or lost before it; or the call is turned away.
    Send(u8),
    /// An answer of the past comes once more.
    Repeat(usize),
    /// A read of some version so far.
    Read(usize),
    Other(bool),
}

fn any_step(others: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<bool>().prop_map(Step::Tap),
        4 => (0_u8..5).prop_map(Step::Send),
        1 => any::<usize>().prop_map(Step::Repeat),
        1 => any::<usize>().prop_map(Step::Read),
        1 => any::<bool>().prop_map(move |state| if others { Step::Other(state) } else { Step::Tap(state) }),
    ]
}

fn state(likes: bool) -> LikeState {
    if likes { Liked } else { Unliked }
}

/// A session with the network between it and the service.
struct Pair {
    session: LikeSession,
    service: Service,
    drawn: usize,
    undecided: Option<Command>,
    answers: Vec<(String, Answer)>,
    least: u64,
}

impl Pair {
    fn new() -> Self {
        Self {
            session: LikeSession::new(Some(known(Unliked, 0))),
            service: Service::default(),
            drawn: 0,
            undecided: None,
            answers: Vec::new(),
            least: 0,
        }
    }

    fn send(&mut self, fate: u8) -> Result<(), TestCaseError> {
        let drawn = &mut self.drawn;
        let next = self.session.next(|| {
            *drawn += 1;
            format!("op-{drawn}")
        });
        let Next::Send(command) = next else { return Ok(()) };
        let before = self.undecided.take();
        if let Some(before) = &before {
            prop_assert_eq!(before, &command, "an undecided command goes first, with its own id");
        }
        if fate == 4 {
            let settles = self.session.turned_away(&command.operation_id, "turned away".to_owned());
            prop_assert_eq!(settles, before.is_none());
            self.undecided = before;
            return Ok(());
        }
        let answer = if fate == 3 { None } else { Some(self.service.decide(&command)) };
        let Some(answer) = answer.filter(|_| fate < 2) else {
            self.session.lost(&command.operation_id);
            self.undecided = Some(command);
            return Ok(());
        };
        self.answers.push((command.operation_id.clone(), answer.clone()));
        self.session.answered(&command.operation_id, answer);
        Ok(())
    }

    fn step(&mut self, step: &Step, number: usize) -> Result<(), TestCaseError> {
        match step {
            Step::Tap(likes) => self.session.tap(state(*likes)),
            Step::Send(fate) => self.send(*fate)?,
            Step::Repeat(which) if !self.answers.is_empty() => {
                let (id, answer) = self.answers[which % self.answers.len()].clone();
                self.session.answered(&id, answer);
            }
            Step::Read(which) if !self.service.history.is_empty() => {
                let read = self.service.history[which % self.service.history.len()];
                let shown = self.session.heart(read);
                prop_assert!(read.version >= self.least || !self.session.is_settled() || shown == self.session.state());
            }
            Step::Other(likes) => self.service.other_device(state(*likes), number),
            Step::Repeat(_) | Step::Read(_) => {}
        }
        prop_assert!(self.session.min_version() >= self.least, "what is confirmed only grows");
        self.least = self.session.min_version();
        Ok(())
    }
}

proptest! {
    #[test]
    fn case_38_once_the_network_heals_the_last_tap_is_what_the_service_has(
        steps in prop::collection::vec(any_step(false), 0..60), last in any::<bool>(),
    ) {
        let mut pair = Pair::new();
        for (number, step) in steps.iter().enumerate() {
            pair.step(step, number)?;
        }
        pair.session.tap(state(last));
        for _ in 0..4 {
            pair.send(0)?;
        }
        prop_assert_eq!(pair.service.now().state, state(last));
        prop_assert!(pair.session.is_settled());
        prop_assert_eq!(pair.session.heart(pair.service.now()), state(last));
    }

    #[test]
    fn case_38_with_other_devices_the_session_ends_where_the_service_is(
        steps in prop::collection::vec(any_step(true), 0..60),
    ) {
        let mut pair = Pair::new();
        for (number, step) in steps.iter().enumerate() {
            pair.step(step, number)?;
        }
        for _ in 0..6 {
            pair.send(0)?;
        }
        let now = pair.service.now();
        prop_assert_eq!(pair.session.heart(now), now.state);
        prop_assert!(pair.session.is_settled());
    }
}
