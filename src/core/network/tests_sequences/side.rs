//! One network with a store beside it, and the promises that every decision must keep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::asks::{Dice, everything};
use super::lists::Lists;
use crate::core::address::{Address, Cidr, Family, Range};
use crate::core::command::*;
use crate::core::network::{Compared, Network, WayBack, create};
use crate::core::outcome::Decision;
use crate::core::refusal::Refusal;
use crate::core::state::*;
use crate::core::types::*;
use crate::limits;

/// One network and what a store knows of it.
pub(super) struct Side {
    pub(super) network: Network,
    stored: BTreeMap<Key, State>,
    /// The highest generation granted so far.
    pub(super) highest: Generation,
    /// The network as a restart would load it.
    reloaded: Network,
    /// How far the time of its shard is ahead of the world's.
    ahead: u64,
    /// After one in this many changes, everything is checked and the network restarted, which costs as much as all else
    /// together.
    pub(super) checked_of: usize,
    taken: usize,
    /// The way back to what was stored some changes ago, which plays the part of the durable state.
    back: WayBack,
    durable: (u64, BTreeMap<Key, State>),
    lists: Lists,
}

pub(super) fn held_of((address, entry): (Address, Entry)) -> Option<(Address, Arc<Reservation>)> {
    match entry {
        Entry::Held(held) => Some((address, held)),
        Entry::Released(_) | Entry::Declined(_) => None,
    }
}

fn range_of(address: Address, prefix_length: u8) -> Range {
    Cidr::containing(address, prefix_length).range()
}

fn each(range: Range) -> impl Iterator<Item = Address> {
    std::iter::successors(Some(range.first()), |at| at.next()).take_while(move |at| *at <= range.last())
}

impl Side {
    pub(super) fn create(input: NetworkInput, floor: Generation) -> Self {
        let context = Context {
            now: ShardTime(0),
            wall: WallTime(0),
            entropy: u128::from(floor.0),
            mac_elsewhere: None,
            generations: Generation::default(),
        };
        let decision = create(&input, NetworkId(7), context).expect("an empty network");
        let mut stored = BTreeMap::new();
        for step in &decision.steps {
            stored.insert(step.key, step.state.clone().expect("nothing goes"));
        }
        let network = load(&stored, floor);
        Self {
            network: network.clone(),
            durable: (0, stored.clone()),
            stored,
            highest: floor,
            reloaded: network,
            ahead: 0,
            checked_of: 1,
            taken: 0,
            back: WayBack::default(),
            lists: Lists::default(),
        }
    }

    /// Makes a deleted network anew under its name. No generation may come again.
    pub(super) fn again_if_gone(&mut self) {
        if !self.network.is_gone() {
            return;
        }
        assert!(self.stored.is_empty(), "a network that is gone leaves nothing: {:?}", self.stored.keys());
        let numbers = [1, 1, 0, self.highest.0 as u16, 1];
        let mut input = Dice::new(&numbers).network("again");
        input.subnets = Some(vec![Dice::new(&[]).subnet()]);
        *self = Self::create(input, self.highest).ahead_by(self.ahead);
    }

    /// The same network in a shard whose time is this far ahead.
    pub(super) fn ahead_by(self, ahead: u64) -> Self {
        Self { ahead, ..self }
    }

    /// The context with the time of this network's shard.
    pub(super) fn here(&self, context: Context) -> Context {
        Context { now: ShardTime(context.now.0 + self.ahead), ..context }
    }

    /// Decides, and checks that the decision depends only on state, command and context.
    pub(super) fn decide(&self, command: &Command, context: Context) -> Result<Decision, Refusal> {
        let context = self.here(context);
        let decision = self.network.decide(command, context);
        assert_eq!(decision, self.network.decide(command, context), "{command:?}");
        // The memory of `oldest` is not stored, a slice may be another one, and what is due at the same time ends in any order.
        let remembers = self.network.config().policy == Policy::Oldest;
        let any_order = match command {
            Command::ReleaseScope { limit, .. } => *limit < 10,
            Command::Expire => true,
            _ => false,
        };
        if !remembers && !any_order {
            assert_eq!(decision, self.reloaded.decide(command, context), "after a restart: {command:?}");
        }
        decision
    }

    /// For each address, what is left of its lease or probation, or how long it has cooled, in milliseconds.
    pub(super) fn times(&self, addresses: &[Address], context: Context) -> Vec<Option<i128>> {
        let now = i128::from(self.here(context).now.0);
        let time = |at: &Address| match self.network.holdings.at(*at)? {
            Entry::Held(held) => held.lease.map(|lease| i128::from(lease.ends.0) - now),
            Entry::Released(released) => Some(now - i128::from(released.released_at.0)),
            Entry::Declined(declined) => Some(i128::from(declined.until.0) - now),
        };
        addresses.iter().map(time).collect()
    }

    /// Plays the steps into store and network, and checks every promise.
    pub(super) fn take(&mut self, command: &Command, decision: &Decision, context: Context) {
        let context = self.here(context);
        self.check_grants(command, decision, context);
        assert!(decision.steps.len() <= limits::BATCH_CHANGES_MAX);
        let before: BTreeMap<Key, Option<u64>> =
            decision.steps.iter().map(|step| (step.key, self.stored.get(&step.key).map(State::mark))).collect();
        let mut nets: BTreeMap<Key, (Option<u64>, Option<State>)> = BTreeMap::new();
        for (at, step) in decision.steps.iter().enumerate() {
            let there = self.stored.get(&step.key).map(State::mark);
            assert_eq!(step.expect, there, "{command:?} expects something else than is there: {step:?}");
            match &step.state {
                Some(state) => self.stored.insert(step.key, state.clone()),
                None => self.stored.remove(&step.key),
            };
            nets.entry(step.key).or_insert((step.expect, None)).1 = step.state.clone();
            let before = self.network.apply_before(step, decision.steps.get(at + 1), context.now);
            assert_eq!(before.as_ref().map(State::mark), there, "{command:?} found something else: {step:?}");
            self.back.note(self.taken as u64 + 1, step.key, before);
        }
        for (key, (expect, state)) in &nets {
            assert_eq!(*expect, before[key], "net operation of {key:?}");
            assert_eq!(state.as_ref(), self.stored.get(key), "net operation of {key:?}");
        }
        self.taken += 1;
        self.check_way_back(command);
        self.lists.go_on(&mut self.network, &decision.steps, context);
        if self.taken.is_multiple_of(self.checked_of) {
            self.check_state(command, context);
        } else {
            // The last restart was some changes ago.
            for (at, step) in decision.steps.iter().enumerate() {
                self.reloaded.apply_before(step, decision.steps.get(at + 1), context.now);
            }
        }
    }

    /// Checks that what was durable some changes ago can be restored from the present state; then moves that point forward.
    fn check_way_back(&mut self, command: &Command) {
        if !self.taken.is_multiple_of(3) && !self.network.is_gone() {
            return;
        }
        let (durable, stored) = &self.durable;
        let found = self.network.as_of(&self.back, *durable);
        assert!(found.is_sorted_by_key(|(key, _)| *key), "after {command:?}");
        assert_eq!(&found.into_iter().collect::<BTreeMap<_, _>>(), stored, "as of unit {durable}, after {command:?}");
        if self.taken.is_multiple_of(2) {
            self.durable = (self.taken as u64, self.stored.clone());
            self.back.forget(self.taken as u64);
        }
    }

    fn check_state(&mut self, command: &Command, context: Context) {
        if self.network.is_gone() {
            return;
        }
        self.network.check().unwrap_or_else(|problem| panic!("{problem} after {command:?}"));
        let kept: BTreeMap<Address, Entry> = everything(&self.network).into_iter().collect();
        let stored: BTreeMap<Address, Entry> = entries_of(&self.stored).into_iter().collect();
        assert_eq!(kept, stored, "memory and store differ after {command:?}");
        self.check_holdings(&stored, command);
        self.check_memory_of_oldest();
        self.reloaded = load(&self.stored, Generation(self.network.next_generation().0 - 1));
        assert_eq!(self.reloaded.next_generation(), self.network.next_generation());
        assert_eq!(self.reloaded.counts(), self.network.counts(), "after {command:?}");
        let compared = self.network.compare(Some(&self.reloaded), None, usize::MAX);
        assert_eq!(compared, Compared::default(), "after {command:?}");
        let list = ListSlice { filter: Filter::default(), after: None, limit: 50, count_only: false };
        for read in [
            Command::Show,
            Command::Usage,
            Command::Scopes { after: None, limit: 1_000 },
            Command::List(Box::new(list)),
        ] {
            let (here, there) = (self.network.decide(&read, context), self.reloaded.decide(&read, context));
            assert_eq!(here, there, "{read:?} after {command:?}");
        }
    }

    /// No address twice, no slot twice, no MAC twice.
    fn check_holdings(&self, entries: &BTreeMap<Address, Entry>, command: &Command) {
        let held: Vec<_> = entries.iter().filter_map(|(at, entry)| held_of((*at, entry.clone()))).collect();
        let (mut slots, mut macs) = (BTreeSet::new(), BTreeSet::new());
        // In the order of their first addresses, so whatever overlaps another one overlaps its next neighbour.
        let mut last: Option<Range> = None;
        for (address, reservation) in &held {
            let range = range_of(*address, reservation.prefix_length);
            assert_eq!(range.first(), *address, "after {command:?}");
            if let Some(last) = last.replace(range) {
                assert!(!last.overlaps(range), "{last} and {range} are held after {command:?}");
            }
            if reservation.obsolete.is_none() {
                assert!(slots.insert(&reservation.holder), "two of {} after {command:?}", reservation.holder);
            }
            if let Some(mac) = reservation.details.as_ref().and_then(|details| details.mac) {
                assert!(macs.insert(mac), "{mac} twice after {command:?}");
            }
        }
    }

    /// Checks that a free address was either never used or is remembered as rested, and that any other is neither.
    fn check_memory_of_oldest(&self) {
        for pool in &self.network.layout.pools {
            let Some(fresh) = &pool.fresh else { continue };
            for address in each(pool.range) {
                let bits = address.bits();
                let rested = pool.rested.iter().any(|(_, first, last)| first <= bits && bits <= last);
                let fresh = fresh.is_free(bits, bits);
                assert_eq!(pool.free.is_free(bits, bits), rested || fresh, "{address}");
                assert!(!(rested && fresh), "{address} is both never used and rested");
            }
        }
    }

    /// Checks that a grant gives what may be given, to nobody beyond a limit, under a generation of its own.
    fn check_grants(&mut self, command: &Command, decision: &Decision, context: Context) {
        let (mut replaces, mut granted) = (Vec::new(), Vec::new());
        for step in &decision.steps {
            let kind = step.event.as_ref().map(|event| event.kind);
            match (&step.key, &step.state, kind) {
                (Key::Address(at), Some(State::Entry(Entry::Held(held))), Some(EventKind::Granted)) => {
                    self.raise(held.generation, command);
                    granted.push((*at, Arc::clone(held)));
                }
                // What moves with its subnet keeps its generation.
                (_, Some(State::Entry(Entry::Held(held))), Some(EventKind::Transferred))
                    if !matches!(command, Command::MoveIn(_)) =>
                {
                    self.raise(held.generation, command);
                }
                (_, Some(State::Entry(Entry::Held(held))), Some(EventKind::Updated)) if held.obsolete.is_none() => {
                    let before = step.event.as_ref().and_then(|event| event.before.as_ref());
                    let empty = self.network.slot_holder(&held.holder).is_none();
                    if empty && before.is_some_and(|before| before.obsolete.is_some()) {
                        self.check_limit(decision, held, command);
                    }
                }
                (Key::Address(at), _, Some(EventKind::Released)) => replaces.push(*at),
                _ => {}
            }
        }
        for (at, held) in &granted {
            self.check_grant(*at, held, &replaces, command, context);
            self.check_limit(decision, held, command);
        }
    }

    fn raise(&mut self, generation: Generation, command: &Command) {
        assert!(generation > self.highest, "{generation:?} is not above {:?}: {command:?}", self.highest);
        self.highest = generation;
    }

    fn check_grant(&self, at: Address, held: &Reservation, replaces: &[Address], command: &Command, context: Context) {
        let range = range_of(at, held.prefix_length);
        let config = self.network.config();
        assert!(!config.closed, "a closed network grants {at}");
        if config.kind == NetworkKind::Dynamic {
            // What the infrastructure picked is only recorded.
            assert!(matches!(command, Command::Bind(..)), "a dynamic network grants {at}: {command:?}");
            assert_eq!(range.size(), 1);
            let there = self.network.holdings.covering(at);
            return assert!(!matches!(there, Some((_, Entry::Held(_)))), "{at} is held: {command:?}");
        }
        let subnet = self.network.subnet_of(at).unwrap_or_else(|| panic!("{at} lies in no subnet"));
        assert!(subnet.cidr.range().covers(range));
        let pool = subnet.pools.iter().find(|pool| pool.range.covers(range));
        assert!(range.size() == 1 || pool.is_some(), "block {range} is not inside one pool");
        assert!(!subnet.draining && pool.is_none_or(|pool| !pool.draining), "{at} drains: {command:?}");
        let automatic = held.kind == ReservationKind::Dynamic;
        for address in each(range) {
            assert!(!is_never_given(subnet, address), "{address} of {} is given: {command:?}", subnet.cidr);
            let reserved = subnet.reserved.iter().find(|reserved| reserved.range.contains(address));
            let kept = reserved.is_some_and(|reserved| reserved.is_for(&held.holder));
            match self.network.holdings.covering(address) {
                None => {}
                Some((_, Entry::Released(released))) if automatic => {
                    let over = released.released_at.after_seconds(config.cooldown_seconds) <= context.now;
                    let own = released.last == held.holder;
                    assert!(own || over || config.cooldown_yields, "{address} cools: {command:?}");
                }
                Some((_, Entry::Declined(_))) => assert!(!automatic, "{address} was declined: {command:?}"),
                Some((base, Entry::Held(_))) => {
                    assert!(!automatic && replaces.contains(&base), "{address} is held: {command:?}");
                }
                Some((_, Entry::Released(_))) => {}
            }
            if automatic {
                assert!(reserved.is_none() || kept && range.size() == 1, "{address} is reserved: {command:?}");
                assert!(kept || pool.is_some_and(|pool| pool.kind == PoolKind::Dynamic), "{address} is in no pool");
            }
        }
    }

    /// Checks the limits after the request, so that what it releases does not count.
    fn check_limit(&self, decision: &Decision, held: &Reservation, command: &Command) {
        let limits = self.network.config().limits;
        if limits.per_owner.is_none() && limits.per_scope.is_none() {
            return;
        }
        let mut after = self.stored.clone();
        for step in &decision.steps {
            match &step.state {
                Some(state) => after.insert(step.key, state.clone()),
                None => after.remove(&step.key),
            };
        }
        let current: Vec<_> = entries_of(&after).into_iter().filter_map(held_of).map(|(_, held)| held).collect();
        let filled: BTreeSet<SlotKey> =
            current.iter().filter(|held| held.obsolete.is_none()).map(|held| held.holder.clone()).collect();
        // A promise to a slot that holds nothing counts as if it were kept.
        let promised = current.iter().filter_map(|held| {
            let promise = held.promise()?;
            let (owner, slot) = (promise.owner.clone(), promise.slot.clone());
            Some(SlotKey { scope: held.holder.scope.clone(), owner, slot })
        });
        let counted: BTreeSet<SlotKey> = promised.chain(filled).collect();
        let count = |belongs: &dyn Fn(&SlotKey) -> bool| counted.iter().filter(|slot| belongs(slot)).count() as u64;
        let to = &held.holder;
        let owned = count(&|other| other.owner == to.owner && other.scope == to.scope);
        assert!(limits.per_owner.is_none_or(|max| owned <= max), "{owned} of one owner: {command:?}");
        let scoped = count(&|other| other.scope == to.scope);
        assert!(limits.per_scope.is_none_or(|max| scoped <= max), "{scoped} of one scope: {command:?}");
    }

    /// What automatic grants can give in an empty network.
    pub(super) fn offered(&self) -> BTreeSet<Address> {
        let mut offered = BTreeSet::new();
        for subnet in self.network.subnets().iter().filter(|subnet| !subnet.draining) {
            for pool in subnet.pools.iter().filter(|pool| pool.kind == PoolKind::Dynamic && !pool.draining) {
                let reserved = |at: &Address| subnet.reserved.iter().any(|reserved| reserved.range.contains(*at));
                offered.extend(each(pool.range).filter(|at| !is_never_given(subnet, *at) && !reserved(at)));
            }
        }
        offered
    }
}

/// Network, broadcast, anycast and gateway addresses, worked out independently of the layout.
fn is_never_given(subnet: &SubnetConfig, address: Address) -> bool {
    let (cidr, larger_than_pair) = (subnet.cidr, subnet.cidr.range().size() > 2);
    let edge = match cidr.family() {
        Family::V4 => address == cidr.base() || address == cidr.last(),
        Family::V6 => address == cidr.base(),
    };
    larger_than_pair && edge || subnet.gateway == Some(address)
}

fn entries_of(stored: &BTreeMap<Key, State>) -> Vec<(Address, Entry)> {
    let entry = |(key, state): (&Key, &State)| match (key, state) {
        (Key::Address(address), State::Entry(entry)) => Some((*address, entry.clone())),
        _ => None,
    };
    stored.iter().filter_map(entry).collect()
}

fn load(stored: &BTreeMap<Key, State>, floor: Generation) -> Network {
    let Some(State::Config(config)) = stored.get(&Key::Config) else { panic!("no configuration is stored") };
    let subnet = |state: &State| match state {
        State::Subnet(subnet) => Some(Arc::clone(subnet)),
        State::Config(_) | State::Deployment(_) | State::Entry(_) => None,
    };
    let subnets = stored.values().filter_map(subnet).collect();
    Network::load(Arc::clone(config), subnets, entries_of(stored), floor, ShardTime(0))
        .expect("what is stored fits together")
}
