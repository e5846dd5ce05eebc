//! Where things stand in a lane: offsets, the position a writer hands to its client, and the gap-free prefix.

use std::collections::BTreeMap;
use std::fmt;

/// A place in a lane. The sequence number of a change within its shard and the offset of its message are the same
/// number, and it only has a meaning within its epoch. Order is (epoch, seq).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset {
    /// Epoch of the shard.
    pub epoch: u32,
    /// Dense number within the epoch's stream; the first is 1.
    pub seq: u64,
}

impl Offset {
    /// The first offset of a lane.
    pub const FIRST: Self = Self { epoch: 0, seq: 1 };

    /// The offset after this one, in the same epoch.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { epoch: self.epoch, seq: self.seq + 1 }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.epoch, self.seq)
    }
}

/// The place of a relation's last state change, handed to the client with its verdict. Text form `r<shard>.<epoch>.<seq>`;
/// clients treat it as opaque. It grants nothing: a forged one only changes what `covers_position` compares with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Relation shard.
    pub shard: u16,
    /// Epoch and sequence number of the change; `seq` 0 for a relation that never changed.
    pub offset: Offset,
}

impl Position {
    /// Whether whoever stands at `next`, the first offset of the shard's lane that is not included, includes the change. A
    /// change that was committed in one epoch and published only in a later one keeps its number there, so the order of
    /// offsets alone would claim too much.
    #[must_use]
    pub const fn is_included_before(self, next: Offset) -> bool {
        self.offset.epoch <= next.epoch && self.offset.seq < next.seq
    }

    /// Reads the text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix('r')?.split('.');
        let shard = parts.next()?.parse().ok()?;
        let epoch = parts.next()?.parse().ok()?;
        let seq = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { shard, offset: Offset { epoch, seq } })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "r{}.{}.{}", self.shard, self.offset.epoch, self.offset.seq)
    }
}

/// Tracks which ranges of a lane are done when work finishes out of order: the next offset moves only over a prefix
/// without gaps (INV-19).
#[derive(Debug, Clone)]
pub struct GapFreePrefix {
    next: u64,
    done: BTreeMap<u64, u64>,
}

impl GapFreePrefix {
    /// Nothing at or above `next` is done yet.
    #[must_use]
    pub const fn starting_at(next: u64) -> Self {
        Self { next, done: BTreeMap::new() }
    }

    /// First number not known to be done with everything below it.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Marks `first..=last` done and answers the new [`next`](Self::next). Ranges may overlap and repeat.
    pub fn complete(&mut self, first: u64, last: u64) -> u64 {
        if last >= self.next && first <= last {
            let end = self.done.entry(first.max(self.next)).or_insert(last);
            *end = (*end).max(last);
        }
        while let Some((&first, &last)) = self.done.first_key_value() {
            if first > self.next {
                break;
            }
            self.done.remove(&first);
            self.next = self.next.max(last + 1);
        }
        self.next
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_position_reads_back() {
        let position = Position { shard: 3, offset: Offset { epoch: 1, seq: 9_280_017 } };
        assert_eq!(Position::parse(&position.to_string()), Some(position));
        for bad in ["", "r1.2", "r1.2.3.4", "1.2.3", "r1.2.x", "r70000.0.1"] {
            assert_eq!(Position::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn inv_25_a_position_of_an_older_epoch_is_included_by_its_number() {
        let at = |epoch, seq| Position { shard: 3, offset: Offset { epoch, seq } };
        let next = Offset { epoch: 1, seq: 81 };
        assert!(at(0, 80).is_included_before(next), "in the older stream");
        assert!(!at(0, 81).is_included_before(next), "committed in the older epoch, published in this one");
        assert!(at(1, 80).is_included_before(next) && !at(1, 81).is_included_before(next));
        assert!(!at(2, 1).is_included_before(next));
    }

    proptest! {
        #[test]
        fn inv_19_next_never_passes_a_gap(ranges in prop::collection::vec((1u64..60, 0u64..6), 0..40)) {
            let mut prefix = GapFreePrefix::starting_at(1);
            let mut done = std::collections::BTreeSet::new();
            for (first, length) in ranges {
                done.extend(first..=first + length);
                let next = prefix.complete(first, first + length);
                let expected = (1..).find(|number| !done.contains(number)).expect("some number is not done");
                prop_assert_eq!(next, expected);
            }
        }
    }
}
