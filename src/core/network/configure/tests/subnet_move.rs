//! `subnet.move`: out of one network and into another.

use super::*;
use crate::core::command::Moved;
use crate::core::state::{Declined, Details, Lease, NetworkKind, Obsolete};
use crate::core::types::Mac;

fn other(subnets: &[SubnetInput]) -> Network {
    let input = NetworkInput { name: name("other"), ..network_input(subnets) };
    loaded(&create(&input, NetworkId(8), ctx(8)).unwrap().steps)
}

fn moved_out(network: &Network, subnet: &str) -> (Network, Moved) {
    let Decision { steps, outcome } =
        network.decide_move_out(&by_cidr(subnet), None, Some(usize::MAX), ctx(1).now).unwrap();
    assert_step_rules(network, &steps);
    let Outcome::MovedOut(moved) = outcome else { panic!() };
    (after(network, &steps).unwrap(), *moved)
}

fn moved_in(network: &Network, moved: &Moved) -> Result<Network, Refusal> {
    moved_in_at(network, moved, ctx(1).now)
}

fn moved_in_at(network: &Network, moved: &Moved, now: ShardTime) -> Result<Network, Refusal> {
    let Decision { steps, outcome } = network.decide_move_in(moved, Context { now, ..ctx(1) })?;
    assert_step_rules(network, &steps);
    assert!(matches!(outcome, Outcome::Subnet { .. }));
    let next = after(network, &steps).unwrap();
    assert_sound(&next);
    Ok(next)
}

#[test]
fn everything_in_a_subnet_moves_with_it_and_keeps_its_identity() {
    let input = SubnetInput { name: Some(name("a")), ..with_pools("10.0.0.0/24", &["web=10.0.0.0/25"]) };
    let network = held(&net(&[input, subnet_input("10.0.1.0/24")]), "10.0.0.5", "web");
    let network = cooling(&held(&network, "10.0.1.5", "db"), "10.0.0.6");
    let network = changed(&network, &reserve("10.0.0.200-10.0.0.210"));
    let (source, moved) = moved_out(&network, "10.0.0.0/24");
    assert_eq!((source.subnets().len(), source.reservations()), (1, 1));
    let target = moved_in(&other(&[subnet_input("10.5.0.0/24")]), &moved).unwrap();
    let (before, arrived) = (&network.subnets()[0], &target.subnets()[1]);
    assert_eq!((arrived.id, &arrived.name), (before.id, &before.name));
    assert_eq!(pools_of(&target)[1..], pools_of(&network)[..1]);
    assert_eq!(arrived.reserved, before.reserved);
    assert_eq!((arrived.position, arrived.version), (1, Version(2)));
    assert_eq!(all_entries(&target), moved.entries, "generations included");
    assert_eq!(target.next_generation(), network.next_generation());
}

/// What is left of the lease at .5, how long .6 has cooled, and what is left of the probation of .7, in milliseconds.
fn times(network: &Network, now: ShardTime) -> (u64, u64, u64) {
    let entries = all_entries(network);
    let at = |at: &str| &entries.iter().find(|(found, _)| *found == address(at)).unwrap().1;
    let (Entry::Held(held), Entry::Released(released), Entry::Declined(declined)) =
        (at("10.0.0.5"), at("10.0.0.6"), at("10.0.0.7"))
    else {
        panic!("{entries:?}")
    };
    let lease = held.lease.unwrap();
    (lease.ends.0 - now.0, now.0 - released.released_at.0, declined.until.0 - now.0)
}

#[test]
fn no_lease_no_cooldown_and_no_probation_ends_early_where_the_shards_times_are_apart() {
    let network = put(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", |generation, prefix_length| {
        let lease = Some(Lease { ends: ShardTime(61_000), ttl_seconds: 60.try_into().unwrap() });
        let held = Reservation::plain(slot("web"), generation, prefix_length, WallTime(5));
        Entry::Held(Arc::new(Reservation { lease, ..held }))
    });
    let network = put(&cooling(&network, "10.0.0.6"), "10.0.0.7", |generation, prefix_length| {
        let (by, until) = (slot("who"), ShardTime(31_000));
        Entry::Declined(Arc::new(Declined { prefix_length, by, generation, until, seen: "x".into(), promise: None }))
    });
    let here = ctx(1).now;
    assert_eq!(times(&network, here), (60_000, 999, 30_000));
    let (_, moved) = moved_out(&network, "10.0.0.0/24");
    let target = other(&[subnet_input("10.5.0.0/24")]);
    for there in [ShardTime(999), here, ShardTime(86_400_000)] {
        let arrived = moved_in_at(&target, &moved, there).unwrap();
        assert_eq!(times(&arrived, there), (60_000, 999, 30_000), "{there:?}");
    }
    // In a shard that is younger than the cooldown already is, the address cools for longer; the rest is as before.
    let there = ShardTime(400);
    assert_eq!(times(&moved_in_at(&target, &moved, there).unwrap(), there), (60_000, 400, 30_000));
}

#[test]
fn a_slot_that_is_taken_in_both_stops_the_move() {
    let source = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web");
    let target = held(&other(&[subnet_input("10.5.0.0/24")]), "10.5.0.9", "web");
    let (_, moved) = moved_out(&source, "10.0.0.0/24");
    let refused = moved_in(&target, &moved).unwrap_err();
    assert!(matches!(refused, Refusal::SlotTaken { address: at, .. } if at == address("10.5.0.9")), "{refused:?}");
}

#[test]
fn an_obsolete_reservation_takes_no_slot() {
    let source = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web");
    let target = held(&other(&[subnet_input("10.5.0.0/24")]), "10.5.0.9", "web");
    let (_, mut moved) = moved_out(&source, "10.0.0.0/24");
    let Entry::Held(reservation) = &mut moved.entries[0].1 else { panic!() };
    Arc::make_mut(reservation).obsolete = Some(Box::new(Obsolete { since: WallTime(1), plan: 1 }));
    moved_in(&target, &moved).unwrap();
}

#[test]
fn the_target_judges_a_subnet_as_if_it_were_added() {
    let dhcp = |prefix| SubnetInput { dhcp: Some(true), name: Some(name("a")), ..subnet_input(prefix) };
    let (_, moved) = moved_out(&net(&[dhcp("10.0.0.0/24")]), "10.0.0.0/24");
    let refused = |target: &Network| moved_in(target, &moved).unwrap_err();
    assert!(matches!(refused(&other(&[dhcp("10.5.0.0/24")])), Refusal::InvalidArgument { .. }));
    let named = SubnetInput { name: Some(name("a")), ..subnet_input("10.0.0.0/16") };
    assert!(matches!(refused(&other(&[named])), Refusal::NameTaken { .. }), "a taken name comes before an overlap");
    assert!(matches!(refused(&other(&[subnet_input("10.0.0.0/16")])), Refusal::Overlap { .. }));
    let gone = closed(&held(&other(&[subnet_input("10.5.0.0/24")]), "10.5.0.1", "web"));
    assert!(matches!(refused(&gone), Refusal::Guarded { .. }));
}

#[test]
fn a_move_out_names_an_existing_subnet_of_an_open_network_at_its_version() {
    let network = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web");
    let out = |network: &Network, subnet: &str, version| {
        network.decide_move_out(&by_cidr(subnet), version, Some(usize::MAX), ctx(1).now).unwrap_err()
    };
    assert!(matches!(out(&network, "10.9.0.0/24", Some(Version(9))), Refusal::NotFound { .. }));
    assert!(matches!(out(&network, "10.0.0.0/24", Some(Version(9))), Refusal::VersionConflict { .. }));
    assert!(matches!(out(&closed(&network), "10.0.0.0/24", None), Refusal::Guarded { .. }));
}

/// A subnet was removed while something cooled in it. The step that puts an arriving entry there must expect that.
#[test]
fn what_still_cools_in_the_target_makes_way_where_something_arrives() {
    let (_, moved) = moved_out(&held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web"), "10.0.0.0/24");
    let target = cooling(&cooling(&other(&[]), "10.0.0.4/31"), "10.0.0.77");
    let target = moved_in(&target, &moved).unwrap();
    let there = all_entries(&target);
    // The other half of the block goes on cooling.
    let places: Vec<_> = there.iter().map(|(at, entry)| (at.to_string(), entry.prefix_length())).collect();
    assert_eq!(places, [("10.0.0.4".into(), 32), ("10.0.0.5".into(), 32), ("10.0.0.77".into(), 32)]);
    assert_eq!(there[1], moved.entries[0]);
    assert!(matches!(there[0].1, Entry::Released(_)));
}

#[test]
fn generations_go_along_although_nothing_is_held() {
    for pools in [None, Some(vec![])] {
        let subnet = SubnetInput { pools, ..subnet_input("10.0.0.0/24") };
        let source = net(&[subnet]);
        let source = of_parts(Arc::clone(source.config()), source.subnets().to_vec(), vec![], Generation(900));
        let (_, moved) = moved_out(&source, "10.0.0.0/24");
        let target = moved_in(&other(&[]), &moved).unwrap();
        assert_eq!(
            target.next_generation(),
            Generation(900),
            "an earlier holding of an address is never taken for a later"
        );
    }
}

#[test]
fn a_dynamic_network_takes_no_subnet() {
    let (_, moved) = moved_out(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.0/24");
    let dynamic = NetworkInput { kind: Some(NetworkKind::Dynamic), ..network_input(&[]) };
    let dynamic = loaded(&create(&dynamic, NetworkId(8), ctx(8)).unwrap().steps);
    assert!(matches!(moved_in(&dynamic, &moved).unwrap_err(), Refusal::WrongKind { .. }));
    assert_refused!(&dynamic, add(subnet_input("10.0.0.0/24")), Refusal::WrongKind { .. });
    let with_subnet =
        NetworkInput { kind: Some(NetworkKind::Dynamic), ..network_input(&[subnet_input("10.0.0.0/24")]) };
    assert!(matches!(create(&with_subnet, NetworkId(8), ctx(8)).unwrap_err(), Refusal::WrongKind { .. }));
}

#[test]
fn a_mac_that_is_carried_in_both_stops_the_move() {
    let with_mac = |network: Network| {
        let mut entries = all_entries(&network);
        let Entry::Held(reservation) = &mut entries[0].1 else { panic!() };
        Arc::make_mut(reservation).details = Some(Box::new(Details { mac: Some(Mac(5)), ..Details::default() }));
        of_parts(Arc::clone(network.config()), network.subnets().to_vec(), entries, network.next_generation())
    };
    let source = with_mac(held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web"));
    let target = with_mac(held(&other(&[subnet_input("10.5.0.0/24")]), "10.5.0.9", "db"));
    let (_, moved) = moved_out(&source, "10.0.0.0/24");
    assert!(matches!(moved_in(&target, &moved).unwrap_err(), Refusal::Taken { .. }));
}

#[test]
fn nothing_of_what_lies_in_a_subnet_is_collected_where_it_is_only_judged() {
    let network = held(&net(&[subnet_input("10.0.0.0/24"), subnet_input("10.0.1.0/24")]), "10.0.0.5", "web");
    let judged = |version, bytes_max| network.decide_move_out(&by_cidr("10.0.0.0/24"), version, bytes_max, ctx(1).now);
    let Decision { steps, outcome: Outcome::MovedOut(bare) } = judged(None, None).unwrap() else { panic!() };
    assert_eq!((bare.entries.len(), bare.subnet.id), (0, network.subnets()[0].id));
    assert!(steps.iter().all(|step| !matches!(step.key, Key::Address(_))), "{steps:?}");
    let late = judged(Some(Version(9)), None).unwrap_err();
    assert_eq!(late, judged(Some(Version(9)), Some(usize::MAX)).unwrap_err());
}

#[test]
fn what_is_too_much_to_move_is_counted_and_not_copied() {
    let owners = ["web", "db", "mail"];
    let network = net(&[subnet_input("10.0.0.0/24")]);
    let network = owners
        .iter()
        .enumerate()
        .fold(network, |network, (n, owner)| held(&network, &format!("10.0.0.{}", 5 + n), owner));
    let out =
        |version, bytes_max| network.decide_move_out(&by_cidr("10.0.0.0/24"), version, Some(bytes_max), ctx(1).now);
    let refused = out(None, 64).unwrap_err();
    let Refusal::TooMuchToMove { count, first, bytes, bytes_max, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((*count, first.len(), *bytes_max), (3, 3, 64));
    assert!(out(None, *bytes).is_ok(), "by no more than what it takes at least");
    assert!(matches!(out(Some(Version(9)), 64).unwrap_err(), Refusal::VersionConflict { .. }));
}
