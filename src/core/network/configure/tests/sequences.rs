//! Random sequences of changes: the configuration stays sound whatever is asked, in whatever order.

use proptest::prelude::*;

use super::*;
use crate::core::state::PoolKind;

/// Few addresses, so that everything meets everything: 10.0.0.0/26 and 2001:db8::/122.
fn an_address(family: Family) -> impl Strategy<Value = Address> {
    (0u32..64).prop_map(move |n| match family {
        Family::V4 => Address::V4(0x0a00_0000 + n),
        Family::V6 => Address::V6((0x2001_0db8 << 96) + u128::from(n)),
    })
}

fn a_family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::V4), Just(Family::V6)]
}

fn a_cidr() -> impl Strategy<Value = Cidr> {
    a_family()
        .prop_flat_map(|family| (an_address(family), 0u8..=6))
        .prop_map(|(at, host_bits)| Cidr::containing(at, at.family().width() - host_bits))
}

/// Mostly short ranges, so that many fit next to each other.
fn a_range() -> impl Strategy<Value = Range> {
    let length = prop_oneof![6 => 0u128..10, 1 => 0u128..64];
    (a_family().prop_flat_map(an_address), length).prop_map(|(first, length)| {
        let end = first.bits() | 0x3f;
        Range::of_bits(first.family(), first.bits(), (first.bits() + length).min(end))
    })
}

fn a_name() -> impl Strategy<Value = Option<Name>> {
    prop_oneof![Just(None), Just(Some(name("a"))), Just(Some(name("b")))]
}

fn a_pool() -> impl Strategy<Value = PoolInput> {
    (a_range(), a_name(), any::<bool>()).prop_map(|(range, name, is_static)| PoolInput {
        range: Some(range),
        name,
        kind: is_static.then_some(PoolKind::Static),
        draining: None,
    })
}

fn a_reserved_range() -> impl Strategy<Value = ReservedInput> {
    (a_range(), prop_oneof![Just(""), Just("a"), Just("b")]).prop_map(|(range, note)| ReservedInput {
        range,
        note: note.into(),
        reserved_for: None,
    })
}

fn a_patch<T: std::fmt::Debug + Clone>(set: impl Strategy<Value = T>) -> impl Strategy<Value = Patch<T>> {
    prop_oneof![4 => Just(()).prop_map(|()| Patch::Keep), 1 => Just(()).prop_map(|()| Patch::Clear), 2 => set.prop_map(Patch::Set)]
}

fn a_subnet() -> impl Strategy<Value = SubnetInput> {
    let pools = proptest::option::weighted(0.3, proptest::collection::vec(a_pool(), 0..3));
    (a_cidr(), a_name(), any::<bool>(), pools, proptest::collection::vec(a_reserved_range(), 0..2)).prop_map(
        |(cidr, name, dhcp, pools, reserved)| SubnetInput {
            cidr,
            name,
            dhcp: Some(dhcp),
            pools,
            reserved: Some(reserved),
            ..subnet_input("10.0.0.0/24")
        },
    )
}

fn a_subnet_patch() -> impl Strategy<Value = SubnetPatch> {
    let gateway = a_patch(a_family().prop_flat_map(an_address));
    let pools = a_patch(proptest::collection::vec(a_pool(), 0..3));
    (proptest::option::of(a_cidr()), gateway, a_patch(any::<bool>()), pools)
        .prop_map(|(cidr, gateway, dhcp, pools)| SubnetPatch { cidr, gateway, dhcp, pools, ..SubnetPatch::default() })
}

#[derive(Debug, Clone)]
enum Act {
    /// The number picks an existing subnet or pool, for acts that leave it open.
    Configure(Configure, usize),
    Hold(Address),
}

/// A subnet or pool that is chosen when the sequence runs.
const CHOSEN_LATER: &str = "chosen-later";

fn a_change() -> impl Strategy<Value = Configure> {
    let subnet =
        || prop_oneof![1 => a_cidr().prop_map(SubnetRef::Cidr), 4 => Just(SubnetRef::Named(CHOSEN_LATER.into()))];
    let pool = || {
        let names = prop_oneof![Just(name("a")), Just(name("b")), Just(name(CHOSEN_LATER)), Just(name(CHOSEN_LATER))];
        prop_oneof![1 => a_range().prop_map(PoolRef::Range), 4 => names.prop_map(PoolRef::Named)]
    };
    let pool_patch = (proptest::option::of(a_range()), a_patch(Just(name("b"))), a_patch(any::<bool>()))
        .prop_map(|(range, name, draining)| PoolPatch { range, name, draining, ..PoolPatch::default() });
    prop_oneof![
        4 => (a_subnet(), any::<bool>()).prop_map(|(input, if_absent)| Configure::SubnetAdd { input: Box::new(input), if_absent }),
        6 => (subnet(), a_subnet_patch()).prop_map(|(subnet, set)| Configure::SubnetModify { subnet, set: Box::new(set) }),
        1 => subnet().prop_map(|subnet| Configure::SubnetRemove { subnet }),
        4 => (a_pool(), any::<bool>()).prop_map(|(input, if_absent)| Configure::PoolAdd { input, subnet: None, if_absent }),
        4 => (pool(), pool_patch).prop_map(|(pool, set)| Configure::PoolModify { pool, set: Box::new(set) }),
        4 => a_range().prop_map(|range| Configure::PoolRemove(PoolRemoval::Range(range))),
        1 => pool().prop_map(|pool| Configure::PoolRemove(PoolRemoval::Pool(pool))),
        5 => a_reserved_range().prop_map(|input| Configure::ReservedAdd(Box::new(input))),
        3 => a_range().prop_map(|range| Configure::ReservedRemove { range, reserved_for: None }),
    ]
}

fn an_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => a_family().prop_flat_map(an_address).prop_map(Act::Hold),
        10 => (a_change(), 0usize..64).prop_map(|(change, number)| Act::Configure(change, number)),
    ]
}

/// Replaces an open choice by a subnet or pool that exists.
fn aimed(network: &Network, act: Configure, number: usize) -> Configure {
    let pools: Vec<Range> =
        network.subnets().iter().flat_map(|subnet| subnet.pools.iter().map(|pool| pool.range)).collect();
    let cidr = network.subnets().get(number % network.subnets().len().max(1)).map(|subnet| subnet.cidr);
    let chosen = |subnet: SubnetRef| match (&subnet, cidr) {
        (SubnetRef::Named(_), Some(cidr)) => SubnetRef::Cidr(cidr),
        _ => subnet,
    };
    let chosen_pool = |pool: PoolRef| match (&pool, pools.get(number % pools.len().max(1))) {
        (PoolRef::Named(named), Some(range)) if named.as_str() == CHOSEN_LATER => PoolRef::Range(*range),
        _ => pool,
    };
    match act {
        Configure::SubnetModify { subnet, set } => Configure::SubnetModify { subnet: chosen(subnet), set },
        Configure::SubnetRemove { subnet } => Configure::SubnetRemove { subnet: chosen(subnet) },
        Configure::PoolModify { pool, set } => Configure::PoolModify { pool: chosen_pool(pool), set },
        Configure::PoolRemove(PoolRemoval::Pool(pool)) => Configure::PoolRemove(PoolRemoval::Pool(chosen_pool(pool))),
        other => other,
    }
}

/// Could a grant have given this address? It must lie inside a subnet, be free, and not be unusable.
fn is_grantable(network: &Network, at: Address) -> bool {
    let Some(subnet) = network.subnet_of(at) else { return false };
    let unusable = crate::core::unusable::edges(subnet.cidr).any(|(edge, _)| edge == at);
    !unusable && subnet.gateway != Some(at) && network.standing_in(Range::single(at)).count == 0
}

/// The reserved addresses one by one, with their notes: merging and splitting must preserve these.
fn notes(network: &Network) -> Vec<(Address, CompactString)> {
    let all = network.subnets().iter().flat_map(|subnet| &subnet.reserved);
    let mut notes: Vec<_> = all
        .flat_map(|reserved| {
            let mut next = Some(reserved.range.first());
            std::iter::from_fn(move || {
                let at = next.filter(|at| reserved.range.contains(*at))?;
                next = at.next();
                Some((at, reserved.note.clone()))
            })
        })
        .collect();
    notes.sort();
    notes
}

/// The reserved addresses, one by one, that are expected after a range was added: it forms one range with all that it overlaps.
fn with_reserved(network: &Network, input: &ReservedInput) -> Vec<(Address, CompactString)> {
    let mut joined: Vec<_> = network.subnets().iter().flat_map(|subnet| &subnet.reserved).collect();
    joined.retain(|old| old.range.overlaps(input.range));
    let first =
        joined.iter().map(|old| old.range.first()).min().unwrap_or(input.range.first()).min(input.range.first());
    let last = joined.iter().map(|old| old.range.last()).max().unwrap_or(input.range.last()).max(input.range.last());
    let older = joined.iter().map(|old| &old.note).find(|note| !note.is_empty());
    let note = if input.note.is_empty() { older.cloned().unwrap_or_default() } else { input.note.clone() };
    let mut all = notes(network);
    all.retain(|(at, _)| !(first..=last).contains(at));
    all.extend((first.bits()..=last.bits()).map(|bits| (Address::new(first.family(), bits), note.clone())));
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_sequence_of_changes_leaves_a_sound_network(acts in proptest::collection::vec(an_act(), 1..60)) {
        let mut network = net(&[subnet_input("10.0.0.0/27"), subnet_input("2001:db8::/124")]);
        for (number, act) in acts.into_iter().enumerate() {
            let act = match act {
                Act::Hold(at) => {
                    if is_grantable(&network, at) {
                        network = held(&network, &at.to_string(), &format!("o{number}"));
                    }
                    continue;
                }
                Act::Configure(act, number) => aimed(&network, act, number),
            };
            let Ok((next, _)) = change(&network, &act) else { continue };
            let moved_on = decide(&network, &act).unwrap().steps.len().min(1) as u64;
            prop_assert_eq!(next.config().version.0, network.config().version.0 + moved_on);
            prop_assert_eq!(next.reservations(), network.reservations(), "a change takes nothing from anybody");
            for (at, _) in all_entries(&next) {
                let home = next.subnet_of(at).expect("what is held lies in a subnet");
                prop_assert!(home.gateway != Some(at));
                prop_assert!(crate::core::unusable::edges(home.cidr).all(|(edge, _)| edge != at));
            }
            let mut expected = notes(&network);
            match &act {
                Configure::ReservedAdd(input) => expected = with_reserved(&network, input),
                Configure::ReservedRemove { range, .. } => expected.retain(|(at, _)| !range.contains(*at)),
                _ => {}
            }
            if matches!(act, Configure::ReservedAdd(_) | Configure::ReservedRemove { .. } | Configure::PoolAdd { .. }) {
                prop_assert_eq!(notes(&next), expected);
            }
            network = next;
        }
    }
}
