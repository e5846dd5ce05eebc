//! Machinery that two or more services need: running, configuration, identity, stores, lanes.

pub mod auth;
pub mod clients;
pub mod config;
pub mod crash;
pub mod cursor;
pub mod deadline;
pub mod errors;
pub mod lanes;
pub mod lease;
pub mod metrics;
pub mod peer;
pub mod pg;
pub mod redis;
pub mod run;
