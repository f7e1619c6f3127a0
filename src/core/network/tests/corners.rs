//! Facts about rare combinations: pieces of blocks, obsolete holdings, deleted networks, memory across changes.

use super::*;
use crate::core::address::Family;
use crate::core::outcome::{Counts, Grantable, Slice};

fn cooling(subnets: Vec<SubnetConfig>) -> Net {
    Net::with(|config| config.cooldown_seconds = 60, subnets)
}

pub(super) fn run_acquire(net: &mut Net, ask: Acquire) -> Result<Vec<String>, Refusal> {
    match net.run(&Command::Acquire(Box::new(ask)))? {
        Outcome::Acquired { grants, .. } => Ok(grants.iter().map(|(_, g)| g.view.address.to_string()).collect()),
        other => panic!("{other:?}"),
    }
}

fn by_address(at: &str) -> Box<Target> {
    Box::new(Target { address: Some(address(at)), ..Target::default() })
}

pub(super) fn decline(at: &str, owner: &str, again: bool) -> Command {
    Command::Decline(Box::new(Decline {
        address: address(at),
        from: (Scope::default(), owner.parse().unwrap(), None),
        seen: "other".into(),
        probation_seconds: 600,
        again,
    }))
}

fn hand(at: &str, from: &str, to: &str, exchange: bool) -> Command {
    Command::Transfer(Box::new(Transfer {
        address: address(at),
        from: (Scope::default(), from.parse().unwrap(), None),
        to: holder(to),
        exchange,
        if_generation: None,
    }))
}

/// What a deployment does with a holding between apply and commit.
fn edit(net: &mut Net, at: Address, change: impl FnOnce(&mut Reservation)) {
    let Some(Entry::Held(held)) = net.network.holdings.at(at).cloned() else { panic!("{at} is not held") };
    let mut after = Reservation::clone(&held);
    change(&mut after);
    let state = State::Entry(Entry::Held(Arc::new(after)));
    let step = Step { key: Key::Address(at), expect: Some(held.generation.0), state: Some(state), event: None };
    net.network.apply(&step, ShardTime(net.now));
}

pub(super) fn make_obsolete(net: &mut Net, owner: &str) {
    let at = net.network.slot_holder(&holder(owner)).unwrap();
    edit(net, at, |held| held.obsolete = Some(Box::new(Obsolete { since: WallTime(1), plan: 1 })));
}

fn configure(change: Configure) -> Command {
    Command::Configure { change: Box::new(change), if_version: None }
}

#[test]
fn the_first_address_of_a_cooling_block_leaves_the_rest_cooling() {
    let mut net = cooling(vec![subnet("10.0.0.0/24", 0)]);
    assert_eq!(net.block("a", 28).unwrap(), "10.0.0.16/28");
    net.release("a");
    net.claim("b", "10.0.0.16", |_| ()).unwrap();
    assert_eq!((net.network.counts().cooling, net.state("10.0.0.17")), (15, AddressState::Cooling));
}

#[test]
fn two_members_of_one_request_take_from_one_cooling_block() {
    let mut net = cooling(vec![subnet("10.0.0.0/24", 0)]);
    net.block("a", 28).unwrap();
    net.release("a");
    let ask = acquire(vec![("0", Some("10.0.0.20"), false), ("1", Some("10.0.0.22"), false)]);
    assert_eq!(run_acquire(&mut net, ask).unwrap(), ["10.0.0.20", "10.0.0.22"]);
    assert_eq!(net.network.counts().cooling, 14);
}

#[test]
fn a_cooling_block_yields_address_by_address_also_where_it_reaches_into_another_pool() {
    let mut net = Net::with(
        |config| (config.cooldown_seconds, config.cooldown_yields) = (60, true),
        vec![SubnetConfig { pools: vec![pool("10.0.0.16-10.0.0.31", PoolKind::Dynamic)], ..subnet("10.0.0.0/24", 0) }],
    );
    assert_eq!(net.block("a", 28).unwrap(), "10.0.0.16/28");
    net.release("a");
    let gap = PoolRemoval::Range("10.0.0.18-10.0.0.29".parse().unwrap());
    net.run(&configure(Configure::PoolRemove(gap))).unwrap();
    let ask = acquire((0..4).map(|n| (["0", "1", "2", "3"][n], None, false)).collect());
    assert_eq!(run_acquire(&mut net, ask).unwrap(), ["10.0.0.16", "10.0.0.17", "10.0.0.30", "10.0.0.31"]);
}

#[test]
fn a_forced_claim_takes_a_part_of_a_declined_block_or_a_block_around_a_declined_address() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    net.block("a", 28).unwrap();
    net.run(&decline("10.0.0.16", "a", false)).unwrap();
    refused!(net.claim("b", "10.0.0.20", |_| ()), Refusal::Reserved { .. });
    net.claim("b", "10.0.0.20", |ask| ask.force = true).unwrap();
    assert_eq!((net.network.counts().declined, net.state("10.0.0.21")), (15, AddressState::Declined));
    net.claim("c", "10.0.0.50", |_| ()).unwrap();
    net.run(&decline("10.0.0.50", "c", false)).unwrap();
    net.claim("c", "10.0.0.48", |ask| (ask.force, ask.prefix_length) = (true, Some(28))).unwrap();
    assert_eq!(net.network.counts().declined, 15);
}

#[test]
fn what_replaces_may_carry_the_mac_of_what_it_replaces() {
    let mut net = Net::new(&["10.0.0.0/29", "10.0.1.0/29"]);
    let mut ask = wish("a");
    ask.options.mac = Some(MacWish::Given(Mac(5)));
    net.ask(ask.clone()).unwrap();
    (ask.wish.subnet, ask.options.replace) = (Some(SubnetRef::Cidr(cidr("10.0.1.0/29"))), true);
    assert_eq!(net.ask(ask).unwrap().view.address, address("10.0.1.1"));
    let moved = |ask: &mut Claim| (ask.options.mac, ask.options.replace) = (Some(MacWish::Given(Mac(5))), true);
    assert_eq!(net.claim("a", "10.0.0.3", moved).unwrap().replaced, Some(address("10.0.1.1")));
    refused!(net.claim("b", "10.0.0.4", moved), Refusal::Taken { .. });
}

#[test]
fn random_draws_every_free_address_about_equally_often() {
    let net = Net::with(|config| config.policy = Policy::Random, vec![subnet("10.0.0.0/28", 0)]);
    let mut drawn = std::collections::BTreeMap::new();
    for entropy in 0..1_400 {
        let context = Context {
            now: ShardTime(0),
            wall: WallTime(0),
            entropy: entropy << 40,
            mac_elsewhere: None,
            generations: Generation::default(),
        };
        let decision = net.network.decide(&Command::Allocate(Box::new(wish("a"))), context).unwrap();
        *drawn.entry(decision.steps[0].key).or_insert(0) += 1;
    }
    assert!(drawn.len() == 14 && drawn.values().all(|count| (60..140).contains(count)), "{drawn:?}");
}

#[test]
fn limits_count_what_will_be_held_after_the_request() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    run_acquire(&mut net, acquire(vec![("0", None, false), ("1", None, false), ("2", None, false)])).unwrap();
    net.network.config = Arc::new(NetworkConfig {
        limits: Limits { per_owner: Some(2), per_scope: None },
        ..NetworkConfig::clone(&net.network.config)
    });
    let replace = |ask: &mut Claim| ask.options.replace = true;
    refused!(net.claim("vm#0", "10.0.0.9", replace), Refusal::QuotaExceeded { .. });
    assert!(!net.claim("vm#0", "10.0.0.1", replace).unwrap().created, "what is held is answered");
    let mut exact = acquire(vec![("0", Some("10.0.0.9"), false)]);
    exact.exact = true;
    assert_eq!(run_acquire(&mut net, exact.clone()).unwrap(), ["10.0.0.9"]);
    exact.items = acquire(vec![("5", None, false), ("6", None, false), ("7", None, false)]).items;
    refused!(run_acquire(&mut net, exact), Refusal::OfItem { index: 2, .. });
}

#[test]
fn an_acquire_names_a_slot_and_an_address_once() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let twice = vec![("0", None, false), ("0", None, false)];
    refused!(run_acquire(&mut net, acquire(twice)), Refusal::OfItem { index: 1, .. });
    let twice = vec![("0", Some("10.0.0.3"), false), ("1", Some("10.0.0.3"), false)];
    let refusal = run_acquire(&mut net, acquire(twice)).unwrap_err();
    assert_eq!(refusal.precedence(), 0, "{refusal}");
    let mut block = acquire(vec![("0", Some("10.0.0.4"), false), ("1", Some("10.0.0.5"), false)]);
    block.items[0].wish.prefix_length = Some(30);
    assert_eq!(run_acquire(&mut net, block).unwrap_err().precedence(), 0, "part of a block is that block's");
    let mut both = acquire(vec![("0", Some("10.0.0.3"), false)]);
    both.items[0].wish.pool = Some(PoolRef::Named("web".parse().unwrap()));
    assert_eq!(run_acquire(&mut net, both).unwrap_err().precedence(), 0);
}

#[test]
fn an_exchange_never_gives_a_slot_a_second_address() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let (old, b) = (net.allocate("a"), net.allocate("b"));
    make_obsolete(&mut net, "a");
    let new = net.allocate("a");
    refused!(net.run(&hand(&old, "a", "b", true)), Refusal::SlotTaken { .. });
    refused!(net.run(&hand(&old, "a", "a", true)), Refusal::SlotTaken { .. });
    assert_eq!(net.network.slot_holder(&holder("b")), Some(address(&b)));
    assert_eq!(net.network.slot_holder(&holder("a")), Some(address(&new)));
    net.release("a");
    net.run(&hand(&old, "a", "b", true)).unwrap();
    assert_eq!(net.network.slot_holder(&holder("a")), Some(address(&b)));
}

#[test]
fn an_exchange_without_a_counterpart_is_not_found_whoever_asks() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let at = net.allocate("a");
    refused!(net.run(&hand(&at, "stranger", "b", true)), Refusal::NotFound { .. });
    refused!(net.run(&hand(&at, "stranger", "b", false)), Refusal::NotOwner { .. });
}

#[test]
fn a_uid_stays_with_its_owner_and_leaves_with_it() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let mut ask = wish("a");
    ask.options.owner_uid = Some("u".parse().unwrap());
    let at = net.ask(ask).unwrap().view.address.to_string();
    let uid = |net: &mut Net, command: &Command| match net.run(command).unwrap() {
        Outcome::Transferred(views) => views[0].reservation.details.clone().and_then(|details| details.owner_uid),
        other => panic!("{other:?}"),
    };
    assert!(uid(&mut net, &hand(&at, "a", "a#1", false)).is_some());
    assert!(uid(&mut net, &hand(&at, "a", "b", false)).is_none());
}

#[test]
fn in_an_exchange_each_owner_keeps_its_uid() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let object = |owner: &str, uid: &str| {
        let mut ask = wish(owner);
        ask.options.owner_uid = Some(uid.parse().unwrap());
        ask
    };
    let at = net.ask(object("a", "u")).unwrap().view.address.to_string();
    let other = net.ask(object("b", "v")).unwrap().view.address.to_string();
    let Outcome::Transferred(views) = net.run(&hand(&at, "a", "b", true)).unwrap() else { panic!() };
    let uids = views.iter().map(|view| view.reservation.details.as_ref().unwrap().owner_uid.as_ref().unwrap().as_str());
    assert_eq!(uids.collect::<Vec<_>>(), ["v", "u"]);
    // An object that was made anew under that name is still another owner.
    refused!(net.ask(object("a", "w")), Refusal::Taken { .. });
    assert_eq!(net.ask(object("a", "u")).unwrap().view.address.to_string(), other);
}

#[test]
fn a_slot_that_is_named_beside_an_address_alone_is_that_of_its_holder() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let at = net.allocate("a");
    let renews =
        |slot: &str| Target { address: Some(address(&at)), slot: Some(slot.parse().unwrap()), ..Target::default() };
    assert!(net.network.find(&renews("0")).unwrap().is_some());
    refused!(net.network.find(&renews("no-such-slot")), Refusal::NotOwner { .. });
}

#[test]
fn declining_an_obsolete_address_leaves_the_slot_what_it_holds() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let old = net.allocate("a");
    make_obsolete(&mut net, "a");
    let new = net.allocate("a");
    let Outcome::Declined { granted, .. } = net.run(&decline(&old, "a", true)).unwrap() else { panic!() };
    assert_eq!(granted.map(|grant| (grant.view.address, grant.created)), Some((address(&new), false)));
}

#[test]
fn a_repeated_decline_answers_what_the_slot_holds_and_leaves_its_lease() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let mut ask = wish("a");
    ask.options.ttl_seconds = Some(60);
    let at = net.ask(ask).unwrap().view.address.to_string();
    for _ in 0..2 {
        let Outcome::Declined { granted, .. } = net.run(&decline(&at, "a", true)).unwrap() else { panic!() };
        let view = granted.unwrap().view;
        assert_eq!(view.address, address("10.0.0.2"));
        assert_eq!(view.reservation.lease.map(|lease| lease.ttl_seconds.get()), Some(60));
    }
}

/// The request may have named the zone, the subnet or the pool of what it got; the reservation does not say. A repeat of it is
/// answered with what the slot holds by then.
#[test]
fn what_comes_in_place_of_a_declined_address_is_as_near_as_there_is_room() {
    let zoned = |text: &str, position: u64, zones: &[&str]| SubnetConfig {
        zones: zones.iter().map(|zone| (*zone).into()).collect(),
        ..subnet(text, position)
    };
    let named =
        |range: &str, name: &str| PoolConfig { name: Some(name.parse().unwrap()), ..pool(range, PoolKind::Dynamic) };
    let pools = vec![named("10.0.2.0-10.0.2.2", "db"), named("10.0.2.3-10.0.2.4", "web")];
    let home = SubnetConfig { pools, ..zoned("10.0.2.0/29", 1, &["z2", "z3"]) };
    let subnets = vec![zoned("10.0.1.0/29", 0, &["z1", "z2"]), home, zoned("10.0.3.0/31", 2, &["z3", "z2", "z4"])];
    let mut net = Net::with(|_| (), subnets);
    let mut ask = wish("w");
    (ask.wish.zone, ask.wish.pool) = (Some("z2".into()), Some(PoolRef::Named("web".parse().unwrap())));
    let mut at = net.ask(ask.clone()).unwrap().view.address.to_string();
    assert_eq!(at, "10.0.2.3");
    // Its pool, then its subnet, then the subnet that serves all zones of that one, then what there is.
    for next in ["10.0.2.4", "10.0.2.1", "10.0.2.2", "10.0.3.0", "10.0.3.1", "10.0.1.1"] {
        let Outcome::Declined { granted, .. } = net.run(&decline(&at, "w", true)).unwrap() else { panic!() };
        let granted = granted.unwrap().view.address.to_string();
        assert_eq!(granted, next, "in place of {at}");
        if next == "10.0.2.4" {
            assert!(!net.ask(ask.clone()).unwrap().created, "the request is repeated");
        }
        at = granted;
    }
    // A subnet without zones serves all: only another of that kind does, too.
    let subnets = vec![zoned("10.0.1.0/29", 0, &["z1"]), zoned("10.0.2.0/31", 1, &[]), zoned("10.0.3.0/31", 2, &[])];
    let mut net = Net::with(|_| (), subnets);
    net.claim("w", "10.0.2.0", |_| ()).unwrap();
    for (lost, next) in [("10.0.2.0", "10.0.2.1"), ("10.0.2.1", "10.0.3.0")] {
        let Outcome::Declined { granted, .. } = net.run(&decline(lost, "w", true)).unwrap() else { panic!() };
        assert_eq!(granted.unwrap().view.address, address(next));
    }
}

/// As in any grant; it may lie outside every pool, but not in another zone while there is room in this one.
#[test]
fn what_is_reserved_for_the_holder_comes_first_in_place_of_a_declined_address() {
    let kept = |text: &str| ReservedRange {
        range: text.parse().unwrap(),
        note: Default::default(),
        reserved_for: Some(ReservedFor { scope: Scope::default(), owner: "db".parse().unwrap(), slot: None }),
    };
    let pools = vec![pool("10.0.0.1-10.0.0.4", PoolKind::Dynamic)];
    for (pools, rest) in [(pools, Some("10.0.0.1")), (Vec::new(), None)] {
        let zones = |zone: &str| -> Vec<_> { [zone.into()].into() };
        let reserved = vec![kept("10.0.0.9"), kept("10.0.0.10")];
        let home = SubnetConfig { pools, reserved, zones: zones("z1"), ..subnet("10.0.0.0/28", 0) };
        let other = SubnetConfig {
            pools: Vec::new(),
            reserved: vec![kept("10.1.0.9")],
            zones: zones("z2"),
            ..subnet("10.1.0.0/28", 1)
        };
        let mut net = Net::with(|_| (), vec![home, other]);
        assert_eq!(net.ask(wish("db")).unwrap().view.address, address("10.0.0.9"));
        let mut at = "10.0.0.9".to_owned();
        for next in ["10.0.0.10", rest.unwrap_or("10.1.0.9")] {
            let Outcome::Declined { granted, .. } = net.run(&decline(&at, "db", true)).unwrap() else { panic!() };
            at = granted.unwrap().view.address.to_string();
            assert_eq!(at, next);
        }
    }
}

#[test]
fn a_deleted_network_refuses_changes_and_ends_with_its_last_reservation() {
    let mut net = cooling(vec![subnet("10.0.0.0/28", 0)]);
    for owner in ["a", "b", "c", "d"] {
        net.allocate(owner);
    }
    net.run(&decline("10.0.0.4", "d", false)).unwrap();
    net.release("c");
    net.run(&configure(Configure::Delete { force: true, purge: false })).unwrap();
    let set = ReservationPatch { note: Patch::Set("x".into()), ..ReservationPatch::default() };
    for change in [
        Command::Renew(by_address("10.0.0.1"), None),
        Command::Bind(by_address("10.0.0.1"), "vm".parse().unwrap()),
        Command::Update(by_address("10.0.0.1"), Box::new(set)),
        decline("10.0.0.1", "a", false),
        decline("10.0.0.4", "d", false),
        hand("10.0.0.1", "a", "b", true),
    ] {
        refused!(net.run(&change), Refusal::Guarded { .. });
    }
    refused!(net.run(&Command::Renew(by_address("10.0.0.9"), None)), Refusal::NotFound { .. });
    net.run(&Command::Unbind(by_address("10.0.0.1"), None)).unwrap();
    assert_eq!((net.release("a"), net.network.is_gone()), (1, false));
    assert_eq!((net.release("b"), net.network.is_gone()), (1, true));
    assert_eq!(net.network.entries(), 0, "what cooled or was declined goes with it");
}

#[test]
fn a_kept_address_outside_every_pool_goes_by_the_zones_of_its_subnet() {
    let kept = ReservedFor { scope: Scope::default(), owner: "db".parse().unwrap(), slot: None };
    let mut zoned = subnet("10.0.0.0/28", 0);
    zoned.zones = vec!["z1".into()];
    zoned.pools = vec![pool("10.0.0.1-10.0.0.4", PoolKind::Dynamic)];
    zoned.reserved =
        vec![ReservedRange { range: "10.0.0.9".parse().unwrap(), note: Default::default(), reserved_for: Some(kept) }];
    let mut net = Net::with(|_| (), vec![zoned]);
    let mut ask = wish("db");
    ask.wish.zone = Some("z1".into());
    assert_eq!(net.ask(ask).unwrap().view.address, address("10.0.0.9"));
}

#[test]
fn a_kept_address_that_cools_goes_to_no_other_object_of_the_same_name() {
    let kept = ReservedFor { scope: Scope::default(), owner: "db".parse().unwrap(), slot: None };
    let mut keeping = subnet("10.0.0.0/28", 0);
    keeping.reserved =
        vec![ReservedRange { range: "10.0.0.9".parse().unwrap(), note: Default::default(), reserved_for: Some(kept) }];
    let mut net = Net::with(|config| config.cooldown_seconds = 3_600, vec![keeping]);
    let object = |uid: &str| {
        let mut ask = wish("db");
        ask.options.owner_uid = Some(uid.parse().unwrap());
        ask
    };
    assert_eq!(net.ask(object("x")).unwrap().view.address, address("10.0.0.9"));
    net.release("db");
    assert_eq!(net.ask(object("y")).unwrap().view.address, address("10.0.0.1"));
    net.release("db");
    assert_eq!(net.ask(object("x")).unwrap().view.address, address("10.0.0.9"), "its own, again");
}

#[test]
fn of_several_refusals_the_first_in_the_protocols_order_is_answered() {
    let mut net = Net::new(&["10.0.0.0/28", "10.0.1.0/28"]);
    let mut ask = wish("a");
    ask.options.mac = Some(MacWish::Given(Mac(5)));
    net.ask(ask.clone()).unwrap();
    net.allocate("b");
    ask.holder = holder("b");
    assert!(!net.ask(ask.clone()).unwrap().created, "of a repeat the MAC does not count");
    ask.wish.subnet = Some(SubnetRef::Cidr(cidr("10.0.1.0/28")));
    refused!(net.ask(ask.clone()), Refusal::Taken { .. });
    ask.wish.pool = Some(PoolRef::Named("gone".parse().unwrap()));
    refused!(net.ask(ask), Refusal::NotFound { .. });
    refused!(net.claim("b", "10.9.0.0", |ask| ask.prefix_length = Some(16)), Refusal::InvalidArgument { .. });
    let mut long = wish("c");
    long.wish.prefix_length = Some(64);
    refused!(net.ask(long.clone()), Refusal::NotEnoughCapacity(_));
    long.wish.family = Some(crate::core::address::Family::V4);
    refused!(net.ask(long), Refusal::InvalidArgument { .. });
}

#[test]
fn a_repeated_claim_is_answered_although_the_network_takes_no_such_claims_any_more() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    net.claim("a", "10.0.0.5", |_| ()).unwrap();
    let set = NetworkPatch { static_only: Patch::Set(true), ..NetworkPatch::default() };
    net.run(&configure(Configure::Update(Box::new(set)))).unwrap();
    assert!(!net.claim("a", "10.0.0.5", |_| ()).unwrap().created);
    refused!(net.claim("b", "10.0.0.6", |_| ()), Refusal::WrongKind { .. });
}

#[test]
fn what_is_held_in_another_scope_is_not_found_in_this_one() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let at = net.allocate("a");
    let target = Target { scope: Some("tenant".parse().unwrap()), ..*by_address(&at) };
    refused!(net.run(&Command::Bind(Box::new(target.clone()), "vm".parse().unwrap())), Refusal::NotFound { .. });
    // A release succeeds if nothing is held, but here something is.
    let stale = Target { if_generation: Some(Generation(1)), ..target.clone() };
    for (target, force) in [(target, true), (stale, false)] {
        let release = Command::Release(Box::new(Release { target, force, strict: false }));
        refused!(net.run(&release), Refusal::NotOwner { .. });
    }
    assert_eq!(net.state(&at), AddressState::Held);
}

#[test]
fn oldest_remembers_what_was_used_when_a_subnet_goes_and_comes_back() {
    let mut net = Net::with(|config| config.policy = Policy::Oldest, vec![subnet("10.0.0.0/29", 0)]);
    for owner in ["a", "b", "c"] {
        net.allocate(owner);
    }
    net.at(1).release("b");
    net.at(2).release("a");
    net.at(3).release("c");
    let again = subnet_input("10.0.0.0/29");
    net.run(&configure(Configure::SubnetRemove { subnet: SubnetRef::Cidr(cidr("10.0.0.0/29")) })).unwrap();
    net.run(&configure(Configure::SubnetAdd { input: Box::new(again), if_absent: false })).unwrap();
    let order: Vec<_> = (0..6).map(|n| net.at(4).allocate(&n.to_string())).collect();
    assert_eq!(order, ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.2", "10.0.0.1", "10.0.0.3"]);
}

/// A client has to name what it was granted, and a request with such an address is refused.
#[test]
fn what_is_mapped_from_ipv4_is_never_handed_out() {
    let around = pool("::fffe:ffff:ffff-::1:0:0:0", PoolKind::Dynamic);
    let mut net = Net::with(|_| (), vec![SubnetConfig { pools: vec![around], ..subnet("::/1", 0) }]);
    assert_eq!(["a", "b"].map(|owner| net.allocate(owner)), ["::fffe:ffff:ffff", "::1:0:0:0"]);
    refused!(net.ask(wish("c")), Refusal::NotEnoughCapacity { .. });
}

#[test]
fn counts_of_all_of_ipv6_end_at_the_largest_number_and_add_up() {
    let mut net = Net::new(&["::/1", "8000::/1", "10.0.0.0/24"]);
    let adds_up = |counts: Counts| {
        let parts = [counts.held, counts.reserved, counts.cooling, counts.declined, counts.free];
        assert_eq!(parts.iter().try_fold(0u128, |sum, &part| sum.checked_add(part)), Some(counts.size), "{counts:?}");
        counts
    };
    assert_eq!(adds_up(net.network.counts()).size, u128::MAX);
    net.allocate("a");
    assert_eq!(adds_up(net.network.counts()).held, 1);
    let whole = Counts { size: u128::MAX, reserved: u128::MAX - 1, held: 1, ..Counts::default() };
    let mut sum = whole;
    sum += whole;
    assert_eq!(adds_up(sum).held, 2);
}

#[test]
fn what_can_be_granted_lies_in_dynamic_pools_that_do_not_drain_and_is_what_grants_take() {
    let mut parts = subnet("10.0.0.0/24", 0);
    parts.pools = vec![
        pool("10.0.0.0-10.0.0.7", PoolKind::Dynamic),
        pool("10.0.0.16-10.0.0.31", PoolKind::Static),
        PoolConfig { draining: true, ..pool("10.0.0.32-10.0.0.63", PoolKind::Dynamic) },
    ];
    let nowhere = SubnetConfig { pools: Vec::new(), ..subnet("10.0.1.0/24", 1) };
    for yields in [false, true] {
        let spaces = vec![parts.clone(), nowhere.clone(), SubnetConfig { draining: true, ..subnet("10.0.2.0/24", 2) }];
        let mut net = Net::with(|config| (config.cooldown_yields, config.cooldown_seconds) = (yields, 60), spaces);
        let told = |net: &Net, family| net.network.grantable(family);
        // The network address is never granted.
        assert_eq!(told(&net, Family::V4), Grantable { size: 7, left: 7 });
        assert_eq!(told(&net, Family::V6), Grantable::default());
        for n in 0..7 {
            net.allocate(&format!("o{n}"));
        }
        assert_eq!(told(&net, Family::V4), Grantable { size: 7, left: 0 });
        assert!(net.network.counts().free > 200, "which is no use");
        refused!(net.try_allocate("late"), Refusal::NotEnoughCapacity(_));
        // Cooling addresses are granted only if they yield.
        net.release("o3");
        assert_eq!(told(&net, Family::V4).left, u128::from(yields));
        assert_eq!(net.try_allocate("late").is_ok(), yields);
    }
    let whole = Net::new(&["10.0.0.0/29"]);
    assert_eq!(whole.network.grantable(Family::V4), Grantable { size: 6, left: 6 });
}

/// A standby loads a network and follows its owner, then serves it: leases end as if it had been loaded at that time.
#[test]
fn what_was_ready_before_it_is_served_is_as_if_it_had_been_loaded_then() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    for (at, ttl) in [1, 5, 29, 30, 31, 60, 60, 3_600].into_iter().enumerate() {
        let mut ask = wish(&format!("o{at}"));
        ask.options.ttl_seconds = Some(ttl);
        net.now = 1_000;
        net.ask(ask).unwrap();
    }
    let (config, subnets) = (Arc::clone(net.network.config()), net.network.subnets().to_vec());
    let entries = net.network.entries_in("10.0.0.0/24".parse().unwrap());
    assert_eq!(entries.len(), 8);
    let ends = |network: &Network| {
        let mut ends: Vec<_> = network.holdings.leases().collect();
        ends.sort_unstable();
        ends
    };
    for since_ms in [0, 1_000, 1_500, 20_000, 31_000, 33_000, 61_000, 4_000_000] {
        let (floor, since) = (Generation(500), ShardTime(since_ms));
        let mut ready = net.network.clone();
        ready.serve_from(floor, since);
        let loaded = Network::load(Arc::clone(&config), subnets.clone(), entries.clone(), floor, since).unwrap();
        assert_eq!(ends(&ready), ends(&loaded), "served since {since_ms}");
        assert_eq!((ready.next_due(), ready.next_generation()), (loaded.next_due(), loaded.next_generation()));
        ready.check().unwrap();
        // It works from there on: every index is in step.
        let mut served = Net { network: ready, now: since_ms.max(1_000), draws: 0 };
        for at in 0..8 {
            served.release(&format!("o{at}"));
        }
        assert_eq!((served.network.entries(), served.network.next_due()), (0, None));
    }
}

/// The first holding of an owner is found through the owner, the others through their slots; which one is the first may change.
#[test]
fn every_slot_of_an_owner_is_found_whichever_of_them_goes_first() {
    const SLOTS: [&str; 4] = ["web/0", "web/0#eth1", "web/0#eth2", "web/0#eth3"];
    for (first, slot_again) in SLOTS.into_iter().enumerate() {
        for (second, lets_go) in [(1, true), (2, true), (3, true), (2, false)] {
            let mut net = Net::new(&["10.0.0.0/28"]);
            let mut given: Vec<_> = SLOTS.map(|slot| (slot, net.allocate(slot))).into();
            for at in [first, (first + second) % SLOTS.len()] {
                if lets_go {
                    assert_eq!(net.release(SLOTS[at]), 1);
                } else {
                    make_obsolete(&mut net, SLOTS[at]);
                }
                given.retain(|(slot, _)| *slot != SLOTS[at]);
                for slot in SLOTS {
                    let held = given.iter().find(|(held, _)| *held == slot).map(|(_, at)| address(at));
                    assert_eq!(net.network.slot_holder(&holder(slot)), held, "{slot} after {}", SLOTS[at]);
                }
                net.network.check().unwrap();
            }
            let again = net.allocate(slot_again);
            assert_eq!(net.network.slot_holder(&holder(slot_again)), Some(address(&again)));
            assert_eq!(net.network.slot_holder(&holder("web/1")), None);
        }
    }
}

#[test]
fn an_exchange_drops_no_promise_on_either_side() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    net.claim("x", "10.0.0.1", |_| ()).unwrap();
    net.claim("w", "10.0.0.9", |_| ()).unwrap();
    edit(&mut net, address("10.0.0.1"), |held| {
        let promise = Promise { plan: 5, owner: "z".parse().unwrap(), slot: "0".parse().unwrap() };
        held.planned = Some(Box::new(Planned { leaving: Some(5), promise: Some(promise), ..Planned::default() }));
    });
    refused!(net.run(&hand("10.0.0.1", "x", "w", true)), Refusal::Taken { .. });
    refused!(net.run(&hand("10.0.0.9", "w", "x", true)), Refusal::Taken { .. });
}

#[test]
fn an_exchange_of_an_obsolete_address_for_a_current_one_keeps_the_limits() {
    let mut net = Net::with(|config| config.limits.per_owner = Some(1), vec![subnet("10.0.0.0/24", 0)]);
    net.claim("a#0", "10.0.0.1", |_| ()).unwrap();
    make_obsolete(&mut net, "a#0");
    net.claim("a#1", "10.0.0.2", |_| ()).unwrap();
    net.claim("b#0", "10.0.0.3", |_| ()).unwrap();
    refused!(net.run(&hand("10.0.0.1", "a", "b#0", true)), Refusal::QuotaExceeded { .. });
    net.release("a#1");
    net.run(&hand("10.0.0.1", "a", "b#0", true)).unwrap();
    assert_eq!(net.network.slot_holder(&holder("a#0")), Some(address("10.0.0.3")));
}

#[test]
fn a_repeat_never_shortens_a_lease_that_lasts_longer_after_a_take_over() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    let mut ask = wish("a");
    ask.options.ttl_seconds = Some(3_600);
    net.ask(ask.clone()).unwrap();
    // Taken over one second before its end.
    net.at(3_599);
    net.network.serve_from(Generation(0), ShardTime(net.now));
    let before = net.network.holdings.leases().next().unwrap().0;
    net.now += 2_000;
    ask.options.ttl_seconds = Some(2);
    net.ask(ask).unwrap();
    assert!(net.network.holdings.leases().next().unwrap().0 >= before);
}

#[test]
fn an_obsolete_reservation_leaves_its_mac_to_what_is_granted_in_its_place() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    let mac: Mac = "52:54:00:00:00:01".parse().unwrap();
    net.claim("a", "10.0.0.5", |ask| ask.options.mac = Some(MacWish::Given(mac))).unwrap();
    make_obsolete(&mut net, "a");
    net.run(&decline("10.0.0.5", "a", true)).unwrap();
}

#[test]
fn pages_of_a_range_that_begins_within_a_block_end() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    net.claim("block", "10.0.0.4", |ask| ask.prefix_length = Some(30)).unwrap();
    net.claim("one", "10.0.0.9", |_| ()).unwrap();
    let filter = Filter { range: Some("10.0.0.5-10.0.0.20".parse().unwrap()), ..Filter::default() };
    let (mut after, mut seen) = (None, Vec::new());
    for _ in 0..3 {
        let slice = ListSlice { filter: filter.clone(), after, limit: 1, count_only: false };
        let Outcome::Listed { slice, .. } = net.run(&Command::List(Box::new(slice))).unwrap() else { panic!() };
        let Slice { views, next, .. } = slice;
        seen.extend(views.iter().map(|view| view.address.to_string()));
        after = next;
    }
    assert_eq!((seen, after), (vec!["10.0.0.4".to_owned(), "10.0.0.9".to_owned()], None));
}

#[test]
fn an_exact_acquire_lets_go_of_nothing_that_another_object_of_the_same_name_holds() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    let mut ask = wish("a");
    ask.options.owner_uid = Some("one".parse().unwrap());
    net.ask(ask.clone()).unwrap();
    let options = GrantOptions { owner_uid: Some("two".parse().unwrap()), ..GrantOptions::default() };
    let item =
        AcquireItem { index: 0, slot: "z".parse().unwrap(), address: None, wish: Wish::default(), optional: false };
    let (scope, owner) = (Scope::default(), ask.holder.owner.clone());
    let exact = Acquire { scope, owner, items: vec![item], exact: true, options };
    refused!(run_acquire(&mut net, exact.clone()), Refusal::Taken { .. });
    run_acquire(&mut net, Acquire { options: GrantOptions::default(), ..exact }).unwrap();
}

#[test]
fn a_scope_has_its_obsolete_reservations_among_its_reservations() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    net.allocate("a");
    assert_eq!(net.block("b", 28).unwrap(), "10.0.0.16/28");
    make_obsolete(&mut net, "b");
    let ask = Command::Scopes { after: None, limit: 1_000 };
    let Outcome::Scopes { page, more } = net.run(&ask).unwrap() else { panic!() };
    assert_eq!((page[0].reservations, page[0].addresses, page[0].obsolete, more), (2, 17, 1, false));
    net.release("b");
}

#[test]
fn what_is_promised_is_in_use_whether_or_not_its_slot_is_taken_by_an_exchange() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    net.claim("a", "10.0.0.1", |_| ()).unwrap();
    make_obsolete(&mut net, "a");
    net.claim("a", "10.0.0.2", |_| ()).unwrap();
    net.claim("b", "10.0.0.3", |_| ()).unwrap();
    refused!(net.run(&hand("10.0.0.1", "a", "b", true)), Refusal::SlotTaken { .. });
    edit(&mut net, address("10.0.0.3"), |held| {
        let promise = Promise { plan: 1, owner: "c".parse().unwrap(), slot: Slot::default() };
        held.planned = Some(Box::new(Planned { promise: Some(promise), ..Planned::default() }));
    });
    refused!(net.run(&hand("10.0.0.1", "a", "b", true)), Refusal::Taken { .. });
}
