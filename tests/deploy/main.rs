//! What `deploy/` ships, judged by the tools that read it and by running it.
//!
//! `machine` (a script) makes a machine for a story of `stories`: the package lives through its life under a real systemd, and
//! the compose set-up runs with a host for each container, real Redis servers and sentinels, and a real Prometheus. No
//! container engine takes part: the image itself and its base are judged by `image` as far as they can be without one.
//! `causes` has what the alerts are about happen to real servers, and does what the page says to do about it.
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
