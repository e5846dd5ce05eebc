//! The reverse index on real PostgreSQL and NATS.

mod authority;
mod contracts;
mod fold;
mod lists;
mod pipeline;
mod rig;
