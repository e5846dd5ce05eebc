//! How far something has come in every lane at once: the first offset of each lane that is *not* included.

use std::collections::BTreeMap;

use likewise_domain::lane::Offset;

/// Next offset per lane. A lane that is not named stands at its very beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vector(BTreeMap<String, Offset>);

impl Vector {
    /// The next offset of a lane.
    #[must_use]
    pub fn next(&self, lane: &str) -> Offset {
        self.0.get(lane).copied().unwrap_or(Offset::FIRST)
    }

    /// Lanes with their next offsets, by lane.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Offset)> {
        self.0.iter().map(|(lane, next)| (lane.as_str(), *next))
    }

    /// Whether everything `other` includes is included here.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.iter().all(|(lane, next)| next <= self.next(lane))
    }

    /// The further one, lane by lane.
    #[must_use]
    pub fn join(mut self, other: &Self) -> Self {
        for (lane, next) in other.iter() {
            let kept = self.0.entry(lane.to_owned()).or_insert(next);
            *kept = (*kept).max(next);
        }
        self
    }

    /// The step from here towards `goal`, by at most `offsets_max` offsets per lane, so that one pass never reads a whole
    /// backlog. Into another epoch it goes at once. A lane never steps back.
    #[must_use]
    pub fn step_towards(&self, goal: &Self, offsets_max: u64) -> Self {
        let step = |(lane, goal): (&str, Offset)| {
            let from = self.next(lane);
            let next = if goal.epoch == from.epoch {
                Offset { epoch: goal.epoch, seq: goal.seq.min(from.seq.saturating_add(offsets_max)) }
            } else {
                goal
            };
            (lane.to_owned(), next.max(from))
        };
        self.clone().join(&Self(goal.iter().map(step).collect()))
    }
}

impl FromIterator<(String, Offset)> for Vector {
    fn from_iter<I: IntoIterator<Item = (String, Offset)>>(lanes: I) -> Self {
        Self(lanes.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(lanes: &[(&str, u32, u64)]) -> Vector {
        lanes.iter().map(|&(lane, epoch, seq)| (lane.to_owned(), Offset { epoch, seq })).collect()
    }

    #[test]
    fn covering_is_lane_by_lane() {
        let far = vector(&[("rel-00", 0, 10), ("rel-01", 0, 5)]);
        assert!(far.covers(&vector(&[("rel-00", 0, 10)])));
        assert!(!far.covers(&vector(&[("rel-00", 0, 11)])));
        assert!(!far.covers(&vector(&[("rel-02", 0, 2)])));
        assert!(far.covers(&vector(&[("rel-02", 0, 1)])), "nothing of a lane is covered by everyone");
    }

    #[test]
    fn a_step_is_bounded_and_never_goes_back() {
        let from = vector(&[("rel-00", 0, 100), ("rel-01", 0, 7)]);
        let goal = vector(&[("rel-00", 0, 5_000), ("rel-01", 0, 3), ("rel-02", 1, 9_000)]);
        let next = from.step_towards(&goal, 1_000);
        assert_eq!(next, vector(&[("rel-00", 0, 1_100), ("rel-01", 0, 7), ("rel-02", 1, 9_000)]));
    }
}
