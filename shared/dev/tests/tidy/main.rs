//! The rules of this repository, as tests. Each failure names file, line and rule.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod calls;
mod documents;
mod doors;
mod manifests;
mod size;
mod source;
mod sql;
