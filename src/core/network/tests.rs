//! Facts about grants, releases and what follows them.

mod cells;
mod compare;
mod corners;
mod ends;
mod heal;
mod lists;
mod loading;
mod many;
mod no_room;
mod policies;
mod promises;
mod reaching;
mod repeats;
mod sweeps;

use super::*;
use crate::core::address::Cidr;
use crate::core::command::*;
use crate::core::outcome::{AddressState, Grant, Outcome};
use crate::core::state::*;
use crate::core::types::*;

/// A network under test: time is a value, and every step is applied and checked.
struct Net {
    network: Network,
    now: u64,
    draws: u128,
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn pool(range: &str, kind: PoolKind) -> PoolConfig {
    PoolConfig { range: range.parse().unwrap(), name: None, kind, draining: false, since: Generation(0) }
}

fn subnet(text: &str, position: u64) -> SubnetConfig {
    SubnetConfig {
        id: SubnetId(u128::from(position) + 1),
        name: None,
        cidr: cidr(text),
        gateway: None,
        dhcp: false,
        dns: Dns::default(),
        zones: Vec::new(),
        tags: Labels::new(),
        draining: false,
        pools: vec![pool(text, PoolKind::Dynamic)],
        reserved: Vec::new(),
        past_pools: Vec::new(),
        position,
        version: Version(1),
    }
}

/// A subnet of which only the prefix is given.
pub(super) fn subnet_input(prefix: &str) -> SubnetInput {
    SubnetInput {
        cidr: cidr(prefix),
        name: None,
        gateway: None,
        dhcp: None,
        dns: None,
        zones: None,
        tags: None,
        draining: None,
        pools: None,
        reserved: None,
    }
}

fn config() -> NetworkConfig {
    NetworkConfig {
        id: NetworkId(7),
        name: "lan".parse().unwrap(),
        realm: Name::default_realm(),
        kind: NetworkKind::Manual,
        l2: L2::default(),
        policy: Policy::Lowest,
        cooldown_seconds: 0,
        cooldown_yields: false,
        static_only: false,
        protected: false,
        limits: Limits::default(),
        tags: Labels::new(),
        description: Default::default(),
        version: Version(1),
        created_at: WallTime(0),
        closed: false,
        purged: false,
        conflicts: Vec::new(),
    }
}

fn holder(text: &str) -> SlotKey {
    let (owner, slot) = text.split_once('#').unwrap_or((text, "0"));
    SlotKey { scope: Scope::default(), owner: owner.parse().unwrap(), slot: slot.parse().unwrap() }
}

fn target(owner: &str) -> Target {
    let holder = holder(owner);
    Target { owner: Some(holder.owner), slot: Some(holder.slot), ..Target::default() }
}

impl Net {
    fn with(change: impl FnOnce(&mut NetworkConfig), subnets: Vec<SubnetConfig>) -> Self {
        let mut config = config();
        change(&mut config);
        let network = Network::load(
            Arc::new(config),
            subnets.into_iter().map(Arc::new).collect(),
            Vec::new(),
            Generation(100),
            ShardTime(0),
        )
        .unwrap();
        Self { network, now: 1_000, draws: 0 }
    }

    fn new(subnets: &[&str]) -> Self {
        let subnets = subnets.iter().enumerate().map(|(at, text)| subnet(text, at as u64)).collect();
        Self::with(|_| (), subnets)
    }

    fn at(&mut self, seconds: u64) -> &mut Self {
        self.now = 1_000 + seconds * 1_000;
        self
    }

    fn context(&mut self) -> Context {
        self.draws = self.draws.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(1);
        Context {
            now: ShardTime(self.now),
            wall: WallTime(self.now + 1_000_000),
            entropy: self.draws,
            mac_elsewhere: None,
            generations: Generation::default(),
        }
    }

    fn run(&mut self, command: &Command) -> Result<Outcome, Refusal> {
        let context = self.context();
        while self.network.next_due().is_some_and(|due| due <= context.now) {
            let decision = self.network.decide(&Command::Expire, context).unwrap();
            decision.steps.iter().for_each(|step| self.network.apply(step, context.now));
        }
        let decision = self.network.decide(command, context)?;
        for step in &decision.steps {
            self.network.apply(step, context.now);
        }
        self.network.check().unwrap();
        Ok(decision.outcome)
    }

    fn ask(&mut self, ask: Allocate) -> Result<Grant, Refusal> {
        match self.run(&Command::Allocate(Box::new(ask)))? {
            Outcome::Granted(grant) => Ok(*grant),
            other => panic!("{other:?}"),
        }
    }

    fn allocate(&mut self, owner: &str) -> String {
        self.try_allocate(owner).unwrap()
    }

    fn try_allocate(&mut self, owner: &str) -> Result<String, Refusal> {
        self.ask(wish(owner)).map(|grant| grant.view.address.to_string())
    }

    fn block(&mut self, owner: &str, length: u8) -> Result<String, Refusal> {
        let mut ask = wish(owner);
        ask.wish.prefix_length = Some(length);
        self.ask(ask).map(|grant| format!("{}/{}", grant.view.address, grant.view.reservation.prefix_length))
    }

    fn claim(&mut self, owner: &str, at: &str, change: impl FnOnce(&mut Claim)) -> Result<Grant, Refusal> {
        let mut ask = Claim {
            holder: holder(owner),
            address: address(at),
            prefix_length: None,
            force: false,
            options: GrantOptions::default(),
        };
        change(&mut ask);
        match self.run(&Command::Claim(Box::new(ask)))? {
            Outcome::Granted(grant) => Ok(*grant),
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, owner: &str) -> usize {
        let ask = Release { target: target(owner), force: false, strict: false };
        match self.run(&Command::Release(Box::new(ask))).unwrap() {
            Outcome::Released(released) => released.len(),
            other => panic!("{other:?}"),
        }
    }

    fn state(&mut self, at: &str) -> AddressState {
        match self.run(&Command::Get(address(at))).unwrap() {
            Outcome::Lookup(lookup) => lookup.state,
            other => panic!("{other:?}"),
        }
    }
}

fn wish(owner: &str) -> Allocate {
    Allocate { holder: holder(owner), wish: Wish::default(), options: GrantOptions::default() }
}

macro_rules! refused {
    ($result:expr, $pattern:pat) => {{
        let result = $result;
        assert!(matches!(result, Err($pattern)), "{result:?}");
    }};
}
use refused;

#[test]
fn every_usable_address_is_given_once_and_no_other() {
    let mut net = Net::new(&["10.0.0.0/29", "10.0.1.0/31", "2001:db8::/126"]);
    let given: Vec<_> = (0..11).map(|n| net.allocate(&format!("vm/{n}"))).collect();
    assert_eq!(
        given,
        [
            "10.0.0.1",
            "10.0.0.2",
            "10.0.0.3",
            "10.0.0.4",
            "10.0.0.5",
            "10.0.0.6",
            "10.0.1.0",
            "10.0.1.1",
            "2001:db8::1",
            "2001:db8::2",
            "2001:db8::3"
        ]
    );
    refused!(net.try_allocate("vm/11"), Refusal::NotEnoughCapacity(_));
    let counts = net.network.counts();
    assert_eq!((counts.size, counts.held, counts.reserved, counts.free), (14, 11, 3, 0));
}

#[test]
fn a_retry_returns_the_same_address_and_says_so() {
    let mut net = Net::new(&["10.0.0.0/29"]);
    let first = net.ask(wish("web/0")).unwrap();
    let again = net.ask(wish("web/0")).unwrap();
    assert!(first.created && !again.created);
    assert_eq!(first.view.reservation.generation, again.view.reservation.generation);
}

#[test]
fn a_slot_that_holds_another_wish_is_already_exists_and_replace_swaps_it() {
    let mut net = Net::new(&["10.0.0.0/29", "10.0.1.0/29"]);
    net.allocate("web/0");
    let mut ask = wish("web/0");
    ask.wish.subnet = Some(SubnetRef::Cidr(cidr("10.0.1.0/29")));
    refused!(net.ask(ask.clone()), Refusal::SlotTaken { .. });
    ask.options.replace = true;
    let grant = net.ask(ask).unwrap();
    assert_eq!((grant.view.address, grant.replaced), (address("10.0.1.1"), Some(address("10.0.0.1"))));
    assert_eq!(net.state("10.0.0.1"), AddressState::Free);
}

#[test]
fn released_address_goes_back_to_its_owner_but_to_nobody_else_during_cooldown() {
    let mut net = Net::with(|config| config.cooldown_seconds = 60, vec![subnet("10.0.0.0/29", 0)]);
    let first = net.allocate("web/0");
    net.at(10).release("web/0");
    assert_eq!(net.state(&first), AddressState::Cooling);
    assert_ne!(net.at(11).allocate("db/0"), first);
    assert_eq!(net.at(12).allocate("web/0"), first);
    net.at(13).release("web/0");
    assert_ne!(net.at(72).allocate("x/0"), first);
    assert_eq!(net.at(73).allocate("x/1"), first);
}

#[test]
fn cooling_addresses_yield_longest_first_when_nothing_else_is_free() {
    let mut net = Net::with(
        |config| (config.cooldown_seconds, config.cooldown_yields) = (600, true),
        vec![subnet("10.0.0.0/30", 0)],
    );
    let (a, b) = (net.allocate("a"), net.allocate("b"));
    net.at(1).release("b");
    net.at(2).release("a");
    assert_eq!(net.at(3).allocate("c"), b);
    assert_eq!(net.at(3).allocate("d"), a);
    refused!(net.try_allocate("e"), Refusal::NotEnoughCapacity(_));
}

#[test]
fn oldest_takes_never_used_ones_first_and_then_the_one_freed_longest_ago() {
    let mut net = Net::with(|config| config.policy = Policy::Oldest, vec![subnet("10.0.0.0/29", 0)]);
    for n in 1..=4 {
        net.allocate(&n.to_string());
    }
    net.at(1).release("3");
    net.at(2).release("1");
    let order: Vec<_> = (0..4).map(|n| net.at(3).allocate(&format!("x{n}"))).collect();
    assert_eq!(order, ["10.0.0.5", "10.0.0.6", "10.0.0.3", "10.0.0.1"]);
}

#[test]
fn random_gives_every_address_exactly_once() {
    let mut net = Net::with(|config| config.policy = Policy::Random, vec![subnet("10.0.0.0/26", 0)]);
    let given: std::collections::BTreeSet<_> = (0..62).map(|n| net.allocate(&n.to_string())).collect();
    assert_eq!(given.len(), 62);
    refused!(net.try_allocate("more"), Refusal::NotEnoughCapacity(_));
}

#[test]
fn blocks_are_aligned_lie_in_one_pool_and_never_contain_an_unusable_address() {
    let mut small = subnet("10.0.0.0/24", 0);
    small.gateway = Some(address("10.0.0.65"));
    let mut net = Net::with(|_| (), vec![small]);
    assert_eq!(net.allocate("one"), "10.0.0.1");
    assert_eq!(net.block("a", 26).unwrap(), "10.0.0.128/26");
    refused!(net.block("b", 26), Refusal::NotEnoughCapacity(_));
    assert_eq!(net.block("c", 28).unwrap(), "10.0.0.16/28");
    refused!(net.claim("d", "10.0.0.20", |_| ()), Refusal::Taken { .. });
    assert_eq!(net.state("10.0.0.20"), AddressState::Held);
    refused!(net.block("e", 23), Refusal::InvalidArgument { .. });
    assert_eq!(net.release("c"), 1);
    assert_eq!(net.claim("d", "10.0.0.20", |_| ()).unwrap().view.address, address("10.0.0.20"));
    assert_eq!(net.block("a", 32).err().map(|refusal| refusal.precedence()), Some(9));
}

#[test]
fn a_lone_address_of_a_cooling_block_leaves_the_rest_cooling() {
    let mut net = Net::with(|config| config.cooldown_seconds = 60, vec![subnet("10.0.0.0/24", 0)]);
    assert_eq!(net.block("a", 28).unwrap(), "10.0.0.16/28");
    net.release("a");
    net.claim("b", "10.0.0.20", |_| ()).unwrap();
    assert_eq!(net.state("10.0.0.19"), AddressState::Cooling);
    assert_eq!(net.network.counts().cooling, 15);
    net.at(61);
    assert_eq!(net.state("10.0.0.19"), AddressState::Free);
    assert_eq!(net.network.counts().cooling, 0);
}

#[test]
fn a_claim_says_what_stands_in_its_way() {
    let mut guarded = subnet("10.0.0.0/28", 0);
    guarded.gateway = Some(address("10.0.0.14"));
    guarded.reserved = vec![
        ReservedRange { range: "10.0.0.4-10.0.0.5".parse().unwrap(), note: "printer".into(), reserved_for: None },
        ReservedRange {
            range: "10.0.0.9".parse().unwrap(),
            note: Default::default(),
            reserved_for: Some(ReservedFor { scope: Scope::default(), owner: "db".parse().unwrap(), slot: None }),
        },
    ];
    let mut net = Net::with(|_| (), vec![guarded]);
    net.allocate("web");
    refused!(net.claim("x", "10.0.0.1", |_| ()), Refusal::AlreadyInUse { .. });
    refused!(net.claim("x", "10.9.0.1", |_| ()), Refusal::OutOfRange { .. });
    for never in ["10.0.0.0", "10.0.0.14", "10.0.0.15"] {
        refused!(net.claim("x", never, |ask| ask.force = true), Refusal::Reserved { .. });
    }
    refused!(net.claim("x", "10.0.0.4", |_| ()), Refusal::Reserved { .. });
    assert!(net.claim("x", "10.0.0.4", |ask| ask.force = true).unwrap().created);
    refused!(net.claim("y", "10.0.0.9", |_| ()), Refusal::Reserved { .. });
    assert_eq!(net.allocate("db"), "10.0.0.9");
    refused!(net.claim("web", "10.0.0.7", |_| ()), Refusal::SlotTaken { .. });
}

#[test]
fn a_lease_ends_not_a_moment_early_and_a_repeat_extends_it() {
    let mut net = Net::new(&["10.0.0.0/29"]);
    let mut ask = wish("a");
    ask.options.ttl_seconds = Some(60);
    net.ask(ask.clone()).unwrap();
    net.at(30).ask(ask).unwrap();
    net.at(89);
    assert_eq!(net.state("10.0.0.1"), AddressState::Held);
    net.at(90);
    assert_eq!(net.state("10.0.0.1"), AddressState::Free);
}

#[test]
fn a_repeat_without_ttl_makes_a_leased_reservation_permanent() {
    let mut net = Net::new(&["10.0.0.0/29"]);
    let mut ask = wish("a");
    ask.options.ttl_seconds = Some(60);
    net.ask(ask).unwrap();
    net.at(1).allocate("a");
    net.at(100_000);
    assert_eq!(net.state("10.0.0.1"), AddressState::Held);
}

#[test]
fn a_stale_release_frees_nobody_elses_address() {
    let mut net = Net::new(&["10.0.0.0/30"]);
    let old = net.ask(wish("a")).unwrap().view.reservation.generation;
    net.release("a");
    net.allocate("b");
    let by_generation = Target { address: Some(address("10.0.0.1")), if_generation: Some(old), ..Target::default() };
    let ask = |target| Command::Release(Box::new(Release { target, force: false, strict: false }));
    refused!(net.run(&ask(by_generation)), Refusal::GenerationConflict { .. });
    let by_owner = Target { address: Some(address("10.0.0.1")), ..target("a") };
    refused!(net.run(&ask(by_owner)), Refusal::NotOwner { .. });
    assert_eq!(net.state("10.0.0.1"), AddressState::Held);
}

#[test]
fn an_exchange_swaps_two_addresses_in_one_decision() {
    let mut net = Net::new(&["10.0.0.0/29"]);
    let (a, b) = (net.ask(wish("a")).unwrap(), net.ask(wish("b")).unwrap());
    let ask = Transfer {
        address: a.view.address,
        from: (Scope::default(), "a".parse().unwrap(), None),
        to: holder("b"),
        exchange: true,
        if_generation: None,
    };
    let Outcome::Transferred(views) = net.run(&Command::Transfer(Box::new(ask.clone()))).unwrap() else { panic!() };
    assert_eq!(views.len(), 2);
    assert!(views.iter().all(|view| view.reservation.generation > b.view.reservation.generation));
    assert_eq!(net.network.slot_holder(&holder("a")), Some(b.view.address));
    let repeat = |net: &mut Net| {
        let Outcome::Transferred(again) = net.run(&Command::Transfer(Box::new(ask.clone()))).unwrap() else { panic!() };
        again
    };
    assert_eq!(repeat(&mut net), views, "a repeat is answered as done");
    // An address that was received is not shown once it is no longer held, and nothing that was never exchanged replaces it.
    net.run(&Command::Release(Box::new(Release { target: target("a"), force: false, strict: false }))).unwrap();
    net.allocate("a");
    assert_eq!(repeat(&mut net), views[..1]);
}

#[test]
fn a_declined_address_leaves_circulation_and_another_comes_in_the_same_commit() {
    let mut net = Net::new(&["10.0.0.0/29"]);
    net.allocate("a");
    let ask = Decline {
        address: address("10.0.0.1"),
        from: (Scope::default(), "a".parse().unwrap(), None),
        seen: "52:54:00:00:00:01".into(),
        probation_seconds: 100,
        again: true,
    };
    let Outcome::Declined { granted, .. } = net.run(&Command::Decline(Box::new(ask))).unwrap() else { panic!() };
    assert_eq!(granted.unwrap().view.address, address("10.0.0.2"));
    assert_eq!(net.state("10.0.0.1"), AddressState::Declined);
    assert_eq!(net.network.counts().declined, 1);
    net.at(100);
    assert_eq!(net.state("10.0.0.1"), AddressState::Free);
}

fn acquire(items: Vec<(&str, Option<&str>, bool)>) -> Acquire {
    let item = |(index, (slot, at, optional)): (usize, (&str, Option<&str>, bool))| AcquireItem {
        index,
        slot: slot.parse().unwrap(),
        address: at.map(address),
        wish: Wish::default(),
        optional,
    };
    Acquire {
        scope: Scope::default(),
        owner: "vm".parse().unwrap(),
        items: items.into_iter().enumerate().map(item).collect(),
        exact: false,
        options: GrantOptions::default(),
    }
}

#[test]
fn an_acquire_takes_named_addresses_first_and_all_or_nothing() {
    let mut net = Net::new(&["10.0.0.0/29"]);
    let ask = acquire(vec![("0", None, false), ("1", Some("10.0.0.1"), false)]);
    let Outcome::Acquired { grants, .. } = net.run(&Command::Acquire(Box::new(ask))).unwrap() else { panic!() };
    let given: Vec<_> = grants.iter().map(|(_, grant)| grant.view.address.to_string()).collect();
    assert_eq!(given, ["10.0.0.2", "10.0.0.1"]);
    let too_many = acquire((2..8).map(|n| (["2", "3", "4", "5", "6", "7"][n - 2], None, false)).collect());
    refused!(net.run(&Command::Acquire(Box::new(too_many))), Refusal::OfItem { index: 4, .. });
    assert_eq!(net.network.reservations(), 2);
    let optional = acquire((2..8).map(|n| (["2", "3", "4", "5", "6", "7"][n - 2], None, n > 4)).collect());
    let Outcome::Acquired { grants, .. } = net.run(&Command::Acquire(Box::new(optional))).unwrap() else { panic!() };
    assert_eq!(grants.len(), 4);
}

#[test]
fn an_exact_acquire_lets_go_what_it_does_not_name_within_the_limit() {
    let mut net = Net::with(|config| config.limits.per_owner = Some(2), vec![subnet("10.0.0.0/29", 0)]);
    net.run(&Command::Acquire(Box::new(acquire(vec![("a", None, false), ("b", None, false)])))).unwrap();
    refused!(net.run(&Command::Acquire(Box::new(acquire(vec![("c", None, false)])))), Refusal::OfItem { .. });
    let mut exact = acquire(vec![("b", None, false), ("c", None, false)]);
    exact.exact = true;
    let Outcome::Acquired { grants, released } = net.run(&Command::Acquire(Box::new(exact))).unwrap() else { panic!() };
    assert_eq!(released, [address("10.0.0.1")]);
    assert_eq!(grants.iter().map(|(_, grant)| grant.created).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn of_an_exact_acquire_what_it_lets_go_is_counted_before_anything_is_made_of_it() {
    let mut net = Net::with(|config| config.cooldown_seconds = 0, vec![subnet("10.0.0.0/24", 0)]);
    let slots: Vec<String> = (0..50).map(|slot| slot.to_string()).collect();
    let all = slots.iter().map(|slot| (slot.as_str(), None, false)).collect();
    net.run(&Command::Acquire(Box::new(acquire(all)))).unwrap();
    let mut ask = acquire(vec![("3", None, false)]);
    assert_eq!(net.network.lets_go_bytes_least(&ask), 0, "all stays");
    ask.exact = true;
    assert_eq!(net.network.lets_go_bytes_least(&ask), 49 * crate::limits::PARTED_CHANGE_BYTES);
}

#[test]
fn loading_the_entries_of_a_network_gives_the_same_network() {
    let mut net = Net::with(|config| config.cooldown_seconds = 60, vec![subnet("10.0.0.0/26", 0)]);
    for n in 0..20 {
        net.allocate(&n.to_string());
    }
    net.release("3");
    net.block("blk", 29).unwrap();
    let network = &net.network;
    let everything = network.entries_in("0.0.0.0-255.255.255.255".parse().unwrap());
    let mut loaded = Network::load(
        Arc::clone(network.config()),
        network.subnets().to_vec(),
        everything,
        Generation(0),
        ShardTime(0),
    )
    .unwrap();
    loaded.check().unwrap();
    assert_eq!(loaded.counts(), network.counts());
    assert_eq!(loaded.next_generation(), network.next_generation());
    let context = net.context();
    let ask = Command::Allocate(Box::new(wish("new")));
    let (here, there) = (net.network.decide(&ask, context).unwrap(), loaded.decide(&ask, context).unwrap());
    assert_eq!(here.steps, there.steps);
    loaded.apply(&there.steps[0], context.now);
    loaded.check().unwrap();
}

#[test]
fn a_zone_that_no_subnet_serves_is_no_capacity() {
    let mut zoned = subnet("10.0.0.0/29", 0);
    zoned.zones = vec!["z1".into()];
    let mut net = Net::with(|_| (), vec![zoned, subnet("10.0.1.0/29", 1)]);
    let ask = |zone: &str| {
        let mut ask = wish(zone);
        ask.wish.zone = Some(zone.into());
        ask
    };
    assert_eq!(net.ask(ask("z1")).unwrap().view.address, address("10.0.0.1"));
    assert_eq!(net.ask(ask("z2")).unwrap().view.address, address("10.0.1.1"));
    let mut lone = subnet("10.0.0.0/29", 0);
    lone.zones = vec!["z1".into()];
    let mut net = Net::with(|_| (), vec![lone]);
    refused!(net.ask(ask("z2")), Refusal::NotEnoughCapacity(_));
}
