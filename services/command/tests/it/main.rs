//! The command service on real PostgreSQL and NATS, with an authority of the test's own.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

mod authority;
mod commands;
mod exact;
mod facts;
mod history;
mod limits;
mod lock;
mod many;
mod policy;
mod registry;
mod restated;
mod rig;
mod risk;
mod shards;
mod signing;
mod statements;
mod sweeps;
