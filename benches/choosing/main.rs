//! Cost of choosing an address, of which the goal is a median below 100 nanoseconds: by policy, size and fill; for blocks of each
//! length; with filters over 100 subnets; beside a million that cool.
//!
//! `cargo bench --bench choosing`; some four minutes. How it is timed: `measure`. What fills a pool is reserved there, which is
//! the same for the space of the pool and leaves everything else of a request as it is in an empty network.
//!
//! Measured: see `benches/README.md`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark is no library and may sleep"
)]

mod cooling;
mod measure;
#[path = "../../tests/store_contract/records.rs"]
mod records;
#[path = "../core/world.rs"]
#[allow(dead_code, reason = "the benchmark of the core asks for more")]
mod world;

use std::collections::BTreeSet;

use allod::core::address::{Address, Cidr, Family, Range};
use allod::core::command::Wish;
use allod::core::state::Policy;

use measure::{After, Figure, measured};
use world::{Plan, Random, World, granted};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const GOAL_NANOSECONDS: f64 = 100.0;
/// Shares of a pool that are taken, in thousandths.
const FILLS: [u64; 3] = [0, 500, 999];
/// What a network of the policy `oldest` remembers at most.
const REMEMBERED_MAX: usize = allod::limits::OLDEST_REMEMBERED_MAX;
const COLUMNS: [(&str, Policy, bool); 4] = [
    ("lowest", Policy::Lowest, false),
    ("random", Policy::Random, false),
    ("oldest, never used", Policy::Oldest, false),
    ("oldest, freed", Policy::Oldest, true),
];

/// What the tables of a run come to.
struct Tally {
    /// Cells with this in their names are measured.
    only: String,
    met: usize,
    missed: Vec<(f64, String)>,
    rests: Vec<f64>,
}

impl Tally {
    fn wants(&self, cell: &str) -> bool {
        cell.contains(&self.only)
    }

    fn note(&mut self, what: String, figure: Figure) -> f64 {
        if figure.choice < GOAL_NANOSECONDS {
            self.met += 1;
        } else {
            self.missed.push((figure.choice, what));
        }
        self.rests.push(figure.rest);
        figure.choice
    }
}

fn main() {
    // Cargo asks a benchmark without a harness for its tests, too.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut tally = Tally { only, met: 0, missed: Vec::new(), rests: Vec::new() };
    sizes(&mut tally);
    blocks(&mut tally);
    filters(&mut tally);
    cooling::table(&mut tally);
    tally.rests.sort_by(f64::total_cmp);
    tally.missed.sort_by(|one, other| other.0.total_cmp(&one.0));
    let (Some(least), Some(most)) = (tally.rests.first(), tally.rests.last()) else { return };
    println!("\n{} choices below {GOAL_NANOSECONDS} ns, {} not:\n", tally.met, tally.missed.len());
    for (choice, what) in &tally.missed {
        println!("- {choice:.0} ns: {what}");
    }
    println!("\nall of a decision but the choice: {least:.0} to {most:.0} ns");
}

fn sizes(tally: &mut Tally) {
    heads("single addresses");
    for (name, cidr) in [("2^8", "10.0.0.0/24"), ("2^16", "10.0.0.0/16"), ("2^24", "10.0.0.0/8")] {
        row(tally, name, (cidr, 32), &FILLS, |fill| taken_blocks(cidr, 32, fill));
    }
    let v6 = "2001:db8::/64";
    row(tally, "2^64, in a million runs", (v6, 128), &FILLS, |fill| a_million_runs(v6, fill));
    row(tally, "2^64, a million at random", (v6, 128), &FILLS[..1], |_| a_million(v6));
}

fn blocks(tally: &mut Tally) {
    heads("blocks of each length");
    for length in (20..=31).rev() {
        let cidr = "10.0.0.0/8";
        row(tally, &format!("/{length} of {cidr}"), (cidr, length), &FILLS, |fill| taken_blocks(cidr, length, fill));
    }
    for length in [127, 120, 112, 96, 80, 64] {
        let cidr = format!("2001:db8::/{}", length - 16);
        row(tally, &format!("/{length} of {cidr}"), (&cidr, length), &FILLS, |fill| taken_blocks(&cidr, length, fill));
    }
}

fn heads(table: &str) {
    println!("\n{table}: nanoseconds for a choice, at 0 · 50 · 99.9 % full\n");
    println!("| |{}", COLUMNS.map(|(name, ..)| format!(" {name} |")).concat());
    println!("|---|{}", "---:|".repeat(COLUMNS.len()));
}

/// One row: a pool, filled so and so.
fn row(
    tally: &mut Tally,
    name: &str,
    (cidr, prefix_length): (&str, u8),
    fills: &[u64],
    taken_at: impl Fn(u64) -> Vec<Range>,
) {
    let cidr_parsed: Cidr = cidr.parse().expect("a prefix");
    let blocks = 1u128 << (prefix_length - cidr_parsed.length()).min(127);
    let wish = Wish {
        prefix_length: (prefix_length != cidr_parsed.family().width()).then_some(prefix_length),
        ..Wish::default()
    };
    let plain = Plan::one("10.0.0.0/24", Policy::Lowest);
    let mut cells: [Vec<String>; COLUMNS.len()] = Default::default();
    for &fill in fills {
        let what = |column: &str| format!("{name}, {} % full, {column}", fill as f64 / 10.0);
        if !COLUMNS.iter().any(|(column, ..)| tally.wants(&what(column))) {
            continue;
        }
        let taken = taken_at(fill);
        let size = cidr_parsed.family().width() - prefix_length;
        let sum: u128 = taken.iter().map(|range| range.last().bits() - range.first().bits() + 1).sum();
        let free = blocks - (sum >> size);
        for ((column, policy, freed), cell) in COLUMNS.into_iter().zip(&mut cells) {
            if !tally.wants(&what(column)) || freed && free > REMEMBERED_MAX as u128 {
                cell.push("–".to_owned());
                continue;
            }
            let mut world = Plan { reserved: taken.clone(), ..Plan::one(cidr, policy) }.load(&BTreeSet::new(), 32);
            if freed {
                age(&mut world, &wish);
            }
            // Each draw goes somewhere else by itself.
            let keep = After::Keep((free / 4).clamp(1, 4_096) as usize);
            let after = if policy == Policy::Random { After::Leave } else { keep };
            let figure = measured(&world, &plain, after, |world| world.allocate(&wish));
            cell.push(format!("{:.0}", tally.note(what(column), figure)));
        }
    }
    if cells.iter().any(|cell| !cell.is_empty()) {
        println!("| {name} |{}", cells.map(|cell| format!(" {} |", cell.join(" · "))).concat());
    }
}

/// Takes everything and lets it go again, in no order.
fn age(world: &mut World, wish: &Wish) {
    let mut all: Vec<Address> = Vec::new();
    loop {
        let command = world.allocate(wish);
        let Ok(outcome) = world.ask(&command) else { break };
        all.push(granted(Ok(outcome)));
    }
    let mut random = Random(11);
    for at in (1..all.len()).rev() {
        all.swap(at, random.next() as usize % (at + 1));
    }
    for address in all {
        world.ask(&World::release(address)).expect("it is held");
        world.pass(1);
    }
}

/// Blocks of a length, so many of a thousand, at random; never all.
fn taken_blocks(cidr: &str, prefix_length: u8, per_mille: u64) -> Vec<Range> {
    let cidr: Cidr = cidr.parse().expect("a prefix");
    let (family, first) = (cidr.family(), cidr.base().bits());
    let size = family.width() - prefix_length;
    let blocks = 1u128 << (prefix_length - cidr.length());
    let mut random = Random(blocks as u64 ^ per_mille);
    let mut runs: Vec<(u128, u128)> = Vec::new();
    for block in 0..blocks {
        // A thousandth of few blocks is less than one: one stays free, and not the last, of which an address is unusable.
        if random.next() % 1_000 >= per_mille || block == blocks - 2 {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.1 + 1 == block => run.1 = block,
            _ => runs.push((block, block)),
        }
    }
    let range =
        |(from, to): (u128, u128)| Range::of_bits(family, first + (from << size), first + (((to + 1) << size) - 1));
    runs.into_iter().map(range).collect()
}

/// So much of a pool of 2^64 in some million runs.
fn a_million_runs(cidr: &str, per_mille: u64) -> Vec<Range> {
    let first = cidr.parse::<Cidr>().expect("a prefix").base().bits();
    let part = 1u64 << 44;
    let length = part / 1_000 * per_mille;
    let mut random = Random(per_mille);
    let run = |at: u64| {
        let from = first + u128::from(at * part + random.next() % (part - length));
        Range::of_bits(Family::V6, from, from + u128::from(length) - 1)
    };
    if length == 0 { Vec::new() } else { (0..1 << 20).map(run).collect() }
}

/// A million addresses of a pool of 2^64.
fn a_million(cidr: &str) -> Vec<Range> {
    let taken = world::scattered(cidr.parse().expect("a prefix"), 128, 1_000_000);
    taken.into_iter().map(Range::single).collect()
}

/// Wishes with filters. Ninety-nine subnets of IPv4, of four zones, and one of IPv6 in a zone of its own: the last, and the only
/// one that a wish for either admits. Or a hundred, alternately of both families and of two zones, of which the last two alone
/// have room.
fn filters(tally: &mut Tally) {
    const ZONES: [&str; 4] = ["eu-1a", "eu-1b", "eu-1c", "eu-1d"];
    let v4 = |at: usize| format!("10.0.{at}.0/24").parse::<Cidr>().expect("a prefix");
    let v6 = |at: usize| format!("2001:db8:0:{at:x}::/64").parse::<Cidr>().expect("a prefix");
    let one_matches: Vec<_> =
        (0..99).map(|at| (v4(at), vec![ZONES[at % 4]])).chain([(v6(99), vec!["eu-2a"])]).collect();
    let many_match: Vec<_> =
        (0..100).map(|at| (if at % 2 == 0 { v4(at) } else { v6(at) }, vec![ZONES[at / 2 % 2]])).collect();
    let family = |family| Wish { family: Some(family), ..Wish::default() };
    let zone = |zone: &str| Wish { zone: Some(zone.into()), ..Wish::default() };
    let both = |of: Family, zone: &str| Wish { family: Some(of), zone: Some(zone.into()), ..Wish::default() };
    let full: Vec<Range> = many_match[..96].iter().map(|(cidr, _)| cidr.range()).collect();
    // To find the subnet of what was given takes longer among a hundred.
    let plain = Plan { subnets: many_match.clone(), ..Plan::one("10.0.0.0/24", Policy::Lowest) };
    println!("\nfilters, 100 subnets: nanoseconds for a choice\n");
    println!("| | lowest | random | oldest |\n|---|---:|---:|---:|");
    for (name, subnets, reserved, wish) in [
        ("filters: none", &many_match, &[][..], Wish::default()),
        ("filters: family", &many_match, &[], family(Family::V6)),
        ("filters: zone", &many_match, &[], zone(ZONES[1])),
        ("filters: both", &many_match, &[], both(Family::V6, ZONES[1])),
        ("filters: family, only the last matches", &one_matches, &[], family(Family::V6)),
        ("filters: zone, only the last matches", &one_matches, &[], zone("eu-2a")),
        ("filters: both, only the last matches", &one_matches, &[], both(Family::V6, "eu-2a")),
        ("filters: none, all but the last four full", &many_match, &full, Wish::default()),
        ("filters: family, all but the last two full", &many_match, &full, family(Family::V6)),
        ("filters: zone, all but the last two full", &many_match, &full, zone(ZONES[1])),
        ("filters: both, all but the last full", &many_match, &full, both(Family::V6, ZONES[1])),
    ] {
        let mut cells = String::new();
        for (policy_name, policy) in
            [("lowest", Policy::Lowest), ("random", Policy::Random), ("oldest", Policy::Oldest)]
        {
            let what = format!("{name}, {policy_name}");
            if !tally.wants(&what) {
                continue;
            }
            let plan =
                Plan { subnets: subnets.clone(), reserved: reserved.to_vec(), ..Plan::one("10.0.0.0/24", policy) };
            let world = plan.load(&BTreeSet::new(), 32);
            let figure = measured(&world, &plain, After::Keep(100), |world| world.allocate(&wish));
            cells += &format!(" {:.0} |", tally.note(what, figure));
        }
        if !cells.is_empty() {
            println!("| {name} |{cells}");
        }
    }
}
