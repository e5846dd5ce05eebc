//! The services' own statements on connections of our own: what PostgreSQL does without a service before it.

use std::fs;

use anyhow::{Context, Result, bail};
use likewise_devstack::{TestDatabase, workspace};
use time::OffsetDateTime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::mix::{Kind, Planned};

/// Schema of a relation shard, as the command service makes it.
pub(crate) fn relation_schema(shard: usize) -> String {
    format!("relation_{shard:02}")
}

/// A statement of a service, read from its file.
pub(crate) fn statement_of(path: &str) -> Result<String> {
    let path = workspace().join("services").join(path);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// A connection into one schema.
pub(crate) async fn connect(database: &TestDatabase, schema: &str) -> Result<Client> {
    let client = database.connect().await?;
    client.batch_execute(&format!("set search_path to {schema}")).await?;
    Ok(client)
}

/// Writes batches of commands into one relation shard.
pub(crate) struct Writer {
    client: Client,
    apply: Statement,
}

/// A batch, ready to be sent.
#[derive(Default)]
pub(crate) struct Batch {
    users: Vec<String>,
    operations: Vec<String>,
    dated: Vec<Option<OffsetDateTime>>,
    videos: Vec<String>,
    states: Vec<i16>,
}

impl Batch {
    /// Adds a like or, with state 2, an unlike.
    pub(crate) fn push(&mut self, user: String, video: String, state: i16, operation: Uuid) {
        let (seconds, nanos) = operation.get_timestamp().map_or((0, 0), |timestamp| timestamp.to_unix());
        let told = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        self.users.push(user);
        self.videos.push(video);
        self.states.push(state);
        self.operations.push(operation.to_string());
        self.dated.push(OffsetDateTime::from_unix_timestamp_nanos(told).ok());
    }

    /// A batch of the mix; its people and videos carry `prefix`.
    pub(crate) fn of(planned: &[Planned], prefix: &str) -> Self {
        let mut batch = Self::default();
        for Planned { kind, user, video, operation } in planned {
            let state = if *kind == Kind::Unlike { 2 } else { 1 };
            batch.push(format!("{prefix}user-{user:06}"), format!("{prefix}video-{video:06}"), state, *operation);
        }
        batch
    }

    /// Commands in it.
    pub(crate) fn len(&self) -> usize {
        self.users.len()
    }
}

impl Writer {
    /// Prepares the command service's statement.
    pub(crate) async fn open(database: &TestDatabase, shard: usize) -> Result<Self> {
        let client = connect(database, &relation_schema(shard)).await?;
        let apply = client.prepare(&statement_of("command/src/store/apply_commands.sql")?).await?;
        Ok(Self { client, apply })
    }

    /// Applies one batch in one transaction and answers how many commands were new changes. It leaves in one flight, as
    /// it does in the service.
    pub(crate) async fn apply(&self, batch: &Batch) -> Result<usize> {
        let len = batch.len();
        let (bases, devices): (Vec<Option<i64>>, Vec<Option<&[u8]>>) = (vec![None; len], vec![None; len]);
        let (zeros, users_own, sequences): (Vec<i16>, Vec<i16>, Vec<Option<i64>>) =
            (vec![0; len], vec![1; len], vec![None; len]);
        let (window_us, age_us, ahead_us) = (60_000_000_i64, 13 * 86_400_000_000_i64, 3_600_000_000_i64);
        let parameters: [&(dyn ToSql + Sync); 17] = [
            &1_i32,
            &1_i32,
            &batch.users,
            &batch.operations,
            &batch.dated,
            &batch.videos,
            &batch.states,
            &bases,
            &zeros,
            &users_own,
            &sequences,
            &devices,
            &false,
            &30_i32,
            &window_us,
            &age_us,
            &ahead_us,
        ];
        let (begun, rows, committed) = futures::join!(
            self.client.batch_execute("begin isolation level read committed"),
            self.client.query(&self.apply, &parameters),
            self.client.batch_execute("commit"),
        );
        begun?;
        let rows = rows?;
        committed?;
        let mut changed = 0;
        for row in &rows {
            let (known, outcome): (bool, i16) = (row.try_get(1)?, row.try_get(2)?);
            if outcome > 2 {
                bail!("a command of the mix was told outcome {outcome}");
            }
            changed += usize::from(!known && outcome == 1);
        }
        Ok(changed)
    }
}
