//! Where a publisher goes on: decided from the end of the stream, the outbox and the evidence. Pure.

use uuid::Uuid;

use super::super::Error;
use super::super::stream::Found;

/// The end of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lanes) struct Tail {
    /// Name of the stream.
    pub(in crate::lanes) stream: String,
    /// Last number the stream has given out; one below its first number when it never had a message.
    pub(in crate::lanes) last: u64,
    /// The message there.
    pub(in crate::lanes) found: Found,
}

/// The first outbox row at or above the stream's last number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lanes) struct Row {
    pub(in crate::lanes) seq: u64,
    pub(in crate::lanes) event_id: Uuid,
}

/// Where the publisher stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lanes) struct Position {
    /// Last number in the stream.
    pub(in crate::lanes) last: u64,
    /// Event id there, which the outbox row of that number must keep carrying; `None` before the first message.
    pub(in crate::lanes) event_id: Option<Uuid>,
}

/// What a new attachment has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lanes) struct Resume {
    pub(in crate::lanes) position: Position,
    /// Published, but the evidence was never written: a crash came between.
    pub(in crate::lanes) evidence_missing: Option<(u64, u64)>,
    /// Evidence says published, but the stream has lost it: comes again under the same numbers.
    pub(in crate::lanes) lost_by_stream: Option<(u64, u64)>,
}

pub(in crate::lanes) const REPAIR: &str = "commits were lost after they were published, or two databases feed this stream; keep both as they \
                      are and repair the shard";

/// Compares the stream's last message with the outbox row of the same number. `evidence` is the highest number with
/// evidence.
pub(in crate::lanes) fn resume(tail: &Tail, row: Option<Row>, evidence: u64) -> Result<Resume, Error> {
    let lost = |found: String, expected: String| Error::LostTail {
        stream: tail.stream.clone(),
        seq: tail.last,
        found,
        expected,
        advice: REPAIR,
    };
    let here = row.filter(|row| row.seq == tail.last).map(|row| row.event_id);
    let event_id = match (&tail.found, here) {
        (Found::Event(found), Some(expected)) if *found == expected => Some(expected),
        (Found::Event(found), None) => return Err(lost(found.to_string(), "no row of that number".to_owned())),
        (Found::Event(found), Some(expected)) => return Err(lost(found.to_string(), expected.to_string())),
        (Found::Foreign(found), _) => {
            return Err(lost(
                found.clone(),
                here.map_or_else(|| "no row of that number".to_owned(), |id| id.to_string()),
            ));
        }
        // Aged out: the row speaks for it.
        (Found::Nothing, Some(expected)) => Some(expected),
        // Never had a message, and its first number is the first row of the outbox.
        (Found::Nothing, None) if starts_here(tail.last, row) => None,
        (Found::Nothing, None) => return Err(lost("none left".to_owned(), "no row of that number".to_owned())),
    };
    Ok(Resume {
        position: Position { last: tail.last, event_id },
        evidence_missing: (evidence < tail.last && event_id.is_some()).then_some((evidence + 1, tail.last)),
        lost_by_stream: (evidence > tail.last).then_some((tail.last + 1, evidence)),
    })
}

/// Whether the stream's first number is the first that can be published.
fn starts_here(last: u64, row: Option<Row>) -> bool {
    row.map_or(last == 0, |row| row.seq == last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(1);
    const B: Uuid = Uuid::from_u128(2);

    fn check(last: u64, found: Found, row: Option<(u64, Uuid)>, evidence: u64) -> String {
        let tail = Tail { stream: "S".to_owned(), last, found };
        match resume(&tail, row.map(|(seq, event_id)| Row { seq, event_id }), evidence) {
            Ok(Resume { position, evidence_missing, lost_by_stream }) => {
                format!("after {} evidence {evidence_missing:?} again {lost_by_stream:?}", position.last)
            }
            Err(error) => error.to_string().split(':').next().expect("a word").to_owned(),
        }
    }

    #[test]
    fn an_untouched_stream_starts_at_the_first_row() {
        assert_eq!(check(0, Found::Nothing, None, 0), "after 0 evidence None again None");
        assert_eq!(check(0, Found::Nothing, Some((1, A)), 0), "after 0 evidence None again None");
        assert_eq!(check(6, Found::Nothing, Some((7, A)), 9), "after 6 evidence None again Some((7, 9))");
    }

    #[test]
    fn evidence_that_a_crash_left_out_is_asked_for() {
        assert_eq!(check(5, Found::Event(A), Some((5, A)), 5), "after 5 evidence None again None");
        assert_eq!(check(5, Found::Event(A), Some((5, A)), 2), "after 5 evidence Some((3, 5)) again None");
        assert_eq!(check(5, Found::Nothing, Some((5, A)), 5), "after 5 evidence None again None");
    }

    #[test]
    fn a_stream_shorter_than_the_evidence_gets_its_end_again() {
        assert_eq!(check(5, Found::Event(A), Some((5, A)), 8), "after 5 evidence None again Some((6, 8))");
        assert_eq!(check(0, Found::Nothing, Some((1, A)), 8), "after 0 evidence None again Some((1, 8))");
    }

    #[test]
    fn a_stream_that_disagrees_with_the_outbox_is_a_lost_tail() {
        assert_eq!(check(5, Found::Event(B), Some((5, A)), 5), "LOST_TAIL");
        assert_eq!(check(5, Found::Event(A), None, 5), "LOST_TAIL");
        assert_eq!(check(5, Found::Event(A), Some((6, A)), 5), "LOST_TAIL");
        assert_eq!(check(5, Found::Foreign("none".to_owned()), Some((5, A)), 5), "LOST_TAIL");
        assert_eq!(check(5, Found::Nothing, None, 5), "LOST_TAIL");
        assert_eq!(check(5, Found::Nothing, Some((7, A)), 5), "LOST_TAIL");
    }
}
