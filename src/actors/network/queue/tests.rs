//! Random waits, releases and changes of configuration over one small network: who is served, and when nobody is.
//!
//! After each act the queue is served as the actor serves it. The tests check it by asking the network about every waiter, one
//! by one: whoever is served is the first for whom there was anything, and when the queue says that nobody can be served,
//! nobody can, and nobody waits for something that no freed room can bring.
//! `PROPTEST_CASES=20000 cargo test --lib queue::tests` is the long run.

use proptest::prelude::*;

use super::*;
use crate::core::address::{Address, Family};
use crate::core::command::*;
use crate::core::network::create;
use crate::core::outcome::Decision;
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, Policy, PoolKind, ReservedFor, State};
use crate::core::types::{Generation, Name, NetworkId, Owner, Scope, ShardTime, Slot, WallTime};

const NETWORK: NetworkId = NetworkId(7);

/// Numbers that make the choices; when they are used up, all further ones are 0.
struct Dice<'a>(std::slice::Iter<'a, u16>);

impl Dice<'_> {
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % bound.max(1)
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    fn owner(&mut self) -> Owner {
        format!("o{}", self.below(24)).parse().unwrap()
    }

    fn slot(&mut self) -> SlotKey {
        SlotKey { scope: Scope::default(), owner: self.owner(), slot: Slot::default() }
    }

    fn wish(&mut self) -> Wish {
        let mut wish = Wish::default();
        match self.below(12) {
            0 => wish.family = Some(Family::V4),
            1 => wish.family = Some(Family::V6),
            2 => wish.subnet = Some(SubnetRef::Cidr("10.0.0.0/28".parse().unwrap())),
            3 => wish.subnet = Some(SubnetRef::Named("b".into())),
            4 => wish.pool = Some(PoolRef::Named("p".parse().unwrap())),
            5 => wish.pool = Some(PoolRef::Named("q".parse().unwrap())),
            6 => wish.zone = Some("z1".into()),
            7 => wish.zone = Some("z2".into()),
            8 => (wish.prefix_length, wish.family) = (Some(31), Some(Family::V4)),
            9 => (wish.prefix_length, wish.family) = (Some(30), Some(Family::V4)),
            10 => wish.prefix_length = Some(126),
            _ => {}
        }
        wish
    }

    /// A request that may wait.
    fn grant(&mut self) -> Command {
        let ttl_seconds = self.once_in(6).then_some(30);
        let options = GrantOptions { ttl_seconds, replace: self.once_in(8), ..GrantOptions::default() };
        if self.once_in(4) {
            let (alike, all_alike, both) = (self.wish(), self.once_in(2), self.once_in(2));
            let of_family = |family| Wish { family: Some(family), ..Wish::default() };
            let items = (0..2 + self.below(3)).map(|index| AcquireItem {
                index,
                slot: index.to_string().parse().unwrap(),
                address: None,
                wish: match (all_alike, both) {
                    (true, _) => alike.clone(),
                    (false, true) => of_family(Family::ALL[index % 2]),
                    (false, false) => self.wish(),
                },
                optional: !all_alike && !both && self.once_in(5),
            });
            let items = items.collect();
            let owner = self.owner();
            return Command::Acquire(Box::new(Acquire {
                scope: Scope::default(),
                owner,
                items,
                exact: false,
                options,
            }));
        }
        Command::Allocate(Box::new(Allocate { holder: self.slot(), wish: self.wish(), options }))
    }

    fn target(&mut self) -> Box<Target> {
        let SlotKey { owner, .. } = self.slot();
        Box::new(Target {
            owner: Some(owner),
            slot: Some(self.of(&["0", "1", "2"]).parse().unwrap()),
            ..Target::default()
        })
    }

    fn range(&mut self) -> crate::core::address::Range {
        self.of(&["10.0.0.2", "10.0.0.4-10.0.0.7", "10.0.1.0-10.0.1.3", "10.0.0.1-10.0.0.14", "fd00::4/126"])
            .parse()
            .unwrap()
    }

    fn configure(&mut self) -> Configure {
        let drain = |draining| Patch::Set(draining);
        match self.below(10) {
            0 => Configure::PoolRemove(PoolRemoval::Range(self.range())),
            1 | 2 => {
                let kind = Some(self.of(&[PoolKind::Dynamic, PoolKind::Dynamic, PoolKind::Static]));
                let name = Some(self.of(&["p", "q"]).parse().unwrap());
                let input = PoolInput { range: Some(self.range()), name, kind, draining: None };
                Configure::PoolAdd { input, subnet: None, if_absent: false }
            }
            3 => {
                let owner = ReservedFor { scope: Scope::default(), owner: self.owner(), slot: None };
                let range = self.of(&["10.0.0.3", "10.0.1.1", "10.0.0.4-10.0.0.6"]).parse().unwrap();
                Configure::ReservedAdd(Box::new(ReservedInput { range, note: "".into(), reserved_for: Some(owner) }))
            }
            4 => Configure::ReservedRemove { range: self.range(), reserved_for: None },
            5 => {
                let set = PoolPatch { draining: drain(self.once_in(2)), ..PoolPatch::default() };
                Configure::PoolModify { pool: PoolRef::Range("10.0.1.0-10.0.1.7".parse().unwrap()), set: Box::new(set) }
            }
            6 => {
                let set = SubnetPatch { draining: drain(self.once_in(3)), ..SubnetPatch::default() };
                let subnet = SubnetRef::Cidr(self.of(&["10.0.0.0/28", "10.0.1.0/29", "fd00::/125"]).parse().unwrap());
                Configure::SubnetModify { subnet, set: Box::new(set) }
            }
            7 => {
                let set = NetworkPatch {
                    cooldown_seconds: Patch::Set(self.of(&[0, 0, 5, 60])),
                    cooldown_yields: Patch::Set(self.once_in(2)),
                    policy: Patch::Set(self.of(&[Policy::Lowest, Policy::Oldest, Policy::Random])),
                    ..NetworkPatch::default()
                };
                Configure::Update(Box::new(set))
            }
            8 => {
                let limits =
                    LimitsPatch { per_owner: self.of(&[Patch::Clear, Patch::Set(2)]), ..LimitsPatch::default() };
                Configure::Update(Box::new(NetworkPatch { limits: Patch::Set(limits), ..NetworkPatch::default() }))
            }
            _ => self.of(&[Configure::Restore, Configure::Restore, Configure::Delete { force: true, purge: false }]),
        }
    }

    /// Some other event.
    fn event(&mut self) -> Command {
        match self.below(16) {
            0..=6 => Command::Release(Box::new(Release { target: *self.target(), force: false, strict: false })),
            7 => Command::ReleaseScope { scope: Scope::default(), limit: self.of(&[2, 100]) },
            8 => Command::ReleaseOwner { scope: Scope::default(), owner: self.owner(), limit: 100 },
            9 => {
                let address: Address = self.of(&["10.0.0.2", "10.0.0.3", "10.0.1.1", "fd00::5"]).parse().unwrap();
                let (holder, options) =
                    (self.slot(), GrantOptions { replace: self.once_in(3), ..GrantOptions::default() });
                Command::Claim(Box::new(Claim {
                    holder,
                    address,
                    prefix_length: None,
                    force: self.once_in(2),
                    options,
                }))
            }
            10 => Command::Renew(self.target(), Some(10)),
            11 => {
                let address = self.of(&["10.0.0.2", "10.0.0.5", "10.0.1.2"]).parse().unwrap();
                let from = (Scope::default(), self.owner(), None);
                Command::Transfer(Box::new(Transfer {
                    address,
                    from,
                    to: self.slot(),
                    exchange: false,
                    if_generation: None,
                }))
            }
            12 => {
                let address = self.of(&["10.0.0.2", "10.0.0.5", "10.0.1.2"]).parse().unwrap();
                let from = (Scope::default(), self.owner(), None);
                let again = self.once_in(2);
                Command::Decline(Box::new(Decline { address, from, seen: "".into(), probation_seconds: 20, again }))
            }
            _ => Command::Configure { change: Box::new(self.configure()), if_version: None },
        }
    }
}

/// Does the order of its items matter? What one item of an acquire takes may be what another needs, and what an optional item
/// takes may be what a required one needs: such a request may fit because another took something. It is tried when something
/// becomes free.
fn is_greedy(command: &Command) -> bool {
    let Command::Acquire(ask) = command else { return false };
    let alike = ask.items.windows(2).all(|pair| pair[0].wish == pair[1].wish);
    let by_family = ask.items.iter().all(|item| item.wish == Wish { family: item.wish.family, ..Wish::default() });
    ask.items.iter().any(|item| item.optional)
        || !(alike || by_family && ask.items.iter().all(|i| i.wish.family.is_some()))
}

fn is_no_capacity(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::OfItem { refusal, .. } => is_no_capacity(refusal),
        refusal => matches!(refusal, Refusal::NotEnoughCapacity(_)),
    }
}

struct World {
    network: Network,
    queue: WaitQueue<()>,
    now: u64,
    arrivals: Arrival,
    served: usize,
    waited: usize,
}

impl World {
    fn new() -> Self {
        let subnet = |cidr: &str, name: &str, zones: &[&str], pools: &[(&str, &str)]| SubnetInput {
            cidr: cidr.parse().unwrap(),
            name: Some(name.parse().unwrap()),
            gateway: None,
            dhcp: None,
            dns: None,
            zones: Some(zones.iter().map(|zone| (*zone).into()).collect()),
            tags: None,
            draining: None,
            pools: Some(
                pools
                    .iter()
                    .map(|(range, name)| PoolInput {
                        range: Some(range.parse().unwrap()),
                        name: Some(name.parse().unwrap()),
                        kind: None,
                        draining: None,
                    })
                    .collect(),
            ),
            reserved: None,
        };
        let input = NetworkInput {
            name: "lan".parse().unwrap(),
            realm: Some(Name::default_realm()),
            kind: None,
            l2: None,
            policy: None,
            cooldown_seconds: None,
            cooldown_yields: None,
            static_only: None,
            protected: None,
            limits: None,
            tags: None,
            description: None,
            subnets: Some(vec![
                subnet("10.0.0.0/28", "a", &["z1"], &[("10.0.0.1-10.0.0.7", "p"), ("10.0.0.8-10.0.0.11", "q")]),
                subnet("10.0.1.0/29", "b", &["z1", "z2"], &[("10.0.1.0-10.0.1.7", "p")]),
                subnet("fd00::/125", "c", &[], &[("fd00::-fd00::7", "q")]),
            ]),
        };
        let mut network = None;
        for step in create(&input, NETWORK, context(0)).unwrap().steps {
            match (step.state.clone(), &mut network) {
                (Some(State::Config(config)), None) => {
                    let floor = crate::core::types::Generation(100);
                    network = Some(Network::load(config, Vec::new(), Vec::new(), floor, ShardTime(0)).unwrap());
                }
                (_, Some(network)) => network.apply(&step, ShardTime(0)),
                (_, None) => panic!("a configuration comes first"),
            }
        }
        let network = network.unwrap();
        Self { network, queue: WaitQueue::default(), now: 1_000, arrivals: 0, served: 0, waited: 0 }
    }

    fn decide(&self, command: &Command) -> Result<Decision, Refusal> {
        self.network.decide(command, context(self.now))
    }

    fn apply(&mut self, decision: &Decision) {
        for step in &decision.steps {
            self.queue.note(&self.network, step);
            self.network.apply(step, ShardTime(self.now));
        }
    }

    /// Serves as the actor does: whatever frees something is followed by serving.
    fn serve(&mut self) {
        let mut tries = 0;
        while let Some(arrival) = self.queue.next(&self.network) {
            tries += 1;
            assert!(tries < 10_000, "it never ends");
            let command = self.queue.get(arrival).unwrap().command.clone();
            match self.decide(&command) {
                Ok(decision) => {
                    for earlier in self.queue.arrivals().into_iter().take_while(|earlier| *earlier < arrival) {
                        let theirs = &self.queue.get(earlier).unwrap().command;
                        let passed_over = self.decide(theirs);
                        assert!(
                            passed_over.is_err() || is_greedy(theirs),
                            "{arrival} comes before {earlier}: {theirs:?}"
                        );
                    }
                    self.queue.remove(arrival);
                    self.apply(&decision);
                    self.served += 1;
                }
                Err(refusal) if is_no_capacity(&refusal) => self.queue.failed(arrival),
                Err(_) => drop(self.queue.remove(arrival)),
            }
        }
        for arrival in self.queue.arrivals() {
            let theirs = &self.queue.get(arrival).unwrap().command;
            let answer = self.decide(theirs);
            assert!(answer.is_err() || is_greedy(theirs), "{arrival} could be served: {theirs:?}");
            let lacks = answer.as_ref().map_or_else(is_no_capacity, |_| true);
            assert!(lacks || self.network.reach(theirs).is_some(), "{arrival} waits in vain: {theirs:?}");
        }
    }

    fn expire(&mut self) {
        while self.network.next_due().is_some_and(|due| due.0 <= self.now) && !self.network.is_gone() {
            let decision = self.decide(&Command::Expire).unwrap();
            self.apply(&decision);
            self.serve();
        }
    }

    fn act(&mut self, numbers: &[u16]) {
        let mut dice = Dice(numbers.iter());
        self.now += [0, 0, 0, 400, 2_000, 7_000, 31_000][dice.below(7)];
        self.expire();
        if self.network.is_gone() {
            *self = Self::new();
        }
        if dice.below(5) < 3 {
            let command = dice.grant();
            match self.decide(&command) {
                Ok(decision) => self.apply(&decision),
                Err(refusal) => {
                    if is_no_capacity(&refusal) {
                        self.arrivals += 1;
                        self.waited += 1;
                        let until_ms = Some(self.now + 1_000_000);
                        self.queue.add(&self.network, self.arrivals, Waiter { command, until_ms, of: () });
                    }
                }
            }
        } else if dice.once_in(12) && !self.queue.is_empty() {
            let arrivals = self.queue.arrivals();
            self.queue.remove(dice.of(&arrivals)).unwrap();
        } else if let Ok(decision) = self.decide(&dice.event()) {
            self.apply(&decision);
        }
        if self.network.is_gone() {
            *self = Self::new();
        }
        self.serve();
        self.check();
    }

    /// Compares every index with the waiters.
    fn check(&self) {
        let queue = &self.queue;
        let of_groups: BTreeSet<Arrival> = queue.groups.values().flat_map(|group| &group.waiters).copied().collect();
        assert_eq!(of_groups, queue.waiters.keys().copied().collect());
        assert_eq!(queue.ends.len(), queue.len());
        assert_eq!(queue.first(), queue.arrivals().first().copied());
        let slots: BTreeSet<Arrival> = queue.slots.values().flatten().copied().collect();
        assert_eq!(slots, of_groups);
        let mut owners: HashMap<(Scope, Owner), BTreeSet<Arrival>> = HashMap::new();
        for (slot, arrivals) in &queue.slots {
            owners.entry(owner_of(slot)).or_default().extend(arrivals);
        }
        assert_eq!(queue.owners, owners);
        assert!(queue.singled_out.is_empty() && !queue.is_open());
        assert!(queue.groups.values().all(|group| !group.waiters.is_empty()));
    }
}

fn context(now: u64) -> Context {
    // The same draws each time: chance is not under test.
    Context {
        now: ShardTime(now),
        wall: WallTime(now),
        entropy: 0x9e37_79b9_7f4a_7c15,
        mac_elsewhere: None,
        generations: Generation::default(),
    }
}

fn an_act() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), 24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_idle_that_fits_a_waiter_and_who_came_first_is_served_first(
        acts in proptest::collection::vec(an_act(), 1..160),
    ) {
        let mut world = World::new();
        for act in &acts {
            world.act(act);
        }
    }
}

#[test]
fn the_sequences_meet_waiters_that_are_served() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut waited, mut served) = (0, 0);
    for _ in 0..60 {
        let acts = proptest::collection::vec(an_act(), 120).new_tree(&mut runner).unwrap().current();
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
        waited += world.waited;
        served += world.served;
    }
    assert!(waited > 500 && served > 200, "{waited} waited, {served} were served");
}

fn allocate(owner: &str, wish: Wish) -> Command {
    let holder = SlotKey { scope: Scope::default(), owner: owner.parse().unwrap(), slot: Slot::default() };
    Command::Allocate(Box::new(Allocate { holder, wish, options: GrantOptions::default() }))
}

/// What is freed is compared with wishes, not with requests.
#[test]
fn a_release_tries_nobody_whom_it_cannot_fit() {
    let mut world = World::new();
    let v6 = Wish { family: Some(Family::V6), ..Wish::default() };
    let mut held = Vec::new();
    while let Ok(decision) = world.decide(&allocate(&format!("h{}", held.len()), Wish::default())) {
        held.extend(decision.steps.iter().filter_map(|step| match &step.state {
            Some(State::Entry(Entry::Held(held))) => Some(held.holder.owner.clone()),
            _ => None,
        }));
        world.apply(&decision);
    }
    for arrival in 0..500 {
        let command = allocate(&format!("w{arrival}"), v6.clone());
        world.queue.add(&world.network, arrival, Waiter { command, until_ms: None, of: () });
    }
    let release = |owner: &Owner| {
        let target = Target { owner: Some(owner.clone()), ..Target::default() };
        Command::Release(Box::new(Release { target, force: false, strict: false }))
    };
    // The first one held is an IPv4 address.
    let decision = world.decide(&release(&held[0])).unwrap();
    world.apply(&decision);
    assert_eq!(world.queue.next(&world.network), None, "none of five hundred is tried");
    // The last one is an IPv6 address: for the first waiter, and then for nobody.
    let decision = world.decide(&release(held.last().unwrap())).unwrap();
    world.apply(&decision);
    assert_eq!(world.queue.next(&world.network), Some(0));
    let decision = world.decide(&world.queue.get(0).unwrap().command.clone()).unwrap();
    world.queue.remove(0);
    world.apply(&decision);
    assert_eq!(world.queue.next(&world.network), None);
}

#[test]
fn each_of_those_who_wait_alike_is_told_that_their_network_is_closed() {
    let mut world = World::new();
    let mut held = 0;
    while let Ok(decision) = world.decide(&allocate(&format!("h{held}"), Wish::default())) {
        world.apply(&decision);
        held += 1;
    }
    for arrival in 0..5 {
        let command = allocate(&format!("w{arrival}"), Wish::default());
        world.queue.add(&world.network, arrival, Waiter { command, until_ms: None, of: () });
    }
    let change = Configure::Delete { force: true, purge: false };
    let decision = world.decide(&Command::Configure { change: Box::new(change), if_version: None }).unwrap();
    world.apply(&decision);
    world.serve();
    assert!(world.queue.is_empty(), "{} wait for what never comes", world.queue.len());
}
