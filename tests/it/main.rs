//! The integration tests in one binary: each module is a subject.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes"
)]

mod address_plan;
mod model;
#[path = "../store_contract/redis/server.rs"]
mod redis_server;
#[path = "../support/seed.rs"]
#[allow(dead_code, reason = "each test has sequences of its own, and a seed for them")]
mod seed;
mod sequences;
mod tidy;
