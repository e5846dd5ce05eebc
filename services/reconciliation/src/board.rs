//! The lag board: what publishers and consumers of several processes say of the same lanes, as one table.
//!
//! Several processes may answer for one lane: after a change of hands an old owner still knows an older state, and one who
//! waits for a lease shares the checkpoint of its owner. Watermarks only grow, so the furthest of each wins.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use time::OffsetDateTime;

/// What a publisher says of one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Lane name.
    pub lane: String,
    /// Epoch of the numbers below.
    pub epoch: u64,
    /// Highest committed sequence number.
    pub committed_seq: u64,
    /// Highest sequence number with evidence of its publication.
    pub published_seq: u64,
    /// Commit time of the oldest change without evidence.
    pub oldest_unpublished_at: Option<OffsetDateTime>,
    /// Last error; empty when it works.
    pub last_error: String,
    /// What the shard is doing; empty when its database does not answer.
    pub status: String,
    /// Epochs after the first one, in order.
    pub epochs: Vec<Epoch>,
}

/// An epoch that began with the repair of a lost tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// Its number.
    pub epoch: u64,
    /// One above the last number that it has in common with those before it.
    pub first_seq: u64,
    /// When the repair began.
    pub began_at: Option<OffsetDateTime>,
    /// When the shard served again.
    pub served_at: Option<OffsetDateTime>,
    /// Published messages that the facts had lost.
    pub lost: u64,
    /// Objects that were given a new version because of them.
    pub restated: u64,
}

/// What a consumer says of one projection on one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumed {
    /// Projection, for example `counter.g1`.
    pub projection: String,
    /// Lane name.
    pub lane: String,
    /// Epoch of `next_offset`.
    pub epoch: u64,
    /// First message not included.
    pub next_offset: u64,
    /// When the checkpoint last moved.
    pub updated_at: Option<OffsetDateTime>,
    /// State of the consumer.
    pub status: String,
    /// Last error; empty when it works.
    pub last_error: String,
    /// Open quarantine rows.
    pub quarantined: u64,
}

/// One lane of the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Lane name.
    pub lane: String,
    /// Its publisher; `None` when nobody answered for it.
    pub published: Option<Published>,
    /// Its projections, by name.
    pub projections: Vec<(Consumed, Option<u64>)>,
}

/// A consumer that only waits for the lease of another knows less of its state than the owner.
const WAITING: &str = "WAITING";

/// Puts answers together: lanes by name, each with the lag of its projections.
pub fn merge(published: impl IntoIterator<Item = Published>, consumed: impl IntoIterator<Item = Consumed>) -> Vec<Row> {
    let mut publishers: BTreeMap<String, Published> = BTreeMap::new();
    for told in published {
        match publishers.entry(told.lane.clone()) {
            Entry::Vacant(free) => {
                free.insert(told);
            }
            Entry::Occupied(mut known) => {
                let furthest = |one: &Published| (one.epoch, one.committed_seq, one.published_seq);
                if furthest(&told) > furthest(known.get()) {
                    known.insert(told);
                }
            }
        }
    }
    let mut consumers: BTreeMap<(String, String), Consumed> = BTreeMap::new();
    for told in consumed {
        match consumers.entry((told.lane.clone(), told.projection.clone())) {
            Entry::Vacant(free) => {
                free.insert(told);
            }
            Entry::Occupied(mut known) => {
                let owner = |one: &Consumed| (one.status != WAITING, one.epoch, one.next_offset);
                if owner(&told) > owner(known.get()) {
                    known.insert(told);
                }
            }
        }
    }
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (lane, published) in publishers {
        rows.insert(lane.clone(), Row { lane, published: Some(published), projections: Vec::new() });
    }
    for ((lane, _), consumer) in consumers {
        let row = rows.entry(lane).or_insert_with_key(|lane| Row {
            lane: lane.clone(),
            published: None,
            projections: Vec::new(),
        });
        let lag = row.published.as_ref().map(|published| lag(published, &consumer));
        row.projections.push((consumer, lag));
    }
    rows.into_values().collect()
}

/// Published messages that are not included yet. Both sides are read at different moments, so a consumer may seem to be
/// ahead: that is no lag. One that still reads an earlier epoch has of the present one what both have in common.
fn lag(published: &Published, consumed: &Consumed) -> u64 {
    let included = match consumed.epoch.cmp(&published.epoch) {
        std::cmp::Ordering::Less => {
            let later = published.epochs.iter().filter(|later| later.epoch > consumed.epoch);
            let common = later.map(|later| later.first_seq).min().unwrap_or(1).saturating_sub(1);
            consumed.next_offset.saturating_sub(1).min(common)
        }
        std::cmp::Ordering::Equal => consumed.next_offset.saturating_sub(1),
        std::cmp::Ordering::Greater => published.published_seq,
    };
    published.published_seq.saturating_sub(included)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn published(lane: &str, epoch: u64, committed_seq: u64, published_seq: u64) -> Published {
        Published {
            lane: lane.to_owned(),
            epoch,
            committed_seq,
            published_seq,
            oldest_unpublished_at: None,
            last_error: String::new(),
            status: "SERVING".to_owned(),
            epochs: Vec::new(),
        }
    }

    fn consumed(projection: &str, lane: &str, epoch: u64, next_offset: u64, status: &str) -> Consumed {
        Consumed {
            projection: projection.to_owned(),
            lane: lane.to_owned(),
            epoch,
            next_offset,
            updated_at: None,
            status: status.to_owned(),
            last_error: String::new(),
            quarantined: 0,
        }
    }

    fn lags(rows: &[Row]) -> Vec<(String, String, Option<u64>)> {
        let of = |row: &Row| {
            let lane = row.lane.clone();
            row.projections
                .iter()
                .map(move |(one, lag)| (lane.clone(), one.projection.clone(), *lag))
                .collect::<Vec<_>>()
        };
        rows.iter().flat_map(of).collect()
    }

    fn told(lane: &str, projection: &str, lag: Option<u64>) -> (String, String, Option<u64>) {
        (lane.to_owned(), projection.to_owned(), lag)
    }

    #[test]
    fn lag_is_what_is_published_and_not_included() {
        let rows = merge(
            [published("rel-00", 0, 12, 10)],
            [
                consumed("a", "rel-00", 0, 11, "RUNNING"),
                consumed("b", "rel-00", 0, 4, "RUNNING"),
                consumed("new", "rel-00", 0, 1, "RUNNING"),
            ],
        );
        assert_eq!(
            lags(&rows),
            [told("rel-00", "a", Some(0)), told("rel-00", "b", Some(7)), told("rel-00", "new", Some(10))]
        );
    }

    #[test]
    fn inv_25_a_consumer_of_an_earlier_epoch_has_what_both_have_in_common() {
        let begun =
            |epoch, first_seq| Epoch { epoch, first_seq, began_at: None, served_at: None, lost: 0, restated: 0 };
        let told_by = Published { epochs: vec![begun(1, 40), begun(2, 31)], ..published("rel-00", 2, 50, 50) };
        let rows = merge(
            [told_by],
            [
                consumed("behind", "rel-00", 1, 900, "RUNNING"),
                consumed("far_behind", "rel-00", 0, 11, "RUNNING"),
                consumed("there", "rel-00", 2, 48, "RUNNING"),
            ],
        );
        let expected = [("behind", 20), ("far_behind", 40), ("there", 3)];
        assert_eq!(lags(&rows), expected.map(|(name, lag)| told("rel-00", name, Some(lag))));
        let rows = merge([published("rel-00", 2, 5, 5)], [consumed("a", "rel-00", 1, 900, "RUNNING")]);
        assert_eq!(lags(&rows), [told("rel-00", "a", Some(5))], "nobody knows what they have in common");
    }

    #[test]
    fn without_its_publisher_a_lane_has_no_lag_instead_of_none() {
        let rows = merge([], [consumed("a", "rel-01", 0, 4, "RUNNING")]);
        assert_eq!(lags(&rows), [told("rel-01", "a", None)]);
        assert_eq!(rows[0].published, None);
    }

    #[test]
    fn the_owner_of_a_lease_is_believed_rather_than_who_waits_for_it() {
        let rows = merge(
            [published("rel-00", 0, 9, 9)],
            [
                consumed("a", "rel-00", 0, 9, "WAITING"),
                consumed("a", "rel-00", 0, 8, "GAP"),
                consumed("a", "rel-00", 0, 7, "WAITING"),
            ],
        );
        assert_eq!(rows[0].projections.len(), 1);
        assert_eq!(rows[0].projections[0].0.status, "GAP");
    }

    proptest! {
        /// Whoever answers first, the board is the same, no lag is negative or above what is published, and no lane is lost.
        #[test]
        fn the_board_does_not_depend_on_the_order_of_answers(
            lanes in prop::collection::vec((0u8..4, 0u64..3, 0u64..50, 0u64..50), 0..12),
            readers in prop::collection::vec((0u8..3, 0u8..5, 0u64..3, 1u64..60, prop::bool::ANY), 0..20),
        ) {
            let lanes: Vec<_> =
                lanes.iter().map(|(lane, epoch, a, b)| published(&format!("rel-{lane:02}"), *epoch, *a.max(b), *a.min(b))).collect();
            let readers: Vec<_> = readers
                .iter()
                .map(|(name, lane, epoch, next, waits)| {
                    let status = if *waits { WAITING } else { "RUNNING" };
                    consumed(&format!("p{name}"), &format!("rel-{lane:02}"), *epoch, *next, status)
                })
                .collect();
            let rows = merge(lanes.clone(), readers.clone());
            let backwards = merge(lanes.iter().rev().cloned(), readers.iter().rev().cloned());
            prop_assert_eq!(&rows, &backwards);
            for row in &rows {
                for (_, lag) in &row.projections {
                    prop_assert_eq!(lag.is_some(), row.published.is_some());
                    let highest = row.published.as_ref().map_or(0, |known| known.published_seq);
                    prop_assert!(lag.unwrap_or(0) <= highest);
                }
            }
            for lane in lanes.iter().map(|one| &one.lane).chain(readers.iter().map(|one| &one.lane)) {
                prop_assert!(rows.iter().any(|row| row.lane == *lane));
            }
        }
    }
}
