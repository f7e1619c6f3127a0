//! Facts about `Space`, most of them by comparison with models that are obviously right.

mod model;

use proptest::prelude::*;

use super::Space;
use model::{Intervals, Naive};

#[derive(Debug, Clone)]
struct Step {
    taken: bool,
    first: u128,
    last: u128,
}

/// Steps whose ranges lie in, around and across a pool; short ones are more frequent.
fn steps(first: u128, last: u128) -> impl Strategy<Value = Vec<Step>> {
    let (low, high) = (first.saturating_sub(70), last.saturating_add(70));
    let length = prop_oneof![4 => 0..1u128, 3 => 0..20u128, 2 => 0..(high - low), 1 => 63..65u128];
    let step = (any::<bool>(), low..=high, length).prop_map(|(taken, first, length)| Step {
        taken,
        first,
        last: first.saturating_add(length),
    });
    prop::collection::vec(step, 1..40)
}

/// Pools of up to 700 numbers at places where arithmetic or tree levels have their limits.
fn small_pools() -> impl Strategy<Value = (u128, u128)> {
    let v4_end = u128::from(u32::MAX);
    let places = prop_oneof![
        0..200u128,
        4096 - 400..4096 + 10u128,
        (1 << 18) - 400..(1 << 18) + 10u128,
        v4_end - 700..=v4_end,
        (1 << 64) - 300..(1 << 64) + 10u128,
        (1 << 126) - 300..(1 << 126) + 10u128,
        (1 << 127) - 300..(1 << 127) + 10u128,
        u128::MAX - 699..=u128::MAX,
    ];
    (places, 0..700u128).prop_map(|(first, length)| (first, first.saturating_add(length)))
}

fn small_cases() -> impl Strategy<Value = ((u128, u128), Vec<Step>)> {
    small_pools().prop_flat_map(|pool| (Just(pool), steps(pool.0, pool.1)))
}

fn assert_same(space: &Space, naive: &Naive, probes: &[u128]) {
    space.check().unwrap();
    let free = naive.free_numbers();
    assert_eq!(space.free(), free.len() as u128);
    let largest = (0..11).rev().find(|&order| !naive.blocks(order).is_empty());
    assert_eq!(space.largest_order(), largest);
    let blocks: Vec<Vec<u128>> = (0..12).map(|order| naive.blocks(order)).collect();
    assert_eq!(space.runs(0).collect::<Vec<_>>(), naive.runs(0));
    for (index, &number) in free.iter().enumerate() {
        assert_eq!(space.nth_free(index as u128), Some(number));
    }
    assert_eq!(space.nth_free(free.len() as u128), None);
    for &from in probes {
        for (order, starts) in blocks.iter().enumerate() {
            let expected = starts.iter().copied().find(|&start| start >= from);
            assert_eq!(space.lowest(order as u8, from), expected, "order {order} from {from}");
        }
        assert_eq!(space.runs(from).collect::<Vec<_>>(), naive.runs(from));
        for &last in probes {
            let between = free.iter().filter(|number| (from..=last).contains(number)).count();
            assert_eq!(space.free_in(from, last), between as u128);
            let size = last.checked_sub(from).map(|difference| difference.saturating_add(1));
            assert_eq!(space.is_free(from, last), size == Some(between as u128));
        }
    }
}

/// What may happen to a space that is filled from below: mostly the next free number is taken, now and then something else
/// happens.
fn fills() -> impl Strategy<Value = Vec<Option<Step>>> {
    let other = (any::<bool>(), 0..300u128, prop_oneof![3 => 0..2u128, 1 => 0..90u128])
        .prop_map(|(taken, first, length)| Some(Step { taken, first, last: first + length }));
    prop::collection::vec(prop_oneof![12 => Just(None), 1 => other], 1..160)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn space_filled_from_below_answers_like_one_bool_per_number(
        (first, length) in (prop_oneof![Just(0u128), Just(100), Just((1 << 64) - 100)], 20..300u128),
        steps in fills(),
    ) {
        let last = first + length;
        let mut space = Space::new(first, last);
        let mut naive = Naive { first, taken: vec![false; (last - first + 1) as usize] };
        let mut fronts = 0;
        for step in steps {
            let step = match step {
                Some(step) => Step { first: first + step.first, last: first + step.last, ..step },
                None => {
                    let Some(next) = space.lowest(0, 0) else { continue };
                    Step { taken: true, first: next, last: next }
                }
            };
            if step.taken {
                space.occupy(step.first, step.last);
            } else {
                space.vacate(step.first, step.last);
            }
            naive.paint(step.first, step.last, step.taken);
            fronts += usize::from(space.front.run().is_some());
            let probes = [0, first, step.first.saturating_sub(1), step.first, step.last + 1, last, u128::MAX];
            assert_same(&space, &naive, &probes);
        }
        // Without a front, this compares nothing that the other tests do not.
        prop_assume!(fronts > 0);
    }

    #[test]
    fn small_pool_answers_like_one_bool_per_number(
        ((first, last), steps) in small_cases(),
    ) {
        let mut space = Space::new(first, last);
        let mut naive = Naive { first, taken: vec![false; (last - first + 1) as usize] };
        let fixed = [0, first.saturating_sub(1), first, last, last.saturating_add(1), u128::MAX];
        for step in steps {
            if step.taken {
                space.occupy(step.first, step.last);
            } else {
                space.vacate(step.first, step.last);
            }
            naive.paint(step.first, step.last, step.taken);
            let (below, above) = (step.first.saturating_sub(1), step.last.saturating_add(1));
            let probes = [step.first, step.last, below, above];
            assert_same(&space, &naive, &[&fixed[..], &probes[..]].concat());
        }
    }

    #[test]
    fn large_pool_answers_like_a_map_of_intervals(
        pool in large_pools(),
        steps in prop::collection::vec((any::<bool>(), any::<[u64; 4]>()), 1..120),
    ) {
        compare_with_intervals(pool, &steps);
    }

    /// The size of the tree depends on the set, not on its history.
    #[test]
    fn equal_sets_take_equal_nodes(numbers in prop::collection::btree_set(0..20_000u128, 1..300)) {
        let mut upwards = Space::new(0, 1 << 70);
        let mut downwards = Space::new(0, 1 << 70);
        numbers.iter().for_each(|&number| upwards.occupy(number, number));
        downwards.occupy(0, 20_000);
        let mut next = 0;
        for &number in &numbers {
            if next < number {
                downwards.vacate(next, number - 1);
            }
            next = number + 1;
        }
        downwards.vacate(next, 20_000);
        prop_assert_eq!(upwards.arena.live_nodes(), downwards.arena.live_nodes());
        prop_assert_eq!(upwards.runs(0).collect::<Vec<_>>(), downwards.runs(0).collect::<Vec<_>>());
    }
}

fn large_pools() -> impl Strategy<Value = (u128, u128)> {
    prop_oneof![
        Just((10 << 24, (11 << 24) - 1)),
        Just(((10 << 24) + 1, (11 << 24) - 2)),
        Just((0xfd00 << 112, (0xfd00 << 112) + u128::from(u64::MAX))),
        Just(((0xfd00 << 112) + 12_345, (0xfd00 << 112) + (1 << 64) + 77)),
        Just((u128::MAX - (1 << 80) + 1, u128::MAX)),
        Just((1 << 127, u128::MAX)),
        Just((0, (1 << 127) - 1)),
        Just(((1 << 126) - 5, (1 << 126) + (1 << 126) + 99)),
    ]
}

fn aligned_block_from(from: u128, last: u128, order: u8) -> Option<u128> {
    let start = from.checked_next_multiple_of(1 << order)?;
    (start <= last && last - start >= (1 << order) - 1).then_some(start)
}

fn compare_with_intervals((first, last): (u128, u128), steps: &[(bool, [u64; 4])]) {
    let mut space = Space::new(first, last);
    let mut intervals = Intervals::default();
    let mut previous = first;
    for &(taken, [place, near, length, shape]) in steps {
        // Anywhere in the pool, or near the previous place; any order of magnitude for the length.
        let span = last - first;
        let anywhere = first + (u128::from(place) * (u128::from(u64::MAX) + 1) + u128::from(near)) % span;
        let from = match shape % 3 {
            0 => anywhere,
            1 => previous.saturating_sub(u128::from(near >> (place % 64))).max(first),
            _ => previous.saturating_add(u128::from(near >> (place % 64))).min(last),
        };
        let mask = (1u128 << (length % 100)) - 1;
        let mut to = from.saturating_add((u128::from(length) << 30 ^ u128::from(near)) & mask).min(last);
        let mut from = from;
        if shape & 4 != 0 {
            // A whole aligned block.
            let block = (1u128 << (length % 90)) - 1;
            (from, to) = ((from & !block).max(first), (from | block).min(last));
        }
        previous = from;
        if taken {
            space.occupy(from, to)
        } else {
            space.vacate(from, to)
        }
        intervals.paint(from, to, taken);
        space.check().unwrap();
        let runs = intervals.runs(first, last);
        assert_eq!(space.runs(0).collect::<Vec<_>>(), runs);
        let free: u128 = runs.iter().filter(|run| !run.2).map(|run| run.1 - run.0 + 1).sum();
        assert_eq!(space.free(), free);
        for order in [0, 1, 2, 5, 6, 7, 12, 13, 20, 40, 64, 100, 125, 126, 127] {
            for start in [first, from, to, anywhere] {
                let free = runs.iter().filter(|run| !run.2 && run.1 >= start);
                let expected = free.filter_map(|run| aligned_block_from(run.0.max(start), run.1, order)).next();
                assert_eq!(space.lowest(order, start), expected, "order {order} from {start}");
            }
        }
        for index in [0, free / 3, free / 2, free.saturating_sub(1)] {
            let number = space.nth_free(index);
            assert_eq!(number.is_some(), index < free);
            if let Some(number) = number {
                assert!(space.is_free(number, number));
                assert_eq!(space.free_in(0, number), index + 1);
            }
        }
    }
    space.vacate(0, u128::MAX);
    space.check().unwrap();
    assert_eq!(space.arena.live_nodes(), Space::new(first, last).arena.live_nodes());
    assert!(space.memory_bytes() < 24_000, "{space:?}");
}

/// A fixed sequence of numbers that look random (splitmix64), because tests and statements about memory must not vary.
fn scattered(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |step: u64| {
        let mut x = seed.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    })
}

const V6: u128 = 0x2001_0db8 << 96;

#[test]
fn untouched_pool_of_any_size_costs_less_than_200_bytes() {
    for (first, last) in
        [(10 << 24, (10 << 24) + 255), (10 << 24, (11 << 24) - 1), (V6, V6 + u128::from(u64::MAX)), (0, (1 << 127) - 1)]
    {
        let space = Space::new(first, last);
        assert!(space.memory_bytes() < 200, "{space:?}");
    }
}

#[test]
fn random_claims_in_a_64_cost_less_than_80_bytes_each() {
    for count in [1_000, 10_000, 100_000, 300_000] {
        let mut space = Space::new(V6, V6 + u128::from(u64::MAX));
        for number in scattered(1).take(count) {
            space.occupy(V6 + u128::from(number), V6 + u128::from(number));
        }
        let each = space.memory_bytes() / count;
        assert!(each < 80, "{each} bytes for each of {count}");
    }
}

#[test]
fn holes_in_a_full_64_cost_as_little_as_claims_in_an_empty_one() {
    let mut space = Space::new(V6, V6 + u128::from(u64::MAX));
    space.occupy(0, u128::MAX);
    assert!(space.memory_bytes() < 400);
    for number in scattered(2).take(10_000) {
        space.vacate(V6 + u128::from(number), V6 + u128::from(number));
    }
    assert_eq!(space.largest_order(), Some(0));
    assert!(space.memory_bytes() < 64 * 10_000, "{space:?}");
    space.check().unwrap();
}

#[test]
fn half_full_16_costs_less_than_two_bits_a_number() {
    let mut space = Space::new(10 << 24, (10 << 24) + 0xffff);
    for number in scattered(3).take(0x8000) {
        let number = (10 << 24) + u128::from(number & 0xffff);
        space.occupy(number, number);
    }
    assert!(space.memory_bytes() * 8 < 2 * 0x10000, "{space:?}");
}

#[test]
fn pool_that_is_wholly_taken_after_fragmentation_costs_next_to_nothing() {
    let mut space = Space::new(10 << 24, (10 << 24) + 0x3_ffff);
    for number in (10 << 24..=(10 << 24) + 0x3_ffff).step_by(3) {
        space.occupy(number, number);
    }
    assert!(space.memory_bytes() > 0x4_0000 / 8);
    for number in 10 << 24..=(10 << 24) + 0x3_ffff {
        space.occupy(number, number);
    }
    assert_eq!((space.free(), space.largest_order()), (0, None));
    assert_eq!(space.arena.live_nodes(), 0);
    assert!(space.memory_bytes() < 8_192, "{space:?}");
    space.check().unwrap();
}

#[test]
fn claims_that_come_and_go_leave_no_memory_behind() {
    let mut space = Space::new(V6 + 9, V6 + (1 << 63));
    let untouched = space.arena.live_nodes();
    for seed in 0..3 {
        for number in scattered(seed).take(20_000) {
            space.occupy(V6 + u128::from(number), V6 + u128::from(number));
        }
        space.check().unwrap();
        for number in scattered(seed).take(20_000) {
            space.vacate(V6 + u128::from(number), V6 + u128::from(number));
        }
        space.check().unwrap();
        assert_eq!(space.arena.live_nodes(), untouched);
        assert!(space.memory_bytes() < 16_384, "{space:?}");
    }
}

#[test]
fn steady_change_at_a_constant_count_does_not_grow_memory() {
    let mut space = Space::new(V6, V6 + u128::from(u64::MAX));
    let numbers: Vec<u128> = scattered(4).take(60_000).map(|number| V6 + u128::from(number)).collect();
    numbers[..10_000].iter().for_each(|&number| space.occupy(number, number));
    let early = space.memory_bytes();
    for (&old, &new) in numbers.iter().zip(&numbers[10_000..]) {
        space.vacate(old, old);
        space.occupy(new, new);
    }
    assert!(space.memory_bytes() < early * 3 / 2, "{early} bytes became {}", space.memory_bytes());
}

#[test]
fn everything_outside_the_pool_is_taken_and_stays_so() {
    let mut space = Space::new(100, 199);
    space.vacate(0, u128::MAX);
    assert_eq!(space.free(), 100);
    assert!(!space.is_free(99, 100) && !space.is_free(199, 200) && space.is_free(100, 199));
    assert_eq!((space.lowest(0, 0), space.lowest(0, 200)), (Some(100), None));
    assert_eq!(space.free_in(0, 149), 50);
    space.occupy(0, 99);
    space.occupy(200, u128::MAX);
    assert_eq!(space.free(), 100);
    assert_eq!(space.runs(0).collect::<Vec<_>>(), [(100, 199, false)]);
    assert_eq!(space.runs(200).next(), None);
}

#[test]
fn blocks_are_aligned_to_their_size_and_not_to_the_pool() {
    let space = Space::new(100, 199);
    assert_eq!(space.largest_order(), Some(6));
    assert_eq!(space.lowest(6, 0), Some(128));
    assert_eq!(space.lowest(6, 129), None);
    assert_eq!(space.lowest(2, 101), Some(104));
    assert_eq!(space.lowest(7, 0), None);
    assert_eq!(space.lowest(255, 0), None);
}

/// When a space is filled from below, millions of numbers are taken without the tree, which still learns of them all.
#[test]
fn what_is_taken_in_order_is_told_to_the_tree_and_costs_as_little_as_a_range() {
    let first = 10 << 24;
    let mut space = Space::new(first, first + 0xf_ffff);
    for number in first..first + 100_000 {
        assert_eq!(space.lowest(0, first), Some(number));
        space.occupy(number, number);
        assert!(space.front.untold() < 5_000, "{:?}", space.front);
    }
    assert!(space.front.run().is_some());
    space.check().unwrap();
    assert!(space.memory_bytes() < 1_000, "{space:?}");
    assert_eq!(space.free(), 0x10_0000 - 100_000);
    // A number that becomes free below is the next to be taken; then the run goes on.
    space.vacate(first + 7, first + 7);
    space.check().unwrap();
    assert_eq!((space.lowest(0, 0), space.free_in(0, first + 99_999)), (Some(first + 7), 1));
    space.occupy(first + 7, first + 7);
    assert_eq!(space.lowest(0, 0), Some(first + 100_000));
    space.check().unwrap();
}

/// In a slot of exactly its own size, nothing is around a node, so less needs to be written. Found by
/// `large_pool_answers_like_a_map_of_intervals`: the node was kept when a parent was put above it.
#[test]
fn node_that_gets_a_parent_is_shortened() {
    let mut space = Space::new(V6, V6 + u128::from(u64::MAX));
    space.occupy(V6, V6 + 63);
    space.occupy(V6 + 128, V6 + 4_095);
    space.occupy(V6 + 5_000, V6 + 5_000);
    space.check().unwrap();
    assert_eq!(space.free_in(V6, V6 + 8_191), 64 + 4_095);
}

#[test]
fn largest_pools_are_counted_exactly() {
    let mut space = Space::new(1, u128::MAX);
    assert_eq!((space.free(), space.largest_order()), (u128::MAX, Some(127)));
    assert_eq!(space.lowest(127, 0), Some(1 << 127));
    assert_eq!(space.nth_free(u128::MAX - 1), Some(u128::MAX));
    space.occupy(u128::MAX, u128::MAX);
    assert_eq!((space.free(), space.largest_order()), (u128::MAX - 1, Some(126)));
    space.check().unwrap();
}

#[test]
#[should_panic(expected = "cannot be counted")]
fn pool_of_all_numbers_is_refused() {
    let _ = Space::new(0, u128::MAX);
}
