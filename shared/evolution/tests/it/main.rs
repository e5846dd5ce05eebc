//! The runner on a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use likewise_devstack::{TestDatabase, TestStack};
use likewise_evolution::{Error, Migration, migrate};
use tokio_postgres::{Client, NoTls};

const ONE: Migration = Migration { name: "V0001__one", sql: "create table one (id int primary key)" };
const TWO: Migration = Migration { name: "V0002__two", sql: "alter table one add column two text" };
const BROKEN: Migration =
    Migration { name: "V0003__broken", sql: "create table three (id int); alter table nowhere add column x int" };

async fn connect(database: &TestDatabase) -> Client {
    let (client, connection) = tokio_postgres::connect(database.dsn(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn inv_25_migrations_apply_once_and_in_order() {
    let database = TestStack::get().database().await;
    let client = connect(&database).await;
    assert_eq!(migrate(&client, "area", &[ONE]).await.unwrap(), ["V0001__one"]);
    assert_eq!(migrate(&client, "area", &[ONE, TWO]).await.unwrap(), ["V0002__two"]);
    assert_eq!(migrate(&client, "area", &[ONE, TWO]).await.unwrap(), Vec::<String>::new());
    client.execute("insert into area.one (id, two) values (1, 'x')", &[]).await.unwrap();
}

#[tokio::test]
async fn processes_that_start_at_once_apply_once() {
    let database = TestStack::get().database().await;
    let mut runs = Vec::new();
    for _ in 0..6 {
        let client = connect(&database).await;
        runs.push(tokio::spawn(async move { migrate(&client, "area", &[ONE, TWO]).await }));
    }
    let mut applied = 0;
    for run in runs {
        applied += run.await.unwrap().unwrap().len();
    }
    assert_eq!(applied, 2);
}

#[tokio::test]
async fn a_changed_an_unknown_and_a_broken_migration_are_refused_whole() {
    let database = TestStack::get().database().await;
    let client = connect(&database).await;
    migrate(&client, "area", &[ONE, TWO]).await.unwrap();
    let changed = Migration { name: TWO.name, sql: "select 1" };
    assert!(matches!(migrate(&client, "area", &[ONE, changed]).await, Err(Error::Changed { .. })));
    assert!(matches!(migrate(&client, "area", &[ONE]).await, Err(Error::Unknown { .. })));
    assert!(matches!(migrate(&client, "Area;", &[ONE]).await, Err(Error::SchemaName(_))));
    assert!(matches!(migrate(&client, "area", &[ONE, TWO, BROKEN]).await, Err(Error::Statement { .. })));
    let left = client.query_one("select to_regclass('area.three') is null", &[]).await.unwrap();
    assert!(left.get::<_, bool>(0), "nothing of a broken migration stays");
}
