//! Display rows, passes, the aggregator's position, progress and quarantine.

use likewise_domain::id::VideoId;
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Error, Parameters, Store, VectorColumns, bigint, column, connection, execute, integer, number, offset, query,
    query_on,
};
use crate::display::{DisplayRow, Parts};
use crate::vector::Vector;
use likewise_domain::lane::Offset;

const QUARANTINE_ADD: &str = include_str!("quarantine_add.sql");
const QUARANTINE_OPEN: &str = include_str!("quarantine_open.sql");
const LEASE_GUARD: &str = include_str!("lease_guard.sql");
const POLL: &str = include_str!("poll.sql");
const POSITION_READ: &str = include_str!("position_read.sql");
const POSITION_WRITE: &str = include_str!("position_write.sql");
const PASS_LAST: &str = include_str!("pass_last.sql");
const PASS_BEGIN: &str = include_str!("pass_begin.sql");
const PASS_COMPLETE: &str = include_str!("pass_complete.sql");
const PASS_TRIM: &str = include_str!("pass_trim.sql");
const DISPLAY_WRITE: &str = include_str!("display_write.sql");
const DISPLAY_READ: &str = include_str!("display_read.sql");
const PROGRESS_READ: &str = include_str!("progress_read.sql");

pub(super) const METADATA: &[&str] = &[
    QUARANTINE_ADD,
    QUARANTINE_OPEN,
    LEASE_GUARD,
    POLL,
    POSITION_READ,
    POSITION_WRITE,
    PASS_LAST,
    PASS_BEGIN,
    PASS_COMPLETE,
    PASS_TRIM,
    DISPLAY_WRITE,
    DISPLAY_READ,
    PROGRESS_READ,
];

/// A message that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its place in the lane.
    pub offset: Offset,
    /// Event id of the header.
    pub event_id: Uuid,
    /// Schema name of the header.
    pub schema: String,
    /// Its bytes.
    pub payload: Vec<u8>,
    /// What is wrong with it.
    pub reason: String,
}

/// Who aggregates, and under which lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Projection generation.
    pub generation: i32,
    /// Slice of videos.
    pub slice: i32,
    /// Name of the lease.
    pub lease: String,
    /// Its epoch.
    pub epoch: i64,
}

/// One pass with what it writes.
#[derive(Debug)]
pub struct PassWrite<'a> {
    /// Number of the pass.
    pub pass: i64,
    /// The vector it was begun with.
    pub vector: &'a Vector,
    /// When its sums were read.
    pub at: OffsetDateTime,
    /// The sums.
    pub rows: &'a [(VideoId, Parts)],
    /// Highest pass that an earlier owner began; such passes are never completed.
    pub begun_before: i64,
    /// The last pass that is complete once these rows are written, if there is a new one.
    pub completes: Option<i64>,
}

/// A pass and its vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Number of the pass; 0 before the first.
    pub pass: i64,
    /// What is included.
    pub vector: Vector,
}

/// How far the counts have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProgress {
    /// What every durable row covers.
    pub rows: Reached,
    /// What every durable row and every Redis view covers.
    pub both: Reached,
    /// A quarantine row is open: the generation is known to lack something.
    pub incomplete: bool,
}

impl Store {
    /// Keeps messages that could not be understood. Repeats change nothing.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn quarantine(&self, generation: i32, lane: &str, messages: &[Unreadable]) -> Result<(), Error> {
        let epochs: Vec<i32> = messages.iter().map(|message| integer(message.offset.epoch)).collect();
        let offsets: Vec<i64> = messages.iter().map(|message| bigint(message.offset.seq)).collect();
        let ids: Vec<Uuid> = messages.iter().map(|message| message.event_id).collect();
        let schemas: Vec<&str> = messages.iter().map(|message| message.schema.as_str()).collect();
        let payloads: Vec<&[u8]> = messages.iter().map(|message| message.payload.as_slice()).collect();
        let reasons: Vec<&str> = messages.iter().map(|message| message.reason.as_str()).collect();
        query(
            &self.metadata,
            "quarantine messages",
            QUARANTINE_ADD,
            &[&generation, &lane, &epochs, &offsets, &ids, &schemas, &payloads, &reasons],
        )
        .await?;
        Ok(())
    }

    /// Open quarantine rows of one lane.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn quarantined(&self, generation: i32, lane: &str) -> Result<u64, Error> {
        const DOING: &str = "count quarantined messages";
        let rows = query(&self.metadata, DOING, QUARANTINE_OPEN, &[&generation, &lane]).await?;
        rows.first().map_or(Ok(0), |row| column(row, 0, DOING).map(number))
    }

    /// Durable checkpoints of a projection and the manifest its buckets are routed by, as of one moment.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or the generation is gone.
    pub async fn poll(&self, generation: i32, projection: &str) -> Result<(Option<i64>, Vector), Error> {
        const DOING: &str = "read checkpoints";
        let rows = query(&self.metadata, DOING, POLL, &[&generation, &projection]).await?;
        let Some(first) = rows.first() else {
            return Err(Error::Stored(format!("there is no generation {generation}")));
        };
        let manifest = column(first, 0, DOING)?;
        let mut lanes = Vec::new();
        for row in &rows {
            if let Some(lane) = column::<Option<String>>(row, 1, DOING)? {
                lanes.push((lane, offset(column(row, 2, DOING)?, column(row, 3, DOING)?)));
            }
        }
        Ok((manifest, lanes.into_iter().collect()))
    }

    /// Up to where rows and views of the slice are written, and the highest pass begun.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn resume(&self, holder: &Holder) -> Result<Reached, Error> {
        const DOING: &str = "read the position of the aggregator";
        let client = connection(&self.metadata, DOING).await?;
        let rows = query_on(&client, DOING, POSITION_READ, &[&holder.generation, &holder.slice]).await?;
        let mut lanes = Vec::new();
        for row in &rows {
            lanes.push((column(row, 0, DOING)?, offset(column(row, 1, DOING)?, column(row, 2, DOING)?)));
        }
        let rows = query_on(&client, DOING, PASS_LAST, &[&holder.generation, &holder.slice]).await?;
        let pass = rows.first().map_or(Ok(0), |row| column(row, 0, DOING))?;
        Ok(Reached { pass, vector: lanes.into_iter().collect() })
    }

    /// Writes a pass and its rows in one transaction, guarded by the lease.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when another process aggregates; otherwise when PostgreSQL does not answer.
    pub async fn write_pass(&self, holder: &Holder, write: &PassWrite<'_>) -> Result<(), Error> {
        const DOING: &str = "write display rows";
        let failed = |source| Error::Postgres { doing: DOING, source };
        let mut client = connection(&self.metadata, DOING).await?;
        let transaction = client.transaction().await.map_err(failed)?;
        guard(&transaction, holder).await?;
        let VectorColumns { lanes, epochs, next_offsets } = VectorColumns::of(write.vector);
        let (Holder { generation, slice, .. }, PassWrite { pass, rows, at, .. }) = (holder, write);
        let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        query_on(
            &transaction,
            DOING,
            PASS_BEGIN,
            &[generation, slice, pass, &lanes, &epochs, &next_offsets, &count, at],
        )
        .await?;
        if !rows.is_empty() {
            let videos: Vec<&str> = rows.iter().map(|row| row.0.as_str()).collect();
            let raw: Vec<i64> = rows.iter().map(|row| row.1.raw).collect();
            let risk: Vec<i64> = rows.iter().map(|row| row.1.risk_hidden).collect();
            let policy: Vec<i64> = rows.iter().map(|row| row.1.policy_hidden).collect();
            let approximate: Vec<bool> = rows.iter().map(|row| row.1.approximate).collect();
            query_on(
                &transaction,
                DOING,
                DISPLAY_WRITE,
                &[generation, pass, at, &videos, &raw, &risk, &policy, &approximate],
            )
            .await?;
        }
        if let Some(completes) = write.completes {
            let parameters: Parameters<'_> = &[generation, slice, &write.begun_before, &completes];
            query_on(&transaction, DOING, PASS_COMPLETE, parameters).await?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Advances the position: rows and views are written up to there.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when another process aggregates; otherwise when PostgreSQL does not answer.
    pub async fn advance(&self, holder: &Holder, pass: i64, vector: &Vector) -> Result<(), Error> {
        const DOING: &str = "advance the position of the aggregator";
        let failed = |source| Error::Postgres { doing: DOING, source };
        let mut client = connection(&self.metadata, DOING).await?;
        let transaction = client.transaction().await.map_err(failed)?;
        guard(&transaction, holder).await?;
        let VectorColumns { lanes, epochs, next_offsets } = VectorColumns::of(vector);
        let (generation, slice) = (&holder.generation, &holder.slice);
        query_on(&transaction, DOING, POSITION_WRITE, &[generation, slice, &pass, &lanes, &epochs, &next_offsets])
            .await?;
        transaction.commit().await.map_err(failed)
    }

    /// Forgets at most `limit` passes begun before a moment, never the last completed one.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn trim_passes(&self, holder: &Holder, before: OffsetDateTime, limit: i64) -> Result<(), Error> {
        let (generation, slice) = (&holder.generation, &holder.slice);
        execute(&self.metadata, "drop old passes", PASS_TRIM, &[generation, slice, &before, &limit]).await?;
        Ok(())
    }

    /// Display rows in the order asked; `None` where there is none.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn display_rows(&self, generation: i32, videos: &[VideoId]) -> Result<Vec<Option<DisplayRow>>, Error> {
        let ids: Vec<&str> = videos.iter().map(VideoId::as_str).collect();
        let rows = query(&self.metadata, "read display rows", DISPLAY_READ, &[&generation, &ids]).await?;
        display_of(&rows, videos)
    }

    /// Progress and then, on the same connection and in one flight, display rows: the rows cover what the progress says.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn progress_then_rows(
        &self,
        generation: i32,
        slice: i32,
        videos: &[VideoId],
    ) -> Result<(StoredProgress, Vec<Option<DisplayRow>>), Error> {
        const DOING: &str = "read progress and display rows";
        let failed = |source| Error::Postgres { doing: DOING, source };
        let client = connection(&self.metadata, DOING).await?;
        let progress = client.prepare_cached(PROGRESS_READ).await.map_err(failed)?;
        let display = client.prepare_cached(DISPLAY_READ).await.map_err(failed)?;
        let ids: Vec<&str> = videos.iter().map(VideoId::as_str).collect();
        let of_slice: Parameters<'_> = &[&generation, &slice];
        let of_videos: Parameters<'_> = &[&generation, &ids];
        // A connection answers requests in the order in which they are sent, and both are sent when first polled.
        let asked = tokio::try_join!(biased; client.query(&progress, of_slice), client.query(&display, of_videos));
        let (progress, rows) = asked.map_err(failed)?;
        Ok((progress_of(&progress)?, display_of(&rows, videos)?))
    }

    /// How far the counts have come.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn progress(&self, generation: i32, slice: i32) -> Result<StoredProgress, Error> {
        progress_of(&query(&self.metadata, "read progress", PROGRESS_READ, &[&generation, &slice]).await?)
    }
}

/// Ends here when the lease went to somebody else; otherwise nobody can take it before the transaction ends.
async fn guard(transaction: &deadpool_postgres::Transaction<'_>, holder: &Holder) -> Result<(), Error> {
    let rows = query_on(transaction, "guard the lease", LEASE_GUARD, &[&holder.lease, &holder.epoch]).await?;
    if rows.is_empty() { Err(Error::LeaseLost) } else { Ok(()) }
}

fn display_of(rows: &[Row], videos: &[VideoId]) -> Result<Vec<Option<DisplayRow>>, Error> {
    const DOING: &str = "read display rows";
    rows.iter()
        .zip(videos)
        .map(|(row, video)| {
            let Some(raw) = column::<Option<i64>>(row, 0, DOING)? else { return Ok(None) };
            Ok(Some(DisplayRow {
                video: video.clone(),
                parts: Parts {
                    raw,
                    risk_hidden: column(row, 1, DOING)?,
                    policy_hidden: column(row, 2, DOING)?,
                    approximate: column(row, 3, DOING)?,
                },
                pass: column(row, 4, DOING)?,
                generated_at: column(row, 5, DOING)?,
            }))
        })
        .collect()
}

fn progress_of(rows: &[Row]) -> Result<StoredProgress, Error> {
    const DOING: &str = "read progress";
    let row = rows.first().ok_or_else(|| Error::Stored("progress has one row".to_owned()))?;
    let reached = |at: usize| {
        let columns = VectorColumns {
            lanes: column::<Option<_>>(row, at + 1, DOING)?.unwrap_or_default(),
            epochs: column::<Option<_>>(row, at + 2, DOING)?.unwrap_or_default(),
            next_offsets: column::<Option<_>>(row, at + 3, DOING)?.unwrap_or_default(),
        };
        let pass = column::<Option<i64>>(row, at, DOING)?.unwrap_or(0);
        Ok::<Reached, Error>(Reached { pass, vector: columns.vector() })
    };
    Ok(StoredProgress { rows: reached(0)?, both: reached(4)?, incomplete: column(row, 8, DOING)? })
}
