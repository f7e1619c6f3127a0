//! Create, update, delete, restore, and `if_absent` of a network.

use super::*;
use crate::core::command::{L2Patch, LimitsPatch};
use crate::core::state::{L2, Limits, NetworkKind, Policy};

#[test]
fn a_new_network_is_its_configuration_and_then_its_subnets_in_order() {
    let input = network_input(&[subnet_input("10.0.1.0/24"), subnet_input("10.0.0.0/24")]);
    let Decision { steps, outcome } = create(&input, NetworkId(9), ctx(1)).unwrap();
    assert_eq!(steps[0].key, Key::Config);
    assert_eq!(steps[0].event.as_ref().unwrap().kind, EventKind::NetworkCreated);
    assert!(steps.iter().all(|step| step.expect.is_none()));
    assert_eq!(steps.iter().filter(|step| step.event.is_some()).count(), 1);
    let Outcome::Network(view) = outcome else { panic!("not a network") };
    assert_eq!(view.config.version, Version(1));
    assert_eq!(view.config.id, NetworkId(9));
    assert_eq!(view.config.realm, name("default"));
    assert_eq!(view.config.kind, NetworkKind::Manual);
    assert_eq!(view.config.policy, Policy::Lowest);
    let drawn: Vec<Cidr> = view.subnets.iter().map(|subnet| subnet.cidr).collect();
    assert_eq!(drawn, [cidr("10.0.1.0/24"), cidr("10.0.0.0/24")]);
    assert_ne!(view.subnets[0].id, view.subnets[1].id);
    assert!(view.subnets.iter().all(|subnet| subnet.version == Version(1)));
}

#[test]
fn a_network_without_subnets_is_an_l2_network() {
    let decision = create(&network_input(&[]), NetworkId(9), ctx(1)).unwrap();
    assert_eq!(decision.steps.len(), 1);
}

fn create_refusal(input: &NetworkInput) -> Refusal {
    create(input, NetworkId(9), ctx(1)).expect_err("this network must be refused")
}

#[test]
fn refusals_of_a_create_name_the_member_by_its_path() {
    let bad_gateway = SubnetInput { gateway: Some(address("10.0.1.0")), ..subnet_input("10.0.1.0/24") };
    let input = network_input(&[subnet_input("10.0.0.0/24"), bad_gateway]);
    let Refusal::InvalidArgument { field, .. } = create_refusal(&input) else { panic!() };
    assert_eq!(field, "subnets[1].gateway");
}

#[test]
fn subnets_of_one_create_neither_overlap_nor_share_names_nor_both_have_dhcp() {
    let overlapping = [subnet_input("10.0.0.0/24"), subnet_input("10.0.0.128/25")];
    let Refusal::Overlap { asked, with, .. } = create_refusal(&network_input(&overlapping)) else { panic!() };
    assert_eq!((asked, with), (range("10.0.0.128/25"), cidr("10.0.0.0/24")));

    let named = |prefix| SubnetInput { name: Some(name("a")), ..subnet_input(prefix) };
    // The taken name takes precedence over the overlap.
    let refused = create_refusal(&network_input(&[named("10.0.0.0/24"), named("10.0.0.0/25")]));
    assert!(matches!(refused, Refusal::NameTaken { .. }), "{refused:?}");

    let dhcp = |prefix| SubnetInput { dhcp: Some(true), ..subnet_input(prefix) };
    let Refusal::InvalidArgument { field, .. } =
        create_refusal(&network_input(&[dhcp("10.0.0.0/24"), dhcp("10.0.1.0/24")]))
    else {
        panic!()
    };
    assert_eq!(field, "subnets[1].dhcp");
    net(&[dhcp("10.0.0.0/24"), dhcp("2001:db8::/64")]);
}

#[test]
fn a_mac_prefix_is_three_bytes_and_kept_in_lower_case() {
    for wrong in ["", "aa:00", "aa:00:0", "aa:00:00:00", "aa-00-00", "gg:00:00", "aa:00:+1", "aa:00:00 "] {
        let l2 = L2 { mac_prefix: Some(wrong.into()), ..L2::default() };
        let refused = create_refusal(&NetworkInput { l2: Some(l2), ..network_input(&[]) });
        assert!(matches!(refused, Refusal::InvalidArgument { ref field, .. } if field == "l2.mac_prefix"), "{wrong}");
    }
    let l2 = L2 { mac_prefix: Some("AA:00:0F".into()), ..L2::default() };
    let network = made(&NetworkInput { l2: Some(l2), ..network_input(&[]) });
    assert_eq!(network.config().l2.mac_prefix.as_deref(), Some("aa:00:0f"));
    let set = L2Patch { mac_prefix: Patch::Set("nonsense".into()), ..L2Patch::default() };
    assert_refused!(&network, update(NetworkPatch { l2: Patch::Set(set), ..NetworkPatch::default() }),
        Refusal::InvalidArgument { field, .. } if field == "set.l2.mac_prefix");
}

#[test]
fn a_cooldown_is_bounded() {
    let too_long = limits::DURATION_SECONDS_MAX + 1;
    let refused = create_refusal(&NetworkInput { cooldown_seconds: Some(too_long), ..network_input(&[]) });
    assert!(matches!(refused, Refusal::InvalidArgument { ref field, .. } if field == "cooldown_seconds"));
    let set = NetworkPatch { cooldown_seconds: Patch::Set(too_long), ..NetworkPatch::default() };
    assert_refused!(&net(&[]), update(set), Refusal::InvalidArgument { field, .. } if field == "set.cooldown_seconds");
}

#[test]
fn too_many_subnets_pools_or_reserved_ranges_are_refused_by_name_of_the_bound() {
    let many: Vec<SubnetInput> =
        (0..=limits::SUBNETS_MAX).map(|n| subnet_input(&format!("10.{}.{}.0/24", n / 256, n % 256))).collect();
    let Refusal::InvalidArgument { field, problem } = create_refusal(&network_input(&many)) else { panic!() };
    assert_eq!(field, "subnets");
    assert!(problem.contains("4097 subnets"), "{problem}");

    let single = |n: usize| Range::single(Address::V4(0x0a00_0000 + 2 * n as u32));
    let pool = |n| PoolInput { range: Some(single(n)), name: None, kind: None, draining: None };
    let pools = SubnetInput { pools: Some((0..=limits::POOLS_MAX).map(pool).collect()), ..subnet_input("10.0.0.0/8") };
    assert!(matches!(create_refusal(&network_input(&[pools])), Refusal::InvalidArgument { .. }));

    let reserved = |n| ReservedInput { range: single(n), note: "".into(), reserved_for: None };
    let reserved = (0..=limits::RESERVED_RANGES_MAX).map(reserved).collect();
    let input = SubnetInput { reserved: Some(reserved), ..subnet_input("10.0.0.0/8") };
    let Refusal::InvalidArgument { problem, .. } = create_refusal(&network_input(&[input])) else { panic!() };
    assert!(problem.contains("reserved ranges"), "{problem}");
}

#[test]
fn an_update_changes_what_it_names_and_null_puts_back_the_default() {
    let network = net(&[subnet_input("10.0.0.0/24")]);
    let set = NetworkPatch {
        name: Some(name("wan")),
        policy: Patch::Set(Policy::Oldest),
        cooldown_seconds: Patch::Set(60),
        cooldown_yields: Patch::Set(true),
        static_only: Patch::Set(true),
        protected: Patch::Set(true),
        limits: Patch::Set(LimitsPatch { per_owner: Patch::Set(3), per_scope: Patch::Keep }),
        l2: Patch::Set(L2Patch { mode: Patch::Set("bridged".into()), ..L2Patch::default() }),
        tags: Patch::Set(vec![("a".into(), Some("1".into())), ("b".into(), Some("2".into()))]),
        description: Patch::Set("text".into()),
        subnets: None,
    };
    let network = changed(&network, &update(set));
    let config = network.config();
    assert_eq!((config.name.as_str(), config.policy, config.cooldown_seconds), ("wan", Policy::Oldest, 60));
    assert!(config.cooldown_yields && config.static_only && config.protected);
    assert_eq!(config.limits, Limits { per_owner: Some(3), per_scope: None });
    assert_eq!(config.version, Version(2));
    assert_eq!(network.subnets()[0].version, Version(1), "a subnet that is not touched is not rewritten");

    let set = NetworkPatch {
        policy: Patch::Clear,
        cooldown_seconds: Patch::Clear,
        protected: Patch::Clear,
        limits: Patch::Set(LimitsPatch { per_owner: Patch::Keep, per_scope: Patch::Set(9) }),
        l2: Patch::Set(L2Patch { link: Patch::Set("br0".into()), ..L2Patch::default() }),
        tags: Patch::Set(vec![("a".into(), None)]),
        ..NetworkPatch::default()
    };
    let network = changed(&network, &update(set));
    let config = network.config();
    assert_eq!((config.policy, config.cooldown_seconds, config.protected), (Policy::Lowest, 0, false));
    assert_eq!(config.limits, Limits { per_owner: Some(3), per_scope: Some(9) }, "objects merge");
    assert_eq!((config.l2.mode.as_deref(), config.l2.link.as_deref()), (Some("bridged"), Some("br0")));
    assert_eq!(config.tags.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(config.description, "text", "what is not mentioned stays");

    let set = NetworkPatch { l2: Patch::Clear, limits: Patch::Clear, tags: Patch::Clear, ..NetworkPatch::default() };
    let network = changed(&network, &update(set));
    assert_eq!(network.config().l2, L2::default());
    assert_eq!(network.config().limits, Limits::default());
    assert!(network.config().tags.is_empty());
}

#[test]
fn merged_tags_are_bounded() {
    let tags = |from: usize| (from..from + 20).map(|n| (n.to_string().into(), Some("".into()))).collect();
    let set = |from| update(NetworkPatch { tags: Patch::Set(tags(from)), ..NetworkPatch::default() });
    let network = changed(&net(&[]), &set(0));
    assert_refused!(&network, set(20), Refusal::InvalidArgument { field, .. } if field == "set.tags");
}

#[test]
fn an_empty_set_is_refused_before_anything_else() {
    let network = closed(&held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web"));
    let is_set = |refusal| matches!(refusal, Refusal::InvalidArgument { ref field, .. } if field == "set");
    let unknown = Configure::SubnetModify { subnet: by_cidr("10.9.0.0/24"), set: Default::default() };
    assert!(is_set(refusal(&network, &update(NetworkPatch::default()))));
    assert!(is_set(refusal(&network, &unknown)));
    assert!(is_set(refusal(&network, &pool_modify(PoolRef::Named(name("x")), PoolPatch::default()))));
}

#[test]
fn what_changes_nothing_makes_no_step_and_no_version() {
    let network = net(&[subnet_input("10.0.0.0/24")]);
    let set = NetworkPatch { policy: Patch::Set(Policy::Lowest), ..NetworkPatch::default() };
    assert!(decide(&network, &update(set)).unwrap().steps.is_empty());
    assert!(decide(&network, &resize("10.0.0.0/24", "10.0.0.0/24")).unwrap().steps.is_empty());
    let network = changed(&network, &reserve("10.0.0.8/29"));
    assert!(decide(&network, &reserve("10.0.0.10-10.0.0.11")).unwrap().steps.is_empty());
}

#[test]
fn a_version_that_moved_on_is_a_conflict_but_comes_after_in_use() {
    let network = net(&[subnet_input("10.0.0.0/24")]);
    let set = update(NetworkPatch { protected: Patch::Set(true), ..NetworkPatch::default() });
    let decided = network.decide_configure(&set, Some(Version(2)), ctx(1));
    assert!(matches!(decided, Err(Refusal::VersionConflict { expected: 2, actual: 1, .. })));
    assert!(network.decide_configure(&set, Some(Version(1)), ctx(1)).is_ok());
    let network = held(&network, "10.0.0.5", "web");
    let remove = Configure::SubnetRemove { subnet: by_cidr("10.0.0.0/24") };
    let decided = network.decide_configure(&remove, Some(Version(2)), ctx(1));
    assert!(matches!(decided, Err(Refusal::InUse { .. })));
}

#[test]
fn a_network_that_holds_nothing_is_gone_with_all_that_it_remembers() {
    let network = cooling(&net(&[subnet_input("10.0.0.0/24"), subnet_input("2001:db8::/64")]), "10.0.0.7");
    let Decision { steps, outcome } = decide(&network, &delete(false, false)).unwrap();
    assert!(matches!(outcome, Outcome::Deleted { id: NetworkId(7), holding: 0 }));
    assert_eq!(steps.len(), 4, "an entry, two subnets, the configuration");
    assert!(steps.iter().all(|step| step.state.is_none()));
    assert!(after(&network, &steps).is_none());
    let told: Vec<EventKind> = steps.iter().filter_map(|step| Some(step.event.as_ref()?.kind)).collect();
    assert_eq!(told, [EventKind::NetworkDeleted]);
}

#[test]
fn a_network_that_holds_something_says_how_much_and_the_first_ten() {
    let mut network = net(&[subnet_input("10.0.1.0/24"), subnet_input("10.0.0.0/24")]);
    for n in 1..=8 {
        network = held(&network, &format!("10.0.0.{n}"), &format!("a{n}"));
        network = held(&network, &format!("10.0.1.{n}"), &format!("b{n}"));
    }
    let Refusal::InUse { count, first, .. } = refusal(&network, &delete(false, false)) else { panic!() };
    assert_eq!((count, first.len()), (16, 10));
    assert_eq!(first[0], address("10.0.0.1"), "in address order, not in drawing order");
    assert_eq!(first[9], address("10.0.1.2"));
}

#[test]
fn a_protected_network_is_never_deleted() {
    let network = made(&NetworkInput { protected: Some(true), ..network_input(&[]) });
    for (force, purge) in [(false, false), (true, false), (false, true)] {
        assert_refused!(&network, delete(force, purge), Refusal::Guarded { .. });
    }
}

#[test]
fn force_closes_and_a_closed_network_refuses_every_change() {
    let network = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web");
    let Decision { steps, outcome } = decide(&network, &delete(true, false)).unwrap();
    assert!(matches!(outcome, Outcome::Deleted { holding: 1, .. }));
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].event.as_ref().unwrap().kind, EventKind::NetworkDeleted);
    let network = closed(&network);
    assert_eq!(network.config().version, Version(2));
    for refused in [
        update(NetworkPatch { protected: Patch::Set(true), ..NetworkPatch::default() }),
        add(subnet_input("10.1.0.0/24")),
        resize("10.0.0.0/24", "10.0.0.0/23"),
        pool_modify(
            PoolRef::Range(range("10.0.0.0/24")),
            PoolPatch { draining: Patch::Set(true), ..Default::default() },
        ),
        Configure::PoolRemove(PoolRemoval::Range(range("10.0.0.9"))),
        reserve("10.0.0.9"),
    ] {
        let Refusal::Guarded { problem, .. } = refusal(&network, &refused) else { panic!("{refused:?}") };
        assert!(problem.contains("network.restore"), "{problem}");
    }
}

#[test]
fn a_closed_network_is_closed_once_and_ends_when_nothing_is_held() {
    let network = net(&[subnet_input("10.0.0.0/24")]);
    let closed = closed(&held(&network, "10.0.0.5", "web"));
    assert_refused!(&closed, delete(false, false), Refusal::InUse { count: 1, .. });
    let again = decide(&closed, &delete(true, false)).unwrap();
    assert!(again.steps.is_empty());
    let subnets = closed.subnets().to_vec();
    let emptied = of_parts(Arc::clone(closed.config()), subnets, Vec::new(), closed.next_generation());
    let end = decide(&emptied, &delete(true, false)).unwrap();
    assert!(after(&emptied, &end.steps).is_none());
    assert!(end.steps.iter().all(|step| step.event.is_none()), "its deletion was told when it was closed");
}

/// There are more cooling addresses than fit into one commit.
#[test]
fn a_network_that_remembers_much_is_closed_first_and_ends_in_slices() {
    let network = net(&[subnet_input("10.0.0.0/16")]);
    let one = all_entries(&cooling(&network, "10.0.0.1")).remove(0).1;
    let entries = (0..1_200).map(|n| (Address::V4(0x0a00_0001 + n), one.clone())).collect();
    let subnets = network.subnets().to_vec();
    let mut network = of_parts(Arc::clone(network.config()), subnets, entries, Generation(200));
    let mut slices = 0;
    let mut events = 0;
    loop {
        let Decision { steps, outcome } = decide(&network, &delete(false, false)).unwrap();
        assert!(matches!(outcome, Outcome::Deleted { holding: 0, .. }));
        assert!(steps.len() <= limits::BATCH_CHANGES_MAX);
        slices += 1;
        events += steps.iter().filter(|step| step.event.is_some()).count();
        match after(&network, &steps) {
            Some(next) => network = next,
            None => break,
        }
        assert!(network.config().closed);
        assert_eq!(network.config().version, Version(2));
    }
    assert_eq!((slices, events), (3, 1));
}

#[test]
fn purge_closes_and_says_how_much_is_to_be_released() {
    let network = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web");
    let (network, outcome) = change(&network, &delete(false, true)).unwrap();
    assert!(network.config().closed);
    assert!(matches!(outcome, Outcome::Deleted { holding: 1, .. }));
}

#[test]
fn that_a_network_is_purged_stands_in_its_record_until_it_is_restored() {
    let network = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web");
    let remembered = changed(&network, &delete(true, false));
    assert!(!remembered.config().purged);
    // This also works for one that was only remembered at first; its deletion was recorded then.
    let steps = decide(&remembered, &delete(false, true)).unwrap().steps;
    assert!(steps.iter().all(|step| step.event.is_none()), "{steps:?}");
    let purged = after(&remembered, &steps).unwrap();
    assert!(purged.config().closed && purged.config().purged);
    assert!(decide(&purged, &delete(true, false)).unwrap().steps.is_empty(), "and is not taken back so");
    // Unlike for other closed networks, the refusal does not suggest `network.restore`: that would come after this network
    // has ended.
    let Refusal::Guarded { problem, count: 1, .. } = refusal(&purged, &reserve("10.0.0.9")) else { panic!() };
    assert!(!problem.contains("network.restore") && problem.contains("1 reservation;"), "{problem}");
    let restored = changed(&purged, &Configure::Restore);
    assert!(!restored.config().closed && !restored.config().purged);
}

#[test]
fn restore_opens_a_closed_network_and_leaves_an_open_one() {
    let network = held(&net(&[subnet_input("10.0.0.0/24")]), "10.0.0.5", "web");
    assert!(decide(&network, &Configure::Restore).unwrap().steps.is_empty());
    let closed = closed(&network);
    let steps = decide(&closed, &Configure::Restore).unwrap().steps;
    assert_eq!(steps[0].event.as_ref().unwrap().kind, EventKind::NetworkRestored);
    let network = changed(&closed, &Configure::Restore);
    assert!(!network.config().closed);
    assert_eq!(network.config().version, Version(3));
    changed(&network, &reserve("10.0.0.9"));
}

#[test]
fn if_absent_compares_only_what_is_said() {
    let l2 = L2 { mode: Some("bridged".into()), link: Some("br0".into()), mac_prefix: Some("aa:00:00".into()) };
    let limits = Limits { per_owner: Some(2), per_scope: Some(5) };
    let subnets = [subnet_input("10.0.0.0/24"), with_pools("10.0.1.0/24", &["web=10.0.1.0/25"])];
    let full = NetworkInput {
        l2: Some(l2.clone()),
        limits: Some(limits),
        policy: Some(Policy::Oldest),
        tags: Some([("a".into(), "1".into())].into()),
        ..network_input(&subnets)
    };
    let network = made(&full);
    assert!(network.differs_from(&full).is_empty());
    assert!(network.differs_from(&network_input(&[])).is_empty());
    assert!(network.differs_from(&network_input(&subnets)).is_empty());
    let part = L2 { mac_prefix: Some("AA:00:00".into()), ..L2::default() };
    assert!(network.differs_from(&NetworkInput { l2: Some(part), ..network_input(&[]) }).is_empty());

    let differing = NetworkInput {
        realm: Some(name("lab")),
        kind: Some(NetworkKind::Vip),
        l2: Some(L2 { link: Some("br1".into()), ..L2::default() }),
        policy: Some(Policy::Lowest),
        cooldown_seconds: Some(1),
        cooldown_yields: Some(true),
        static_only: Some(true),
        protected: Some(true),
        limits: Some(Limits { per_owner: Some(3), per_scope: None }),
        tags: Some([].into()),
        description: Some("x".into()),
        ..network_input(&subnets[..1])
    };
    assert_eq!(
        network.differs_from(&differing),
        [
            "realm",
            "kind",
            "l2",
            "policy",
            "cooldown_seconds",
            "cooldown_yields",
            "static_only",
            "protected",
            "limits",
            "tags",
            "description",
            "subnets",
        ]
    );
    let reversed = [subnets[1].clone(), subnets[0].clone()];
    assert!(network.differs_from(&network_input(&reversed)).is_empty(), "subnets are compared by their prefix");
}
