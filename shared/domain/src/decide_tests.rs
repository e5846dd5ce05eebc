use std::collections::HashMap;

use proptest::prelude::*;
use time::macros::datetime;

use super::*;
use crate::relation::VERSION_EPOCH_SHIFT;

const START: OffsetDateTime = datetime!(2026-01-15 12:00 UTC);
const RULES: Rules = Rules { base: BasePolicy::Reject, transitions_max: 5, transition_window: Duration::minutes(1) };
const FACTS: ShardFacts =
    ShardFacts { epoch: 0, open: true, account_active: true, frozen: false, hides: HiddenReasons::NONE };

fn video(name: &str) -> VideoId {
    VideoId::parse(name).expect("well-formed")
}

fn command(desired_state: LikeState) -> Command {
    Command { video_id: video("v"), desired_state, dated: None, base_version: None, refusal: None, cause: Cause::User }
}

fn relation(state: LikeState, version: u64) -> Relation {
    Relation {
        state,
        version,
        state_changed_at: START,
        window_started_at: START,
        transitions: 1,
        hidden: Hidden::default(),
    }
}

fn outcome(decision: Decision) -> Option<Outcome> {
    match decision {
        Decision::Known(verdict) | Decision::Decided(verdict, _) => Some(verdict.outcome),
        Decision::Refused(_) => None,
    }
}

/// One relation as the shard keeps it, with the operations that touched it.
#[derive(Default)]
struct Shard {
    relation: Option<Relation>,
    operations: HashMap<u8, OperationRecord>,
    events: Vec<(u64, LikeState)>,
}

impl Shard {
    fn apply(&mut self, id: u8, command: &Command, facts: &ShardFacts, rules: &Rules, now: OffsetDateTime) -> Decision {
        let decision = decide(self.relation.as_ref(), self.operations.get(&id), command, facts, rules, now);
        if let Decision::Decided(verdict, change) = decision {
            let record =
                OperationRecord { video_id: command.video_id.clone(), desired_state: command.desired_state, verdict };
            self.operations.insert(id, record);
            if let Some(next) = change {
                self.relation = Some(next);
                self.events.push((next.version, next.state));
            }
        }
        decision
    }
}

fn any_command() -> impl Strategy<Value = Command> {
    let base = prop::option::weighted(0.3, 0u64..6);
    (any::<bool>(), base, prop::option::weighted(0.1, Just(PolicyRefusal::VideoGone)), 0u8..10).prop_map(
        |(like, base_version, refusal, cause)| Command {
            video_id: video("v"),
            desired_state: if like { LikeState::Liked } else { LikeState::Unliked },
            dated: None,
            base_version,
            refusal,
            cause: match cause {
                0 => Cause::AccountDeleted,
                1 => Cause::Restated,
                _ => Cause::User,
            },
        },
    )
}

fn any_facts() -> impl Strategy<Value = ShardFacts> {
    (0u8..10).prop_map(|kind| match kind {
        0 => ShardFacts { open: false, ..FACTS },
        1 => ShardFacts { account_active: false, ..FACTS },
        2 => ShardFacts { frozen: true, ..FACTS },
        3 => ShardFacts { hides: HiddenReasons::RISK, ..FACTS },
        _ => FACTS,
    })
}

proptest! {
    #[test]
    fn inv_01_inv_03_one_relation_whose_versions_and_times_only_grow(
        steps in prop::collection::vec((any::<u8>(), any_command(), any_facts(), 0i64..3_000_000), 0..60),
    ) {
        let mut shard = Shard::default();
        let mut now = START;
        for (id, command, facts, pause) in steps {
            // A clock may stand still; it is only compared, never trusted to move.
            now += Duration::microseconds(pause / 2 * 2);
            let before = shard.relation;
            shard.apply(id, &command, &facts, &RULES, now);
            if let (Some(before), Some(after)) = (before, shard.relation) && before != after {
                prop_assert_eq!(after.version, before.version + 1);
                prop_assert!(after.state_changed_at > before.state_changed_at);
                let changed = u64::from(after.hidden.reasons != before.hidden.reasons);
                prop_assert_eq!(after.hidden, Hidden { version: before.hidden.version + changed, reasons: facts.hides });
            }
        }
        let versions: Vec<u64> = shard.events.iter().map(|event| event.0).collect();
        prop_assert_eq!(versions, (1..=u64::try_from(shard.events.len()).expect("small")).collect::<Vec<_>>());
    }

    #[test]
    fn inv_02_a_known_id_changes_nothing_and_repeats_its_verdict(
        steps in prop::collection::vec((0u8..8, any_command(), any_facts()), 1..60), again in any_facts(),
    ) {
        let mut shard = Shard::default();
        let mut first: HashMap<u8, (Command, Verdict)> = HashMap::new();
        for (id, command, facts) in steps {
            let before = (shard.relation, shard.events.len());
            let decision = shard.apply(id, &command, &facts, &RULES, START);
            if let Decision::Decided(verdict, _) = decision {
                prop_assert!(first.insert(id, (command, verdict)).is_none(), "an id is decided once");
            } else {
                prop_assert_eq!((shard.relation, shard.events.len()), before);
            }
        }
        for (id, (command, verdict)) in first {
            let refused = Command { refusal: Some(PolicyRefusal::VideoGone), ..command };
            prop_assert_eq!(shard.apply(id, &refused, &again, &RULES, START), Decision::Known(verdict));
        }
    }

    #[test]
    fn inv_04_inv_05_case_02_case_03_the_same_state_again_is_unchanged_and_makes_no_event(
        liked in any::<bool>(), version in prop::option::of(1u64..1000), epoch in 0u32..3,
    ) {
        let state = if liked { LikeState::Liked } else { LikeState::Unliked };
        let held = version.map(|version| relation(state, version));
        let state = if held.is_some() { state } else { LikeState::Unliked };
        let facts = ShardFacts { epoch, ..FACTS };
        let decision = decide(held.as_ref(), None, &command(state), &facts, &RULES, START);
        let expected = effective_version(version.unwrap_or(0), epoch);
        let verdict = Verdict { outcome: Outcome::Unchanged, state, version: expected };
        prop_assert_eq!(decision, Decision::Decided(verdict, None));
    }
}

#[test]
fn case_36_an_id_for_another_video_or_state_is_refused() {
    let verdict = Verdict { outcome: Outcome::Applied, state: LikeState::Liked, version: 1 };
    let record = OperationRecord { video_id: video("v"), desired_state: LikeState::Liked, verdict };
    let other_video = Command { video_id: video("w"), ..command(LikeState::Liked) };
    for reused in [other_video, command(LikeState::Unliked)] {
        let decision = decide(None, Some(&record), &reused, &FACTS, &RULES, START);
        assert_eq!(decision, Decision::Refused(Refusal::OperationIdReused));
    }
}

#[test]
fn case_37_a_base_version_must_be_the_effective_one_unless_the_last_commit_wins() {
    let held = relation(LikeState::Liked, 7);
    let wins = Rules { base: BasePolicy::LastCommitWins, ..RULES };
    let decide_at = |base, epoch, rules: &Rules| {
        let command = Command { base_version: Some(base), ..command(LikeState::Unliked) };
        outcome(decide(Some(&held), None, &command, &ShardFacts { epoch, ..FACTS }, rules, START))
    };
    assert_eq!(decide_at(7, 0, &RULES), Some(Outcome::Applied));
    assert_eq!(decide_at(6, 0, &RULES), Some(Outcome::StaleBase));
    assert_eq!(decide_at(8, 0, &RULES), Some(Outcome::StaleBase));
    assert_eq!(decide_at(7, 1, &RULES), Some(Outcome::StaleBase), "a new epoch lifts the version");
    assert_eq!(decide_at(1 << VERSION_EPOCH_SHIFT, 1, &RULES), Some(Outcome::Applied));
    assert_eq!(decide_at(6, 0, &wins), Some(Outcome::Applied));
}

#[test]
fn case_37_a_stale_base_is_told_before_the_same_state() {
    let held = relation(LikeState::Liked, 7);
    let command = Command { base_version: Some(3), ..command(LikeState::Liked) };
    assert_eq!(outcome(decide(Some(&held), None, &command, &FACTS, &RULES, START)), Some(Outcome::StaleBase));
}

#[test]
fn case_39_too_many_changes_are_refused_with_the_true_state_until_the_window_ends() {
    let mut shard = Shard::default();
    let states = [LikeState::Liked, LikeState::Unliked];
    for id in 0..5 {
        let decision = shard.apply(id, &command(states[usize::from(id % 2)]), &FACTS, &RULES, START);
        assert_eq!(outcome(decision), Some(Outcome::Applied), "{id}");
    }
    let refused = shard.apply(5, &command(LikeState::Unliked), &FACTS, &RULES, START + Duration::seconds(59));
    let verdict = Verdict { outcome: Outcome::RateLimited, state: LikeState::Liked, version: 5 };
    assert_eq!(refused, Decision::Decided(verdict, None));
    let allowed = shard.apply(6, &command(LikeState::Unliked), &FACTS, &RULES, START + Duration::minutes(1));
    assert_eq!(outcome(allowed), Some(Outcome::Applied));
    let system = Command { cause: Cause::AccountDeleted, ..command(LikeState::Liked) };
    let held = Relation { transitions: 99, ..relation(LikeState::Unliked, 9) };
    assert_eq!(outcome(decide(Some(&held), None, &system, &FACTS, &RULES, START)), Some(Outcome::Applied));
}

#[test]
fn case_47_the_policy_speaks_after_the_operation_and_before_the_relation() {
    let verdict = Verdict { outcome: Outcome::Applied, state: LikeState::Liked, version: 1 };
    let record = OperationRecord { video_id: video("v"), desired_state: LikeState::Liked, verdict };
    let gone = Command { refusal: Some(PolicyRefusal::VideoGone), ..command(LikeState::Liked) };
    let held = relation(LikeState::Liked, 1);
    assert_eq!(decide(Some(&held), Some(&record), &gone, &FACTS, &RULES, START), Decision::Known(verdict));
    let refused = Decision::Refused(Refusal::Policy(PolicyRefusal::VideoGone));
    assert_eq!(decide(Some(&held), None, &gone, &FACTS, &RULES, START), refused);
}

#[test]
fn the_questions_come_in_their_order() {
    // Everything speaks against this command; each answer is the first that still stands.
    let old = START - Duration::days(30);
    let mut command = Command {
        dated: Some(old),
        base_version: Some(99),
        refusal: Some(PolicyRefusal::VideoNotFound),
        ..command(LikeState::Liked)
    };
    let mut facts = ShardFacts { open: false, account_active: false, frozen: true, ..FACTS };
    let held = relation(LikeState::Liked, 3);
    let decide_now = |command: &Command, facts: &ShardFacts| decide(Some(&held), None, command, facts, &RULES, START);
    assert_eq!(decide_now(&command, &facts), Decision::Refused(Refusal::ShardClosed));
    facts.open = true;
    assert_eq!(decide_now(&command, &facts), Decision::Refused(Refusal::OperationExpired));
    command.dated = Some(START);
    assert_eq!(outcome(decide_now(&command, &facts)), Some(Outcome::AccountNotActive));
    facts.account_active = true;
    assert_eq!(outcome(decide_now(&command, &facts)), Some(Outcome::Frozen));
    facts.frozen = false;
    assert_eq!(decide_now(&command, &facts), Decision::Refused(Refusal::Policy(PolicyRefusal::VideoNotFound)));
    command.refusal = None;
    assert_eq!(outcome(decide_now(&command, &facts)), Some(Outcome::StaleBase));
    command.base_version = None;
    assert_eq!(outcome(decide_now(&command, &facts)), Some(Outcome::Unchanged));
}

#[test]
fn the_system_meets_only_the_barrier_and_the_same_state() {
    let facts = ShardFacts { account_active: false, frozen: true, ..FACTS };
    let held = relation(LikeState::Liked, 3);
    let system = |cause, desired_state| Command {
        dated: Some(START - Duration::days(30)),
        base_version: Some(99),
        refusal: Some(PolicyRefusal::VideoGone),
        cause,
        ..command(desired_state)
    };
    for cause in [Cause::AccountDeleted, Cause::VideoDeleted, Cause::Operator, Cause::Restated] {
        let decision = decide(Some(&held), None, &system(cause, LikeState::Unliked), &facts, &RULES, START);
        assert_eq!(outcome(decision), Some(Outcome::Applied), "{cause:?}");
        let closed = ShardFacts { open: false, ..facts };
        let decision = decide(Some(&held), None, &system(cause, LikeState::Unliked), &closed, &RULES, START);
        assert_eq!(decision, Decision::Refused(Refusal::ShardClosed));
    }
    let same = |cause| outcome(decide(Some(&held), None, &system(cause, LikeState::Liked), &facts, &RULES, START));
    assert_eq!(same(Cause::VideoDeleted), Some(Outcome::Unchanged));
    assert_eq!(same(Cause::Restated), Some(Outcome::Applied), "stated again with a new version");
}

#[test]
fn codes_read_back() {
    for code in 1..=6 {
        assert_eq!(Outcome::from_code(code).map(Outcome::code), Some(code));
    }
    for refusal in [Refusal::OperationIdReused, Refusal::ShardClosed, Refusal::OperationExpired] {
        assert_eq!(Outcome::from_code(refusal.code()), None);
    }
}
