//! Faults, with real processes: nodes and Redis are killed, stopped, cut off and emptied while clients work, and everything
//! that the clients were told is held against the one promise: no address has two holders at one instant.
//!
//! `load` asks and writes down, `record` keeps, `checker` judges; `redis` and `nodes` own the processes. Short runs are
//! tests; `any` is also a soak: `ALLOD_SOAK_SECONDS=3600 cargo test --test faults whatever_happens`.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes and files"
)]

#[path = "../e2e/client.rs"]
#[allow(dead_code, reason = "shared with the tests of one process")]
mod client;
#[path = "../it/sequences/published.rs"]
mod published;
#[path = "../e2e/server.rs"]
#[allow(dead_code, reason = "shared with the tests of one process")]
mod server;

mod any;
mod checker;
mod failover;
mod load;
mod nodes;
mod one_node;
mod record;
mod redis;
mod run;
mod several_nodes;
mod waits;
mod watch;
