//! The stack on real servers: it starts, survives kills, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use likewise_devstack::{Stack, StackSpec, TestStack};

/// Reads one value of a fresh database.
async fn number(client: &tokio_postgres::Client, statement: &str) -> i64 {
    client.query_one(statement, &[]).await.unwrap().get(0)
}

async fn redis(address: std::net::SocketAddr, line: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

#[tokio::test]
async fn databases_are_fresh_each_time_and_dropped_at_the_end() {
    let stack = TestStack::get();
    let (first, second) = (stack.database().await, stack.database().await);
    let client = first.connect().await.unwrap();
    client.batch_execute("CREATE TABLE only_here (id int)").await.unwrap();
    let count = "SELECT count(*) FROM pg_class WHERE relname = 'only_here'";
    assert_eq!(number(&client, count).await, 1);
    assert_eq!(number(&second.connect().await.unwrap(), count).await, 0);

    let durable = "SELECT count(*) FROM pg_settings WHERE (name, setting) IN \
                   (('fsync', 'on'), ('synchronous_commit', 'on'), ('full_page_writes', 'on'))";
    assert_eq!(number(&client, durable).await, 3);
    let gone = first.name().to_owned();
    drop(first);
    let left = format!("SELECT count(*) FROM pg_database WHERE datname = '{gone}'");
    assert_eq!(number(&second.connect().await.unwrap(), &left).await, 0);
}

#[tokio::test]
async fn a_configuration_names_its_own_database_and_prefixes() {
    let stack = TestStack::get();
    let (one, two) = (stack.config().await, stack.config().await);
    let table: toml::Table = std::fs::read_to_string(one.path()).unwrap().parse().unwrap();
    assert_eq!(table["postgres"]["servers"]["main"].as_str(), Some(one.database.dsn()));
    assert_eq!(table["lanes"]["stream_prefix"].as_str(), Some(one.stream_prefix.as_str()));
    assert!(Path::new(table["auth"]["keys_file"].as_str().unwrap()).is_file());
    assert_ne!(one.stream_prefix, two.stream_prefix);
    assert_ne!(one.redis_prefix, two.redis_prefix);
}

#[tokio::test]
async fn killed_servers_come_back_on_their_ports_with_what_was_committed() {
    let stack = Stack::start(StackSpec::default()).unwrap();
    let database = TestStack::of(&stack).database().await;
    let client = database.connect().await.unwrap();
    client.batch_execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (7)").await.unwrap();
    redis(stack.redis()[0].address(), "SET a 1").await;

    for server in [&stack.postgres()[0], stack.nats(), &stack.redis()[0]] {
        let before = server.address();
        server.kill();
        assert!(!server.is_running(), "{} is down", server.name());
        server.start().unwrap();
        assert!(server.is_running(), "{} is up", server.name());
        assert_eq!(server.address(), before);
    }
    assert_eq!(number(&database.connect().await.unwrap(), "SELECT sum(id) FROM kept").await, 7);
    assert!(redis(stack.redis()[0].address(), "GET a").await.starts_with("$-1"), "Redis keeps nothing");
    stack.postgres()[0].restart().unwrap();
    assert_eq!(number(&database.connect().await.unwrap(), "SELECT sum(id) FROM kept").await, 7);
}

#[tokio::test]
async fn two_postgres_servers_and_a_redis_cluster_on_request() {
    let stack = Stack::start(StackSpec { postgres_servers: 2, redis_cluster: true, ..StackSpec::default() }).unwrap();
    let config = TestStack::of(&stack).config().await;
    assert_eq!(config.others.len(), 1);
    assert_ne!(stack.postgres()[0].port(), stack.postgres()[1].port());
    config.others[0].connect().await.unwrap();

    assert_eq!(stack.redis().len(), 3);
    let mut moved = 0;
    for member in stack.redis() {
        moved += usize::from(redis(member.address(), "SET {a}b 1").await.starts_with("-MOVED"));
    }
    assert_eq!(moved, 2, "one member owns the slot, the others point to it");
    assert!(stack.address().redis.starts_with("redis-cluster://"));
    let folder = stack.address().folder.clone();
    stack.stop();
    assert!(!folder.exists());
}

/// Not a test by itself: the process that the next test kills. It holds a stack until its end.
#[tokio::test]
async fn holder_of_a_stack() {
    let Some(file) = std::env::var_os("LIKEWISE_TEST_HOLDER") else { return };
    let stack = Stack::start(StackSpec::default()).unwrap();
    stack.describe(&PathBuf::from(file)).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_run_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stack.json");
    let mut holder = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder_of_a_stack"])
        .env("LIKEWISE_TEST_HOLDER", &file)
        .spawn()
        .unwrap();
    let address =
        until("the other process starts its stack", || likewise_devstack::StackAddress::read(&file).ok()).await;
    assert!(tokio_postgres::connect(&address.postgres[0], tokio_postgres::NoTls).await.is_ok());
    holder.kill().unwrap();
    holder.wait().unwrap();

    let next = Stack::start(StackSpec::default()).unwrap();
    assert!(!address.folder.exists(), "the folder of the killed run is gone");
    let nobody_answers = async || tokio_postgres::connect(&address.postgres[0], tokio_postgres::NoTls).await.is_err();
    assert!(nobody_answers().await);
    next.stop();
}

async fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = std::time::Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
