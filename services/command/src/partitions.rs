//! Which partitions a shard should have: pure planning for the maintenance task.
//!
//! A partition's bounds stand in its name, so that looking at the catalog is enough to plan. There is no default
//! partition: rows without a partition fail, and the plan makes partitions long before they are needed.

use likewise_kit::lanes::Needs;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Date, Duration, OffsetDateTime};

/// `20260105`.
const DAY: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]");
/// Days of one partition of `like_command`.
const WEEK: Duration = Duration::days(7);

/// One week of `like_command`, from Monday 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Week(Date);

impl Week {
    /// The week that holds an instant.
    #[must_use]
    pub fn of(at: OffsetDateTime) -> Self {
        let day = at.to_offset(time::UtcOffset::UTC).date();
        Self(day - Duration::days(day.weekday().number_days_from_monday().into()))
    }

    /// Reads a partition's name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let day = Date::parse(name.strip_prefix("like_command_")?, DAY).ok()?;
        (Self::of(day.midnight().assume_utc()).0 == day).then_some(Self(day))
    }

    /// Name of its partition.
    #[must_use]
    pub fn name(self) -> String {
        format!("like_command_{:04}{:02}{:02}", self.0.year(), u8::from(self.0.month()), self.0.day())
    }

    /// Its first instant.
    #[must_use]
    pub fn start(self) -> OffsetDateTime {
        self.0.midnight().assume_utc()
    }

    /// The first instant after it.
    #[must_use]
    pub fn end(self) -> OffsetDateTime {
        self.start() + WEEK
    }
}

/// What to do with the weeks of `like_command`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeekPlan {
    /// To be made, oldest first.
    pub make: Vec<Week>,
    /// Past retention, oldest first.
    pub drop: Vec<Week>,
}

/// Keeps every week that may still hold an operation younger than `retention`, and `ahead` whole weeks after this one.
#[must_use]
pub fn plan_weeks(existing: &[Week], now: OffsetDateTime, retention: Duration, ahead: u16) -> WeekPlan {
    let first = Week::of(now - retention);
    let last = Week::of(now + WEEK * i32::from(ahead));
    let mut make = Vec::new();
    let mut week = first;
    while week <= last {
        if !existing.contains(&week) {
            make.push(week);
        }
        week = Week::of(week.end());
    }
    let mut drop: Vec<Week> = existing.iter().copied().filter(|week| *week < first).collect();
    drop.sort_unstable();
    WeekPlan { make, drop }
}

/// A range of outbox numbers: `from` included, `to` not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeqRange {
    /// First number.
    pub from: u64,
    /// First number of the next range.
    pub to: u64,
}

impl SeqRange {
    /// Reads a partition's name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (from, to) = name.strip_prefix("outbox_")?.split_once('_')?;
        let range = Self { from: from.parse().ok()?, to: to.parse().ok()? };
        (range.from < range.to).then_some(range)
    }

    /// Name of its partition.
    #[must_use]
    pub fn name(self) -> String {
        format!("outbox_{}_{}", self.from, self.to)
    }
}

/// Ranges to make so that `ahead` empty ones of `rows` numbers follow the one that holds `last`.
#[must_use]
pub fn plan_ranges(existing: &[SeqRange], last: u64, rows: u64, ahead: u64) -> Vec<SeqRange> {
    let next = last + 1;
    let mut end = existing.iter().map(|range| range.to).max().unwrap_or(next);
    let empty = existing.iter().filter(|range| range.from > next).count() as u64;
    let covered = existing.iter().any(|range| (range.from..range.to).contains(&next));
    let missing = ahead.saturating_sub(empty) + u64::from(!covered);
    (0..missing)
        .map(|_| {
            let range = SeqRange { from: end, to: end + rows };
            end = range.to;
            range
        })
        .collect()
}

/// Clocks of the database and of the broker may differ by this much.
const CLOCKS: Duration = Duration::hours(1);

/// A range of the outbox, and when the publication of its last number was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// Its numbers.
    pub seqs: SeqRange,
    /// `None` when there is no evidence of it.
    pub acked_at: Option<OffsetDateTime>,
}

/// What decides which ranges of an outbox may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbox {
    /// Its ranges.
    pub ranges: Vec<Range>,
    /// Highest committed number.
    pub last_seq: u64,
    /// Highest number with evidence of publication.
    pub published_seq: u64,
    /// Whether the shard serves.
    pub serving: bool,
    /// Consumers and holds.
    pub needs: Needs,
    /// The database's clock.
    pub now: OffsetDateTime,
}

/// Ranges that nobody can ask for any more, oldest first: what comes before a range goes before it. All of it was
/// published longer ago than a stream keeps messages; no consumer and no hold needs it; it has neither the last committed
/// nor the last published number. Where no consumer is registered it is not known what they need, and everything stays.
#[must_use]
pub fn plan_drops(outbox: &Outbox, stream_age: Duration) -> Vec<SeqRange> {
    if !outbox.serving || outbox.needs.consumers == 0 {
        return Vec::new();
    }
    let past = outbox.now - stream_age - CLOCKS;
    let needed = outbox.needs.first.as_ref().map_or(u64::MAX, |(seq, _)| *seq);
    let end = needed.min(outbox.last_seq).min(outbox.published_seq);
    let mut ranges = outbox.ranges.clone();
    ranges.sort_unstable();
    let unneeded = |range: &Range| range.seqs.to <= end && range.acked_at.is_some_and(|at| at < past);
    ranges.iter().take_while(|range| unneeded(range)).map(|range| range.seqs).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    const RETENTION: Duration = Duration::days(14);

    fn names(weeks: &[Week]) -> Vec<String> {
        weeks.iter().map(|week| week.name()).collect()
    }

    #[test]
    fn scn_i09_a_week_begins_on_monday_and_its_end_is_the_next() {
        let last_instant = datetime!(2026-01-31 23:59:59.999999 UTC);
        let week = Week::of(last_instant);
        assert_eq!(week.name(), "like_command_20260126");
        assert_eq!(week.end(), datetime!(2026-02-02 00:00 UTC));
        assert_eq!(Week::of(week.end()).name(), "like_command_20260202");
        assert_eq!(Week::parse(&week.name()), Some(week));
        for other in ["like_command_20260127", "like_command_default", "outbox_1_9"] {
            assert_eq!(Week::parse(other), None, "{other}");
        }
    }

    #[test]
    fn scn_i07_a_new_shard_gets_every_week_an_accepted_id_may_tell() {
        let now = datetime!(2026-01-15 12:00 UTC);
        let plan = plan_weeks(&[], now, RETENTION, 2);
        let expected =
            ["20251229", "20260105", "20260112", "20260119", "20260126"].map(|day| format!("like_command_{day}"));
        assert_eq!((names(&plan.make), plan.drop.len()), (expected.to_vec(), 0));
        for told in [now - likewise_domain::operation::DATED_AGE_MAX, now + likewise_domain::operation::DATED_AHEAD_MAX]
        {
            assert!(plan.make.contains(&Week::of(told)));
        }
    }

    #[test]
    fn a_pass_makes_what_is_missing_and_drops_what_is_past_retention() {
        let now = datetime!(2026-01-15 12:00 UTC);
        let mut weeks = plan_weeks(&[], now, RETENTION, 2).make;
        assert_eq!(plan_weeks(&weeks, now, RETENTION, 2), WeekPlan { make: vec![], drop: vec![] });
        let hole = weeks.remove(2);
        assert_eq!(plan_weeks(&weeks, now, RETENTION, 2).make, [hole]);
        weeks.insert(2, hole);
        let later = plan_weeks(&weeks, now + Duration::days(7), RETENTION, 2);
        assert_eq!(names(&later.make), ["like_command_20260202"]);
        assert_eq!(names(&later.drop), ["like_command_20251229"]);
        let last_second = datetime!(2026-01-18 23:59:59 UTC);
        assert!(plan_weeks(&weeks, last_second, RETENTION, 2).drop.is_empty(), "its Sunday is 14 days ago");
    }

    #[test]
    fn outbox_ranges_stay_ahead_without_holes() {
        let first = plan_ranges(&[], 0, 100, 2);
        assert_eq!(first, [(1, 101), (101, 201), (201, 301)].map(|(from, to)| SeqRange { from, to }));
        assert!(plan_ranges(&first, 0, 100, 2).is_empty());
        assert!(plan_ranges(&first, 99, 100, 2).is_empty());
        let larger = SeqRange { from: 301, to: 801 };
        assert_eq!(plan_ranges(&first, 100, 500, 2), [larger], "101 is the next number: its range is in use");
        assert_eq!(plan_ranges(&first, 900, 500, 2).len(), 3, "a shard that ran out gets its ranges back");
        assert_eq!(SeqRange::parse(&larger.name()), Some(larger));
        assert_eq!(SeqRange::parse("outbox_publication"), None);
    }

    const NOW: OffsetDateTime = datetime!(2026-03-01 00:00 UTC);
    const AGE: Duration = Duration::days(30);

    /// Three ranges of ten; the first two are as old as can be.
    fn outbox() -> Outbox {
        let range = |from, age| Range { seqs: SeqRange { from, to: from + 10 }, acked_at: Some(NOW - age) };
        let old = AGE + Duration::hours(2);
        Outbox {
            ranges: vec![range(11, old), range(1, old), range(21, Duration::ZERO)],
            last_seq: 25,
            published_seq: 25,
            serving: true,
            needs: Needs { consumers: 1, first: Some((25, "counter.g1".to_owned())) },
            now: NOW,
        }
    }

    fn drops(change: impl FnOnce(&mut Outbox)) -> Vec<u64> {
        let mut outbox = outbox();
        change(&mut outbox);
        plan_drops(&outbox, AGE).iter().map(|range| range.from).collect()
    }

    #[test]
    fn a_range_of_the_outbox_goes_only_when_every_condition_holds() {
        let needed = |seq| Needs { consumers: 1, first: Some((seq, "x".to_owned())) };
        assert_eq!(drops(|_| ()), [1, 11]);
        assert_eq!(drops(|outbox| outbox.ranges[0].acked_at = Some(NOW - AGE)), [1], "clocks differ");
        assert_eq!(drops(|outbox| outbox.ranges[0].acked_at = None), [1]);
        assert_eq!(drops(|outbox| outbox.ranges[1].acked_at = None), [0; 0], "nothing goes before what is older");
        assert_eq!(drops(|outbox| outbox.needs = needed(21)), [1, 11]);
        assert_eq!(drops(|outbox| outbox.needs = needed(20)), [1]);
        assert_eq!(drops(|outbox| outbox.last_seq = 20), [1], "20 is the last number");
        assert_eq!(drops(|outbox| outbox.published_seq = 20), [1], "20 was published last");
        assert_eq!(drops(|outbox| outbox.serving = false), [0; 0]);
        assert_eq!(drops(|outbox| outbox.needs = Needs::default()), [0; 0], "nobody registered");
        assert_eq!(drops(|outbox| outbox.needs.first = None), [1, 11]);
    }

    proptest! {
        #[test]
        fn what_is_needed_published_last_or_young_is_never_dropped(
            ends in proptest::collection::vec((1_u64..50, proptest::option::of(0_i64..80)), 0..12),
            (last_seq, published_seq) in (0_u64..400, 0_u64..400),
            first in proptest::option::of(1_u64..400),
            (consumers, serving) in (0_u64..3, any::<bool>()),
        ) {
            let mut from = 1;
            let ranges: Vec<Range> = ends.iter().map(|(length, days)| {
                let seqs = SeqRange { from, to: from + length };
                from = seqs.to;
                Range { seqs, acked_at: days.map(|days| NOW - Duration::days(days)) }
            }).collect();
            let needs = Needs { consumers, first: first.map(|seq| (seq, "x".to_owned())) };
            let outbox = Outbox { ranges: ranges.clone(), last_seq, published_seq, serving, needs, now: NOW };
            let dropped = plan_drops(&outbox, AGE);
            let begins = dropped.last().map_or(1, |range| range.to);
            prop_assert!(dropped.iter().map(|range| range.from).eq(ranges.iter().take(dropped.len()).map(|range| range.seqs.from)));
            if !dropped.is_empty() {
                prop_assert!(serving && consumers > 0);
                prop_assert!(begins <= last_seq && begins <= published_seq);
                prop_assert!(first.is_none_or(|first| begins <= first));
            }
            for range in ranges.iter().take(dropped.len()) {
                prop_assert!(range.acked_at.is_some_and(|at| at < NOW - AGE));
            }
        }
    }
}
