//! Faults in any order, drawn from a seed: `ALLOD_SEED` repeats a run's choice (what they meet differs from run to run),
//! `ALLOD_SOAK_SECONDS` makes it last for hours.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::run::{Nodes, Run};

const NODES: usize = 3;
/// How long the run lasts where nothing else is asked for.
const SECONDS: u64 = 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_in_whatever_order_no_address_has_two_holders() {
    let Some(nodes) = Nodes::start(NODES, &["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let seed = number("ALLOD_SEED").unwrap_or_else(rand::random);
    eprintln!("ALLOD_SEED={seed}");
    let mut draws = SmallRng::seed_from_u64(seed);
    let mut run = Run::begin(nodes, 6, seed).await;
    run.gets_on(100, "before any fault").await;
    let end = Instant::now() + Duration::from_secs(number("ALLOD_SOAK_SECONDS").unwrap_or(SECONDS));
    let mut met = 0;
    while Instant::now() < end {
        let node = draws.random_range(0..NODES);
        let pause = Duration::from_millis(draws.random_range(100..6_500));
        match draws.random_range(0..10) {
            0..3 => run.crash(node),
            3..5 => run.restart(node),
            5..8 => {
                run.nodes.cluster.signal(node, "-STOP");
                tokio::time::sleep(pause).await;
                run.nodes.cluster.signal(node, "-CONT");
            }
            8 => {
                run.nodes.redis.signal("-STOP");
                tokio::time::sleep(pause).await;
                run.nodes.redis.signal("-CONT");
            }
            _ => run.nodes.redis.crash(),
        }
        met += 1;
        assert!(
            run.load.more(50, Duration::from_secs(90)).await,
            "ALLOD_SEED={seed}: after fault {met} nobody gets on"
        );
    }
    let verdict = run.end().await;
    assert!(verdict.sure_holdings > 300 && met > 2, "{} sure holdings, {met} faults", verdict.sure_holdings);
}
