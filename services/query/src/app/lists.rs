//! Lists: what I like, and who likes a video. Live lists over rows that change while somebody pages: what comes and goes meanwhile
//! is told after a refresh.

use std::sync::Arc;

use likewise_domain::id::UserId;
use likewise_domain::visibility::Sight;

use super::policies::{Age, Policies};
use crate::clients::{Facts, Failure, Liked, LikedKey};
use crate::metrics::Metrics;

/// Rows whose policies are asked for at once, by the authority's contract.
const POLICIES_MAX: usize = 200;
/// Rows read ahead of what a page needs, as some of them will be hidden.
const READ_AHEAD: usize = 8;

/// A liked video as its list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The row.
    pub liked: Liked,
    /// The video was deleted or taken down: a placeholder.
    pub gone: bool,
}

/// A page of my likes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MyLikes {
    /// The items.
    pub items: Vec<Item>,
    /// Rows that today's rules hide from the caller.
    pub hidden: usize,
    /// Key of the last row looked at; `None` at the end of the list.
    pub next: Option<LikedKey>,
}

/// Answers lists.
pub struct Lists {
    /// Committed relations.
    pub facts: Facts,
    /// Who may see what.
    pub policies: Arc<Policies>,
    /// Rows looked at per call.
    pub scan_max: usize,
    /// What is counted.
    pub metrics: Metrics,
}

impl Lists {
    /// A page of what `user` likes, behind a key. The cursor is the last row *looked at*, shown or not, so a page that is all
    /// hidden still moves; after `scan_max` rows the page ends short.
    ///
    /// # Errors
    /// When facts or authority do not answer.
    pub async fn my_likes(&self, user: &UserId, size: usize, after: Option<LikedKey>) -> Result<MyLikes, Failure> {
        let mut page = MyLikes { items: Vec::new(), hidden: 0, next: after };
        let mut scanned = 0;
        let mut ended = false;
        while page.items.len() < size && scanned < self.scan_max && !ended {
            let wanted = (size - page.items.len() + READ_AHEAD).min(self.scan_max - scanned).min(POLICIES_MAX);
            let rows = self.facts.likes(user, page.next.as_ref(), wanted).await?;
            let mut unread = rows.len();
            let behind = rows.len() >= wanted;
            let videos: Vec<_> = rows.iter().map(|row| row.key.video.clone()).collect();
            let seen = if videos.is_empty() {
                Default::default()
            } else {
                self.policies.seen(Some(user), &videos, Age::Now).await?
            };
            for liked in rows {
                if page.items.len() == size {
                    break;
                }
                (scanned, unread) = (scanned + 1, unread - 1);
                page.next = Some(liked.key.clone());
                match seen.get(&liked.key.video).map(|seen| seen.sight) {
                    Some(Sight::Visible) => page.items.push(Item { liked, gone: false }),
                    Some(Sight::Gone) => page.items.push(Item { liked, gone: true }),
                    Some(Sight::NotVisible) | None => page.hidden += 1,
                }
            }
            ended = unread == 0 && !behind;
        }
        if ended {
            page.next = None;
        }
        self.metrics.scanned.inc_by(scanned as u64);
        self.metrics.returned.inc_by(page.items.len() as u64);
        Ok(page)
    }
}
