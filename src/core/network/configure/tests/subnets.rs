//! All subnets at once: which one an entry means, what may change hands, what stays, what is refused.

use super::*;
use crate::core::command::{DnsPatch, SubnetEntry};
use crate::core::state::{Dns, NetworkKind, ReservedFor};
use crate::core::types::SubnetId;

fn entry(prefix: &str) -> SubnetEntry {
    SubnetEntry { set: SubnetPatch { cidr: Some(cidr(prefix)), ..SubnetPatch::default() }, ..SubnetEntry::default() }
}

fn of_id(id: SubnetId) -> SubnetEntry {
    SubnetEntry { id: Some(id), ..SubnetEntry::default() }
}

fn called(entry: SubnetEntry, text: &str) -> SubnetEntry {
    SubnetEntry { set: SubnetPatch { name: Patch::Set(name(text)), ..entry.set }, ..entry }
}

fn serving_dhcp(entry: SubnetEntry, dhcp: bool) -> SubnetEntry {
    SubnetEntry { set: SubnetPatch { dhcp: Patch::Set(dhcp), ..entry.set }, ..entry }
}

fn pooled(entry: SubnetEntry, pools: &[&str]) -> SubnetEntry {
    let pools = Patch::Set(pools.iter().map(|pool| pool_input(pool)).collect());
    SubnetEntry { set: SubnetPatch { pools, ..entry.set }, ..entry }
}

fn draining(entry: SubnetEntry) -> SubnetEntry {
    SubnetEntry { set: SubnetPatch { draining: Patch::Set(true), ..entry.set }, ..entry }
}

fn reserving(entry: SubnetEntry, ranges: &[&str]) -> SubnetEntry {
    SubnetEntry { reserved: Some(ranges.iter().map(|range| reserved_input(range)).collect()), ..entry }
}

fn shall_have(entries: &[SubnetEntry]) -> Configure {
    update(NetworkPatch { subnets: Some(entries.to_vec()), ..NetworkPatch::default() })
}

fn named(prefix: &str, text: &str) -> SubnetInput {
    SubnetInput { name: Some(name(text)), ..subnet_input(prefix) }
}

/// `10.0.0.0/24 name dhcp`, in drawing order.
fn shown(network: &Network) -> Vec<String> {
    let show = |subnet: &Arc<SubnetConfig>| {
        let name = subnet.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        format!("{}{name}{}", subnet.cidr, if subnet.dhcp { " dhcp" } else { "" })
    };
    network.subnets().iter().map(show).collect()
}

fn ids(network: &Network) -> Vec<SubnetId> {
    network.subnets().iter().map(|subnet| subnet.id).collect()
}

const A: &str = "10.0.0.0/24";
const B: &str = "10.0.1.0/24";
const C: &str = "10.0.2.0/24";

#[test]
fn names_change_hands_between_subnets_in_one_change() {
    let network = net(&[named(A, "a"), named(B, "b")]);
    let swapped = changed(&network, &shall_have(&[called(entry(A), "b"), called(entry(B), "a")]));
    assert_eq!(shown(&swapped), ["10.0.0.0/24 b", "10.0.1.0/24 a"]);
    let freed = SubnetEntry { set: SubnetPatch { name: Patch::Clear, ..entry(A).set }, ..entry(A) };
    let given = changed(&network, &shall_have(&[freed, called(entry(C), "a"), called(entry(B), "b")]));
    assert_eq!(shown(&given), ["10.0.0.0/24", "10.0.1.0/24 b", "10.0.2.0/24 a"]);
    let kept = of_id(ids(&network)[0]);
    assert_refused!(&network, shall_have(&[kept, called(entry(B), "a")]), Refusal::NameTaken { what, .. } if what.contains("`a` (10.0.0.0/24)"));
}

#[test]
fn dhcp_goes_from_one_subnet_to_another_in_one_change() {
    let network = net(&[SubnetInput { dhcp: Some(true), ..subnet_input(A) }, subnet_input(B)]);
    let moved = changed(&network, &shall_have(&[serving_dhcp(entry(B), true), serving_dhcp(entry(A), false)]));
    assert_eq!(shown(&moved), ["10.0.0.0/24", "10.0.1.0/24 dhcp"]);
    // The subnet that already has it is not to blame, wherever it stands in the list.
    let kept = of_id(ids(&network)[0]);
    for entries in [[serving_dhcp(entry(B), true), kept.clone()], [kept, serving_dhcp(entry(B), true)]] {
        let at = entries.iter().position(|entry| entry.set.dhcp != Patch::Keep).unwrap();
        assert_refused!(&network, shall_have(&entries), Refusal::InvalidArgument { field, .. } if field == format!("set.subnets[{at}].dhcp"));
    }
}

#[test]
fn a_subnet_is_split_into_halves_and_joined_again() {
    let network = net(&[named(A, "a"), subnet_input(C)]);
    let network = held(&network, "10.0.0.9", "web");
    let halves = [called(entry("10.0.0.0/25"), "a"), entry("10.0.0.128/25"), entry(C)];
    let split = changed(&network, &shall_have(&halves));
    assert_eq!(shown(&split), ["10.0.0.0/25 a", "10.0.2.0/24", "10.0.0.128/25"]);
    assert_eq!(ids(&split)[..2], ids(&network)[..]);
    assert_eq!(pools_of(&split), ["10.0.0.0-10.0.0.127", "10.0.2.0-10.0.2.255", "10.0.0.128-10.0.0.255"]);
    let joined = changed(&split, &shall_have(&[called(entry(A), "a"), entry(C)]));
    assert_eq!(shown(&joined), ["10.0.0.0/24 a", "10.0.2.0/24"]);
    assert_eq!(ids(&joined), ids(&network));
}

#[test]
fn what_is_held_stays_in_its_subnet() {
    let network = held(&net(&[named(A, "a"), subnet_input(B)]), "10.0.0.200", "web");
    let halves = [called(entry("10.0.0.0/25"), "a"), entry("10.0.0.128/25"), entry(B)];
    assert_refused!(&network, shall_have(&halves), Refusal::InUse { count: 1, .. });
    assert_refused!(&network, shall_have(&[entry(B)]), Refusal::InUse { what, count: 1, .. } if what == "subnet 10.0.0.0/24 of network `lan`");
    changed(&network, &shall_have(&[entry(A)]));
}

#[test]
fn a_subnet_grows_into_the_space_of_one_that_goes_or_shrinks() {
    let network = net(&[named("10.0.0.0/25", "a"), named("10.0.0.128/25", "b")]);
    let grown = changed(&network, &shall_have(&[called(entry(A), "a")]));
    assert_eq!(shown(&grown), ["10.0.0.0/24 a"]);
    let network = net(&[named("10.0.0.0/26", "a"), named("10.0.0.128/25", "b"), named("10.0.0.64/26", "c")]);
    let exchanged = [called(entry("10.0.0.0/25"), "a"), called(entry("10.0.0.192/26"), "b")];
    assert_eq!(shown(&changed(&network, &shall_have(&exchanged))), ["10.0.0.0/25 a", "10.0.0.192/26 b"]);
    let greedy = [called(entry("10.0.0.0/24"), "a"), called(entry("10.0.0.192/26"), "b")];
    assert_refused!(&network, shall_have(&greedy), Refusal::Overlap { .. });
}

#[test]
fn subnets_that_stay_keep_ids_and_places_and_new_ones_come_behind() {
    let network = net(&[named(A, "a"), named(B, "b"), named(C, "c")]);
    let listed = [entry("10.0.9.0/24"), called(entry(C), "c"), of_id(ids(&network)[0]), entry("10.0.8.0/24")];
    let after = changed(&network, &shall_have(&listed));
    assert_eq!(shown(&after), ["10.0.0.0/24 a", "10.0.2.0/24 c", "10.0.9.0/24", "10.0.8.0/24"]);
    assert_eq!(ids(&after)[..2], [ids(&network)[0], ids(&network)[2]]);
    let versions: Vec<u64> = after.subnets().iter().map(|subnet| subnet.version.0).collect();
    assert_eq!(versions, [1, 1, 2, 2], "what did not change keeps its version");
}

#[test]
fn everything_is_one_change_with_one_event() {
    let network = held(&net(&[named(A, "a"), named(B, "b")]), "10.0.0.9", "web");
    let subnets = [pooled(reserving(called(entry(A), "a"), &["10.0.0.3"]), &["10.0.0.8/29"]), entry(C)];
    let set = NetworkPatch { name: Some(name("wan")), subnets: Some(subnets.to_vec()), ..NetworkPatch::default() };
    let Decision { steps, outcome } = decide(&network, &update(set)).unwrap();
    let events: Vec<EventKind> = steps.iter().filter_map(|step| step.event.as_ref()).map(|event| event.kind).collect();
    assert_eq!(events, [EventKind::NetworkChanged]);
    let Outcome::Network(view) = outcome else { panic!("{outcome:?}") };
    assert_eq!((view.config.name.as_str(), view.config.version, view.subnets.len()), ("wan", Version(2), 2));
    let after = after(&network, &steps).unwrap();
    assert_eq!(
        (shown(&after), reserved_of(&after)),
        (vec!["10.0.0.0/24 a".into(), C.into()], vec!["10.0.0.3-10.0.0.3".into()])
    );
}

#[test]
fn a_list_of_what_is_there_changes_nothing() {
    let network = net(&[with_pools(A, &["web=10.0.0.8/29", "10.0.0.64/26"]), subnet_input(B)]);
    let network = changed(&network, &reserve("printer=10.0.0.3"));
    let same = pooled(reserving(entry(A), &["printer=10.0.0.3"]), &["web=10.0.0.8/29", "10.0.0.64/26"]);
    let Decision { steps, outcome } = decide(&network, &shall_have(&[entry(B), same])).unwrap();
    assert_eq!(steps, []);
    assert!(matches!(outcome, Outcome::Network(view) if view.config.version == Version(2)));
    assert_refused!(&network, update(NetworkPatch::default()), Refusal::InvalidArgument { field, .. } if field == "set");
}

#[test]
fn an_entry_means_the_subnet_of_its_id_else_of_its_cidr_else_of_its_name() {
    let network = net(&[named(A, "a"), named(B, "b")]);
    let [a, b] = ids(&network)[..] else { panic!() };
    let by_id = SubnetEntry { id: Some(a), ..called(entry("10.0.4.0/24"), "b") };
    // No entry gives up `b`, so the first one would take it from the subnet that has it.
    assert_refused!(&network, shall_have(&[by_id.clone(), of_id(b)]), Refusal::NameTaken { .. });
    let renamed = SubnetEntry { id: Some(b), ..called(entry(A), "a") };
    let moved = changed(&network, &shall_have(&[by_id, renamed]));
    assert_eq!(shown(&moved), ["10.0.4.0/24 b", "10.0.0.0/24 a"]);
    assert_eq!(ids(&moved), [a, b], "an id is surer than a cidr or name");
    let by_name = changed(&network, &shall_have(&[called(entry("10.0.4.0/24"), "b"), called(entry(A), "z")]));
    assert_eq!((shown(&by_name), ids(&by_name)), (vec!["10.0.0.0/24 z".into(), "10.0.4.0/24 b".into()], vec![a, b]));
    let left = [SubnetEntry { id: Some(a), ..entry("10.0.4.0/24") }, entry(A), of_id(b)];
    assert_eq!(
        shown(&changed(&network, &shall_have(&left))),
        ["10.0.4.0/24 a", "10.0.1.0/24 b", "10.0.0.0/24"],
        "what was left is free for a new one"
    );
}

#[test]
fn an_entry_that_means_no_subnet_or_one_that_another_means_is_refused() {
    let network = net(&[named(A, "a"), named(B, "b")]);
    let a = ids(&network)[0];
    let elsewhere = SubnetId(99);
    assert_refused!(&network, shall_have(&[entry(A), of_id(elsewhere)]), Refusal::NotFound { missing: Missing::Subnet, what, hint: Some(hint) }
        if what == format!("`{elsewhere}`") && hint.contains("set.subnets[1].id"));
    let only_name = called(SubnetEntry::default(), "z");
    assert_refused!(&network, shall_have(&[entry(A), only_name]), Refusal::InvalidArgument { field, .. } if field == "set.subnets[1].cidr");
    let by_name = called(SubnetEntry::default(), "a");
    for twice in [
        [of_id(a), of_id(a)],
        [of_id(a), entry(A)],
        [entry(A), entry(A)],
        [called(entry(A), "a"), by_name.clone()],
        [called(entry(A), "a"), called(entry(C), "a")],
        [by_name.clone(), by_name],
        [called(entry(C), "a"), called(entry("10.0.3.0/24"), "a")],
    ] {
        assert_refused!(&network, shall_have(&twice), Refusal::InvalidArgument { field, problem }
            if field == "set.subnets[1]" && problem.contains("set.subnets[0]"));
    }
}

#[test]
fn a_refusal_names_the_member_of_the_entry() {
    let network = net(&[subnet_input(A), subnet_input("2001:db8::/64")]);
    let with = |set: SubnetPatch| SubnetEntry { set, ..SubnetEntry::default() };
    let of = |prefix: &str| entry(prefix).set;
    let gateway = |text: &str| Patch::Set(address(text));
    let servers = Patch::Set(vec![address("10.0.0.9"); limits::DNS_ENTRIES_MAX + 1]);
    for (wrong, expected) in [
        (with(SubnetPatch { gateway: gateway("10.0.1.0"), ..of(B) }), "set.subnets[1].gateway"),
        (entry("224.0.0.0/24"), "set.subnets[1].cidr"),
        (SubnetEntry { id: Some(ids(&network)[1]), ..entry(B) }, "set.subnets[1].cidr"),
        (
            with(SubnetPatch { dns: Patch::Set(DnsPatch { servers, ..DnsPatch::default() }), ..of(B) }),
            "set.subnets[1].dns.servers",
        ),
        (with(SubnetPatch { zones: Patch::Set(vec!["z".into(); 1]), ..of("0.0.0.0/0") }), "set.subnets[1].cidr"),
    ] {
        assert_refused!(&network, shall_have(&[entry(A), wrong.clone()]), Refusal::InvalidArgument { field, .. } if field == expected);
    }
    let outside = [
        (pooled(entry(A), &["10.0.1.0/29"]), "set.subnets[1].pools[0]"),
        (reserving(entry(A), &["10.0.0.3", "10.0.1.3"]), "set.subnets[1].reserved[1]"),
        (with(SubnetPatch { gateway: gateway("10.0.9.1"), ..of(A) }), "set.subnets[1].gateway"),
    ];
    for (wrong, expected) in outside {
        assert_refused!(&network, shall_have(&[entry("2001:db8::/64"), wrong.clone()]), Refusal::OutOfRange { problem, .. } if problem.contains(expected));
    }
}

#[test]
fn of_several_refusals_the_protocol_says_which_comes_first() {
    let network = held(&net(&[named(A, "a"), named(B, "b")]), "10.0.0.9", "web");
    let unknown = of_id(SubnetId(99));
    assert_refused!(&network, shall_have(&[entry(B), unknown.clone()]), Refusal::NotFound { .. });
    assert_refused!(
        &network,
        shall_have(&[unknown, called(SubnetEntry::default(), "z")]),
        Refusal::InvalidArgument { .. }
    );
    assert_refused!(&network, shall_have(&[entry(B), entry("10.0.1.0/25")]), Refusal::Overlap { .. });
    let stale = network.decide_configure(&shall_have(&[entry(B)]), Some(Version(9)), ctx(1)).unwrap_err();
    assert!(matches!(stale, Refusal::InUse { .. }), "{stale:?}");
    let stale = network.decide_configure(&shall_have(&[entry(A), entry(B)]), Some(Version(9)), ctx(1)).unwrap_err();
    assert!(matches!(stale, Refusal::VersionConflict { .. }), "{stale:?}");
    assert_refused!(&closed(&network), shall_have(&[entry(A), entry(B)]), Refusal::Guarded { .. });
}

#[test]
fn what_is_refused_is_refused_to_the_network_of_the_name_that_it_has() {
    let network = net(&[subnet_input(A)]);
    let overlapping = vec![entry(A), entry("10.0.0.0/25")];
    let set = NetworkPatch { name: Some(name("wan")), subnets: Some(overlapping), ..NetworkPatch::default() };
    assert_refused!(&network, update(set), Refusal::Overlap { network, .. } if network.as_str() == "lan");
}

#[test]
fn a_dynamic_network_takes_no_subnets_this_way_either() {
    let network = made(&NetworkInput { kind: Some(NetworkKind::Dynamic), ..network_input(&[]) });
    assert_refused!(&network, shall_have(&[entry(A)]), Refusal::WrongKind { .. });
    assert_eq!(decide(&network, &shall_have(&[])).unwrap().steps, []);
}

#[test]
fn a_gateway_that_somebody_holds_is_refused_of_old_and_new_subnets() {
    let network = held(&net(&[subnet_input(A)]), "10.0.0.9", "web");
    let gateway = SubnetPatch { gateway: Patch::Set(address("10.0.0.9")), ..entry(A).set };
    assert_refused!(&network, shall_have(&[SubnetEntry { set: gateway, ..entry(A) }]), Refusal::AlreadyInUse { .. });
    let link_local = held(&net(&[subnet_input("fe80::/64")]), "fe80::9", "web");
    let gateway = SubnetPatch { gateway: Patch::Set(address("fe80::9")), ..entry("2001:db8::/64").set };
    let listed = [entry("fe80::/64"), SubnetEntry { set: gateway, ..SubnetEntry::default() }];
    assert_refused!(&link_local, shall_have(&listed), Refusal::AlreadyInUse { .. });
}

#[test]
fn a_new_subnet_is_made_as_by_subnet_add_and_null_is_the_default() {
    let network = net(&[]);
    let cleared = SubnetPatch {
        cidr: Some(cidr(A)),
        name: Patch::Clear,
        gateway: Patch::Clear,
        dns: Patch::Clear,
        zones: Patch::Clear,
        tags: Patch::Set(vec![("site".into(), Some("a".into())), ("old".into(), None)]),
        ..SubnetPatch::default()
    };
    let listed = [SubnetEntry { set: cleared, ..SubnetEntry::default() }, pooled(entry(B), &[])];
    let made = changed(&network, &shall_have(&listed));
    let by_add =
        changed(&network, &add(SubnetInput { tags: Some([("site".into(), "a".into())].into()), ..subnet_input(A) }));
    let (one, other) = (&made.subnets()[0], &by_add.subnets()[0]);
    assert_eq!(SubnetConfig::clone(one), SubnetConfig { id: one.id, ..SubnetConfig::clone(other) });
    assert_eq!((one.pools.len(), made.subnets()[1].pools.len()), (1, 0));
    let dns = DnsPatch { servers: Patch::Set(vec![address("10.0.0.9")]), search: Patch::Clear };
    let with_dns = SubnetPatch { dns: Patch::Set(dns), ..entry(A).set };
    let made = changed(&network, &shall_have(&[SubnetEntry { set: with_dns, ..SubnetEntry::default() }]));
    assert_eq!(made.subnets()[0].dns, Dns { servers: vec![address("10.0.0.9")], search: Vec::new() });
}

#[test]
fn an_entry_without_an_id_is_a_whole_subnet_as_lists_replace() {
    let dns = Dns { servers: vec![address("10.0.0.9")], search: Vec::new() };
    let full = SubnetInput {
        gateway: Some(address("10.0.0.1")),
        dhcp: Some(true),
        dns: Some(dns),
        zones: Some(vec!["z".into()]),
        tags: Some([("site".into(), "a".into())].into()),
        draining: Some(true),
        pools: Some(vec![pool_input("10.0.0.8/29")]),
        reserved: Some(vec![reserved_input("10.0.0.3")]),
        ..named(A, "a")
    };
    let network = held(&net(&[SubnetInput { draining: None, ..full.clone() }]), "10.0.0.9", "web");
    let network = changed(&network, &shall_have(&[SubnetEntry { id: Some(ids(&network)[0]), ..draining(entry(A)) }]));
    let bare = changed(&network, &shall_have(&[entry(A)]));
    let subnet = &bare.subnets()[0];
    let as_new = &net(&[subnet_input(A)]).subnets()[0].clone();
    let said = |subnet: &SubnetConfig| {
        let SubnetConfig { name, cidr, gateway, dhcp, dns, zones, tags, draining, .. } = subnet.clone();
        (name, cidr, gateway, dhcp, dns, zones, tags, draining, subnet.reserved.clone())
    };
    assert_eq!(said(subnet), said(as_new));
    assert_eq!((ids(&bare), pools_of(&bare)), (ids(&network), pools_of(&net(&[subnet_input(A)]))));
    assert!(bare.holder_at(address("10.0.0.9")).is_some(), "what is held in it stays");
    let by_name = changed(&network, &shall_have(&[called(SubnetEntry::default(), "a")]));
    assert_eq!(shown(&by_name), ["10.0.0.0/24 a"], "its addresses stay where only its name is said");
    let by_id = changed(&network, &shall_have(&[of_id(ids(&network)[0])]));
    assert_eq!(by_id.subnets()[0], network.subnets()[0]);
}

#[test]
fn pools_that_change_are_remembered_while_something_is_held_in_them() {
    let network = held(&net(&[with_pools(A, &["web=10.0.0.8/29"])]), "10.0.0.9", "web");
    let after = changed(&network, &shall_have(&[pooled(entry(A), &["db=10.0.0.8/29"])]));
    let past: Vec<_> = after.subnets()[0].past_pools.iter().map(|past| past.name.clone()).collect();
    assert_eq!(past, [Some(name("web"))]);
    let twice = changed(&after, &shall_have(&[pooled(entry(A), &["db=10.0.0.8/29"]), entry(B)]));
    assert_eq!(twice.subnets()[0], after.subnets()[0]);
}

#[test]
fn reserved_ranges_are_replaced_as_a_list_and_kept_where_an_id_is_given_and_no_list() {
    let mut for_web = reserved_input("10.0.0.3");
    for_web.reserved_for = Some(ReservedFor { scope: Default::default(), owner: "web".parse().unwrap(), slot: None });
    let reserved = vec![reserved_input("10.0.0.16/28"), for_web.clone()];
    let network = net(&[SubnetInput { reserved: Some(reserved), ..subnet_input(A) }]);
    assert_eq!(changed(&network, &shall_have(&[of_id(ids(&network)[0]), entry(B)])).subnets()[0], network.subnets()[0]);
    // Merged in the given order, as by `network.create`: the wider range leaves the owner what is reserved for it.
    let wide = reserved_input("switches=10.0.0.0/29");
    let listed = SubnetEntry { reserved: Some(vec![for_web, wide]), ..entry(A) };
    let after = changed(&network, &shall_have(&[listed]));
    let shown: Vec<_> = after.subnets()[0].reserved.iter().map(|one| (one.range, one.reserved_for.is_some())).collect();
    assert_eq!(
        shown,
        [(range("10.0.0.0-10.0.0.2"), false), (range("10.0.0.3"), true), (range("10.0.0.4-10.0.0.7"), false)]
    );
    // What a smaller subnet leaves out is no obstacle once the list leaves it out too.
    let smaller = SubnetEntry { id: Some(ids(&network)[0]), ..entry("10.0.0.0/28") };
    assert_refused!(&network, shall_have(std::slice::from_ref(&smaller)), Refusal::Guarded { .. });
    assert_eq!(
        reserved_of(&changed(&network, &shall_have(&[reserving(smaller, &["10.0.0.3"])]))),
        ["10.0.0.3-10.0.0.3"]
    );
}

#[test]
fn what_a_list_leads_to_is_bounded() {
    let network = net(&[subnet_input(A)]);
    let many = |count: u32| -> Vec<SubnetEntry> {
        (0..count).map(|n| pooled(entry(&format!("{}/28", Address::V4(0x0a80_0000 + n * 16))), &[])).collect()
    };
    let most = u32::try_from(limits::SUBNETS_MAX).unwrap();
    changed(&network, &shall_have(&many(most)));
    assert_refused!(&network, shall_have(&many(most + 1)), Refusal::InvalidArgument { field, .. } if field == "set.subnets");
}
