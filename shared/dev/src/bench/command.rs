//! Area `command`: commands end to end, beside what bounds them and what they replace.

mod fresh;
mod pipeline;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use likewise_devstack::{Process, TestDatabase, TestStack, build_binary};

use super::cpu::Cpu;
use super::door::{self, Door, Sent, user_name, video_name};
use super::gateway;
use super::hot_row::{self, HotRow};
use super::load::{Load, Share, rate};
use super::mix::{Mix, Offline};
use super::sql::{Batch, Writer};
use super::{Area, Bench, Figures, Target};
use crate::site::{Person, step};

/// People and videos of the mix.
const USERS: usize = 4_000;
const VIDEOS: usize = 1_000;
/// Calls in flight where throughput of single calls is measured.
const IN_FLIGHT: usize = 256;
/// Commands in flight on streams, where throughput is measured.
const STREAMED: usize = 1_024;
/// Calls of 100 commands in flight, where throughput is measured.
const BATCHES: usize = 16;
/// Commands in one batch of the SQL alone, and connections.
const BATCH: usize = 256;
const CONNECTIONS: usize = 2;
/// Commands of the warm-up: every user's token is verified once, and the mix has something to follow up.
const WARM_UP: usize = 6_000;
/// Everything that reads lanes or fills them rests; all callers are one machine, and on a hot video each likes and takes back
/// faster than a person may.
const PAUSED: [(&str, &str); 5] = [
    ("LIKEWISE__COMMAND__ADDRESS_PER_S", "0"),
    ("LIKEWISE__COMMAND__TRANSITIONS_MAX", "1000000"),
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
    about: "SetLike, BatchSetLike and SetLikeStream, 4,000 users on 1,000 videos: 70 % new, 10 % each of sent twice, no \
            change, unlike; an error is any answer but the expected one",
    run: |bench, figures| Box::pin(run(bench, figures)),
    targets: &[
        target("command.end_to_end_per_s", "command.unbatched_per_s", 4.0),
        target("command.end_to_end_per_s", "command.echo_per_s", 0.2),
        target("command.stream_per_s", "command.sql_only_per_s", 0.6),
        target("command.hot_video_per_s", "command.hot_row_per_s", 10.0),
        target("command.pipeline_per_s", "command.stream_per_s", 0.3),
        target("command.sql_fresh_per_s", "command.sql_analysed_per_s", 0.7),
        target("command.unbatched_p50_ms_1", "command.p50_ms_1", 0.67),
        target("command.unbatched_p99_ms_16", "command.p99_ms_16", 0.67),
    ],
};

const fn target(figure: &'static str, of: &'static str, at_least: f64) -> Target {
    Target { figure, of, at_least }
}

/// Keys of what so many callers wait: p50 and p99 of each way to send.
struct Waits {
    callers: usize,
    unary: [&'static str; 2],
    batch: [&'static str; 2],
    stream: [&'static str; 2],
}

const WAITS: [Waits; 3] = [
    Waits {
        callers: 1,
        unary: ["command.p50_ms_1", "command.p99_ms_1"],
        batch: ["command.batch_p50_ms_1", "command.batch_p99_ms_1"],
        stream: ["command.stream_p50_ms_1", "command.stream_p99_ms_1"],
    },
    Waits {
        callers: 16,
        unary: ["command.p50_ms_16", "command.p99_ms_16"],
        batch: ["command.batch_p50_ms_16", "command.batch_p99_ms_16"],
        stream: ["command.stream_p50_ms_16", "command.stream_p99_ms_16"],
    },
    Waits {
        callers: 256,
        unary: ["command.p50_ms_256", "command.p99_ms_256"],
        batch: ["command.batch_p50_ms_256", "command.batch_p99_ms_256"],
        stream: ["command.stream_p50_ms_256", "command.stream_p99_ms_256"],
    },
];

/// Everything that is measured against.
struct Stage<'a> {
    figures: &'a mut Figures,
    seconds: f64,
    ours: Door,
    ours_id: u32,
    one_by_one: Door,
    mix: Mix,
    offline: Offline,
    writers: Vec<(Writer, Mix)>,
    hot_row: HotRow,
    /// Rates so far, by key.
    pace: BTreeMap<&'static str, f64>,
    wrong: BTreeMap<String, usize>,
}

async fn run(bench: &mut Bench, figures: &mut Figures) -> Result<()> {
    let program = tokio::task::spawn_blocking(|| build_binary("likewise-standalone", true)).await??;
    let rounds = bench.rounds();
    publish(bench, rounds).await?;
    fresh::measure(bench, figures).await?;
    let mut mix = Mix::new(USERS, VIDEOS);
    pipeline::measure(bench, figures, &mut mix).await?;
    // The same but for how commands become transactions. The idle one costs next to nothing.
    bench.site.process = Process::run(&program, &bench.site.config, &PAUSED).await?;
    let settings: Vec<(&str, &str)> = PAUSED.into_iter().chain(ONE_BY_ONE).collect();
    let unbatched = Process::run(&program, &bench.site.config, &settings).await?;
    let mut stage = Stage {
        figures,
        seconds: if bench.is_quick { 0.7 } else { 3.0 },
        ours: Door::to(&bench.site.process, bench.site.keys(), 2 * USERS)?,
        ours_id: bench.site.process.id(),
        one_by_one: Door::to(&unbatched, bench.site.keys(), USERS)?,
        mix,
        offline: Offline::new(USERS..2 * USERS, VIDEOS),
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

/// The videos of the mix, and two hot ones for each round and one for the warm-up.
async fn publish(bench: &Bench, rounds: usize) -> Result<()> {
    step("publishing the videos");
    let channel = bench.site.channel()?;
    let author: Person = bench.site.person(&channel, "author");
    author.register().await?;
    let hot = (0..=2 * rounds).map(hot_name);
    let videos = (0..VIDEOS).map(video_name).chain(hot).collect::<Vec<String>>();
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

fn hot_name(number: usize) -> String {
    format!("hot-{number}")
}

impl Stage<'_> {
    async fn warm_up(&mut self) -> Result<()> {
        step("warming up");
        let (ours, one_by_one) = (self.ours.clone(), self.one_by_one.clone());
        for door in [&ours, &one_by_one] {
            let load = door.send(self.commands(WARM_UP), IN_FLIGHT).await?;
            if load.wrong > load.right / 100 {
                bail!("{} of {WARM_UP} commands failed: {}", load.wrong, load.first_wrong.unwrap_or_default());
            }
        }
        let unbatched = one_by_one.send(self.commands(1_000), IN_FLIGHT).await?;
        let unary = ours.send(Sent::to_one(&hot_name(0), USERS, USERS), IN_FLIGHT).await?;
        let stream = gateway::send(&ours, self.commands(WARM_UP), STREAMED).await?;
        let batches = ours.send_batches(self.offline.draw(USERS / 100), BATCHES).await?;
        let (sql_only, _) = self.sql_only(WARM_UP / BATCH).await?;
        // Rates to begin with: they say how many calls fill the time.
        self.pace = BTreeMap::from([
            ("command.end_to_end_per_s", unary.per_s()),
            ("command.stream_per_s", stream.per_s()),
            ("command.batch_per_s", batches.per_s()),
            ("command.unbatched_per_s", unbatched.per_s()),
            ("command.hot_video_unary_per_s", unary.per_s()),
            ("command.hot_video_per_s", stream.per_s()),
            ("command.sql_only_per_s", sql_only),
            ("command.echo_per_s", self.ours.echo(2 * WARM_UP, IN_FLIGHT).await?.per_s()),
            ("command.hot_row_per_s", self.hot_row.run(500).await?.per_s()),
        ]);
        Ok(())
    }

    async fn round(&mut self, round: usize) -> Result<()> {
        let (ours, one_by_one) = (self.ours.clone(), self.one_by_one.clone());
        let commands = self.fill("command.end_to_end_per_s");
        let cpu = Cpu::now(self.ours_id);
        let load = ours.send(commands, IN_FLIGHT).await?;
        self.busy(round, "end to end", cpu);
        self.figures.sample("command.end_to_end_changed_per_s", load.changed_per_s());
        self.keep("command.end_to_end_per_s", &load);

        let batches = self.count("command.sql_only_per_s") / BATCH;
        let (per_s, changed_per_s) = self.sql_only(batches / CONNECTIONS).await?;
        self.pace.insert("command.sql_only_per_s", per_s);
        self.figures.sample("command.sql_only_per_s", per_s);
        self.figures.sample("command.sql_only_changed_per_s", changed_per_s);

        let commands = self.fill("command.stream_per_s");
        let cpu = Cpu::now(self.ours_id);
        let load = gateway::send(&ours, commands, STREAMED).await?;
        self.busy(round, "stream", cpu);
        self.figures.sample("command.stream_changed_per_s", load.changed_per_s());
        self.keep("command.stream_per_s", &load);

        let batches = self.offline.draw(self.count("command.batch_per_s") / 100);
        let load = ours.send_batches(batches, BATCHES).await?;
        self.keep("command.batch_per_s", &load);

        let commands = self.fill("command.unbatched_per_s");
        let load = one_by_one.send(commands, IN_FLIGHT).await?;
        self.keep("command.unbatched_per_s", &load);

        let load = ours.echo(self.count("command.echo_per_s"), IN_FLIGHT).await?;
        self.keep("command.echo_per_s", &load);

        let load = self.hot_row.run(self.count("command.hot_row_per_s")).await?;
        self.keep("command.hot_row_per_s", &load);

        let commands = Sent::to_one(&hot_name(2 * round + 1), USERS, self.count("command.hot_video_per_s"));
        let load = gateway::send(&ours, commands, STREAMED).await?;
        self.keep("command.hot_video_per_s", &load);

        let commands = Sent::to_one(&hot_name(2 * round + 2), USERS, self.count("command.hot_video_unary_per_s"));
        let load = ours.send(commands, IN_FLIGHT).await?;
        self.keep("command.hot_video_unary_per_s", &load);
        self.latencies().await
    }

    /// The resource that was full, said once.
    fn busy(&mut self, round: usize, what: &str, cpu: Option<Cpu>) {
        if let (0, Some(used)) = (round, cpu.and_then(|cpu| cpu.since())) {
            self.figures.note(format!("{what}: {used}"));
        }
    }

    /// What callers wait, from one to many: single calls, batches and streams; and what batching costs where there is
    /// nothing to batch.
    async fn latencies(&mut self) -> Result<()> {
        let (ours, one_by_one) = (self.ours.clone(), self.one_by_one.clone());
        for Waits { callers, unary, batch, stream } in WAITS {
            let commands = self.fill(unary[0]);
            let load = ours.send(commands, callers).await?;
            self.waited(unary, &load);
            let batches = self.offline.draw(self.count(batch[0]).min(20_000 * callers) / 100);
            let load = ours.send_batches(batches, callers).await?;
            self.waited(batch, &load);
            let commands = self.fill(stream[0]);
            let load = gateway::send(&ours, commands, callers).await?;
            self.waited(stream, &load);
        }
        for (callers, key, share) in
            [(1, "command.unbatched_p50_ms_1", Share(50)), (16, "command.unbatched_p99_ms_16", Share(99))]
        {
            let commands = self.fill(key);
            let load = one_by_one.send(commands, callers).await?;
            self.figures.sample(key, load.latency_ms(share));
            self.pace.insert(key, load.per_s());
            self.blame(key, &load);
        }
        Ok(())
    }

    fn waited(&mut self, [p50, p99]: [&'static str; 2], load: &Load) {
        self.figures.sample(p50, load.latency_ms(Share(50)));
        self.figures.sample(p99, load.latency_ms(Share(99)));
        self.pace.insert(p50, load.per_s());
        self.blame(p50, load);
    }

    fn commands(&mut self, count: usize) -> Vec<Sent> {
        self.mix.draw(count).iter().map(Sent::of).collect()
    }

    /// Commands of the mix that fill the time.
    fn fill(&mut self, key: &str) -> Vec<Sent> {
        let count = self.count(key);
        self.commands(count)
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
            "ours: one process with all services, publisher, projector and aggregator off, {} connections; single calls: \
             {IN_FLIGHT} in flight; batches: {BATCHES} calls of 100 commands in flight; streams: {}, {STREAMED} commands in \
             flight; unbatched: the same server with batch_max = 1 and 4 transactions at once; SQL alone: {CONNECTIONS} \
             connections, batches of {BATCH}, the same mix; echo: health checks of the same server",
            door::CONNECTIONS,
            gateway::STREAMS
        ));
        self.figures.note(format!(
            "hot row: {} clients, begin, insert, update, commit, all on one row, which now says {}; hot video: streams, every \
             command is a change, {USERS} users such as {} like and take back; the latency of a batch is that of 100 commands",
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
