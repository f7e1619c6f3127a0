//! What a request may ask beside a free address: filters over many subnets, several addresses at once, addresses that
//! cool; and what a network costs in the long run: churn.

use std::collections::BTreeSet;
use std::time::Instant;

use allod::core::address::{Address, Cidr, Family};
use allod::core::command::{Acquire, AcquireItem, Command, GrantOptions, Wish};
use allod::core::outcome::Outcome;
use allod::core::state::Policy;
use allod::core::types::{Scope, Slot};
use criterion::Criterion;

use crate::world::{Plan, World, all_of, granted, holder, scattered};
use crate::{BATCH_MAX, POLICIES, Place, cell, timed};

const SUBNETS: usize = 200;
const ZONES: [&str; 4] = ["eu-1a", "eu-1b", "eu-1c", "eu-1d"];

/// 200 subnets, each of one zone of four; every fifth is IPv6.
fn many_subnets(policy: Policy) -> Plan {
    let subnet = |at: usize| {
        let cidr = if at % 5 == 4 { format!("2001:db8:0:{at:x}::/64") } else { format!("10.0.{at}.0/24") };
        (cidr.parse().expect("a prefix"), vec![ZONES[at / 5 % ZONES.len()]])
    };
    Plan { subnets: (0..SUBNETS).map(subnet).collect(), ..Plan::one("10.0.0.0/24", policy) }
}

/// Everything in the IPv4 subnets but the last one, which serves the last zone.
fn all_but_the_last(plan: &Plan) -> BTreeSet<Address> {
    let v4: Vec<Cidr> = plan.subnets.iter().map(|subnet| subnet.0).filter(|c| c.family() == Family::V4).collect();
    v4[..v4.len() - 1].iter().flat_map(|cidr| all_of(*cidr)).collect()
}

fn repeated(criterion: &mut Criterion, row: &str, column: &str, world: &mut World, wish: &Wish) {
    cell(criterion, &Place { table: "200 subnets", row, column: column.to_owned() }, |iterations| {
        timed(
            iterations,
            world,
            BATCH_MAX / 2,
            |world, count| (0..count).map(|_| world.allocate(wish)).collect(),
            |world, command| granted(world.ask(command)),
            |world, done| done.into_iter().for_each(|address| drop(world.ask(&World::release(address)))),
        )
    });
}

pub fn filters(criterion: &mut Criterion) {
    let v4 = Wish { family: Some(Family::V4), ..Wish::default() };
    let zoned = Wish { zone: Some(ZONES[3].into()), ..v4.clone() };
    let block = Wish { prefix_length: Some(28), ..v4.clone() };
    let v6 = Wish { family: Some(Family::V6), zone: Some(ZONES[3].into()), ..Wish::default() };
    for (name, policy) in POLICIES {
        let plan = many_subnets(policy);
        for (fill, taken) in [("empty", BTreeSet::new()), ("all but the last full", all_but_the_last(&plan))] {
            let mut world = plan.load(&taken, 32);
            for (wished, wish) in [("IPv4", &v4), ("zone", &zoned), ("block", &block), ("IPv6 in zone", &v6)] {
                if wish.prefix_length.is_none() || taken.is_empty() {
                    repeated(criterion, &format!("{wished}, {fill}"), name, &mut world, wish);
                }
            }
            if !taken.is_empty() {
                // The last one has 16 blocks of which one is cut by the network address: one at a time.
                one_block(criterion, name, &mut world, &block);
                refused(criterion, name, &plan);
            }
        }
    }
}

fn one_block(criterion: &mut Criterion, name: &str, world: &mut World, wish: &Wish) {
    let row = "block, all but the last full";
    cell(criterion, &Place { table: "200 subnets", row, column: name.to_owned() }, |iterations| {
        timed(
            iterations,
            world,
            8,
            |world, count| (0..count).map(|_| world.allocate(wish)).collect(),
            |world, command| granted(world.ask(command)),
            |world, done| done.into_iter().for_each(|address| drop(world.ask(&World::release(address)))),
        )
    });
}

/// A refusal names every pool that was looked at, so it costs what it says.
fn refused(criterion: &mut Criterion, name: &str, plan: &Plan) {
    let taken: BTreeSet<Address> =
        plan.subnets.iter().filter(|s| s.0.family() == Family::V4).flat_map(|s| all_of(s.0)).collect();
    let mut world = plan.load(&taken, 32);
    let wish = Wish { family: Some(Family::V4), ..Wish::default() };
    let place = Place { table: "200 subnets", row: "IPv4, refused for lack of room", column: name.to_owned() };
    cell(criterion, &place, |iterations| {
        timed(
            iterations,
            &mut world,
            BATCH_MAX,
            |world, count| (0..count).map(|_| world.allocate(&wish)).collect(),
            |world, command| drop(world.ask(command).expect_err("it is full")),
            |_, _| (),
        )
    });
}

/// One `ip.acquire` of several addresses: cost for each of them.
pub fn several_at_once(criterion: &mut Criterion) {
    for (name, policy) in POLICIES {
        let cidr: Cidr = "10.0.0.0/16".parse().expect("a prefix");
        let mut world = Plan::one("10.0.0.0/16", policy).load(&scattered(cidr, 32, 32_000), 32);
        for count in [1, 16, 64, 256] {
            let row = format!("{count} at once, /16, 50 %");
            cell(criterion, &Place { table: "several", row: &row, column: name.to_owned() }, |iterations| {
                let one = timed(
                    iterations,
                    &mut world,
                    1,
                    |world, _| vec![acquire(world, count)],
                    |world, command| world.ask(command).expect("there is room"),
                    |world, done| {
                        for outcome in done {
                            let Outcome::Acquired { grants, .. } = outcome else { panic!("an acquire was asked") };
                            for (_, grant) in grants {
                                world.ask(&World::release(grant.view.address)).expect("it is held");
                            }
                        }
                    },
                );
                one / count as f64
            });
        }
    }
}

fn acquire(world: &mut World, count: usize) -> Command {
    let owner = world.new_owner().owner;
    let item = |index: usize| AcquireItem {
        index,
        slot: index.to_string().parse::<Slot>().expect("a slot"),
        address: None,
        wish: Wish::default(),
        optional: false,
    };
    let items = (0..count).map(item).collect();
    let options = GrantOptions::default();
    Command::Acquire(Box::new(Acquire { scope: Scope::default(), owner, items, exact: false, options }))
}

/// Full networks in which addresses cool: taken from the one that cools longest, or refused.
pub fn cooling(criterion: &mut Criterion) {
    for (name, policy) in POLICIES {
        for (row, plan) in [
            ("yielding, full /16", Plan::one("10.0.0.0/16", policy)),
            ("yielding, 200 full subnets", many_subnets(policy)),
        ] {
            let subnets = plan.subnets.iter().filter(|subnet| subnet.0.family() == Family::V4);
            let taken: BTreeSet<Address> = subnets.flat_map(|subnet| all_of(subnet.0)).collect();
            let plan = Plan { cooldown_seconds: 86_400, cooldown_yields: true, ..plan };
            let mut world = plan.load(&taken, 32);
            for address in taken.iter().step_by(2) {
                world.ask(&World::release(*address)).expect("it is held");
            }
            let wish = Wish { family: Some(Family::V4), ..Wish::default() };
            cell(criterion, &Place { table: "cooling", row, column: name.to_owned() }, |iterations| {
                timed(
                    iterations,
                    &mut world,
                    BATCH_MAX,
                    |world, count| (0..count).map(|_| world.allocate(&wish)).collect(),
                    |world, command| granted(world.ask(command)),
                    |world, done| done.into_iter().for_each(|address| drop(world.ask(&World::release(address)))),
                )
            });
        }
        let row = "one slot let 16 k addresses go";
        let mut world = one_slot_lets_go(policy);
        cell(criterion, &Place { table: "cooling", row, column: name.to_owned() }, |iterations| {
            timed(
                iterations,
                &mut world,
                BATCH_MAX,
                |world, count| (0..count).map(|_| world.allocate(&Wish::default())).collect(),
                |world, command| granted(world.ask(command)),
                |world, done| done.into_iter().for_each(|address| drop(world.ask(&World::release(address)))),
            )
        });
        let row = "and takes one again";
        cell(criterion, &Place { table: "cooling", row, column: name.to_owned() }, |iterations| {
            timed(
                iterations,
                &mut world,
                1,
                |_, _| vec![of_the_slot()],
                |world, command| granted(world.ask(command)),
                |world, done| done.into_iter().for_each(|address| drop(world.ask(&World::release(address)))),
            )
        });
    }
}

fn of_the_slot() -> Command {
    let ask = allod::core::command::Allocate {
        holder: holder(1, 's'),
        wish: Wish::default(),
        options: GrantOptions::default(),
    };
    Command::Allocate(Box::new(ask))
}

/// A script that claims and releases one address after the other under one name.
fn one_slot_lets_go(policy: Policy) -> World {
    let plan = Plan { cooldown_seconds: 86_400, ..Plan::one("10.0.0.0/8", policy) };
    let mut world = plan.load(&BTreeSet::new(), 32);
    for address in all_of("10.0.0.0/18".parse().expect("a prefix")) {
        let mut claim = world.claim(address, 32);
        if let Command::Claim(ask) = &mut claim {
            ask.holder = holder(1, 's');
        }
        world.ask(&claim).expect("it is free");
        world.ask(&World::release(address)).expect("it is held");
        world.pass(1);
    }
    world
}

/// Release one at random, allocate one: a million times. What it costs at the beginning, at the end, and when it is slow
/// (the very worst is the machine's, which others use too).
pub fn churn(_: &mut Criterion) {
    const TURNS: usize = 400_000;
    const SLICE: usize = 40_000;
    println!("\nchurn: {TURNS} times release and allocate, microseconds a pair\n");
    println!(
        "| | first tenth | last tenth | p99.9 | p99.99 | bytes of the space, begin → end |\n|---|---:|---:|---:|---:|"
    );
    for (row, cidr, length, count, cooldown) in [
        ("/16, 99 %", "10.0.0.0/16", 32, 64_879, 0),
        ("/16, 50 %, 10 000 cooling", "10.0.0.0/16", 32, 32_000, 10),
        ("/8, 100 k", "10.0.0.0/8", 32, 100_000, 0),
        ("IPv6 /64, 100 k", "2001:db8::/64", 128, 100_000, 0),
        ("/28 of /16, 90 %", "10.0.0.0/16", 28, 3_684, 0),
    ] {
        for (name, policy) in POLICIES {
            let taken = scattered(cidr.parse().expect("a prefix"), length, count);
            let plan = Plan { cooldown_seconds: cooldown, ..Plan::one(cidr, policy) };
            let mut world = plan.load(&taken, length);
            let wish = Wish { prefix_length: matches!(length, 28).then_some(28), ..Wish::default() };
            let mut held: Vec<Address> = taken.into_iter().collect();
            let before = world.network.footprint().space_bytes;
            let (mut slices, mut each) = (Vec::new(), Vec::with_capacity(TURNS));
            for _ in 0..TURNS / SLICE {
                let mut sum = 0f64;
                for _ in 0..SLICE {
                    let at = world.random.next() as usize % held.len();
                    let (release, allocate) = (World::release(held[at]), world.allocate(&wish));
                    let start = Instant::now();
                    world.ask(&release).expect("it is held");
                    if cooldown > 0 && world.network.next_due().is_some_and(|due| due <= world.time()) {
                        world.ask(&Command::Expire).expect("it expires");
                    }
                    held[at] = granted(world.ask(&allocate));
                    let took = start.elapsed().as_secs_f64();
                    sum += took;
                    each.push(took);
                    world.pass(1);
                }
                slices.push(sum / SLICE as f64 * 1e6);
            }
            let (first, last) = (slices[0], slices[slices.len() - 1]);
            let bytes = world.network.footprint().space_bytes;
            each.sort_by(f64::total_cmp);
            let slow = |of: usize| each[TURNS - TURNS / of] * 1e6;
            let (slow, slower) = (slow(1_000), slow(10_000));
            println!("| {row}, {name} | {first:.2} | {last:.2} | {slow:.1} | {slower:.1} | {before} → {bytes} |");
        }
    }
}
