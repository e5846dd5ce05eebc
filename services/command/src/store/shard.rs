//! Bringing a shard up: schema, contract, identity of the server, partitions. Everything a writer needs to be sure of
//! before its first batch, on every new connection.

use likewise_evolution::Migration;
use likewise_kit::pg::{self, Servers};
use tokio_postgres::{Client, IsolationLevel};

use super::partitions::{self, Changes};
use super::writer::Connection;
use super::{Error, LOCK_SHARD, doing, lock};
use crate::config::Settings;
use crate::partitions::{plan_ranges, plan_weeks};

const REGISTER: &str = include_str!("shard_register.sql");
const READ: &str = include_str!("shard_read.sql");
const ACCEPT: &str = include_str!("shard_accept_server.sql");
const IDENTITY: &str = include_str!("server_identity.sql");

/// Migrations of a shard's schema, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration { name: "V0001__relation_shard", sql: include_str!("../../migrations/V0001__relation_shard.sql") },
    Migration { name: "V0002__apply_commands", sql: include_str!("../../migrations/V0002__apply_commands.sql") },
    Migration { name: "V0003__partitions", sql: include_str!("../../migrations/V0003__partitions.sql") },
    Migration { name: "V0004__second_axis", sql: include_str!("../../migrations/V0004__second_axis.sql") },
    Migration { name: "V0005__apply_commands", sql: include_str!("../../migrations/V0005__apply_commands.sql") },
    Migration { name: "V0006__write_barrier", sql: include_str!("../../migrations/V0006__write_barrier.sql") },
    Migration { name: "V0007__risk_acts", sql: include_str!("../../migrations/V0007__risk_acts.sql") },
    Migration { name: "V0008__authority_cursor", sql: include_str!("../../migrations/V0008__authority_cursor.sql") },
    Migration { name: "V0009__lane_epochs", sql: include_str!("../../migrations/V0009__lane_epochs.sql") },
    Migration { name: "V0010__lane_registry", sql: include_str!("../../migrations/V0010__lane_registry.sql") },
];

/// Schema of a shard.
#[must_use]
pub fn schema(shard: u16) -> String {
    format!("relation_{shard:02}")
}

/// Server of a shard.
///
/// # Errors
/// When no server is configured.
pub fn server(settings: &Settings, shard: u16) -> Result<&str, Error> {
    settings.shard_server(shard).ok_or_else(|| Error::Stored("no server is configured for the shards".to_owned()))
}

/// Brings the schema of a shard up to date and states its contract, or checks the one that is stated.
///
/// # Errors
/// [`Error::is_fatal`] when the process must not go on; otherwise the server does not answer for now.
pub async fn prepare(servers: &Servers, settings: &Settings, shard: u16) -> Result<(), Error> {
    let server = server(settings, shard)?;
    let mut client = servers.dedicated(server, &schema(shard)).await?;
    pg::check_server(&client, server).await?;
    likewise_evolution::migrate(&client, &schema(shard), MIGRATIONS)
        .await
        .map_err(|error| Error::Schema(Box::new(error)))?;
    register(&client, settings, shard).await?;
    if settings.accept_server_identity {
        accept_server(&mut client, shard).await?;
    }
    ensure_partitions(&client, settings).await
}

/// A writer's connection to a prepared shard, refused when contract or server are not what the shard says.
///
/// # Errors
/// [`Error::is_fatal`] when the process must not go on; [`Error::NotServing`] when the server changed; otherwise it does
/// not answer for now.
pub async fn open(servers: &Servers, settings: &Settings, shard: u16) -> Result<Connection, Error> {
    let server = server(settings, shard)?;
    let client = servers.dedicated(server, &schema(shard)).await?;
    pg::check_server(&client, server).await?;
    check(&client, settings, shard).await?;
    Connection::new(client, shard, settings.flight_timeout()).await
}

async fn identity(client: &Client) -> Result<(i64, i32), Error> {
    let what = "ask which server this is";
    let row = client.query_one(IDENTITY, &[]).await.map_err(doing(what))?;
    Ok((row.try_get(0).map_err(doing(what))?, row.try_get(1).map_err(doing(what))?))
}

async fn register(client: &Client, settings: &Settings, shard: u16) -> Result<(), Error> {
    let (system, timeline) = identity(client).await?;
    let seed = settings.hash_seed.cast_signed();
    let (shards, shard) = (i32::from(settings.shards), i32::from(shard));
    client
        .execute(
            REGISTER,
            &[&system, &timeline, &settings.hash_algorithm, &seed, &settings.key_encoding, &shards, &shard],
        )
        .await
        .map_err(doing("state what the shard is"))?;
    Ok(())
}

async fn accept_server(client: &mut Client, shard: u16) -> Result<(), Error> {
    let what = "take the server as the shard's own";
    let (system, timeline) = identity(client).await?;
    let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await;
    let transaction = begun.map_err(doing(what))?;
    transaction.execute(LOCK_SHARD, &[&lock::SHARD, &i32::from(shard)]).await.map_err(doing(what))?;
    transaction.execute(ACCEPT, &[&system, &timeline]).await.map_err(doing(what))?;
    transaction.commit().await.map_err(doing(what))
}

async fn check(client: &Client, settings: &Settings, shard: u16) -> Result<(), Error> {
    let what = "read what the shard is";
    let row = client.query_one(READ, &[]).await.map_err(doing(what))?;
    let read = |error| doing(what)(error);
    let stored: (String, i64, String, i32, i32) = (
        row.try_get(2).map_err(read)?,
        row.try_get(3).map_err(read)?,
        row.try_get(4).map_err(read)?,
        row.try_get(5).map_err(read)?,
        row.try_get(6).map_err(read)?,
    );
    let configured = (
        settings.hash_algorithm.clone(),
        settings.hash_seed.cast_signed(),
        settings.key_encoding.clone(),
        i32::from(settings.shards),
        i32::from(shard),
    );
    if stored != configured {
        return Err(Error::Stored(format!(
            "{} holds the contract {stored:?} (algorithm, seed, encoding, shards, shard) but [command] says \
             {configured:?}: users would be looked for in the wrong shards; correct the configuration",
            schema(shard)
        )));
    }
    let known: (i64, i32) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
    let found = identity(client).await?;
    if known != found {
        return Err(Error::NotServing(format!(
            "{} was last on server {} timeline {} and is now on server {} timeline {}: commits that were already \
             published may be missing, so it waits until its publisher has repaired it (after a planned move, where \
             nothing can be missing, start once with command.accept_server_identity = true)",
            schema(shard),
            known.0,
            known.1,
            found.0,
            found.1
        )));
    }
    Ok(())
}

/// A shard has its partitions before it takes a command, whatever the maintenance does later.
async fn ensure_partitions(client: &Client, settings: &Settings) -> Result<(), Error> {
    let found = partitions::find(client).await?;
    let retention = time::Duration::days(settings.operation_retention_days.into());
    let changes = Changes {
        make_weeks: plan_weeks(&found.weeks, found.now, retention, settings.operation_weeks_ahead).make,
        make_ranges: plan_ranges(
            &found.ranges,
            found.last_seq,
            settings.outbox_partition_rows,
            settings.outbox_partitions_ahead,
        ),
        ..Changes::default()
    };
    partitions::make(client, &changes).await
}
