//! Area `counter`: a backlog in the lanes, folded into durable buckets, beside the fold statement alone.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use likewise_devstack::{Process, build_binary};
use tokio_postgres::Client;
use uuid::Uuid;

use super::cpu::Cpu;
use super::fold::{self, Folder, scattered};
use super::load::rate;
use super::sql::{Batch, Writer, connect, relation_schema};
use super::{Area, Bench, Figures, Target};
use crate::site::{eventually, step};

/// Relation shards, each with a lane, and partitions of the counter: the defaults.
const LANES: usize = 4;
const PARTITIONS: usize = 2;
/// Generation of the first start.
const GENERATION: i32 = 1;
/// Commands in one transaction that fills an outbox.
const FILL: usize = 500;
/// Likes in one group of the fold alone.
const GROUP: usize = 2_000;
/// Videos of the random likes.
const VIDEOS: usize = 20_000;
/// How long a backlog may take to be published, or to be folded.
const BOUND: Duration = Duration::from_secs(120);
/// How often is looked how far the counter is.
const LOOK: Duration = Duration::from_millis(10);
const STOP: Duration = Duration::from_secs(30);
/// A command process that only publishes.
const PUBLISHING: [(&str, &str); 2] =
    [("LIKEWISE__COMMAND__API", "false"), ("LIKEWISE__COMMAND__MAINTENANCE", "false")];
/// A counter that only folds.
const FOLDING: [(&str, &str); 2] = [("LIKEWISE__COUNTER__API", "false"), ("LIKEWISE__COUNTER__AGGREGATOR", "false")];
/// Under this no machine is good enough.
const FLOOR_PER_S: f64 = 10_000.0;
const HOT: &str = "counter.hot_video_changes_per_s";
const RANDOM: &str = "counter.random_video_changes_per_s";
const SQL: &str = "counter.sql_only_changes_per_s";

/// The area.
pub(super) const AREA: Area = Area {
    name: "counter",
    about: "a backlog of new likes, each of a user of its own, on one video or on 20,000, from the lanes to durable buckets",
    run: |bench, figures| Box::pin(run(bench, figures)),
    targets: &[Target { figure: HOT, of: SQL, at_least: 0.5 }, Target { figure: HOT, of: RANDOM, at_least: 1.0 }],
};

/// Which videos a backlog is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skew {
    Hot,
    Random,
}

/// What fills, what folds, and how far both are.
struct Stage<'a> {
    bench: &'a Bench,
    counter: PathBuf,
    writers: Vec<Writer>,
    outboxes: Vec<Client>,
    partitions: Vec<Client>,
    folders: Vec<Folder>,
    backlogs: usize,
}

async fn run(bench: &mut Bench, figures: &mut Figures) -> Result<()> {
    let (command, counter) = tokio::task::spawn_blocking(|| {
        anyhow::Ok((build_binary("likewise-command", true)?, build_binary("likewise-counter", true)?))
    })
    .await??;
    // From here on only the publisher runs; a counter comes for each backlog.
    let _ = bench.site.process.terminate(STOP).await?;
    bench.site.process = Process::run(&command, &bench.site.config, &PUBLISHING).await?;
    let changes = if bench.is_quick { 30_000 } else { 160_000 };
    let rounds = bench.rounds();
    let mut stage = Stage::open(bench, counter).await?;

    step("warming up");
    stage.drain(Skew::Hot, changes / 4).await?;
    stage.sql_only(changes / 4).await?;
    let mut slowest = f64::INFINITY;
    for round in 0..rounds {
        for (skew, key) in [(Skew::Hot, HOT), (Skew::Random, RANDOM)] {
            let (per_s, used) =
                stage.drain(skew, changes).await.with_context(|| format!("{key}, round {}", round + 1))?;
            figures.sample(key, per_s);
            slowest = slowest.min(per_s);
            if let (0, Some(used)) = (round, used) {
                figures.note(format!("{key}: {used}"));
            }
        }
        figures.sample(SQL, stage.sql_only(changes).await?);
    }
    figures.note(format!(
        "{changes} changes per backlog in {LANES} lanes; one counter with {PARTITIONS} partitions and 256 virtual buckets, \
         aggregator off; SQL alone: {PARTITIONS} connections, one hot video, groups of {GROUP}"
    ));
    let verdict = if slowest >= FLOOR_PER_S { "held" } else { "MISSED" };
    figures.note(format!("never under {FLOOR_PER_S:.0} changes/s: {slowest:.0}, {verdict}"));
    figures.note("errors: none (a count that is not exact ends the run)");
    Ok(())
}

impl<'a> Stage<'a> {
    async fn open(bench: &'a Bench, counter: PathBuf) -> Result<Self> {
        let database = &bench.site.config.database;
        let (mut writers, mut outboxes, mut partitions, mut folders) = (vec![], vec![], vec![], vec![]);
        for lane in 0..LANES {
            writers.push(Writer::open(database, lane).await?);
            outboxes.push(connect(database, &relation_schema(lane)).await?);
        }
        for partition in 0..PARTITIONS {
            partitions.push(connect(database, &format!("counter_p{partition:02}")).await?);
            folders.push(Folder::open(database, partition).await?);
        }
        Ok(Self { bench, counter, writers, outboxes, partitions, folders, backlogs: 0 })
    }

    /// Makes a backlog, starts a counter, and answers how fast it folded from its first group on.
    async fn drain(&mut self, skew: Skew, changes: usize) -> Result<(f64, Option<String>)> {
        let prefix = format!("{}-{:03}", if skew == Skew::Hot { "hot" } else { "random" }, self.backlogs);
        let before = self.applied().await?;
        let ends = self.fill(&prefix, skew, changes).await?;
        let mut counter = Process::run(&self.counter, &self.bench.site.config, &FOLDING).await?;
        let whole: i64 = ends.iter().sum();

        let bound = Instant::now() + BOUND;
        let start: i64 = before.iter().sum();
        let mut first: Option<(Instant, i64, Option<Cpu>)> = None;
        let took = loop {
            let now = self.applied().await?;
            let sum: i64 = now.iter().sum();
            if sum > start && first.is_none() {
                first = Some((Instant::now(), sum, Cpu::now(counter.id())));
            }
            let is_through = now.iter().zip(&ends).all(|(now, end)| now >= end);
            if is_through && self.counted(&prefix).await? == i64::try_from(changes)? {
                break first.as_ref().map(|(since, ..)| since.elapsed());
            }
            if Instant::now() > bound {
                bail!("{sum} of {whole} after {BOUND:?}; the counter says:\n{}", counter.log_tail());
            }
            tokio::time::sleep(LOOK).await;
        };
        let used = first.as_ref().and_then(|(_, _, cpu)| cpu.as_ref()?.since());
        counter.terminate(STOP).await?;
        let (Some((_, from, _)), Some(took)) = (first, took) else { bail!("nothing was folded") };
        Ok((rate(usize::try_from(whole - from)?, took), used))
    }

    /// Likes by new users through the command service's statement; waits until all are published, and answers the last
    /// number of each lane.
    async fn fill(&mut self, prefix: &str, skew: Skew, changes: usize) -> Result<Vec<i64>> {
        self.backlogs += 1;
        let backlog = self.backlogs;
        let each = self.writers.iter().enumerate().map(|(lane, writer)| async move {
            let mine: Vec<usize> = (0..changes).filter(|number| number % LANES == lane).collect();
            for numbers in mine.chunks(FILL) {
                let mut batch = Batch::default();
                for number in numbers {
                    let video = match skew {
                        Skew::Hot => prefix.to_owned(),
                        Skew::Random => format!("{prefix}-{:05}", number.wrapping_mul(0x9e37_79b1) % VIDEOS),
                    };
                    batch.push(format!("{}-{backlog}", scattered(*number)), video, 1, Uuid::now_v7());
                }
                if writer.apply(&batch).await? != numbers.len() {
                    bail!("a like of a new user changed nothing");
                }
            }
            Ok(())
        });
        futures::future::try_join_all(each).await?;
        let mut ends = Vec::new();
        for outbox in &self.outboxes {
            ends.push(published(outbox).await?);
        }
        Ok(ends)
    }

    /// The newest number folded of each lane.
    async fn applied(&self) -> Result<Vec<i64>> {
        let mut newest = vec![0; LANES];
        let statement = "select lane, offset_seq from applied where generation = $1";
        for partition in &self.partitions {
            for row in partition.query(statement, &[&GENERATION]).await? {
                let (lane, offset): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
                let number = lane.rsplit_once('-').and_then(|(_, digits)| digits.parse::<usize>().ok());
                let place = number.and_then(|number| newest.get_mut(number));
                let place = place.with_context(|| format!("{lane} as a lane of relations"))?;
                *place = offset.max(*place);
            }
        }
        Ok(newest)
    }

    /// What the durable buckets say of the videos of one backlog.
    async fn counted(&self, prefix: &str) -> Result<i64> {
        let statement = "select coalesce(sum(active_count), 0)::bigint from video_like_count_vbucket
            where generation = $1 and video_id >= $2 and video_id < $3";
        let mut counted = 0;
        for partition in &self.partitions {
            let row = partition.query_one(statement, &[&GENERATION, &prefix, &format!("{prefix}.")]).await?;
            counted += row.try_get::<_, i64>(0)?;
        }
        Ok(counted)
    }

    /// The fold statement alone, one connection per partition.
    async fn sql_only(&mut self, changes: usize) -> Result<f64> {
        let groups = (changes / GROUP / PARTITIONS).max(2);
        let video = format!("sql-{}", self.backlogs);
        let each = self.folders.iter_mut().map(|folder| folder.prepare(&video, groups, GROUP));
        let prepared: Vec<Vec<fold::Likes>> = each.collect();
        let begin = Instant::now();
        let each = self.folders.iter().zip(&prepared).map(|(folder, likes)| folder.run(likes));
        futures::future::try_join_all(each).await?;
        Ok(rate(groups * GROUP * PARTITIONS, begin.elapsed()))
    }
}

async fn published(outbox: &Client) -> Result<i64> {
    let statement = "select (select coalesce(max(seq), 0) from outbox),
        (select coalesce(max(to_seq), 0) from outbox_publication)";
    eventually("publishing the backlog", BOUND, || async {
        let row = outbox.query_one(statement, &[]).await.map_err(|error| error.to_string())?;
        let (written, published): (i64, i64) = (row.get(0), row.get(1));
        if published >= written { Ok(written) } else { Err(format!("{published} of {written}")) }
    })
    .await
}
