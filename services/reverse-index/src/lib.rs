//! Who liked this video, under today's privacy.
pub mod app;
pub mod clients;
pub mod config;
pub mod consumer;
pub mod contract;
pub mod fold;
pub mod grpc;
pub mod metrics;
pub mod store;
