//! The ledger of risk acts: who asked for what, who approved it, how far it is. One schema for all shards.

use std::time::Duration;

use likewise_domain::id::{UserId, VideoId};
use likewise_evolution::Migration;
use likewise_kit::pg::{self, Pool, Servers};
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

use super::risk::Figures;
use super::{Error, doing, rows, signed, unsigned};
use crate::config::Settings;
use crate::risk::{ActKind, ActStatus, Target};

const INSERT: &str = include_str!("ledger/act_insert.sql");
const GET: &str = include_str!("ledger/act_get.sql");
const LIST: &str = include_str!("ledger/act_list.sql");
const TARGETS: &str = include_str!("ledger/act_targets.sql");
const DECIDE: &str = include_str!("ledger/act_decide.sql");
const CLAIM: &str = include_str!("ledger/act_claim.sql");
const BEFORE: &str = include_str!("ledger/act_before.sql");
const TARGET_DONE: &str = include_str!("ledger/act_target_done.sql");
const APPLIED: &str = include_str!("ledger/act_applied.sql");

/// Schema of the ledger.
pub const SCHEMA: &str = "command_ledger";

/// Its migrations, in order.
pub const MIGRATIONS: &[Migration] =
    &[Migration { name: "V0001__risk_acts", sql: include_str!("../../migrations/ledger/V0001__risk_acts.sql") }];

/// An act as it is asked for.
#[derive(Debug, Clone)]
pub struct NewAct {
    /// Drawn by the caller.
    pub act_id: Uuid,
    /// What it does.
    pub kind: ActKind,
    /// How it begins.
    pub status: ActStatus,
    /// Why.
    pub reason: String,
    /// What shows it.
    pub evidence: String,
    /// Who asks.
    pub requester: String,
    /// Until when it freezes.
    pub until: Option<OffsetDateTime>,
    /// The act it undoes.
    pub restores: Option<Uuid>,
    /// Whom or what it is about.
    pub targets: Vec<Target>,
}

/// An act as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// Its id.
    pub act_id: Uuid,
    /// What it does.
    pub kind: ActKind,
    /// How far it is.
    pub status: ActStatus,
    /// Why.
    pub reason: String,
    /// What shows it.
    pub evidence: String,
    /// Who asked.
    pub requester: String,
    /// Who decided.
    pub approver: String,
    /// Targets, and those that are done.
    pub targets: (u32, u32),
    /// Until when it freezes.
    pub until: Option<OffsetDateTime>,
    /// The act it undoes.
    pub restores: Option<Uuid>,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// When it was carried out.
    pub applied_at: Option<OffsetDateTime>,
    /// Figures when it began.
    pub before: Option<Figures>,
    /// Figures when it was carried out.
    pub after: Option<Figures>,
}

/// A running act, for a while ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its id.
    pub act_id: Uuid,
    /// The act whose marks are written or taken back.
    pub marks_of: Uuid,
    /// What that act does.
    pub kind: ActKind,
    /// Until when it freezes.
    pub until: Option<OffsetDateTime>,
    /// The marks are taken back.
    pub takes_back: bool,
    /// No figures were taken yet.
    pub is_new: bool,
}

/// Brings the schema up to date.
///
/// # Errors
/// When the server does not answer, or holds what this build does not know.
pub async fn prepare(servers: &Servers, settings: &Settings) -> Result<(), Error> {
    let server = server(settings)?;
    let client = servers.dedicated(server, SCHEMA).await?;
    pg::check_server(&client, server).await?;
    let migrated = likewise_evolution::migrate(&client, SCHEMA, MIGRATIONS).await;
    migrated.map(drop).map_err(|error| Error::Schema(Box::new(error)))
}

/// The server that keeps the ledger: that of the first shard.
///
/// # Errors
/// When no server is configured.
pub fn server(settings: &Settings) -> Result<&str, Error> {
    super::shard::server(settings, 0)
}

/// Keeps a new act. False when its id is known, or what it undoes is being undone.
///
/// # Errors
/// When the server does not answer.
pub async fn insert(pool: &Pool, act: &NewAct) -> Result<bool, Error> {
    let what = "keep a risk act";
    let users: Vec<&str> = act.targets.iter().map(|target| target.user.as_ref().map_or("", UserId::as_str)).collect();
    let videos: Vec<&str> =
        act.targets.iter().map(|target| target.video.as_ref().map_or("", VideoId::as_str)).collect();
    let (kind, status) = (act.kind.code(), act.status.code());
    let found = rows(
        pool,
        INSERT,
        &[
            &act.act_id,
            &kind,
            &status,
            &act.reason,
            &act.evidence,
            &act.requester,
            &act.until,
            &act.restores,
            &users,
            &videos,
        ],
        what,
    )
    .await?;
    let made: i64 = found.first().map_or(Ok(0), |row| row.try_get(0)).map_err(doing(what))?;
    Ok(made == 1)
}

/// One act.
///
/// # Errors
/// When the server does not answer.
pub async fn get(pool: &Pool, act_id: Uuid) -> Result<Option<Act>, Error> {
    rows(pool, GET, &[&act_id], "read a risk act").await?.first().map(act).transpose()
}

/// Acts after a key, newest first, in one state or in any.
///
/// # Errors
/// When the server does not answer.
pub async fn list(
    pool: &Pool,
    after: Option<(OffsetDateTime, Uuid)>,
    status: Option<ActStatus>,
    limit: u32,
) -> Result<Vec<Act>, Error> {
    let (at, id) = after.unzip();
    let status = status.map_or(0, ActStatus::code);
    let found = rows(pool, LIST, &[&at, &id, &status, &i64::from(limit)], "list risk acts").await?;
    found.iter().map(act).collect()
}

/// Targets of an act in their order, each with its place and whether it is done.
///
/// # Errors
/// When the server does not answer.
pub async fn targets(pool: &Pool, act_id: Uuid) -> Result<Vec<(i32, Target, bool)>, Error> {
    let what = "read the targets of a risk act";
    let found = rows(pool, TARGETS, &[&act_id], what).await?;
    let target = |row: &Row| {
        let (user, video): (&str, &str) = (row.try_get(1).map_err(doing(what))?, row.try_get(2).map_err(doing(what))?);
        let malformed = |_| Error::Stored("a target of a risk act is no id".to_owned());
        let user = (!user.is_empty()).then(|| UserId::parse(user)).transpose().map_err(malformed)?;
        let video = (!video.is_empty()).then(|| VideoId::parse(video)).transpose().map_err(malformed)?;
        let place = row.try_get(0).map_err(doing(what))?;
        Ok((place, Target { user, video }, row.try_get(3).map_err(doing(what))?))
    };
    found.iter().map(target).collect()
}

/// Decides a proposed act; false when it no longer is one.
///
/// # Errors
/// When the server does not answer.
pub async fn decide(pool: &Pool, act_id: Uuid, status: ActStatus, approver: &str) -> Result<bool, Error> {
    let found = rows(pool, DECIDE, &[&act_id, &status.code(), &approver], "decide a risk act").await?;
    Ok(!found.is_empty())
}

/// Takes a running act, for as long as `claim`.
///
/// # Errors
/// When the server does not answer.
pub async fn claim(pool: &Pool, claim: Duration) -> Result<Option<Claimed>, Error> {
    let what = "look for risk acts";
    let millis = claim.as_secs_f64() * 1e3;
    let found = rows(pool, CLAIM, &[&millis], what).await?;
    let Some(row) = found.first() else { return Ok(None) };
    let read = |error| doing(what)(error);
    let act_id = row.try_get(0).map_err(read)?;
    let (own, undone): (i16, Option<i16>) = (row.try_get(1).map_err(read)?, row.try_get(4).map_err(read)?);
    let restores: Option<Uuid> = row.try_get(2).map_err(read)?;
    Ok(Some(Claimed {
        act_id,
        marks_of: restores.unwrap_or(act_id),
        kind: kind(undone.unwrap_or(own))?,
        until: row.try_get(3).map_err(read)?,
        takes_back: restores.is_some(),
        is_new: row.try_get(5).map_err(read)?,
    }))
}

/// Keeps the figures an act began with, once.
///
/// # Errors
/// When the server does not answer.
pub async fn begin(pool: &Pool, act_id: Uuid, figures: Figures) -> Result<(), Error> {
    let (liked, counted) = (signed(figures.liked), signed(figures.counted));
    rows(pool, BEFORE, &[&act_id, &liked, &counted], "begin a risk act").await.map(drop)
}

/// A target is written.
///
/// # Errors
/// When the server does not answer.
pub async fn target_done(pool: &Pool, act_id: Uuid, place: i32) -> Result<(), Error> {
    rows(pool, TARGET_DONE, &[&act_id, &place], "note a target of a risk act").await.map(drop)
}

/// An act is carried out.
///
/// # Errors
/// When the server does not answer.
pub async fn applied(pool: &Pool, act_id: Uuid, figures: Figures) -> Result<(), Error> {
    let (liked, counted) = (signed(figures.liked), signed(figures.counted));
    rows(pool, APPLIED, &[&act_id, &liked, &counted], "finish a risk act").await.map(drop)
}

fn kind(code: i16) -> Result<ActKind, Error> {
    ActKind::from_code(code).ok_or_else(|| Error::Stored(format!("a risk act has kind {code}")))
}

fn act(row: &Row) -> Result<Act, Error> {
    let read = |error| doing("read a risk act")(error);
    let status: i16 = row.try_get(2).map_err(read)?;
    let (targets, done): (i32, i64) = (row.try_get(7).map_err(read)?, row.try_get(8).map_err(read)?);
    let figures = |liked: Option<i64>, counted: Option<i64>| {
        Some(Figures { liked: unsigned(liked?), counted: unsigned(counted?) })
    };
    Ok(Act {
        act_id: row.try_get(0).map_err(read)?,
        kind: kind(row.try_get(1).map_err(read)?)?,
        status: ActStatus::from_code(status).ok_or_else(|| Error::Stored(format!("a risk act has status {status}")))?,
        reason: row.try_get(3).map_err(read)?,
        evidence: row.try_get(4).map_err(read)?,
        requester: row.try_get(5).map_err(read)?,
        approver: row.try_get(6).map_err(read)?,
        targets: (targets.unsigned_abs(), u32::try_from(done).unwrap_or(u32::MAX)),
        until: row.try_get(9).map_err(read)?,
        restores: row.try_get(10).map_err(read)?,
        created_at: row.try_get(11).map_err(read)?,
        applied_at: row.try_get(12).map_err(read)?,
        before: figures(row.try_get(13).map_err(read)?, row.try_get(14).map_err(read)?),
        after: figures(row.try_get(15).map_err(read)?, row.try_get(16).map_err(read)?),
    })
}
