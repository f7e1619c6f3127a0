//! The integration tests, one binary: each module is a subject.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes"
)]

mod address_plan;
mod model;
#[path = "../store_contract/redis/server.rs"]
mod redis_server;
mod sequences;
mod tidy;
