//! The counter on real PostgreSQL, NATS and Redis.

mod aggregate;
mod answers;
mod contracts;
mod fold;
mod model;
mod pipeline;
mod world;
