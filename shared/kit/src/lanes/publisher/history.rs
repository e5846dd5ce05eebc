//! How far an outbox and what was published from it are one history, and what comes after. Pure: whoever calls looks at the
//! stores.
//!
//! A lane's history may lie in several streams: each epoch's stream begins one after the last number that survived, so at a
//! number the newest stream that reaches down to it speaks, and what an older one holds there was lost and stated again.

use super::super::stream::Found;
use uuid::Uuid;

/// The numbers of one epoch's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lanes) struct Span {
    pub(in crate::lanes) epoch: u32,
    /// Number of its first message ever.
    pub(in crate::lanes) first: u64,
    /// Last number given out; below `first` when it never had a message.
    pub(in crate::lanes) last: u64,
}

/// What to ask, or the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lanes) enum Step {
    /// Whether outbox and history agree at this number.
    Ask(u64),
    /// They agree up to here, and nowhere above; 0 when nowhere.
    Agreed(u64),
}

/// Search for the last number at which outbox and history agree. They do from the first number on up to a point, and
/// nowhere behind it, so half of what is left is ruled out by each question. A number said not to agree although it does
/// (nobody can tell any more) only moves the answer down, and a lower answer states more again than was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lanes) struct Search {
    /// They agree here, or it is 0.
    low: u64,
    /// They do not agree here.
    high: u64,
}

impl Search {
    /// Over the numbers up to `last`.
    pub(in crate::lanes) const fn new(last: u64) -> Self {
        Self { low: 0, high: last + 1 }
    }

    pub(in crate::lanes) const fn step(&self) -> Step {
        if self.high - self.low <= 1 {
            return Step::Agreed(self.low);
        }
        Step::Ask(self.low + (self.high - self.low) / 2)
    }

    pub(in crate::lanes) const fn told(self, at: u64, agrees: bool) -> Self {
        if agrees { Self { low: at, ..self } } else { Self { high: at, ..self } }
    }
}

/// Whether the outbox's row at a number is the message that was published there. Where the stream has nothing any more,
/// evidence speaks for the row.
pub(in crate::lanes) fn agrees(found: &Found, row: Option<Uuid>, at: u64, evidence: u64) -> bool {
    match (found, row) {
        (Found::Event(published), Some(committed)) => *published == committed,
        // Rows may have been dropped long after they were published.
        (Found::Nothing, _) => at <= evidence,
        (Found::Event(_) | Found::Foreign(_), _) => false,
    }
}

/// The stream that speaks at a number: the newest that begins at or before it. What an older one holds there was lost.
pub(in crate::lanes) fn speaker(spans: &[Span], at: u64) -> Option<Span> {
    spans.iter().filter(|span| span.first <= at).max_by_key(|span| span.epoch).copied()
}

/// Last number of the history: the newest stream ends it, however far older ones went.
pub(in crate::lanes) fn end(spans: &[Span]) -> u64 {
    spans.iter().max_by_key(|span| span.epoch).map_or(0, |span| span.last)
}

/// What was lost, or may have been: what every stream holds after the last number agreed upon; and what a stream holds where
/// the next one begins again, unless that one's epoch is among `served`. A database that does not remember to have opened an
/// epoch has lost what it stated again then.
pub(in crate::lanes) fn lost(spans: &[Span], agreed: u64, served: &[u32]) -> Vec<Span> {
    let cut = |span: &Span| {
        let next = spans.iter().filter(|other| other.epoch > span.epoch).min_by_key(|other| other.epoch);
        let forgotten = next.filter(|next| !served.contains(&next.epoch)).map_or(u64::MAX, |next| next.first);
        Span { first: span.first.max(forgotten.min(agreed + 1)), ..*span }
    };
    spans.iter().map(cut).filter(|span| span.first <= span.last).collect()
}

/// Epoch after all that were ever used.
pub(in crate::lanes) fn next_epoch(present: u32, spans: &[Span]) -> u32 {
    1 + spans.iter().map(|span| span.epoch).fold(present, u32::max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(epoch: u32, first: u64, last: u64) -> Span {
        Span { epoch, first, last }
    }

    fn search(last: u64, agreed: u64) -> (u64, u32) {
        let (mut search, mut asked) = (Search::new(last), 0);
        loop {
            match search.step() {
                Step::Agreed(at) => return (at, asked),
                Step::Ask(at) => {
                    assert!((1..=last).contains(&at));
                    asked += 1;
                    search = search.told(at, at <= agreed);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_last_number_agreed_upon_is_found_with_few_questions(last in 0_u64..5_000_000, agreed in 0_u64..5_000_000) {
            let agreed = agreed.min(last);
            let (found, asked) = search(last, agreed);
            prop_assert_eq!(found, agreed);
            prop_assert!(asked <= 24);
        }

        #[test]
        fn numbers_nobody_can_tell_about_only_lower_the_answer(
            last in 1_u64..500, agreed in 0_u64..500, untold in prop::collection::btree_set(1_u64..500, 0..100),
        ) {
            let mut search = Search::new(last);
            let found = loop {
                match search.step() {
                    Step::Agreed(at) => break at,
                    Step::Ask(at) => search = search.told(at, at <= agreed && !untold.contains(&at)),
                }
            };
            prop_assert!(found <= agreed.min(last));
        }
    }

    #[test]
    fn inv_25_the_newest_stream_speaks_and_everything_after_the_agreement_is_lost() {
        let spans = [span(0, 1, 100), span(1, 81, 90), span(2, 86, 85)];
        assert_eq!(speaker(&spans, 80), Some(spans[0]));
        assert_eq!(speaker(&spans, 81), Some(spans[1]));
        assert_eq!(speaker(&spans, 86), Some(spans[2]), "what E1 holds there was lost");
        assert_eq!(speaker(&[span(0, 7, 9)], 6), None, "made again later");
        assert_eq!(end(&spans), 85, "E0 and E1 went further, and lost it");
        assert_eq!(end(&[]), 0);
        assert_eq!(lost(&spans, 70, &[0, 1, 2]), [span(0, 71, 100), span(1, 81, 90)]);
        assert_eq!(lost(&spans, 85, &[0, 1, 2]), [span(0, 86, 100), span(1, 86, 90)]);
        assert_eq!(lost(&spans, 85, &[0]), [span(0, 81, 100), span(1, 86, 90)], "E1 is not remembered");
        assert_eq!(next_epoch(0, &spans), 3);
        assert_eq!(next_epoch(7, &spans), 8);
        assert_eq!(next_epoch(0, &[]), 1);
    }

    #[test]
    fn inv_25_only_the_very_message_agrees() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(agrees(&Found::Event(a), Some(a), 5, 0));
        assert!(!agrees(&Found::Event(a), Some(b), 5, 9));
        assert!(!agrees(&Found::Event(a), None, 5, 9));
        assert!(!agrees(&Found::Foreign("none".to_owned()), Some(a), 5, 9));
        assert!(agrees(&Found::Nothing, None, 5, 5), "published long ago, and gone from both");
        assert!(!agrees(&Found::Nothing, Some(a), 5, 4));
    }
}
