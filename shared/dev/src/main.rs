//! The `cargo dev` verbs.

fn main() {}
