//! The connection on which a shard's writer runs its batches: one flight each.

use std::time::Duration;

use likewise_domain::decide::{BasePolicy, Outcome, PolicyRefusal, Refusal, Rules, Verdict};
use likewise_domain::lane::Offset;
use likewise_domain::operation::{DATED_AGE_MAX, DATED_AHEAD_MAX};
use likewise_kit::crash_point;
use likewise_kit::pg::{self, FailureKind};
use time::OffsetDateTime;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::{chain, epoch, lock, signed, unsigned};
use crate::intent::{Answer, Current, Intent, Told};

const APPLY: &str = include_str!("apply_commands.sql");
/// The isolation in which every statement of the function takes a snapshot of its own.
const BEGIN: &str = "begin isolation level read committed";
const COMMIT: &str = "commit";
/// Raised by `expect_relations_written`.
const RELATION_VERSION_LOST: &str = "LK001";

/// Why a batch has no answers.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Another writer was faster; nothing was written. Run the batch again.
    #[error("another writer changed what the batch decided on: {0}")]
    Conflict(String),
    /// The connection is gone, or silent for too long. The batch may be committed later: run it again with the same ids
    /// on another connection.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The server refuses for now; nothing was written. Run the batch again after a pause.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The database rejects the data; nothing was written. Run the commands one by one.
    #[error("the data was rejected: {0}")]
    Rejected(String),
}

/// A connection to one shard that belongs to its writer.
pub struct Connection {
    client: Client,
    apply: Statement,
    shard: u16,
    flight_timeout: Duration,
}

impl Connection {
    /// Takes over a connection whose `search_path` is the shard's schema.
    ///
    /// # Errors
    /// When the statement cannot be prepared.
    pub async fn new(client: Client, shard: u16, flight_timeout: Duration) -> Result<Self, super::Error> {
        let apply = client.prepare(APPLY).await.map_err(super::doing("prepare the batch statement"))?;
        Ok(Self { client, apply, shard, flight_timeout })
    }

    /// Whether the connection is known to be gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Decides and writes a batch that holds at most one intent per relation and per (user, operation id). The answers
    /// come back in the order of the intents, after the commit.
    ///
    /// # Errors
    /// [`Failure`] says what to do.
    pub async fn apply(&self, intents: &[&Intent], rules: &Rules) -> Result<Vec<Answer>, Failure> {
        let flight = self.flight(intents, rules);
        let silent = |_| Failure::Lost("no answer in time".to_owned());
        let rows =
            tokio::time::timeout(self.flight_timeout, flight).await.map_err(silent)?.map_err(|error| sort(&error))?;
        let answers: Result<Vec<Answer>, Failure> = rows
            .iter()
            .zip(intents)
            .map(|(row, intent)| answer(row, intent).map_err(|error| Failure::Rejected(chain(&*error))))
            .collect();
        let answers = answers?;
        if answers.len() == intents.len() {
            return Ok(answers);
        }
        Err(Failure::Rejected(format!("{} answers for {} commands", answers.len(), intents.len())))
    }

    async fn flight(&self, intents: &[&Intent], rules: &Rules) -> Result<Vec<Row>, tokio_postgres::Error> {
        let columns = Columns::of(intents);
        let last_commit_wins = rules.base == BasePolicy::LastCommitWins;
        let transitions_max = i32::try_from(rules.transitions_max).unwrap_or(i32::MAX);
        let (window, age, ahead) =
            (microseconds(rules.transition_window), microseconds(DATED_AGE_MAX), microseconds(DATED_AHEAD_MAX));
        let shard = i32::from(self.shard);
        let parameters: [&(dyn ToSql + Sync); 17] = [
            &lock::SHARD,
            &shard,
            &columns.users,
            &columns.operations,
            &columns.dated,
            &columns.videos,
            &columns.states,
            &columns.bases,
            &columns.refusals,
            &columns.causes,
            &columns.client_sequences,
            &columns.devices,
            &last_commit_wins,
            &transitions_max,
            &window,
            &age,
            &ahead,
        ];
        if likewise_kit::crash::armed("writer.before_commit") {
            return self.apart(&parameters).await;
        }
        // Polled in this order at first, so the three leave together and the server works through them without waiting
        // for us. When the function fails, the commit behind it rolls back.
        let (begun, rows, committed) = futures::join!(
            self.client.batch_execute(BEGIN),
            self.client.query(&self.apply, &parameters),
            self.client.batch_execute(COMMIT),
        );
        begun?;
        let rows = rows?;
        committed?;
        crash_point!("writer.after_commit");
        Ok(rows)
    }

    /// The same in two flights, so that a test can stop the process before the commit leaves it.
    async fn apart(&self, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.client.batch_execute(BEGIN).await?;
        let rows = self.client.query(&self.apply, parameters).await;
        crash_point!("writer.before_commit");
        self.client.batch_execute(COMMIT).await?;
        rows
    }
}

/// The batch as arrays that run in parallel.
struct Columns<'a> {
    users: Vec<&'a str>,
    operations: Vec<&'a str>,
    dated: Vec<Option<OffsetDateTime>>,
    videos: Vec<&'a str>,
    states: Vec<i16>,
    bases: Vec<Option<i64>>,
    refusals: Vec<i16>,
    causes: Vec<i16>,
    client_sequences: Vec<Option<i64>>,
    devices: Vec<Option<&'a [u8]>>,
}

impl<'a> Columns<'a> {
    fn of(intents: &[&'a Intent]) -> Self {
        let each = intents.iter();
        Self {
            users: each.clone().map(|intent| intent.user_id.as_str()).collect(),
            operations: each.clone().map(|intent| intent.operation_id.as_str()).collect(),
            dated: each.clone().map(|intent| intent.command.dated).collect(),
            videos: each.clone().map(|intent| intent.command.video_id.as_str()).collect(),
            states: each.clone().map(|intent| intent.command.desired_state.code()).collect(),
            bases: each.clone().map(|intent| intent.command.base_version.map(signed)).collect(),
            refusals: each.clone().map(|intent| i16::from(intent.command.refusal.is_some())).collect(),
            causes: each.clone().map(|intent| intent.command.cause.code()).collect(),
            client_sequences: each.clone().map(|intent| intent.client_sequence.map(u64::cast_signed)).collect(),
            devices: each.map(|intent| intent.device_hash.as_ref().map(<[u8; 16]>::as_slice)).collect(),
        }
    }
}

fn microseconds(duration: time::Duration) -> i64 {
    i64::try_from(duration.whole_microseconds()).unwrap_or(i64::MAX)
}

fn answer(row: &Row, intent: &Intent) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let code: i16 = row.try_get(2)?;
    let told = match Outcome::from_code(code) {
        Some(outcome) => {
            let (known, state, version) = (row.try_get(1)?, super::state(row.try_get(3)?)?, row.try_get(4)?);
            Told::Verdict { verdict: Verdict { outcome, state, version: unsigned(version) }, known }
        }
        None => Told::Refused(refusal(code, intent).ok_or_else(|| format!("outcome {code} is not known here"))?),
    };
    let changed_at = row.try_get(7)?;
    let retry_after: Option<i64> = row.try_get(10)?;
    Ok(Answer {
        told,
        current: Current { state: super::state(row.try_get(5)?)?, version: unsigned(row.try_get(6)?), changed_at },
        changed_in: Offset { epoch: epoch(row.try_get(8)?), seq: unsigned(row.try_get(9)?) },
        retry_after: retry_after.map(|micros| Duration::from_micros(unsigned(micros))),
        now: row.try_get(11)?,
    })
}

fn refusal(code: i16, intent: &Intent) -> Option<Refusal> {
    let policy = Refusal::Policy(intent.command.refusal.unwrap_or(PolicyRefusal::AuthorityUnavailable));
    let refusals = [Refusal::OperationIdReused, Refusal::ShardClosed, Refusal::OperationExpired, policy];
    refusals.into_iter().find(|refusal| refusal.code() == code)
}

fn sort(error: &tokio_postgres::Error) -> Failure {
    let text = chain(error);
    let Some(code) = error.code() else { return Failure::Lost(text) };
    // Keys of ours collide only when another writer was faster; the ids of a batch differ among themselves.
    if code.code() == RELATION_VERSION_LOST || *code == SqlState::UNIQUE_VIOLATION {
        return Failure::Conflict(text);
    }
    let severed = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
    if severed.contains(code) || code.code().starts_with("08") || code.code() == "25P03" {
        return Failure::Lost(text);
    }
    if lacks_partition(error) {
        return Failure::Refused(text);
    }
    match pg::failure_kind(error) {
        FailureKind::Retry => Failure::Conflict(text),
        FailureKind::Unavailable => Failure::Refused(text),
        FailureKind::Data | FailureKind::Bug => Failure::Rejected(text),
    }
}

/// A row found no partition: the maintenance has fallen behind, and the data is not at fault.
fn lacks_partition(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| {
        *error.code() == SqlState::CHECK_VIOLATION && error.constraint().is_none() && error.table().is_some()
    })
}
