//! What the policies promise for large requests, or after a long history.

use super::*;
use crate::core::network::pick::OWN_COOLING_LOOKED_AT_MAX;
use crate::limits;

fn acquire_many(count: usize, prefix_length: Option<u8>) -> Command {
    let wish = Wish { prefix_length, ..Wish::default() };
    let slot = |index: usize| index.to_string().parse().unwrap();
    let item = |index| AcquireItem { index, slot: slot(index), address: None, wish: wish.clone(), optional: false };
    Command::Acquire(Box::new(Acquire {
        scope: Scope::default(),
        owner: "many".parse().unwrap(),
        items: (0..count).map(item).collect(),
        exact: false,
        options: GrantOptions::default(),
    }))
}

/// The addresses that one acquire granted, ascending.
fn acquired(net: &mut Net, command: &Command) -> Vec<u128> {
    let Outcome::Acquired { grants, .. } = net.run(command).unwrap() else { panic!("an acquire was asked") };
    let mut given: Vec<u128> = grants.iter().map(|(_, grant)| grant.view.address.bits()).collect();
    given.sort_unstable();
    given
}

/// A slot may have let go of any number of addresses, none of which fits what it asks for now. Looking at each took a tenth
/// of a second for a million.
#[test]
fn of_what_a_slot_let_go_the_last_ones_are_looked_at_and_no_more() {
    let subnets = vec![subnet("10.0.0.0/16", 0), subnet("10.1.0.0/16", 1)];
    let mut net = Net::with(|config| config.cooldown_seconds = 86_400, subnets);
    let let_go = |net: &mut Net, at: u64, text: &str| {
        net.at(at).claim("web/0", text, |_| ()).unwrap();
        net.release("web/0");
    };
    let second = SubnetRef::Cidr(cidr("10.1.0.0/16"));
    let ask = Allocate { wish: Wish { subnet: Some(second), ..Wish::default() }, ..wish("web/0") };
    let_go(&mut net, 0, "10.1.0.77");
    for at in 1..OWN_COOLING_LOOKED_AT_MAX as u64 {
        let_go(&mut net, at, &format!("10.0.{}.{}", at / 200 + 1, at % 200));
    }
    let before = net.network.clone();
    assert_eq!(net.ask(ask.clone()).unwrap().view.address, address("10.1.0.77"), "the last one that is looked at");
    net.network = before;
    let_go(&mut net, 1_000, "10.0.9.9");
    assert_eq!(net.ask(ask).unwrap().view.address, address("10.1.0.1"), "one more let go, and it is not looked at");
}

fn neighbours(given: &[u128], distance: u128) -> usize {
    given.windows(2).filter(|pair| pair[1] - pair[0] == distance).count()
}

/// All draws of a request come from one entropy. Each grant needs draws of its own, or a large acquire falls back to the
/// lowest addresses after a few.
#[test]
fn every_address_of_one_acquire_is_drawn_at_random() {
    for (text, length, distance) in [
        ("10.0.0.0/16", None, 1),
        ("2001:db8::/64", None, 1),
        ("10.0.0.0/8", Some(28), 16),
        ("2001:db8::/32", Some(80), 1 << 48),
    ] {
        let mut net = Net::with(|config| config.policy = Policy::Random, vec![subnet(text, 0)]);
        let given = acquired(&mut net, &acquire_many(limits::ACQUIRE_IPS_MAX, length));
        assert_eq!(given.len(), limits::ACQUIRE_IPS_MAX);
        assert!(neighbours(&given, distance) <= 4, "{text}: {} neighbours", neighbours(&given, distance));
        let (first, size) = (cidr(text).base().bits(), cidr(text).range().size());
        for quarter in 0..4 {
            let part = first + size / 4 * quarter..first + size / 4 * (quarter + 1);
            let inside = given.iter().filter(|bits| part.contains(bits)).count();
            assert!((32..=96).contains(&inside), "{text}: {inside} of 256 in quarter {quarter}");
        }
    }
}

#[test]
fn one_acquire_takes_all_that_is_free_under_every_policy() {
    for policy in [Policy::Lowest, Policy::Random, Policy::Oldest] {
        let mut net = Net::with(|config| config.policy = policy, vec![subnet("10.0.0.0/24", 0)]);
        let given = acquired(&mut net, &acquire_many(254, None));
        assert_eq!((given.len(), neighbours(&given, 1)), (254, 253), "{policy:?}");
    }
}

/// Freed addresses are remembered one by one, and a large acquire passes over those that it has taken itself.
#[test]
fn one_acquire_takes_again_what_was_freed() {
    let mut net = Net::with(|config| config.policy = Policy::Oldest, vec![subnet("10.0.0.0/24", 0)]);
    let given = acquired(&mut net, &acquire_many(254, None));
    let release = Command::ReleaseOwner { scope: Scope::default(), owner: "many".parse().unwrap(), limit: 1_000 };
    net.run(&release).unwrap();
    assert_eq!(acquired(&mut net, &acquire_many(254, None)), given);
}

/// This holds over all pools that may be drawn from, whatever else cools, and whatever has been reserved since.
#[test]
fn the_address_that_cools_longest_yields_first() {
    let yields = |config: &mut NetworkConfig| (config.cooldown_seconds, config.cooldown_yields) = (3_600, true);
    let nets = ["10.0.0.0/30", "10.0.1.0/30", "10.0.2.0/30"];
    let mut net = Net::with(yields, nets.iter().enumerate().map(|(at, text)| subnet(text, at as u64)).collect());
    let given: Vec<String> = (0..6).map(|at| net.allocate(&at.to_string())).collect();
    for at in [5, 2, 0, 4, 3, 1] {
        net.now += 1;
        net.release(&at.to_string());
    }
    let reserved = ReservedInput { range: given[2].parse().unwrap(), note: "printer".into(), reserved_for: None };
    let change = Box::new(Configure::ReservedAdd(Box::new(reserved)));
    net.run(&Command::Configure { change, if_version: None }).unwrap();
    let again: Vec<String> = (0..5).map(|at| net.allocate(&format!("new{at}"))).collect();
    assert_eq!(again, [5, 0, 4, 3, 1].map(|at| given[at].clone()));
    refused!(net.try_allocate("one more"), Refusal::NotEnoughCapacity(_));
    let mut narrow = wish("elsewhere");
    narrow.wish.subnet = Some(SubnetRef::Cidr(cidr("10.0.1.0/30")));
    net.release("new0");
    refused!(net.ask(narrow), Refusal::NotEnoughCapacity(_));
}

/// Of many addresses that one slot let go, the last one comes back, without looking at the others.
#[test]
fn a_slot_gets_back_the_address_that_it_let_go_last() {
    let mut net = Net::with(|config| config.cooldown_seconds = 3_600, vec![subnet("10.0.0.0/24", 0)]);
    for at in (2..60).rev() {
        net.now += 1;
        net.claim("a", &format!("10.0.0.{at}"), |_| ()).unwrap();
        assert_eq!(net.release("a"), 1);
    }
    assert_eq!(net.allocate("a"), "10.0.0.2");
    // Somebody else has that one now, so it gets the one before.
    net.release("a");
    net.claim("b", "10.0.0.2", |_| ()).unwrap();
    assert_eq!(net.allocate("a"), "10.0.0.3");
}

/// Nearly full, with releases and grants in turn: everything stays in step, and the space does not grow.
#[test]
fn long_churn_leaves_the_space_as_small_as_it_was() {
    for policy in [Policy::Lowest, Policy::Random, Policy::Oldest] {
        let mut net = Net::with(|config| config.policy = policy, vec![subnet("10.0.0.0/20", 0)]);
        let mut held: Vec<Address> = acquire_all(&mut net, 4_000);
        let before = net.network.footprint().space_bytes;
        for turn in 0..20_000usize {
            let at = turn.wrapping_mul(0x9e37_79b9) % held.len();
            let context = net.context();
            let release =
                Release { target: Target { address: Some(held[at]), ..Target::default() }, force: true, strict: true };
            step(&mut net, &Command::Release(Box::new(release)), context);
            let Outcome::Granted(grant) =
                step(&mut net, &Command::Allocate(Box::new(wish(&turn.to_string()))), context)
            else {
                panic!("an allocate was asked")
            };
            held[at] = grant.view.address;
        }
        net.network.check().unwrap();
        let after = net.network.footprint().space_bytes;
        assert!(after <= before * 4 + 8_192, "{policy:?}: {before} bytes, then {after}");
    }
}

fn acquire_all(net: &mut Net, count: usize) -> Vec<Address> {
    let grant = |at: usize| {
        let context = net.context();
        match step(net, &Command::Allocate(Box::new(wish(&format!("o{at}")))), context) {
            Outcome::Granted(grant) => grant.view.address,
            other => panic!("{other:?}"),
        }
    };
    (0..count).map(grant).collect()
}

/// Without the check after each step, which costs as much as loading.
fn step(net: &mut Net, command: &Command, context: Context) -> Outcome {
    let decision = net.network.decide(command, context).unwrap();
    decision.steps.iter().for_each(|step| net.network.apply(step, context.now));
    decision.outcome
}

#[test]
fn oldest_remembers_a_bounded_number_of_ranges_in_all_pools_together() {
    let bound = crate::limits::OLDEST_REMEMBERED_MAX;
    let mut one = subnet("10.0.0.0/8", 0);
    one.pools =
        ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"].map(|cidr| pool(cidr, PoolKind::Dynamic)).into();
    let config = NetworkConfig { policy: Policy::Oldest, ..config() };
    // Every second address, so that no two freed ones form one range.
    let each = bound as u32 / 4 + 10;
    let places =
        (1..=4u32).flat_map(|pool| (0..each).map(move |at| Address::V4((10 << 24) + (pool << 16) + 16 + 2 * at)));
    let places: Vec<Address> = places.collect();
    let held = places.iter().zip(1..).map(|(at, generation)| {
        let plain = Reservation::plain(holder(&format!("o{generation}")), Generation(generation), 32, WallTime(0));
        (*at, Entry::Held(Arc::new(plain)))
    });
    let network = Network::of_parts(Arc::new(config), vec![Arc::new(one)], held, Generation(1_000_000));
    let mut net = Net { network, now: 1_000, draws: 0 };
    for (at, generation) in places.iter().zip(1..) {
        let step = Step { key: Key::Address(*at), expect: Some(generation), state: None, event: None };
        net.network.apply(&step, ShardTime(net.now));
    }
    let remembered: usize = net.network.layout.pools.iter().map(|pool| pool.rested.iter().count()).sum();
    assert_eq!(remembered, bound);
    net.network.check().unwrap();
}

#[test]
fn a_yielding_block_is_looked_for_behind_one_that_cools_in_too_many_pieces() {
    let cooling = |config: &mut NetworkConfig| (config.cooldown_seconds, config.cooldown_yields) = (3_600, true);
    let mut net = Net::with(cooling, vec![subnet("10.0.0.0/21", 0)]);
    let many = (0..300).map(|at| format!("10.0.{}.{}", 2 + at / 256, at % 256));
    for at in many.chain(["10.0.4.7".to_owned(), "10.0.6.7".to_owned()]) {
        net.claim(&at, &at, |_| ()).unwrap();
        net.release(&at);
    }
    assert_eq!(net.block("b", 23).unwrap(), "10.0.4.0/23");
}

#[test]
fn that_no_block_yields_because_it_cools_in_too_many_pieces_is_said() {
    let cooling = |config: &mut NetworkConfig| (config.cooldown_seconds, config.cooldown_yields) = (3_600, true);
    let mut net = Net::with(cooling, vec![subnet("10.0.0.0/21", 0)]);
    net.claim("x", "10.0.4.0", |_| ()).unwrap();
    for at in (0..300).map(|at| format!("10.0.{}.{}", 2 + at / 256, at % 256)) {
        net.claim(&at, &at, |_| ()).unwrap();
        net.release(&at);
    }
    let said = net.block("b", 23).unwrap_err().to_string();
    assert!(said.contains("of which the cooling ones lie in more than 256 ranges each"), "{said}");
    assert!(said.contains("ask for a smaller block, or again later (`next_free_at`"), "{said}");
    net.claim("y", "10.0.3.255", |_| ()).unwrap();
    let said = net.block("b", 23).unwrap_err().to_string();
    assert!(!said.contains("ranges each"), "something of each is held: {said}");
}

/// The address is claimed and released.
fn cools(net: &mut Net, at: &str) {
    let context = net.context();
    let claim = Claim {
        holder: holder(at),
        address: address(at),
        prefix_length: None,
        force: false,
        options: GrantOptions::default(),
    };
    step(net, &Command::Claim(Box::new(claim)), context);
    let release = Release { target: target(at), force: false, strict: false };
    step(net, &Command::Release(Box::new(release)), context);
}

#[test]
fn a_block_around_its_holders_own_address_is_granted_only_if_nothing_that_cools_is_left_in_it() {
    for (cooling, is_granted) in [(500, true), (501, false), (600, false)] {
        let with = |config: &mut NetworkConfig| (config.cooldown_seconds, config.cooldown_yields) = (3_600, true);
        let mut net = Net::with(with, vec![subnet("10.0.0.0/20", 0)]);
        net.claim("b", "10.0.8.0", |_| {}).unwrap();
        (1..=cooling).for_each(|at| cools(&mut net, &format!("10.0.{}.{}", 8 + at / 256, at % 256)));
        let replaces = |ask: &mut Claim| (ask.prefix_length, ask.options.replace) = (Some(22), true);
        match net.claim("b", "10.0.8.0", replaces) {
            Ok(_) => assert!(is_granted, "beside {cooling}"),
            Err(refused) => {
                assert!(!is_granted, "beside {cooling}: {refused}");
                assert!(matches!(refused, Refusal::Cools { pieces_max: 500, .. }), "{refused}");
            }
        }
        net.network.check().unwrap();
        let inside = net.network.holdings.overlapping(cidr("10.0.8.0/22").range()).count();
        assert_eq!(inside, if is_granted { 1 } else { cooling + 1 });
    }
}

#[test]
fn a_block_that_cools_in_too_many_pieces_is_refused_for_now_and_given_when_they_have_cooled() {
    let cooling = |config: &mut NetworkConfig| (config.cooldown_seconds, config.cooldown_yields) = (3_600, true);
    let mut net = Net::with(cooling, vec![subnet("10.0.0.0/20", 0)]);
    let places: Vec<String> = (0..501).map(|at| format!("10.0.{}.{}", 8 + at / 128, at % 128 * 2)).collect();
    places.iter().for_each(|at| cools(&mut net, at));
    let refused = net.claim("b", "10.0.8.0", |ask| ask.prefix_length = Some(22)).map(drop).unwrap_err();
    assert!(matches!(refused, Refusal::Cools { pieces_max: 500, .. }), "{refused}");
    assert!(refused.to_string().contains("ask for smaller blocks"), "{refused}");
    net.at(3_601);
    while net.network.holdings.anything_cools() {
        let context = net.context();
        step(&mut net, &Command::Expire, context);
    }
    net.claim("b", "10.0.8.0", |ask| ask.prefix_length = Some(22)).unwrap();
}

#[test]
fn oldest_gives_the_block_that_is_free_for_the_longest_time() {
    let oldest = |config: &mut NetworkConfig| config.policy = Policy::Oldest;
    let mut net = Net::with(oldest, vec![subnet("10.0.0.0/27", 0)]);
    let blocks: Vec<String> = (0..6).map(|at| net.block(&format!("b{at}"), 30).unwrap()).collect();
    for at in [3, 1, 5, 0, 4, 2] {
        net.release(&format!("b{at}"));
        net.now += 1_000;
    }
    let again: Vec<String> = (0..6).map(|at| net.block(&format!("c{at}"), 30).unwrap()).collect();
    assert_eq!(again, [3, 1, 5, 0, 4, 2].map(|at: usize| blocks[at].clone()));
}

/// A claim among many pools and ranges looks only at those that it lies in, and finds what it would find among few.
#[test]
fn a_claim_is_judged_by_the_pools_and_reserved_ranges_it_lies_in_and_looks_at_no_others() {
    let mine = ReservedFor { scope: Scope::default(), owner: "mine".parse().unwrap(), slot: None };
    let place = |n: u32| 0x0a00_0000 + 16 * n;
    let range = |first: u32, size: u32| format!("{}+{size}", Address::V4(first)).parse::<Range>().unwrap();
    let mut wide = subnet("10.0.0.0/16", 0);
    // Every sixteen addresses have a pool of eight, every third of which drains; its first two are reserved, every fourth
    // for `mine`.
    wide.pools = (1..400)
        .map(|n| PoolConfig {
            range: range(place(n), 8),
            draining: n % 3 == 0,
            ..pool("10.0.0.0/30", PoolKind::Static)
        })
        .collect();
    wide.reserved = (1..400)
        .map(|n| {
            let reserved_for = (n % 4 == 0).then(|| mine.clone());
            ReservedRange { range: range(place(n), 2), note: Default::default(), reserved_for }
        })
        .collect();
    for n in [1, 3, 4, 12, 399] {
        let over = |first, size| wide.reserved_over(range(first, size)).len();
        let found = (over(place(n), 1), over(place(n) + 2, 13), over(place(n) + 1, 15), over(place(n) - 16, 48));
        let beside = usize::from(n > 1) + usize::from(n < 399);
        assert_eq!(found, (1, 0, 1, 1 + beside), "{n}");
    }
    let mut net = Net::with(|_| (), vec![wide]);
    for n in [1, 2, 3, 4, 8, 12, 396, 398, 399] {
        for offset in [0, 1, 2, 7, 8] {
            for owner in ["mine", "other"] {
                let (drains, reserved) = (n % 3 == 0 && offset < 8, offset < 2 && !(n % 4 == 0 && owner == "mine"));
                let claimed = net.claim(owner, &Address::V4(place(n) + offset).to_string(), |_| ());
                match (drains, reserved, claimed) {
                    (true, _, Err(Refusal::Reserved { why, .. })) => assert!(why.contains("draining"), "{why}"),
                    (false, true, Err(Refusal::Reserved { why, .. })) => {
                        assert!(why.contains("reserved range"), "{why}")
                    }
                    (false, false, Ok(_)) => assert_eq!(net.release(owner), 1),
                    (_, _, claimed) => panic!("{owner} at {offset} of {n}: {:?}", claimed.map(drop)),
                }
            }
        }
    }
}
