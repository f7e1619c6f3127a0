//! The server over real sockets: order, bounds, and what happens when the store, a network or the client misbehaves.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes and files"
)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[path = "../it/sequences/clock.rs"]
mod clock;
#[path = "../it/sequences/published.rs"]
mod published;
#[path = "../support/seed.rs"]
#[allow(dead_code, reason = "shared with all tests")]
mod seed;

mod answers;
mod asked_again;
mod barrier;
mod begun;
mod behind;
mod bounds;
mod claimers;
mod conflicts;
mod counted;
mod crashes;
mod dead_actors;
mod deadlines;
mod deployments;
mod drained;
mod ended;
mod errors;
mod facts;
mod faulty;
mod figures;
mod forms;
mod guarded;
mod history;
mod http_bounds;
mod http_paths;
mod isolation;
mod listed;
mod macs;
mod met_once;
mod mismatch;
mod moved;
mod moves;
mod naming;
mod outage;
mod paged;
mod redis;
#[path = "../store_contract/redis/server.rs"]
mod redis_server;
mod reloads;
mod restart;
mod retention;
mod room;
mod rules;
mod self_check;
mod spread;
mod standby;
mod stop;
mod stopped;
mod stores;
mod subnet_lists;
mod support;
mod sweeps;
mod transcripts;
mod turns;
mod unread;
mod unspoken;
mod untaken;
mod waits;
mod waits_let_go;
mod waits_named;
mod waits_together;
mod waits_trouble;
mod waits_unasked;
mod watch;
mod watch_batched;
mod words;
