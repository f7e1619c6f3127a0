//! Seeded simulation of several nodes over the real store for Redis, without sockets. It shows what owners do when a Redis
//! whose writes no replica confirms goes back behind what they acknowledged (R-9). `tests/simulation` uses a model in place
//! of the store, and loses only what was not told. Here the store is the product's, with its scripts, on one thread, in time
//! that the runtime moves. A seed determines its schedule, so whatever fails can be run again and fails again.
//!
//! ```text
//!  clients ──lines──▶ node (sessions, actors, keeper) ─▶ RedisStore ══RESP══ wire ══▶ redis (data, scripts in Lua)
//!  judge ◀── told ────┘  killed, paused, stopped             cut off, held up, broken      goes back, is emptied
//! ```
//!
//! `redis` is a server whose data is a value: an earlier copy is what a lagging replica had. `wire` has the connections to
//! it, `node` is a process, and `world` is what all share. `faults` are short stories, chosen by the weather of the `plan`,
//! and `happenings` makes them happen. `served` notes what the server did for whom. `clients` hold addresses and blocks of
//! tiny networks of both families, in one network or in two at once; `judge` compares what they were told with what is there
//! in the end. `log` counts what the product logs, and `coverage` lists what must have been met.
//!
//! Use a release build for long runs. `ALLOD_SCHEDULES=1 ALLOD_SEED=…` runs a failing seed alone and prints its trace:
//!
//! ```text
//! ALLOD_SCHEDULES=10000 ALLOD_SEED=1 cargo test --release --test simulation_redis schedules_keep -- --nocapture
//! ```
//!
//! | weather | what is searched |
//! | --- | --- |
//! | going back | by a few or many changes, perhaps twice: the owner alone gives back all of it |
//! | past take-overs | each owner of the register gives back its part, in turn, or puts it aside |
//! | parting | another owner goes on from further back, or a failover is undone: what one line lacks is put aside and claimed |
//! | under way | the owner is cut off with a batch under way, and Redis goes back to before it: the next owner gives it back |
//! | leaving | an owner is asked to stop just after Redis went back, or while Redis is away |
//! | emptied | the register is written anew from memory |
//! | mixed | anything, and nodes are killed |
//!
//! The nodes here cannot reach each other: each brings what it put aside when it owns the register, at the end one node
//! after the other. Each node has a directory, in which its processes find what earlier ones left.
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

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Schedules that one run of the suite tries.
const SCHEDULES: u64 = 100;

#[test]
fn schedules_keep_every_promise() {
    seeds::keep_every_promise(SCHEDULES, Plan::of, coverage::MUST_OCCUR);
}

/// Each seed found a fault once: one shard that could not be accounted for kept the others from being put aside; an earlier
/// stretch was forgotten; what was sent to two shards at once was forgotten for both when one of them went on elsewhere.
#[test]
fn schedules_that_found_something_once_keep_every_promise() {
    let seeds = [939, 5_244, 20_595, 21_908, 22_236, 22_461, 22_483, 100_170, 101_035, 101_466, 102_156];
    let plans = seeds.into_iter().map(|seed| Plan { passes_known: false, ..Plan::of(seed) });
    let must_occur = [
        "redis went back",
        "batch healed",
        "put aside",
        "take-over lost",
        "late claims in conflict",
        "three owners wrote",
    ];
    seeds::keep_every_promise_in(plans, &must_occur);
}

/// The schedules above meet this too seldom: a kernel that still sends what a process wrote on a connection it has ended.
#[test]
fn a_request_that_comes_after_its_connection_ended_breaks_no_promise() {
    const SEEDS: u64 = 3_000;
    let metrics = Arc::new(Metrics::new());
    let mut met = 0;
    // Which seeds meet it changes with the length of anything that is sent.
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

/// Expects a violation, whose text contains `says`, where something is switched off. Prints after how many seeds.
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

/// The node may not have noticed yet, because its connections broke while nobody used them.
#[test]
fn a_node_that_stops_when_redis_went_back_gives_back_what_it_acknowledged_first() {
    let leaving = |seed| Plan { weather: Weather::Leaving, faults_permille: 0, ..Plan::of(seed) };
    seeds::keep_every_promise_in((1..=20).map(leaving), &["redis went back", "healed", "node stopped in order"]);
}

#[test]
fn where_nothing_is_healed_something_told_is_gone() {
    found_in(Flaw::HealsNothing, Weather::GoingBack, 30, "nobody was told so");
}

/// Redis applied the batch; its writer does not know that, but the owner that went on from it does.
#[test]
fn what_was_under_way_when_its_node_was_cut_off_is_given_back_by_who_went_on_from_it() {
    let under_way =
        |seed| Plan { passes_known: false, weather: Weather::UnderWay, faults_permille: 0, ..Plan::of(seed) };
    let must_occur = ["cut off with a batch under way", "redis went back", "healed"];
    seeds::keep_every_promise_in((1..=60).map(under_way), &must_occur);
}

#[test]
fn where_what_is_put_aside_is_forgotten_something_told_is_gone() {
    found_in(Flaw::LateForgotten, Weather::Parting, 60, "nobody was told so");
}
