//! `ip.bind` in a dynamic network, which has no space of its own: it records which address the infrastructure picked.
//!
//! A recorded address is a reservation like any other. Its slot holds it until it is let go, and it is unique in the realm:
//! the coordinator makes sure that no other network has the address or space around it (`actors::recorded`). If the
//! infrastructure picks another address for the slot, that replaces the former one, unless another claimant is bound to it.

use super::Network;
use super::draft::{Draft, held_by};
use super::holdings::slot_or_default;
use super::left::in_use;
use crate::core::address::{Address, Cidr, Range};
use crate::core::command::{Context, GrantOptions, Target};
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, EventKind, NetworkKind, Reservation, ReservationKind};
use crate::core::types::{Claimant, SlotKey};

impl Network {
    /// The address and slot that a bind is to record; none if it is about something that the owner already holds. A slot that
    /// is left out is any slot of what is held, and `0` of what is recorded.
    pub(super) fn records(&self, target: &Target) -> Option<(Address, SlotKey)> {
        let dynamic = self.config.kind == NetworkKind::Dynamic && target.if_generation.is_none();
        let (address, owner) = (target.address.filter(|_| dynamic)?, target.owner.clone()?);
        let scope = target.scope.clone().unwrap_or_default();
        let own = match self.holdings.at(address) {
            Some(Entry::Held(held)) => self.is_held_by(address, held, &scope, &owner, target.slot.as_ref()).is_ok(),
            Some(Entry::Released(_) | Entry::Declined(_)) | None => false,
        };
        let slot = || slot_or_default(target.slot.as_ref());
        (!own).then(|| (address, SlotKey { scope, owner, slot: slot() }))
    }

    /// Adds to a refusal how to record an address, which takes `address` and `owner` together, and no generation.
    pub(super) fn with_how_to_record(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::NotFound { missing, what, hint: None } if self.config.kind == NetworkKind::Dynamic => {
                let hint = "to record what the infrastructure picked, give `address` and `owner` together, and no \
                            `if_generation`; ip.list shows what is held";
                Refusal::NotFound { missing, what, hint: Some(hint.to_owned()) }
            }
            refusal => refusal,
        }
    }

    /// Records that the slot has this address.
    pub(super) fn record(
        &self,
        address: Address,
        holder: &SlotKey,
        claimant: &Claimant,
        context: Context,
    ) -> Result<Decision, Refusal> {
        if let Some(problem) = Cidr::new(address, address.family().width()).and_then(crate::core::forms::never_a_subnet)
        {
            return Err(Refusal::invalid("address", problem));
        }
        self.is_open()?;
        if let Some(Entry::Held(held)) = self.holdings.at(address) {
            return Err(in_use(&self.config.name, address, held));
        }
        let before = self.holdings.slot(holder);
        if let Some((at, held)) = before
            && let Some(bound) = held.claimant.as_ref().filter(|bound| *bound != claimant)
        {
            return Err(bound_to(at, held, bound));
        }
        let mut draft = Draft::new(self, context);
        self.within_limits(&mut draft, holder, i64::from(before.is_none()))?;
        if let Some((at, held)) = before {
            draft.release(at, held, EventKind::Released);
        }
        let options = GrantOptions { claimant: Some(claimant.clone()), ..GrantOptions::default() };
        let view = draft.grant(Range::single(address), holder, ReservationKind::Dynamic, &options)?;
        Ok(draft.finish(Outcome::Reservation(Box::new(view))))
    }

    /// The addresses that a dynamic network has recorded.
    pub fn recorded(&self) -> impl Iterator<Item = Address> + '_ {
        let all =
            (self.config.kind == NetworkKind::Dynamic).then(|| self.holdings.ascending(std::ops::Bound::Unbounded));
        all.into_iter().flatten().filter(|(_, entry)| matches!(entry, Entry::Held(_))).map(|(address, _)| address)
    }
}

/// The refusal if another claimant uses it.
pub(super) fn bound_to(address: Address, held: &Reservation, bound: &Claimant) -> Refusal {
    Refusal::Taken {
        problem: format!(
            "{address} is bound to `{bound}`; ip.unbind it first, or repeat ip.allocate with the new claimant"
        ),
        network: None,
        address: Some(address),
        held_by: Some(Box::new(held_by(held))),
        used_in: None,
    }
}
