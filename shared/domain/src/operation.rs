//! What an operation id tells about its age.

use time::{Duration, OffsetDateTime, PrimitiveDateTime};
use uuid::Uuid;

use crate::id::OperationId;

/// How long a verdict stays known online.
pub const RECORD_RETENTION: Duration = Duration::days(14);
/// A dated id older than this is refused: its record may soon be gone.
pub const DATED_AGE_MAX: Duration = Duration::days(13);
/// A dated id further ahead of the database clock than this is refused.
pub const DATED_AHEAD_MAX: Duration = Duration::hours(1);

// A record must outlive every id that may still be accepted, whatever the client's clock says within its skew.
const _: () = assert!(
    DATED_AGE_MAX.whole_seconds() + DATED_AHEAD_MAX.whole_seconds() < RECORD_RETENTION.whole_seconds(),
    "an accepted id could outlive its record"
);

/// Ids that begin so are the system's own; no client may send one.
pub const RESERVED_PREFIX: &str = "lw:";

/// Whether the id is one of the system's own.
#[must_use]
pub fn is_reserved(id: &OperationId) -> bool {
    id.as_str().starts_with(RESERVED_PREFIX)
}

/// The time a UUIDv7 tells, to the millisecond; `None` for an id that tells none. A time beyond what a timestamp holds is told
/// as the last one it holds.
#[must_use]
pub fn dated(id: &OperationId) -> Option<OffsetDateTime> {
    let uuid = Uuid::try_parse(id.as_str()).ok()?;
    if uuid.get_version_num() != 7 {
        return None;
    }
    let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
    let at = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let at = at.and_then(|at| at.checked_add(Duration::nanoseconds(i64::from(nanos))));
    Some(at.unwrap_or(PrimitiveDateTime::MAX.assume_utc()))
}

/// Whether an id that tells `dated` is outside the accepted window at `now`, by the database clock.
#[must_use]
pub fn expired(dated: OffsetDateTime, now: OffsetDateTime) -> bool {
    dated < now - DATED_AGE_MAX || dated > now + DATED_AHEAD_MAX
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_version_7_uuid_tells_its_time_and_others_tell_none() {
        let id = OperationId::parse("01890a5d-ac96-774b-bcce-b302099a8057").expect("well-formed");
        assert_eq!(dated(&id), Some(datetime!(2023-06-30 03:34:18.518 UTC)));
        let beyond = OperationId::parse("ffffffff-ffff-7fff-bfff-ffffffffffff").expect("well-formed");
        assert!(
            dated(&beyond).is_some_and(|at| expired(at, datetime!(2026-01-15 12:00 UTC))),
            "far ahead, not undated"
        );
        for other in ["op-101", "550e8400-e29b-41d4-a716-446655440000"] {
            assert_eq!(dated(&OperationId::parse(other).expect("well-formed")), None);
        }
    }

    #[test]
    fn the_window_is_closed_on_both_sides() {
        let now = datetime!(2026-01-15 12:00 UTC);
        assert!(!expired(now, now));
        assert!(!expired(now - DATED_AGE_MAX, now));
        assert!(expired(now - DATED_AGE_MAX - Duration::SECOND, now));
        assert!(expired(now + DATED_AHEAD_MAX + Duration::SECOND, now));
    }
}
