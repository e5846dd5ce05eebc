//! The number users see, with its parts: what one display row and one Redis view hold.

use likewise_domain::id::VideoId;
use time::OffsetDateTime;

/// Parts of a sum over buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// All LIKED relations.
    pub raw: i64,
    /// Excluded by risk.
    pub risk_hidden: i64,
    /// Excluded by policy.
    pub policy_hidden: i64,
    /// A quarantined bucket is in the sum, which therefore lacks something.
    pub approximate: bool,
}

impl Parts {
    /// What users see.
    #[must_use]
    pub const fn display(&self) -> i64 {
        self.raw - self.risk_hidden - self.policy_hidden
    }

    /// The sum with another partition's part.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            raw: self.raw + other.raw,
            risk_hidden: self.risk_hidden + other.risk_hidden,
            policy_hidden: self.policy_hidden + other.policy_hidden,
            approximate: self.approximate || other.approximate,
        }
    }
}

/// One display row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayRow {
    /// The video.
    pub video: VideoId,
    /// The number and its parts.
    pub parts: Parts,
    /// Pass of the aggregator that wrote it; 0 for a video that was never written.
    pub pass: i64,
    /// When its sum was read.
    pub generated_at: OffsetDateTime,
}

/// Generation and pass that wrote a row, for example `g1.p42`.
#[must_use]
pub fn snapshot_id(generation: i32, pass: i64) -> String {
    format!("g{generation}.p{pass}")
}
