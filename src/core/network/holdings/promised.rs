//! The slots to which addresses are promised, and whether they hold anything until then; the owners for whom something is
//! noted at what others hold; and promised addresses that were declined.
//!
//! A promise to a slot that holds nothing counts within the limits of its owner and scope, as if the address were already
//! held, because the commit that hands it over must neither fail at a limit nor exceed one. If the slot holds something,
//! that is let go when the promise is kept, so the promise adds nothing.
//!
//! Costs are those of what is promised; without promises there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;

use super::Holdings;
use crate::core::address::Address;
use crate::core::network::settle;
use crate::core::state::{Declined, Entry, Promise, Reservation};
use crate::core::types::{Owner, Scope, SlotKey};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Promises {
    /// How many addresses are promised to the slot: more than one only in the middle of a change.
    count: u32,
    /// Whether the slot holds something.
    holds: bool,
}

/// What is promised, and to whom; see the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Promised {
    slots: HashMap<SlotKey, Promises>,
    /// How many slots wait empty-handed, by owner and by scope; only counts above zero.
    owners: HashMap<(Scope, Owner), u64>,
    scopes: HashMap<Scope, u64>,
    /// At how many holdings it is noted that an owner gets the address, by a promise or by a revert.
    noted: HashMap<(Scope, Owner), u32>,
    /// Promised addresses that were declined, by the scope of both sides.
    broken: BTreeMap<Scope, BTreeSet<Address>>,
}

impl Promised {
    /// Adds what is noted at a holding for others.
    pub(super) fn note(&mut self, held: &Reservation) {
        for owner in noted_for(held) {
            *self.noted.entry((held.holder.scope.clone(), owner.clone())).or_default() += 1;
        }
    }

    /// Removes what is noted at a holding for others.
    pub(super) fn forget(&mut self, held: &Reservation) {
        for owner in noted_for(held) {
            let key = (held.holder.scope.clone(), owner.clone());
            let is_last = |count: &mut u32| {
                *count -= 1;
                *count == 0
            };
            if self.noted.get_mut(&key).is_some_and(is_last) {
                self.noted.remove(&key);
            }
        }
    }

    /// Notes that a promised address is declined.
    pub(super) fn breaks(&mut self, address: Address, declined: &Declined) {
        if declined.promise.is_some() {
            self.broken.entry(declined.by.scope.clone()).or_default().insert(address);
        }
    }

    /// Forgets that a promised address was declined.
    pub(super) fn mends(&mut self, address: Address, declined: &Declined) {
        if declined.promise.is_some()
            && let Some(of_scope) = self.broken.get_mut(&declined.by.scope)
        {
            of_scope.remove(&address);
            if of_scope.is_empty() {
                self.broken.remove(&declined.by.scope);
            }
        }
    }

    /// Notes that an address is promised to a slot, which already holds something or not.
    pub(super) fn add(&mut self, taker: SlotKey, holds: bool) {
        if let Some(promises) = self.slots.get_mut(&taker) {
            promises.count += 1;
            return;
        }
        if !holds {
            self.count(&taker, true);
        }
        self.slots.insert(taker, Promises { count: 1, holds });
    }

    /// Notes the end of a promise, kept or not.
    pub(super) fn remove(&mut self, taker: &SlotKey) {
        let Some(promises) = self.slots.get_mut(taker) else { return };
        promises.count -= 1;
        if promises.count == 0 {
            let holds = promises.holds;
            self.slots.remove(taker);
            if !holds {
                self.count(taker, false);
            }
        }
    }

    /// Notes that a slot holds something from now on.
    pub(super) fn fills(&mut self, slot: &SlotKey) {
        self.set(slot, true);
    }

    /// Notes that a slot holds nothing any more.
    pub(super) fn empties(&mut self, slot: &SlotKey) {
        self.set(slot, false);
    }

    #[inline]
    fn set(&mut self, slot: &SlotKey, holds: bool) {
        // In most networks nothing is promised.
        if self.slots.is_empty() {
            return;
        }
        if let Some(promises) = self.slots.get_mut(slot).filter(|promises| promises.holds != holds) {
            promises.holds = holds;
            self.count(slot, !holds);
        }
    }

    fn count(&mut self, slot: &SlotKey, waits: bool) {
        let owner = (slot.scope.clone(), slot.owner.clone());
        if waits {
            *self.owners.entry(owner).or_default() += 1;
            *self.scopes.entry(slot.scope.clone()).or_default() += 1;
            return;
        }
        let is_last = |count: &mut u64| {
            *count -= 1;
            *count == 0
        };
        if self.owners.get_mut(&owner).is_some_and(is_last) {
            self.owners.remove(&owner);
        }
        if self.scopes.get_mut(&slot.scope).is_some_and(is_last) {
            self.scopes.remove(&slot.scope);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn is_promised(&self, slot: &SlotKey) -> bool {
        !self.slots.is_empty() && self.slots.contains_key(slot)
    }

    pub(super) fn awaits(&self, slot: &SlotKey) -> bool {
        !self.slots.is_empty() && self.slots.get(slot).is_some_and(|promises| !promises.holds)
    }

    /// Slots of a scope that wait empty-handed. Cost: O(everything that is promised).
    pub(super) fn awaiting(&self, scope: &Scope) -> impl Iterator<Item = &SlotKey> {
        self.slots.iter().filter(move |(slot, promises)| !promises.holds && slot.scope == *scope).map(|(slot, _)| slot)
    }

    pub(super) fn of_owner(&self, scope: &Scope, owner: &Owner) -> u64 {
        if self.owners.is_empty() {
            return 0;
        }
        self.owners.get(&(scope.clone(), owner.clone())).copied().unwrap_or_default()
    }

    pub(super) fn of_scope(&self, scope: &Scope) -> u64 {
        self.scopes.get(scope).copied().unwrap_or_default()
    }
}

/// The owners for whom something is noted at a holding.
fn noted_for(held: &Reservation) -> impl Iterator<Item = &Owner> {
    [held.promise(), held.back()].into_iter().flatten().map(|promise| &promise.owner)
}

impl Holdings {
    /// Is there a holding at which it is noted that this owner gets it, by a promise or by a revert?
    pub(in crate::core::network) fn is_noted(&self, scope: &Scope, owner: &Owner) -> bool {
        !self.promised.noted.is_empty() && self.promised.noted.contains_key(&(scope.clone(), owner.clone()))
    }

    /// Addresses that were declined in a scope although they were promised, and to whom. Cost: O(their number).
    pub(in crate::core::network) fn broken(
        &self,
        scope: &Scope,
    ) -> impl Iterator<Item = (Address, &Arc<Declined>, &Promise)> {
        self.promised.broken.get(scope).into_iter().flatten().filter_map(|address| match self.at(*address) {
            Some(Entry::Declined(declined)) => Some((*address, declined, declined.promise.as_deref()?)),
            Some(Entry::Held(_) | Entry::Released(_)) | None => None,
        })
    }

    /// Scopes in which promised addresses were declined.
    pub(in crate::core::network) fn scopes_of_broken(&self) -> impl Iterator<Item = &Scope> {
        self.promised.broken.keys()
    }

    /// What counts within the limits of an owner: its current reservations, and the promises to its slots that hold nothing.
    pub(in crate::core::network) fn owner_load(&self, scope: &Scope, owner: &Owner) -> u64 {
        self.owner_count(scope, owner) + self.promised.of_owner(scope, owner)
    }

    /// What counts within the limits of a scope: see [`Self::owner_load`].
    pub(in crate::core::network) fn scope_load(&self, scope: &Scope) -> u64 {
        self.scope_count(scope) + self.promised.of_scope(scope)
    }

    /// Is anything promised to anybody?
    pub(in crate::core::network) fn has_promises(&self) -> bool {
        !self.promised.is_empty()
    }

    /// Is an address promised to this slot?
    pub(in crate::core::network) fn is_promised(&self, slot: &SlotKey) -> bool {
        self.promised.is_promised(slot)
    }

    /// Is an address promised to this slot, which holds nothing until then?
    pub(in crate::core::network) fn awaits(&self, slot: &SlotKey) -> bool {
        self.promised.awaits(slot)
    }

    /// Slots of a scope that hold nothing until what is promised to them comes.
    pub(in crate::core::network) fn awaiting(&self, scope: &Scope) -> impl Iterator<Item = &SlotKey> {
        self.promised.awaiting(scope)
    }
}

/// The slot to which a held address is promised.
pub(in crate::core::network) fn taker_of(held: &Reservation) -> Option<SlotKey> {
    held.promise().map(|promise| settle::taker_of(held, promise))
}
