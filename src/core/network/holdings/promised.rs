//! Slots to which addresses are promised, and which of them hold nothing until then; owners for whom anything is noted at what
//! others hold; and addresses that were declined although they were promised.
//!
//! What is promised to a slot that holds nothing counts within the limits of its owner and scope, as if it were held
//! already: the commit that hands it over must not fail by a limit, nor exceed one. Where the slot holds something, that
//! goes when the promise is kept, so nothing is added.
//!
//! Costs what is promised, and nothing where nothing is.

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
    /// How many addresses: more than one only in the middle of a change.
    count: u32,
    /// The slot holds something.
    holds: bool,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Promised {
    slots: HashMap<SlotKey, Promises>,
    /// How many slots wait with empty hands, by owner and by scope; only what is not zero.
    owners: HashMap<(Scope, Owner), u64>,
    scopes: HashMap<Scope, u64>,
    /// At how much it is noted that an owner gets it: promised to it, or given back to it by a revert.
    noted: HashMap<(Scope, Owner), u32>,
    /// What was declined although it was promised, by the scope of both.
    broken: BTreeMap<Scope, BTreeSet<Address>>,
}

impl Promised {
    /// What is noted at a holding for others comes.
    pub(super) fn note(&mut self, held: &Reservation) {
        for owner in noted_for(held) {
            *self.noted.entry((held.holder.scope.clone(), owner.clone())).or_default() += 1;
        }
    }

    /// What is noted at a holding for others goes.
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

    /// An address that was promised is declined.
    pub(super) fn breaks(&mut self, address: Address, declined: &Declined) {
        if declined.promise.is_some() {
            self.broken.entry(declined.by.scope.clone()).or_default().insert(address);
        }
    }

    /// It is not noted any more.
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

    /// An address is promised to a slot, which holds something or not.
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

    /// A promise ends, kept or not.
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

    /// A slot holds something from here on.
    pub(super) fn fills(&mut self, slot: &SlotKey) {
        self.set(slot, true);
    }

    /// A slot holds nothing any more.
    pub(super) fn empties(&mut self, slot: &SlotKey) {
        self.set(slot, false);
    }

    #[inline]
    fn set(&mut self, slot: &SlotKey, holds: bool) {
        // By far the most networks: nothing is promised.
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

    /// Slots of a scope that wait with empty hands. Cost: O(all that is promised).
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

/// For whom anything is noted at a holding.
fn noted_for(held: &Reservation) -> impl Iterator<Item = &Owner> {
    [held.promise(), held.back()].into_iter().flatten().map(|promise| &promise.owner)
}

impl Holdings {
    /// Is it noted at anything that this owner gets it, now or by a revert?
    pub(in crate::core::network) fn is_noted(&self, scope: &Scope, owner: &Owner) -> bool {
        !self.promised.noted.is_empty() && self.promised.noted.contains_key(&(scope.clone(), owner.clone()))
    }

    /// What of a scope was declined although it was promised, and to whom. Cost: O(of those).
    pub(in crate::core::network) fn broken(
        &self,
        scope: &Scope,
    ) -> impl Iterator<Item = (Address, &Arc<Declined>, &Promise)> {
        self.promised.broken.get(scope).into_iter().flatten().filter_map(|address| match self.at(*address) {
            Some(Entry::Declined(declined)) => Some((*address, declined, declined.promise.as_deref()?)),
            Some(Entry::Held(_) | Entry::Released(_)) | None => None,
        })
    }

    /// Scopes of which anything was declined although it was promised.
    pub(in crate::core::network) fn scopes_of_broken(&self) -> impl Iterator<Item = &Scope> {
        self.promised.broken.keys()
    }

    /// What counts within the limits of an owner: its current reservations, and what is promised to slots of it that
    /// hold nothing.
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

    /// Is an address promised to this slot, which holds nothing until it comes?
    pub(in crate::core::network) fn awaits(&self, slot: &SlotKey) -> bool {
        self.promised.awaits(slot)
    }

    /// Slots of a scope that hold nothing until what is promised to them comes.
    pub(in crate::core::network) fn awaiting(&self, scope: &Scope) -> impl Iterator<Item = &SlotKey> {
        self.promised.awaiting(scope)
    }
}

/// Whom an address is promised to.
pub(in crate::core::network) fn taker_of(held: &Reservation) -> Option<SlotKey> {
    held.promise().map(|promise| settle::taker_of(held, promise))
}
