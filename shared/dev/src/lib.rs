//! The verbs of `cargo dev`. They build and run the product's binaries and speak to them by gRPC; they link no service.

pub mod bench;
pub mod demo;
pub mod lint;
pub mod matrix;
pub mod settings;
pub mod site;
pub mod test;
pub mod token;
pub mod up;
