//! Numbers, from the nearest place that has them: this process, Redis, the counter. Every number keeps the progress that was
//! known before it was read.
//!
//! One load per video is in flight; popular numbers are renewed ahead of their end, by one load, while the old ones are
//! answered. No cache outside this process is ever written.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use likewise_domain::id::VideoId;
use moka::future::Cache;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::progress::ProgressKeeper;
use crate::cache::Views;
use crate::clients::{Counter, Failure};
use crate::config::Settings;
use crate::count::Reading;
use crate::flight::Flights;
use crate::metrics::Metrics;

#[derive(Clone)]
struct Kept {
    reading: Arc<Reading>,
    read_at: Instant,
}

/// Where numbers come from when this process has none.
struct Sources {
    local: Cache<VideoId, Kept>,
    views: Views,
    counter: Counter,
    progress: ProgressKeeper,
    counter_calls: Semaphore,
    /// Longest wait for a turn to call the counter.
    counter_wait: Duration,
    redis_pause: RedisPause,
    metrics: Metrics,
}

/// Reads numbers.
pub struct Counts {
    sources: Arc<Sources>,
    flights: Flights<VideoId, Arc<Reading>, Failure>,
    ttl: Duration,
}

impl Counts {
    /// Reads from these places.
    #[must_use]
    pub fn new(views: Views, counter: Counter, settings: &Settings, tasks: TaskTracker, metrics: Metrics) -> Self {
        let local = Cache::builder().max_capacity(settings.count_cache_max).time_to_live(settings.count_ttl()).build();
        let sources = Sources {
            local,
            views,
            progress: ProgressKeeper::new(counter.clone(), settings.progress_poll(), tasks.clone()),
            counter,
            counter_calls: Semaphore::new(settings.counter_calls_max),
            counter_wait: settings.call_timeout(),
            redis_pause: RedisPause::new(settings.redis_pause()),
            metrics,
        };
        Self { sources: Arc::new(sources), flights: Flights::new(tasks), ttl: settings.count_ttl() }
    }

    /// Numbers of these videos, each named once. One that nobody could tell is missing in the answer.
    pub async fn read(&self, videos: &[VideoId]) -> HashMap<VideoId, Arc<Reading>> {
        let metrics = &self.sources.metrics;
        let mut found = HashMap::with_capacity(videos.len());
        let (mut missing, mut ageing) = (Vec::new(), Vec::new());
        for video in videos {
            match self.sources.local.get(video).await {
                Some(kept) => {
                    if kept.read_at.elapsed() > self.ttl / 2 {
                        ageing.push(video.clone());
                    }
                    found.insert(video.clone(), kept.reading);
                }
                None => missing.push(video.clone()),
            }
        }
        metrics.local_hits.inc_by(found.len() as u64);
        if !ageing.is_empty() {
            self.flights.start(ageing, |videos| Arc::clone(&self.sources).load(videos));
        }
        if !missing.is_empty() {
            let load = |videos| Arc::clone(&self.sources).load(videos);
            match self.flights.load(missing, Failure::away("counter"), load).await {
                Ok(loaded) => found.extend(loaded),
                Err(failure) => tracing::warn!(%failure, "counts cannot be read"),
            }
        }
        metrics.unknown.inc_by((videos.len() - found.len()) as u64);
        found
    }
}

impl Sources {
    /// Reads from Redis what it has and from the counter what it lacks. What neither can tell is missing.
    async fn load(self: Arc<Self>, videos: Vec<VideoId>) -> Result<HashMap<VideoId, Arc<Reading>>, Failure> {
        let read_at = Instant::now();
        let mut found = self.view_readings(&videos).await;
        let missing: Vec<VideoId> = videos.into_iter().filter(|video| !found.contains_key(video)).collect();
        let mut failed = None;
        for answer in join_all(missing.chunks(Counter::VIDEOS_MAX).map(|videos| self.durable_readings(videos))).await {
            match answer {
                Ok(rows) => found.extend(rows),
                Err(failure) => failed = Some(failure),
            }
        }
        for (video, reading) in &found {
            self.local.insert(video.clone(), Kept { reading: Arc::clone(reading), read_at }).await;
        }
        match failed {
            // Nothing at all: say why.
            Some(failure) if found.is_empty() => Err(failure),
            _ => Ok(found),
        }
    }

    async fn view_readings(&self, videos: &[VideoId]) -> HashMap<VideoId, Arc<Reading>> {
        // Before the views are read, so that it is a lower bound for them.
        let Some(progress) = self.progress.latest().await else { return HashMap::new() };
        if self.redis_pause.is_on() {
            return HashMap::new();
        }
        match self.views.read(progress.generation, videos).await {
            Ok(views) => {
                let found: HashMap<_, _> = videos
                    .iter()
                    .zip(views)
                    .filter_map(|(video, numbers)| {
                        let progress = Arc::clone(&progress);
                        Some((video.clone(), Arc::new(Reading { numbers: numbers?, progress })))
                    })
                    .collect();
                self.metrics.view_hits.inc_by(found.len() as u64);
                self.metrics.view_misses.inc_by((videos.len() - found.len()) as u64);
                found
            }
            Err(error) => {
                self.metrics.redis_failures.inc();
                if self.redis_pause.begin() {
                    tracing::warn!(%error, "durable rows answer while Redis is away");
                }
                HashMap::new()
            }
        }
    }

    async fn durable_readings(&self, videos: &[VideoId]) -> Result<HashMap<VideoId, Arc<Reading>>, Failure> {
        // Bounded: behind a counter that hangs a queue would grow, and hearts would wait at its end.
        let turn = tokio::time::timeout(self.counter_wait, self.counter_calls.acquire()).await;
        let Ok(Ok(_permit)) = turn else { return Err(Failure::away("counter")) };
        let rows = self.counter.counts(videos).await?;
        self.metrics.durable_reads.inc_by(rows.len() as u64);
        Ok(rows)
    }
}

/// Leaves Redis alone for a while after it failed, so that not every read waits for its time-out.
struct RedisPause {
    started: Instant,
    pause: Duration,
    /// Milliseconds after `started` until which the pause lasts.
    until: AtomicU64,
}

impl RedisPause {
    fn new(pause: Duration) -> Self {
        Self { started: Instant::now(), pause, until: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_on(&self) -> bool {
        self.now() < self.until.load(Ordering::Relaxed)
    }

    /// Answers whether it was off.
    fn begin(&self) -> bool {
        let now = self.now();
        let until = now.saturating_add(u64::try_from(self.pause.as_millis()).unwrap_or(u64::MAX));
        self.until.swap(until, Ordering::Relaxed) <= now
    }
}
