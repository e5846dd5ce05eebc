//! How long the call being answered may still take.

use std::time::Duration;

use tokio::time::Instant;

tokio::task_local! {
    static DEADLINE: Instant;
}

/// What is left of the time of the call being answered in this task; `None` outside a call and in server streams.
#[must_use]
pub fn remaining() -> Option<Duration> {
    DEADLINE.try_with(|deadline| deadline.saturating_duration_since(Instant::now())).ok()
}

/// Runs `work` until `deadline`; `None` when the time ran out.
pub async fn within<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(deadline, DEADLINE.scope(deadline, work)).await.ok()
}

/// Reads the header `grpc-timeout`: at most eight digits and a unit. `None` when it is malformed.
#[must_use]
pub fn parse_timeout(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_the_wire_are_understood_or_refused() {
        assert_eq!(parse_timeout("5S"), Some(Duration::from_secs(5)));
        assert_eq!(parse_timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parse_timeout("250m"), Some(Duration::from_millis(250)));
        for wrong in ["", "5", "S", "-1S", "5s", "123456789S", "1 S", "5é"] {
            assert_eq!(parse_timeout(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn the_time_left_is_known_inside_a_call_only() {
        assert_eq!(remaining(), None);
        let left = within(Instant::now() + Duration::from_secs(60), async { remaining() }).await.flatten();
        assert!(left.is_some_and(|left| left > Duration::from_secs(50)), "{left:?}");
        assert_eq!(within(Instant::now(), std::future::pending::<()>()).await, None);
    }
}
