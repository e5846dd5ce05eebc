//! Use cases: what runs between the doors.

pub(crate) mod acts;
pub(crate) mod authority;
pub(crate) mod limits;
pub(crate) mod maintenance;
pub(crate) mod policies;
pub(crate) mod shards;
pub(crate) mod sweeps;
pub(crate) mod writer;
