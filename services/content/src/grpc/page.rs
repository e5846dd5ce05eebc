//! Pages by keyset: the token holds the key of the last row.

use std::sync::Arc;

use likewise_kit::cursor::{Binding, CursorKeys};
use likewise_kit::errors;
use time::{Duration, OffsetDateTime};
use tonic::Status;

use crate::store::ListKey;

const SIZE_MAX: u32 = 100;
const SIZE_DEFAULT: u32 = 20;

/// Seals and opens the page tokens of this service.
#[derive(Clone)]
pub struct Pages {
    keys: Arc<CursorKeys>,
    life: Duration,
}

impl Pages {
    /// Tokens live for `life`.
    #[must_use]
    pub const fn new(keys: Arc<CursorKeys>, life: Duration) -> Self {
        Self { keys, life }
    }

    /// Where a page starts: before the key in the token, or at the newest.
    pub(super) fn start(&self, binding: &Binding<'_>, token: &str) -> Result<ListKey, Status> {
        let now = OffsetDateTime::now_utc();
        if token.is_empty() {
            // Later than any row; ids are ASCII, so the tie-breaker sorts above all of them.
            return Ok(ListKey { at: now + Duration::days(36_500), id: "~".to_owned() });
        }
        let payload = self.keys.open(binding, now, token)?;
        read(&payload).ok_or_else(errors::internal)
    }

    /// The token of the page after `last`.
    pub(super) fn next(&self, binding: &Binding<'_>, last: &ListKey) -> String {
        let mut payload = last.at.unix_timestamp_nanos().to_be_bytes().to_vec();
        payload.extend_from_slice(last.id.as_bytes());
        self.keys.seal(binding, OffsetDateTime::now_utc() + self.life, &payload)
    }
}

fn read(payload: &[u8]) -> Option<ListKey> {
    let (at, id) = payload.split_first_chunk::<16>()?;
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from_be_bytes(*at)).ok()?;
    Some(ListKey { at, id: String::from_utf8(id.to_vec()).ok()? })
}

/// Rows on a page.
pub(super) fn size(asked: u32) -> Result<usize, Status> {
    match asked {
        0 => Ok(SIZE_DEFAULT as usize),
        1..=SIZE_MAX => Ok(asked as usize),
        _ => Err(errors::invalid_field("page_size", format!("must be at most {SIZE_MAX}"))),
    }
}

/// One row more than the page, to see whether there is another page.
pub(super) fn with_one_more(size: usize) -> i64 {
    i64::try_from(size + 1).unwrap_or(i64::MAX)
}
