//! The metadata schema.

use likewise_domain::lane::Offset;
use likewise_kit::pg::Pool;
use uuid::Uuid;

use super::{Error, bigint, failed, integer};
use crate::contract::Frozen;

const PING: &str = include_str!("ping.sql");
const GENERATION_LOCK: &str = include_str!("generation_lock.sql");
const GENERATION_ACTIVE: &str = include_str!("generation_active.sql");
const GENERATION_ADD: &str = include_str!("generation_add.sql");
const PART_ADD: &str = include_str!("part_add.sql");
const PART_LIST: &str = include_str!("part_list.sql");
const QUARANTINE_ADD: &str = include_str!("quarantine_add.sql");
const QUARANTINE_OPEN: &str = include_str!("quarantine_open.sql");

/// Where one part stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Number of the part.
    pub part: u32,
    /// Server by its name in the settings.
    pub server: String,
    /// Schema.
    pub schema: String,
    /// What the schema must say of itself.
    pub incarnation: Uuid,
}

/// A message that was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined<'a> {
    /// Name of its lane.
    pub lane: &'a str,
    /// Its place.
    pub offset: Offset,
    /// Event id of the header.
    pub event_id: Uuid,
    /// Schema name of the header.
    pub schema: &'a str,
    /// Its bytes.
    pub payload: &'a [u8],
    /// Why it was not understood.
    pub reason: &'a str,
}

/// Contracts, map and quarantine.
#[derive(Clone)]
pub struct Metadata {
    pool: Pool,
}

impl Metadata {
    /// On a pool whose schema is the migrated metadata schema.
    #[must_use]
    pub const fn new(pool: Pool) -> Self {
        Self { pool }
    }

    /// The pool, for leases and checkpoints.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether PostgreSQL answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), Error> {
        const ACTION: &str = "ping the metadata";
        let client = self.pool.get().await.map_err(|source| Error::Pool { action: ACTION, source })?;
        client.batch_execute(PING).await.map_err(failed(ACTION))
    }

    /// The contract that is in force; `first` with its `placements` becomes that once, when there is none.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or what is stored cannot be understood.
    pub async fn freeze(&self, first: &Frozen, placements: &[Placement]) -> Result<(Frozen, Vec<Placement>), Error> {
        const ACTION: &str = "read the contract of the generation";
        let mut client = self.pool.get().await.map_err(|source| Error::Pool { action: ACTION, source })?;
        let transaction = client.transaction().await.map_err(failed(ACTION))?;
        transaction.batch_execute(GENERATION_LOCK).await.map_err(failed(ACTION))?;
        if transaction.query_opt(GENERATION_ACTIVE, &[]).await.map_err(failed(ACTION))?.is_none() {
            let (shards, parts) = (integer(first.reverse_shards), integer(first.parts));
            let (seed, lanes) = (first.hash_seed.cast_signed(), i32::from(first.lanes));
            let (algorithm, encoding) = (&first.hash_algorithm, &first.key_encoding);
            transaction
                .execute(GENERATION_ADD, &[&first.generation, algorithm, &seed, encoding, &shards, &parts, &lanes])
                .await
                .map_err(failed("freeze the contract of the generation"))?;
            for place in placements {
                let part = integer(place.part);
                transaction
                    .execute(PART_ADD, &[&first.generation, &part, &place.server, &place.schema, &place.incarnation])
                    .await
                    .map_err(failed("freeze the part map"))?;
            }
        }
        let row = transaction.query_one(GENERATION_ACTIVE, &[]).await.map_err(failed(ACTION))?;
        let stored = |column| Error::Stored { action: ACTION, column };
        let frozen = Frozen {
            generation: row.get(0),
            hash_algorithm: row.get(1),
            hash_seed: row.get::<_, i64>(2).cast_unsigned(),
            key_encoding: row.get(3),
            reverse_shards: u32::try_from(row.get::<_, i32>(4)).map_err(|_| stored("reverse_shards"))?,
            parts: u32::try_from(row.get::<_, i32>(5)).map_err(|_| stored("parts"))?,
            lanes: u16::try_from(row.get::<_, i32>(6)).map_err(|_| stored("lanes"))?,
        };
        let rows = transaction.query(PART_LIST, &[&frozen.generation]).await.map_err(failed(ACTION))?;
        let placements = rows.iter().map(|row| {
            let part = u32::try_from(row.get::<_, i32>(0)).map_err(|_| stored("part"))?;
            Ok(Placement { part, server: row.get(1), schema: row.get(2), incarnation: row.get(3) })
        });
        let placements = placements.collect::<Result<Vec<_>, Error>>()?;
        // Parts are numbered from 0 without gaps: the contract computes their numbers.
        if !placements.iter().map(|place| place.part).eq(0..frozen.parts) {
            return Err(stored("part map"));
        }
        transaction.commit().await.map_err(failed(ACTION))?;
        Ok((frozen, placements))
    }

    /// Keeps a message that was not understood, until a repair closes it.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn quarantine(&self, generation: i32, message: &Quarantined<'_>) -> Result<(), Error> {
        const ACTION: &str = "quarantine a message";
        let client = self.pool.get().await.map_err(|source| Error::Pool { action: ACTION, source })?;
        let statement = client.prepare_cached(QUARANTINE_ADD).await.map_err(failed(ACTION))?;
        let (epoch, seq) = (integer(message.offset.epoch), bigint(message.offset.seq));
        let Quarantined { lane, event_id, schema, payload, reason, .. } = message;
        client
            .execute(&statement, &[&generation, lane, &epoch, &seq, event_id, schema, payload, reason])
            .await
            .map_err(failed(ACTION))?;
        Ok(())
    }

    /// How many messages of a lane wait for a repair.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn quarantined(&self, generation: i32, lane: &str) -> Result<u64, Error> {
        const ACTION: &str = "count quarantined messages";
        let client = self.pool.get().await.map_err(|source| Error::Pool { action: ACTION, source })?;
        let statement = client.prepare_cached(QUARANTINE_OPEN).await.map_err(failed(ACTION))?;
        let count: i64 = client.query_one(&statement, &[&generation, &lane]).await.map_err(failed(ACTION))?.get(0);
        Ok(count.cast_unsigned())
    }
}
