//! Many schedules on all processors: each is run by one thread, from its beginning to its end, as its seed says.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use allod::metrics::Metrics;

use crate::schedule;
use crate::world::{Coverage, Plan};

/// So many seeds that fail are enough for one run.
const FAILED_SEEDS_MAX: usize = 20;

/// What became of them.
#[derive(Default)]
pub struct Ran {
    /// Seeds, and what was wrong.
    pub failed: Vec<(u64, Vec<String>)>,
    pub coverage: Coverage,
}

/// Runs the schedules of these seeds.
pub fn run(seeds: Range<u64>, plan: impl Fn(u64) -> Plan + Sync) -> Ran {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (next, ran) = (AtomicU64::new(seeds.start), Mutex::new(Ran::default()));
    let work = || {
        // It counts the panics of the actors of this thread.
        let metrics = Arc::new(Metrics::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = schedule::run(plan(seed), &metrics, false);
            let mut ran = ran.lock().unwrap();
            for (what, times) in outcome.coverage {
                *ran.coverage.entry(what).or_default() += times;
            }
            if !outcome.problems.is_empty() {
                ran.failed.push((seed, outcome.problems));
            }
            if ran.failed.len() >= FAILED_SEEDS_MAX {
                return;
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut ran = ran.into_inner().unwrap();
    ran.failed.sort();
    ran
}
