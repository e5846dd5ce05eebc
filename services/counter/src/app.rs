//! What the counter does, one use case per module: what a process is [`live`] on, how a new installation [`bootstrap`]s, how the
//! [`projector`] folds and the [`aggregator`] sums, and what [`counts`] are answered.

pub mod aggregator;
pub mod bootstrap;
pub mod counts;
pub mod live;
pub mod projector;
