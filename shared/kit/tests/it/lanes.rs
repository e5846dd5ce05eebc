//! Lanes and leases on real servers: a toy outbox is published and a toy projection is fed from it.

mod broker;
mod consumer;
mod crash;
mod holes;
mod lease;
mod lost_tail;
mod objects;
mod publisher;
mod registry;
mod toy;
mod world;
