//! Machinery that two or more services need: running, configuration, identity, stores, lanes.

pub mod lanes;
pub mod lease;
