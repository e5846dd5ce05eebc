//! Redis, read only. The views are written by the counter's aggregator and by nobody here: a reader that misses asks the
//! counter, which knows by that what to write again.
//!
//! A view is a hash at `<prefix>like:count:view:g<generation>:{<video>}`, with the fields `raw`, `risk`, `policy`, `display`,
//! `generated_at` (microseconds since 1970), `pass` and `approximate` (0 or 1).

use fred::clients::Pool;
use fred::interfaces::HashesInterface as _;
use likewise_domain::id::VideoId;
use time::OffsetDateTime;

use crate::count::Numbers;

/// Fields of a view, in the order in which they are asked for.
const FIELDS: [&str; 7] = ["raw", "risk", "policy", "display", "generated_at", "pass", "approximate"];

/// Redis did not answer.
#[derive(Debug, thiserror::Error)]
#[error("read count views from Redis: {source}")]
pub struct Error {
    source: fred::error::Error,
}

/// The views of counts.
#[derive(Clone)]
pub struct Views {
    redis: Pool,
    prefix: String,
}

impl Views {
    /// Views below `prefix`.
    #[must_use]
    pub fn new(redis: Pool, prefix: &str) -> Self {
        Self { redis, prefix: prefix.to_owned() }
    }

    /// Views of one generation, in the order of the videos; `None` where there is none. One round trip.
    ///
    /// # Errors
    /// When Redis does not answer, for any of them: the others are no better than a miss then.
    pub async fn read(&self, generation: u64, videos: &[VideoId]) -> Result<Vec<Option<Numbers>>, Error> {
        let pipeline = self.redis.next().pipeline();
        for video in videos {
            let key = format!("{}like:count:view:g{generation}:{{{video}}}", self.prefix);
            // Queued only; it is sent with the others.
            pipeline.hmget::<(), _, _>(key, FIELDS.to_vec()).await.map_err(|source| Error { source })?;
        }
        let answers: Vec<Result<Vec<Option<String>>, _>> = pipeline.try_all().await;
        answers.into_iter().map(|fields| Ok(numbers(generation, &fields.map_err(|source| Error { source })?))).collect()
    }
}

/// A view whose parts do not add up, or that lacks a field, is no view.
fn numbers(generation: u64, fields: &[Option<String>]) -> Option<Numbers> {
    let [raw, risk, policy, display, generated_at, pass, approximate] = fields else { return None };
    let number = |field: &Option<String>| field.as_deref()?.parse::<u64>().ok();
    let numbers = Numbers {
        raw: number(raw)?,
        risk_hidden: number(risk)?,
        policy_hidden: number(policy)?,
        display: number(display)?,
        generated_at: OffsetDateTime::from_unix_timestamp_nanos(i128::from(number(generated_at)?) * 1_000).ok()?,
        snapshot_id: format!("g{generation}.p{}", number(pass)?),
        approximate: number(approximate)? != 0,
    };
    let hidden = numbers.risk_hidden.checked_add(numbers.policy_hidden)?;
    (numbers.raw.checked_sub(hidden)? == numbers.display).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Numbers> {
        let fields: Vec<Option<String>> =
            text.split(' ').map(|field| (field != "-").then(|| field.to_owned())).collect();
        numbers(3, &fields)
    }

    #[test]
    fn a_view_reads_back() {
        let view = parse("9 1 2 6 1700000000000001 42 0").expect("a view");
        assert_eq!((view.display, view.raw, view.risk_hidden, view.policy_hidden), (6, 9, 1, 2));
        assert_eq!(view.snapshot_id, "g3.p42");
        assert_eq!(view.generated_at.unix_timestamp_nanos(), 1_700_000_000_000_001_000);
        assert!(!view.approximate && parse("0 0 0 0 1 1 1").expect("a view").approximate);
    }

    #[test]
    fn scn_j09_what_is_no_whole_view_is_a_miss_and_not_zero() {
        for broken in [
            "- - - - - - -",
            "9 1 2 - 1 42 0",
            "9 1 2 7 1 42 0",
            "1 1 1 0 1 42 0",
            "9 1 2 6 1 x 0",
            "-9 0 0 -9 1 1 0",
            "9 1 2 6 1 42",
        ] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }
}
