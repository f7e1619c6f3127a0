//! What `deploy/` ships, judged by the tools that read it and by running it.
//!
//! The script `machine` makes a machine for a story of `stories`: one story takes the package through its life under a real
//! systemd, one runs the compose set-up with a host for each container, real Redis servers and sentinels, and a real
//! Prometheus. No container engine takes part: `image` judges the image itself and its base as far as that is possible
//! without one. `causes` makes the causes of alerts happen to real servers, and does what the page says to do about them.
#![allow(
    clippy::duplicate_mod,
    reason = "what tells of skips is shared by those who start a Redis and by all tests here"
)]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes and files"
)]

mod alerts;
mod causes;
#[path = "../faults/clock.rs"]
#[allow(dead_code, reason = "shared with the tests of faults")]
mod clock;
mod compose;
mod dashboards;
mod drill;
mod image;
#[path = "../support/journal.rs"]
mod journal;
mod kubernetes;
#[path = "../faults/nodes.rs"]
#[allow(dead_code, reason = "shared with the tests of faults")]
mod nodes;
mod once;
mod package;
mod page;
mod prometheus;
#[path = "../faults/redis.rs"]
#[allow(dead_code, reason = "shared with the tests of faults")]
mod redis;
#[path = "../e2e/server.rs"]
#[allow(dead_code, reason = "shared with the tests of one process")]
mod server;
#[path = "../support/skips.rs"]
#[allow(dead_code, reason = "shared with the tests of one process")]
mod skips;
mod tools;
mod unit;
#[path = "../faults/wire.rs"]
#[allow(dead_code, reason = "shared with the tests of faults")]
mod wire;
