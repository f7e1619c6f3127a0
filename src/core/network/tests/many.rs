//! Facts about requests that take much at once, of many pools.

use super::super::draft::{Blocks, Draft};
use super::super::layout::Layout;
use super::super::pool_space::LOOKS;
use super::corners::{make_obsolete, run_acquire};
use super::*;
use crate::core::deployment::*;
use crate::limits::{ANSWERED_RESERVATION_BYTES, WHOLE_ANSWER_BYTES_MAX};

/// A /24 with `count` pools of one address each.
fn scattered(count: u8, change: impl FnOnce(&mut NetworkConfig)) -> Net {
    let pools = (1..=count).map(|at| pool(&format!("10.0.0.{}", 2 * at), PoolKind::Dynamic)).collect();
    Net::with(change, vec![SubnetConfig { pools, ..subnet("10.0.0.0/24", 0) }])
}

/// Otherwise each of many wishes would search again what the ones before it emptied.
#[test]
fn a_pool_that_a_request_emptied_is_not_looked_at_again_by_it() {
    for policy in [Policy::Lowest, Policy::Random, Policy::Oldest] {
        let mut net = scattered(3, |config| config.policy = policy);
        let context = net.context();
        let mut draft = Draft::new(&net.network, context);
        let mut ask = |owner: &str| {
            let grant =
                net.network.allocate_into(&mut draft, &holder(owner), &Wish::default(), &GrantOptions::default());
            grant.map(|grant| grant.view.address.to_string())
        };
        let given = ["a", "b", "c"].map(|owner| ask(owner).unwrap());
        assert_eq!(given, ["10.0.0.2", "10.0.0.4", "10.0.0.6"], "{policy:?}");
        refused!(ask("d"), Refusal::NotEnoughCapacity(_));
        let room = draft.take_room().unwrap();
        assert_eq!(room.find_in([None; 4], Some), None, "{policy:?}");
    }
}

#[test]
fn a_pool_of_which_a_request_took_all_that_cools_is_not_looked_at_again_by_it() {
    let mut net = scattered(3, |config| (config.cooldown_seconds, config.cooldown_yields) = (60, true));
    for owner in ["a", "b", "c"] {
        net.allocate(owner);
    }
    for (second, owner) in ["b", "c", "a"].into_iter().enumerate() {
        assert_eq!(net.at(second as u64).release(owner), 1);
    }
    let context = net.context();
    let mut draft = Draft::new(&net.network, context);
    let mut ask = |owner: &str| {
        let grant = net.network.allocate_into(&mut draft, &holder(owner), &Wish::default(), &GrantOptions::default());
        grant.map(|grant| grant.view.address.to_string())
    };
    assert_eq!(["x", "y", "z"].map(|owner| ask(owner).unwrap()), ["10.0.0.4", "10.0.0.6", "10.0.0.2"]);
    refused!(ask("w"), Refusal::NotEnoughCapacity(_));
    assert_eq!(draft.cooled(), net.network.layout.cooling_longest.last().copied());
}

/// Otherwise each of hundreds of blocks would search thousands of pools that have none, and nobody else would get a turn of
/// the thread.
#[test]
fn a_pool_that_has_no_block_for_a_request_is_not_looked_at_again_by_it() {
    for policy in [Policy::Lowest, Policy::Random, Policy::Oldest] {
        let ranges = ["10.0.0.1-10.0.0.3", "10.0.0.8-10.0.0.15", "10.0.0.21", "10.0.0.32-10.0.0.47"];
        let pools = ranges.iter().map(|range| pool(range, PoolKind::Dynamic)).collect();
        let change = |config: &mut NetworkConfig| config.policy = policy;
        let mut net = Net::with(change, vec![SubnetConfig { pools, ..subnet("10.0.0.0/24", 0) }]);
        let context = net.context();
        let mut draft = Draft::new(&net.network, context);
        let mut left = Vec::new();
        for owner in ["a", "b", "c", "d", "e", "f", "g"] {
            let ask = Wish { prefix_length: Some(30), ..Wish::default() };
            let given = net.network.allocate_into(&mut draft, &holder(owner), &ask, &GrantOptions::default());
            assert_eq!(given.is_err(), owner == "g", "{policy:?}: {owner}");
            let pools = draft.take_left(Blocks::Free(30)).unwrap();
            left.push(pools.as_ref().map(|pools| pools.intersection([None; 4]).collect::<Vec<_>>()));
            draft.give_left(Blocks::Free(30), pools);
        }
        let (first, behind, none) = (None, Some(vec![1, 2, 3]), Some(vec![3]));
        let expected = [first, behind, none.clone(), none.clone(), none.clone(), none, Some(vec![])];
        assert_eq!(left, expected, "{policy:?}");
        // Blocks of another length are looked for in all pools.
        assert_eq!(draft.take_left(Blocks::Free(29)), None);
    }
}

#[test]
fn a_pool_that_has_no_block_that_cools_for_a_request_is_not_looked_at_again_by_it() {
    let ranges = ["10.0.0.1-10.0.0.3", "10.0.0.8-10.0.0.15"];
    let pools = ranges.iter().map(|range| pool(range, PoolKind::Dynamic)).collect();
    let change = |config: &mut NetworkConfig| (config.cooldown_seconds, config.cooldown_yields) = (60, true);
    let mut net = Net::with(change, vec![SubnetConfig { pools, ..subnet("10.0.0.0/24", 0) }]);
    for address in ["10.0.0.9", "10.0.0.13"] {
        net.claim("x", address, |_| ()).unwrap();
        net.release("x");
    }
    let context = net.context();
    let mut draft = Draft::new(&net.network, context);
    let mut ask = |owner: &str| {
        let wish = Wish { prefix_length: Some(30), ..Wish::default() };
        let grant = net.network.allocate_into(&mut draft, &holder(owner), &wish, &GrantOptions::default());
        grant.map(|grant| grant.view.address.to_string())
    };
    assert_eq!(["a", "b"].map(|owner| ask(owner).unwrap()), ["10.0.0.8", "10.0.0.12"]);
    refused!(ask("c"), Refusal::NotEnoughCapacity(_));
    let left = draft.take_left(Blocks::Yielding(30)).unwrap().unwrap();
    assert_eq!(left.intersection([None; 4]).count(), 0);
}

/// Explaining a lack of room takes a look at all pools, so of many such lacks only one is explained.
#[test]
fn of_many_parts_without_room_the_first_one_is_told_with_all_that_stands_in_the_way() {
    let item = |index: usize, optional: bool| AcquireItem {
        index,
        slot: index.to_string().parse().unwrap(),
        address: None,
        wish: Wish::default(),
        optional,
    };
    let mut net = scattered(2, |_| ());
    let items = vec![item(0, false), item(1, false), item(2, true), item(3, false), item(4, false)];
    let options = GrantOptions::default();
    let ask = Acquire { scope: Scope::default(), owner: "o".parse().unwrap(), items, exact: false, options };
    let Err(Refusal::OfItem { index: 3, refusal }) = run_acquire(&mut net, ask) else { panic!("of another item") };
    let Refusal::NotEnoughCapacity(why) = *refusal else { panic!("{refusal:?}") };
    assert_eq!((why.size, why.pools.len()), (2, 2));
    assert_eq!(why.narrowed_by.as_deref(), Some("besides 2 that this request also asks for"));
}

#[test]
fn an_address_with_a_lease_is_there_for_others_when_it_has_cooled() {
    for (yields, free_at) in [(false, 3_611_000), (true, 11_000)] {
        let mut net = scattered(2, |config| (config.cooldown_seconds, config.cooldown_yields) = (3_600, yields));
        let mut ask = wish("a");
        ask.options.ttl_seconds = Some(10);
        net.ask(ask).unwrap();
        net.allocate("b");
        match net.try_allocate("c") {
            Err(Refusal::NotEnoughCapacity(why)) => assert_eq!(why.next_free_at.map(|(_, at)| at.0), Some(free_at)),
            other => panic!("{other:?}"),
        }
    }
}

/// A chain: each subnet serves two zones and has one address. The last instance gets one only if all others are dealt another.
#[test]
fn a_list_over_so_many_zones_that_dealing_it_would_stall_the_network_is_refused_and_told_so() {
    let deal = |count: u32| {
        let prefix = |at: u32| format!("10.{}.{}", at / 256, at % 256);
        let subnets = (0..count).map(|at| {
            let zones = vec![format!("z{at}").into(), format!("z{}", at + 1).into()];
            SubnetConfig { zones, pools: Vec::new(), ..subnet(&format!("{}.0/24", prefix(at)), at.into()) }
        });
        let mut net = Net::with(|_| (), subnets.collect());
        let wishes = (1..=count).chain([0]).zip(0..).map(|(zone, place)| DeployWish {
            place,
            owner: format!("i{zone}").parse().unwrap(),
            slot: Slot::default(),
            zone: Some(format!("z{zone}").into()),
            fresh: false,
            wanted: Wanted::Dealt(0),
        });
        let wishes: Vec<DeployWish> = wishes.collect();
        let listed = Arc::new(wishes.iter().map(|wish| wish.owner.clone()).collect());
        let ranges = (0..count).map(|at| format!("{}.1", prefix(at)).parse().unwrap()).collect();
        let lists = vec![StaticList { group: 0, network: 0, ranges }];
        let (again, open) = (false, false);
        let ask = Deploy { scope: "shop".parse().unwrap(), plan: 1, again, open, wishes, lists, listed };
        net.run(&Command::Deploy(Box::new(ask))).unwrap_err().to_string()
    };
    let few = deal(20);
    assert!(few.contains("too few addresses") && few.contains("in zone `z0`"), "{few}");
    let many = deal(3_000);
    assert!(many.contains("too many zones and subnets") && many.contains("`i0`"), "{many}");
}

/// There are as many pools as reserved ranges; each pool looks only at the ranges, and the memory of `oldest`, in itself.
#[test]
fn a_pool_looks_at_nothing_that_lies_in_others_when_it_is_built() {
    const POOLS: usize = 512;
    let place = |at: usize, last: usize| format!("10.0.{}.{}", at / 32, at % 32 * 8 + last);
    let pools = (0..POOLS).map(|at| pool(&format!("{}-{}", place(at, 0), place(at, 7)), PoolKind::Dynamic)).collect();
    let reserve =
        |at: usize| ReservedRange { range: place(at, 3).parse().unwrap(), note: "".into(), reserved_for: None };
    let reserved = (0..POOLS).map(reserve).collect();
    let oldest = |config: &mut NetworkConfig| config.policy = Policy::Oldest;
    LOOKS.set(0);
    let mut net = Net::with(oldest, vec![SubnetConfig { pools, reserved, ..subnet("10.0.0.0/20", 0) }]);
    assert!((POOLS..=2 * POOLS + 8).contains(&LOOKS.get()), "{} looks", LOOKS.get());
    for at in (0..POOLS).step_by(4) {
        net.claim("x", &place(at, 5), |_| ()).unwrap();
        net.release("x");
    }
    let mut config = NetworkConfig::clone(&net.network.config);
    config.cooldown_yields = true;
    LOOKS.set(0);
    let network = net.network;
    let layout = Layout::build(&config, &network.subnets, &network.holdings, network.layout);
    assert!((POOLS..=2 * POOLS + 8).contains(&LOOKS.get()), "{} looks", LOOKS.get());
    assert_eq!(layout.pools.iter().map(|pool| pool.rests().1).sum::<usize>(), POOLS / 4);
}

/// Everything without a scope is in the default one, so a mistyped name is enough to let go of it all.
#[test]
fn a_plan_that_lets_go_of_more_than_can_be_told_is_refused_before_anything_is_made_of_it() {
    const TOLD: usize = WHOLE_ANSWER_BYTES_MAX / ANSWERED_RESERVATION_BYTES;
    let mut net = Net::new(&["10.0.0.0/14"]);
    let plan = |instances: &[&str]| {
        let wish = |(place, owner): (usize, &&str)| DeployWish {
            place,
            owner: owner.parse().unwrap(),
            slot: Slot::default(),
            zone: None,
            fresh: false,
            wanted: Wanted::Automatic(Box::default()),
        };
        let wishes = instances.iter().enumerate().map(wish).collect();
        let listed = Arc::new(instances.iter().map(|owner| owner.parse().unwrap()).collect());
        let (again, open, lists) = (false, false, Vec::new());
        Command::Deploy(Box::new(Deploy { scope: Scope::default(), plan: 1, again, open, wishes, lists, listed }))
    };
    let decide = |net: &mut Net, instances: &[&str]| {
        let context = net.context();
        net.network.decide(&plan(instances), context).map(|decision| decision.steps.len())
    };
    for at in 0..TOLD {
        // Not with `allocate`, which checks the whole network each time.
        let context = net.context();
        let granted = net.network.decide(&Command::Allocate(Box::new(wish(&format!("o{at}")))), context).unwrap();
        granted.steps.iter().for_each(|step| net.network.apply(step, context.now));
    }
    assert_eq!(decide(&mut net, &[]).unwrap(), TOLD);
    net.allocate("one too many");
    let refused = decide(&mut net, &[]).unwrap_err();
    let told = format!("which includes {} that are no longer listed: release those first", TOLD + 1);
    assert!(matches!(&refused, Refusal::InvalidArgument { field, .. } if field == "instances"), "{refused:?}");
    assert!(refused.to_string().contains(&told), "{refused}");
    assert!(decide(&mut net, &["one too many"]).is_ok());
    // What its owner has released does not need to be listed any more.
    net.release("o1");
    assert!(decide(&mut net, &[]).is_ok());
}

#[test]
fn the_end_of_a_plan_notes_only_what_plans_have_to_do_with_and_tells_whom_it_means() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    for owner in ["a", "b", "c"] {
        net.allocate(owner);
    }
    make_obsolete(&mut net, "b");
    let settle = |names: Option<&[&str]>| Settle {
        scope: Scope::default(),
        plan: 1,
        instances: names.map(|names| Arc::new(names.iter().map(|owner| owner.parse().unwrap()).collect())),
        committed: Arc::default(),
        reverted: Arc::default(),
        uncommitted_since: None,
        revert: false,
    };
    let mut decide = |names: Option<&[&str]>| {
        let context = net.context();
        let decision = net.network.decide(&Command::Settle(Box::new(settle(names))), context).unwrap();
        let Outcome::Settled { released, left, instances, .. } = decision.outcome else { panic!("another outcome") };
        let names: Vec<String> = instances.iter().map(ToString::to_string).collect();
        (released.len(), decision.steps.len(), left, names.join(" "))
    };
    assert_eq!(decide(None), (1, 1, 0, String::new()));
    assert_eq!(decide(Some(&["a", "b", "nobody"])), (1, 1, 0, "a b".to_owned()));
    assert_eq!(decide(Some(&["a"])), (0, 0, 1, "a".to_owned()));
}

#[test]
fn an_acquire_makes_none_of_the_macs_that_are_used_elsewhere_and_all_others_again() {
    let mut net = Net::with(|config| config.l2.mac_prefix = Some("aa:00:00".into()), vec![subnet("10.0.0.0/24", 0)]);
    let item = |index: usize| AcquireItem {
        index,
        slot: index.to_string().parse().unwrap(),
        address: None,
        wish: Wish::default(),
        optional: false,
    };
    let context = net.context();
    let made = |macs_elsewhere: &[Mac]| {
        let options = GrantOptions {
            mac: Some(MacWish::Auto),
            macs_elsewhere: macs_elsewhere.to_vec(),
            ..GrantOptions::default()
        };
        let items = (0..100).map(item).collect();
        let ask = Acquire { scope: Scope::default(), owner: "o".parse().unwrap(), items, exact: false, options };
        let decision = net.network.decide(&Command::Acquire(Box::new(ask)), context).unwrap();
        let Outcome::Acquired { grants, .. } = decision.outcome else { panic!() };
        let mac = |(_, grant): &(usize, Grant)| grant.view.reservation.details.as_ref().unwrap().mac.unwrap();
        grants.iter().map(mac).collect::<Vec<Mac>>()
    };
    let first = made(&[]);
    let elsewhere = [first[3], first[90]];
    let second = made(&elsewhere);
    assert_eq!(second.len(), 100);
    let (mut others, mut kept) = (first.clone(), second.clone());
    others.retain(|mac| !elsewhere.contains(mac));
    kept.retain(|mac| first.contains(mac));
    assert_eq!(kept, others, "only what is used elsewhere is made anew");
}
