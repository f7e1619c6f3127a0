//! Schedules of a simulation: one that is told when it fails, or many on all processors, each run by one thread, from its
//! beginning to its end, as its seed says.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use allod::metrics::Metrics;

use crate::schedule;
use crate::seed::number;
use crate::world::{Coverage, Plan};

/// So many seeds that fail are enough for one run.
const FAILED_SEEDS_MAX: usize = 20;

/// What became of them.
#[derive(Default)]
struct Ran {
    /// Seeds, and what was wrong.
    failed: Vec<(u64, Vec<String>)>,
    coverage: Coverage,
}

/// Nothing may be wrong in this schedule.
#[track_caller]
pub fn keeps_every_promise(plan: Plan, metrics: &Arc<Metrics>) {
    let outcome = schedule::run(plan.clone(), metrics, false);
    assert!(outcome.problems.is_empty(), "{}", tell(plan, metrics, &outcome.problems));
}

/// Nothing may be wrong in so many schedules, or as many as `ALLOD_SCHEDULES` says, from `ALLOD_SEED` on; and as many must meet
/// everything that must occur.
pub fn keep_every_promise(schedules: u64, plan: impl Fn(u64) -> Plan + Sync, must_occur: &[&str]) {
    let first = number("ALLOD_SEED").unwrap_or(1);
    let count = number("ALLOD_SCHEDULES").unwrap_or(schedules);
    let begun = std::time::Instant::now();
    let ran = run(first..first + count, &plan);
    if let Some((seed, problems)) = ran.failed.first() {
        for (seed, problems) in &ran.failed {
            println!("seed {seed}: {}", problems[0].chars().take(400).collect::<String>());
        }
        panic!("{}", tell(plan(*seed), &Arc::new(Metrics::new()), problems));
    }
    println!("{count} schedules in {:?}", begun.elapsed());
    for (what, times) in &ran.coverage {
        println!("{times:>9}  {what}");
    }
    // A count that is there may be none.
    let never = |what: &&&str| ran.coverage.get(**what).is_none_or(|times| *times == 0);
    let missing: Vec<&&str> = must_occur.iter().filter(never).collect();
    assert!(count < schedules || missing.is_empty(), "never met: {missing:?}");
}

/// Runs a schedule again with its trace, and tells all of it.
pub fn tell(plan: Plan, metrics: &Arc<Metrics>, problems: &[String]) -> String {
    let again = schedule::run(plan.clone(), metrics, true);
    let mut text = again.trace.join("\n");
    text.push_str(&format!("\n\n{plan:?}\n"));
    for problem in problems {
        text.push_str(&format!("- {problem}\n"));
    }
    if again.problems != problems {
        text.push_str("the schedule does not replay: the simulation itself is at fault\n");
    }
    text
}

/// Runs the schedules of these seeds.
fn run(seeds: Range<u64>, plan: impl Fn(u64) -> Plan + Sync) -> Ran {
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
