//! Whether a stream still continues what was applied: decided from its ends and the message applied last. Pure.

use uuid::Uuid;

use super::super::Error;
use super::super::stream::Found;

/// The stream as its leader has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lanes) struct Ends {
    pub(in crate::lanes) stream: String,
    /// First number still in the stream; one above `last` when it is empty.
    pub(in crate::lanes) first: u64,
    /// Last number given out.
    pub(in crate::lanes) last: u64,
    /// What stands at the number applied last.
    pub(in crate::lanes) applied: Found,
    /// Nothing more comes into it: the shard goes on in a later epoch.
    pub(in crate::lanes) sealed: bool,
}

/// What there is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lanes) enum Next {
    /// This stream.
    Here,
    /// The stream of the next epoch: of this one everything has been applied.
    NextEpoch,
}

pub(in crate::lanes) const REPAIR: &str = "the lane was published again with other messages than the ones applied; repair the shard, then \
                      the projection";

/// Accepts a stream from which `next_offset` can be read next, after the message `last_event_id`.
pub(in crate::lanes) fn compare(ends: &Ends, next_offset: u64, last_event_id: Option<Uuid>) -> Result<Next, Error> {
    let applied = next_offset - 1;
    if ends.last < applied {
        // A sealed stream never gets its end again, and what it held there was lost or stands in the next.
        if ends.sealed {
            return Ok(Next::NextEpoch);
        }
        return Err(Error::Regressed { stream: ends.stream.clone(), last: ends.last, applied });
    }
    let found = match (&ends.applied, last_event_id) {
        (Found::Event(found), Some(expected)) if *found != expected => Some(found.to_string()),
        (Found::Foreign(found), Some(_)) => Some(found.clone()),
        // Aged out, or the checkpoint was set without an id: nothing to compare.
        _ => None,
    };
    if let (Some(found), Some(expected)) = (found, last_event_id) {
        return Err(Error::LostTail {
            stream: ends.stream.clone(),
            seq: applied,
            found,
            expected: expected.to_string(),
            advice: REPAIR,
        });
    }
    if ends.sealed && ends.last == applied {
        return Ok(Next::NextEpoch);
    }
    if ends.first > next_offset {
        return Err(Error::Gap { stream: ends.stream.clone(), from: next_offset, to: ends.first - 1 });
    }
    Ok(Next::Here)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(1);
    const B: Uuid = Uuid::from_u128(2);

    fn check(first: u64, last: u64, applied: Found, next_offset: u64, last_event_id: Option<Uuid>) -> String {
        told(false, first, last, applied, next_offset, last_event_id)
    }

    fn sealed(last: u64, applied: Found, next_offset: u64, last_event_id: Option<Uuid>) -> String {
        told(true, 1, last, applied, next_offset, last_event_id)
    }

    fn told(
        sealed: bool,
        first: u64,
        last: u64,
        applied: Found,
        next_offset: u64,
        last_event_id: Option<Uuid>,
    ) -> String {
        let ends = Ends { stream: "S".to_owned(), first, last, applied, sealed };
        match compare(&ends, next_offset, last_event_id) {
            Ok(Next::Here) => "GO_ON".to_owned(),
            Ok(Next::NextEpoch) => "NEXT_EPOCH".to_owned(),
            Err(error) => error.to_string().split(':').next().expect("a word").to_owned(),
        }
    }

    #[test]
    fn a_stream_that_continues_what_was_applied_is_read_on() {
        assert_eq!(check(1, 0, Found::Nothing, 1, None), "GO_ON");
        assert_eq!(check(1, 9, Found::Nothing, 1, None), "GO_ON");
        assert_eq!(check(1, 9, Found::Event(A), 6, Some(A)), "GO_ON");
        assert_eq!(check(1, 5, Found::Event(A), 6, Some(A)), "GO_ON");
        assert_eq!(check(6, 9, Found::Nothing, 6, Some(A)), "GO_ON", "the message applied last has aged out");
        assert_eq!(check(1, 9, Found::Event(A), 6, None), "GO_ON", "a checkpoint set without an id");
    }

    #[test]
    fn case_40_a_shorter_stream_is_waited_for() {
        assert_eq!(check(1, 4, Found::Nothing, 6, Some(A)), "REGRESSED");
        assert_eq!(check(1, 0, Found::Nothing, 6, Some(A)), "REGRESSED");
    }

    #[test]
    fn inv_25_a_sealed_stream_is_left_once_all_of_it_was_applied() {
        assert_eq!(sealed(9, Found::Event(A), 6, Some(A)), "GO_ON");
        assert_eq!(sealed(5, Found::Event(A), 6, Some(A)), "NEXT_EPOCH");
        assert_eq!(sealed(5, Found::Nothing, 6, None), "NEXT_EPOCH");
        assert_eq!(sealed(0, Found::Nothing, 1, None), "NEXT_EPOCH", "it never had a message");
        assert_eq!(sealed(4, Found::Nothing, 6, Some(A)), "NEXT_EPOCH", "shorter for good");
        assert_eq!(sealed(5, Found::Event(B), 6, Some(A)), "LOST_TAIL");
        assert_eq!(told(true, 7, 9, Found::Nothing, 6, Some(A)), "GAP", "the rest of it is applied first");
    }

    #[test]
    fn another_message_where_the_last_was_applied_is_a_lost_tail() {
        assert_eq!(check(1, 9, Found::Event(B), 6, Some(A)), "LOST_TAIL");
        assert_eq!(check(1, 9, Found::Foreign("none".to_owned()), 6, Some(A)), "LOST_TAIL");
    }

    #[test]
    fn inv_19_messages_gone_before_they_were_applied_are_a_gap() {
        assert_eq!(check(7, 9, Found::Nothing, 6, Some(A)), "GAP");
        assert_eq!(check(10, 9, Found::Nothing, 6, Some(A)), "GAP", "all of them aged out");
        assert_eq!(check(3, 9, Found::Nothing, 1, None), "GAP");
    }
}
