//! Who may see which video, by what the authority says. Numbers are shown by policies that are at most a moment old; lists
//! always ask.

use std::collections::{HashMap, HashSet};

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::visibility::{Sight, Standing, VideoPolicy, sight};
use moka::future::Cache;
use std::sync::Arc;
use tokio_util::task::TaskTracker;

use crate::clients::{Authority, Failure};
use crate::config::Settings;
use crate::flight::Flights;

/// Viewer and author.
type PairKey = (UserId, UserId);

/// How much of the past is good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// What was known a moment ago.
    Recent,
    /// What the authority says now.
    Now,
}

/// A video as one viewer may see it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its policy.
    pub policy: Arc<VideoPolicy>,
    /// What the viewer may know of it.
    pub sight: Sight,
}

struct Known {
    authority: Authority,
    videos: Cache<VideoId, Arc<VideoPolicy>>,
    /// By viewer and author: what is known of one viewer never serves another.
    pairs: Cache<PairKey, Standing>,
}

/// Asks the authority, and remembers its answers for a moment.
pub struct Policies {
    known: Arc<Known>,
    video_flights: Flights<VideoId, Arc<VideoPolicy>, Failure>,
    pair_flights: Flights<PairKey, Standing, Failure>,
}

impl Policies {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(authority: Authority, settings: &Settings, tasks: TaskTracker) -> Self {
        let (max, ttl) = (settings.policy_cache_max, settings.policy_ttl());
        let known = Known {
            authority,
            videos: Cache::builder().max_capacity(max).time_to_live(ttl).build(),
            pairs: Cache::builder().max_capacity(max).time_to_live(ttl).build(),
        };
        Self { known: Arc::new(known), video_flights: Flights::new(tasks.clone()), pair_flights: Flights::new(tasks) }
    }

    /// What `viewer` (`None`: nobody in particular) may know of up to 200 videos, each named once.
    ///
    /// # Errors
    /// When the authority does not answer.
    pub async fn seen(
        &self,
        viewer: Option<&UserId>,
        videos: &[VideoId],
        age: Age,
    ) -> Result<HashMap<VideoId, Seen>, Failure> {
        let policies = self.videos(videos, age).await?;
        let standings = match viewer {
            None => HashMap::new(),
            Some(viewer) => {
                let authors: HashSet<&UserId> = policies
                    .values()
                    .filter_map(|policy| policy.author.as_ref())
                    .filter(|author| *author != viewer)
                    .collect();
                self.standings(viewer, authors.into_iter().cloned().collect(), age).await?
            }
        };
        let seen = |(video, policy): (VideoId, Arc<VideoPolicy>)| {
            let standing = policy.author.as_ref().and_then(|author| standings.get(author)).copied();
            let sight = sight(&policy, viewer, standing.unwrap_or_default());
            (video, Seen { policy, sight })
        };
        Ok(policies.into_iter().map(seen).collect())
    }

    async fn videos(&self, videos: &[VideoId], age: Age) -> Result<HashMap<VideoId, Arc<VideoPolicy>>, Failure> {
        let mut found = HashMap::with_capacity(videos.len());
        let mut missing = Vec::new();
        for video in videos {
            match self.known.videos.get(video).await {
                Some(policy) if age == Age::Recent => drop(found.insert(video.clone(), policy)),
                _ => missing.push(video.clone()),
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let ask = |videos| Arc::clone(&self.known).ask_videos(videos);
        let asked = match age {
            Age::Recent => self.video_flights.load(missing, Failure::away("policy"), ask).await?,
            Age::Now => ask(missing).await?,
        };
        found.extend(asked);
        Ok(found)
    }

    async fn standings(
        &self,
        viewer: &UserId,
        others: Vec<UserId>,
        age: Age,
    ) -> Result<HashMap<UserId, Standing>, Failure> {
        let mut found = HashMap::with_capacity(others.len());
        let mut missing = Vec::new();
        for other in others {
            let key = (viewer.clone(), other);
            match self.known.pairs.get(&key).await {
                Some(standing) if age == Age::Recent => drop(found.insert(key.1, standing)),
                _ => missing.push(key),
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let ask = |pairs| Arc::clone(&self.known).ask_pairs(viewer.clone(), pairs);
        let asked = match age {
            Age::Recent => self.pair_flights.load(missing, Failure::away("policy"), ask).await?,
            Age::Now => ask(missing).await?,
        };
        found.extend(asked.into_iter().map(|((_, other), standing)| (other, standing)));
        Ok(found)
    }
}

impl Known {
    async fn ask_videos(self: Arc<Self>, videos: Vec<VideoId>) -> Result<HashMap<VideoId, Arc<VideoPolicy>>, Failure> {
        let policies = self.authority.videos(&videos).await?;
        let policies: HashMap<_, _> = policies.into_iter().map(|(video, policy)| (video, Arc::new(policy))).collect();
        for (video, policy) in &policies {
            self.videos.insert(video.clone(), Arc::clone(policy)).await;
        }
        Ok(policies)
    }

    async fn ask_pairs(
        self: Arc<Self>,
        viewer: UserId,
        pairs: Vec<PairKey>,
    ) -> Result<HashMap<PairKey, Standing>, Failure> {
        let others: Vec<UserId> = pairs.into_iter().map(|(_, other)| other).collect();
        let standings = self.authority.standings(&viewer, &others).await?;
        let mut answered = HashMap::with_capacity(standings.len());
        for (other, standing) in standings {
            let key = (viewer.clone(), other);
            self.pairs.insert(key.clone(), standing).await;
            answered.insert(key, standing);
        }
        Ok(answered)
    }
}
