//! Facts about networks that are loaded from what a store has.

use std::num::NonZeroU64;

use super::*;

type Listed = Vec<(Address, Entry)>;

fn entries_of(network: &Network) -> Listed {
    let all = network.holdings.ascending(std::ops::Bound::Unbounded);
    all.map(|(address, entry)| (address, entry.clone())).collect()
}

fn load(net: &Net, entries: Listed) -> Result<Network, Box<Misfit>> {
    let (config, subnets) = (Arc::clone(&net.network.config), net.network.subnets.clone());
    Network::load(config, subnets, entries, Generation(0), ShardTime(0))
}

/// A network with every kind of entry that may lie side by side or apart: single addresses, blocks, cooling, declined and
/// reserved addresses, owners with several slots; in both families and for all policies.
fn full(policy: Policy, yields: bool) -> Net {
    let mut inner = subnet("10.0.0.0/24", 0);
    inner.reserved = vec![ReservedRange {
        range: "10.0.0.20-10.0.0.30".parse().unwrap(),
        note: Default::default(),
        reserved_for: None,
    }];
    let mut draining = subnet("10.0.2.0/28", 2);
    draining.pools[0].draining = true;
    let change = |config: &mut NetworkConfig| {
        (config.policy, config.cooldown_seconds, config.cooldown_yields) = (policy, 60, yields);
    };
    let mut net = Net::with(change, vec![inner, subnet("10.0.1.0/24", 1), draining, subnet("2001:db8::/64", 3)]);
    for n in 0..60 {
        net.allocate(&format!("vm/{n}"));
        net.allocate(&format!("many#{n}"));
    }
    net.block("router", 29).unwrap();
    net.claim("claimed", "10.0.0.25", |claim| claim.force = true).unwrap();
    net.claim("claimed#1", "2001:db8::77", |_| ()).unwrap();
    for n in (0..60).step_by(3) {
        net.release(&format!("vm/{n}"));
        net.release(&format!("many#{n}"));
    }
    net
}

#[test]
fn a_loaded_network_is_as_the_one_that_came_to_be_step_by_step() {
    for (policy, yields) in
        [(Policy::Lowest, false), (Policy::Lowest, true), (Policy::Random, true), (Policy::Oldest, false)]
    {
        let mut net = full(policy, yields);
        let loaded = load(&net, entries_of(&net.network)).unwrap();
        loaded.check().unwrap();
        assert_eq!(loaded.counts(), net.network.counts());
        assert_eq!(entries_of(&loaded), entries_of(&net.network));
        assert!(loaded.next_generation() >= net.network.next_generation());
        for (address, entry) in entries_of(&net.network) {
            if let Entry::Held(held) = &entry {
                assert_eq!(loaded.holdings.slot(&held.holder).map(|found| found.0), Some(address));
            }
        }
        // What each would grant next, until one of the subnets is exhausted.
        let mut other = Net { network: loaded, now: net.now, draws: net.draws };
        if policy != Policy::Oldest {
            for n in 0..40 {
                let owner = format!("later/{n}");
                assert_eq!(net.allocate(&owner), other.allocate(&owner), "{policy:?}, yields: {yields}");
            }
        }
    }
}

#[test]
fn many_entries_are_each_found_by_address_slot_and_owner() {
    let mut net = Net::new(&["10.0.0.0/16"]);
    let view = net.ask(wish("vm/0")).unwrap().view;
    let entries = (0..20_000u32).map(|n| {
        let mut held = Reservation::clone(&view.reservation);
        held.holder = holder(&format!("vm/{}#{}", n / 2, n % 2));
        (Address::V4(0x0a00_0001 + n), Entry::Held(Arc::new(held)))
    });
    let loaded = load(&net, entries.collect()).unwrap();
    loaded.check().unwrap();
    assert_eq!(loaded.counts().held, 20_000);
    assert_eq!(loaded.holdings.owner_count(&Scope::default(), &"vm/9999".parse().unwrap()), 2);
}

#[test]
fn entries_that_are_not_those_of_one_network_are_refused_by_what_is_wrong_with_them() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    net.block("router", 30).unwrap();
    net.allocate("vm/0");
    net.allocate("vm/1");
    let good = entries_of(&net.network);
    let says = |change: &dyn Fn(&mut Listed), part: &str| {
        let mut entries = good.clone();
        change(&mut entries);
        let count = entries.len();
        let misfit = load(&net, entries).unwrap_err();
        assert!(misfit.to_string().contains(part), "{misfit}");
        // All that contradicts nothing before it.
        let in_part = misfit.in_part(Generation(0), ShardTime(0));
        in_part.check().unwrap();
        assert_eq!(in_part.counts().reservations, if count > good.len() { 3 } else { 2 });
        assert_eq!(misfit.scopes().len(), 1);
        assert_eq!(misfit.records().len(), 1 + net.network.subnets.len() + count);
    };
    let at = |owner: &str| {
        let is = |entry: &Entry| matches!(entry, Entry::Held(held) if held.holder == holder(owner));
        good.iter().position(|(_, entry)| is(entry)).unwrap()
    };
    let (block, one) = (at("router"), at("vm/0"));
    says(&|entries| entries[block].0 = address("10.0.0.66"), "not the first address of its block");
    says(&|entries| entries.push(entries[one].clone()), "two records cover");
    says(&|entries| entries.push((address("10.0.0.99"), entries[one].1.clone())), "holds both");
}

#[test]
fn what_is_read_in_another_order_is_put_in_order_and_the_last_of_one_address_counts() {
    let mut net = full(Policy::Lowest, false);
    net.allocate("late");
    let listed = entries_of(&net.network);
    let mut shuffled: Listed = listed.iter().step_by(2).chain(listed.iter().skip(1).step_by(2)).cloned().collect();
    let (older, newer) = (listed[3].clone(), shuffled.iter().position(|(at, _)| *at == listed[3].0).unwrap());
    let Entry::Held(held) = &older.1 else { panic!("{older:?} is not held") };
    let mut before = Reservation::clone(held);
    before.holder = holder("who held it before");
    shuffled.insert(newer, (older.0, Entry::Held(Arc::new(before))));
    for entries in [Entries::of_any_order(shuffled.clone()), shuffled.into_iter().collect::<Entries>().in_order()] {
        assert_eq!(entries.len(), listed.len());
        assert!(entries.iter().eq(listed.iter().map(|(address, entry)| (*address, entry))));
        let (config, subnets) = (Arc::clone(&net.network.config), net.network.subnets.clone());
        let loaded = Network::load(config, subnets, entries, Generation(0), ShardTime(0)).unwrap();
        loaded.check().unwrap();
        assert_eq!(loaded.counts(), net.network.counts());
    }
}

#[test]
fn none_of_what_does_not_fit_is_lost() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    for n in 0..100 {
        net.allocate(&format!("vm/{n}"));
    }
    let mut listed = entries_of(&net.network);
    for (at, wrong) in [(0, 99), (50, 3), (99, 98)] {
        // Duplicates of slots, and an entry out of order.
        listed[at].1 = listed[wrong].1.clone();
    }
    listed.swap(7, 60);
    let entries: Entries = listed.iter().cloned().collect();
    assert_eq!(entries.len(), listed.len());
    assert!(entries.iter().eq(listed.iter().map(|(address, entry)| (*address, entry))));
    assert_eq!(entries.clone().into_iter().collect::<Listed>(), listed);
    assert!(entries.in_order().into_iter().map(|(address, _)| address).is_sorted());
}

#[test]
fn a_lease_that_runs_while_it_is_loaded_ends_when_it_was_served_for_some_time() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    let view = net.ask(wish("vm/0")).unwrap().view;
    let lease = |ends: u64, ttl: u64| Lease { ends: ShardTime(ends), ttl_seconds: NonZeroU64::new(ttl).unwrap() };
    let (since, grace) = (ShardTime(1_000_000), crate::limits::LEASE_GRACE_SECONDS);
    let leases = [lease(1, 5), lease(1, 86_400), lease(1_000_001, 86_400), lease(9_000_000, 86_400)];
    let listed = leases.iter().zip(0u32..).map(|(lease, n)| {
        let mut held = Reservation::clone(&view.reservation);
        (held.holder, held.lease) = (holder(&format!("vm/{n}")), Some(*lease));
        (Address::V4(0x0a00_0001 + n), Entry::Held(Arc::new(held)))
    });
    let (config, subnets) = (Arc::clone(&net.network.config), net.network.subnets.clone());
    let loaded = Network::load(config, subnets, listed.collect::<Listed>(), Generation(0), since).unwrap();
    loaded.check().unwrap();
    let ends: Vec<ShardTime> = leases.iter().map(|lease| loaded.holdings.end_of(*lease)).collect();
    let late = since.after_seconds(grace);
    assert_eq!(ends, [since.after_seconds(5), late, late, ShardTime(9_000_000)]);
    assert_eq!(loaded.next_due(), ends.into_iter().min());
}
