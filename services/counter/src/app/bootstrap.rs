//! The first start of an installation, and every other start: schemas, placed partitions, and a live generation. What is
//! stored always wins over settings; settings only say what to state where nothing is stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use likewise_kit::pg::{Servers, check_server};
use uuid::Uuid;

use crate::app::live::Live;
use crate::config::Settings;
use crate::migrations;
use crate::route::deal;
use crate::store::setup::Placement;
use crate::store::{Error, METADATA_SCHEMA, Store};

/// Applies migrations and answers the generation to work on. Every step may be killed and is done again by the next start.
///
/// # Errors
/// When a server does not answer, or what is stored and what is configured cannot both be true.
pub async fn start(servers: &Servers, settings: &Settings) -> Result<Live, Error> {
    let store = open(servers, settings).await?;
    let store = Arc::new(store);
    let names: Vec<String> = (0..settings.partitions).map(partition_name).collect();
    let (generation, sealed) =
        store.state_first(&settings.first_contract(), settings.lanes, |vbuckets| deal(vbuckets, &names)).await?;
    if let Some(manifest) = sealed {
        // Fences before the switch: once the routes are live, every bucket can be written.
        let contract = store.contract(generation.bucket_space).await?;
        let routes = store.routes(generation.generation, manifest, contract.vbuckets).await?;
        for (index, name) in routes.partitions().iter().enumerate() {
            let owned: Vec<(u32, u64)> = (0..contract.vbuckets)
                .filter_map(|vbucket| routes.of(vbucket).map(|route| (vbucket, route)))
                .filter(|(_, route)| route.partition == index)
                .map(|(vbucket, route)| (vbucket, route.epoch))
                .collect();
            store.partition(name)?.open_fences(generation.generation, &owned).await?;
        }
        store.activate(generation.generation, manifest).await?;
    }
    let Some(active) = store.active_generation().await? else {
        return Err(Error::Stored("no projection generation is ACTIVE: an operator has to choose one".to_owned()));
    };
    if active.lanes != i32::from(settings.lanes) {
        return Err(Error::Stored(format!(
            "counter.lanes is {} but generation {} was made for {} lanes: the number of relation shards never changes",
            settings.lanes, active.generation, active.lanes
        )));
    }
    Live::load(store, &active).await
}

/// Migrates every schema and checks that each partition is the one it claims to be.
async fn open(servers: &Servers, settings: &Settings) -> Result<Store, Error> {
    migrate(servers, &settings.metadata_server, METADATA_SCHEMA, migrations::METADATA).await?;
    let store = Store::open(
        servers,
        &settings.metadata_server,
        settings.metadata_connections_max,
        settings.partition_connections_max,
    )?;
    let placed: BTreeMap<String, Placement> =
        store.placements().await?.into_iter().map(|placement| (placement.partition.clone(), placement)).collect();
    let mut wanted: BTreeMap<String, (String, String)> = BTreeMap::new();
    for number in 0..settings.partitions {
        let server = settings.partition_server(number).unwrap_or(&settings.metadata_server);
        wanted.insert(partition_name(number), (server.to_owned(), format!("counter_{}", partition_name(number))));
    }
    for placement in placed.values() {
        wanted.insert(placement.partition.clone(), (placement.server.clone(), placement.schema.clone()));
    }
    let mut opened = Vec::new();
    for (name, (server, schema)) in wanted {
        migrate(servers, &server, &schema, migrations::PARTITION).await?;
        let partition = store.open_partition(&name, &server, &schema)?;
        let (partition, incarnation) = partition.identity(Uuid::new_v4()).await?;
        let found = Placement { partition, server, schema, incarnation };
        if !placed.contains_key(&name) && found.partition == name {
            store.place(&found).await?;
        }
        opened.push((name, found));
    }
    // Read again: another process may have placed one elsewhere meanwhile, and the first one wins.
    let stored = store.placements().await?;
    for (name, found) in opened {
        if !stored.contains(&found) || found.partition != name {
            return Err(Error::Stored(format!(
                "schema {} on server {:?} is not the partition {name} that is counted into: correct the server's \
                 address, or restore the partition",
                found.schema, found.server
            )));
        }
    }
    Ok(store)
}

async fn migrate(
    servers: &Servers,
    server: &str,
    schema: &str,
    migrations: &[likewise_evolution::Migration],
) -> Result<(), Error> {
    let client = servers.dedicated(server, schema).await?;
    check_server(&client, server).await?;
    let applied = likewise_evolution::migrate(&client, schema, migrations)
        .await
        .map_err(|error| Error::Stored(format!("migrate {schema} on server {server:?}: {error}")))?;
    if !applied.is_empty() {
        tracing::info!(schema, server, ?applied, "migrations applied");
    }
    Ok(())
}

/// Name of partition `number`: `p00`.
fn partition_name(number: u16) -> String {
    format!("p{number:02}")
}
