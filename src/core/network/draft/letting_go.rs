//! How a draft lets holdings go.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Draft;
use crate::core::address::{Address, Range};
use crate::core::network::holdings::covered;
use crate::core::network::settle::taker_of;
use crate::core::state::{Declined, Entry, Event, EventKind, Planned, Promise, Released, Reservation};
use crate::core::types::{Owner, OwnerUid, Scope, SlotKey};

impl Draft<'_> {
    /// Lets a holding go: it goes to the slot to which it is promised, or cools, or is gone at once.
    pub(in crate::core::network) fn release(
        &mut self,
        address: Address,
        reservation: &Arc<Reservation>,
        kind: EventKind,
    ) {
        // A promise that this request kept may have made it obsolete.
        let now = if self.has_let_go(address) { self.held_now(address) } else { None };
        let reservation = now.as_ref().unwrap_or(reservation);
        match reservation.promise() {
            Some(promise) if self.is_asked(&taker_of(reservation, promise)) => {
                self.leaves(address, reservation);
                self.ledger().owed.push((address, Arc::clone(reservation), kind));
            }
            Some(promise) if !self.ends(reservation, promise) => {
                let promise = promise.clone();
                self.keep_promise(address, reservation, &promise, (promise.plan, None), &BTreeMap::new());
            }
            Some(_) | None => self.release_for_good(address, reservation, kind),
        }
    }

    /// Notes the slots that this request names: the answer shows what they have in the end.
    pub(in crate::core::network) fn asks_for(&mut self, slots: impl Iterator<Item = SlotKey>) {
        if self.network.holdings.has_promises() {
            self.ledger().asked = slots.collect();
        }
    }

    fn is_asked(&self, slot: &SlotKey) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.asked.contains(slot))
    }

    /// Handles addresses that were let go and are promised to slots that this request names, now that it is known which of
    /// these slots have something. Such a slot keeps what it has, and the promise ends; for the others the promise is kept.
    /// Returns what was given to them.
    pub(in crate::core::network) fn settle_owed(&mut self, has: impl Fn(&SlotKey) -> bool) -> Vec<Address> {
        let mut given = Vec::new();
        let owed = self.ledger.as_mut().map(|ledger| std::mem::take(&mut ledger.owed));
        for (address, held, kind) in owed.unwrap_or_default() {
            match held.promise().filter(|promise| !has(&taker_of(&held, promise))) {
                Some(promise) => {
                    self.keep_promise(address, &held, promise, (promise.plan, None), &BTreeMap::new());
                    given.push(address);
                }
                None => self.release_for_good(address, &held, kind),
            }
        }
        given
    }

    /// Does this promise end because of what the request lets go?
    pub(in crate::core::network) fn ends(&self, reservation: &Reservation, promise: &Promise) -> bool {
        self.network.config.closed
            || self.letting_go.as_ref().is_some_and(|(scope, owner)| {
                *scope == reservation.holder.scope && owner.as_ref().is_none_or(|owner| *owner == promise.owner)
            })
    }

    /// Ends what is noted for an owner that lets go of everything: what others promise to it, what a revert would give back
    /// to it, and what was promised to it and then declined. At most `limit` entries; returns whether that was all. Cost:
    /// O(1) if nothing is noted for the owner, otherwise O(everything that its scope holds).
    pub(in crate::core::network) fn forget_promises_to(
        &mut self,
        (scope, owner): &(Scope, Option<Owner>),
        mut limit: usize,
    ) -> bool {
        let network = self.network;
        let mut is_all = true;
        // With a whole scope, all holdings go at which anything is noted for its owners.
        if let Some(owner) = owner.as_ref().filter(|owner| network.holdings.is_noted(scope, owner)) {
            let to_it = |promise: Option<&Promise>| promise.is_some_and(|promise| promise.owner == *owner);
            let noted = |held: &Reservation| to_it(held.promise()) || to_it(held.back());
            // Its own holdings are released anyway, and with them whatever they passed on to others by promises.
            let others = |at: Address, held: &Reservation| held.holder.owner != *owner && !self.has_let_go(at);
            let of_scope = network.holdings.of_scope(scope).filter(|(at, held)| noted(held) && others(*at, held));
            let mut found: Vec<_> = of_scope.collect();
            found.sort_unstable_by_key(|(address, _)| *address);
            is_all = found.len() <= limit;
            found.truncate(limit);
            limit -= found.len();
            for (address, held) in found {
                let mut planned = held.planned.as_deref().cloned().unwrap_or_default();
                planned.promise = planned.promise.filter(|promise| promise.owner != *owner);
                planned.back = planned.back.filter(|back| back.owner != *owner);
                let planned = (planned != Planned::default()).then(|| Box::new(planned));
                self.note(address, held, Reservation { planned, ..Reservation::clone(held) });
            }
        }
        self.forget_broken(scope, owner.as_ref(), limit) && is_all
    }

    /// Forgets promised and declined addresses of a scope, or of one of its owners. At most `limit`; returns whether that
    /// was all.
    pub(in crate::core::network) fn forget_broken(
        &mut self,
        scope: &Scope,
        owner: Option<&Owner>,
        limit: usize,
    ) -> bool {
        let network = self.network;
        let meant = |promise: &Promise| owner.is_none_or(|owner| promise.owner == *owner);
        let mut broken = network.holdings.broken(scope).filter(|(_, _, promise)| meant(promise));
        for (address, declined, _) in broken.by_ref().take(limit) {
            let after = Entry::Declined(Arc::new(Declined { promise: None, ..Declined::clone(declined) }));
            self.put(address, Some(&Entry::Declined(Arc::clone(declined))), Some(after), None);
        }
        broken.next().is_none()
    }

    /// Lets a holding go even if it is promised to somebody.
    pub(in crate::core::network) fn release_for_good(
        &mut self,
        address: Address,
        reservation: &Arc<Reservation>,
        kind: EventKind,
    ) {
        let config = &self.network.config;
        let after = (config.cooldown_seconds > 0).then(|| {
            Entry::Released(Arc::new(Released {
                prefix_length: reservation.prefix_length,
                last: reservation.holder.clone(),
                owner_uid: uid_of(reservation),
                generation: reservation.generation,
                released_at: self.context.now,
            }))
        });
        let event = Event { kind, before: Some(Arc::clone(reservation)) };
        self.leaves(address, reservation);
        self.put(address, Some(&Entry::Held(Arc::clone(reservation))), after, Some(event));
    }

    /// Lets go of a block except for a part that the same slot is about to be granted.
    pub(in crate::core::network) fn release_around(
        &mut self,
        address: Address,
        reservation: &Arc<Reservation>,
        part: Range,
    ) {
        let event = Event { kind: EventKind::Released, before: Some(Arc::clone(reservation)) };
        self.leaves(address, reservation);
        self.put(address, Some(&Entry::Held(Arc::clone(reservation))), None, Some(event));
        if self.network.config.cooldown_seconds == 0 {
            return;
        }
        for piece in covered(address, reservation.prefix_length).without(part).flat_map(Range::cidrs) {
            let released = Released {
                prefix_length: piece.length(),
                last: reservation.holder.clone(),
                owner_uid: uid_of(reservation),
                generation: reservation.generation,
                released_at: self.context.now,
            };
            self.put(piece.base(), None, Some(Entry::Released(Arc::new(released))), None);
        }
    }

    /// Notes that a holding ends with this request, which frees its MAC and its place within the limits. May be called again.
    pub(in crate::core::network) fn leaves(&mut self, address: Address, reservation: &Reservation) {
        // An obsolete reservation does not count within limits, but may have a MAC.
        if !self.ledger().let_go.insert(address) || reservation.obsolete.is_some() {
            return;
        }
        if !self.promises_anew && self.network.holdings.is_promised(&reservation.holder) {
            // What is promised to the slot now counts in its place.
            self.ledger().awaiting.insert(reservation.holder.clone());
        } else {
            self.count(&reservation.holder, -1);
        }
    }
}

fn uid_of(reservation: &Reservation) -> Option<OwnerUid> {
    reservation.details.as_ref()?.owner_uid.clone()
}
