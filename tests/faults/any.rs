//! Faults in any order, drawn from a seed: `ALLOD_SEED` repeats the choice of a run (what the faults meet differs from run
//! to run), and `ALLOD_SOAK_SECONDS` makes a run last for hours.
//!
//! The runs use four kinds of store: a Redis that keeps everything, one that goes back to its last snapshot, one with
//! sentinels whose replica lags, and a cluster whose replicas lag. For the last three a run proves that Redis lost writes
//! and was given them back.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::clock::Clock;
use super::clustered::RedisCluster;
use super::happens::{Alone, Happens, NODES, OF_NODES, Wildly};
use super::redis::Redis;
use super::run::{Run, Setting};
use super::seed::{number, seed};
use super::sentinels::Watched;

/// How long a run lasts unless `ALLOD_SOAK_SECONDS` says otherwise.
const SECONDS: u64 = 10;

fn draw<'a>(draws: &mut SmallRng, faults: &[(&'a str, u32)]) -> &'a str {
    let all: u32 = faults.iter().map(|fault| fault.1).sum();
    let mut left = draws.random_range(0..all);
    let fault = faults.iter().find(|(_, often)| {
        let here = left < *often;
        left = left.saturating_sub(*often);
        here
    });
    fault.map_or("", |fault| fault.0)
}

/// Makes the faults of `must` happen, and then faults drawn from those of nodes and of the store. Each fault has to take hold.
async fn anything_happens<R: Happens>(keeper: R, seed: u64, must: &[&'static str], loses: bool) {
    let faults = [&OF_NODES[..], &keeper.faults()].concat();
    let directory = tempfile::tempdir().unwrap();
    let clocks: Vec<Clock> = (0..NODES).map_while(|node| Clock::new(directory.path(), &format!("{node}"))).collect();
    let environments = clocks.iter().map(Clock::environment).collect();
    let setting = Setting { nodes: NODES, wired: true, environments, ..Setting::default() };
    let run = Run::over(keeper, setting, seed).await;
    run.nodes.redis.remembers();
    let mut wildly = Wildly { run, draws: SmallRng::seed_from_u64(seed), clocks };
    // Requests that nobody waits for any more may linger on the wires for this long.
    wildly.run.load.lingers_ms.store(8_000, Ordering::Relaxed);
    let begun = Instant::now();
    let end = begun + Duration::from_secs(number("ALLOD_SOAK_SECONDS").unwrap_or(SECONDS));
    // How often each fault was drawn, and how often it took hold.
    let mut met: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut must = must.iter();
    // Even on a slow machine at least three faults happen, so that one follows another.
    while Instant::now() < end || met.values().map(|met| met.0).sum::<u32>() < 3 {
        let fault = must.next().copied().unwrap_or_else(|| draw(&mut wildly.draws, &faults));
        // Printed before each fault, so that a run that hangs shows where it was.
        eprintln!("ALLOD_SEED={seed}: after {:.1?}: {fault}", begun.elapsed());
        let took_hold = u32::from(wildly.happens(fault).await);
        let (drawn, held) = met.get(fault).copied().unwrap_or_default();
        met.insert(fault, (drawn + 1, held + took_hold));
        wildly.run.gets_on(200, &format!("after `{fault}`")).await;
    }
    let (healed, logs) = (wildly.run.nodes.healed(), wildly.run.nodes.logs());
    let verdict = wildly.run.end().await;
    let what = format!("{:?}, {} unknown, {healed} given back, {met:?}", verdict.met, verdict.unknown);
    eprintln!("ALLOD_SEED={seed}: {} sure holdings, {what}", verdict.sure_holdings);
    assert!(verdict.unknown > 0, "ALLOD_SEED={seed}: no fault met a request under way: {what}");
    assert!(verdict.met.values().all(|count| *count > 0), "ALLOD_SEED={seed}: nobody asked for that: {what}");
    // A cut has no effect between two nodes that have nothing to say to each other at that moment.
    assert!(met.values().all(|met| met.1 > 0 || met.0 < 4), "ALLOD_SEED={seed}: drawn, and never met: {what}");
    // A node that no longer owns the register has no figures of it, so its log is searched too.
    let is_given_back = healed > 0.0 || logs.contains("Redis has them again");
    assert_eq!(is_given_back, loses, "ALLOD_SEED={seed}: what Redis lost, and was given back: {what}\n{logs}");
}

async fn alone(must: &[&'static str], settings: &[&str], goes_back: bool) {
    let (seed, directory) = (seed(), tempfile::tempdir().unwrap());
    let clock = Clock::new(directory.path(), "redis");
    let environment = clock.iter().flat_map(Clock::environment).collect();
    let Some(redis) = Redis::start_with(directory.path(), settings, environment) else { return };
    anything_happens(Alone { redis, goes_back, clock }, seed, must, goes_back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_in_whatever_order_no_address_has_two_holders() {
    alone(&["a node is killed"], Setting::default().redis, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_over_a_redis_that_goes_back_nothing_is_lost_and_no_address_has_two_holders() {
    alone(&["a node is killed", "Redis goes back", "Redis is emptied"], &[], true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_over_failovers_that_lose_writes_nothing_is_lost_and_no_address_has_two_holders() {
    let seed = seed();
    let Some(watched) = Watched::start() else { return };
    anything_happens(watched, seed, &["a node is killed", "a failover loses"], true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_over_a_redis_cluster_nothing_is_lost_and_no_address_has_two_holders() {
    let seed = seed();
    let Some(redis) = RedisCluster::start(3, 1, &["--appendonly", "yes"]) else { return };
    anything_happens(redis, seed, &["a node is killed", "a failover loses"], true).await;
}
