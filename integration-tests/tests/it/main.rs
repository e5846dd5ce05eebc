//! Whole-system stories: the standalone process on real PostgreSQL, NATS JetStream and Redis, spoken to through its
//! public RPCs, killed and started again.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, clippy::large_futures)]

mod accounts;
mod agree;
mod client;
mod consumer;
mod crash;
mod errors;
mod instances;
mod linear;
mod lost_tail;
mod network;
mod overtaken;
mod privacy;
mod servers;
mod sessions;
mod skew;
mod stores;
mod story;
mod transport;
mod world;
