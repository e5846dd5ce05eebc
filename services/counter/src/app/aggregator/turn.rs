//! One owner's turn: its ledger and its passes.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::try_join_all;
use likewise_domain::id::VideoId;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::Aggregator;
use crate::display::{DisplayRow, Parts};
use crate::ledger::{Ledger, Taken};
use crate::store::Error;
use crate::store::display::{Holder, PassWrite};
use crate::vector::Vector;

/// Redis is asked again after this long, doubled with each failure.
const REDIS_PAUSE_MIN: Duration = Duration::from_millis(250);
const REDIS_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Views written between two looks at what else waits.
const VIEWS_PER_PASS_MAX: usize = 20_000;
/// Hints taken at once; more wait for the next look.
const HINTS_PER_LOOK_MAX: usize = 1_000;
/// Passes forgotten in one go: more than are begun between two of them.
const TRIM_PASSES_MAX: i64 = 10_000;

/// Whether a pass found something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// It did something, or something waits.
    Some,
    /// Nothing changed and nothing waits.
    None,
}

/// What an owner remembers from pass to pass. All of it can be lost: a new turn starts from the durable position.
pub(super) struct Turn<'a> {
    of: &'a Aggregator,
    holder: &'a Holder,
    ledger: Ledger,
    /// Receipts below this were read into the ledger.
    read: Vector,
    /// What rows covered before this turn, which they never lose.
    rows_floor: Vector,
    /// Passes up to this one were begun by an earlier owner.
    begun_before: i64,
    pass: i64,
    rows_completed: i64,
    position: Vector,
    redis_again_at: Instant,
    redis_pause: Duration,
    redis_away: bool,
    trim_again_at: Instant,
}

impl<'a> Turn<'a> {
    /// Starts from the durable position.
    pub(super) async fn resume(of: &'a Aggregator, holder: &'a Holder) -> Result<Self, Error> {
        let store = of.live.store();
        let reached = store.resume(holder).await?;
        let rows_floor = store.progress(holder.generation, holder.slice).await?.rows.vector;
        let now = Instant::now();
        Ok(Self {
            of,
            holder,
            ledger: Ledger::new(of.settings.views_waiting_max),
            read: reached.vector.clone(),
            rows_floor,
            begun_before: reached.pass,
            pass: reached.pass,
            rows_completed: reached.pass,
            position: reached.vector,
            redis_again_at: now,
            redis_pause: REDIS_PAUSE_MIN,
            redis_away: false,
            trim_again_at: now + of.settings.trim_interval(),
        })
    }

    /// One pass. After an error other than a lost lease the turn can be dropped and begun anew.
    pub(super) async fn pass(&mut self) -> Result<Work, Error> {
        let (generation, projection) = (self.holder.generation, self.of.live.projection());
        let store = self.of.live.store();
        // The vector first. Everything it includes was committed under this manifest or an earlier one, and whoever owns a
        // bucket under the newest manifest holds all of it.
        let (manifest, checkpoints) = store.poll(generation, &projection).await?;
        if let Some(manifest) = manifest {
            self.of.live.follow(manifest).await?;
        }
        let settings = &self.of.settings;
        let goal = if self.ledger.rows_waiting() < settings.waiting_videos_max {
            self.read.step_towards(&checkpoints, settings.pass_offsets_max)
        } else {
            self.read.clone()
        };
        let worked = goal != self.read || self.ledger.rows_waiting() > 0;
        if worked {
            let changed = self.changed(&goal).await?;
            self.pass += 1;
            self.ledger.begin(self.pass, goal.clone(), changed);
            self.read = goal;
            self.write_rows().await?;
        }
        self.write_views().await?;
        self.advance().await?;
        self.trim().await?;
        self.of.metrics.waiting(self.ledger.rows_waiting(), self.ledger.views_waiting());
        let waits = self.ledger.rows_waiting() > 0 || self.ledger.views_waiting() > 0 || self.ledger.views_lost();
        Ok(if worked || waits { Work::Some } else { Work::None })
    }

    /// Videos whose buckets changed between what was read and `goal`, over all partitions.
    async fn changed(&self, goal: &Vector) -> Result<HashMap<VideoId, u64>, Error> {
        let mut changed = HashMap::new();
        if *goal == self.read {
            return Ok(changed);
        }
        let routes = self.of.live.routes();
        let store = self.of.live.store();
        let generation = self.holder.generation;
        let reads = routes.partitions().iter().map(|name| {
            let read = &self.read;
            async move { store.partition(name)?.changed(generation, read, goal).await }
        });
        for (video, changes) in try_join_all(reads).await?.into_iter().flatten() {
            *changed.entry(video).or_default() += changes;
        }
        Ok(changed)
    }

    /// Sums and writes the videos of this pass, all of them or as many as a pass may.
    async fn write_rows(&mut self) -> Result<(), Error> {
        let settings = &self.of.settings;
        let taken = self.ledger.take(settings.pass_videos_max, settings.waiting_share_percent);
        let at = OffsetDateTime::now_utc();
        let sums = match self.sums(&taken).await {
            Ok(sums) => sums,
            Err(error) => {
                self.ledger.put_back(taken);
                return Err(error);
            }
        };
        // What was taken counts as written: the rows and the completion are one transaction.
        let completes = self.ledger.rows_complete().map(|(pass, _)| pass).filter(|pass| *pass > self.rows_completed);
        let vector = self.read.clone().join(&self.rows_floor);
        let begun_before = self.begun_before;
        let write = PassWrite { pass: self.pass, vector: &vector, at, rows: &sums, begun_before, completes };
        if let Err(error) = self.of.live.store().write_pass(self.holder, &write).await {
            self.ledger.put_back(taken);
            return Err(error);
        }
        self.of.metrics.pass(sums.len());
        self.rows_completed = completes.unwrap_or(self.rows_completed);
        let pass = self.pass;
        let written = taken.into_iter().zip(sums).map(|(taken, (video, parts))| {
            let row = DisplayRow { video, parts, pass, generated_at: at };
            (taken, row)
        });
        self.ledger.rows_written(written);
        Ok(())
    }

    /// Sums of videos over every partition, in the order taken.
    async fn sums(&self, taken: &[Taken]) -> Result<Vec<(VideoId, Parts)>, Error> {
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let routes = self.of.live.routes();
        let store = self.of.live.store();
        let generation = self.holder.generation;
        let videos: Vec<&str> = taken.iter().map(|taken| taken.video.as_str()).collect();
        let reads = routes.partitions().iter().enumerate().map(|(index, name)| {
            let (videos, owned) = (&videos, routes.owned_bits(index));
            async move { store.partition(name)?.sums(generation, videos, &owned).await }
        });
        let mut sums: HashMap<VideoId, Parts> = HashMap::with_capacity(taken.len());
        for (video, parts) in try_join_all(reads).await?.into_iter().flatten() {
            let sum = sums.entry(video).or_default();
            *sum = sum.plus(parts);
        }
        let sum_of = |taken: &Taken| (taken.video.clone(), sums.get(&taken.video).copied().unwrap_or_default());
        Ok(taken.iter().map(sum_of).collect())
    }

    /// Writes the views that are due. A Redis that does not answer is left alone for a while and fails nothing.
    async fn write_views(&mut self) -> Result<(), Error> {
        if Instant::now() < self.redis_again_at {
            return Ok(());
        }
        let due = self.ledger.views_due(VIEWS_PER_PASS_MAX);
        let answer = if !due.is_empty() {
            self.of.views.write(&due).await
        } else if self.ledger.views_lost() {
            self.of.views.ping().await
        } else {
            return Ok(());
        };
        if self.redis_answered(answer) {
            self.of.metrics.views(due.len());
            self.ledger.views_written(&due);
            if self.ledger.views_lost() {
                self.read_again().await?;
            }
        }
        Ok(())
    }

    /// Too many views were owed while Redis was down: what changed since the position is found again from receipts.
    async fn read_again(&mut self) -> Result<(), Error> {
        tracing::info!("Redis answers again: views since the durable position are written anew");
        *self = Self::resume(self.of, self.holder).await?;
        Ok(())
    }

    /// Notes whether Redis answered and when it may be asked again.
    fn redis_answered(&mut self, answer: Result<(), crate::cache::Error>) -> bool {
        match answer {
            Ok(()) => {
                if std::mem::replace(&mut self.redis_away, false) {
                    tracing::info!(views_waiting = self.ledger.views_waiting(), "Redis takes views again");
                }
                self.redis_pause = REDIS_PAUSE_MIN;
                true
            }
            Err(error) => {
                self.of.metrics.views_failed();
                if !std::mem::replace(&mut self.redis_away, true) {
                    tracing::warn!(error = error.chain(), "Redis does not take views; rows go on");
                }
                self.redis_again_at = Instant::now() + self.redis_pause;
                self.redis_pause = (self.redis_pause * 2).min(REDIS_PAUSE_MAX);
                false
            }
        }
    }

    /// Advances the durable position to the last pass whose rows and views are all written.
    async fn advance(&mut self) -> Result<(), Error> {
        let Some((pass, vector)) = self.ledger.both_complete() else { return Ok(()) };
        if *vector == self.position {
            return Ok(());
        }
        let vector = vector.clone();
        self.of.live.store().advance(self.holder, pass, &vector).await?;
        self.position = vector;
        self.ledger.forget_before(pass);
        Ok(())
    }

    /// Drops receipts below the position and passes that nobody traces any more, now and then.
    async fn trim(&mut self) -> Result<(), Error> {
        if Instant::now() < self.trim_again_at {
            return Ok(());
        }
        self.trim_again_at = Instant::now() + self.of.settings.trim_interval();
        let before = OffsetDateTime::now_utc() - time::Duration::days(self.of.settings.trace_days.into());
        let store = self.of.live.store();
        store.trim_passes(self.holder, before, TRIM_PASSES_MAX).await?;
        for name in self.of.live.routes().partitions() {
            let partition = store.partition(name)?;
            for (lane, next) in self.position.iter() {
                partition.trim_receipts(self.holder.generation, lane, next, before).await?;
            }
        }
        Ok(())
    }

    /// Writes views again that readers missed, from their durable rows. Nobody else writes views, and rows of this slice
    /// are only written by this task, so what is read here is still right when it is written.
    pub(super) async fn serve_hints(&mut self) {
        if Instant::now() < self.redis_again_at {
            return;
        }
        let videos = match self.of.views.take_hints(HINTS_PER_LOOK_MAX).await {
            Ok(videos) if videos.is_empty() => return,
            Ok(videos) => videos,
            Err(error) => {
                self.redis_answered(Err(error));
                return;
            }
        };
        let generated_at = OffsetDateTime::now_utc();
        let rows = match self.of.live.store().display_rows(self.holder.generation, &videos).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(error = error.chain(), "missed views cannot be read; the next miss asks again");
                return;
            }
        };
        let absent = |video: VideoId| DisplayRow { video, parts: Parts::default(), pass: 0, generated_at };
        let rows: Vec<DisplayRow> =
            rows.into_iter().zip(videos).map(|(row, video)| row.unwrap_or_else(|| absent(video))).collect();
        let answer = self.of.views.write(&rows).await;
        if self.redis_answered(answer) {
            self.of.metrics.views(rows.len());
        }
    }
}
