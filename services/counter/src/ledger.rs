//! Which videos still wait for their display row or their Redis view, and what is complete once none of them does. The
//! aggregator's decisions, without its I/O.
//!
//! A pass records the vector it was begun with and the videos whose buckets changed below it. A pass is complete when none of
//! the videos that waited at its beginning waits any more: then every row of the slice, changed or not, is right as of its
//! vector. *Rows* complete and *both* (rows and views) complete apart, because rows must go on being served while
//! Redis is down; only what both have passed is a position a new owner may start from.

use std::collections::{BTreeMap, HashMap};

use likewise_domain::id::VideoId;

use crate::display::DisplayRow;
use crate::vector::Vector;

/// Vectors of passes that are not complete. When there are more, every second one is forgotten: completeness is then told
/// in larger steps, never wrongly.
const VECTORS_MAX: usize = 512;

/// A video that waits for its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    /// Bucket writes seen since it was last written: how hot it is.
    changes: u64,
    /// First pass that saw it changed.
    since: i64,
}

/// A video taken to be written now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The video.
    pub video: VideoId,
    waiting: Waiting,
}

/// Videos that wait, and the vectors they hold back.
#[derive(Debug)]
pub struct Ledger {
    rows: HashMap<VideoId, Waiting>,
    views: HashMap<VideoId, (i64, DisplayRow)>,
    views_max: usize,
    /// Oldest pass whose views were given up because too many waited. Only a resume from the durable position heals it.
    views_lost: Option<i64>,
    begun: BTreeMap<i64, Vector>,
}

impl Ledger {
    /// Nothing waits. At most `views_max` views wait for Redis.
    #[must_use]
    pub fn new(views_max: usize) -> Self {
        Self { rows: HashMap::new(), views: HashMap::new(), views_max, views_lost: None, begun: BTreeMap::new() }
    }

    /// Begins a pass: `changed` videos, with the number of bucket writes, were changed below `vector`.
    pub fn begin(&mut self, pass: i64, vector: Vector, changed: impl IntoIterator<Item = (VideoId, u64)>) {
        for (video, changes) in changed {
            let waiting = self.rows.entry(video).or_insert(Waiting { changes: 0, since: pass });
            waiting.changes += changes;
        }
        if self.begun.len() >= VECTORS_MAX {
            let mut keep = false;
            self.begun.retain(|_, _| {
                keep = !keep;
                keep
            });
        }
        self.begun.insert(pass, vector);
    }

    /// Takes at most `limit` videos to write now: the hottest first, but `waiting_percent` of the places go to those that
    /// have waited longest, so a cold video waits a bounded number of passes.
    pub fn take(&mut self, limit: usize, waiting_percent: usize) -> Vec<Taken> {
        let mut all: Vec<Taken> =
            self.rows.iter().map(|(video, waiting)| Taken { video: video.clone(), waiting: *waiting }).collect();
        if all.len() > limit {
            let oldest = (limit * waiting_percent).div_ceil(100).min(limit);
            all.sort_unstable_by_key(|taken| taken.waiting.since);
            all[oldest..].sort_unstable_by_key(|taken| std::cmp::Reverse(taken.waiting.changes));
            all.truncate(limit);
        }
        for taken in &all {
            self.rows.remove(&taken.video);
        }
        all
    }

    /// The write of these failed; they wait on.
    pub fn put_back(&mut self, taken: impl IntoIterator<Item = Taken>) {
        for Taken { video, waiting } in taken {
            let kept = self.rows.entry(video).or_insert(waiting);
            kept.changes = kept.changes.max(waiting.changes);
            kept.since = kept.since.min(waiting.since);
        }
    }

    /// The rows of these are durable; their views are due.
    pub fn rows_written(&mut self, written: impl IntoIterator<Item = (Taken, DisplayRow)>) {
        for (Taken { video, waiting }, row) in written {
            let (since, kept) = self.views.entry(video).or_insert_with(|| (waiting.since, row.clone()));
            *since = (*since).min(waiting.since);
            *kept = row;
        }
        if self.views.len() > self.views_max {
            let oldest = self.views.values().map(|(since, _)| *since).min();
            self.views_lost = self.views_lost.into_iter().chain(oldest).min();
            self.views.clear();
        }
    }

    /// Views that are due, those that wait longest first.
    #[must_use]
    pub fn views_due(&self, limit: usize) -> Vec<DisplayRow> {
        let mut due: Vec<&(i64, DisplayRow)> = self.views.values().collect();
        due.sort_unstable_by_key(|(since, _)| *since);
        due.into_iter().take(limit).map(|(_, row)| row.clone()).collect()
    }

    /// These views are written.
    pub fn views_written<'a>(&mut self, written: impl IntoIterator<Item = &'a DisplayRow>) {
        for row in written {
            if self.views.get(&row.video).is_some_and(|(_, due)| due.pass <= row.pass) {
                self.views.remove(&row.video);
            }
        }
    }

    /// Whether views were given up. Then the changes since the durable position must be read again once Redis answers.
    #[must_use]
    pub const fn views_lost(&self) -> bool {
        self.views_lost.is_some()
    }

    /// Videos that wait for their row.
    #[must_use]
    pub fn rows_waiting(&self) -> usize {
        self.rows.len()
    }

    /// Views that wait for Redis.
    #[must_use]
    pub fn views_waiting(&self) -> usize {
        self.views.len()
    }

    /// The last pass complete in rows, with its vector; `None` when it is not known here any more.
    #[must_use]
    pub fn rows_complete(&self) -> Option<(i64, &Vector)> {
        let held_back_by = self.rows.values().map(|waiting| waiting.since).min();
        self.last_below(held_back_by)
    }

    /// The last pass complete in rows and views, with its vector.
    #[must_use]
    pub fn both_complete(&self) -> Option<(i64, &Vector)> {
        let rows = self.rows.values().map(|waiting| waiting.since);
        let views = self.views.values().map(|(since, _)| *since);
        self.last_below(rows.chain(views).chain(self.views_lost).min())
    }

    /// Forgets passes before `pass`, which is recorded as complete in both.
    pub fn forget_before(&mut self, pass: i64) {
        self.begun = self.begun.split_off(&pass);
    }

    fn last_below(&self, held_back_by: Option<i64>) -> Option<(i64, &Vector)> {
        let below = self.begun.range(..held_back_by.unwrap_or(i64::MAX));
        below.last().map(|(pass, vector)| (*pass, vector))
    }
}

#[cfg(test)]
mod tests {
    use likewise_domain::lane::Offset;
    use proptest::prelude::*;
    use time::OffsetDateTime;

    use super::*;
    use crate::display::Parts;

    fn video(name: &str) -> VideoId {
        VideoId::parse(name).expect("an id")
    }

    fn vector(seq: u64) -> Vector {
        [("rel-00".to_owned(), Offset { epoch: 0, seq })].into_iter().collect()
    }

    fn row(taken: &Taken, pass: i64) -> DisplayRow {
        DisplayRow {
            video: taken.video.clone(),
            parts: Parts::default(),
            pass,
            generated_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    fn write(ledger: &mut Ledger, taken: Vec<Taken>, pass: i64) {
        ledger.rows_written(taken.into_iter().map(|taken| {
            let row = row(&taken, pass);
            (taken, row)
        }));
    }

    fn flush(ledger: &mut Ledger) {
        let due = ledger.views_due(usize::MAX);
        ledger.views_written(&due);
    }

    #[test]
    fn a_pass_is_complete_when_all_it_saw_is_written() {
        let mut ledger = Ledger::new(10);
        ledger.begin(1, vector(5), [(video("a"), 1), (video("b"), 1)]);
        assert_eq!(ledger.rows_complete(), None);
        let taken = ledger.take(10, 20);
        assert_eq!(taken.len(), 2);
        write(&mut ledger, taken, 1);
        assert_eq!(ledger.rows_complete(), Some((1, &vector(5))));
        assert_eq!(ledger.both_complete(), None, "the views are still due");
        flush(&mut ledger);
        assert_eq!(ledger.both_complete(), Some((1, &vector(5))));
    }

    #[test]
    fn an_unwritten_video_holds_back_every_later_pass() {
        let mut ledger = Ledger::new(10);
        ledger.begin(1, vector(5), [(video("cold"), 1)]);
        let taken = ledger.take(10, 20);
        ledger.put_back(taken);
        ledger.begin(2, vector(9), [(video("cold"), 3), (video("hot"), 9)]);
        assert_eq!(ledger.rows_complete(), None);
        let taken = ledger.take(1, 100);
        assert_eq!(taken[0].video, video("cold"), "waited longest");
        write(&mut ledger, taken, 2);
        assert_eq!(ledger.rows_complete(), Some((1, &vector(5))), "hot still waits since pass 2");
    }

    #[test]
    fn hot_first_with_a_share_for_those_that_wait() {
        let mut ledger = Ledger::new(100);
        ledger.begin(1, vector(2), (0..10).map(|number| (video(&format!("old{number}")), 1)));
        ledger.begin(2, vector(3), (0..10).map(|number| (video(&format!("hot{number}")), 100 + number)));
        let taken = ledger.take(10, 20);
        let old = taken.iter().filter(|taken| taken.video.as_str().starts_with("old")).count();
        assert_eq!((taken.len(), old), (10, 2));
        assert!(taken.iter().any(|taken| taken.video == video("hot9")), "the hottest is among them");
    }

    #[test]
    fn views_that_were_given_up_hold_back_the_position_for_good() {
        let mut ledger = Ledger::new(2);
        ledger.begin(1, vector(2), []);
        flush(&mut ledger);
        ledger.begin(2, vector(3), ["a", "b", "c"].map(|name| (video(name), 1)));
        let taken = ledger.take(10, 20);
        write(&mut ledger, taken, 2);
        assert!(ledger.views_lost());
        assert_eq!(ledger.views_waiting(), 0);
        ledger.begin(3, vector(4), []);
        assert_eq!(ledger.rows_complete(), Some((3, &vector(4))), "rows go on");
        assert_eq!(ledger.both_complete(), Some((1, &vector(2))), "the position waits");
    }

    proptest! {
        /// Whatever is taken, failed or written in whatever order: a complete pass never has an unwritten change.
        #[test]
        fn a_complete_pass_hides_no_waiting_video(
            steps in prop::collection::vec((prop::collection::vec(0u8..20, 0..8), 0usize..6, any::<bool>(), any::<bool>()), 1..40),
        ) {
            let mut ledger = Ledger::new(8);
            let mut last_changed: HashMap<VideoId, i64> = HashMap::new();      // pass that saw the last change
            let mut row_at: HashMap<VideoId, i64> = HashMap::new();            // pass of the last row written
            let mut view_at: HashMap<VideoId, i64> = HashMap::new();
            for (pass, (changed, limit, fails, redis)) in (1..).zip(steps) {
                let changed: Vec<VideoId> = changed.iter().map(|name| video(&format!("v{name}"))).collect();
                last_changed.extend(changed.iter().map(|video| (video.clone(), pass)));
                ledger.begin(pass, vector(pass.unsigned_abs() + 1), changed.into_iter().map(|video| (video, 1)));
                let taken = ledger.take(limit, 20);
                if fails {
                    ledger.put_back(taken);
                } else {
                    row_at.extend(taken.iter().map(|taken| (taken.video.clone(), pass)));
                    write(&mut ledger, taken, pass);
                }
                if redis {
                    let due = ledger.views_due(4);
                    view_at.extend(due.iter().map(|row| (row.video.clone(), row.pass)));
                    ledger.views_written(&due);
                }
                if let Some((complete, found)) = ledger.rows_complete() {
                    prop_assert_eq!(found, &vector(complete.unsigned_abs() + 1));
                    // A change seen after `complete` may be unwritten; one seen by it must have a row at least as new.
                    for (video, changed) in &last_changed {
                        prop_assert!(*changed > complete || row_at.get(video).is_some_and(|at| at >= changed));
                    }
                }
                if let Some((complete, _)) = ledger.both_complete() {
                    for (video, changed) in &last_changed {
                        prop_assert!(*changed > complete || view_at.get(video).is_some_and(|at| at >= changed));
                    }
                    ledger.forget_before(complete);
                }
            }
        }
    }
}
