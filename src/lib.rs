//! allod: a register of who holds which address.

pub mod actors;
pub mod cli;
pub mod client;
pub mod config;
pub mod core;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod serve;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod wire;
