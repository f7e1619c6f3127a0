//! Tests of the real process: it is started, spoken to over TCP, killed, and started again.
//!
//! What the product promises is judged by what its clients were told: every answer that arrived is recorded, and after each
//! kill the server must know all of it, and nothing that nobody asked for. `ledger` records and judges, `client` speaks raw
//! lines, `server` owns the process. What the pages promise is judged by running them: `story`.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes and files"
)]

#[path = "../it/sequences/published.rs"]
mod published;

#[path = "../support/journal.rs"]
mod journal;
#[path = "../faults/redis.rs"]
#[allow(dead_code, reason = "shared with the tests of several nodes")]
mod redis;
#[path = "../support/seed.rs"]
#[allow(dead_code, reason = "shared with all tests")]
mod seed;

mod apply;
mod archive;
mod blocks;
mod broken_off;
mod client;
mod copies;
mod deploy;
mod differs;
mod doctor;
mod example;
mod formats;
mod given_up;
mod history;
mod imported;
mod kills;
mod kills_deploy;
mod ledger;
mod left;
mod logs;
mod losses;
mod migrate;
mod moved_by_export;
mod owners;
mod plan;
mod process;
mod python;
mod readme;
mod recipes;
mod reload;
mod sentinels;
#[allow(dead_code, reason = "shared with the tests of several nodes")]
mod server;
mod settled;
mod shards;
mod sizing;
mod story;
mod supervised;
mod top;
mod unread;
mod unready;
mod vanished;
mod watching;
mod who;
mod why_full;
