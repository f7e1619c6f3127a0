//! How an entry gets to an address and leaves it: into every index, and out of every index.
//!
//! Before: [`Network::apply`](crate::core::network::Network::apply), for each step. `loading` does the same for all entries
//! at once.
//!
//! Review notes: does a new index follow every transition in `link` and `unlink`?

use std::hash::BuildHasher;

use super::index::Index;
use super::records::{Links, NONE, Record, RecordId};
use super::{Holdings, ScopeChain, lower_half, of_hash, span, taker_of};
use crate::core::address::{Address, Family};
use crate::core::state::{Entry, Reservation};

/// The hash of an owner, and the first record of its chain.
pub(super) type OwnerPlace = (u64, Option<RecordId>);

impl Holdings {
    /// Puts an entry at an address, or removes it. Returns the former entry.
    pub(in crate::core::network) fn set(&mut self, address: Address, entry: Option<&Entry>) -> Option<Entry> {
        let Some(entry) = entry else { return self.remove(address) };
        let (records, mut is_new) = (&mut self.records, false);
        let number = || {
            is_new = true;
            records.insert(Record::new(address, entry.clone()))
        };
        let id = match address {
            Address::V4(bits) => *self.v4.entry(bits).or_insert_with(number),
            Address::V6(bits) => *self.v6.entry(bits).or_insert_with(number),
        };
        let before = (!is_new).then(|| {
            self.unlink(id);
            std::mem::replace(self.record_mut(id), Record::new(address, entry.clone())).entry
        });
        self.link((id, address), entry);
        before
    }

    fn remove(&mut self, address: Address) -> Option<Entry> {
        let id = match address {
            Address::V4(bits) => self.v4.remove(&bits),
            Address::V6(bits) => self.v6.remove(&bits),
        }?;
        self.unlink(id);
        Some(self.records.remove(id).entry)
    }

    pub(super) fn link(&mut self, (id, address): (RecordId, Address), entry: &Entry) {
        match entry {
            Entry::Held(reservation) => self.link_held(id, reservation),
            Entry::Released(released) => {
                self.cooling.insert((released.released_at, id));
                let hash = self.hasher.hash_one(&released.last);
                if !self.cools(hash) {
                    // The index stores the upper half of the hash; the lower half takes the place of the record number that
                    // other indexes have.
                    self.cooling_hashes.insert(hash, lower_half(hash));
                }
                self.cooling_slots.insert((hash, released.released_at, id));
            }
            Entry::Declined(declined) => {
                self.declined.insert((declined.until, id));
                self.promised.breaks(address, declined);
            }
        }
    }

    fn unlink(&mut self, id: RecordId) {
        match self.record(id).entry.clone() {
            Entry::Held(reservation) => self.unlink_held(id, &reservation),
            Entry::Released(released) => {
                self.cooling.remove(&(released.released_at, id));
                let hash = self.hasher.hash_one(&released.last);
                self.cooling_slots.remove(&(hash, released.released_at, id));
                if self.cooling_slots.range(of_hash(hash)).next().is_none() {
                    self.cooling_hashes.remove(hash, lower_half(hash));
                }
                if self.cooling_slots.is_empty() {
                    // A table does not give back memory by itself.
                    self.cooling_hashes = Index::default();
                }
            }
            Entry::Declined(declined) => {
                self.declined.remove(&(declined.until, id));
                self.promised.mends(self.record(id).address(), &declined);
            }
        }
    }

    fn link_held(&mut self, id: RecordId, reservation: &Reservation) {
        let place = self.owner_place(reservation);
        self.link_held_at(id, reservation, place);
    }

    pub(super) fn owner_place(&self, reservation: &Reservation) -> OwnerPlace {
        let (scope, owner) = (&reservation.holder.scope, &reservation.holder.owner);
        let hash = self.owner_hash(scope, owner);
        (hash, self.owner_first_of(hash, scope, owner))
    }

    /// As [`Self::link_held`], when the owner's place is known.
    pub(super) fn link_held_at(&mut self, id: RecordId, reservation: &Reservation, place: OwnerPlace) {
        let family = self.record(id).family;
        let links = self.links_of((id, family), reservation, place);
        self.record_mut(id).links = links;
        self.promised.note(reservation);
        if let Some(taker) = taker_of(reservation) {
            let holds = self.slot(&taker).is_some();
            self.promised.add(taker, holds);
        }
    }

    /// Puts a reservation at which nothing is noted for others into every index under this record number. The record itself
    /// need not exist yet. Returns the links of the record.
    pub(super) fn links_of(
        &mut self,
        (id, family): (RecordId, Family),
        reservation: &Reservation,
        place: OwnerPlace,
    ) -> Links {
        self.held += 1;
        let current = reservation.obsolete.is_none();
        if let Some(lease) = reservation.lease {
            self.leases.insert((self.end_of(lease), id));
        }
        if let Some(mac) = reservation.details.as_ref().and_then(|details| details.mac) {
            self.macs.insert(mac, id);
        }
        let links = self.link_owner(id, reservation, current, place);
        if current {
            self.promised.fills(&reservation.holder);
        }
        let scope = &reservation.holder.scope;
        let chain = match self.scopes.get_mut(scope) {
            Some(chain) => chain,
            None => {
                self.scopes_by_name.insert(scope.clone());
                self.scopes.entry(scope.clone()).or_insert(ScopeChain {
                    first: NONE,
                    current: 0,
                    obsolete: 0,
                    unbound: 0,
                    addresses: 0,
                })
            }
        };
        chain.current += u64::from(current);
        chain.obsolete += u64::from(!current);
        chain.unbound += u64::from(current && reservation.claimant.is_none());
        chain.addresses += span(family, reservation.prefix_length);
        let next = std::mem::replace(&mut chain.first, id);
        if next != NONE {
            self.record_mut(next).links.scope_previous = id;
        }
        Links { scope_next: next, ..links }
    }

    fn link_owner(
        &mut self,
        id: RecordId,
        reservation: &Reservation,
        current: bool,
        (hash, first): OwnerPlace,
    ) -> Links {
        let mut links = Links::default();
        // The newest record becomes the second, so that the first, which the table names, stays the first.
        match first {
            Some(first) => {
                let second = self.record(first).links.owner_next;
                let head = &mut self.record_mut(first).links;
                head.owner_current += u32::from(current);
                head.owner_next = id;
                links.owner_previous = first;
                links.owner_next = second;
                if second != NONE {
                    self.record_mut(second).links.owner_previous = id;
                }
                if current {
                    self.slots.insert(self.hasher.hash_one(&reservation.holder), id);
                }
            }
            None => {
                links.owner_current = u32::from(current);
                self.owners.insert(hash, id);
            }
        }
        links
    }

    fn unlink_held(&mut self, id: RecordId, reservation: &Reservation) {
        self.held -= 1;
        let current = reservation.obsolete.is_none();
        if let Some(lease) = reservation.lease {
            self.leases.remove(&(self.end_of(lease), id));
        }
        if let Some(mac) = reservation.details.as_ref().and_then(|details| details.mac)
            && self.macs.get(&mac) == Some(&id)
        {
            self.macs.remove(&mac);
        }
        self.unlink_owner(id, reservation, current);
        // In the middle of a change a slot may hold two addresses.
        if current && self.promised.is_promised(&reservation.holder) && self.slot(&reservation.holder).is_none() {
            self.promised.empties(&reservation.holder);
        }
        self.promised.forget(reservation);
        if let Some(taker) = taker_of(reservation) {
            self.promised.remove(&taker);
        }
        let (next, previous, family) = {
            let record = self.record(id);
            (record.links.scope_next, record.links.scope_previous, record.family)
        };
        if next != NONE {
            self.record_mut(next).links.scope_previous = previous;
        }
        if previous != NONE {
            self.record_mut(previous).links.scope_next = next;
        }
        let scope = &reservation.holder.scope;
        if let Some(chain) = self.scopes.get_mut(scope) {
            chain.current -= u64::from(current);
            chain.obsolete -= u64::from(!current);
            chain.unbound -= u64::from(current && reservation.claimant.is_none());
            chain.addresses -= span(family, reservation.prefix_length);
            if previous == NONE {
                chain.first = next;
            }
            if chain.first == NONE {
                self.scopes.remove(scope);
                self.scopes_by_name.remove(scope);
            }
        }
    }

    fn unlink_owner(&mut self, id: RecordId, reservation: &Reservation, current: bool) {
        let (next, previous, count) = {
            let record = self.record(id);
            (record.links.owner_next, record.links.owner_previous, record.links.owner_current)
        };
        if next != NONE {
            self.record_mut(next).links.owner_previous = previous;
        }
        if previous != NONE {
            self.record_mut(previous).links.owner_next = next;
            self.forget_slot(id);
            if let Some(first) = self.owner_first(&reservation.holder.scope, &reservation.holder.owner) {
                self.record_mut(first).links.owner_current -= u32::from(current);
            }
            return;
        }
        // It was the first of its chain, so the table must now name the next one, or none.
        let hash = self.owner_hash(&reservation.holder.scope, &reservation.holder.owner);
        if next == NONE {
            self.owners.remove(hash, id);
        } else if self.owners.replace(hash, id, next) {
            self.record_mut(next).links.owner_current = count - u32::from(current);
            self.forget_slot(next);
        }
    }

    /// Removes a record from the index by slot, because it goes, or is now the first of its chain.
    fn forget_slot(&mut self, id: RecordId) {
        let current = self.record(id).held().filter(|held| held.obsolete.is_none());
        if let Some(hash) = current.map(|held| self.hasher.hash_one(&held.holder)) {
            self.slots.remove(hash, id);
        }
    }
}
