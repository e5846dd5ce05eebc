//! One partition: the fold of a group, fences, and what the aggregator and people read of it.

use likewise_domain::id::VideoId;
use likewise_domain::lane::Offset;
use likewise_kit::pg::Pool;
use likewise_kit::{crash, crash_point};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Error, bigint, column, connection, execute, integer, lock, number, query, query_on};
use crate::display::Parts;
use crate::fold::Group;
use crate::vector::Vector;

const IDENTITY_ADD: &str = include_str!("identity_add.sql");
const IDENTITY_READ: &str = include_str!("identity_read.sql");
const PARTITION_LOCK: &str = include_str!("partition_lock.sql");
const FENCE_OPEN: &str = include_str!("fence_open.sql");
const OWNER_RAISE: &str = include_str!("owner_raise.sql");
const FOLD_GROUP: &str = include_str!("fold_group.sql");
const CHANGED_VIDEOS: &str = include_str!("changed_videos.sql");
const BUCKET_SUMS: &str = include_str!("bucket_sums.sql");
const RECEIPT_TRIM: &str = include_str!("receipt_trim.sql");
const VIDEO_DESCRIBE: &str = include_str!("video_describe.sql");

pub(super) const STATEMENTS: &[&str] = &[
    IDENTITY_ADD,
    IDENTITY_READ,
    PARTITION_LOCK,
    FENCE_OPEN,
    OWNER_RAISE,
    FOLD_GROUP,
    CHANGED_VIDEOS,
    BUCKET_SUMS,
    RECEIPT_TRIM,
    VIDEO_DESCRIBE,
];

/// Receipts dropped by one statement, and statements in one go: more than are written between two goes, and no long lock.
const TRIM_ROWS_MAX: i64 = 1_000;
const TRIM_ROUNDS_MAX: usize = 20;

/// What every group of a projection carries besides its messages.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Projection generation.
    pub generation: i32,
    /// Its bucket space.
    pub bucket_space: i32,
    /// The lane the messages came from.
    pub lane: &'a str,
    /// Epoch of the lane's lease.
    pub owner_epoch: i64,
}

/// What became of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Folded and committed.
    Applied {
        /// Relation rows written; those met at an equal or higher version are not among them.
        relations: u32,
        /// Bucket rows written.
        buckets: u32,
        /// Those of them that are quarantined.
        quarantined: u32,
    },
    /// This very group was committed before; nothing was done.
    Replay,
    /// A newer owner of the lane was seen here; nothing was done.
    Fenced,
    /// A bucket may not be written here under its route epoch; nothing was done.
    RouteMismatch,
}

/// One virtual bucket of one video, beside the relations it claims to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Its number.
    pub vbucket: u32,
    /// The stored parts.
    pub parts: Parts,
    /// Grows with each write.
    pub version: u64,
    /// Last write; none when only relations were found.
    pub updated_at: Option<OffsetDateTime>,
    /// LIKED relations.
    pub liked_relations: u64,
}

/// A partition this process can reach.
pub struct Partition {
    name: String,
    lock_key: i32,
    pool: Pool,
}

impl Partition {
    pub(super) fn new(name: &str, pool: Pool) -> Result<Self, Error> {
        let number = name.strip_prefix('p').and_then(|digits| digits.parse().ok());
        let lock_key = number.ok_or_else(|| Error::Stored(format!("{name:?} is no name of a partition")))?;
        Ok(Self { name: name.to_owned(), lock_key, pool })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives a new partition its identity and reads it back: its name and its random id.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn identity(&self, drawn: Uuid) -> Result<(String, Uuid), Error> {
        const DOING: &str = "read the identity of a partition";
        let client = connection(&self.pool, DOING).await?;
        query_on(&client, DOING, IDENTITY_ADD, &[&self.name, &drawn]).await?;
        let rows = query_on(&client, DOING, IDENTITY_READ, &[]).await?;
        let row = rows.first().ok_or_else(|| Error::Stored(format!("partition {} has no identity", self.name)))?;
        Ok((column(row, 0, DOING)?, column(row, 1, DOING)?))
    }

    /// Opens fences of buckets that have none here.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn open_fences(&self, generation: i32, fences: &[(u32, u64)]) -> Result<(), Error> {
        const DOING: &str = "open fences";
        let vbuckets: Vec<i32> = fences.iter().map(|fence| integer(fence.0)).collect();
        let epochs: Vec<i64> = fences.iter().map(|fence| bigint(fence.1)).collect();
        self.exclusively(DOING, FENCE_OPEN, &[&generation, &vbuckets, &epochs]).await?;
        Ok(())
    }

    /// Raises the owner of a lane. Returns `false` when a newer one is known. Groups of older owners that are in flight
    /// have ended when this returns, and later ones are refused.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or groups in flight hold the lock for too long.
    pub async fn raise_owner(&self, generation: i32, lane: &str, owner_epoch: i64) -> Result<bool, Error> {
        const DOING: &str = "fence older owners of a lane";
        let rows = self.exclusively(DOING, OWNER_RAISE, &[&generation, &lane, &owner_epoch]).await?;
        let highest: i64 = rows.first().map_or(Ok(owner_epoch), |row| column(row, 0, DOING))?;
        Ok(highest == owner_epoch)
    }

    /// Runs one statement while no group is in flight.
    async fn exclusively(
        &self,
        doing: &'static str,
        sql: &str,
        parameters: super::Parameters<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        let failed = |source| Error::Postgres { doing, source };
        let mut client = connection(&self.pool, doing).await?;
        let transaction = client.transaction().await.map_err(failed)?;
        query_on(&transaction, doing, PARTITION_LOCK, &[&lock::PARTITION, &self.lock_key]).await?;
        let rows = query_on(&transaction, doing, sql, parameters).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(rows)
    }

    /// Folds one group in one transaction.
    ///
    /// # Errors
    /// When PostgreSQL does not answer or refuses a value. The group may then be committed or not; it is sent again.
    pub async fn fold(&self, writer: &Writer<'_>, group: &Group<'_>) -> Result<Outcome, Error> {
        const DOING: &str = "fold a group";
        let mut client = connection(&self.pool, DOING).await?;
        // One statement is one transaction and one flight. Only a test that kills between the work and its commit needs them apart.
        if crash::armed("projector.before_commit") {
            let failed = |source| Error::Postgres { doing: DOING, source };
            let transaction = client.transaction().await.map_err(failed)?;
            let outcome = self.fold_on(&transaction, writer, group).await?;
            crash_point!("projector.before_commit");
            transaction.commit().await.map_err(failed)?;
            return Ok(outcome);
        }
        self.fold_on(&client, writer, group).await
    }

    async fn fold_on(
        &self,
        client: &impl deadpool_postgres::GenericClient,
        writer: &Writer<'_>,
        group: &Group<'_>,
    ) -> Result<Outcome, Error> {
        const DOING: &str = "fold a group";
        let messages = &group.messages;
        let relations = &group.relations;
        let epoch = messages.first().map_or(0, |message| integer(message.offset.epoch));
        let offsets: Vec<i64> = messages.iter().map(|message| bigint(message.offset.seq)).collect();
        let event_ids: Vec<Uuid> = messages.iter().map(|message| message.event_id).collect();
        let agree = messages.iter().all(|message| message.source_seq == message.offset.seq);
        let source_seqs: Option<Vec<i64>> =
            (!agree).then(|| messages.iter().map(|message| bigint(message.source_seq)).collect());
        let fenced: Vec<i32> = group.fences.iter().map(|fence| integer(fence.0)).collect();
        let epochs: Vec<i64> = group.fences.iter().map(|fence| bigint(fence.1)).collect();
        let videos: Vec<&str> = relations.iter().map(|placed| placed.change.video.as_str()).collect();
        let users: Vec<&str> = relations.iter().map(|placed| placed.change.user.as_str()).collect();
        let vbuckets: Vec<i32> = relations.iter().map(|placed| integer(placed.vbucket)).collect();
        let versions: Vec<i64> = relations.iter().map(|placed| placed.change.version).collect();
        let states: Vec<i16> = relations.iter().map(|placed| placed.change.state.code()).collect();
        let Writer { generation, bucket_space, lane, owner_epoch } = writer;
        let rows = query_on(
            client,
            DOING,
            FOLD_GROUP,
            &[
                &lock::PARTITION,
                &self.lock_key,
                generation,
                bucket_space,
                lane,
                owner_epoch,
                &epoch,
                &offsets,
                &event_ids,
                &source_seqs,
                &fenced,
                &epochs,
                &videos,
                &users,
                &vbuckets,
                &versions,
                &states,
            ],
        )
        .await?;
        let row = rows.first().ok_or_else(|| Error::Stored("the fold gave no outcome".to_owned()))?;
        let count = |index| column(row, index, DOING).map(|count: i32| u32::try_from(count).unwrap_or(0));
        match column::<&str>(row, 0, DOING)? {
            "APPLIED" => Ok(Outcome::Applied { relations: count(1)?, buckets: count(2)?, quarantined: count(3)? }),
            "REPLAY" => Ok(Outcome::Replay),
            "FENCED" => Ok(Outcome::Fenced),
            "ROUTE_MISMATCH" => Ok(Outcome::RouteMismatch),
            other => Err(Error::Stored(format!("the fold gave the unknown outcome {other:?}"))),
        }
    }

    /// Videos whose buckets were written by groups with offsets in `from..to`, with the number of bucket writes.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn changed(&self, generation: i32, from: &Vector, to: &Vector) -> Result<Vec<(VideoId, u64)>, Error> {
        const DOING: &str = "read receipts";
        let spans: Vec<(&str, Offset, Offset)> =
            to.iter().map(|(lane, next)| (lane, from.next(lane), next)).filter(|(_, from, to)| from < to).collect();
        let lanes: Vec<&str> = spans.iter().map(|span| span.0).collect();
        let (from_epochs, from_offsets): (Vec<i32>, Vec<i64>) =
            spans.iter().map(|span| (integer(span.1.epoch), bigint(span.1.seq))).unzip();
        let (to_epochs, to_offsets): (Vec<i32>, Vec<i64>) =
            spans.iter().map(|span| (integer(span.2.epoch), bigint(span.2.seq))).unzip();
        let rows = query(
            &self.pool,
            DOING,
            CHANGED_VIDEOS,
            &[&generation, &lanes, &from_epochs, &from_offsets, &to_epochs, &to_offsets],
        )
        .await?;
        rows.iter().map(|row| Ok((video(row, DOING)?, number(column(row, 1, DOING)?)))).collect()
    }

    /// Sums of some videos over the buckets this partition owns; videos without a row are left out.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn sums(
        &self,
        generation: i32,
        videos: &[&str],
        owned_bits: &[u8],
    ) -> Result<Vec<(VideoId, Parts)>, Error> {
        const DOING: &str = "sum buckets";
        let rows = query(&self.pool, DOING, BUCKET_SUMS, &[&generation, &videos, &owned_bits]).await?;
        rows.iter()
            .map(|row| {
                let parts = Parts {
                    raw: column(row, 1, DOING)?,
                    risk_hidden: column(row, 2, DOING)?,
                    policy_hidden: column(row, 3, DOING)?,
                    approximate: column(row, 4, DOING)?,
                };
                Ok((video(row, DOING)?, parts))
            })
            .collect()
    }

    /// The buckets of one video, each beside its LIKED relations, at one moment.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn describe(&self, generation: i32, video: &VideoId) -> Result<Vec<Bucket>, Error> {
        const DOING: &str = "describe a video";
        let rows = query(&self.pool, DOING, VIDEO_DESCRIBE, &[&generation, &video.as_str()]).await?;
        rows.iter()
            .map(|row| {
                let vbucket: i32 = column(row, 0, DOING)?;
                Ok(Bucket {
                    vbucket: u32::try_from(vbucket).unwrap_or(u32::MAX),
                    parts: Parts {
                        raw: column(row, 1, DOING)?,
                        risk_hidden: column(row, 2, DOING)?,
                        policy_hidden: column(row, 3, DOING)?,
                        approximate: false,
                    },
                    version: number(column(row, 4, DOING)?),
                    updated_at: column(row, 5, DOING)?,
                    liked_relations: number(column(row, 6, DOING)?),
                })
            })
            .collect()
    }

    /// Drops receipts of a lane below `next` that were applied before a moment, the oldest first, a bounded number of them.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn trim_receipts(
        &self,
        generation: i32,
        lane: &str,
        next: Offset,
        before: OffsetDateTime,
    ) -> Result<(), Error> {
        let (epoch, seq) = (integer(next.epoch), bigint(next.seq));
        let parameters: super::Parameters<'_> = &[&generation, &lane, &epoch, &seq, &before, &TRIM_ROWS_MAX];
        for _ in 0..TRIM_ROUNDS_MAX {
            let dropped = execute(&self.pool, "drop receipts", RECEIPT_TRIM, parameters).await?;
            if dropped < TRIM_ROWS_MAX.unsigned_abs() {
                break;
            }
        }
        Ok(())
    }
}

fn video(row: &tokio_postgres::Row, doing: &'static str) -> Result<VideoId, Error> {
    let text: &str = column(row, 0, doing)?;
    VideoId::parse(text).map_err(|error| Error::Stored(format!("a stored video id {error}")))
}
