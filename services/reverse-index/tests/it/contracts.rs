//! What is frozen at the first start, and what a later start refuses.

use std::fs;
use std::path::Path;

use likewise_devstack::TestStack;
use likewise_reverse_index::bootstrap::{Error, METADATA_SCHEMA};
use likewise_reverse_index::store;
use tokio_postgres::error::SqlState;

use crate::rig::{Rig, open, projection};

async fn refused(rig: &Rig, changes: &[(&str, &str)]) -> Error {
    open(&rig.config, changes).await.err().expect("refused")
}

#[tokio::test]
async fn inv_15_the_stored_contract_wins_over_settings_of_a_later_build() {
    let mut rig = Rig::with(&[("REVERSE_INDEX__REVERSE_SHARDS", "8"), ("REVERSE_INDEX__PARTS", "3")]).await;
    rig.apply("lin+1 mei+1 noa+1 ava+1 kim+1").await;
    let changes = [
        ("REVERSE_INDEX__REVERSE_SHARDS", "2"),
        ("REVERSE_INDEX__PARTS", "1"),
        ("REVERSE_INDEX__HASH_SEED", "5"),
        ("REVERSE_INDEX__PART_SERVERS", "[\"nowhere\"]"),
    ];
    let opened = open(&rig.config, &changes).await.expect("opened");
    assert_eq!((opened.contract.reverse_shards(), opened.parts.len(), opened.contract.generation()), (8, 3, 1));
    rig.projection = projection(opened);
    // The same places: an unlike meets the row of its like.
    rig.apply("lin-2 mei-2 noa-2 ava-2 kim-2").await;
    rig.check("lin-2 mei-2 noa-2 ava-2 kim-2").await;
}

#[tokio::test]
async fn case_20_a_stored_contract_can_not_be_changed_in_place() {
    let rig = Rig::new().await;
    for change in ["hash_seed = 1", "reverse_shards = 5", "hash_algorithm = 'other'", "lanes = 2", "parts = 9"] {
        let text = format!("update reverse_index.reverse_index_generation set {change}");
        let error = rig.sql.batch_execute(&text).await.expect_err("refused");
        assert_eq!(error.code(), Some(&SqlState::INTEGRITY_CONSTRAINT_VIOLATION), "{change}");
    }
}

#[tokio::test]
async fn another_number_of_lanes_refuses_to_start() {
    let rig = Rig::new().await;
    let error = refused(&rig, &[("REVERSE_INDEX__LANES", "5")]).await;
    assert!(matches!(error, Error::Lanes { settings: 5, stored: 4, generation: 1 }), "{error}");
}

#[tokio::test]
async fn a_contract_of_a_build_that_is_not_this_one_refuses_to_start() {
    let rig = Rig::new().await;
    let text = "alter table reverse_index.reverse_index_generation disable trigger all; \
                update reverse_index.reverse_index_generation set hash_algorithm = 'blake3'";
    rig.sql.batch_execute(text).await.expect("altered");
    let error = refused(&rig, &[]).await;
    assert!(matches!(error, Error::Contract { generation: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_part_of_another_installation_refuses_to_start() {
    let rig = Rig::new().await;
    rig.sql
        .batch_execute("update reverse_p01.part_identity set incarnation = gen_random_uuid()")
        .await
        .expect("altered");
    let error = refused(&rig, &[]).await;
    assert!(matches!(error, Error::Store(store::Error::ForeignPart { .. })), "{error}");
    rig.sql.batch_execute("update reverse_p01.part_identity set part = 0").await.expect("altered");
    assert!(matches!(refused(&rig, &[]).await, Error::Store(store::Error::ForeignPart { .. })));
}

#[tokio::test]
async fn a_part_map_with_a_hole_refuses_to_start() {
    let rig = Rig::new().await;
    rig.sql.batch_execute("delete from reverse_index.reverse_index_part where part = 0").await.expect("altered");
    let error = refused(&rig, &[]).await;
    assert!(matches!(error, Error::Store(store::Error::Stored { column: "part map", .. })), "{error}");
}

#[tokio::test]
async fn processes_that_start_at_once_agree_on_one_contract() {
    let config = TestStack::get().config().await;
    let settings = ["3", "5", "7", "9"];
    let changes = settings.map(|shards| [("REVERSE_INDEX__REVERSE_SHARDS", shards)]);
    let starts = changes.iter().map(|changes| open(&config, changes));
    let opened = futures::future::join_all(starts).await;
    let shards: Vec<u32> = opened.iter().map(|one| one.as_ref().expect("opened").contract.reverse_shards()).collect();
    assert!(shards.iter().all(|one| *one == shards[0]), "{shards:?}");
}

#[tokio::test]
async fn every_statement_fits_the_migrated_schemas() {
    let rig = Rig::new().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    let mut seen = 0;
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        // Several commands at once cannot be prepared.
        if path.extension().is_none_or(|extension| extension != "sql") || name == "fold_plan" {
            continue;
        }
        let of_part = ["fold", "page", "identity_claim", "owner_raise"].contains(&name.as_str());
        let schema = if of_part { "reverse_p00" } else { METADATA_SCHEMA };
        rig.sql.batch_execute(&format!("set search_path = {schema}")).await.expect("a schema");
        let text = fs::read_to_string(&path).expect("the statement");
        assert!(text.starts_with(&format!("-- reverse_index.{name}:")), "{name} names itself");
        rig.sql.prepare(&text).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        seen += 1;
    }
    assert!(seen >= 11, "{seen} statements");
}
