//! Seeded simulation of several nodes over the real store of Redis, without sockets: what its owners do when a Redis that nobody
//! confirms goes back behind what they acknowledged (R-9). `tests/simulation` has a model in the place of the store, and loses
//! only what was not told; here the store is the product's, with its scripts, on one thread, in time that the runtime moves. A
//! schedule is its seed: whatever fails fails again.
//!
//! ```text
//!  clients ──lines──▶ node (sessions, actors, keeper) ─▶ RedisStore ══RESP══ wire ══▶ redis (data, scripts in Lua)
//!  judge ◀── told ────┘  killed, paused, stopped             cut off, held up, broken      goes back, is emptied
//! ```
//!
//! `redis` is a server whose data is a value: a copy of before is what a replica had that lagged. `wire` are the connections to
//! it, `node` is a process, `world` what all share; `faults` tells what befalls them, in short stories, as the `plan` has
//! its weather; `happenings` has it happen. `served` keeps what the server did for whom. `clients` hold addresses and blocks of
//! tiny networks of both families, in one or in two at once; `judge` holds what they were told against what is there in the end;
//! `log` counts what the product says of itself, and `coverage` lists what must have been met.
//!
//! The long run is in a release build; a failing seed alone is `ALLOD_SCHEDULES=1 ALLOD_SEED=…`, and prints its trace:
//!
//! ```text
//! ALLOD_SCHEDULES=10000 ALLOD_SEED=1 cargo test --release --test simulation_redis schedules_keep -- --nocapture
//! ```
//!
//! | weather | what is searched |
//! | --- | --- |
//! | going back | a few or many changes, twice: the owner gives back all of it, and nobody else is needed |
//! | past take-overs | each who owned the register gives back its part, in turn, or puts it aside |
//! | parting | another goes on from further back; a failover is taken back: what one line lacks is put aside and claimed |
//! | under way | the owner is cut off with a batch under way, and Redis goes back to before it: whoever went on gives it back |
//! | leaving | an owner is asked to stop just after Redis went back, or while it is away |
//! | emptied | the register is written anew from memory |
//! | mixed | anything, and nodes are killed |
//!
//! Nodes have no ways to each other here: what is put aside each brings when it owns the register, at the end in turn. Each has a
//! directory, in which its processes find what those before left.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; channels are bounded by the requests of few clients"
)]

mod clients;
mod coverage;
mod faults;
mod happenings;
#[path = "../support/in_process.rs"]
#[allow(dead_code, reason = "wall clocks do not jump here")]
mod in_process;
mod judge;
mod log;
mod node;
mod plan;
mod redis;
mod schedule;
#[path = "../support/seed.rs"]
#[allow(dead_code, reason = "a schedule is its seed")]
mod seed;
#[path = "../support/seeds.rs"]
mod seeds;
mod served;
mod wire;
mod world;

use std::sync::Arc;

use allod::metrics::Metrics;

use self::plan::{Flaw, Plan, Weather};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Schedules of one run of the suite.
const SCHEDULES: u64 = 100;

#[test]
fn schedules_keep_every_promise() {
    seeds::keep_every_promise(SCHEDULES, Plan::of, coverage::MUST_OCCUR);
}

/// Of each something was found once: one shard that cannot be accounted for kept the others from being put aside; a stretch of
/// before was forgotten; what was sent to two shards at once was forgotten of both, where one of them went on elsewhere.
#[test]
fn schedules_that_found_something_once_keep_every_promise() {
    let metrics = Arc::new(Metrics::new());
    for seed in [939, 5_244, 20_595, 21_908, 22_236, 22_461, 22_483, 100_170, 101_035, 101_466, 102_156] {
        seeds::keeps_every_promise(Plan { passes_known: false, ..Plan::of(seed) }, &metrics);
    }
}

/// Too seldom for the schedules above to meet it: what a kernel still sends of a connection that its process ended.
#[test]
fn a_request_that_comes_after_its_connection_ended_breaks_no_promise() {
    const SEEDS: u64 = 3_000;
    let metrics = Arc::new(Metrics::new());
    let mut met = 0;
    // Which ones meet it changes with the length of anything that is sent.
    for seed in 200..SEEDS {
        let outcome = schedule::run(Plan::of(seed), &metrics, false);
        assert!(outcome.problems.is_empty(), "{}", seeds::tell(Plan::of(seed), &metrics, &outcome.problems));
        met += usize::from(outcome.coverage.contains_key("request after its connection ended"));
        if met == 2 {
            return;
        }
    }
    panic!("{met} schedules of {SEEDS} have one");
}

#[test]
fn a_schedule_is_its_seed() {
    let metrics = Arc::new(Metrics::new());
    for seed in 1..6 {
        let run = || schedule::run(Plan::of(seed), &metrics, true);
        let (one, other) = (run(), run());
        let differs = one.trace.iter().zip(&other.trace).find(|(one, other)| one != other);
        assert!(differs.is_none() && one.trace.len() == other.trace.len(), "seed {seed}: {differs:#?}");
    }
}

/// Finds a violation where something is switched off, and which says so; tells after how many seeds.
#[track_caller]
fn found_in(flaw: Flaw, weather: Weather, seeds: u64, says: &str) {
    let metrics = Arc::new(Metrics::new());
    for seed in 1..=seeds {
        let plan = Plan { flaw: Some(flaw), weather, ..Plan::of(seed) };
        let outcome = schedule::run(plan, &metrics, false);
        if let Some(problem) = outcome.problems.iter().find(|problem| problem.contains(says)) {
            println!("{flaw:?}: found after {seed} seeds: {problem}");
            return;
        }
    }
    panic!("{flaw:?}: nothing found in {seeds} seeds");
}

/// Runs changed schedules in which nothing may be wrong.
#[track_caller]
fn keeps_every_promise_in(weather: Weather, seeds: u64) {
    let metrics = Arc::new(Metrics::new());
    for seed in 1..=seeds {
        seeds::keeps_every_promise(Plan { weather, faults_permille: 0, ..Plan::of(seed) }, &metrics);
    }
}

/// It may not have noticed yet: its connections broke while nobody used them.
#[test]
fn a_node_that_stops_when_redis_went_back_gives_back_what_it_acknowledged_first() {
    keeps_every_promise_in(Weather::Leaving, 20);
}

#[test]
fn where_nothing_is_healed_something_told_is_gone() {
    found_in(Flaw::HealsNothing, Weather::GoingBack, 30, "nobody was told so");
}

/// Redis applied it, its writer does not know, and whoever went on from it does.
#[test]
fn what_was_under_way_when_its_node_was_cut_off_is_given_back_by_who_went_on_from_it() {
    let metrics = Arc::new(Metrics::new());
    for seed in 1..=60 {
        let plan = Plan { passes_known: false, weather: Weather::UnderWay, faults_permille: 0, ..Plan::of(seed) };
        seeds::keeps_every_promise(plan, &metrics);
    }
}

#[test]
fn where_what_is_put_aside_is_forgotten_something_told_is_gone() {
    found_in(Flaw::LateForgotten, Weather::Parting, 60, "nobody was told so");
}
