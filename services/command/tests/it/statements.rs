//! Every statement prepares on the migrated schema.

use std::path::Path;

use likewise_command::store::ledger;

use crate::rig::Rig;

#[tokio::test]
async fn every_statement_prepares_on_the_migrated_schema() {
    let rig = Rig::new(&[]).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    let mut prepared = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of statements") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "sql") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a statement");
        // Settings of a transaction take no parameters, and PostgreSQL prepares no more than one statement at once.
        if text.contains("set local") {
            rig.sql.batch_execute(&format!("begin; {text}; rollback")).await.expect("settings");
        } else {
            rig.sql.prepare(&text).await.unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
        }
        prepared += 1;
    }
    assert!(prepared > 20, "{prepared} statements");
}

#[tokio::test]
async fn every_statement_of_the_ledger_prepares_on_its_schema() {
    let rig = Rig::new(&[]).await;
    ledger::prepare(&rig.servers, &rig.settings).await.expect("prepared");
    let sql = rig.servers.dedicated("main", ledger::SCHEMA).await.expect("connected");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/ledger");
    for entry in std::fs::read_dir(folder).expect("the folder of statements") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a statement");
        sql.prepare(&text).await.unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
    }
}
