//! What this process remembers of videos and blocks, and how it asks.
//!
//! Promises: an answer is never older than the settings allow; a newer version is never replaced by an older one, so a
//! load that was on its way while an event came in changes nothing. Whoever asks for what is being asked for already
//! waits for the same answer, and whatever is asked for while a question is out goes into the next one.
//!
//! The memory is this process's own. The authority's events ([`crate::consumer`]) reach every process without a lease
//! or a checkpoint: they make it forget early, and the age limit makes up for every one that is lost. While they do not reach
//! it, and for all it learned before they did again, it asks each time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use likewise_domain::decide::PolicyRefusal;
use likewise_domain::id::{UserId, VideoId};
use likewise_domain::visibility::Standing;
use moka::future::Cache;
use moka::ops::compute::Op;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::clients::{Authority, Away, VIDEOS_MAX};
use crate::config::Settings;
use crate::policy::{Ages, BlockSet, Need, VideoSnapshot, need, refusal, serves};

type Answers = Vec<oneshot::Sender<Result<Arc<VideoSnapshot>, Away>>>;

struct Known<T> {
    version: u64,
    /// Absent after an event that told a version and no more.
    value: Option<Arc<T>>,
    at: Instant,
}

impl<T> Clone for Known<T> {
    fn clone(&self) -> Self {
        Self { version: self.version, value: self.value.clone(), at: self.at }
    }
}

/// Out of touch; see [`Policies::lose_touch`].
const NEVER: u64 = u64::MAX;

/// Policies as this process knows them.
pub(crate) struct Policies {
    authority: Authority,
    ages: Ages,
    began_at: Instant,
    /// Microseconds from `began_at` since which every event was heard.
    in_touch_since: AtomicU64,
    videos: Cache<VideoId, Known<VideoSnapshot>>,
    blocks: Cache<UserId, Known<BlockSet>>,
    asking: Cache<UserId, Arc<BlockSet>>,
    wanted: Mutex<HashMap<VideoId, Answers>>,
    wake: Notify,
}

impl Policies {
    pub(crate) fn new(authority: Authority, settings: &Settings) -> Self {
        let ages = Ages {
            fresh: Duration::from_millis(settings.policy_ttl_ms),
            missing: Duration::from_millis(settings.policy_missing_ttl_ms),
            grace: Duration::from_millis(settings.policy_grace_ms),
        };
        let size = settings.policy_cache_max;
        Self {
            authority,
            ages,
            began_at: Instant::now(),
            in_touch_since: AtomicU64::new(NEVER),
            videos: Cache::builder().max_capacity(size).time_to_live(ages.grace).build(),
            blocks: Cache::builder().max_capacity(size).time_to_live(ages.grace).build(),
            // Holds what was just loaded for a moment only: it is here to make callers wait for one load.
            asking: Cache::builder().max_capacity(size).time_to_live(Duration::from_millis(1)).build(),
            wanted: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Why `viewer` may not like the video; the authority is asked when what is known is too old.
    pub(crate) async fn refusal(&self, viewer: &UserId, video: &VideoId) -> Option<PolicyRefusal> {
        let verdict = async {
            let snapshot = self.video(video).await?;
            let standing = match need(&snapshot.policy, viewer) {
                Need::Nothing => Standing::default(),
                Need::Blocks(author) => {
                    Standing { blocked: self.blocked(viewer, &author).await?, ..Standing::default() }
                }
                Need::Pair(author) => self.authority.pair(viewer, &author).await?,
            };
            Ok::<_, Away>(refusal(&snapshot.policy, viewer, standing))
        };
        verdict.await.unwrap_or(Some(PolicyRefusal::AuthorityUnavailable))
    }

    /// Events may have been missed from now on.
    pub(crate) fn lose_touch(&self) {
        self.in_touch_since.store(NEVER, Ordering::Release);
    }

    /// Every event from now on is heard.
    pub(crate) fn come_in_touch(&self) {
        self.in_touch_since.store(self.micros(Instant::now()), Ordering::Release);
    }

    /// Whether every event since then was heard.
    fn heard_all_since(&self, at: Instant) -> bool {
        self.micros(at) >= self.in_touch_since.load(Ordering::Acquire)
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began_at).as_micros()).unwrap_or(NEVER - 1)
    }

    async fn video(&self, id: &VideoId) -> Result<Arc<VideoSnapshot>, Away> {
        let known = self.videos.get(id).await;
        if let Some(Known { value: Some(value), at, .. }) = &known
            && serves(value, at.elapsed(), self.ages)
            && self.heard_all_since(*at)
        {
            return Ok(Arc::clone(value));
        }
        let (answer, answered) = oneshot::channel();
        self.lock().entry(id.clone()).or_default().push(answer);
        self.wake.notify_one();
        match (answered.await.unwrap_or(Err(Away)), known.and_then(|known| known.value)) {
            (Ok(value), _) => Ok(value),
            // The cache forgets what is older than the grace period.
            (Err(Away), Some(old)) => Ok(old),
            (Err(Away), None) => Err(Away),
        }
    }

    /// Whether one blocks the other. Block sets go both ways, so either one's will do; authors are fewer than viewers.
    async fn blocked(&self, viewer: &UserId, author: &UserId) -> Result<bool, Away> {
        if let Some(set) = self.known_blocks(viewer).await {
            if set.others.contains(author) {
                return Ok(true);
            }
            if !set.truncated {
                return Ok(false);
            }
        }
        for (user, other) in [(author, viewer), (viewer, author)] {
            let set = self.block_set(user).await?;
            if set.others.contains(other) {
                return Ok(true);
            }
            if !set.truncated {
                return Ok(false);
            }
        }
        Ok(self.authority.pair(viewer, author).await?.blocked)
    }

    async fn known_blocks(&self, user: &UserId) -> Option<Arc<BlockSet>> {
        let known = self.blocks.get(user).await?;
        known.value.filter(|_| known.at.elapsed() <= self.ages.fresh && self.heard_all_since(known.at))
    }

    async fn block_set(&self, user: &UserId) -> Result<Arc<BlockSet>, Away> {
        if let Some(set) = self.known_blocks(user).await {
            return Ok(set);
        }
        let load = async {
            let asked_at = Instant::now();
            let set = Arc::new(self.authority.block_set(user).await?);
            keep(&self.blocks, user, set.version, Some(Arc::clone(&set)), asked_at).await;
            Ok(set)
        };
        match self.asking.try_get_with_by_ref(user, load).await {
            Ok(set) => Ok(set),
            Err(away) => {
                let old = self.blocks.get(user).await.and_then(|known| known.value);
                old.ok_or_else(|| *away)
            }
        }
    }

    /// The authority told the whole policy of a video.
    pub(crate) async fn video_changed(&self, id: &VideoId, snapshot: VideoSnapshot) {
        keep(&self.videos, id, snapshot.version, Some(Arc::new(snapshot)), Instant::now()).await;
    }

    /// The authority told that a block set has changed.
    pub(crate) async fn blocks_changed(&self, user: &UserId, version: u64) {
        keep(&self.blocks, user, version, None, Instant::now()).await;
    }

    /// Asks for wanted videos, many at a time, until the process stops.
    pub(crate) async fn ask(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
            }
            while let Some((ids, answers)) = self.next_question() {
                self.question(ids, answers).await;
            }
        }
    }

    fn next_question(&self) -> Option<(Vec<VideoId>, Vec<Answers>)> {
        let mut wanted = self.lock();
        let ids: Vec<VideoId> = wanted.keys().take(VIDEOS_MAX).cloned().collect();
        if ids.is_empty() {
            return None;
        }
        let answers = ids.iter().filter_map(|id| wanted.remove(id)).collect();
        Some((ids, answers))
    }

    async fn question(&self, ids: Vec<VideoId>, answers: Vec<Answers>) {
        let asked_at = Instant::now();
        let told = self.authority.videos(&ids).await;
        let mut told = told.map(Vec::into_iter);
        for (id, waiting) in ids.iter().zip(answers) {
            let answer = match &mut told {
                Ok(snapshots) => match snapshots.next() {
                    Some(snapshot) => {
                        Ok(keep(&self.videos, id, snapshot.version, Some(Arc::new(snapshot)), asked_at).await)
                    }
                    None => Err(Away),
                },
                Err(away) => Err(*away),
            };
            let answer = answer.and_then(|kept| kept.ok_or(Away));
            for caller in waiting {
                let _ = caller.send(answer.clone());
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<VideoId, Answers>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the newer of what is known and what was told, and returns it. Told again, a version is fresh again. Version 0
/// always replaces: the authority does not know the object any more, or keeps no versions. `at` is when it was asked: what
/// happens while its answer is on its way may not be in it.
async fn keep<K, T>(
    cache: &Cache<K, Known<T>>,
    key: &K,
    version: u64,
    value: Option<Arc<T>>,
    at: Instant,
) -> Option<Arc<T>>
where
    K: std::hash::Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    let told = Known { version, value, at };
    let kept = cache.entry_by_ref(key).and_compute_with(|entry| {
        let known = entry.map(moka::Entry::into_value);
        let older = known.filter(|known| known.version > told.version && told.version > 0);
        std::future::ready(if older.is_some() { Op::Nop } else { Op::Put(told) })
    });
    match kept.await {
        moka::ops::compute::CompResult::Inserted(entry)
        | moka::ops::compute::CompResult::ReplacedWith(entry)
        | moka::ops::compute::CompResult::Unchanged(entry) => entry.into_value().value,
        moka::ops::compute::CompResult::StillNone(_) | moka::ops::compute::CompResult::Removed(_) => None,
    }
}
