//! Faults in any order, drawn from a seed: `ALLOD_SEED` repeats a run's choice (what they meet differs from run to run),
//! `ALLOD_SOAK_SECONDS` makes it last for hours.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::checker::check;
use super::client::Client;
use super::load::{Load, make_networks};
use super::nodes::Cluster;
use super::redis::Redis;

const NODES: usize = 3;
/// How long the run lasts where nothing else is asked for.
const SECONDS: u64 = 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_in_whatever_order_no_address_has_two_holders() {
    let directory = tempfile::tempdir().unwrap();
    let settings = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(mut redis) = Redis::start(directory.path(), &settings) else { return };
    let seed = number("ALLOD_SEED").unwrap_or_else(rand::random);
    eprintln!("ALLOD_SEED={seed}");
    let mut draws = SmallRng::seed_from_u64(seed);
    let mut cluster = Cluster::start(directory.path(), &redis, NODES);
    let networks = make_networks(&mut Client::connect(cluster.addresses()[0]).await.unwrap(), 4).await;
    let load = Load::new(networks, cluster.addresses());
    let clients = load.start(6, seed);
    assert!(load.more(100, Duration::from_secs(60)).await);
    let end = Instant::now() + Duration::from_secs(number("ALLOD_SOAK_SECONDS").unwrap_or(SECONDS));
    let mut met = 0;
    while Instant::now() < end {
        let node = draws.random_range(0..NODES);
        let pause = Duration::from_millis(draws.random_range(100..6_500));
        match draws.random_range(0..10) {
            0..3 => load.moved(node, cluster.crash(node)),
            3..5 => load.moved(node, cluster.restart(node)),
            5..8 => {
                cluster.signal(node, "-STOP");
                tokio::time::sleep(pause).await;
                cluster.signal(node, "-CONT");
            }
            8 => {
                redis.signal("-STOP");
                tokio::time::sleep(pause).await;
                redis.signal("-CONT");
            }
            _ => redis.crash(),
        }
        met += 1;
        assert!(load.more(50, Duration::from_secs(90)).await, "ALLOD_SEED={seed}: after fault {met} nobody gets on");
    }
    load.end(clients).await;
    let verdict = check(&load.record.all());
    let first: Vec<_> = verdict.problems.iter().take(5).collect();
    assert!(first.is_empty(), "ALLOD_SEED={seed}: {} problems: {first:#?}", verdict.problems.len());
    assert!(verdict.sure_holdings > 300 && met > 2, "{} sure holdings, {met} faults", verdict.sure_holdings);
}
