//! Contracts: bucket spaces, placements of partitions, generations and route manifests.

use deadpool_postgres::Transaction;
use uuid::Uuid;

use super::{Error, Store, bigint, column, connection, integer, lock, number, query, query_on};
use crate::bucket::Contract;
use crate::route::{Item, Routes, Seal, seal};

const BUCKET_SPACE_ADD: &str = include_str!("bucket_space_add.sql");
const BUCKET_SPACE_READ: &str = include_str!("bucket_space_read.sql");
const PARTITION_ADD: &str = include_str!("partition_add.sql");
const PARTITION_LIST: &str = include_str!("partition_list.sql");
const GENERATION_ADD: &str = include_str!("generation_add.sql");
const GENERATION_READ: &str = include_str!("generation_read.sql");
const GENERATION_ACTIVE: &str = include_str!("generation_active.sql");
const GENERATION_ACTIVATE: &str = include_str!("generation_activate.sql");
const MANIFEST_BEGIN: &str = include_str!("manifest_begin.sql");
const MANIFEST_FILL: &str = include_str!("manifest_fill.sql");
const MANIFEST_ITEMS: &str = include_str!("manifest_items.sql");
const MANIFEST_SEAL: &str = include_str!("manifest_seal.sql");
const MANIFEST_READ: &str = include_str!("manifest_read.sql");
const MANIFEST_FIND: &str = include_str!("manifest_find.sql");
const ROUTE_CLEAR: &str = include_str!("route_clear.sql");
const ROUTE_MATERIALISE: &str = include_str!("route_materialise.sql");
const BOOTSTRAP_LOCK: &str = include_str!("bootstrap_lock.sql");

pub(super) const METADATA: &[&str] = &[
    BUCKET_SPACE_ADD,
    BUCKET_SPACE_READ,
    PARTITION_ADD,
    PARTITION_LIST,
    GENERATION_ADD,
    GENERATION_READ,
    GENERATION_ACTIVE,
    GENERATION_ACTIVATE,
    MANIFEST_BEGIN,
    MANIFEST_FILL,
    MANIFEST_ITEMS,
    MANIFEST_SEAL,
    MANIFEST_READ,
    MANIFEST_FIND,
    ROUTE_CLEAR,
    ROUTE_MATERIALISE,
    BOOTSTRAP_LOCK,
];

/// Where a partition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Name of the partition.
    pub partition: String,
    /// Name of its server.
    pub server: String,
    /// Its schema.
    pub schema: String,
    /// Random id drawn when the partition was made.
    pub incarnation: Uuid,
}

/// One projection generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// Its number.
    pub generation: i32,
    /// The bucket space it is bound to.
    pub bucket_space: i32,
    /// Lanes it consumes.
    pub lanes: i32,
    /// SHADOW, ACTIVE, RETIRED or FAILED.
    pub status: String,
    /// The sealed manifest that routes its buckets; none before its activation.
    pub manifest: Option<i64>,
}

impl Store {
    /// Where every partition stands, by name.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn placements(&self) -> Result<Vec<Placement>, Error> {
        const DOING: &str = "list partitions";
        let rows = query(&self.metadata, DOING, PARTITION_LIST, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(Placement {
                    partition: column(row, 0, DOING)?,
                    server: column(row, 1, DOING)?,
                    schema: column(row, 2, DOING)?,
                    incarnation: column(row, 3, DOING)?,
                })
            })
            .collect()
    }

    /// Places a partition, unless it is placed already; what is stored wins.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn place(&self, placement: &Placement) -> Result<(), Error> {
        let Placement { partition, server, schema, incarnation } = placement;
        query(&self.metadata, "place a partition", PARTITION_ADD, &[partition, server, schema, incarnation]).await?;
        Ok(())
    }

    /// States the first contracts, in one transaction: the bucket space, the generation as a shadow, and its manifest,
    /// which is read back, verified and sealed. What is stored already is kept. Answers the generation and its manifest.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or what is stored contradicts itself.
    pub async fn state_first(
        &self,
        contract: &Contract,
        lanes: u16,
        deal: impl FnOnce(u32) -> Vec<Item> + Send,
    ) -> Result<(Generation, Option<i64>), Error> {
        const DOING: &str = "state the first contracts";
        const FIRST_GENERATION: i32 = 1;
        let mut client = connection(&self.metadata, DOING).await?;
        let failed = |source| Error::Postgres { doing: DOING, source };
        let transaction = client.transaction().await.map_err(failed)?;
        query_on(&transaction, DOING, BOOTSTRAP_LOCK, &[&lock::BOOTSTRAP, &0]).await?;
        let seed = contract.hash_seed.cast_signed();
        query_on(
            &transaction,
            DOING,
            BUCKET_SPACE_ADD,
            &[&contract.version, &contract.hash_algorithm, &seed, &contract.key_encoding, &integer(contract.vbuckets)],
        )
        .await?;
        query_on(&transaction, DOING, GENERATION_ADD, &[&FIRST_GENERATION, &contract.version, &i32::from(lanes)])
            .await?;
        let generation = read_generation(&transaction, FIRST_GENERATION).await?;
        let mut sealed = None;
        if generation.status == "SHADOW" && generation.manifest.is_none() {
            let found = query_on(&transaction, DOING, MANIFEST_FIND, &[&FIRST_GENERATION]).await?;
            sealed = match found.first() {
                Some(row) => Some(column(row, 0, DOING)?),
                None => Some(build_manifest(&transaction, &generation, deal).await?),
            };
        }
        transaction.commit().await.map_err(failed)?;
        Ok((generation, sealed))
    }

    /// Compare-and-set of a shadow without routes to the active generation. Nothing changes if it is no such shadow.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or another generation is active.
    pub async fn activate(&self, generation: i32, manifest: i64) -> Result<(), Error> {
        query(&self.metadata, "activate a generation", GENERATION_ACTIVATE, &[&generation, &manifest]).await?;
        Ok(())
    }

    /// The active generation; `None` before the first was activated.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn active_generation(&self) -> Result<Option<Generation>, Error> {
        const DOING: &str = "read the active generation";
        let client = connection(&self.metadata, DOING).await?;
        match query_on(&client, DOING, GENERATION_ACTIVE, &[]).await?.first() {
            None => Ok(None),
            Some(row) => read_generation(&client, column(row, 0, DOING)?).await.map(Some),
        }
    }

    /// The words of a bucket space.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or there is no such bucket space.
    pub async fn contract(&self, version: i32) -> Result<Contract, Error> {
        let client = connection(&self.metadata, "read a bucket space").await?;
        read_contract(&client, version).await
    }

    /// Reads a sealed manifest, verifies its rows against its seal and the bucket space, and writes the materialised
    /// routes that differ from it.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or the manifest is not whole.
    pub async fn routes(&self, generation: i32, manifest: i64, vbuckets: u32) -> Result<Routes, Error> {
        const DOING: &str = "read a route manifest";
        let mut client = connection(&self.metadata, DOING).await?;
        let sealed = query_on(&client, DOING, MANIFEST_READ, &[&manifest, &generation]).await?;
        let Some(row) = sealed.first() else {
            return Err(Error::Stored(format!("manifest {manifest} of generation {generation} is not SEALED")));
        };
        let row_count: i32 = column(row, 0, DOING)?;
        let sealed =
            Seal { row_count: usize::try_from(row_count).unwrap_or(usize::MAX), checksum: column(row, 1, DOING)? };
        let items = read_items(&client, manifest).await?;
        let routes = Routes::verify(manifest, &items, vbuckets, &sealed)?;
        let failed = |source| Error::Postgres { doing: "materialise routes", source };
        let transaction = client.transaction().await.map_err(failed)?;
        query_on(&transaction, DOING, ROUTE_CLEAR, &[&generation, &manifest]).await?;
        query_on(&transaction, DOING, ROUTE_MATERIALISE, &[&generation, &manifest]).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(routes)
    }
}

async fn read_generation(client: &impl deadpool_postgres::GenericClient, generation: i32) -> Result<Generation, Error> {
    const DOING: &str = "read a generation";
    let rows = query_on(client, DOING, GENERATION_READ, &[&generation]).await?;
    let Some(row) = rows.first() else {
        return Err(Error::Stored(format!("there is no generation {generation}")));
    };
    Ok(Generation {
        generation,
        bucket_space: column(row, 0, DOING)?,
        lanes: column(row, 1, DOING)?,
        status: column(row, 2, DOING)?,
        manifest: column(row, 3, DOING)?,
    })
}

async fn read_contract(client: &impl deadpool_postgres::GenericClient, version: i32) -> Result<Contract, Error> {
    const DOING: &str = "read a bucket space";
    let rows = query_on(client, DOING, BUCKET_SPACE_READ, &[&version]).await?;
    let Some(row) = rows.first() else {
        return Err(Error::Stored(format!("there is no bucket space {version}")));
    };
    let seed: i64 = column(row, 1, DOING)?;
    let vbuckets: i32 = column(row, 3, DOING)?;
    Ok(Contract {
        version,
        hash_algorithm: column(row, 0, DOING)?,
        hash_seed: seed.cast_unsigned(),
        key_encoding: column(row, 2, DOING)?,
        vbuckets: u32::try_from(vbuckets).unwrap_or(0),
    })
}

async fn read_items(client: &impl deadpool_postgres::GenericClient, manifest: i64) -> Result<Vec<Item>, Error> {
    const DOING: &str = "read the rows of a manifest";
    let rows = query_on(client, DOING, MANIFEST_ITEMS, &[&manifest]).await?;
    rows.iter()
        .map(|row| {
            let vbucket: i32 = column(row, 0, DOING)?;
            Ok(Item {
                vbucket: u32::try_from(vbucket).unwrap_or(u32::MAX),
                partition: column(row, 1, DOING)?,
                route_epoch: number(column(row, 2, DOING)?),
            })
        })
        .collect()
}

/// Fills a manifest, reads it back, verifies it and seals what was read.
async fn build_manifest(
    transaction: &Transaction<'_>,
    generation: &Generation,
    deal: impl FnOnce(u32) -> Vec<Item>,
) -> Result<i64, Error> {
    const DOING: &str = "build a manifest";
    let vbuckets = read_contract(transaction, generation.bucket_space).await?.vbuckets;
    let planned = deal(vbuckets);
    let row = query_on(transaction, DOING, MANIFEST_BEGIN, &[&generation.generation, &generation.bucket_space]).await?;
    let manifest: i64 = column(row.first().ok_or_else(|| Error::Stored("no manifest id".to_owned()))?, 0, DOING)?;
    let numbers: Vec<i32> = planned.iter().map(|item| integer(item.vbucket)).collect();
    let partitions: Vec<&str> = planned.iter().map(|item| item.partition.as_str()).collect();
    let epochs: Vec<i64> = planned.iter().map(|item| bigint(item.route_epoch)).collect();
    query_on(transaction, DOING, MANIFEST_FILL, &[&manifest, &numbers, &partitions, &epochs]).await?;
    let items = read_items(transaction, manifest).await?;
    let sealed = seal(&items);
    Routes::verify(manifest, &items, vbuckets, &seal(&planned))?;
    let row_count = i32::try_from(sealed.row_count).unwrap_or(i32::MAX);
    query_on(transaction, DOING, MANIFEST_SEAL, &[&manifest, &row_count, &sealed.checksum]).await?;
    Ok(manifest)
}
