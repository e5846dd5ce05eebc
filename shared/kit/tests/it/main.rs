//! Tests of the kit on real servers.
#![allow(clippy::panic)]

mod lanes;
mod pg;
mod server;
