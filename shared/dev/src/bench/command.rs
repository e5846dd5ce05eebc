//! Area `command`: single commands end to end, beside what bounds them and what they replace.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use likewise_devstack::{Process, TestDatabase, TestStack, build_binary};

use super::cpu::Cpu;
use super::door::{self, Door, user_name, video_name};
use super::hot_row::{self, HotRow};
use super::load::{Load, Share, rate};
use super::mix::Mix;
use super::sql::{Batch, Writer};
use super::{Area, Bench, Figures, Target};
use crate::site::{Person, step};

/// People and videos of the mix.
const USERS: usize = 4_000;
const VIDEOS: usize = 1_000;
/// Calls in flight where throughput is measured.
const IN_FLIGHT: usize = 256;
/// Commands in one batch of the SQL alone, and connections.
const BATCH: usize = 256;
const CONNECTIONS: usize = 2;
/// Commands of the warm-up: every user's token is verified once, and the mix has something to follow up.
const WARM_UP: usize = 6_000;
/// Everything that reads lanes or fills them rests.
const PAUSED: [(&str, &str); 3] = [
    ("LIKEWISE__COMMAND__PUBLISHER", "false"),
    ("LIKEWISE__COUNTER__PROJECTOR", "false"),
    ("LIKEWISE__COUNTER__AGGREGATOR", "false"),
];
/// One command per transaction, and as many transactions at once as there are shards: a stronger baseline than one per core.
const ONE_BY_ONE: [(&str, &str); 2] =
    [("LIKEWISE__COMMAND__BATCH_MAX", "1"), ("LIKEWISE__COMMAND__FLIGHTS_PER_SERVER_MAX", "4")];

/// The area.
pub(super) const AREA: Area = Area {
    name: "command",
    about: "single SetLike calls, 4,000 users on 1,000 videos: 70 % new, 10 % each of sent twice, no change, unlike; an \
            error is any answer but the expected one",
    run: |bench, figures| Box::pin(run(bench, figures)),
    targets: &[
        target("command.end_to_end_per_s", "command.unbatched_per_s", 4.0),
        target("command.end_to_end_per_s", "command.echo_per_s", 0.2),
        target("command.hot_video_per_s", "command.hot_row_per_s", 10.0),
        target("command.unbatched_p50_ms_1", "command.p50_ms_1", 0.67),
        target("command.unbatched_p99_ms_16", "command.p99_ms_16", 0.67),
    ],
};

const fn target(figure: &'static str, of: &'static str, at_least: f64) -> Target {
    Target { figure, of, at_least }
}

/// Everything that is measured against.
struct Stage<'a> {
    figures: &'a mut Figures,
    seconds: f64,
    ours: Door,
    ours_id: u32,
    one_by_one: Door,
    mix: Mix,
    writers: Vec<(Writer, Mix)>,
    hot_row: HotRow,
    /// Rates so far, by key.
    pace: BTreeMap<&'static str, f64>,
    wrong: BTreeMap<String, usize>,
}

async fn run(bench: &mut Bench, figures: &mut Figures) -> Result<()> {
    let program = tokio::task::spawn_blocking(|| build_binary("likewise-standalone", true)).await??;
    // The same but for how commands become transactions. The idle one costs next to nothing.
    bench.site.process = Process::run(&program, &bench.site.config, &PAUSED).await?;
    let settings: Vec<(&str, &str)> = PAUSED.into_iter().chain(ONE_BY_ONE).collect();
    let unbatched = Process::run(&program, &bench.site.config, &settings).await?;
    let rounds = bench.rounds();
    publish(bench, rounds).await?;
    let tokens = door::tokens(bench.site.keys(), USERS)?;
    let mut stage = Stage {
        figures,
        seconds: if bench.is_quick { 0.7 } else { 3.0 },
        ours: Door::to(&bench.site.process, &tokens)?,
        ours_id: bench.site.process.id(),
        one_by_one: Door::to(&unbatched, &tokens)?,
        mix: Mix::new(USERS, VIDEOS),
        writers: writers(&bench.site.config.database).await?,
        hot_row: HotRow::open(TestStack::of(&bench.site.stack).database().await).await?,
        pace: BTreeMap::new(),
        wrong: BTreeMap::new(),
    };
    stage.warm_up().await?;
    for round in 0..rounds {
        stage.round(round).await.with_context(|| format!("round {}", round + 1))?;
    }
    stage.conclude().await
}

/// The videos of the mix, and a hot one for each round and the warm-up.
async fn publish(bench: &Bench, rounds: usize) -> Result<()> {
    step("publishing the videos");
    let channel = bench.site.channel()?;
    let author: Person = bench.site.person(&channel, "author");
    author.register().await?;
    let videos = (0..VIDEOS).map(video_name).chain((0..=rounds).map(hot_name)).collect::<Vec<String>>();
    let published = stream::iter(&videos).map(|video| author.publish(video, "a video")).buffer_unordered(16);
    published.try_collect::<Vec<()>>().await?;
    Ok(())
}

async fn writers(database: &TestDatabase) -> Result<Vec<(Writer, Mix)>> {
    let mut writers = Vec::new();
    for shard in 0..CONNECTIONS {
        writers.push((Writer::open(database, shard).await?, Mix::new(USERS, VIDEOS)));
    }
    Ok(writers)
}

fn hot_name(round: usize) -> String {
    format!("hot-{round}")
}

impl Stage<'_> {
    async fn warm_up(&mut self) -> Result<()> {
        step("warming up");
        for door in [self.ours.clone(), self.one_by_one.clone()] {
            let load = door.send(self.mix.draw(WARM_UP), IN_FLIGHT).await?;
            if load.wrong > load.right / 100 {
                bail!("{} of {WARM_UP} commands failed: {}", load.wrong, load.first_wrong.unwrap_or_default());
            }
        }
        let one_by_one = self.one_by_one.send(self.mix.draw(1_000), IN_FLIGHT).await?;
        let ours = self.ours.send_to_one(&hot_name(0), USERS, IN_FLIGHT).await?;
        let (sql_only, _) = self.sql_only(WARM_UP / BATCH).await?;
        // Rates to begin with: they say how many calls fill the time.
        self.pace = BTreeMap::from([
            ("command.end_to_end_per_s", ours.per_s()),
            ("command.unbatched_per_s", one_by_one.per_s()),
            ("command.hot_video_per_s", ours.per_s()),
            ("command.sql_only_per_s", sql_only),
            ("command.echo_per_s", self.ours.echo(2 * WARM_UP, IN_FLIGHT).await?.per_s()),
            ("command.hot_row_per_s", self.hot_row.run(500).await?.per_s()),
        ]);
        Ok(())
    }

    async fn round(&mut self, round: usize) -> Result<()> {
        let count = self.count("command.end_to_end_per_s");
        let cpu = Cpu::now(self.ours_id);
        let load = self.ours.send(self.mix.draw(count), IN_FLIGHT).await?;
        let used = cpu.and_then(|cpu| cpu.since());
        if let (0, Some(used)) = (round, used) {
            self.figures.note(format!("end to end: {used}"));
        }
        self.figures.sample("command.p50_ms_256", load.latency_ms(Share(50)));
        self.figures.sample("command.p99_ms_256", load.latency_ms(Share(99)));
        self.figures.sample("command.end_to_end_changed_per_s", load.changed_per_s());
        self.keep("command.end_to_end_per_s", &load);

        let count = self.count("command.unbatched_per_s");
        let load = self.one_by_one.send(self.mix.draw(count), IN_FLIGHT).await?;
        self.keep("command.unbatched_per_s", &load);

        let batches = self.count("command.sql_only_per_s") / BATCH;
        let (per_s, changed_per_s) = self.sql_only(batches / CONNECTIONS).await?;
        self.pace.insert("command.sql_only_per_s", per_s);
        self.figures.sample("command.sql_only_per_s", per_s);
        self.figures.sample("command.sql_only_changed_per_s", changed_per_s);

        let count = self.count("command.echo_per_s");
        let load = self.ours.echo(count, IN_FLIGHT).await?;
        self.keep("command.echo_per_s", &load);

        let count = self.count("command.hot_row_per_s");
        let load = self.hot_row.run(count).await?;
        self.keep("command.hot_row_per_s", &load);

        let count = self.count("command.hot_video_per_s");
        let load = self.ours.send_to_one(&hot_name(round + 1), count, IN_FLIGHT).await?;
        self.keep("command.hot_video_per_s", &load);
        self.latencies().await
    }

    /// Few callers: what batching costs where there is nothing to batch.
    async fn latencies(&mut self) -> Result<()> {
        for (in_flight, share, ours_key, other_key) in [
            (1, Share(50), "command.p50_ms_1", "command.unbatched_p50_ms_1"),
            (16, Share(99), "command.p99_ms_16", "command.unbatched_p99_ms_16"),
        ] {
            for (door, key) in [(self.ours.clone(), ours_key), (self.one_by_one.clone(), other_key)] {
                let count = self.count(key);
                let load = door.send(self.mix.draw(count), in_flight).await?;
                self.figures.sample(key, load.latency_ms(share));
                self.pace.insert(key, load.per_s());
                self.blame(key, &load);
            }
        }
        Ok(())
    }

    /// The batch statement alone: commands and changes per second.
    async fn sql_only(&mut self, batches: usize) -> Result<(f64, f64)> {
        let mut prepared: Vec<(&Writer, Vec<Batch>)> = Vec::new();
        for (number, (writer, mix)) in self.writers.iter_mut().enumerate() {
            let batch = |_| Batch::of(&mix.draw(BATCH), &format!("sql{number}-"));
            prepared.push((writer, (0..batches.max(1)).map(batch).collect()));
        }
        let begin = Instant::now();
        let each = prepared.iter().map(|(writer, batches)| async move {
            let mut changed = 0;
            for batch in batches {
                changed += writer.apply(batch).await?;
            }
            anyhow::Ok(changed)
        });
        let changed: usize = futures::future::try_join_all(each).await?.into_iter().sum();
        let (took, commands) = (begin.elapsed(), CONNECTIONS * batches.max(1) * BATCH);
        Ok((rate(commands, took), rate(changed, took)))
    }

    /// Calls that fill the time at the rate so far.
    fn count(&self, key: &str) -> usize {
        let rate = self.pace.get(key).copied().unwrap_or(1_000.0);
        let micros = Duration::from_secs_f64((rate * self.seconds / 1e6).clamp(0.0, 60.0)).as_micros();
        usize::try_from(micros).unwrap_or(1_000).max(200)
    }

    fn keep(&mut self, key: &'static str, load: &Load) {
        self.figures.sample(key, load.per_s());
        self.pace.insert(key, load.per_s());
        self.blame(key, load);
    }

    fn blame(&mut self, key: &str, load: &Load) {
        if let Some(first) = &load.first_wrong {
            *self.wrong.entry(format!("{key}: {first}")).or_default() += load.wrong;
        }
    }

    async fn conclude(self) -> Result<()> {
        self.figures.note(format!(
            "ours: one process with all services, publisher, projector and aggregator off, {} connections, \
             {IN_FLIGHT} in flight; unbatched: the same with batch_max = 1 and 4 transactions at once; SQL alone: {CONNECTIONS} connections, \
             batches of {BATCH}, the same mix; echo: health checks of the same server",
            door::CONNECTIONS
        ));
        self.figures.note(format!(
            "hot row: {} clients, begin, insert, update, commit, all on one row, which now says {}; hot video: every \
             command is a change, {USERS} users such as {} like and take back",
            hot_row::CLIENTS,
            self.hot_row.counted().await?,
            user_name(0),
        ));
        if self.wrong.is_empty() {
            self.figures.note("errors: none");
        }
        for (what, count) in &self.wrong {
            self.figures.note(format!("errors: {count} of {what}"));
        }
        Ok(())
    }
}
