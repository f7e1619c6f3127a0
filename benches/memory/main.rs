//! Bytes of an actor's memory for each of a million reservations, and what takes them.
//!
//! `cargo bench --bench memory`; some half a minute. Everything on the heap is counted as it was asked for; what an allocator
//! rounds up comes on top. The *record* is what a store writes for a reservation (`store::codec`), without its key; *over* is what
//! is there beyond that, of which the goal is at most 24 bytes. The *object* is the reservation as the core has it, with all that
//! it points to; *space* the free space of the pools; *indexes* all else: records by number, by address, owner, slot, scope and
//! time, and what `oldest` remembers.
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
#[path = "../core/world.rs"]
#[allow(dead_code, reason = "the benchmark of the core asks for more")]
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;

use allod::core::address::{Address, Cidr};
use allod::core::command::{Command, GrantOptions, Wish};
use allod::core::state::{Entry, Policy, Reservation, State};
use allod::core::types::{Labels, Slot};
use allod::store::codec::{Format, encode_state};
use cap::Cap;

use world::{Plan, World, granted};

#[global_allocator]
static ALLOCATOR: Cap<mimalloc::MiMalloc> = Cap::new(mimalloc::MiMalloc, usize::MAX);

const COUNT: usize = 1_000_000;
const GOAL_BYTES: f64 = 24.0;
/// Objects whose size is taken by copying them.
const COPIED: usize = 10_000;
/// Let go at random after they were granted: more than `oldest` remembers.
const RELEASED: usize = 100_000;

struct Case {
    name: &'static str,
    cidr: &'static str,
    policy: Policy,
    /// A slot of this name, in place of the default one.
    slot: Option<&'static str>,
    options: GrantOptions,
    /// More is granted, and let go.
    with_history: bool,
}

impl Case {
    fn plain(name: &'static str, cidr: &'static str, policy: Policy) -> Self {
        Self { name, cidr, policy, slot: None, options: GrantOptions::default(), with_history: false }
    }
}

fn main() {
    // Cargo asks a benchmark without a harness for its tests, too.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let label = |number: u8| (format!("label-{number:02}").into(), format!("a-value-of-16-b{number}").into());
    let labels: Labels = (1..=3).map(label).collect();
    const V4: &str = "10.0.0.0/8";
    const V6: &str = "2001:db8::/64";
    let cases = [
        Case::plain("typical: IPv4, in order", V4, Policy::Lowest),
        Case::plain("IPv4, at random places", V4, Policy::Random),
        Case { slot: Some("eth0"), ..Case::plain("IPv4, a slot with a name", V4, Policy::Lowest) },
        Case::plain("IPv6, in order", V6, Policy::Lowest),
        Case::plain("sparse IPv6: a /64, at random places", V6, Policy::Random),
        Case { with_history: true, ..Case::plain("`oldest`, after 100 000 releases", V4, Policy::Oldest) },
        Case {
            options: GrantOptions { labels: Some(labels), ..GrantOptions::default() },
            ..Case::plain("three labels of 8 and 16 bytes", V4, Policy::Lowest)
        },
        Case {
            options: GrantOptions { ttl_seconds: Some(86_400), ..GrantOptions::default() },
            ..Case::plain("a lease", V4, Policy::Lowest)
        },
    ];
    println!("\nbytes for each of {COUNT} reservations, owners of 24 bytes, scopes of 12\n");
    println!("| | all | record | over | object | indexes | space | wanted over | met |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---|");
    for case in &cases {
        println!("{}", row(case));
    }
}

fn row(case: &Case) -> String {
    let before = ALLOCATOR.allocated();
    let mut world = Plan::one(case.cidr, case.policy).load(&BTreeSet::new(), 32);
    fill(&mut world, case);
    let each = |bytes: f64| bytes / COUNT as f64;
    let all = each((ALLOCATOR.allocated() - before) as f64);
    let space = each(world.network.footprint().space_bytes as f64);
    assert_eq!(world.network.entries(), COUNT);
    let (record, object) = record_and_object(&world, case.cidr.parse().expect("a prefix"));
    let (over, indexes) = (all - record, all - object - space);
    let met = if over <= GOAL_BYTES { "yes" } else { "no" };
    format!(
        "| {} | {all:.0} | {record:.0} | {over:.0} | {object:.0} | {indexes:.0} | {space:.1} | ≤ {GOAL_BYTES:.0} | {met} |",
        case.name
    )
}

fn fill(world: &mut World, case: &Case) {
    let more = if case.with_history { RELEASED } else { 0 };
    let mut held: Vec<Address> = Vec::new();
    for at in 0..COUNT + more {
        let mut command = world.allocate(&Wish::default());
        if let Command::Allocate(ask) = &mut command {
            ask.options = case.options.clone();
            ask.holder.slot = case.slot.map_or_else(Slot::default, |slot| slot.parse().expect("a slot"));
        }
        let address = granted(world.ask(&command));
        if case.with_history {
            held.push(address);
        }
        // A thousand in a millisecond.
        world.pass(u64::from(at % 1_000 == 0));
    }
    for _ in 0..more {
        let at = world.random.next() as usize % held.len();
        world.ask(&World::release(held.swap_remove(at))).expect("it is held");
        world.pass(1);
    }
}

/// Mean bytes of a record, and of the object of a reservation: of some that are copied.
fn record_and_object(world: &World, cidr: Cidr) -> (f64, f64) {
    let entries = world.network.entries_in(cidr.range());
    let mut bytes = Vec::new();
    let mut records = 0;
    for (_, entry) in &entries {
        bytes.clear();
        encode_state(&State::Entry(entry.clone()), Format::NEWEST, &mut bytes).expect("it can be written");
        records += bytes.len();
    }
    let some = entries.iter().filter_map(|(_, entry)| entry.held()).step_by(entries.len() / COPIED);
    let mut copies: Vec<Entry> = Vec::with_capacity(entries.len());
    let before = ALLOCATOR.allocated();
    copies.extend(some.map(|held| Entry::Held(Arc::new(Reservation::clone(held)))));
    let objects = ALLOCATOR.allocated() - before;
    (records as f64 / entries.len() as f64, objects as f64 / copies.len() as f64)
}
