//! A page's hearts and numbers. They are two facts with two kinds of freshness: the heart is the relation as committed, read from
//! the shard that owns the user, and no number that lags can change it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::lane::Position;
use time::OffsetDateTime;

use super::counts::Counts;
use super::policies::{Age, Policies};
use crate::clients::{Facts, Failure, Relation};
use crate::count::{Question, Reading, Shown, Viewer, show, visibility};
use crate::page::Batch;

/// Answers pages of hearts and numbers.
pub struct Likes {
    /// Committed relations.
    pub facts: Facts,
    /// Numbers.
    pub counts: Counts,
    /// Who may see what.
    pub policies: Arc<Policies>,
    /// Convergence window.
    pub window: Duration,
}

impl Likes {
    /// Heart and number of every video of the batch, in its order. The relations come from one call. A number that cannot be
    /// told, or of which nobody can say who may see it, is absent; the hearts do not depend on it.
    ///
    /// # Errors
    /// When the facts do not answer: a heart is never guessed.
    pub async fn page(
        &self,
        user: UserId,
        batch: Batch,
        position: Option<Position>,
        now: OffsetDateTime,
    ) -> Result<Vec<(VideoId, Relation, Shown)>, Failure> {
        let viewer = Viewer::User(user);
        let Viewer::User(user) = &viewer else { return Ok(Vec::new()) };
        let (relations, readings, seen) = tokio::join!(
            self.facts.relations(user, &batch.distinct),
            self.counts.read(&batch.distinct),
            self.policies.seen(Some(user), &batch.distinct, Age::Recent),
        );
        let relations = relations?;
        if let Err(failure) = &seen {
            tracing::warn!(%failure, "no number is shown while nobody can say who may see it");
        }
        let seen = seen.unwrap_or_default();
        let question = Question { viewer: &viewer, position, now, window: self.window };
        let like = |video: VideoId| {
            let relation = *relations.get(&video)?;
            let visibility = seen.get(&video).map(|seen| visibility(&seen.policy, seen.sight, &viewer));
            let shown = show(visibility, readings.get(&video).cloned(), question);
            Some((video, relation, shown))
        };
        // Every video has a relation: an answer without one is no answer.
        Ok(batch.asked.into_iter().filter_map(like).collect())
    }

    /// The number of every video of the batch, in its order.
    ///
    /// # Errors
    /// When nobody can say who may see them, or none of the numbers that may be shown is known.
    pub async fn counts(
        &self,
        viewer: &Viewer,
        batch: Batch,
        position: Option<Position>,
        now: OffsetDateTime,
    ) -> Result<Vec<(VideoId, Shown)>, Failure> {
        let (readings, seen) = tokio::join!(
            self.counts.read(&batch.distinct),
            self.policies.seen(viewer.user(), &batch.distinct, Age::Recent),
        );
        let seen = seen?;
        let question = Question { viewer, position, now, window: self.window };
        let count = |video: VideoId| {
            let visibility = seen.get(&video).map(|seen| visibility(&seen.policy, seen.sight, viewer));
            let shown = show(visibility, readings.get(&video).cloned(), question);
            (video, shown)
        };
        let shown: Vec<_> = batch.asked.into_iter().map(count).collect();
        if none_is_known(&readings, &shown) { Err(Failure::away("counter")) } else { Ok(shown) }
    }
}

/// Some numbers may be shown, and not one of them is known.
fn none_is_known(readings: &HashMap<VideoId, Arc<Reading>>, shown: &[(VideoId, Shown)]) -> bool {
    let mut visible = shown.iter().filter(|(_, shown)| shown.freshness.is_some()).peekable();
    visible.peek().is_some() && visible.all(|(video, _)| !readings.contains_key(video))
}
