//! Real PostgreSQL, NATS and Redis for development and tests.
//!
//! [`Stack::start`] finds suitable servers on this machine or provisions them into an ignored folder, runs them on free
//! loopback ports below one folder, and ends them again. [`TestStack`] shares one stack among the tests of a process, or
//! of a whole run. [`Process`] runs a built binary of the product against it.
//!
//! It starts processes and knows no service: what a service needs to be told stands in [`TestConfig`].
//! It never touches a server that it did not start.

mod cluster;
mod config;
mod copies;
mod database;
mod find;
mod keys;
mod leftovers;
mod line;
mod nats;
mod place;
mod postgres;
mod process;
mod provision;
mod redis;
mod server;
mod stack;
mod test_stack;
mod tied;

pub use config::TestConfig;
pub use copies::{Backup, Standby};
pub use database::TestDatabase;
pub use keys::DevKeys;
pub use line::{Cut, Line, Weather};
pub use place::{Place, workspace};
pub use process::{Process, build_binary};
pub use provision::buf;
pub use server::Server;
pub use stack::{Stack, StackAddress, StackSpec};
pub use test_stack::TestStack;
pub use tied::{interrupt_group, pause, run_shown};
