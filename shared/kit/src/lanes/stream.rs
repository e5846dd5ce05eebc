//! The stream of a lane on the broker.

use super::Lane;

/// Name of a lane's stream: `LW_REL_3_E0`.
#[must_use]
pub fn stream_name(prefix: &str, lane: &Lane, epoch: u32) -> String {
    format!("{prefix}_{}_{}_E{epoch}", lane.class.to_ascii_uppercase(), lane.shard)
}

/// The one subject of a lane's stream: `lw.rel.3.e0`.
#[must_use]
pub fn subject(prefix: &str, lane: &Lane, epoch: u32) -> String {
    format!("{}.{}.{}.e{epoch}", prefix.to_ascii_lowercase(), lane.class, lane.shard)
}
