//! What is answered: durable rows with the progress they are covered by.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use likewise_domain::id::VideoId;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::app::live::{Live, SLICE};
use crate::cache::Views;
use crate::clients::Source;
use crate::display::DisplayRow;
use crate::freshness::Freshness;
use crate::store::Error;
use crate::store::display::Reached;
use crate::store::partition::Bucket;

/// Hints are collected this long before they are filed together.
const HINT_LINGER: Duration = Duration::from_millis(20);

/// How far the counts have come, as answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The generation.
    pub generation: i32,
    /// The pass and its vector.
    pub reached: Reached,
    /// Everything committed before this is covered; `None` until it was shown once.
    pub covered_until: Option<OffsetDateTime>,
    /// The generation is known to lack something.
    pub incomplete: bool,
}

/// One bucket of a video with its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedBucket {
    /// The bucket.
    pub bucket: Bucket,
    /// Partition that owns it.
    pub partition: String,
    /// Route epoch under which it is owned.
    pub route_epoch: u64,
}

/// Freshness of durable rows, and of rows and views together, from the same answers of the source.
#[derive(Default)]
struct Covered {
    rows: Freshness,
    both: Freshness,
}

/// Answers counts.
pub struct Counts {
    live: Arc<Live>,
    covered: Mutex<Covered>,
    missed: Mutex<HashSet<VideoId>>,
    missed_max: usize,
    missed_some: Notify,
}

impl Counts {
    /// Answers from the rows of a generation. At most `missed_max` missed views are remembered.
    #[must_use]
    pub fn new(live: Arc<Live>, missed_max: usize) -> Self {
        Self { live, covered: Mutex::default(), missed: Mutex::default(), missed_max, missed_some: Notify::new() }
    }

    /// The generation answered from.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Durable rows in the order asked (`None`: no row, which is a count of 0 as of the progress), with the progress of
    /// rows, read before them. The reader comes because it missed the views: they are written again.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn rows(&self, videos: &[VideoId]) -> Result<(Vec<Option<DisplayRow>>, Progress), Error> {
        let (stored, rows) = self.live.store().progress_then_rows(self.live.generation(), SLICE, videos).await?;
        let covered_until = self.with_covered(|covered| covered.rows.covered_until(&stored.rows.vector));
        self.hint(videos);
        Ok((rows, self.progress_of(stored.rows, covered_until, stored.incomplete)))
    }

    /// Progress of rows and views together: what a reader of views may believe.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn progress(&self) -> Result<Progress, Error> {
        let stored = self.live.store().progress(self.live.generation(), SLICE).await?;
        let covered_until = self.with_covered(|covered| covered.both.covered_until(&stored.both.vector));
        Ok(self.progress_of(stored.both, covered_until, stored.incomplete))
    }

    /// The buckets of one video over all partitions, and its row.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn describe(&self, video: &VideoId) -> Result<(Vec<OwnedBucket>, Option<DisplayRow>, Progress), Error> {
        let progress = self.progress().await?;
        let (generation, routes) = (self.live.generation(), self.live.routes());
        let mut buckets = Vec::new();
        for (index, name) in routes.partitions().iter().enumerate() {
            for bucket in self.live.store().partition(name)?.describe(generation, video).await? {
                if let Some(route) = routes.of(bucket.vbucket).filter(|route| route.partition == index) {
                    buckets.push(OwnedBucket { bucket, partition: name.clone(), route_epoch: route.epoch });
                }
            }
        }
        buckets.sort_by_key(|owned| owned.bucket.vbucket);
        let rows = self.live.store().display_rows(generation, std::slice::from_ref(video)).await?;
        Ok((buckets, rows.into_iter().next().flatten(), progress))
    }

    fn progress_of(&self, reached: Reached, covered_until: Option<OffsetDateTime>, incomplete: bool) -> Progress {
        Progress { generation: self.live.generation(), reached, covered_until, incomplete }
    }

    fn with_covered<T>(&self, read: impl FnOnce(&mut Covered) -> T) -> T {
        // A panic inside leaves plain data that is still right.
        let mut covered = self.covered.lock().unwrap_or_else(PoisonError::into_inner);
        read(&mut covered)
    }

    /// Remembers that views of these were missed. Full: forgotten, the next miss says it again.
    fn hint(&self, videos: &[VideoId]) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.missed_max.saturating_sub(missed.len());
        missed.extend(videos.iter().take(room).cloned());
        drop(missed);
        self.missed_some.notify_one();
    }

    /// Files hints for the aggregator, until `stop`; `wake` tells one in this process.
    pub async fn file_hints(&self, views: &Views, wake: &Notify, stop: &CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.missed_some.notified() => sleep(HINT_LINGER).await,
            }
            let missed = std::mem::take(&mut *self.missed.lock().unwrap_or_else(PoisonError::into_inner));
            let missed: Vec<VideoId> = missed.into_iter().collect();
            match views.file_hints(&missed, self.missed_max).await {
                Ok(()) => wake.notify_one(),
                // Redis is down: there are no views to write, and later misses file later hints.
                Err(error) => tracing::debug!(error = error.chain(), "hints are dropped"),
            }
        }
    }

    /// Asks the source how far it has committed, every `every`, until `stop`. It asks whether or not anybody reads: the first
    /// reader after a quiet hour is told a fresh number, too.
    pub async fn watch_source(&self, source: &Source, every: Duration, within: Duration, stop: &CancellationToken) {
        let mut failing = false;
        loop {
            let asked = timeout(within, source.observe(self.live.lanes(), within)).await;
            match asked.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
                Ok(observation) => {
                    failing = false;
                    let mut covered = self.covered.lock().unwrap_or_else(PoisonError::into_inner);
                    covered.rows.observe(observation.clone());
                    covered.both.observe(observation);
                }
                Err(reason) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(reason, "the source cannot say how far it has committed; counts become stale");
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(every) => {}
            }
        }
    }
}
