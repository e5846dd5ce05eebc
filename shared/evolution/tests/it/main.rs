//! The runner on a real PostgreSQL.

use likewise_devstack::{TestDatabase, TestStack};
use likewise_evolution::{Disorder, Error, Migration, migrate};

const ONE: Migration =
    Migration { name: "V0001__things", sql: "create table thing (id int primary key); insert into thing values (1)" };
const TWO: Migration =
    Migration { name: "V0002__size", sql: "alter table thing add column size int not null default 7" };

async fn database() -> TestDatabase {
    TestStack::get().database().await
}

async fn run(database: &TestDatabase, schema: &str, list: &[Migration]) -> Result<Vec<String>, Error> {
    let client = database.connect().await.expect("a connection");
    migrate(&client, schema, list).await
}

async fn number(database: &TestDatabase, query: &str) -> i64 {
    database.connect().await.expect("a connection").query_one(query, &[]).await.expect("an answer").get(0)
}

#[tokio::test]
async fn inv_25_migrations_are_applied_once_and_in_order() {
    let database = database().await;
    assert_eq!(run(&database, "shop", &[ONE]).await.expect("applied"), ["V0001__things"]);
    assert_eq!(run(&database, "shop", &[ONE, TWO]).await.expect("applied"), ["V0002__size"]);
    assert_eq!(run(&database, "shop", &[ONE, TWO]).await.expect("nothing to do"), Vec::<String>::new());
    assert_eq!(number(&database, "select sum(size) from shop.thing").await, 7);
    assert_eq!(number(&database, "select count(*) from shop.schema_migration").await, 2);
    // Another schema of the same database has a record of its own.
    assert_eq!(run(&database, "shop_2", &[ONE]).await.expect("applied"), ["V0001__things"]);
}

#[tokio::test]
async fn inv_25_runners_at_once_do_the_work_of_one() {
    let database = database().await;
    let list = [ONE, TWO];
    let runs = futures::future::join_all((0..6).map(|_| run(&database, "shop", &list))).await;
    let mut applied: Vec<String> = runs.into_iter().flat_map(|run| run.expect("no runner fails")).collect();
    applied.sort();
    assert_eq!(applied, ["V0001__things", "V0002__size"]);
    assert_eq!(number(&database, "select count(*) from shop.thing").await, 1);
}

#[tokio::test]
async fn a_migration_changed_after_it_was_applied_is_refused() {
    let database = database().await;
    run(&database, "shop", &[ONE]).await.expect("applied");
    let edited = Migration { sql: "create table thing (id bigint primary key)", ..ONE };
    let error = run(&database, "shop", &[edited, TWO]).await.expect_err("refused");
    assert!(
        matches!(&error, Error::Disorder { source: Disorder::Changed(name), .. } if name == "V0001__things"),
        "{error:?}"
    );
    assert_eq!(number(&database, "select count(*) from shop.schema_migration").await, 1);
}

#[tokio::test]
async fn inv_25_a_failed_migration_leaves_nothing_and_can_be_repaired() {
    let database = database().await;
    let broken = Migration { sql: "create table half (id int); select 1 / 0", ..TWO };
    let client = database.connect().await.expect("a connection");
    let error = migrate(&client, "shop", &[ONE, broken]).await.expect_err("it fails");
    assert!(matches!(error, Error::Apply { name: "V0002__size", .. }), "{error:?}");
    assert_eq!(number(&database, "select count(*) from pg_tables where schemaname = 'shop'").await, 2);
    // The lock is free even while the session of the failed run lives.
    assert_eq!(run(&database, "shop", &[ONE, TWO]).await.expect("applied"), ["V0002__size"]);
}

#[tokio::test]
async fn a_migration_that_ends_its_transaction_is_refused() {
    let database = database().await;
    let sly = Migration { sql: "create table thing (id int); commit; begin", ..ONE };
    let error = run(&database, "shop", &[sly]).await.expect_err("refused");
    assert!(matches!(error, Error::Transaction { name: "V0001__things", .. }), "{error:?}");
}

#[tokio::test]
async fn a_schema_name_that_is_none_of_ours_is_refused() {
    let database = database().await;
    for name in ["", "Shop", "shop; drop schema public", "shop-1"] {
        assert!(matches!(run(&database, name, &[ONE]).await, Err(Error::SchemaName(_))), "{name:?}");
    }
}
