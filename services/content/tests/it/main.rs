//! The built-in authority on real PostgreSQL and NATS, through its public RPCs.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

mod accounts;
mod outbox;
mod policies;
mod posts;
mod world;
