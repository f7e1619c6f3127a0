//! Pools: adding, changing, splitting, and what is remembered of them.

use proptest::prelude::*;

use super::super::pool::which_hold;
use super::*;
use crate::core::address::Address;
use crate::core::state::{PastPool, PoolKind};

fn remove_range(text: &str) -> Configure {
    Configure::PoolRemove(PoolRemoval::Range(range(text)))
}

fn to_range(text: &str) -> PoolPatch {
    PoolPatch { range: Some(range(text)), ..PoolPatch::default() }
}

fn by_name(text: &str) -> PoolRef {
    PoolRef::Named(name(text))
}

fn past_of(network: &Network) -> Vec<PastPool> {
    network.subnets()[0].past_pools.clone()
}

#[test]
fn a_subnet_has_one_dynamic_pool_unless_it_says_otherwise() {
    assert_eq!(pools_of(&net(&[subnet_input("10.0.0.0/24")])), ["10.0.0.0-10.0.0.255"]);
    assert!(pools_of(&net(&[with_pools("10.0.0.0/24", &[])])).is_empty());
    let spanning = PoolInput { range: None, name: None, kind: Some(PoolKind::Static), draining: None };
    let network = net(&[SubnetInput { pools: Some(vec![spanning]), ..subnet_input("10.0.0.0/24") }]);
    assert_eq!(network.subnets()[0].pools[0].kind, PoolKind::Static);
    assert_eq!(pools_of(&network), ["10.0.0.0-10.0.0.255"]);
}

#[test]
fn a_pool_lies_inside_one_subnet_and_overlaps_no_other() {
    let network = net(&[with_pools("10.0.0.0/24", &["10.0.0.10-10.0.0.20"]), with_pools("10.0.1.0/24", &[])]);
    for outside in ["10.0.0.250-10.0.1.5", "192.0.2.0/25", "9.255.255.0-10.0.0.5", "2001:db8::/64"] {
        assert_refused!(&network, pool_add(outside), Refusal::OutOfRange { .. });
    }
    for overlapping in ["10.0.0.20-10.0.0.30", "10.0.0.0/24", "10.0.0.15", "10.0.0.10-10.0.0.20"] {
        assert_refused!(&network, pool_add(overlapping),
            Refusal::PoolOverlap { asked, with, .. } if asked == range(overlapping) && with == range("10.0.0.10-10.0.0.20"));
    }
    let (network, outcome) = change(&network, &pool_add("web=10.0.0.21-10.0.0.30")).unwrap();
    assert_eq!(pools_of(&network), ["10.0.0.10-10.0.0.20", "web=10.0.0.21-10.0.0.30"]);
    let Outcome::Pool { index, created, .. } = outcome else { panic!() };
    assert_eq!((index, created), (1, true));
    assert_refused!(
        &network,
        add(with_pools("10.0.2.0/24", &["10.0.2.0/25", "10.0.2.100-10.0.2.200"])),
        Refusal::PoolOverlap { .. }
    );
    assert_refused!(&network, add(with_pools("10.0.2.0/24", &["10.0.3.0/25"])), Refusal::OutOfRange { .. });
}

#[test]
fn a_pool_is_added_by_range_or_for_a_whole_subnet() {
    let network = net(&[with_pools("10.0.0.0/24", &[])]);
    let whole = PoolInput { range: None, name: None, kind: None, draining: Some(true) };
    let add = |input: &PoolInput, subnet: Option<&str>| Configure::PoolAdd {
        input: input.clone(),
        subnet: subnet.map(by_cidr),
        if_absent: false,
    };
    assert_refused!(&network, add(&whole, None), Refusal::InvalidArgument { field, .. } if field == "range");
    let both = PoolInput { range: Some(range("10.0.0.0/25")), ..whole.clone() };
    assert_refused!(&network, add(&both, Some("10.0.0.0/24")), Refusal::InvalidArgument { .. });
    assert_refused!(&network, add(&whole, Some("10.0.9.0/24")), Refusal::NotFound { missing: Missing::Subnet, .. });
    let network = changed(&network, &add(&whole, Some("10.0.0.0/24")));
    assert_eq!(pools_of(&network), ["10.0.0.0-10.0.0.255"]);
    assert!(network.subnets()[0].pools[0].draining);
}

#[test]
fn if_absent_answers_an_equal_pool_and_refuses_a_differing_one() {
    let network = net(&[with_pools("10.0.0.0/24", &["web=10.0.0.0/25"])]);
    let add = |input: PoolInput| Configure::PoolAdd { input, subnet: None, if_absent: true };
    let (_, outcome) = change(&network, &add(pool_input("10.0.0.0/25"))).unwrap();
    assert!(matches!(outcome, Outcome::Pool { created: false, index: 0, .. }));
    let other = PoolInput { kind: Some(PoolKind::Static), draining: Some(true), ..pool_input("db=10.0.0.0/25") };
    assert_refused!(&network, add(other),
        Refusal::NameTaken { differs, .. } if differs == ["name", "kind", "draining"]);
    assert_refused!(&network, add(pool_input("10.0.0.0/26")), Refusal::PoolOverlap { .. });
    let (_, outcome) = change(&network, &add(pool_input("10.0.0.128/25"))).unwrap();
    assert!(matches!(outcome, Outcome::Pool { created: true, .. }));
}

#[test]
fn a_pool_moves_within_its_subnet() {
    let network = net(&[with_pools("10.0.0.0/24", &["web=10.0.0.0/26", "10.0.0.64/26"]), subnet_input("10.0.1.0/24")]);
    let to = |text| pool_modify(by_name("web"), to_range(text));
    let (network, outcome) = change(&network, &to("10.0.0.10-10.0.0.63")).unwrap();
    assert!(matches!(outcome, Outcome::Pool { index: 0, created: false, .. }));
    assert_eq!(pools_of(&network)[0], "web=10.0.0.10-10.0.0.63");
    assert_refused!(&network, to("10.0.0.10-10.0.0.64"), Refusal::PoolOverlap { with, .. } if with == range("10.0.0.64/26"));
    for outside in ["10.0.1.0/26", "10.0.0.200-10.0.1.3", "2001:db8::1"] {
        assert_refused!(&network, to(outside), Refusal::OutOfRange { .. });
    }
}

#[test]
fn pool_modify_sets_and_clears() {
    let network = net(&[with_pools("10.0.0.0/24", &["web=10.0.0.0/26"])]);
    let set = PoolPatch { kind: Patch::Set(PoolKind::Static), draining: Patch::Set(true), ..PoolPatch::default() };
    let network = changed(&network, &pool_modify(by_name("web"), set));
    let pool = &network.subnets()[0].pools[0];
    assert_eq!((pool.kind, pool.draining), (PoolKind::Static, true));
    let set = PoolPatch { kind: Patch::Clear, draining: Patch::Clear, name: Patch::Clear, range: None };
    let network = changed(&network, &pool_modify(PoolRef::Range(range("10.0.0.0/26")), set));
    let pool = &network.subnets()[0].pools[0];
    assert_eq!((pool.kind, pool.draining, &pool.name), (PoolKind::Dynamic, false, &None));
}

#[test]
fn a_name_that_several_pools_share_cannot_be_modified() {
    let network = net(&[with_pools("10.0.0.0/24", &["web=10.0.0.0/26", "web=10.0.0.64/26"])]);
    let set = PoolPatch { draining: Patch::Set(true), ..PoolPatch::default() };
    assert_refused!(&network, pool_modify(by_name("web"), set.clone()),
        Refusal::InvalidArgument { field, .. } if field == "pool");
    for unknown in [by_name("db"), PoolRef::Range(range("10.0.0.0/25"))] {
        assert_refused!(&network, pool_modify(unknown, set.clone()), Refusal::NotFound { missing: Missing::Pool, .. });
    }
    changed(&network, &pool_modify(PoolRef::Range(range("10.0.0.64/26")), set));
}

/// The example in Ganeti's design: 10-100 minus 20-50.
#[test]
fn removing_the_middle_splits_a_pool_in_place_and_both_parts_are_as_it_was() {
    let draining =
        PoolInput { kind: Some(PoolKind::Static), draining: Some(true), ..pool_input("web=10.0.0.10-10.0.0.100") };
    let pools = vec![pool_input("a=10.0.0.0-10.0.0.9"), draining, pool_input("b=10.0.0.200-10.0.0.210")];
    let network = net(&[SubnetInput { pools: Some(pools), ..subnet_input("10.0.0.0/24") }]);
    let network = changed(&network, &remove_range("10.0.0.20-10.0.0.50"));
    let expected =
        ["a=10.0.0.0-10.0.0.9", "web=10.0.0.10-10.0.0.19", "web=10.0.0.51-10.0.0.100", "b=10.0.0.200-10.0.0.210"];
    assert_eq!(pools_of(&network), expected);
    for part in &network.subnets()[0].pools[1..3] {
        assert_eq!((part.kind, part.draining), (PoolKind::Static, true));
    }
}

#[test]
fn pools_are_removed_by_range_name_or_subnet() {
    let network = net(&[
        with_pools("10.0.0.0/24", &["web=10.0.0.0/26", "db=10.0.0.64/26", "web=10.0.0.128/26"]),
        with_pools("10.0.1.0/24", &["web=10.0.1.0/24"]),
        with_pools("10.0.2.0/24", &[]),
    ]);
    let remove = Configure::PoolRemove;
    let cases = [
        (PoolRemoval::Pool(by_name("web")), &["db=10.0.0.64-10.0.0.127"][..]),
        (
            PoolRemoval::Pool(PoolRef::Range(range("10.0.0.64/26"))),
            &["web=10.0.0.0-10.0.0.63", "web=10.0.0.128-10.0.0.191", "web=10.0.1.0-10.0.1.255"],
        ),
        (PoolRemoval::Subnet(by_cidr("10.0.0.0/24")), &["web=10.0.1.0-10.0.1.255"]),
        (
            PoolRemoval::Range(range("10.0.0.100-10.0.1.127")),
            &["web=10.0.0.0-10.0.0.63", "db=10.0.0.64-10.0.0.99", "web=10.0.1.128-10.0.1.255"],
        ),
    ];
    for (removal, expected) in cases {
        assert_eq!(pools_of(&changed(&network, &remove(removal.clone()))), expected, "{removal:?}");
    }
    for nothing in [
        PoolRemoval::Pool(by_name("x")),
        PoolRemoval::Pool(PoolRef::Range(range("10.0.0.0/27"))),
        PoolRemoval::Subnet(by_cidr("10.0.2.0/24")),
        PoolRemoval::Range(range("10.0.0.192/26")),
        PoolRemoval::Range(range("192.0.2.0/24")),
    ] {
        assert_refused!(&network, remove(nothing.clone()), Refusal::NotFound { missing: Missing::Pool, .. });
    }
    assert_refused!(
        &network,
        remove(PoolRemoval::Subnet(by_cidr("10.9.0.0/24"))),
        Refusal::NotFound { missing: Missing::Subnet, .. }
    );
}

#[test]
fn removing_a_pool_takes_nothing_from_its_holders_and_is_remembered() {
    let network = held(&net(&[with_pools("10.0.0.0/24", &["web=10.0.0.0/26"])]), "10.0.0.5", "web/0");
    let until = network.next_generation();
    let network = changed(&network, &Configure::PoolRemove(PoolRemoval::Pool(by_name("web"))));
    assert_eq!(network.reservations(), 1);
    let remembered = PastPool { range: range("10.0.0.0/26"), name: Some(name("web")), since: Generation(0), until };
    assert_eq!(past_of(&network), [remembered]);
}

#[test]
fn a_pool_is_remembered_only_while_something_is_held_in_it() {
    let network = net(&[with_pools("10.0.0.0/24", &["web=10.0.0.0/26"])]);
    let renamed = PoolPatch { name: Patch::Set(name("db")), ..PoolPatch::default() };
    let empty = changed(&network, &pool_modify(by_name("web"), renamed.clone()));
    assert!(past_of(&empty).is_empty());
    let network = held(&network, "10.0.0.5", "web/0");
    let network = changed(&network, &pool_modify(by_name("web"), renamed));
    assert_eq!(past_of(&network).len(), 1);
    // Nobody holds anything there any more, which the next change of pools notices.
    let subnets = network.subnets().to_vec();
    let network = of_parts(Arc::clone(network.config()), subnets, Vec::new(), network.next_generation());
    let as_it_is = PoolPatch { draining: Patch::Set(false), ..PoolPatch::default() };
    let same = changed(&network, &pool_modify(by_name("db"), as_it_is));
    assert_eq!(same.config().version, network.config().version, "what changes nothing does not notice");
    assert!(past_of(&changed(&network, &pool_add("10.0.0.128/26"))).is_empty());
}

#[test]
fn since_rises_with_range_or_name_and_stays_with_kind_or_draining() {
    let network = held(&net(&[with_pools("10.0.0.0/24", &["a=10.0.0.0/26", "b=10.0.0.64/26"])]), "10.0.0.5", "web");
    let now = network.next_generation();
    let since = |network: &Network| network.subnets()[0].pools.iter().map(|pool| pool.since).collect::<Vec<_>>();
    assert_eq!(since(&network), [Generation(0), Generation(0)]);
    let drain = PoolPatch {
        draining: Patch::Set(true),
        kind: Patch::Set(PoolKind::Static),
        name: Patch::Set(name("a")),
        range: None,
    };
    let drained = changed(&network, &pool_modify(by_name("a"), drain));
    assert_eq!(since(&drained), [Generation(0), Generation(0)]);
    assert!(past_of(&drained).is_empty());
    let grown = changed(&network, &pool_modify(by_name("a"), to_range("10.0.0.0-10.0.0.62")));
    assert_eq!(since(&grown), [now, Generation(0)]);
    assert_eq!(past_of(&grown).len(), 1);
    // Changed again before anything was granted in it, so there is nothing to remember of the time between.
    let again = changed(&grown, &pool_modify(by_name("a"), to_range("10.0.0.0-10.0.0.61")));
    assert_eq!(past_of(&again), past_of(&grown));
}

#[test]
fn the_oldest_of_many_past_pools_are_forgotten() {
    let mut network = net(&[with_pools("10.0.0.0/16", &["p=10.0.0.0/20"])]);
    network = held(&network, "10.0.0.5", "web");
    for n in 0..limits::PAST_POOLS_MAX + 3 {
        network = held(&network, &format!("10.0.{}.{}", 1 + n / 200, 1 + n % 200), &format!("o{n}"));
        let renamed = PoolPatch { name: Patch::Set(name(&format!("p{n}"))), ..PoolPatch::default() };
        let pool = PoolRef::Range(range("10.0.0.0/20"));
        network = changed(&network, &pool_modify(pool, renamed));
    }
    let past = past_of(&network);
    assert_eq!(past.len(), limits::PAST_POOLS_MAX);
    assert_eq!(past[0].name, Some(name("p2")), "p, p0 and p1 are forgotten");
}

#[test]
fn a_split_that_makes_too_many_pools_is_refused() {
    let single = |n: usize| PoolInput {
        range: Some(Range::of_bits(Family::V4, 0x0a00_0000 + 4 * n as u128, 0x0a00_0002 + 4 * n as u128)),
        ..pool_input("10.0.0.0")
    };
    let pools = (0..limits::POOLS_MAX).map(single).collect();
    let network = loaded(
        &create(
            &network_input(&[SubnetInput { pools: Some(pools), ..subnet_input("10.0.0.0/8") }]),
            NetworkId(1),
            ctx(1),
        )
        .unwrap()
        .steps,
    );
    assert_refused!(&network, remove_range("10.0.0.1"), Refusal::InvalidArgument { problem, .. } if problem.contains("16385 pools"));
    assert!(decide(&network, &remove_range("10.0.0.0")).is_ok());
    assert_refused!(&network, pool_add("10.9.0.0"), Refusal::InvalidArgument { .. });
}

proptest! {
    /// Former pools overlap, so whatever cools before the first reservation in each would be looked at once per pool.
    #[test]
    fn of_ranges_that_lie_over_each_other_nothing_is_looked_at_twice_in_vain(
        asked in proptest::collection::vec((0u128..200, 0u128..200), 0..12),
        held in proptest::collection::btree_set(0u128..400, 0..6),
    ) {
        let range_of = |(first, size): (u128, u128)| Range::of_bits(Family::V4, first, first + size);
        let ranges: Vec<Range> = asked.into_iter().map(range_of).collect();
        let first_in = |range: Range| held.range(range.first().bits()..=range.last().bits()).next().copied();
        let mut looks = vec![0; 400];
        let hold = which_hold(&ranges, |range| {
            let found = first_in(range);
            let in_vain = range.first().bits()..found.unwrap_or(range.last().bits() + 1);
            in_vain.for_each(|bits| looks[bits as usize] += 1);
            found.map(|bits| Address::new(Family::V4, bits))
        });
        let by_itself: Vec<bool> = ranges.iter().map(|range| first_in(*range).is_some()).collect();
        prop_assert_eq!(hold, by_itself);
        prop_assert!(looks.iter().all(|times| *times <= 1), "{:?}", looks);
    }
}
