//! What a request that waits for capacity must know of a network: from which pools it could be served, whether there is
//! room for it in them, and what a step opens.
//!
//! All three err on one side: they may say that a request is worth trying where it is not, never the other way. Whether
//! it is served, `decide` says. Who waits, in which order, is kept by the network's actor (`actors::network::queue`).

use super::Network;
use super::holdings::covered;
use super::pool_set::PoolSet;
use crate::core::address::{Family, Range};
use crate::core::command::{Command, Wish};
use crate::core::state::{Entry, Key, State, Step};
use crate::core::types::{Owner, Scope, SlotKey};

/// The pools of equal wishes of one request.
#[derive(Debug, Clone)]
struct EqualWishes {
    pools: PoolSet,
    /// log2 of the size asked for, in IPv4 and IPv6; none where that family cannot have it.
    orders: [Option<u8>; 2],
    /// The slots that an acquire must fill with them; none of an allocate, which is always short of one.
    slots: Vec<SlotKey>,
}

/// From which pools a request could be served, by the configuration of a moment.
#[derive(Debug, Clone)]
pub struct Reach(Vec<EqualWishes>);

/// What steps have opened: where there may be room now that was none, and who may be served without any.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// The configuration is another one: pools have other numbers.
    pub anew: bool,
    pools: PoolSet,
    /// Slots that hold something now, or that let go what they may have back.
    pub slots: Vec<SlotKey>,
    /// Owners for whom an address is kept that was freed.
    pub owners: Vec<(Scope, Owner)>,
}

impl Opened {
    /// Nothing.
    pub fn is_empty(&self) -> bool {
        !self.anew && self.slots.is_empty() && self.owners.is_empty() && self.pools.0.iter().all(|word| *word == 0)
    }

    /// Adds all that a request could draw from.
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
    /// From where a request could be served. None: it is not capacity that it lacks, as things are, so it must be decided
    /// again to be told what it is.
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

    /// May there be room for a request of this reach?
    ///
    /// Cost: a step per 64 pools, and one per pool of its reach with anything free, or that yields what cools there, until
    /// there is enough; of an acquire, one per slot.
    pub fn has_room(&self, reach: &Reach) -> bool {
        reach.0.iter().all(|part| {
            // What a slot holds it may keep, and what is there for it alone is no matter of room.
            let lacks = |slot: &&SlotKey| self.holdings.slot(slot).is_none() && !self.has_its_own(slot);
            let wanted = if part.slots.is_empty() { 1 } else { part.slots.iter().filter(lacks).count() as u128 };
            let mut found = 0u128;
            // Full pools are most of those where somebody waits, and are not looked at.
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
                        // How many blocks that are is not counted: one is worth trying.
                        Some(order) => {
                            let fits = |space: &crate::core::space::Space| space.largest_order() >= Some(order);
                            if fits(yielding.unwrap_or(&pool.free)) { wanted } else { 0 }
                        }
                    });
                    found >= wanted
                })
        })
    }

    /// Is there an address that this slot may get and others may not: one that is kept for its owner, or that it let go?
    pub fn has_its_own(&self, holder: &SlotKey) -> bool {
        self.layout.kept_for.contains_key(&(holder.scope.clone(), holder.owner.clone()))
            || self.holdings.cooling_of(holder).next().is_some()
    }

    /// Adds what a step opens. Called before the step is applied. False: nothing but for a slot by itself.
    ///
    /// Cost: O(log) of pools and entries, and a step per pool that the entry overlaps.
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

    /// Owners for whom an address of the range is kept.
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
            _ => Vec::new(), // Nothing else waits.
        }
    }
}
