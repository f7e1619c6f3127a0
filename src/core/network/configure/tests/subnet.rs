//! Subnets: valid prefixes, gateways, names, growing, shrinking, removing.

use super::*;
use crate::core::command::DnsPatch;
use crate::core::state::Dns;

fn with_gateway(prefix: &str, gateway: &str) -> SubnetInput {
    SubnetInput { gateway: Some(address(gateway)), ..subnet_input(prefix) }
}

fn named(prefix: &str, text: &str) -> SubnetInput {
    SubnetInput { name: Some(name(text)), ..subnet_input(prefix) }
}

fn set_gateway(gateway: &str) -> SubnetPatch {
    SubnetPatch { gateway: Patch::Set(address(gateway)), ..SubnetPatch::default() }
}

fn remove(subnet: &str) -> Configure {
    Configure::SubnetRemove { subnet: by_cidr(subnet) }
}

#[test]
fn some_prefixes_are_never_subnets() {
    let network = net(&[]);
    for never in [
        "0.0.0.0/0",
        "::/0",
        "224.0.0.0/4",
        "239.1.0.0/16",
        "ff00::/8",
        "ff02::/64",
        "0.0.0.0/32",
        "::/128",
        "255.255.255.255/32",
    ] {
        assert_refused!(&network, add(subnet_input(never)), Refusal::InvalidArgument { field, .. } if field == "cidr");
    }
    for fine in [
        "0.0.0.0/1",
        "128.0.0.0/1",
        "192.0.0.0/2",
        "240.0.0.0/4",
        "fe80::/64",
        "fe00::/7",
        "0.0.0.0/31",
        "::/127",
        "::1/128",
    ] {
        changed(&network, &add(subnet_input(fine)));
    }
}

#[test]
fn growing_into_multicast_is_refused_too() {
    let network = net(&[subnet_input("10.0.0.0/24")]);
    assert_refused!(&network, resize("10.0.0.0/24", "0.0.0.0/0"), Refusal::InvalidArgument { field, .. } if field == "set.cidr");
}

#[test]
fn a_gateway_lies_inside_and_is_no_address_that_has_another_meaning() {
    enum Verdict {
        Fine,
        Invalid,
        Outside,
    }
    use Verdict::{Fine, Invalid, Outside};
    for (prefix, gateway, verdict) in [
        ("10.0.0.0/24", "10.0.0.1", Fine),
        ("10.0.0.0/24", "10.0.0.254", Fine),
        ("10.0.0.0/24", "10.0.0.0", Invalid),
        ("10.0.0.0/24", "10.0.0.255", Invalid),
        ("10.0.0.0/24", "10.0.1.1", Outside),
        ("10.0.0.0/24", "fe80::1", Outside),
        ("10.0.0.0/30", "10.0.0.3", Invalid),
        ("10.0.0.0/31", "10.0.0.0", Fine),
        ("10.0.0.0/31", "10.0.0.1", Fine),
        ("10.0.0.7/32", "10.0.0.7", Fine),
        ("2001:db8::/64", "2001:db8::", Invalid),
        ("2001:db8::/64", "2001:db8::ffff:ffff:ffff:ffff", Fine),
        ("2001:db8::/64", "fe80::1", Fine),
        ("2001:db8::/64", "2001:db8:1::1", Outside),
        ("2001:db8::/64", "10.0.0.1", Outside),
        ("2001:db8::/126", "2001:db8::", Invalid),
        ("2001:db8::/127", "2001:db8::", Fine),
        ("fe80::/64", "fe80::", Invalid),
    ] {
        let decided = decide(&net(&[]), &add(with_gateway(prefix, gateway)));
        match verdict {
            Fine => assert!(decided.is_ok(), "{gateway} in {prefix}"),
            Invalid => assert!(
                matches!(decided, Err(Refusal::InvalidArgument { ref field, .. }) if field == "gateway"),
                "{gateway} in {prefix}"
            ),
            Outside => assert!(matches!(decided, Err(Refusal::OutOfRange { .. })), "{gateway} in {prefix}"),
        }
    }
}

#[test]
fn a_held_address_cannot_become_the_gateway() {
    let network = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.1", "web");
    assert_refused!(&network, modify("10.0.0.0/24", set_gateway("10.0.0.1")),
        Refusal::AlreadyInUse { held_by, .. } if held_by.holder == slot("web") && held_by.since == WallTime(5));
    let network = changed(&network, &modify("10.0.0.0/24", set_gateway("10.0.0.2")));
    assert_eq!(pools_of(&network), ["10.0.0.0-10.0.0.255"], "the pool goes on around it");
}

#[test]
fn an_address_inside_a_held_block_cannot_become_the_gateway() {
    let network = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.64/28", "cluster");
    assert_refused!(&network, modify("10.0.0.0/24", set_gateway("10.0.0.70")),
        Refusal::AlreadyInUse { address: at, .. } if at == address("10.0.0.70"));
    changed(&network, &modify("10.0.0.0/24", set_gateway("10.0.0.80")));
}

#[test]
fn null_removes_a_gateway() {
    let network = net(&[with_gateway("10.0.0.0/24", "10.0.0.1")]);
    let set = SubnetPatch { gateway: Patch::Clear, ..SubnetPatch::default() };
    assert_eq!(changed(&network, &modify("10.0.0.0/24", set)).subnets()[0].gateway, None);
}

#[test]
fn a_subnet_is_added_after_the_others_with_an_identity_of_its_own() {
    let network = net(&[subnet_input("10.0.1.0/24")]);
    let (network, outcome) = change(&network, &add(named("10.0.0.0/24", "b"))).unwrap();
    let Outcome::Subnet { subnet, created: true } = outcome else { panic!() };
    assert_eq!(*subnet, *network.subnets()[1]);
    assert_eq!((subnet.position, subnet.version), (1, Version(2)));
    let network = changed(&network, &remove("10.0.1.0/24"));
    let network = changed(&network, &add(subnet_input("10.0.1.0/24")));
    let drawn: Vec<Cidr> = network.subnets().iter().map(|subnet| subnet.cidr).collect();
    assert_eq!(drawn, [cidr("10.0.0.0/24"), cidr("10.0.1.0/24")]);
    let SubnetRef::Named(id) = SubnetRef::Named(network.subnets()[0].id.to_string().into()) else { unreachable!() };
    changed(&network, &Configure::SubnetRemove { subnet: SubnetRef::Named(id) });
}

#[test]
fn a_taken_name_comes_before_an_overlap() {
    let network = net(&[named("10.0.0.0/24", "a"), named("10.0.1.0/24", "b")]);
    assert_refused!(&network, add(named("10.0.0.0/24", "a")), Refusal::NameTaken { differs, .. } if differs.is_empty());
    assert_refused!(&network, add(named("10.0.0.0/24", "c")), Refusal::Overlap { with, .. } if with == cidr("10.0.0.0/24"));
    let rename = |to: &str| SubnetPatch {
        name: Patch::Set(name(to)),
        cidr: Some(cidr("10.0.0.0/23")),
        ..SubnetPatch::default()
    };
    assert_refused!(&network, modify("10.0.0.0/24", rename("b")), Refusal::NameTaken { .. });
    assert_refused!(&network, modify("10.0.0.0/24", rename("a")), Refusal::Overlap { with, .. } if with == cidr("10.0.1.0/24"));
}

#[test]
fn what_lies_outside_comes_before_a_taken_name() {
    let network = net(&[named("10.0.0.0/24", "a")]);
    let outside = SubnetInput { gateway: Some("10.9.0.1".parse().unwrap()), ..named("10.0.1.0/24", "a") };
    assert_refused!(&network, add(outside), Refusal::OutOfRange { .. });
}

#[test]
fn a_resize_counts_what_would_lie_outside_and_what_would_become_an_edge_together() {
    let network = held(&held(&net(&[subnet_input("10.0.0.0/28")]), "10.0.0.3", "a"), "10.0.0.8", "b");
    let set = SubnetPatch { cidr: Some(cidr("10.0.0.8/29")), ..SubnetPatch::default() };
    let both = [address("10.0.0.3"), address("10.0.0.8")];
    assert_refused!(&network, modify("10.0.0.0/28", set), Refusal::InUse { count: 2, first, .. } if first == both);
}

#[test]
fn nothing_is_compared_with_itself() {
    let network = net(&[named("10.0.0.0/24", "a")]);
    let set = SubnetPatch {
        name: Patch::Set(name("a")),
        cidr: Some(cidr("10.0.0.0/23")),
        dhcp: Patch::Set(true),
        ..SubnetPatch::default()
    };
    let network = changed(&network, &modify("10.0.0.0/24", set));
    let set = SubnetPatch { dhcp: Patch::Set(true), draining: Patch::Set(true), ..SubnetPatch::default() };
    changed(&network, &modify("10.0.0.0/23", set));
}

#[test]
fn invalid_arguments_come_before_taken_names() {
    let network = net(&[named("10.0.0.0/24", "a")]);
    assert_refused!(&network, add(named("224.0.0.0/24", "a")), Refusal::InvalidArgument { .. });
}

#[test]
fn of_several_overlaps_the_first_in_address_order_is_named() {
    let network = net(&[subnet_input("10.0.3.0/24"), subnet_input("10.0.1.0/24"), subnet_input("10.0.2.0/24")]);
    assert_refused!(&network, add(subnet_input("10.0.0.0/16")), Refusal::Overlap { with, .. } if with == cidr("10.0.1.0/24"));
}

#[test]
fn a_second_dhcp_subnet_of_one_family_is_refused() {
    let dhcp = |prefix| SubnetInput { dhcp: Some(true), ..subnet_input(prefix) };
    let network = net(&[dhcp("10.0.0.0/24"), subnet_input("10.0.1.0/24")]);
    assert_refused!(&network, add(dhcp("10.0.2.0/24")), Refusal::InvalidArgument { field, .. } if field == "dhcp");
    let set = SubnetPatch { dhcp: Patch::Set(true), ..SubnetPatch::default() };
    assert_refused!(&network, modify("10.0.1.0/24", set), Refusal::InvalidArgument { field, .. } if field == "set.dhcp");
    changed(&network, &add(dhcp("2001:db8::/64")));
}

#[test]
fn if_absent_answers_an_equal_subnet_and_refuses_a_differing_one() {
    let full = SubnetInput {
        dns: Some(Dns { servers: vec![address("10.0.0.2")], search: vec![] }),
        zones: Some(vec!["z2".into(), "z1".into(), "z2".into()]),
        reserved: Some(vec![reserved_input("10.0.0.8-10.0.0.11"), reserved_input("10.0.0.11-10.0.0.12")]),
        pools: Some(vec![pool_input("web=10.0.0.0/25")]),
        ..with_gateway("10.0.0.0/24", "10.0.0.1")
    };
    let network = net(&[SubnetInput { name: Some(name("a")), ..full.clone() }, named("10.0.1.0/24", "b")]);
    assert_eq!(network.subnets()[0].zones, ["z1", "z2"], "sorted, each once");
    for equal in [subnet_input("10.0.0.0/24"), full.clone(), named("10.0.0.0/24", "a")] {
        let (_, outcome) = change(&network, &add_if_absent(equal)).unwrap();
        assert!(matches!(outcome, Outcome::Subnet { created: false, .. }));
    }
    let differing = SubnetInput {
        name: Some(name("c")),
        dhcp: Some(true),
        draining: Some(true),
        tags: Some([("k".into(), "v".into())].into()),
        dns: Some(Dns::default()),
        zones: Some(vec![]),
        pools: Some(vec![]),
        reserved: Some(vec![]),
        ..with_gateway("10.0.0.0/24", "10.0.0.3")
    };
    let all = ["name", "gateway", "dhcp", "dns", "zones", "tags", "draining", "pools", "reserved"];
    assert_refused!(&network, add_if_absent(differing), Refusal::NameTaken { differs, .. } if differs == all);
    assert_refused!(&network, add_if_absent(named("10.0.0.0/24", "b")), Refusal::NameTaken { differs, .. } if differs == ["cidr"]);
    assert_refused!(&network, add_if_absent(subnet_input("10.0.0.0/25")), Refusal::Overlap { .. });
    let (_, outcome) = change(&network, &add_if_absent(subnet_input("10.0.2.0/24"))).unwrap();
    assert!(matches!(outcome, Outcome::Subnet { created: true, .. }));
}

#[test]
fn lists_are_bounded() {
    let servers: Vec<Address> = (0..9).map(|n| Address::V4(0x0a00_0001 + n)).collect();
    let search: Vec<CompactString> = (0..9).map(|n| format!("d{n}").into()).collect();
    let zones: Vec<CompactString> = (0..65).map(|n| format!("z{n}").into()).collect();
    let plain = || subnet_input("10.0.0.0/24");
    let dns = |servers, search| SubnetInput { dns: Some(Dns { servers, search }), ..plain() };
    for (input, member) in [
        (dns(servers, vec![]), "dns.servers"),
        (dns(vec![], search), "dns.search"),
        (SubnetInput { zones: Some(zones), ..plain() }, "zones"),
    ] {
        assert_refused!(&net(&[]), add(input), Refusal::InvalidArgument { field, .. } if field == member);
    }
}

#[test]
fn members_of_a_subnet_are_merged_replaced_and_cleared() {
    let network = net(&[named("10.0.0.0/24", "a")]);
    let dns = |servers, search| Patch::Set(DnsPatch { servers, search });
    let set = SubnetPatch {
        dns: dns(Patch::Set(vec![address("10.0.0.2")]), Patch::Set(vec!["example.org".into()])),
        zones: Patch::Set(vec!["z2".into(), "z1".into()]),
        tags: Patch::Set(vec![("k".into(), Some("v".into()))]),
        draining: Patch::Set(true),
        ..SubnetPatch::default()
    };
    let network = changed(&network, &modify("10.0.0.0/24", set));
    let set = SubnetPatch { dns: dns(Patch::Clear, Patch::Keep), name: Patch::Clear, ..SubnetPatch::default() };
    let network = changed(&network, &modify("10.0.0.0/24", set));
    let subnet = &network.subnets()[0];
    assert_eq!(subnet.dns, Dns { servers: vec![], search: vec!["example.org".into()] });
    assert_eq!((&subnet.name, subnet.draining, subnet.zones.len(), subnet.tags.len()), (&None, true, 2, 1));
    let set = SubnetPatch {
        dns: Patch::Clear,
        zones: Patch::Clear,
        tags: Patch::Clear,
        draining: Patch::Clear,
        ..SubnetPatch::default()
    };
    let network = changed(&network, &modify("10.0.0.0/24", set));
    let subnet = &network.subnets()[0];
    assert_eq!((&subnet.dns, subnet.draining, subnet.zones.len(), subnet.tags.len()), (&Dns::default(), false, 0, 0));
}

#[test]
fn a_spanning_pool_grows_with_its_subnet_and_others_stay() {
    let grown = changed(&net(&[subnet_input("10.0.0.0/24")]), &resize("10.0.0.0/24", "10.0.0.0/22"));
    assert_eq!(pools_of(&grown), ["10.0.0.0-10.0.3.255"]);
    let network = net(&[with_pools("10.0.0.0/24", &["10.0.0.0/25", "10.0.0.128/25"])]);
    assert_eq!(pools_of(&changed(&network, &resize("10.0.0.0/24", "10.0.0.0/22"))).len(), 2);
}

#[test]
fn shrinking_trims_pools_and_drops_those_outside() {
    let network = net(&[with_pools("10.0.0.0/24", &["a=10.0.0.10-10.0.0.200", "b=10.0.0.210-10.0.0.220"])]);
    let network = changed(&network, &resize("10.0.0.0/24", "10.0.0.0/25"));
    assert_eq!(pools_of(&network), ["a=10.0.0.10-10.0.0.127"]);
    let spanning = net(&[subnet_input("10.0.0.0/24")]);
    assert_eq!(pools_of(&changed(&spanning, &resize("10.0.0.0/24", "10.0.0.64/26"))), ["10.0.0.64-10.0.0.127"]);
}

#[test]
fn pools_given_with_a_new_prefix_are_judged_by_it() {
    let network = net(&[subnet_input("10.0.0.0/24")]);
    let set = |to: &str, pools: &[&str]| SubnetPatch {
        cidr: Some(cidr(to)),
        pools: Patch::Set(pools.iter().map(|pool| pool_input(pool)).collect()),
        ..SubnetPatch::default()
    };
    let grown = changed(&network, &modify("10.0.0.0/24", set("10.0.0.0/23", &["10.0.1.0/24"])));
    assert_eq!(pools_of(&grown), ["10.0.1.0-10.0.1.255"]);
    assert_refused!(
        &network,
        modify("10.0.0.0/24", set("10.0.0.0/25", &["10.0.0.128/25"])),
        Refusal::OutOfRange { .. }
    );
    let cleared = SubnetPatch { pools: Patch::Clear, ..SubnetPatch::default() };
    assert!(pools_of(&changed(&network, &modify("10.0.0.0/24", cleared))).is_empty());
}

#[test]
fn shrinking_is_refused_while_something_is_held_outside() {
    let mut network = net(&[subnet_input("10.0.0.0/24")]);
    for last in [5, 130, 140, 200] {
        network = held(&network, &format!("10.0.0.{last}"), &format!("o{last}"));
    }
    assert_refused!(&network, resize("10.0.0.0/24", "10.0.0.0/25"),
        Refusal::InUse { count: 3, first, .. } if first == [address("10.0.0.130"), address("10.0.0.140"), address("10.0.0.200")]);
    // Both sides at once, in address order.
    assert_refused!(&network, resize("10.0.0.0/24", "10.0.0.128/26"),
        Refusal::InUse { count: 2, first, .. } if first == [address("10.0.0.5"), address("10.0.0.200")]);
    assert_refused!(&network, resize("10.0.0.0/24", "10.9.0.0/24"), Refusal::InUse { count: 4, .. });
}

#[test]
fn a_block_that_reaches_out_on_both_sides_counts_once() {
    let network = held(&net(&[subnet_input("10.0.0.0/23")]), "10.0.1.0/24", "cluster");
    assert_refused!(&network, resize("10.0.0.0/23", "10.0.1.64/26"), Refusal::InUse { count: 1, .. });
    assert_refused!(&network, resize("10.0.0.0/23", "10.0.1.0/25"), Refusal::InUse { count: 1, .. });
}

#[test]
fn shrinking_is_refused_while_a_reserved_range_would_fall_outside() {
    let network = changed(&net(&[subnet_input("10.0.0.0/24")]), &reserve("10.0.0.120-10.0.0.130"));
    assert_refused!(&network, resize("10.0.0.0/24", "10.0.0.0/25"), Refusal::Guarded { problem, .. } if problem.contains("reserved.remove"));
    let network = changed(&network, &Configure::ReservedRemove { range: range("10.0.0.128/25"), reserved_for: None });
    changed(&network, &resize("10.0.0.0/24", "10.0.0.0/25"));
}

/// Network and broadcast addresses are never held, not even when they become such later.
#[test]
fn a_held_address_never_becomes_a_network_or_broadcast_address() {
    let network = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.127", "web");
    assert_refused!(&network, resize("10.0.0.0/24", "10.0.0.0/25"), Refusal::InUse { count: 1, .. });
    let pair = held(&net(&[subnet_input("10.0.0.0/31")]), "10.0.0.0", "web");
    assert_refused!(&pair, resize("10.0.0.0/31", "10.0.0.0/24"), Refusal::InUse { count: 1, .. });
    let network = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.126", "web");
    changed(&network, &resize("10.0.0.0/24", "10.0.0.0/25"));
}

#[test]
fn a_gateway_that_a_new_prefix_leaves_out_must_be_changed_with_it() {
    let network = net(&[with_gateway("10.0.0.0/24", "10.0.0.1")]);
    assert_refused!(&network, resize("10.0.0.0/24", "10.0.0.128/25"), Refusal::OutOfRange { .. });
    let set = SubnetPatch { cidr: Some(cidr("10.0.0.128/25")), ..set_gateway("10.0.0.129") };
    changed(&network, &modify("10.0.0.0/24", set));
}

#[test]
fn a_subnet_keeps_its_family() {
    let network = net(&[subnet_input("10.0.0.0/24")]);
    assert_refused!(&network, resize("10.0.0.0/24", "2001:db8::/64"), Refusal::InvalidArgument { field, .. } if field == "set.cidr");
}

#[test]
fn what_cools_outside_is_remembered_when_a_subnet_shrinks() {
    let mut network = net(&[subnet_input("10.0.0.0/24")]);
    for at in ["10.0.0.5", "10.0.0.200", "10.0.0.201"] {
        network = cooling(&network, at);
    }
    let network = changed(&network, &resize("10.0.0.0/24", "10.0.0.0/25"));
    assert_eq!((all_entries(&network).len(), network.counts().cooling), (3, 1));
    let network = changed(&network, &resize("10.0.0.0/25", "10.0.0.0/24"));
    assert_eq!(network.counts().cooling, 3);
    let block = cooling(&net(&[subnet_input("10.0.0.0/23")]), "10.0.0.0/24");
    let block = changed(&block, &resize("10.0.0.0/23", "10.0.0.0/25"));
    assert_eq!(block.counts().cooling, 126, "of a block that reaches over the new end, what lies inside and is usable");
}

#[test]
fn a_subnet_is_removed_when_nothing_is_held_in_it() {
    let network = held(&net(&[subnet_input("10.0.0.0/24"), subnet_input("10.0.1.0/24")]), "10.0.0.5", "web");
    assert_refused!(&network, remove("10.0.0.0/24"), Refusal::InUse { count: 1, .. });
    assert_refused!(&network, remove("10.0.9.0/24"), Refusal::NotFound { missing: Missing::Subnet, .. });
    let network = cooling(&changed(&network, &reserve("10.0.1.8/29")), "10.0.1.3");
    let (network, outcome) = change(&network, &remove("10.0.1.0/24")).unwrap();
    assert!(matches!(outcome, Outcome::Done));
    assert_eq!((network.subnets().len(), network.counts().cooling), (1, 0));
    let network = changed(&network, &add(subnet_input("10.0.1.0/24")));
    assert_eq!(network.counts().cooling, 1, "what cools is remembered until the subnet comes back");
}
