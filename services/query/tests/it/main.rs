//! Queries on real Redis, beside stand-ins of the services that own what is read.

mod counts;
mod hearts;
mod lists;
mod refusals;
mod rig;
mod stand;
mod wire;
