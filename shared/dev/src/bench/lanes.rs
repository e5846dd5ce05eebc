//! Area `lanes`: from the outbox to the streams beside raw atomic batches, and from the streams to a projection beside raw
//! pulls.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use likewise_devstack::{Process, build_binary, workspace};
use likewise_kit::config::{NatsSettings, PostgresSettings};
use likewise_kit::lanes::{ApplyError, Consumer, Lane, LaneMessage, LaneSettings, Projection, Runtime};
use likewise_kit::metrics::Metrics;
use likewise_kit::{pg, run};
use tokio::sync::Notify;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::cpu::Cpu;
use super::load::rate;
use super::raw_lanes::RawLanes;
use super::sql::{Batch, Writer, connect, relation_schema};
use super::{Area, Bench, Figures, Target};
use crate::site::step;

/// Relation shards, each with a lane: the default.
const LANES: u16 = 4;
/// Commands in one transaction that fills an outbox.
const FILL: usize = 500;
/// Videos of the likes.
const VIDEOS: usize = 20_000;
/// How long a backlog may take to be published or consumed.
const BOUND: Duration = Duration::from_secs(120);
/// How often is looked how far the publisher is.
const LOOK: Duration = Duration::from_millis(5);
const STOP: Duration = Duration::from_secs(30);
/// A command process that only publishes.
const PUBLISHING: [(&str, &str); 2] =
    [("LIKEWISE__COMMAND__API", "false"), ("LIKEWISE__COMMAND__MAINTENANCE", "false")];
const PUBLISH: &str = "lanes.publish_per_s";
const PUBLISH_RAW: &str = "lanes.publish_raw_per_s";
const CONSUME: &str = "lanes.consume_per_s";
const CONSUME_RAW: &str = "lanes.consume_raw_per_s";
/// Where the consumer keeps its checkpoints.
const SCHEMA: &str = "bench_lanes";
const TABLES: &str = "shared/client/migrations/V0001__consumer.sql";

/// The area.
pub(super) const AREA: Area = Area {
    name: "lanes",
    about: "a backlog of new likes in 4 outboxes, published, then consumed by a projection that does nothing",
    run: |bench, figures| Box::pin(run(bench, figures)),
    targets: &[
        Target { figure: PUBLISH, of: PUBLISH_RAW, at_least: 0.7 },
        Target { figure: CONSUME, of: CONSUME_RAW, at_least: 0.7 },
    ],
};

async fn run(bench: &mut Bench, figures: &mut Figures) -> Result<()> {
    let command = tokio::task::spawn_blocking(|| build_binary("likewise-command", true)).await??;
    // From here on a publisher runs only while it is measured.
    let _ = bench.site.process.terminate(STOP).await?;
    let messages = if bench.is_quick { 20_000 } else { 160_000 };
    let rounds = bench.rounds();
    let raw = RawLanes::open(&bench.site.config, LANES).await?;
    let mut stage = Stage::open(bench, command).await?;

    step("warming up");
    stage.publish(messages / 4).await?;
    raw.publish(&raw.pull(messages as u64 / 4).await?.1).await?;
    for round in 0..rounds {
        let (per_s, used) = stage.publish(messages).await.with_context(|| format!("{PUBLISH}, round {}", round + 1))?;
        figures.sample(PUBLISH, per_s);
        let (per_s, taken) = raw.pull(messages as u64).await?;
        figures.sample(CONSUME_RAW, per_s);
        figures.sample(PUBLISH_RAW, raw.publish(&taken).await?);
        drop(taken);
        figures.sample(CONSUME, stage.consume(messages).await?);
        if let (0, Some(used)) = (round, used) {
            figures.note(format!("{PUBLISH}: {used}"));
        }
    }
    figures.note(format!(
        "{messages} messages per backlog in {LANES} lanes; raw: the same messages and headers in atomic batches of 500, one \
         under way per stream, on streams of the same settings; pulls of 2,000, one after the other per stream"
    ));
    figures
        .note("published: read from the outbox in PostgreSQL, with evidence; consumed: with checkpoints in PostgreSQL");
    figures.note("errors: none (a message that is missing or out of order ends the run)");
    Ok(())
}

/// What fills, what publishes, and how far it is.
struct Stage<'a> {
    bench: &'a Bench,
    command: PathBuf,
    writers: Vec<Writer>,
    outboxes: Vec<Client>,
    pool: pg::Pool,
    backlogs: usize,
    /// Last published number of each lane before the present backlog.
    before: Vec<i64>,
}

impl<'a> Stage<'a> {
    async fn open(bench: &'a Bench, command: PathBuf) -> Result<Self> {
        let database = &bench.site.config.database;
        let (mut writers, mut outboxes) = (vec![], vec![]);
        for lane in 0..LANES {
            writers.push(Writer::open(database, lane.into()).await?);
            outboxes.push(connect(database, &relation_schema(lane.into())).await?);
        }
        let tables = std::fs::read_to_string(workspace().join(TABLES)).with_context(|| format!("reading {TABLES}"))?;
        let client = database.connect().await?;
        client.batch_execute(&format!("create schema {SCHEMA}; set search_path to {SCHEMA}; {tables}")).await?;
        let limits = PostgresSettings::of("own", database.dsn().into());
        let pool = pg::Servers::new(&limits, "bench").pool("own", SCHEMA, 8)?;
        Ok(Self { bench, command, writers, outboxes, pool, backlogs: 0, before: vec![0; LANES.into()] })
    }

    /// Makes a backlog, starts a publisher, and answers how fast it published from its first evidence on.
    async fn publish(&mut self, messages: usize) -> Result<(f64, Option<String>)> {
        self.before = self.published().await?;
        self.fill(messages).await?;
        let mut command = Process::run(&self.command, &self.bench.site.config, &PUBLISHING).await?;
        let start: i64 = self.before.iter().sum();
        let whole = start + i64::try_from(messages)?;
        let bound = Instant::now() + BOUND;
        let mut first: Option<(Instant, i64, Option<Cpu>)> = None;
        let took = loop {
            let now: i64 = self.published().await?.iter().sum();
            if now > start && first.is_none() {
                first = Some((Instant::now(), now, Cpu::now(command.id())));
            }
            if now == whole {
                break first.as_ref().map(|(since, ..)| since.elapsed());
            }
            if Instant::now() > bound {
                bail!("{now} of {whole} after {BOUND:?}; command says:\n{}", command.log_tail());
            }
            tokio::time::sleep(LOOK).await;
        };
        let used = first.as_ref().and_then(|(_, _, cpu)| cpu.as_ref()?.since());
        command.terminate(STOP).await?;
        let (Some((_, from, _)), Some(took)) = (first, took) else { bail!("nothing was published") };
        Ok((rate(usize::try_from(whole - from)?, took), used))
    }

    /// Likes by new users through the command service's statement.
    async fn fill(&mut self, messages: usize) -> Result<()> {
        self.backlogs += 1;
        let backlog = self.backlogs;
        let each = self.writers.iter().enumerate().map(|(lane, writer)| async move {
            let mine: Vec<usize> = (0..messages).filter(|number| number % usize::from(LANES) == lane).collect();
            for numbers in mine.chunks(FILL) {
                let mut batch = Batch::default();
                for number in numbers {
                    let video = format!("video-{:05}", number.wrapping_mul(0x9e37_79b1) % VIDEOS);
                    batch.push(format!("user-{backlog}-{number:06}"), video, 1, Uuid::now_v7());
                }
                if writer.apply(&batch).await? != numbers.len() {
                    bail!("a like of a new user changed nothing");
                }
            }
            Ok(())
        });
        futures::future::try_join_all(each).await?;
        Ok(())
    }

    /// Last published number of each lane.
    async fn published(&self) -> Result<Vec<i64>> {
        let mut published = Vec::new();
        for outbox in &self.outboxes {
            let row = outbox.query_one("select coalesce(max(to_seq), 0) from outbox_publication", &[]).await?;
            published.push(row.try_get(0)?);
        }
        Ok(published)
    }

    /// Consumes the present backlog and answers how fast, from the first batch on.
    async fn consume(&self, messages: usize) -> Result<f64> {
        let config = &self.bench.site.config;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let runtime = Runtime {
            nats: run::connect_nats(&NatsSettings { url: config.address.nats.clone().into() }, "bench").await?,
            settings: LaneSettings { stream_prefix: config.stream_prefix.clone(), ..LaneSettings::default() },
            stop: stop.clone(),
            tasks: tasks.clone(),
            metrics: Metrics::new(),
            upstream: None,
        };
        let projection = Arc::new(Counting {
            name: format!("bench.{}", self.backlogs),
            wanted: messages,
            seen: Mutex::default(),
            done: Notify::new(),
        });
        self.begin_at_the_backlog(&projection.name).await?;
        for shard in 0..LANES {
            Consumer::spawn(runtime.clone(), self.pool.clone(), Lane { class: "rel", shard }, Arc::clone(&projection));
        }
        tasks.close();
        let done = tokio::time::timeout(BOUND, projection.done.notified()).await;
        let seen = projection.seen.lock().map_err(|_| anyhow::anyhow!("a batch panicked"))?.clone();
        stop.cancel();
        tasks.wait().await;
        let Seen { first: Some((since, of_first)), messages: got, last } = seen else { bail!("nothing was consumed") };
        if done.is_err() || got != messages {
            bail!("{got} of {messages} after {BOUND:?}");
        }
        Ok(rate(got - of_first, last.unwrap_or(since) - since))
    }

    /// What was published before is of earlier rounds.
    async fn begin_at_the_backlog(&self, name: &str) -> Result<()> {
        let client = self.pool.get().await?;
        let statement =
            "insert into consumer_checkpoint (projection, lane, epoch, next_offset, owner_epoch, updated_at)
            values ($1, $2, 0, $3, 0, now())";
        for (shard, before) in (0..LANES).zip(&self.before) {
            client.execute(statement, &[&name, &Lane { class: "rel", shard }.to_string(), &(before + 1)]).await?;
        }
        Ok(())
    }
}

/// A projection that only counts.
struct Counting {
    name: String,
    wanted: usize,
    seen: Mutex<Seen>,
    done: Notify,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// When the first batch came, and how many messages it had.
    first: Option<(Instant, usize)>,
    messages: usize,
    last: Option<Instant>,
}

impl Projection for Counting {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn apply(&self, _lane: &Lane, _owner_epoch: i64, batch: &[LaneMessage]) -> Result<(), ApplyError> {
        let mut seen = self.seen.lock().map_err(|_| ApplyError::Retry("a batch panicked".to_owned()))?;
        let now = Instant::now();
        seen.first.get_or_insert((now, batch.len()));
        seen.messages += batch.len();
        seen.last = Some(now);
        if seen.messages >= self.wanted {
            self.done.notify_one();
        }
        Ok(())
    }

    async fn fence(&self, _lane: &Lane, _owner_epoch: i64) -> Result<(), ApplyError> {
        Ok(())
    }
}
