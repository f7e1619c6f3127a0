//! Facts about maps in cells.

use std::collections::BTreeMap;

use super::*;
use crate::core::outcome::{Drawing, PoolMap};
use crate::limits::MAP_SLICE_RECORDS_MAX;

/// A network in which the addresses at these offsets from 10.0.0.0 are held.
fn held(subnets: Vec<SubnetConfig>, offsets: impl Iterator<Item = u32>) -> Network {
    let held = |at: u32| {
        let owner = holder(&format!("o{at}"));
        let held = Reservation::plain(owner, Generation(u64::from(at) + 1), 32, WallTime(0));
        (Address::V4(0x0a00_0000 + at), Entry::Held(Arc::new(held)))
    };
    let entries: Entries = offsets.map(held).collect();
    let net = Net::with(|_| (), subnets);
    let (config, subnets) = (Arc::clone(&net.network.config), net.network.subnets.clone());
    Network::load(config, subnets, entries, Generation(0), ShardTime(0)).unwrap()
}

fn slice(network: &Network, prefix_length: u8, from: Option<Box<MapPlace>>) -> (Vec<PoolMap>, Option<Box<MapPlace>>) {
    let part = Box::new((None, None));
    let ask = Command::Map { part, format: MapFormat::Cells(CellSize::Prefix(prefix_length)), from };
    match network.decide(&ask, Net::new(&[]).context()).unwrap().outcome {
        Outcome::Map { pools, next, .. } => (pools, next),
        other => panic!("{other:?}"),
    }
}

/// All cells, and the number of slices in which they came.
fn cells(network: &Network, prefix_length: u8) -> (Vec<(Address, u128, u128, u128)>, usize) {
    let (mut whole, mut from, mut slices): (Vec<PoolMap>, _, _) = (Vec::new(), None, 0);
    loop {
        let (pools, next) = slice(network, prefix_length, from);
        slices += 1;
        let held: u128 = pools.iter().flat_map(cells_of).map(|cell| cell.1).sum();
        assert!(held <= MAP_SLICE_RECORDS_MAX as u128, "{held} in one slice");
        for map in pools {
            match whole.last_mut().filter(|last| last.range == map.range) {
                Some(last) => last.drawing.go_on(map.drawing),
                None => whole.push(map),
            }
        }
        if next.is_none() {
            return (whole.iter().flat_map(cells_of).collect(), slices);
        }
        from = next;
    }
}

fn cells_of(map: &PoolMap) -> Vec<(Address, u128, u128, u128)> {
    let Drawing::Cells { cells, .. } = &map.drawing else { panic!() };
    cells.clone()
}

/// One slice is one turn of the network, however much it holds, and the slices together give what one look would.
#[test]
fn a_map_in_cells_looks_at_so_much_in_one_slice_and_misses_and_repeats_nothing() {
    let count = 25_000;
    let place = |n: u32| 2 * n + n / 4_000 * 5_000 + if n < 20_000 { 0 } else { 30_000 };
    let network = held(vec![subnet("10.0.0.0/16", 0), subnet("10.1.0.0/16", 1)], (1..count).map(place));
    for prefix_length in [8, 15, 20, 24, 29, 32] {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix_length)).unwrap_or(0);
        let mut naive: BTreeMap<(u32, u32), u128> = BTreeMap::new();
        for bits in (1..count).map(|n| 0x0a00_0000 + place(n)) {
            *naive.entry((bits >> 16, bits & mask)).or_default() += 1;
        }
        // Addresses that are never granted count as taken, too.
        for bits in [0x0a00_0000, 0x0a00_ffff, 0x0a01_0000, 0x0a01_ffff] {
            naive.entry((bits >> 16, bits & mask)).or_default();
        }
        let size = (1u128 << (32 - prefix_length)).min(1 << 16);
        let (cells, slices) = cells(&network, prefix_length);
        assert!(slices > 2, "{slices}");
        let found: Vec<(Address, u128)> = cells.iter().map(|cell| (cell.0, cell.1)).collect();
        let wanted: Vec<_> = naive.into_iter().map(|((_, base), held)| (Address::V4(base), held)).collect();
        assert_eq!(found, wanted, "/{prefix_length}");
        assert!(cells.iter().all(|&(_, held, reserved, free)| held + reserved + free == size), "/{prefix_length}");
        assert_eq!(cells.iter().map(|cell| cell.2).sum::<u128>(), 4);
    }
}

#[test]
fn a_slice_of_a_map_goes_on_in_no_other_configuration_than_it_began_in() {
    let mut network = held(vec![subnet("10.0.0.0/16", 0)], 1..30_000);
    let (pools, next) = slice(&network, 16, None);
    assert_eq!((pools.len(), next.is_some()), (1, true));
    let config = NetworkConfig { version: Version(2), ..(*network.config).clone() };
    let step = Step { key: Key::Config, expect: None, state: Some(State::Config(Arc::new(config))), event: None };
    network.apply(&step, ShardTime(1));
    assert_eq!(slice(&network, 16, next), (Vec::new(), None));
}

#[test]
fn what_drains_is_taken_in_each_of_its_cells() {
    let draining = SubnetConfig { draining: true, ..subnet("10.0.0.0/24", 0) };
    let (cells, _) = cells(&held(vec![draining], 5..7), 26);
    let at = |n| address(&format!("10.0.0.{n}"));
    assert_eq!(cells, [(at(0), 2, 62, 0), (at(64), 0, 64, 0), (at(128), 0, 64, 0), (at(192), 0, 64, 0)]);
}

#[test]
fn a_pool_whose_cells_are_not_sized_is_cut_into_the_smallest_of_which_it_has_4096() {
    for (pool, length) in [
        ("10.0.0.7-10.0.0.7", 32),
        ("10.0.0.255-10.0.16.254", 32),
        ("10.0.0.255-10.0.16.255", 31),
        ("10.0.0.0-10.0.255.255", 28),
        ("0.0.0.0-255.255.255.255", 12),
        ("2001:db8::-2001:db8::ffff:ffff:ffff:ffff", 76),
        ("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 12),
    ] {
        assert_eq!(CellSize::Fitting.prefix_length(pool.parse().unwrap()), length, "{pool}");
    }
}
