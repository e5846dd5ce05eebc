//! Where the lock stands in the batch, and what another place would do.

use likewise_command::intent::{Intent, Told};
use likewise_domain::decide::{Outcome, Refusal};
use likewise_domain::relation::LikeState;
use tokio_postgres::Client;

use crate::rig::{Rig, eventually, fresh_id, hold_lock, intent, waiting_for_lock};

const MIGRATION: &str = include_str!("../../migrations/V0005__apply_commands.sql");
/// The statement that takes the lock.
pub const LOCK_LINE: &str = "perform pg_advisory_xact_lock(p_lock_class, p_shard);";
const ITEMS: &str = "from unnest(p_users,";

/// The statement that makes the batch function.
fn function() -> &'static str {
    let begin = MIGRATION.find("create function apply_commands(").expect("the function");
    let end = MIGRATION[begin..].find("end $$;").expect("its end");
    &MIGRATION[begin..begin + end + "end $$;".len()]
}

/// Replaces the batch function by one with `text` changed to `other`.
pub async fn replace_function(sql: &Client, text: &str, other: &str) {
    assert_eq!(function().matches(text).count(), 1, "{text}");
    let function = function().replace(text, other).replace("create function", "create or replace function");
    sql.batch_execute(&function).await.expect("replaced");
}

/// Runs `batch` while the lock is held by a session that does `change` before it lets go.
async fn decided_behind(rig: &Rig, batch: &[Intent], change: &str) -> Vec<Told> {
    let holder = rig.servers.dedicated("main", "relation_00").await.expect("connected");
    let writer = rig.connection().await;
    hold_lock(&holder, 0).await;
    let intents: Vec<&Intent> = batch.iter().collect();
    let rules = rig.settings.rules();
    let release = async {
        eventually("the batch waits for the lock", async || match waiting_for_lock(&rig.sql).await {
            1 => Ok(()),
            waiting => Err(waiting),
        })
        .await;
        holder.batch_execute(change).await.expect("changed");
        holder.batch_execute("commit").await.expect("committed");
    };
    let (answers, ()) = tokio::join!(writer.apply(&intents, &rules), release);
    answers.expect("answers").iter().map(|answer| answer.told).collect()
}

fn like(user: &str) -> Intent {
    intent(user, &fresh_id(), "v", LikeState::Liked)
}

fn outcome(told: Told) -> Option<Outcome> {
    match told {
        Told::Verdict { verdict, .. } => Some(verdict.outcome),
        Told::Refused(_) => None,
    }
}

const DELETE_ACCOUNT: &str =
    "insert into account_state (user_id, state, version, changed_at) values ('u1', 5, 1, now())";
const RAISE_BARRIER: &str =
    "update shard_meta set barrier_token = gen_random_uuid(), barrier_until = now() + interval '1 hour'";

#[tokio::test]
async fn case_46_a_batch_that_waited_decides_on_what_it_sees_after_the_lock() {
    let rig = Rig::new(&[]).await;
    let told = decided_behind(&rig, &[like("u1"), like("u2")], DELETE_ACCOUNT).await;
    assert_eq!(
        told.into_iter().map(outcome).collect::<Vec<_>>(),
        [Some(Outcome::AccountNotActive), Some(Outcome::Applied)]
    );
    assert_eq!(rig.count("like_relation where user_id = 'u1'").await, 0);

    let told = decided_behind(&rig, &[like("u3")], RAISE_BARRIER).await;
    assert_eq!(told, [Told::Refused(Refusal::ShardClosed)]);
    assert_eq!(rig.count("like_command where user_id = 'u3'").await, 0);
}

/// The wrong order, to show that the right one matters: a lock taken inside the deciding statement is granted after that
/// statement's snapshot was taken.
#[tokio::test]
async fn case_46_a_lock_inside_the_deciding_statement_would_decide_on_what_was_before() {
    let rig = Rig::new(&[]).await;
    assert_eq!(function().matches(LOCK_LINE).count(), 1);
    let without = function().replace(LOCK_LINE, "");
    assert_eq!(without.matches(ITEMS).count(), 1);
    let inside = without
        .replace(
            ITEMS,
            "from (select pg_advisory_xact_lock(p_lock_class, p_shard)) as locked cross join unnest(p_users,",
        )
        .replace("create function", "create or replace function");
    rig.sql.batch_execute(&inside).await.expect("replaced");
    let told = decided_behind(&rig, &[like("u1")], DELETE_ACCOUNT).await;
    assert_eq!(outcome(told[0]), Some(Outcome::Applied), "a deleted account likes");
}

#[tokio::test]
async fn case_46_another_isolation_is_refused() {
    let rig = Rig::new(&[]).await;
    rig.sql.batch_execute("begin isolation level repeatable read").await.expect("begun");
    let call = "select * from apply_commands(1, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', \
                false, 1, 1, 1, 1)";
    let error = rig.sql.batch_execute(call).await.expect_err("refused");
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("LK002"));
}
