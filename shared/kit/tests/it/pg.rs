//! Connections to a real PostgreSQL, with their limits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use likewise_devstack::{TestDatabase, TestStack};
use likewise_kit::config::PostgresSettings;
use likewise_kit::pg::{self, Error, FailureKind, Servers, failure_kind};

async fn database() -> TestDatabase {
    let database = TestStack::get().database().await;
    let client = database.connect().await.expect("a connection");
    client
        .batch_execute("create schema a; create schema b; create table a.t (x int); create table b.t (x int)")
        .await
        .expect("created");
    database
}

fn servers(database: &TestDatabase, adjust: impl FnOnce(&mut PostgresSettings)) -> Servers {
    let mut settings = PostgresSettings {
        servers: BTreeMap::from([("main".to_owned(), database.dsn().into())]),
        connect_timeout_ms: 3000,
        pool_wait_ms: 2000,
        statement_timeout_ms: 10_000,
        lock_timeout_ms: 5000,
        idle_in_transaction_timeout_ms: 5000,
        client_check_interval_ms: 1000,
        tcp_user_timeout_ms: 5000,
    };
    adjust(&mut settings);
    Servers::new(&settings, "kit-test")
}

#[tokio::test]
async fn a_connection_sees_its_schema_and_carries_its_limits() {
    let database = database().await;
    let servers = servers(&database, |_| {});
    let pool = servers.pool("main", "a", 2).expect("a pool");
    let client = pool.get().await.expect("a connection");
    client.execute("insert into t values (1)", &[]).await.expect("inserted");
    let other = servers.dedicated("main", "b").await.expect("a connection");
    let count: i64 = other.query_one("select count(*) from t", &[]).await.expect("counted").get(0);
    assert_eq!(count, 0, "the other schema has a table of the same name");
    for (setting, value) in [
        ("search_path", "a"),
        ("statement_timeout", "10s"),
        ("lock_timeout", "5s"),
        ("idle_in_transaction_session_timeout", "5s"),
        ("client_connection_check_interval", "1s"),
        ("application_name", "kit-test"),
    ] {
        let found: String = client.query_one("select current_setting($1)", &[&setting]).await.expect("told").get(0);
        assert_eq!(found, value, "{setting}");
    }
    pg::check_server(&client, "main").await.expect("a suitable server");
}

#[tokio::test]
async fn waits_are_bounded_and_their_failures_sorted() {
    let database = database().await;
    let servers = servers(&database, |settings| {
        settings.statement_timeout_ms = 400;
        settings.lock_timeout_ms = 100;
        settings.pool_wait_ms = 100;
    });
    let pool = servers.pool("main", "a", 2).expect("a pool");
    let (mut first, second) = (pool.get().await.expect("one"), pool.get().await.expect("two"));
    let started = Instant::now();
    pool.get().await.expect_err("the pool is empty");
    assert!(started.elapsed() < Duration::from_secs(2));

    let slow = second.query("select pg_sleep(60)", &[]).await.expect_err("too slow");
    assert_eq!(failure_kind(&slow), FailureKind::Unavailable);
    let transaction = first.transaction().await.expect("begun");
    transaction.execute("lock table t in access exclusive mode", &[]).await.expect("locked");
    let locked = second.query("select * from t", &[]).await.expect_err("locked");
    assert_eq!(failure_kind(&locked), FailureKind::Retry);
    transaction.rollback().await.expect("undone");
    let data = second.query("select 1 / (select count(*) from t)", &[]).await.expect_err("a division by zero");
    assert_eq!(failure_kind(&data), FailureKind::Data);
    let bug = second.query("select nothing", &[]).await.expect_err("no such column");
    assert_eq!(failure_kind(&bug), FailureKind::Bug);
    let wrong = second.query("select $1::int", &[&"text"]).await.expect_err("the wrong type");
    assert_eq!(failure_kind(&wrong), FailureKind::Bug);
}

#[tokio::test]
async fn a_connection_that_the_server_ended_is_unavailable_and_replaced() {
    let database = database().await;
    let pool = servers(&database, |_| {}).pool("main", "a", 1).expect("a pool");
    let client = pool.get().await.expect("a connection");
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.expect("told").get(0);
    let killer = database.connect().await.expect("a connection");
    let waiting = client.query("select pg_sleep(60)", &[]);
    let killing = async {
        loop {
            let query =
                "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'";
            if killer.execute(query, &[&pid]).await.expect("asked") == 1 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (ended, ()) = tokio::join!(waiting, killing);
    assert_eq!(failure_kind(&ended.expect_err("ended")), FailureKind::Unavailable);
    drop(client);
    // The pool may not have heard of the end yet; then one more caller is told.
    let again = async || pool.get().await.expect("a connection").query("select 1", &[]).await;
    if let Err(error) = again().await {
        assert_eq!(failure_kind(&error), FailureKind::Unavailable);
        again().await.expect("a new one works");
    }
}

#[tokio::test]
async fn a_server_that_may_lose_commits_is_refused() {
    let database = database().await;
    let admin = database.connect().await.expect("a connection");
    let off = format!("alter database \"{}\" set synchronous_commit = off", database.name());
    admin.batch_execute(&off).await.expect("switched off");
    let client = database.connect().await.expect("a connection");
    let error = pg::check_server(&client, "main").await.expect_err("refused");
    assert!(matches!(&error, Error::Unsuitable { problem, .. } if problem.contains("synchronous_commit")), "{error:?}");
}
