//! Lists the likers of a video for one viewer: reads the shards, merges them, and asks the authority about every candidate
//! before anybody is named.
//!
//! Promises: nobody is returned whom the rules of this moment hide from the viewer; nobody is skipped or repeated over
//! pages; one call looks at a bounded number of candidates. If the authority cannot answer, no identity leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join_all;
use likewise_domain::id::{UserId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::merge::{LikerKey, Merge};
use likewise_domain::visibility::{Sight, Standing, VideoStatus, may_be_listed, may_list_likers, sight};
use likewise_kit::lanes::checkpoints;

use crate::clients::{Authority, Away};
use crate::config::Settings;
use crate::consumer::projection_name;
use crate::contract::Contract;
use crate::metrics::Metrics;
use crate::store::{self, Metadata, Part, Wanted};

/// Fewest and most candidates fetched per shard at once: an uneven shard should not cost a round trip per candidate, and a
/// short page should not read what it will not look at.
const PREFETCH_MIN: usize = 8;
const PREFETCH_MAX: usize = 128;

/// Which page is asked for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The video.
    pub video: VideoId,
    /// Who will see the page; `None` for nobody in particular.
    pub viewer: Option<UserId>,
    /// Most likers on the page.
    pub page_size: usize,
    /// Last popped key of every shard, in the order of the shards.
    pub after: Vec<Option<LikerKey>>,
}

/// A page.
#[derive(Debug, Clone)]
pub struct Page {
    /// Those the viewer may see, newest like first.
    pub likers: Vec<LikerKey>,
    /// Candidates that were passed because of policy.
    pub hidden: usize,
    /// Last popped key of every shard; `None` at the end of the list.
    pub next: Option<Vec<Option<LikerKey>>>,
    /// Last change included, per lane, from before the candidates were read.
    pub watermarks: Vec<(String, Offset)>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such video, or the viewer may not know of it.
    #[error("the video is not there for this viewer")]
    NotFound,
    /// The video was deleted or taken down.
    #[error("the video is gone")]
    Gone,
    /// The author does not show the likers to this viewer.
    #[error("the author does not show who likes this video")]
    LikersHidden,
    /// The authority for accounts and videos does not answer.
    #[error(transparent)]
    Away(#[from] Away),
    /// The index cannot be read.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The checkpoints cannot be read.
    #[error("read how far the index has come")]
    Watermarks(#[source] likewise_kit::lanes::Error),
}

/// Lists likers of the active generation.
#[derive(Clone)]
pub struct Likers {
    /// The contract of the generation.
    pub contract: Arc<Contract>,
    /// Its parts, in their order.
    pub parts: Arc<[Part]>,
    /// The metadata schema.
    pub metadata: Metadata,
    /// The authority for accounts and videos.
    pub authority: Authority,
    /// Limits.
    pub settings: Arc<Settings>,
    /// What is counted.
    pub metrics: Metrics,
}

impl Likers {
    /// One page.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn page(&self, ask: Ask) -> Result<Page, Refusal> {
        let (admitted, watermarks) = tokio::join!(self.admit(&ask), self.watermarks());
        admitted?;
        let watermarks = watermarks?;
        let mut merge = Merge::new(ask.after.iter().cloned());
        let (mut likers, mut hidden) = (Vec::new(), 0);
        while !merge.ended() && likers.len() < ask.page_size && likers.len() + hidden < self.settings.scan_max {
            let room = ask.page_size - likers.len();
            self.fetch(&mut merge, &ask.video, room).await?;
            // Somewhat more than fits, as some of them will be hidden; what does not fit is asked for again.
            let batch = (room + room / 2 + 4).min(self.settings.policy_batch);
            let batch = batch.min(self.settings.scan_max - likers.len() - hidden);
            let heads: Vec<LikerKey> = merge.heads(batch).into_iter().cloned().collect();
            let shown = self.shown(&heads, ask.viewer.as_ref()).await?;
            for (head, shown) in heads.into_iter().zip(shown) {
                if likers.len() == ask.page_size {
                    break;
                }
                merge.pop();
                if shown { likers.push(head) } else { hidden += 1 }
            }
        }
        self.metrics.paged(likers.len() as u64, hidden as u64);
        let next = (!merge.ended()).then(|| merge.frontiers().map(Option::<&_>::cloned).collect());
        Ok(Page { likers, hidden, next, watermarks })
    }

    /// Whether the viewer may see this list at all.
    async fn admit(&self, ask: &Ask) -> Result<(), Refusal> {
        let policy = self.authority.video(&ask.video).await?;
        let viewer = ask.viewer.as_ref();
        let standing = match (viewer, &policy.author) {
            (Some(viewer), Some(author)) if viewer != author => {
                let standings = self.authority.standings(viewer, std::slice::from_ref(author)).await?;
                standings.get(author).copied().ok_or(Away::INCOMPLETE)?
            }
            _ => Standing::default(),
        };
        match sight(&policy, viewer, standing) {
            Sight::NotVisible => Err(Refusal::NotFound),
            Sight::Gone => Err(Refusal::Gone),
            // Drafts have no likers to show, not even to their author.
            Sight::Visible if policy.status != VideoStatus::Published => Err(Refusal::NotFound),
            Sight::Visible if may_list_likers(&policy, viewer) => Ok(()),
            Sight::Visible => Err(Refusal::LikersHidden),
        }
    }

    async fn watermarks(&self) -> Result<Vec<(String, Offset)>, Refusal> {
        let name = projection_name(self.contract.generation());
        let checkpoints = checkpoints(self.metadata.pool(), &name).await.map_err(Refusal::Watermarks)?;
        let included = |next: u64| next.saturating_sub(1);
        Ok(checkpoints
            .into_iter()
            .map(|at| (at.lane, Offset { epoch: at.epoch, seq: included(at.next_offset) }))
            .collect())
    }

    /// Feeds every starved shard: one query per part that holds any of them, all at once.
    async fn fetch(&self, merge: &mut Merge<LikerKey>, video: &VideoId, room: usize) -> Result<(), Refusal> {
        let shards = usize::try_from(self.contract.reverse_shards()).unwrap_or(1);
        let limit = (room * 2).div_ceil(shards).clamp(PREFETCH_MIN, PREFETCH_MAX);
        let mut wanted: BTreeMap<u32, Vec<Wanted>> = BTreeMap::new();
        for (shard, after) in merge.starved() {
            let reverse_shard = u32::try_from(shard).unwrap_or(u32::MAX);
            let part = self.contract.part(video, reverse_shard);
            wanted.entry(part).or_default().push(Wanted { reverse_shard, after: after.cloned() });
        }
        let reads = wanted.iter().filter_map(|(part, wanted)| {
            let part = self.parts.get(usize::try_from(*part).ok()?)?;
            Some(part.page(video, wanted, limit))
        });
        let mut found: BTreeMap<u32, Vec<LikerKey>> = BTreeMap::new();
        for (shard, key) in try_join_all(reads).await?.into_iter().flatten() {
            found.entry(shard).or_default().push(key);
        }
        for wanted in wanted.into_values().flatten() {
            let candidates = found.remove(&wanted.reverse_shard).unwrap_or_default();
            let ended = candidates.len() < limit;
            merge.feed(usize::try_from(wanted.reverse_shard).unwrap_or(usize::MAX), candidates, ended);
        }
        Ok(())
    }

    /// For each candidate, whether the viewer may see it, by what the authority says now.
    async fn shown(&self, candidates: &[LikerKey], viewer: Option<&UserId>) -> Result<Vec<bool>, Refusal> {
        let ids: Vec<UserId> = candidates.iter().map(|key| key.user_id.clone()).collect();
        let others: Vec<UserId> = ids.iter().filter(|id| viewer != Some(*id)).cloned().collect();
        let standings = async {
            match viewer {
                Some(viewer) => self.authority.standings(viewer, &others).await.map(Some),
                None => Ok(None),
            }
        };
        let (accounts, standings) = tokio::try_join!(self.authority.accounts(&ids), standings)?;
        let shown = |id: &UserId| {
            let policy = *accounts.get(id).ok_or(Away::INCOMPLETE)?;
            let standing = match &standings {
                Some(standings) if viewer != Some(id) => *standings.get(id).ok_or(Away::INCOMPLETE)?,
                _ => Standing::default(),
            };
            Ok(may_be_listed(id, policy, viewer, standing))
        };
        Ok(ids.iter().map(shown).collect::<Result<_, Away>>()?)
    }
}
