//! Lines to the stores that are cut, go silent and come back.

use std::time::Duration;

use likewise_devstack::{Cut, Weather};
use likewise_proto::command::v1::CommandOutcome;
use likewise_proto::types::v1::LikeState;
use rand::RngExt as _;
use tonic::Code;

use crate::agree;
use crate::crash::{Load, people, verdicts_stand};
use crate::world::{World, eventually, operation, outcome};

/// Connections are cut around commits of every service, again and again, under load.
async fn cut_around_commits(cut: Cut) {
    let (world, line) = World::start_behind_a_line().await;
    let users = people(&world).await;
    let load = Load::start(&users);
    for _ in 0..25 {
        line.cut_at(cut);
        eventually("a commit is met", async || if line.was_cut() { Ok(()) } else { Err("not yet".to_owned()) }).await;
    }
    let told = load.finish().await;
    world.settled().await;
    agree::check(&world).await;
    verdicts_stand(&world, &told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_04_inv_02_the_answer_to_a_commit_is_lost() {
    cut_around_commits(Cut::AfterCommit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_17_scn_a13_the_commit_itself_is_lost() {
    cut_around_commits(Cut::BeforeCommit).await;
}

/// PostgreSQL cannot be heard for a while, under load. Nobody is told a lie, and everything converges.
async fn silent_postgres(time: Duration) {
    let (world, lines) = World::start_behind_lines().await;
    let users = people(&world).await;
    let load = Load::start(&users);
    tokio::time::sleep(Duration::from_millis(500)).await;
    lines.postgres.weather(Weather::Silent);
    let begin = std::time::Instant::now();
    let lin = &users[0];
    while begin.elapsed() < time {
        // What is asked meanwhile is refused in words that promise nothing, and in time.
        let id = operation();
        let asked = tokio::time::timeout(Duration::from_secs(12), lin.set("V0", LikeState::Liked, &id, None)).await;
        if let Err(status) = asked.expect("an answer within its deadline") {
            let honest = [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded, Code::Cancelled];
            assert!(honest.contains(&status.code()), "{status:?}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    lines.postgres.weather(Weather::Clear);
    eventually("commands are applied again", async || {
        let state = if rand::rng().random_bool(0.5) { LikeState::Liked } else { LikeState::Unliked };
        match lin.set("V0", state, &operation(), None).await {
            Ok(answer) if outcome(&answer).0 == CommandOutcome::Applied => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let told = load.finish().await;
    world.settled().await;
    agree::check(&world).await;
    verdicts_stand(&world, &told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drill_20_postgres_cannot_be_heard_for_a_second() {
    silent_postgres(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drill_20_postgres_cannot_be_heard_for_a_minute() {
    silent_postgres(Duration::from_secs(60)).await;
}

/// Neither broker nor cache stands between a command and its verdict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drill_20_drill_02_broker_and_cache_cannot_be_heard_for_a_minute_and_commands_go_on() {
    let (world, lines) = World::start_behind_lines().await;
    let users = people(&world).await;
    let load = Load::start(&users);
    for (line, time) in [(&lines.nats, 1), (&lines.redis, 1), (&lines.nats, 60)] {
        line.weather(Weather::Silent);
        lines.redis.weather(Weather::Silent);
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_secs(time) {
            let id = operation();
            let answer = users[0].set("V1", LikeState::Liked, &id, None).await;
            answer.expect("a verdict while the broker is away");
            let page = users[0].likes(&["V1", "V2"]).await;
            assert_eq!(page.len(), 2, "and pages of committed hearts");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        line.weather(Weather::Clear);
        lines.redis.weather(Weather::Clear);
    }
    let told = load.finish().await;
    world.settled().await;
    agree::check(&world).await;
    verdicts_stand(&world, &told).await;
}

/// Callers who hang up, or have no time, change nothing about what was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_02_a_storm_of_cancelled_calls_harms_nobody() {
    let world = World::start().await;
    let users = people(&world).await;
    let mut storm = Vec::new();
    for number in 0..600_usize {
        let caller = users[number % users.len()].clone();
        storm.push(tokio::spawn(async move {
            let id = operation();
            let video = format!("V{}", number % 5);
            let patience = Duration::from_micros(rand::rng().random_range(100..20_000));
            // Dropping the call resets its stream, as a client does that goes away.
            let first = tokio::time::timeout(patience, caller.set(&video, LikeState::Liked, &id, None)).await;
            drop(first);
            let answer = loop {
                match caller.set(&video, LikeState::Liked, &id, None).await {
                    Ok(answer) => break answer,
                    // Too many resets on one connection end it: then a call never left, or its answer was lost.
                    Err(status) => assert!(
                        [
                            Code::Aborted,
                            Code::Unavailable,
                            Code::ResourceExhausted,
                            Code::Cancelled,
                            Code::Unknown,
                            Code::Internal
                        ]
                        .contains(&status.code()),
                        "{status:?}"
                    ),
                }
            };
            ((caller.name.clone(), id), answer.operation.expect("a verdict"))
        }));
    }
    let mut told = std::collections::BTreeMap::new();
    for call in storm {
        let (key, verdict) = call.await.expect("every call ends");
        told.insert(key, verdict);
    }
    let applied = told.values().filter(|verdict| verdict.outcome() == CommandOutcome::Applied).count();
    assert_eq!(applied, users.len() * 5, "each relation was liked once, whoever hung up");
    world.settled().await;
    agree::check(&world).await;
    verdicts_stand(&world, &told).await;
}
