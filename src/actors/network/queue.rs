//! Who waits for capacity of a network, and whose turn it is: the queue alone, without actor, answers or time.
//!
//! A freed address goes to the first waiter whom it fits. Requests that ask for the same form one *group*, so that what is
//! freed is compared with wishes, not with requests: a group whose pools were not touched costs one comparison of bits, and if
//! a group finds no room, no other of its requests is tried. What only one slot or owner may be given (an address that is kept
//! for it, one that it released, one that it holds by now) is looked up by slot, or by scope and owner.
//!
//! ```text
//! note(step) … note(step) ──▶ next() ──▶ the actor decides ──▶ remove()   it was granted, or refused for another reason
//!                                └◀───────────────────────────── failed()  it goes on waiting: nothing for this group
//! ```
//!
//! When `next` returns nobody, no idle address fits any waiter (as the core sees it: [`Network::has_room`] errs on the side of
//! a try), so newcomers may take what is free.
//!
//! Review notes: does every new way in which an address becomes free, or permitted, pass [`Network::opens`]?

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use crate::actors::waits::Arrival;
use crate::core::command::{Command, Wish};
use crate::core::network::{Network, Opened, Reach};
use crate::core::state::Step;
use crate::core::types::{Owner, Scope, SlotKey};

/// One request that waits.
#[derive(Debug)]
pub(super) struct Waiter<W> {
    /// What it asks for.
    pub(super) command: Command,
    /// Boot time until which it waits. None: somebody else watches the time.
    pub(super) until_ms: Option<u64>,
    /// Whose request it is.
    pub(super) of: W,
}

/// Key of a group: its requests differ in who asks, not in what fits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum GroupKey {
    /// Automatic requests with the same wish.
    Wish(Wish),
    /// A request that is like no other.
    One(Arrival),
}

#[derive(Debug)]
struct WaitGroup {
    waiters: BTreeSet<Arrival>,
    /// None: each request is to be decided again, whatever room there is.
    reach: Option<Reach>,
    /// Number of openings at which the first of them found no room.
    tried: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct WaitQueue<W> {
    waiters: BTreeMap<Arrival, Waiter<W>>,
    groups: HashMap<GroupKey, WaitGroup>,
    slots: HashMap<SlotKey, BTreeSet<Arrival>>,
    /// By scope and owner: for an owner that has many freed addresses not all slots are looked through for each of them.
    owners: HashMap<(Scope, Owner), BTreeSet<Arrival>>,
    ends: BTreeSet<(u64, Arrival)>,
    /// What was opened and not yet served.
    opened: Opened,
    /// Requests to be tried, whatever their group.
    singled_out: BTreeSet<Arrival>,
    /// Number of openings, from 1.
    openings: u64,
    /// Groups that were touched by what was opened, by the one that was first in each when they were looked up. Serving a
    /// waiter does not change it: to look at all groups again for each waiter served would take time quadratic in the number
    /// of waiters.
    touched: BTreeMap<Arrival, GroupKey>,
    /// The number of openings at which they were looked up.
    touched_since: u64,
}

impl<W> Default for WaitQueue<W> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            groups: HashMap::new(),
            slots: HashMap::new(),
            owners: HashMap::new(),
            ends: BTreeSet::new(),
            opened: Opened::default(),
            singled_out: BTreeSet::new(),
            openings: 1,
            touched: BTreeMap::new(),
            touched_since: 0,
        }
    }
}

fn key_of(arrival: Arrival, command: &Command) -> GroupKey {
    match command {
        Command::Allocate(ask) => GroupKey::Wish(ask.wish.clone()),
        _ => GroupKey::One(arrival),
    }
}

fn owner_of(slot: &SlotKey) -> (Scope, Owner) {
    (slot.scope.clone(), slot.owner.clone())
}

fn take_out<K: Eq + Hash>(index: &mut HashMap<K, BTreeSet<Arrival>>, key: &K, arrival: Arrival) {
    if let Some(arrivals) = index.get_mut(key) {
        arrivals.remove(&arrival);
        if arrivals.is_empty() {
            index.remove(key);
        }
    }
}

impl<W> WaitQueue<W> {
    /// How many requests wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Is the queue empty?
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Was something opened that is not yet served?
    pub(super) fn is_open(&self) -> bool {
        !self.is_empty() && (!self.opened.is_empty() || !self.singled_out.is_empty())
    }

    /// The request that came first: no other has waited longer, for this network alone or for several.
    pub(super) fn first(&self) -> Option<Arrival> {
        self.waiters.first_key_value().map(|(arrival, _)| *arrival)
    }

    /// When the time of the next request is over.
    pub(super) fn next_end_ms(&self) -> Option<u64> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// A request whose time is over.
    pub(super) fn over(&self, now_ms: u64) -> Option<Arrival> {
        self.ends.first().filter(|(end, _)| *end <= now_ms).map(|(_, arrival)| *arrival)
    }

    pub(super) fn get(&self, arrival: Arrival) -> Option<&Waiter<W>> {
        self.waiters.get(&arrival)
    }

    /// All requests, first come first.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.waiters.keys().copied().collect()
    }

    /// Puts a request in its place. It was just tried and found no room.
    pub(super) fn add(&mut self, network: &Network, arrival: Arrival, waiter: Waiter<W>) {
        let (openings, command) = (self.openings, &waiter.command);
        let key = key_of(arrival, command);
        let group = self.groups.entry(key.clone()).or_insert_with(|| WaitGroup {
            waiters: BTreeSet::new(),
            reach: network.reach(command),
            tried: openings,
        });
        group.waiters.insert(arrival);
        if group.tried < openings && group.waiters.first() == Some(&arrival) {
            // It waited elsewhere before, and comes before those that are to be served.
            self.touched.insert(arrival, key);
        }
        for slot in Network::slots_of(command) {
            self.owners.entry(owner_of(&slot)).or_default().insert(arrival);
            self.slots.entry(slot).or_default().insert(arrival);
        }
        self.ends.extend(waiter.until_ms.map(|until| (until, arrival)));
        self.waiters.insert(arrival, waiter);
    }

    /// Takes a request out: it was answered, or nobody waits for it any more.
    pub(super) fn remove(&mut self, arrival: Arrival) -> Option<Waiter<W>> {
        let waiter = self.waiters.remove(&arrival)?;
        let key = key_of(arrival, &waiter.command);
        if let Some(group) = self.groups.get_mut(&key) {
            group.waiters.remove(&arrival);
            if group.waiters.is_empty() {
                self.groups.remove(&key);
            }
        }
        for slot in Network::slots_of(&waiter.command) {
            take_out(&mut self.owners, &owner_of(&slot), arrival);
            take_out(&mut self.slots, &slot, arrival);
        }
        self.singled_out.remove(&arrival);
        if let Some(until) = waiter.until_ms {
            self.ends.remove(&(until, arrival));
        }
        Some(waiter)
    }

    /// Notes what a step opens. To be called before the step is applied.
    pub(super) fn note(&mut self, network: &Network, step: &Step) {
        if self.is_empty() {
            return;
        }
        // If nothing became free for anybody but a single slot, whoever found no room would find none again.
        self.openings += u64::from(network.opens(step, &mut self.opened));
        for slot in self.opened.slots.drain(..) {
            self.singled_out.extend(self.slots.get(&slot).into_iter().flatten());
        }
        for owner in self.opened.owners.drain(..) {
            self.singled_out.extend(self.owners.get(&owner).into_iter().flatten());
        }
    }

    /// Notes that the network is another one: loaded again, or with a new configuration.
    pub(super) fn note_all(&mut self) {
        self.opened.anew = true;
        self.openings += 1;
    }

    /// Whose turn it is: the first request for which there may be something. None: everything that was opened is served.
    pub(super) fn next(&mut self, network: &Network) -> Option<Arrival> {
        if !self.is_open() {
            // What was opened while nobody waited goes to newcomers.
            self.opened = Opened::default();
            return None;
        }
        if self.opened.anew {
            self.look_anew(network);
        }
        if self.touched_since != self.openings {
            self.look_for_touched();
        }
        let next = self.first_touched(network).into_iter().chain(self.singled_out.first().copied()).min();
        if next.is_none() {
            self.opened = Opened::default();
        }
        next
    }

    fn look_for_touched(&mut self) {
        let is_touched = |group: &WaitGroup| {
            group.tried < self.openings && group.reach.as_ref().is_none_or(|reach| self.opened.touches(reach))
        };
        let touched = self.groups.iter().filter(|(_, group)| is_touched(group));
        self.touched = touched.filter_map(|(key, group)| Some((*group.waiters.first()?, key.clone()))).collect();
        self.touched_since = self.openings;
    }

    /// The first request of the touched groups for which there may be room.
    fn first_touched(&mut self, network: &Network) -> Option<Arrival> {
        while let Some(touched) = self.touched.first_entry() {
            let arrival = *touched.key();
            let group = self.groups.get(touched.get()).filter(|group| group.tried < self.openings);
            let first = group.and_then(|group| group.waiters.first().copied());
            let fits = group.is_some_and(|group| group.reach.as_ref().is_none_or(|reach| network.has_room(reach)));
            if fits && first == Some(arrival) {
                return first;
            }
            let key = touched.remove();
            if let Some(first) = first.filter(|_| fits) {
                // The one that was first no longer waits.
                self.touched.insert(first, key);
            }
        }
        None
    }

    /// Looks at everything again: pools have other numbers, and what could not be asked for may exist now.
    fn look_anew(&mut self, network: &Network) {
        for (key, group) in &mut self.groups {
            let first = group.waiters.first().and_then(|first| self.waiters.get(first));
            group.reach = first.and_then(|waiter| network.reach(&waiter.command));
            if group.reach.is_none() || matches!(key, GroupKey::One(_)) {
                // Room opens nothing for these, or not for everything that they ask: each is to be told why.
                self.singled_out.extend(&group.waiters);
            }
        }
        // What a slot holds, and wants to exchange, may by now be what it asks for.
        let may_have = |slot: &SlotKey| network.has_its_own(slot) || network.slot_holder(slot).is_some();
        let own = self.slots.iter().filter(|(slot, _)| may_have(slot));
        self.singled_out.extend(own.flat_map(|(_, arrivals)| arrivals));
        self.opened = self.groups_reached();
    }

    /// Everything that any group could be granted from.
    fn groups_reached(&self) -> Opened {
        let mut reached = Opened::default();
        for reach in self.groups.values().filter_map(|group| group.reach.as_ref()) {
            reached.add(reach);
        }
        reached
    }

    /// Marks a request to be tried, whether or not there is room.
    pub(super) fn single_out(&mut self, arrival: Arrival) {
        if self.waiters.contains_key(&arrival) {
            self.singled_out.insert(arrival);
        }
    }

    /// Is the request to be tried, whatever room there is?
    pub(super) fn is_singled_out(&self, arrival: Arrival) -> bool {
        self.singled_out.contains(&arrival)
    }

    /// Notes that a request was tried and goes on waiting.
    pub(super) fn failed(&mut self, arrival: Arrival) {
        self.singled_out.remove(&arrival);
        let Some(waiter) = self.waiters.get(&arrival) else { return };
        // What any of the group could be given, this one could: so there is nothing for the others either.
        if let Some(group) = self.groups.get_mut(&key_of(arrival, &waiter.command)) {
            group.tried = self.openings;
        }
    }
}

#[cfg(test)]
mod tests;
