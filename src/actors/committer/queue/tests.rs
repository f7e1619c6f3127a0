//! Which units go into a group: fairly over networks, in order within each, and no more than a store takes at once.

use std::sync::Arc;

use super::*;
use crate::actors::routes::Lane;
use crate::store::ShardId;

/// A unit that changes so much in each of these networks.
fn unit(networks: &[u128], changes: usize, bytes: usize) -> Unit {
    let part = |id: &u128| {
        let lane = Arc::new(Lane::new(NetworkId(*id), ShardId(0)));
        UnitPart { changes, bytes, ..UnitPart::new(lane, 0, Vec::new()) }
    };
    Unit::new(networks.iter().map(part).collect(), None, Vec::new())
}

fn queue(units: impl IntoIterator<Item = Unit>) -> UnitQueue {
    let mut queue = UnitQueue::default();
    units.into_iter().for_each(|unit| queue.push(unit));
    queue
}

/// First network and changes of each unit of the next group.
fn group(queue: &mut UnitQueue) -> Vec<(u128, usize)> {
    queue.next_group().iter().map(|unit| (unit.parts[0].lane.id.0, unit.changes())).collect()
}

#[test]
fn what_fits_goes_at_once_and_in_order() {
    let mut queue = queue([unit(&[1], 400, 10), unit(&[2], 300, 10), unit(&[1], 300, 10)]);
    assert_eq!(group(&mut queue), [(1, 400), (2, 300), (1, 300)]);
    assert!(queue.is_empty() && queue.changes() == 0);
}

#[test]
fn a_hot_network_leaves_its_neighbours_their_share_of_a_group() {
    // Ten groups' worth of one network were there before the two others asked: of many changes, or of a few long ones.
    for (changes, bytes) in [(BATCH_CHANGES_MAX / 10, 10), (1, BATCH_BYTES_MAX / 10)] {
        let hot = (0..100).map(|_| unit(&[1], changes, bytes));
        let mut queue = queue(hot.chain([unit(&[2], 5, 10), unit(&[3], 5, 10)]));
        let first = group(&mut queue);
        assert!(first.contains(&(2, 5)) && first.contains(&(3, 5)), "{first:?}");
        let filled = first.iter().filter(|one| one.0 == 1).count();
        assert_eq!(filled, 9, "the rest is filled up, with units of {changes} changes and {bytes} bytes");
    }
}

#[test]
fn no_group_has_more_changes_or_bytes_than_a_batch_may() {
    let mut queue = queue((0..60).map(|at| unit(&[at % 7], 90, BATCH_BYTES_MAX / 9)));
    let mut taken = 0;
    while !queue.is_empty() {
        let units = queue.next_group();
        assert!(!units.is_empty());
        assert!(units.iter().map(Unit::changes).sum::<usize>() <= BATCH_CHANGES_MAX);
        assert!(units.iter().map(Unit::bytes).sum::<usize>() <= BATCH_BYTES_MAX);
        taken += units.len();
    }
    assert_eq!((taken, queue.changes()), (60, 0));
}

#[test]
fn a_unit_that_is_longer_than_a_group_goes_alone() {
    let mut queue = queue([unit(&[1], 3, BATCH_BYTES_MAX * 2), unit(&[2], 3, 10)]);
    assert_eq!(group(&mut queue), [(1, 3)]);
    assert_eq!(group(&mut queue), [(2, 3)]);
}

#[test]
fn units_of_a_network_keep_their_order_however_groups_are_filled() {
    // The long one does not fit behind the others; what came after it in its network must not overtake it.
    let mut queue = queue([
        unit(&[2], 900, 10),
        unit(&[1], 400, 10),
        unit(&[1], 1, 10),
        unit(&[1, 3], 2, 10),
        unit(&[3], 3, 10),
        unit(&[4], 6, 10),
    ]);
    let mut all = Vec::new();
    while !queue.is_empty() {
        all.extend(group(&mut queue));
    }
    let of = |id: u128| all.iter().filter(|(first, _)| *first == id).map(|(_, changes)| *changes).collect::<Vec<_>>();
    assert_eq!(of(1), [400, 1, 4], "{all:?}");
    let place = |wanted| all.iter().position(|one| *one == wanted).unwrap();
    assert!(place((1, 4)) < place((3, 3)), "what spans two networks keeps its place in both: {all:?}");
}
