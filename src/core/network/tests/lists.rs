//! Facts about lists: of what an owner holds, and of a network that changes meanwhile.

use std::collections::BTreeMap;

use super::*;
use crate::core::outcome::Slice;
use crate::limits::{LIST_CHANGES_KEPT_MAX, LIST_SLICE_RECORDS_MAX};

/// A network in which one owner holds `count` addresses, and another owner as many.
fn held(count: u32) -> Network {
    let of = |owner: &str, n: u32, at: u32| {
        let slot = format!("s{n}").parse().unwrap();
        let holder = SlotKey { scope: Scope::default(), owner: owner.parse().unwrap(), slot };
        let held = Reservation::plain(holder, Generation(u64::from(at) + 1), 32, WallTime(0));
        (Address::V4(0x0a00_0100 + at), Entry::Held(Arc::new(held)))
    };
    let entries: Entries = (0..count).flat_map(|n| [of("much", n, 2 * n), of("other", n, 2 * n + 1)]).collect();
    let net = Net::new(&["10.0.0.0/8"]);
    let (config, subnets) = (Arc::clone(&net.network.config), net.network.subnets.clone());
    Network::load(config, subnets, entries, Generation(0), ShardTime(0)).unwrap()
}

fn slice(network: &Network, after: Option<Address>, limit: usize) -> (Vec<Address>, Option<Address>) {
    let filter = Filter { owner: Some("much".parse().unwrap()), ..Filter::default() };
    let ask = ListSlice { filter, after, limit, count_only: false };
    let context = Net::new(&[]).context();
    match network.decide(&Command::List(Box::new(ask)), context).unwrap().outcome {
        Outcome::Listed { slice: Slice { views, next, .. }, .. } => {
            (views.iter().map(|view| view.address).collect(), next)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_that_an_owner_holds_is_listed_in_order_however_much_it_is() {
    for count in [5, 3 * LIST_SLICE_RECORDS_MAX, 11 * LIST_SLICE_RECORDS_MAX] {
        let network = held(count as u32);
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let (addresses, next) = slice(&network, after, 700);
            assert!(addresses.len() <= 700);
            listed.extend(addresses);
            if next.is_none() {
                break;
            }
            after = next;
        }
        assert_eq!(listed.len(), count);
        assert!(listed.is_sorted());
    }
}

/// A network in which each scope holds one address, by an owner of its own; `much` holds one more in some of them.
fn held_by_scopes(scopes: u32, every: usize) -> Network {
    let of = |n: u32, owner: &str, at: u32| {
        let (scope, slot) = (format!("scope-{n}").parse().unwrap(), "0".parse().unwrap());
        let held = SlotKey { scope, owner: owner.parse().unwrap(), slot };
        let held = Reservation::plain(held, Generation(u64::from(at) + 1), 32, WallTime(0));
        (Address::V4(0x0a00_0100 + at), Entry::Held(Arc::new(held)))
    };
    let much = (0..scopes).step_by(every).map(|n| of(n, "much", 2 * n + 1));
    let entries: BTreeMap<_, _> = (0..scopes).map(|n| of(n, "other", 2 * n)).chain(much).collect();
    let entries: Entries = entries.into_iter().collect();
    let net = Net::new(&["10.0.0.0/8"]);
    let (config, subnets) = (Arc::clone(&net.network.config), net.network.subnets.clone());
    Network::load(config, subnets, entries, Generation(0), ShardTime(0)).unwrap()
}

/// One turn must not look for an owner in each of this many scopes.
#[test]
fn a_slice_of_what_an_owner_holds_over_many_scopes_looks_at_so_many_records_and_no_more() {
    let network = held_by_scopes(11 * LIST_SLICE_RECORDS_MAX as u32, LIST_SLICE_RECORDS_MAX);
    let (addresses, next) = slice(&network, None, usize::MAX);
    assert!(next.is_some(), "{} addresses", addresses.len());
    let (mut listed, mut after) = (addresses, next);
    while after.is_some() {
        let (addresses, next) = slice(&network, after, usize::MAX);
        assert!(addresses.len() <= LIST_SLICE_RECORDS_MAX);
        listed.extend(addresses);
        after = next;
    }
    assert_eq!(listed.len(), 11);
    assert!(listed.is_sorted());
}

#[test]
fn scopes_are_listed_by_name_a_slice_at_a_time_and_those_that_hold_nothing_any_more_are_not() {
    let count = 3 * LIST_SLICE_RECORDS_MAX;
    let mut network = held_by_scopes(count as u32, 2);
    let context = Net::new(&[]).context();
    let slice = |network: &Network, after: Option<Scope>, limit: usize| match network
        .decide(&Command::Scopes { after, limit }, context)
        .unwrap()
        .outcome
    {
        Outcome::Scopes { page, more } => (page, more),
        other => panic!("{other:?}"),
    };
    let all = |network: &Network, limit: usize| {
        let (mut listed, mut more, mut after) = (Vec::new(), true, None);
        while more {
            let (page, is_more) = slice(network, after, limit);
            assert!(page.len() <= limit.min(LIST_SLICE_RECORDS_MAX), "{}", page.len());
            more = is_more;
            listed.extend(page);
            after = listed.last().map(|usage| usage.scope.clone());
        }
        listed
    };
    for limit in [700, usize::MAX] {
        let listed = all(&network, limit);
        assert_eq!((listed.len(), listed.is_sorted_by(|a, b| a.scope < b.scope)), (count, true));
        assert_eq!(listed.iter().map(|usage| usage.reservations).sum::<u64>(), count as u64 * 3 / 2);
    }
    // Nothing is left of the first ten scopes, and something of the eleventh.
    for at in (0..20).chain([21]) {
        let key = Key::Address(Address::V4(0x0a00_0100 + at));
        network.apply(&Step { key, expect: None, state: None, event: None }, ShardTime(1));
    }
    let listed = all(&network, 700);
    assert_eq!(listed.len(), count - 10);
    let first = listed.iter().find(|usage| usage.scope.as_str() == "scope-10").unwrap();
    assert_eq!(first.reservations, 1);
}

/// A slice is one turn of its network, however much an owner holds.
#[test]
fn a_slice_of_what_an_owner_of_much_holds_looks_at_so_many_records_and_no_more() {
    let network = held(11 * LIST_SLICE_RECORDS_MAX as u32);
    let (addresses, next) = slice(&network, None, usize::MAX);
    assert_eq!((addresses.len(), next.is_some()), (LIST_SLICE_RECORDS_MAX / 2, true));
}

/// Begins a list of all records, or of what `much` holds. Returns its rest and the address after which that begins.
fn begun(network: &mut Network, owner: Option<&str>) -> (Arc<ListRest>, Address) {
    let filter = Filter { owner: owner.map(|owner| owner.parse().unwrap()), ..Filter::default() };
    let ask = ListSlice { filter, after: None, limit: 700, count_only: false };
    let context = Net::new(&[]).context();
    let decided = network.decide(&Command::List(Box::new(ask.clone())), context).unwrap();
    let Outcome::Listed { slice, .. } = decided.outcome else { panic!() };
    (network.goes_on(&ask, context), slice.next.unwrap())
}

/// Frees the addresses at these places.
fn free(network: &mut Network, places: std::ops::Range<u32>) {
    for at in places {
        let key = Key::Address(Address::V4(0x0a00_0100 + at));
        network.apply(&Step { key, expect: None, state: None, event: None }, ShardTime(1));
    }
}

#[test]
fn a_list_that_is_under_way_shows_what_was_let_go_since_whoever_held_it() {
    for owner in [None, Some("much")] {
        let mut network = held(2_000);
        let (rest, mut after) = begun(&mut network, owner);
        free(&mut network, 0..4_000);
        assert_eq!(network.reservations(), 0);
        let mut listed = 700;
        while let Some(slice) = network.list_rest(&rest, after, 700) {
            listed += slice.views.len();
            match slice.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(listed, if owner.is_some() { 2_000 } else { 4_000 });
    }
}

#[test]
fn a_slice_of_a_list_that_is_under_way_looks_at_so_many_records_and_no_more() {
    let mut network = held(2_000);
    let (rest, after) = begun(&mut network, None);
    free(&mut network, 0..3_999);
    let slice = network.list_rest(&rest, after, usize::MAX).unwrap();
    assert_eq!((slice.views.len(), slice.next.is_some()), (LIST_SLICE_RECORDS_MAX, true));
}

#[test]
fn nothing_is_kept_for_a_list_that_is_over_and_not_more_than_so_much_for_one_that_is_not() {
    let mut network = held(LIST_CHANGES_KEPT_MAX as u32 / 2 + 200);
    free(&mut network, 0..10);
    assert!(!network.keeps_past(), "nothing is listed");
    let (first, _) = begun(&mut network, None);
    free(&mut network, 10..110);
    let (second, after) = begun(&mut network, None);
    free(&mut network, 110..160);
    assert_eq!(network.past.kept(), 150);
    drop(first);
    free(&mut network, 160..200);
    assert_eq!(network.past.kept(), 90, "what only the first asked for is forgotten by and by");
    free(&mut network, 200..300);
    let (third, behind) = begun(&mut network, None);
    free(&mut network, 300..LIST_CHANGES_KEPT_MAX as u32 + 200);
    assert_eq!(network.list_rest(&second, after, 1), None, "it began first");
    assert_eq!(network.list_rest(&third, behind, 1).unwrap().views.len(), 1);
    drop((second, third));
    network.forget_past(usize::MAX);
    assert!(!network.keeps_past());
}

#[test]
fn what_a_filter_or_a_view_looks_at_beside_the_reservations_ends_the_lists_when_it_changes() {
    let begin = |network: &mut Network| [begun(network, None), begun(network, Some("much"))];
    let goes_on = |network: &Network, lists: &[(Arc<ListRest>, Address)]| {
        lists.iter().filter(|(rest, after)| network.list_rest(rest, *after, 1).is_some()).count()
    };
    let mut network = held(2_000);
    let lists = begin(&mut network);
    assert_eq!((goes_on(&network, &lists), goes_on(&held(2_000), &lists)), (2, 0), "it is of another memory");
    let config = NetworkConfig { version: Version(2), ..(*network.config).clone() };
    let step = Step { key: Key::Config, expect: None, state: Some(State::Config(Arc::new(config))), event: None };
    network.apply(&step, ShardTime(1));
    assert_eq!(goes_on(&network, &lists), 0);
    let lists = begin(&mut network);
    network.goes_on_from(ShardTime(5));
    assert_eq!(goes_on(&network, &lists), 0, "leases end at another time");
}
