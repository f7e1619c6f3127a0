//! Faults in any order, drawn from a seed: `ALLOD_SEED` repeats a run's choice (what they meet differs from run to run),
//! `ALLOD_SOAK_SECONDS` makes it last for hours.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::run::{Run, Setting};
use super::seed::number;
use super::wire::{Way, Wire};

const NODES: usize = 3;
/// How long the run lasts where nothing else is asked for.
const SECONDS: u64 = 12;

/// Something that happens, and how often among all.
const FAULTS: [(&str, u32); 13] = [
    ("a node is killed", 3),
    ("a node is restarted", 2),
    ("a node stands still", 3),
    ("Redis stands still", 1),
    ("Redis is killed", 1),
    ("a node and Redis are cut", 3),
    ("two nodes are cut", 2),
    ("a node is far from Redis", 1),
    ("the memory of Redis is full", 1),
    ("Redis may evict", 1),
    ("Redis is paused", 1),
    ("all connections to Redis break", 1),
    ("clients and a node are cut", 1),
];

fn draw(draws: &mut SmallRng) -> &'static str {
    let all: u32 = FAULTS.iter().map(|fault| fault.1).sum();
    let mut left = draws.random_range(0..all);
    let fault = FAULTS.iter().find(|(_, often)| {
        let here = left < *often;
        left = left.saturating_sub(*often);
        here
    });
    fault.map_or("", |fault| fault.0)
}

async fn cut(draws: &mut SmallRng, wire: &Wire, pause: Duration) {
    wire.hold([Way::There, Way::Back, Way::Both][draws.random_range(0..3)]);
    tokio::time::sleep(pause).await;
    if draws.random() { wire.release() } else { wire.cut() }
}

async fn happens(run: &mut Run, draws: &mut SmallRng, fault: &str) {
    let node = draws.random_range(0..NODES);
    let pause = Duration::from_millis(draws.random_range(100..6_500));
    let set = |run: &Run, name: &str, value: &str| run.nodes.redis.ask(&["CONFIG", "SET", name, value]);
    match fault {
        "a node is killed" => run.crash(node),
        "a node is restarted" => run.restart(node),
        "a node stands still" => {
            run.nodes.cluster.signal(node, "-STOP");
            tokio::time::sleep(pause).await;
            run.nodes.cluster.signal(node, "-CONT");
        }
        "Redis stands still" => {
            run.nodes.redis.signal("-STOP");
            tokio::time::sleep(pause).await;
            run.nodes.redis.signal("-CONT");
        }
        "Redis is killed" => run.nodes.redis.crash(),
        "a node and Redis are cut" => cut(draws, run.nodes.to_redis(node), pause).await,
        "two nodes are cut" => cut(draws, run.nodes.to_node(node), pause).await,
        "clients and a node are cut" => cut(draws, run.nodes.to_clients(node), pause).await,
        "a node is far from Redis" => {
            run.nodes.to_redis(node).delay(pause / 4);
            tokio::time::sleep(pause).await;
            run.nodes.to_redis(node).release();
        }
        "the memory of Redis is full" => {
            set(run, "maxmemory", "1");
            tokio::time::sleep(pause).await;
            set(run, "maxmemory", "0");
        }
        "Redis may evict" => {
            set(run, "maxmemory-policy", "allkeys-lru");
            tokio::time::sleep(pause).await;
            set(run, "maxmemory-policy", "noeviction");
        }
        "Redis is paused" => run.nodes.redis.ask(&["CLIENT", "PAUSE", &pause.as_millis().to_string(), "ALL"]),
        "all connections to Redis break" => {
            for _ in 0..draws.random_range(1..10) {
                run.nodes.redis.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_in_whatever_order_no_address_has_two_holders() {
    let Some(mut run) = Run::of(Setting { nodes: NODES, wired: true, ..Setting::default() }).await else { return };
    // Wires carry what nobody waits for any more.
    run.load.lingers_ms.store(8_000, Ordering::Relaxed);
    let mut draws = SmallRng::seed_from_u64(run.seed);
    let end = Instant::now() + Duration::from_secs(number("ALLOD_SOAK_SECONDS").unwrap_or(SECONDS));
    let mut met: BTreeMap<&str, u32> = BTreeMap::new();
    // On a slow machine too, something happens after something.
    while Instant::now() < end || met.values().sum::<u32>() < 3 {
        let fault = draw(&mut draws);
        happens(&mut run, &mut draws, fault).await;
        *met.entry(fault).or_default() += 1;
        run.gets_on(200, &format!("after `{fault}`")).await;
    }
    let seed = run.seed;
    let verdict = run.end().await;
    eprintln!("ALLOD_SEED={seed}: {} sure holdings, {} unknown, {met:?}", verdict.sure_holdings, verdict.unknown);
}
