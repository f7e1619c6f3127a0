//! Choices beside a million addresses that cool.

use std::sync::Arc;

use allod::core::address::{Address, Cidr, Family};
use allod::core::command::{Allocate, Command, GrantOptions, Wish};
use allod::core::state::{Entry, Policy, Released};
use allod::core::types::{Generation, ShardTime, SlotKey};

use crate::Tally;
use crate::measure::{After, measured};
use crate::world::{Plan, World, all_of, holder, scattered};

const COUNT: usize = 1_000_000;
/// Longer than a million milliseconds.
const COOLDOWN_SECONDS: u64 = 86_400;

/// Each let go by somebody, one in a millisecond.
fn cooling(addresses: impl IntoIterator<Item = Address>, last: impl Fn(u64) -> SlotKey) -> Vec<(Address, Entry)> {
    let entry = |(at, address): (usize, Address)| {
        let released = Released {
            prefix_length: address.family().width(),
            last: last(at as u64),
            owner_uid: None,
            generation: Generation(at as u64 + 1),
            released_at: ShardTime(at as u64),
        };
        (address, Entry::Released(Arc::new(released)))
    };
    addresses.into_iter().enumerate().map(entry).collect()
}

/// What it is called; whether what cools yields; who let it go; what is asked.
type Row<'a> = (&'a str, bool, &'a dyn Fn(u64) -> SlotKey, &'a dyn Fn(&mut World) -> Command);

/// The slot that let a million go.
fn the_one() -> SlotKey {
    holder(1, 's')
}

fn asks(holder: SlotKey, wish: Wish) -> Command {
    Command::Allocate(Box::new(Allocate { holder, wish, options: GrantOptions::default() }))
}

pub fn table(tally: &mut Tally) {
    println!("\na million cool: nanoseconds for a choice, and for the whole request\n");
    println!("| | lowest | random | oldest |\n|---|---:|---:|---:|");
    let v4: Cidr = "10.0.0.0/8".parse().expect("a prefix");
    let v6: Cidr = "2001:db8::/64".parse().expect("a prefix");
    let at_random: Vec<Address> = scattered(v4, 32, COUNT as u128).into_iter().collect();
    let all: Vec<Address> = all_of("10.0.0.0/12".parse().expect("a prefix")).into_iter().take(COUNT).collect();
    let others = |at: u64| holder(at, 'c');
    let one = |_: u64| the_one();
    let other_family = || Wish { family: Some(Family::V6), ..Wish::default() };
    let rows: [Row<'_>; 5] = [
        ("cooling: of a million slots", false, &others, &|world| world.allocate(&Wish::default())),
        ("cooling: of one slot, another one asks", false, &one, &|world| world.allocate(&Wish::default())),
        ("cooling: of one slot, which asks", false, &one, &|_| asks(the_one(), Wish::default())),
        ("cooling: of one slot, which asks for another family", false, &one, &|_| asks(the_one(), other_family())),
        ("cooling: of a million slots, full, and yields", true, &others, &|world| world.allocate(&Wish::default())),
    ];
    let plain = Plan::one("10.0.0.0/24", Policy::Lowest);
    for (name, yields, last, ask) in rows {
        let mut cells = String::new();
        for (policy_name, policy) in
            [("lowest", Policy::Lowest), ("random", Policy::Random), ("oldest", Policy::Oldest)]
        {
            let what = format!("a million {name}, {policy_name}");
            if !tally.wants(&what) {
                continue;
            }
            let mut plan = Plan::one(if yields { "10.0.0.0/12" } else { "10.0.0.0/8" }, policy);
            (plan.cooldown_seconds, plan.cooldown_yields) = (COOLDOWN_SECONDS, yields);
            if yields {
                // What is more than a million.
                let rest = allod::core::address::Range::new(all[COUNT - 1], plan.subnets[0].0.last())
                    .expect("it ends the subnet");
                let from = Address::new(Family::V4, rest.first().bits() + 1);
                plan.reserved = allod::core::address::Range::new(from, rest.last()).into_iter().collect();
            } else {
                plan.subnets.push((v6, Vec::new()));
            }
            let addresses = if yields { &all } else { &at_random };
            let mut world = plan.load_entries(cooling(addresses.iter().copied(), last));
            world.pass(COUNT as u64);
            // The slot would get back what it was given here.
            let after = if name.ends_with("another family") { After::Leave } else { After::Release };
            let figure = measured(&world, &plain, after, ask);
            let choice = tally.note(what, figure);
            cells += &format!(" {choice:.0}, {:.0} |", figure.request);
        }
        if !cells.is_empty() {
            println!("| {name} |{cells}");
        }
    }
}
