//! Finds the reservation that a client names, by address or by slot, or says why it is not the one that is meant.
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
    /// `not_owner` if somebody else holds the address, `conflict` if it is another holding.
    pub(super) fn find(&self, target: &Target) -> Result<Option<Holding<'_>>, Refusal> {
        let scope = target.scope.clone().unwrap_or_default();
        let found = match (target.address, &target.owner) {
            (Some(address), _) => match self.holdings.at(address) {
                Some(Entry::Held(held)) => Some((address, held)),
                Some(Entry::Released(_) | Entry::Declined(_)) | None => None,
            },
            (None, Some(owner)) => {
                let slot = slot_or_default(target.slot.as_ref());
                self.holdings.slot(&SlotKey { scope: scope.clone(), owner: owner.clone(), slot })
            }
            (None, None) => {
                return Err(Refusal::invalid("address", "or `owner` must be given, to say which reservation is meant"));
            }
        };
        let Some((address, held)) = found else { return Ok(None) };
        match &target.owner {
            Some(owner) if target.address.is_some() => {
                self.is_held_by(address, held, &scope, owner, target.slot.as_ref())?;
            }
            // Held in another scope is not found in this one.
            None if target.scope.as_ref().is_some_and(|scope| *scope != held.holder.scope) => return Ok(None),
            None => {
                let SlotKey { scope, owner, slot: _ } = &held.holder;
                self.is_held_by(address, held, scope, owner, target.slot.as_ref())?;
            }
            Some(_) => {}
        }
        check_generation(address, Some(held), target.if_generation)?;
        Ok(Some((address, held)))
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
        let asked = SlotKey { scope: scope.clone(), owner: owner.clone(), slot: slot_or_default(slot) };
        Err(Refusal::NotOwner { address, asked, held_by: Box::new(held_by(held)) })
    }

    /// Finds the reservation that a client names, which must exist.
    pub(super) fn find_held(&self, target: &Target) -> Result<(Address, &Arc<Reservation>), Refusal> {
        self.find(target)?.ok_or_else(|| self.nothing_held(target))
    }

    /// Finds the reservation that a client names, which must exist, for a change: a deleted network refuses that.
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
        let hint = match target.address {
            Some(address) => self
                .holdings
                .covering(address)
                .filter(|(base, entry)| *base != address && matches!(entry, Entry::Held(_)))
                .map(|(base, entry)| {
                    format!(
                        "it lies in the block {base}/{}, which is named by its first address",
                        entry.prefix_length()
                    )
                }),
            None => None,
        };
        let what = match (target.address, &target.owner) {
            (Some(address), _) => format!("at {address}"),
            (None, Some(owner)) => {
                let holder = SlotKey {
                    scope: target.scope.clone().unwrap_or_default(),
                    owner: owner.clone(),
                    slot: slot_or_default(target.slot.as_ref()),
                };
                format!("of {holder}")
            }
            (None, None) => String::new(),
        };
        let what = format!("{what} in network `{}`", self.config.name);
        Refusal::NotFound { missing: Missing::Reservation, what, hint }
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
