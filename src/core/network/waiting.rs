//! What a waiting request needs to know of a network: from which pools it could be served, whether they have room for it,
//! and what a step opens.
//!
//! All three err on the same side: they may say that a request is worth trying when it is not, but never the opposite.
//! `decide` says whether it is served. The network's actor keeps who waits, and in which order (`actors::network::queue`).

use super::Network;
use super::holdings::covered;
use super::pool_set::PoolSet;
use crate::core::address::{Family, Range};
use crate::core::command::{Command, Wish};
use crate::core::state::{Entry, Key, State, Step};
use crate::core::types::{Owner, Scope, SlotKey};

/// The pools for equal wishes of one request.
#[derive(Debug, Clone)]
struct EqualWishes {
    pools: PoolSet,
    /// log2 of the requested size, in IPv4 and IPv6; none if the family cannot have that size.
    orders: [Option<u8>; 2],
    /// The slots that an acquire must fill with them. Empty for an allocate, which always lacks one address.
    slots: Vec<SlotKey>,
}

/// The pools from which a request could be served, under the configuration of one moment.
#[derive(Debug, Clone)]
pub struct Reach(Vec<EqualWishes>);

/// What steps have opened: where there may be room that was not there before, and which slots may be served without room.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// The configuration has changed, so pools have other indexes.
    pub anew: bool,
    pools: PoolSet,
    /// Slots that now hold something, or that let go of something they may get back.
    pub slots: Vec<SlotKey>,
    /// Owners for whom an address was reserved that has become free.
    pub owners: Vec<(Scope, Owner)>,
}

impl Opened {
    /// Has nothing been opened?
    pub fn is_empty(&self) -> bool {
        !self.anew && self.slots.is_empty() && self.owners.is_empty() && self.pools.0.iter().all(|word| *word == 0)
    }

    /// Adds every pool that a request could draw from.
    pub fn add(&mut self, reach: &Reach) {
        let all = reach.0.iter().flat_map(|part| part.pools.intersection([None; 4]));
        all.for_each(|index| self.pools.add(index));
    }

    /// Is anything open in the reach of a request?
    pub fn touches(&self, reach: &Reach) -> bool {
        self.anew
            || reach
                .0
                .iter()
                .any(|part| part.pools.intersection([Some(&self.pools), None, None, None]).next().is_some())
    }
}

impl Network {
    /// The pools from which a request could be served. None: as things are, it does not lack capacity, so it must be decided
    /// again to find out what stands in its way.
    pub fn reach(&self, command: &Command) -> Option<Reach> {
        self.is_open().ok()?;
        let Command::Acquire(ask) = command else {
            let Command::Allocate(ask) = command else { return None };
            return Some(Reach(vec![self.part(&ask.wish)?]));
        };
        let mut parts: Vec<(&Wish, EqualWishes)> = Vec::new();
        for item in ask.items.iter().filter(|item| item.address.is_none() && !item.optional) {
            let at = match parts.iter().position(|(wish, _)| **wish == item.wish) {
                Some(at) => at,
                None => {
                    parts.push((&item.wish, self.part(&item.wish)?));
                    parts.len() - 1
                }
            };
            parts[at].1.slots.push(ask.slot(item));
        }
        Some(Reach(parts.into_iter().map(|(_, part)| part).collect()))
    }

    fn part(&self, wish: &Wish) -> Option<EqualWishes> {
        let selection = self.select(wish).ok().filter(|selection| !selection.pool_missing)?;
        let orders = Family::ALL.map(|family| selection.order(family));
        Some(EqualWishes { pools: selection.pools(self), orders, slots: Vec::new() })
    }

    /// Can there be room for a request with this reach?
    ///
    /// Cost: one step per 64 pools, and one per pool in its reach that has anything free or yielding, until there is enough;
    /// for an acquire, one per slot.
    pub fn has_room(&self, reach: &Reach) -> bool {
        reach.0.iter().all(|part| {
            // A slot may keep what it holds, and an address that only this slot can get needs no room.
            let lacks = |slot: &&SlotKey| self.holdings.slot(slot).is_none() && !self.has_its_own(slot);
            let wanted = if part.slots.is_empty() { 1 } else { part.slots.iter().filter(lacks).count() as u128 };
            let mut found = 0u128;
            // Where requests wait, most pools are full; those are not looked at.
            let sets = [Some(&part.pools), None, None, None];
            let cools =
                self.layout.cooling_longest.iter().filter(|_| self.config.cooldown_yields).map(|&(_, index)| index);
            let cools = cools.filter(|&index| !self.layout.room.contains(index) && self.draws_from(index, sets));
            wanted == 0
                || self.layout.room.intersection(sets).chain(cools).any(|index| {
                    let pool = &self.layout.pools[index];
                    let order = part.orders[usize::from(pool.range.family() == Family::V6)];
                    let yielding = pool.yielding.as_ref().filter(|_| self.config.cooldown_yields);
                    found = found.saturating_add(match order {
                        None => 0,
                        Some(0) => yielding.unwrap_or(&pool.free).free(),
                        // The number of blocks is not counted: a single one is worth a try.
                        Some(order) => {
                            let fits = |space: &crate::core::space::Space| space.largest_order() >= Some(order);
                            if fits(yielding.unwrap_or(&pool.free)) { wanted } else { 0 }
                        }
                    });
                    found >= wanted
                })
        })
    }

    /// Is there an address that only this slot may get: one that is reserved for its owner, or that it let go?
    pub fn has_its_own(&self, holder: &SlotKey) -> bool {
        self.layout.kept_for.contains_key(&(holder.scope.clone(), holder.owner.clone()))
            || self.holdings.cooling_of(holder).next().is_some()
    }

    /// Adds what a step opens. To be called before the step is applied. Returns false if it opens nothing, except for one slot.
    ///
    /// Cost: O(log) of pools and entries, and one step per pool that the entry overlaps.
    pub fn opens(&self, step: &Step, opened: &mut Opened) -> bool {
        let Key::Address(address) = step.key else {
            opened.anew = true;
            return true;
        };
        let yields = match &step.state {
            None => true,
            Some(State::Entry(Entry::Held(held))) => {
                if held.obsolete.is_none() {
                    opened.slots.push(held.holder.clone());
                }
                false
            }
            Some(State::Entry(Entry::Released(released))) => {
                opened.slots.push(released.last.clone());
                self.config.cooldown_yields
            }
            Some(State::Entry(Entry::Declined(_)) | State::Config(_) | State::Subnet(_) | State::Deployment(_)) => {
                false
            }
        };
        let Some(before) = self.holdings.at(address) else { return false };
        let range = covered(address, before.prefix_length());
        let shrinks = match &step.state {
            Some(State::Entry(entry)) => entry.prefix_length() > before.prefix_length(),
            Some(State::Config(_) | State::Subnet(_) | State::Deployment(_)) | None => false,
        };
        if yields || shrinks {
            self.layout.pools_over(range).for_each(|index| opened.pools.add(index));
            opened.owners.extend(self.kept_in(range));
        }
        yields || shrinks
    }

    /// Owners for whom an address of the range is reserved.
    fn kept_in(&self, range: Range) -> impl Iterator<Item = (Scope, Owner)> {
        let subnet = (!self.layout.kept_for.is_empty()).then(|| self.subnet_of(range.first())).flatten();
        let over = subnet.map_or(&[][..], |subnet| subnet.reserved_over(range));
        over.iter()
            .filter_map(|reserved| reserved.reserved_for.as_ref())
            .map(|kept| (kept.scope.clone(), kept.owner.clone()))
    }

    /// The slots that a request would fill.
    pub fn slots_of(command: &Command) -> Vec<SlotKey> {
        match command {
            Command::Allocate(ask) => vec![ask.holder.clone()],
            Command::Acquire(ask) => ask.items.iter().map(|item| ask.slot(item)).collect(),
            _ => Vec::new(), // No other commands wait.
        }
    }
}
