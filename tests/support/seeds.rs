//! Runs schedules of a simulation: one schedule, with its trace if it fails, or many on all processors. Each schedule runs
//! on one thread from beginning to end, as its seed says.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use allod::metrics::Metrics;

use crate::schedule;
use crate::seed::number;
use crate::world::{Coverage, Plan};

/// A run ends early once this many seeds have failed.
const FAILED_SEEDS_MAX: usize = 20;

/// The outcome of many schedules.
#[derive(Default)]
struct Ran {
    /// The seeds that failed, and what was wrong with each.
    failed: Vec<(u64, Vec<String>)>,
    coverage: Coverage,
}

/// Fails if anything is wrong in this schedule; returns what the schedule met.
#[track_caller]
pub fn keeps_every_promise(plan: Plan, metrics: &Arc<Metrics>) -> Coverage {
    let outcome = schedule::run(plan.clone(), metrics, false);
    assert!(outcome.problems.is_empty(), "{}", tell(plan, metrics, &outcome.problems));
    outcome.coverage
}

/// Fails if anything is wrong in one of these schedules, or if together they do not meet everything that must occur.
#[track_caller]
pub fn keep_every_promise_in(plans: impl Iterator<Item = Plan>, must_occur: &[&str]) {
    let (metrics, mut met) = (Arc::new(Metrics::new()), Coverage::default());
    for plan in plans {
        for (what, times) in keeps_every_promise(plan, &metrics) {
            *met.entry(what).or_default() += times;
        }
    }
    let missing = never_met(&met, must_occur);
    assert!(missing.is_empty(), "never met: {missing:?} in {met:?}");
}

/// What of `must_occur` was not met. A count may also be present and zero.
fn never_met<'a>(met: &Coverage, must_occur: &[&'a str]) -> Vec<&'a str> {
    must_occur.iter().copied().filter(|what| met.get(what).is_none_or(|times| *times == 0)).collect()
}

/// Fails if anything is wrong in this many schedules (or as many as `ALLOD_SCHEDULES` says), with seeds from `ALLOD_SEED`
/// on. If at least `schedules` of them ran, they must together meet everything that must occur.
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
    let missing = never_met(&ran.coverage, must_occur);
    assert!(count < schedules || missing.is_empty(), "never met: {missing:?}");
}

/// Runs a schedule again with its trace, and returns trace, plan and problems as text.
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
        // These metrics count the panics of the actors of this thread only.
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
