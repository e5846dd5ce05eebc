//! Brings the schemas up to date, freezes the first contract, and opens what the stored contract names. Settings only ever
//! speak for a generation that does not exist yet.

use std::sync::Arc;

use likewise_domain::hash::ContractError;
use likewise_evolution::Migration;
use likewise_kit::run::Context;
use likewise_kit::{clients, pg};
use uuid::Uuid;

use crate::config::Settings;
use crate::contract::{Contract, Frozen};
use crate::store::{self, Metadata, Part, Placement};

/// Schema with contracts, map, checkpoints and quarantine.
pub const METADATA_SCHEMA: &str = "reverse_index";
/// Migrations of the metadata schema, in order.
pub const METADATA_MIGRATIONS: &[Migration] =
    &[Migration { name: "V0001__reverse_index", sql: include_str!("../migrations/metadata/V0001__reverse_index.sql") }];
/// Migrations of every part, in order.
pub const PART_MIGRATIONS: &[Migration] =
    &[Migration { name: "V0001__part", sql: include_str!("../migrations/part/V0001__part.sql") }];

/// The contract of the first generation, as far as no setting names it.
const FIRST_GENERATION: i32 = 1;
const HASH_ALGORITHM: &str = "xxh64";
const KEY_ENCODING: &str = "lp32be";

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server cannot be reached or used.
    #[error("open the databases of the reverse index")]
    Postgres(#[from] pg::Error),
    /// A schema cannot be brought up to date.
    #[error("bring the schemas of the reverse index up to date")]
    Migrate(#[from] likewise_evolution::Error),
    /// What is stored cannot be read or used.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The stored contract is of another build.
    #[error("compute the stored contract of generation {generation}")]
    Contract {
        /// The generation.
        generation: i32,
        /// What this build does not know.
        source: ContractError,
    },
    /// Settings and data disagree about the relation shards.
    #[error("reverse_index.lanes is {settings} but generation {generation} follows {stored} relation shards")]
    Lanes {
        /// The generation.
        generation: i32,
        /// What the settings say.
        settings: u16,
        /// What is stored.
        stored: u16,
    },
    /// The address of the authority.
    #[error("set up the client of the authority for accounts and videos")]
    Client(#[from] clients::Error),
}

/// What the stored contract names, opened.
pub struct Opened {
    /// The contract.
    pub contract: Contract,
    /// Relation shards, one lane each.
    pub lanes: u16,
    /// The metadata schema.
    pub metadata: Metadata,
    /// The parts, in their order.
    pub parts: Arc<[Part]>,
}

/// Migrates every schema, freezes the first contract where there is none, and opens all of it.
///
/// # Errors
/// [`Error`] says what to correct.
pub async fn migrate(context: &Context, settings: &Settings) -> Result<Opened, Error> {
    up_to_date(context, &settings.server, METADATA_SCHEMA, METADATA_MIGRATIONS).await?;
    let metadata = Metadata::new(context.servers.pool(&settings.server, METADATA_SCHEMA, settings.connections)?);
    let (frozen, placements) = metadata.freeze(&first_contract(settings), &first_placements(settings)).await?;
    let generation = frozen.generation;
    if frozen.lanes != settings.lanes {
        return Err(Error::Lanes { generation, settings: settings.lanes, stored: frozen.lanes });
    }
    if frozen != (Frozen { generation, ..first_contract(settings) }) {
        tracing::info!(?frozen, "the stored contract differs from the settings and wins");
    }
    let contract = Contract::parse(&frozen).map_err(|source| Error::Contract { generation, source })?;
    let mut parts = Vec::with_capacity(placements.len());
    for place in &placements {
        up_to_date(context, &place.server, &place.schema, PART_MIGRATIONS).await?;
        let part = Part::new(context.servers.pool(&place.server, &place.schema, settings.connections)?, generation);
        part.claim(place).await?;
        parts.push(part);
    }
    Ok(Opened { contract, lanes: frozen.lanes, metadata, parts: parts.into() })
}

async fn up_to_date(context: &Context, server: &str, schema: &str, migrations: &[Migration]) -> Result<(), Error> {
    let client = context.servers.dedicated(server, schema).await?;
    pg::check_server(&client, server).await?;
    likewise_evolution::migrate(&client, schema, migrations).await?;
    Ok(())
}

fn first_contract(settings: &Settings) -> Frozen {
    Frozen {
        generation: FIRST_GENERATION,
        hash_algorithm: HASH_ALGORITHM.to_owned(),
        hash_seed: settings.hash_seed.cast_unsigned(),
        key_encoding: KEY_ENCODING.to_owned(),
        reverse_shards: settings.reverse_shards,
        parts: settings.parts,
        lanes: settings.lanes,
    }
}

fn first_placements(settings: &Settings) -> Vec<Placement> {
    let servers = settings.part_servers.iter().cycle();
    let place = |(part, server): (u32, &String)| Placement {
        part,
        server: server.clone(),
        schema: format!("reverse_p{part:02}"),
        incarnation: Uuid::new_v4(),
    };
    (0..settings.parts).zip(servers).map(place).collect()
}
