//! Finds the reservation that a client names by address or by slot, or says why it is not the one that is meant.
//!
//! Before: `lifecycle` and `release`.

use std::sync::Arc;

use super::Network;
use super::draft::held_by;
use super::holdings::{Holding, slot_or_default};
use crate::core::address::Address;
use crate::core::command::Target;
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{Entry, Reservation};
use crate::core::types::{Generation, Owner, Scope, Slot, SlotKey};

impl Network {
    /// Finds the reservation that a client names.
    ///
    /// # Errors
    /// `not_owner` if somebody else holds the address, `conflict` if the holding has another generation.
    pub(super) fn find(&self, target: &Target) -> Result<Option<Holding<'_>>, Refusal> {
        if target.address.is_none() && target.owner.is_none() {
            return Err(Refusal::invalid("address", "or `owner` must be given, to say which reservation is meant"));
        }
        let Some((address, held)) = self.named(target) else { return Ok(None) };
        if target.address.is_some() {
            let scope = target.scope.clone().unwrap_or_default();
            let holder = &held.holder;
            // An owner without a scope belongs to the default one.
            let scope = if target.scope.is_none() && target.owner.is_none() { &holder.scope } else { &scope };
            let owner = target.owner.as_ref().unwrap_or(&holder.owner);
            self.is_held_by(address, held, scope, owner, target.slot.as_ref())?;
        }
        check_generation(address, Some(held), target.if_generation)?;
        Ok(Some((address, held)))
    }

    /// What is held at the address, or by the slot, that a client names; whether or not the rest of what it names agrees.
    pub(super) fn named(&self, target: &Target) -> Option<Holding<'_>> {
        match (target.address, &target.owner) {
            (Some(address), _) => match self.holdings.at(address) {
                Some(Entry::Held(held)) => Some((address, held)),
                Some(Entry::Released(_) | Entry::Declined(_)) | None => None,
            },
            (None, Some(owner)) => self.holdings.slot(&SlotKey {
                scope: target.scope.clone().unwrap_or_default(),
                owner: owner.clone(),
                slot: slot_or_default(target.slot.as_ref()),
            }),
            (None, None) => None,
        }
    }

    pub(super) fn is_held_by(
        &self,
        address: Address,
        held: &Reservation,
        scope: &Scope,
        owner: &Owner,
        slot: Option<&Slot>,
    ) -> Result<(), Refusal> {
        let holder = &held.holder;
        if holder.owner == *owner && holder.scope == *scope && slot.is_none_or(|slot| *slot == holder.slot) {
            return Ok(());
        }
        // A slot that is left out is not checked.
        let slot = slot.unwrap_or(&holder.slot).clone();
        let asked = SlotKey { scope: scope.clone(), owner: owner.clone(), slot };
        Err(Refusal::NotOwner { address, asked, held_by: Box::new(held_by(held)) })
    }

    /// Finds the reservation that a client names; it must exist. If only a scope is given with the address, a reservation of
    /// another scope is not found.
    pub(super) fn find_held(&self, target: &Target) -> Result<(Address, &Arc<Reservation>), Refusal> {
        if self.scope_of_another(target).is_some() {
            return Err(self.nothing_held(target));
        }
        self.find(target)?.ok_or_else(|| self.nothing_held(target))
    }

    /// The scope in which the named address is held, if the client names another scope and no owner.
    fn scope_of_another(&self, target: &Target) -> Option<&Scope> {
        let (Some(address), Some(asked), None) = (target.address, &target.scope, &target.owner) else { return None };
        match self.holdings.at(address) {
            Some(Entry::Held(held)) => Some(&held.holder.scope).filter(|scope| *scope != asked),
            Some(Entry::Released(_) | Entry::Declined(_)) | None => None,
        }
    }

    /// Finds the reservation that a client names, for a change: it must exist, and the network must not be deleted.
    pub(super) fn find_to_change(&self, target: &Target) -> Result<(Address, &Arc<Reservation>), Refusal> {
        let found = self.find_held(target);
        match self.is_open() {
            Err(closed) if found.as_ref().err().is_none_or(|refusal| closed.precedence() < refusal.precedence()) => {
                Err(closed)
            }
            Err(_) | Ok(()) => found,
        }
    }

    pub(super) fn nothing_held(&self, target: &Target) -> Refusal {
        let elsewhere = self.scope_of_another(target);
        let in_scope =
            |scope: &Scope| format!("it is held in scope `{scope}`; name that scope if this reservation is meant");
        let mut hint = elsewhere.map(in_scope).or_else(|| target.address.and_then(|address| self.in_a_block(address)));
        let what = match (target.address, &target.owner) {
            (Some(address), _) => match target.scope.as_ref().filter(|_| elsewhere.is_some()) {
                Some(scope) => format!("at {address} of scope `{scope}`"),
                None => format!("at {address}"),
            },
            (None, Some(owner)) => {
                let holder = SlotKey {
                    scope: target.scope.clone().unwrap_or_default(),
                    owner: owner.clone(),
                    slot: slot_or_default(target.slot.as_ref()),
                };
                hint = self.left_by(&holder);
                format!("of {holder}")
            }
            (None, None) => String::new(),
        };
        let what = format!("{what} in network `{}`", self.config.name);
        Refusal::NotFound { missing: Missing::Reservation, what, hint }
    }

    /// The hint that an address lies inside a held block, if it does.
    fn in_a_block(&self, address: Address) -> Option<String> {
        let (base, entry) = self.holdings.covering(address)?;
        let inside = base != address && matches!(entry, Entry::Held(_));
        inside.then(|| {
            format!("it lies in the block {base}/{}; name the block by its first address", entry.prefix_length())
        })
    }
}

pub(super) fn check_generation(
    address: Address,
    held: Option<&Arc<Reservation>>,
    expected: Option<Generation>,
) -> Result<(), Refusal> {
    let actual = held.map(|held| held.generation);
    match expected {
        Some(expected) if actual != Some(expected) => Err(Refusal::GenerationConflict { address, expected, actual }),
        _ => Ok(()),
    }
}
