//! How every projection follows the relation: a higher version wins, and the change of a count is computed from what
//! the projection held, never from what an event says.

use crate::relation::LikeState;

/// What a projection holds of one relation. A relation it has never seen is UNLIKED at version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Projected {
    /// Highest version applied.
    pub version: u64,
    /// State at that version.
    pub state: LikeState,
}

impl Projected {
    /// A relation nobody has seen yet.
    pub const UNSEEN: Self = Self { version: 0, state: LikeState::Unliked };
}

/// Applies `next` to `held`: the new row and what the count changes by, or `None` when the version is not higher.
#[must_use]
pub const fn fold(held: Projected, next: Projected) -> Option<(Projected, i64)> {
    if next.version <= held.version {
        return None;
    }
    Some((next, next.state.weight() - held.state.weight()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn history() -> impl Strategy<Value = Vec<Projected>> {
        prop::collection::vec((1u64..12, any::<bool>()), 0..40).prop_map(|steps| {
            // One truth: the state of a version is the same however often it is told.
            let mut state_of = std::collections::BTreeMap::new();
            steps
                .into_iter()
                .map(|(version, liked)| {
                    let state = if liked { LikeState::Liked } else { LikeState::Unliked };
                    Projected { version, state: *state_of.entry(version).or_insert(state) }
                })
                .collect()
        })
    }

    fn run(events: &[Projected]) -> (Projected, i64) {
        let mut held = Projected::UNSEEN;
        let mut count = 0;
        for event in events {
            if let Some((next, delta)) = fold(held, *event) {
                held = next;
                count += delta;
            }
            assert!((0..=1).contains(&count), "one relation counts 0 or 1");
        }
        (held, count)
    }

    proptest! {
        #[test]
        fn inv_03_order_and_repeats_do_not_matter(events in history(), seed in any::<u64>()) {
            let in_order = { let mut sorted = events.clone(); sorted.sort_by_key(|event| event.version); run(&sorted) };
            let mut shuffled = events.clone();
            shuffled.extend(events.iter().copied());
            let mut state = seed | 1;
            for index in (1..shuffled.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let other = usize::try_from(state >> 33).expect("31 bits fit") % (index + 1);
                shuffled.swap(index, other);
            }
            prop_assert_eq!(run(&shuffled), in_order);
        }

        #[test]
        fn inv_04_inv_05_the_same_state_again_changes_no_count(version in 1u64..100, liked in any::<bool>()) {
            let state = if liked { LikeState::Liked } else { LikeState::Unliked };
            let held = Projected { version, state };
            prop_assert_eq!(fold(held, Projected { version: version + 1, state }).map(|(_, delta)| delta), Some(0));
        }
    }

    #[test]
    fn case_05_an_unlike_that_overtakes_its_like_changes_nothing() {
        let unlike = Projected { version: 12, state: LikeState::Unliked };
        let (held, delta) = fold(Projected::UNSEEN, unlike).expect("a tombstone is written");
        assert_eq!((held, delta), (unlike, 0));
        assert_eq!(fold(held, Projected { version: 11, state: LikeState::Liked }), None);
    }
}
