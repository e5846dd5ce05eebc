//! Tests of the kit on real servers.

mod lanes;
