//! Every relation of one shard from one snapshot, and where the shard stands.

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::relation::{Hidden, HiddenReasons, LikeState, effective_version};
use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use tokio_postgres::{Client, IsolationLevel, Row};
use uuid::Uuid;

use super::{Error, doing, epoch, state, unsigned};

const WATERMARK: &str = include_str!("shard_watermark.sql");
const SETTINGS: &str = include_str!("scan_settings.sql");
const SCAN: &str = include_str!("scan.sql");
/// Rows of one part.
pub const PART_ROWS: i32 = 1_000;

/// Where a shard stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    /// Epoch.
    pub epoch: u32,
    /// Random id of this copy of the shard.
    pub incarnation: Uuid,
    /// Highest committed number.
    pub committed: u64,
    /// SERVING, REPAIRING or MOVED.
    pub status: String,
    /// Until when a write barrier stands.
    pub barrier_until: Option<OffsetDateTime>,
    /// The database's clock.
    pub now: OffsetDateTime,
}

/// One relation, both axes, at effective versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// The user.
    pub user_id: UserId,
    /// The video.
    pub video_id: VideoId,
    /// State.
    pub state: LikeState,
    /// Version.
    pub version: u64,
    /// When it entered the state.
    pub state_changed_at: OffsetDateTime,
    /// The second axis.
    pub hidden: Hidden,
    /// Last change of the state.
    pub state_at: Offset,
    /// Last change of the second axis; number 0 for never.
    pub hidden_at: Offset,
}

/// What goes out of a scan, in this order: a watermark, rows, nothing more. A receiver that goes away ends the scan.
pub trait Sink {
    /// The snapshot.
    fn begin(&mut self, watermark: Watermark) -> impl Future<Output = Result<(), Gone>> + Send;
    /// Some rows.
    fn rows(&mut self, rows: Vec<Scanned>) -> impl Future<Output = Result<(), Gone>> + Send;
}

/// The receiver went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Where the shard stands now.
///
/// # Errors
/// When the shard does not answer.
pub async fn watermark(pool: &Pool) -> Result<Watermark, Error> {
    let what = "read the shard's watermark";
    let found = super::rows(pool, WATERMARK, &[], what).await?;
    stood(found.first().ok_or_else(|| Error::Stored("the shard says nothing about itself".to_owned()))?)
}

/// Reads the whole shard on a connection of its own. A batch of the shard commits before the next begins, so a snapshot holds
/// exactly the changes up to its highest number.
///
/// # Errors
/// When the shard does not answer; what was sent until then is no whole scan.
pub async fn scan(mut client: Client, sink: &mut (impl Sink + Send)) -> Result<(), Error> {
    let what = "scan the relations";
    let begun =
        client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true).start().await;
    let transaction = begun.map_err(doing(what))?;
    transaction.batch_execute(SETTINGS).await.map_err(doing(what))?;
    let statement = transaction.prepare(SCAN).await.map_err(doing(what))?;
    // The first statement that reads takes the snapshot for all.
    let watermark = stood(&transaction.query_one(WATERMARK, &[]).await.map_err(doing(what))?)?;
    let of = watermark.epoch;
    if sink.begin(watermark).await.is_err() {
        return Ok(());
    }
    let portal = transaction.bind(&statement, &[]).await.map_err(doing(what))?;
    loop {
        let rows = transaction.query_portal(&portal, PART_ROWS).await.map_err(doing(what))?;
        if rows.is_empty() {
            return Ok(());
        }
        let rows = rows.iter().map(|row| scanned(row, of)).collect::<Result<Vec<_>, _>>()?;
        if sink.rows(rows).await.is_err() {
            return Ok(());
        }
    }
}

fn stood(row: &Row) -> Result<Watermark, Error> {
    let read = |error| doing("read the shard's watermark")(error);
    Ok(Watermark {
        epoch: epoch(row.try_get(0).map_err(read)?),
        incarnation: row.try_get(1).map_err(read)?,
        committed: unsigned(row.try_get(2).map_err(read)?),
        status: row.try_get(3).map_err(read)?,
        barrier_until: row.try_get(4).map_err(read)?,
        now: row.try_get(5).map_err(read)?,
    })
}

fn scanned(row: &Row, of: u32) -> Result<Scanned, Error> {
    let read = |error| doing("read a relation")(error);
    let malformed = |what: &str| Error::Stored(format!("a relation holds no {what}"));
    let effective = |stored: i64| effective_version(unsigned(stored), of);
    let at = |seq: i64, at: i32| Offset { epoch: epoch(at), seq: unsigned(seq) };
    Ok(Scanned {
        user_id: UserId::parse(row.try_get(0).map_err(read)?).map_err(|_| malformed("user id"))?,
        video_id: VideoId::parse(row.try_get(1).map_err(read)?).map_err(|_| malformed("video id"))?,
        state: state(row.try_get(2).map_err(read)?)?,
        version: effective(row.try_get(3).map_err(read)?),
        state_changed_at: row.try_get(4).map_err(read)?,
        hidden: Hidden {
            version: effective(row.try_get(5).map_err(read)?),
            reasons: HiddenReasons::from_code(row.try_get(6).map_err(read)?).ok_or_else(|| malformed("reasons"))?,
        },
        state_at: at(row.try_get(7).map_err(read)?, row.try_get(8).map_err(read)?),
        hidden_at: at(row.try_get(9).map_err(read)?, row.try_get(10).map_err(read)?),
    })
}
