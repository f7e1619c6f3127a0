//! Cost of a request in the core: `decide` and `apply` of allocate, release and claim, by size of the network, by how
//! full it is, and by policy. What is flat here does not depend on how many addresses there are, or are held.
//!
//! `cargo bench --bench core`; some two minutes. Each figure is the median over batches, per operation: a batch is timed
//! as a whole and undone outside of the timing, so that the network stays as full as its row says. What is held lies at
//! random places, the worst case for caches and for the space. At the end everything is printed as tables.
//!
//! Measured: see `benches/README.md`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark is no library and may sleep"
)]

#[path = "../../tests/store_contract/records.rs"]
mod records;
mod special;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use allod::core::address::{Address, Cidr};
use allod::core::command::{Command, Wish};
use allod::core::state::Policy;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime as Wall};

use world::{Plan, World, granted, scattered};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Operations that are timed together.
const BATCH_MAX: usize = 256;
const POLICIES: [(&str, Policy); 3] =
    [("lowest", Policy::Lowest), ("random", Policy::Random), ("oldest", Policy::Oldest)];

/// Nanoseconds by table, row and column, as criterion ran them last.
type Cells = BTreeMap<&'static str, Vec<(String, BTreeMap<String, f64>)>>;
static CELLS: Mutex<Cells> = Mutex::new(BTreeMap::new());

fn note(table: &'static str, row: &str, column: &str, seconds: f64) {
    let mut cells = CELLS.lock().expect("one thread");
    let rows = cells.entry(table).or_default();
    let at = rows.iter().position(|(name, _)| name == row).unwrap_or_else(|| {
        rows.push((row.to_owned(), BTreeMap::new()));
        rows.len() - 1
    });
    rows[at].1.insert(column.to_owned(), seconds * 1e9);
}

/// Times batches of `operation` with `undo` outside of the timing; the median of the batches counts.
fn timed<T>(
    iterations: u64,
    world: &mut World,
    batch_max: usize,
    mut prepare: impl FnMut(&mut World, usize) -> Vec<Command>,
    mut operation: impl FnMut(&mut World, &Command) -> T,
    mut undo: impl FnMut(&mut World, Vec<T>),
) -> f64 {
    let mut each: Vec<f64> = Vec::new();
    let mut left = iterations as usize;
    while left > 0 {
        let count = left.min(batch_max);
        let commands = prepare(world, count);
        let mut done = Vec::with_capacity(count);
        let start = Instant::now();
        for command in &commands {
            done.push(operation(world, command));
        }
        each.push(start.elapsed().as_secs_f64() / count as f64);
        world.pass(1);
        undo(world, done);
        left -= count;
    }
    each.sort_by(f64::total_cmp);
    each[each.len() / 2]
}

fn quick<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, Wall> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).nresamples(1_000);
    group.warm_up_time(Duration::from_millis(40)).measurement_time(Duration::from_millis(120));
    group
}

/// Where one cell of a table goes.
struct Place<'a> {
    table: &'static str,
    row: &'a str,
    column: String,
}

fn cell(criterion: &mut Criterion, place: &Place<'_>, mut run: impl FnMut(u64) -> f64) {
    let Place { table, row, column } = place;
    let mut group = quick(criterion, &format!("{table}/{row}"));
    let mut all = Vec::new();
    group.bench_function(column, |bencher| {
        bencher.iter_custom(|iterations| {
            let seconds = run(iterations);
            all.push(seconds);
            Duration::from_secs_f64(seconds * iterations as f64)
        });
    });
    group.finish();
    all.sort_by(f64::total_cmp);
    if let Some(median) = all.get(all.len() / 2) {
        note(table, row, column, *median);
    }
}

/// Allocate, release and claim in one network that is filled to a point.
fn one_network(criterion: &mut Criterion, table: &'static str, row: &str, cidr: &str, prefix_length: u8, count: u128) {
    let subnet: Cidr = cidr.parse().expect("a prefix");
    let taken = scattered(subnet, prefix_length, count);
    let wish =
        Wish { prefix_length: (prefix_length != subnet.family().width()).then_some(prefix_length), ..Wish::default() };
    for (name, policy) in POLICIES {
        let mut world = Plan::one(cidr, policy).load(&taken, prefix_length);
        let free = world.free(subnet, prefix_length, &taken, BATCH_MAX);
        let held: Vec<Address> =
            taken.iter().step_by((taken.len() / BATCH_MAX).max(1)).take(BATCH_MAX).copied().collect();
        let place = |what: &str| Place { table, row, column: format!("{what} {name}") };
        if !free.is_empty() {
            cell(criterion, &place("allocate"), |iterations| {
                timed(
                    iterations,
                    &mut world,
                    free.len(),
                    |world, count| (0..count).map(|_| world.allocate(&wish)).collect(),
                    |world, command| granted(world.ask(command)),
                    |world, done| done.into_iter().for_each(|address| release(world, address)),
                )
            });
        }
        if !free.is_empty() {
            cell(criterion, &place("claim"), |iterations| {
                timed(
                    iterations,
                    &mut world,
                    free.len(),
                    |world, count| free[..count].iter().map(|at| world.claim(*at, prefix_length)).collect(),
                    |world, command| granted(world.ask(command)),
                    |world, done| done.into_iter().for_each(|address| release(world, address)),
                )
            });
        }
        if !held.is_empty() {
            cell(criterion, &place("release"), |iterations| {
                timed(
                    iterations,
                    &mut world,
                    held.len(),
                    |_, count| held[..count].iter().map(|at| World::release(*at)).collect(),
                    |world, command| drop(world.ask(command).expect("it is held")),
                    |world, done| {
                        for address in &held[..done.len()] {
                            let again = world.claim(*address, prefix_length);
                            world.ask(&again).expect("it was held");
                        }
                    },
                )
            });
        }
    }
}

fn release(world: &mut World, address: Address) {
    world.ask(&World::release(address)).expect("it is held");
}

fn singles(criterion: &mut Criterion) {
    for (size, cidr, usable) in [("/24", "10.0.0.0/24", 254), ("/16", "10.0.0.0/16", 65_534)] {
        for (fill, per_mille) in [("0 %", 0), ("50 %", 500), ("99 %", 990), ("99.9 %", 999)] {
            one_network(criterion, "single", &format!("{size}, {fill}"), cidr, 32, usable * per_mille / 1_000);
        }
    }
    for (fill, count) in [("0", 0), ("100 k", 100_000), ("1 M", 1_000_000)] {
        one_network(criterion, "single", &format!("/8, {fill}"), "10.0.0.0/8", 32, count);
        one_network(criterion, "single", &format!("IPv6 /64, {fill}"), "2001:db8::/64", 128, count);
    }
}

fn blocks(criterion: &mut Criterion) {
    for (fill, per_mille) in [("0 %", 0), ("50 %", 500), ("99 %", 990)] {
        one_network(criterion, "blocks", &format!("/28 of /16, {fill}"), "10.0.0.0/16", 28, 4_094 * per_mille / 1_000);
    }
    one_network(criterion, "blocks", "/28 of /8, 100 k", "10.0.0.0/8", 28, 100_000);
    one_network(criterion, "blocks", "/80 of IPv6 /48, 100 k", "2001:db8::/48", 80, 100_000);
}

fn print_tables(_: &mut Criterion) {
    let cells = CELLS.lock().expect("one thread");
    for (table, rows) in cells.iter() {
        let mut columns: Vec<&String> = Vec::new();
        for (_, row) in rows {
            columns.extend(row.keys().filter(|name| !columns.contains(name)).collect::<Vec<_>>());
        }
        println!("\n{table}, microseconds per operation\n");
        let heads: Vec<String> = columns.iter().map(|name| format!(" {name} |")).collect();
        println!("| |{}\n|---|{}", heads.concat(), "---:|".repeat(columns.len()));
        for (name, row) in rows {
            let figure = |column: &&String| row.get(*column).map_or(" |".into(), |ns| format!(" {:.2} |", ns / 1e3));
            println!("| {name} |{}", columns.iter().map(figure).collect::<String>());
        }
    }
}

criterion_group!(
    benches,
    singles,
    blocks,
    special::filters,
    special::several_at_once,
    special::cooling,
    special::churn,
    print_tables
);
criterion_main!(benches);
