//! The batch statement held to the pure rule on random histories.

use std::collections::{BTreeMap, HashMap, HashSet};

use likewise_command::intent::{Answer, Current, Intent, Told};
use likewise_command::store::writer::{Connection, Failure};
use likewise_domain::decide::{
    BasePolicy, Command, Decision, OperationRecord, Outcome, PolicyRefusal, Refusal, Relation, Rules, ShardFacts,
    decide,
};
use likewise_domain::id::{OperationId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::operation;
use likewise_domain::relation::{Cause, Hidden, HiddenReasons, LikeState, effective_version};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use time::{Duration, OffsetDateTime};
use uuid::{NoContext, Timestamp, Uuid};

use crate::rig::{Rig, user};

/// What a risk act says of a user, a video, or both; empty names stand for all.
#[derive(Debug, Clone)]
struct Act {
    user: String,
    video: String,
    freezes: bool,
    until: Option<OffsetDateTime>,
}

/// What a shard holds, by the pure rule.
#[derive(Default)]
struct Model {
    relations: BTreeMap<(String, String), (Relation, Offset)>,
    operations: BTreeMap<(String, String), OperationRecord>,
    /// Codes of account states; an account nobody spoke of is active.
    accounts: HashMap<String, i16>,
    acts: Vec<Act>,
    closed: bool,
    epoch: u32,
    seq: u64,
}

impl Model {
    fn acts_on(&self, intent: &Intent) -> impl Iterator<Item = &Act> {
        let names = (intent.user_id.to_string(), intent.command.video_id.to_string());
        self.acts.iter().filter(move |act| {
            (act.user.is_empty() || act.user == names.0) && (act.video.is_empty() || act.video == names.1)
        })
    }

    fn hides(&self, intent: &Intent) -> HiddenReasons {
        let excluded = self.acts_on(intent).any(|act| !act.freezes);
        let closed = self.accounts.get(intent.user_id.as_str()).is_some_and(|state| [3, 4].contains(state));
        let risk = if excluded { HiddenReasons::RISK } else { HiddenReasons::NONE };
        risk.and(if closed { HiddenReasons::POLICY } else { HiddenReasons::NONE })
    }

    /// What the statement must answer to one intent decided at `now`.
    fn apply(&mut self, intent: &Intent, rules: &Rules, now: OffsetDateTime) -> Answer {
        let user = intent.user_id.to_string();
        let relation_key = (user.clone(), intent.command.video_id.to_string());
        let operation_key = (user.clone(), intent.operation_id.to_string());
        let held = self.relations.get(&relation_key).copied();
        let facts = ShardFacts {
            epoch: self.epoch,
            open: !self.closed,
            account_active: self.accounts.get(&user).is_none_or(|state| *state == 2),
            frozen: self.acts_on(intent).any(|act| act.freezes && act.until.is_none_or(|until| until > now)),
            hides: self.hides(intent),
        };
        let relation = held.map(|held| held.0);
        let known = self.operations.get(&operation_key);
        let decision = decide(relation.as_ref(), known, &intent.command, &facts, rules, now);
        let mut now_held = held;
        let told = match decision {
            Decision::Known(verdict) => Told::Verdict { verdict, known: true },
            Decision::Refused(refusal) => Told::Refused(refusal),
            Decision::Decided(verdict, change) => {
                if let Some(next) = change {
                    self.seq += 1;
                    now_held = Some((next, Offset { epoch: self.epoch, seq: self.seq }));
                    self.relations.insert(relation_key, now_held.expect("just set"));
                }
                let (video_id, desired_state) = (intent.command.video_id.clone(), intent.command.desired_state);
                self.operations.insert(operation_key, OperationRecord { video_id, desired_state, verdict });
                Told::Verdict { verdict, known: false }
            }
        };
        let version = effective_version(now_held.map_or(0, |held| held.0.version), self.epoch);
        Answer {
            told,
            current: Current {
                state: now_held.map_or(LikeState::Unliked, |held| held.0.state),
                version,
                changed_at: now_held.map(|held| held.0.state_changed_at),
            },
            changed_in: now_held.map_or(Offset { epoch: self.epoch, seq: 0 }, |held| held.1),
            retry_after: retry_after(&told, now_held.map(|held| held.0), rules, now),
            now,
        }
    }
}

fn retry_after(told: &Told, held: Option<Relation>, rules: &Rules, now: OffsetDateTime) -> Option<std::time::Duration> {
    let Told::Verdict { verdict, .. } = told else { return None };
    if verdict.outcome != Outcome::RateLimited {
        return None;
    }
    let end = held.map_or(now, |held| held.window_started_at + rules.transition_window);
    Some((end - now).try_into().unwrap_or_default())
}

/// Draws commands that often meet what is there already.
struct Dice {
    rng: StdRng,
    ids: Vec<(String, String)>,
}

impl Dice {
    fn intent(&mut self) -> Intent {
        let rng = &mut self.rng;
        let name = format!("u{}", rng.random_range(0..12));
        let video_id = VideoId::parse(&format!("v{}", rng.random_range(0..6))).expect("an id");
        let desired_state = if rng.random_bool(0.5) { LikeState::Liked } else { LikeState::Unliked };
        let cause = match rng.random_range(0..20) {
            0 => Cause::AccountDeleted,
            1 => Cause::Restated,
            _ => Cause::User,
        };
        // The system's own ids do not tell a time.
        let dated = |id: &str| Uuid::try_parse(id).is_ok();
        let owned = self.ids.iter().filter(|(user, id)| *user == name && (cause == Cause::User || !dated(id)));
        let known: Vec<&String> = owned.map(|(_, id)| id).collect();
        let operation_id = if !known.is_empty() && rng.random_bool(0.25) {
            known[rng.random_range(0..known.len())].clone()
        } else if cause == Cause::User {
            new_id(rng)
        } else {
            format!("op-{:x}", rng.random::<u128>() >> 4)
        };
        self.ids.push((name.clone(), operation_id.clone()));
        let operation_id = OperationId::parse(&operation_id).expect("an id");
        let refusal = rng.random_bool(0.1).then_some(PolicyRefusal::VideoGone);
        Intent {
            user_id: user(&name),
            command: Command {
                video_id,
                desired_state,
                dated: operation::dated(&operation_id),
                base_version: rng.random_bool(0.2).then(|| rng.random_range(0..5)),
                refusal: refusal.filter(|_| desired_state == LikeState::Liked),
                cause,
            },
            operation_id,
            client_sequence: rng.random_bool(0.5).then(|| rng.random()),
            device_hash: rng.random_bool(0.5).then(|| rng.random()),
        }
    }

    /// At most one command per relation and operation, as the queue sees to it.
    fn batch(&mut self, size: usize) -> Vec<Intent> {
        let (mut relations, mut operations) = (HashSet::new(), HashSet::new());
        let mut batch = Vec::new();
        for _ in 0..size {
            let intent = self.intent();
            let relation = (intent.user_id.clone(), intent.command.video_id.clone());
            if relations.insert(relation) && operations.insert((intent.user_id.clone(), intent.operation_id.clone())) {
                batch.push(intent);
            }
        }
        batch
    }
}

/// Undated, dated within the window, too old, or too far ahead.
fn new_id(rng: &mut StdRng) -> String {
    let number: u128 = rng.random();
    match rng.random_range(0..10) {
        0..4 => format!("op-{number:x}"),
        4..8 => dated(rng, Duration::ZERO),
        8 => {
            let days = rng.random_range(1..13);
            dated(rng, -Duration::days(days))
        }
        _ if number.is_multiple_of(2) => dated(rng, -Duration::days(14)),
        _ => dated(rng, Duration::hours(2)),
    }
}

fn dated(rng: &mut StdRng, ago: Duration) -> String {
    let at = OffsetDateTime::now_utc() + ago;
    let seconds = u64::try_from(at.unix_timestamp()).expect("after 1970");
    let mut bytes = *Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, 0)).as_bytes();
    for byte in &mut bytes[9..] {
        *byte = rng.random();
    }
    Uuid::from_bytes(bytes).to_string()
}

async fn apply(connection: &Connection, batch: &[Intent], rules: &Rules) -> Vec<Answer> {
    let intents: Vec<&Intent> = batch.iter().collect();
    match connection.apply(&intents, rules).await {
        Ok(answers) => answers,
        Err(failure) => panic!("{failure}"),
    }
}

/// Changes what the shard knows beside its relations, in the database and in the model.
async fn change_facts(rig: &Rig, model: &mut Model, rng: &mut StdRng) {
    model.closed = rng.random_bool(0.15);
    if rng.random_bool(0.1) {
        model.epoch += 1;
    }
    let who = format!("u{}", rng.random_range(0..12));
    let state: i16 = [2, 2, 2, 3, 4, 5][rng.random_range(0..6)];
    model.accounts.insert(who.clone(), state);
    change_acts(rig, model, rng).await;
    let epoch = i32::try_from(model.epoch).expect("small");
    let barrier = model.closed && rng.random_bool(0.5);
    let status = if model.closed && !barrier { "MOVED" } else { "SERVING" };
    let set = "update shard_meta set epoch = $1, status = $2, \
               barrier_token = case when $3 then gen_random_uuid() end, \
               barrier_until = case when $3 then clock_timestamp() + interval '1 hour' end";
    rig.sql.execute(set, &[&epoch, &status, &barrier]).await.expect("set");
    let account = "insert into account_state as a (user_id, state, version, changed_at) values ($1, $2, 1, now()) \
                   on conflict (user_id) do update set state = excluded.state, version = a.version + 1";
    rig.sql.execute(account, &[&who, &state]).await.expect("set");
}

/// Some acts are restored, others begin.
async fn change_acts(rig: &Rig, model: &mut Model, rng: &mut StdRng) {
    model.acts.retain(|_| rng.random_bool(0.5));
    for _ in 0..rng.random_range(0..3) {
        let freezes = rng.random_bool(0.5);
        let user = if freezes && rng.random_bool(0.4) { None } else { Some(format!("u{}", rng.random_range(0..12))) };
        let video = if user.is_some() && rng.random_bool(0.5) { None } else { Some(rng.random_range(0..6)) };
        let until = (freezes && rng.random_bool(0.7))
            .then(|| OffsetDateTime::now_utc() + Duration::milliseconds(rng.random_range(-50..200)))
            .map(|until| until.replace_nanosecond(until.microsecond() * 1_000).expect("in range"));
        let video = video.map(|video| format!("v{video}")).unwrap_or_default();
        model.acts.push(Act { user: user.unwrap_or_default(), video, freezes, until });
    }
    rig.sql.batch_execute("delete from risk_state").await.expect("deleted");
    for (number, act) in model.acts.iter().enumerate() {
        let insert =
            "insert into risk_state (act_id, user_id, video_id, kind, frozen_until) values ($1, $2, $3, $4, $5)";
        let kind: i16 = if act.freezes { 2 } else { 1 };
        let id = format!("act-{number}");
        rig.sql.execute(insert, &[&id, &act.user, &act.video, &kind, &act.until]).await.expect("inserted");
    }
}

/// The tables say what the model says.
async fn check_tables(rig: &Rig, model: &Model) {
    let rows = rig.sql.query("select * from like_relation order by user_id, video_id", &[]).await.expect("read");
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            let key: (String, String) = (row.get("user_id"), row.get("video_id"));
            let relation = Relation {
                state: LikeState::from_code(row.get("state")).expect("a state"),
                version: row.get::<_, i64>("relation_version").unsigned_abs(),
                state_changed_at: row.get("state_changed_at"),
                window_started_at: row.get("transition_window_start"),
                transitions: row.get::<_, i32>("transition_count").unsigned_abs(),
                hidden: hidden(row),
            };
            let epoch = row.get::<_, i32>("state_epoch").unsigned_abs();
            (key, (relation, Offset { epoch, seq: row.get::<_, i64>("state_seq").unsigned_abs() }))
        })
        .collect();
    assert_eq!(found, model.relations.clone().into_iter().collect::<Vec<_>>());

    let rows = rig.sql.query("select * from like_command order by user_id, operation_id", &[]).await.expect("read");
    let found: Vec<(String, String)> = rows.iter().map(|row| (row.get("user_id"), row.get("operation_id"))).collect();
    assert_eq!(found, model.operations.keys().cloned().collect::<Vec<_>>());

    // Every change has one number, the numbers are dense, and the last one of each relation is what the relation says.
    let rows = rig.sql.query("select * from outbox order by seq", &[]).await.expect("read");
    let numbers: Vec<u64> = rows.iter().map(|row| row.get::<_, i64>("seq").unsigned_abs()).collect();
    assert_eq!(numbers, (1..=model.seq).collect::<Vec<_>>());
    let mut last: HashMap<(String, String), (i64, i16, OffsetDateTime, Hidden)> = HashMap::new();
    for row in &rows {
        let change = (row.get("relation_version"), row.get("state"), row.get("state_changed_at"), hidden(row));
        let key = (row.get("user_id"), row.get("video_id"));
        let before = last.insert(key, change);
        let previous: i16 = row.get("previous_state");
        assert_eq!(previous, before.map_or(2, |before| before.1));
        assert!(before.is_none_or(|before| before.0 < change.0 && before.2 < change.2), "{before:?} {change:?}");
        let (before, after) = (before.map_or_else(Hidden::default, |before| before.3), change.3);
        assert!(before.reasons == after.reasons || before.version < after.version, "{before:?} {after:?}");
        assert_eq!(row.get::<_, i16>("previous_hidden_reasons"), before.reasons.code());
    }
    assert_eq!(last.len(), model.relations.len());
    for (key, (version, state, changed_at, hidden)) in last {
        let held = model.relations[&key].0;
        assert_eq!((held.version, held.state.code()), (version.unsigned_abs(), state));
        assert_eq!((held.state_changed_at, held.hidden), (changed_at, hidden));
    }
}

fn hidden(row: &tokio_postgres::Row) -> Hidden {
    let reasons = HiddenReasons::from_code(row.get("hidden_reasons")).expect("reasons");
    Hidden { version: row.get::<_, i64>("hidden_version").unsigned_abs(), reasons }
}

fn rules(rng: &mut StdRng) -> Rules {
    Rules {
        base: if rng.random_bool(0.5) { BasePolicy::Reject } else { BasePolicy::LastCommitWins },
        transitions_max: rng.random_range(2..8),
        transition_window: Duration::milliseconds(rng.random_range(1..2000)),
    }
}

/// Two writers at once on one shard. The clock read under the lock tells in which order the batches were decided; the pure
/// rule, run in that order, must give every answer and every row.
#[tokio::test]
async fn inv_01_inv_02_inv_17_inv_18_the_statement_decides_like_the_pure_rule_with_two_writers_at_once() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let rig = Rig::new(&[]).await;
    let (one, other) = (rig.connection().await, rig.connection().await);
    let mut dice = Dice { rng: StdRng::seed_from_u64(seed ^ 1), ids: Vec::new() };
    let mut model = Model::default();
    let mut seen: BTreeMap<i16, u32> = BTreeMap::new();
    let mut commands = 0;
    // A history that never meets a rule proves nothing about it.
    let every = [0, 1, 2, 3, 4, 5, 6, 10, 11, Refusal::OperationExpired.code(), 13];
    while commands < 6_000 || (commands < 60_000 && !every.iter().all(|code| seen.contains_key(code))) {
        let rules = rules(&mut rng);
        let mine: Vec<Vec<Intent>> = (0..8).map(|_| dice.batch(24)).collect();
        let theirs: Vec<Vec<Intent>> = (0..8).map(|_| dice.batch(24)).collect();
        let run = async |connection: &Connection, batches: Vec<Vec<Intent>>| {
            let mut done = Vec::new();
            for batch in batches {
                let answers = apply(connection, &batch, &rules).await;
                done.push((batch, answers));
            }
            done
        };
        let (mut done, more) = tokio::join!(run(&one, mine), run(&other, theirs));
        done.extend(more);
        done.sort_by_key(|(_, answers)| answers.first().expect("not empty").now);
        for (batch, answers) in done {
            for (intent, answer) in batch.iter().zip(answers) {
                commands += 1;
                let expected = model.apply(intent, &rules, answer.now);
                assert_eq!(answer, expected, "seed {seed}: {intent:?}");
                let code = match answer.told {
                    Told::Verdict { known: true, .. } => 0,
                    Told::Verdict { verdict, .. } => verdict.outcome.code(),
                    Told::Refused(refusal) => refusal.code(),
                };
                *seen.entry(code).or_default() += 1;
            }
        }
        change_facts(&rig, &mut model, &mut rng).await;
    }
    check_tables(&rig, &model).await;
    for code in every {
        assert!(seen.contains_key(&code), "no command met {code}: {seen:?}");
    }
}

/// The lock gives order and speed, never truth: without it conflicts fail and nothing doubles.
#[tokio::test]
async fn inv_01_inv_02_inv_18_without_the_lock_conflicts_fail_and_nothing_doubles() {
    let rig = Rig::new(&[]).await;
    crate::lock::replace_function(&rig.sql, crate::lock::LOCK_LINE, "perform pg_sleep(0.002);").await;
    let rules = Rules { base: BasePolicy::Reject, transitions_max: 1000, transition_window: Duration::minutes(1) };
    let connections = [rig.connection().await, rig.connection().await];
    let run = async |connection: &Connection, seed: u64| {
        let mut dice = Dice { rng: StdRng::seed_from_u64(seed), ids: Vec::new() };
        let (mut conflicts, mut answered) = (0, Vec::new());
        for _ in 0..60 {
            let batch = dice.batch(16);
            let intents: Vec<&Intent> = batch.iter().collect();
            let answers = loop {
                match connection.apply(&intents, &rules).await {
                    Ok(answers) => break answers,
                    Err(Failure::Conflict(_)) => conflicts += 1,
                    Err(failure) => panic!("{failure}"),
                }
            };
            answered.extend(batch.into_iter().zip(answers));
        }
        (conflicts, answered)
    };
    let (one, other) = tokio::join!(run(&connections[0], 1), run(&connections[1], 2));
    assert!(one.0 + other.0 > 0, "without conflicts this proves nothing");

    let answered: Vec<_> = one.1.into_iter().chain(other.1).collect();
    let applied = answered.iter().filter(|(_, answer)| {
        matches!(answer.told, Told::Verdict { verdict, known: false } if verdict.outcome == Outcome::Applied)
    });
    let applied = i64::try_from(applied.count()).expect("small");
    assert_eq!(rig.count("outbox").await, applied, "one event per change that was told");
    let doubled = "(select 1 from outbox group by user_id, video_id, relation_version having count(*) > 1) d";
    assert_eq!(rig.count(doubled).await, 0);
    let gaps = "(select 1 from outbox group by user_id, video_id having count(*) <> max(relation_version)) d";
    assert_eq!(rig.count(gaps).await, 0, "versions 1, 2, 3 of each relation");
    assert_eq!(
        rig.count("(select max(seq) as last from outbox) o where last <> (select count(*) from outbox)").await,
        0
    );
    let disagree = "like_relation r join lateral (select * from outbox o where o.user_id = r.user_id \
                    and o.video_id = r.video_id order by relation_version desc limit 1) o on true \
                    where (r.relation_version, r.state, r.state_seq) is distinct from (o.relation_version, o.state, o.seq)";
    assert_eq!(rig.count(disagree).await, 0);
    let twice = "(select 1 from like_command group by user_id, operation_id having count(*) > 1) d";
    assert_eq!(rig.count(twice).await, 0);
}
