//! Until when everything is covered. The source is asked how far it has committed; once the counts cover that, everything
//! committed before the question is covered. Backlog of publisher, projector and aggregator all show as an older answer.

use std::collections::VecDeque;

use time::OffsetDateTime;

use crate::vector::Vector;

/// Answers kept while the counts have not reached them. At one a second this is ten minutes; a longer lag only makes the
/// answer coarser.
const OBSERVATIONS_MAX: usize = 600;

/// What the source had committed at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Before the source was asked.
    pub at: OffsetDateTime,
    /// First offset not committed, per lane.
    pub committed: Vector,
}

/// Compares what was committed with what is counted.
#[derive(Debug, Default)]
pub struct Freshness {
    observations: VecDeque<Observation>,
    covered_until: Option<OffsetDateTime>,
}

impl Freshness {
    /// Adds an answer of the source.
    pub fn observe(&mut self, observation: Observation) {
        if self.observations.len() >= OBSERVATIONS_MAX {
            // The oldest is the one most likely to be reached next: keep it and thin out behind it.
            self.observations.remove(1);
        }
        self.observations.push_back(observation);
    }

    /// Everything committed before this moment is included in `counted`; `None` until that was shown once.
    pub fn covered_until(&mut self, counted: &Vector) -> Option<OffsetDateTime> {
        let reached = self.observations.iter().rposition(|observation| counted.covers(&observation.committed));
        if let Some(reached) = reached {
            let newest = self.observations.drain(..=reached).next_back();
            self.covered_until = self.covered_until.into_iter().chain(newest.map(|observation| observation.at)).max();
        }
        self.covered_until
    }
}

#[cfg(test)]
mod tests {
    use likewise_domain::lane::Offset;
    use time::Duration;

    use super::*;

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::seconds(second)
    }

    fn vector(seq: u64) -> Vector {
        [("rel-00".to_owned(), Offset { epoch: 0, seq })].into_iter().collect()
    }

    #[test]
    fn covered_until_follows_what_is_counted() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.covered_until(&vector(100)), None, "never shown");
        for (second, committed) in [(1, 5), (2, 9), (3, 9), (4, 20)] {
            freshness.observe(Observation { at: at(second), committed: vector(committed) });
        }
        assert_eq!(freshness.covered_until(&vector(4)), None);
        assert_eq!(freshness.covered_until(&vector(9)), Some(at(3)));
        assert_eq!(freshness.covered_until(&vector(19)), Some(at(3)), "a backlog shows");
        assert_eq!(freshness.covered_until(&vector(20)), Some(at(4)));
        assert_eq!(freshness.covered_until(&vector(1)), Some(at(4)), "what was covered stays covered");
    }

    #[test]
    fn a_long_lag_keeps_the_oldest_answers() {
        let mut freshness = Freshness::default();
        for second in 0..2_000 {
            freshness.observe(Observation { at: at(second), committed: vector(second.unsigned_abs() + 1) });
        }
        assert_eq!(freshness.covered_until(&vector(1)), Some(at(0)));
    }
}
