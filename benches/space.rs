//! Cost of one operation on a `Space`, by size of the pool and share of it that is taken at random.
//!
//! Every figure is per operation and taken over batches: a batch is timed as a whole, then undone
//! outside of the timing, so that the pool stays as full as the name of the row says. Numbers are
//! random over the whole pool, which is the worst case for caches.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark is no library and may sleep"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use allod::core::space::Space;
use criterion::{Criterion, criterion_group, criterion_main};

const BATCH_MAX: usize = 4_096;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

struct Pool {
    name: &'static str,
    space: Space,
    /// Some taken and some free numbers, each at most once, in random order.
    taken: Vec<u128>,
    free: Vec<u128>,
}

fn pool(name: &'static str, bits: u32, taken_per_mille: u64) -> Pool {
    let first = if bits > 32 { 0x2001_0db8 << 96 } else { 10 << 24 };
    let mut space = Space::new(first, first + ((1u128 << bits) - 1));
    let mut random = Random(7);
    if bits > 32 {
        for _ in 0..taken_per_mille * 1_000 {
            let number = first + u128::from(random.next());
            space.occupy(number, number);
        }
    } else {
        for number in first..=space.last() {
            // A thousandth of 2^8 is less than one number: the last one stays free.
            if random.next() % 1_000 < taken_per_mille && number != space.last() {
                space.occupy(number, number);
            }
        }
    }
    let size = space.last() - first + 1;
    let free = sample(space.free(), &mut random, |index| space.nth_free(index));
    let mut inverse = Space::new(first, space.last());
    space.runs(0).filter(|run| !run.2).for_each(|run| inverse.occupy(run.0, run.1));
    let taken = sample(size - space.free(), &mut random, |index| inverse.nth_free(index));
    Pool { name, space, taken, free }
}

fn sample(count: u128, random: &mut Random, nth: impl Fn(u128) -> Option<u128>) -> Vec<u128> {
    if count == 0 {
        return Vec::new();
    }
    let wanted = BATCH_MAX.min((count as usize).max(1));
    let mut seen = std::collections::BTreeSet::new();
    let mut numbers = Vec::new();
    for _ in 0..wanted * 4 {
        let wide = u128::from(random.next()) << 64 | u128::from(random.next());
        let number = nth(wide % count).expect("the index is below the count");
        if numbers.len() < wanted && seen.insert(number) {
            numbers.push(number);
        }
    }
    numbers
}

/// Times `operation` on each number, in batches, and calls `undo` after each batch. The median of
/// the batches counts: one that was interrupted says nothing about the operation.
fn timed(
    iterations: u64,
    space: &mut Space,
    numbers: &[u128],
    mut operation: impl FnMut(&mut Space, u128) -> u128,
    undo: impl Fn(&mut Space, u128),
) -> Duration {
    let mut each: Vec<f64> = Vec::new();
    let mut left = iterations as usize;
    let mut done = Vec::with_capacity(numbers.len());
    while left > 0 {
        let batch = &numbers[..left.min(numbers.len())];
        let start = Instant::now();
        for &number in batch {
            done.push(operation(space, black_box(number)));
        }
        each.push(start.elapsed().as_secs_f64() / batch.len() as f64);
        done.drain(..).for_each(|number| undo(space, number));
        left -= batch.len();
    }
    each.sort_by(f64::total_cmp);
    Duration::from_secs_f64(each[each.len() / 2] * iterations as f64)
}

fn benchmark(criterion: &mut Criterion) {
    let pools = [
        ("2^8, 0 %", 8, 0),
        ("2^8, 50 %", 8, 500),
        ("2^8, 99.9 %", 8, 999),
        ("2^16, 0 %", 16, 0),
        ("2^16, 50 %", 16, 500),
        ("2^16, 99.9 %", 16, 999),
        ("2^24, 0 %", 24, 0),
        ("2^24, 50 %", 24, 500),
        ("2^24, 99.9 %", 24, 999),
        ("2^64, 0", 64, 0),
        ("2^64, 1 M random", 64, 1_000),
    ];
    for (name, bits, per_mille) in pools {
        one_pool(criterion, pool(name, bits, per_mille));
    }
}

fn one_pool(criterion: &mut Criterion, pool: Pool) {
    let Pool { name, mut space, taken, free } = pool;
    println!("{name}: {} free, {} bytes", space.free(), space.memory_bytes());
    let first = space.first();
    let count = space.free();
    let mut group = criterion.benchmark_group(name);
    group.sample_size(15);
    group.warm_up_time(Duration::from_millis(100));
    group.measurement_time(Duration::from_millis(300));
    let occupy = |space: &mut Space, number: u128| space.occupy(number, number);
    let vacate = |space: &mut Space, number: u128| space.vacate(number, number);
    let nothing = |_: &mut Space, _: u128| ();
    let mut run =
        |operation: &str, numbers: &[u128], go: &dyn Fn(&mut Space, u128) -> u128, undo: &dyn Fn(&mut Space, u128)| {
            if !numbers.is_empty() {
                group.bench_function(operation, |bencher| {
                    bencher.iter_custom(|iterations| timed(iterations, &mut space, numbers, go, undo));
                });
            }
        };
    let allocate = |space: &mut Space, from: u128| {
        let number = space.lowest(0, from).or_else(|| space.lowest(0, 0)).expect("the batch fits");
        space.occupy(number, number);
        number
    };
    let all: Vec<u128> = free.iter().chain(&taken).copied().collect();
    let far = &all[..free.len()];
    run("allocate lowest", &free, &|space, _| allocate(space, first), &vacate);
    run("allocate after random", far, &|space, from| allocate(space, from), &vacate);
    run(
        "release",
        &taken,
        &|space, number| {
            space.vacate(number, number);
            number
        },
        &occupy,
    );
    run(
        "claim",
        &free,
        &|space, number| {
            if space.is_free(number, number) {
                space.occupy(number, number);
            }
            number
        },
        &vacate,
    );
    run("is_free", &all, &|space, number| u128::from(space.is_free(number, number)), &nothing);
    for order in [4, 8] {
        run(&format!("lowest block {order}"), &all, &|space, from| space.lowest(order, from).unwrap_or(0), &nothing);
    }
    run(
        "nth_free",
        &all,
        &|space, number| space.nth_free(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_9e37) % count).unwrap_or(0),
        &nothing,
    );
    run("free_in", &all, &|space, number| space.free_in(first, number), &nothing);
    group.finish();
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
