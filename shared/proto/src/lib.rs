//! Generated wire types of every Likewise contract, the descriptors for reflection, and the conversions between wire
//! and domain types that more than one service needs.
//!
//! Wire types stop at a service's doors: `grpc.rs`, `consumer.rs`, `publisher.rs` and `clients.rs` are the only modules
//! that name this crate.

pub mod convert;

/// Encoded `FileDescriptorSet` of all contracts and their imports, for gRPC reflection.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/likewise.rs"));
}

pub use generated::likewise::{
    command, content, counter, events, facts, lanes, policy, query, reconciliation, reverse_index, risk, types,
};
