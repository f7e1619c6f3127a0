//! `ip.bind` in a dynamic network, which has no space of its own: it writes down which address the infrastructure picked.
//!
//! What was written down is a reservation like any other, held by its slot until that lets it go, and unique in the realm:
//! that no other network has it, or space around it, the coordinator sees to (`actors::recorded`). Where the infrastructure
//! picks another address for the slot, that takes the place of the one before, as long as nobody else is bound to it.

use super::Network;
use super::draft::{Draft, held_by};
use super::left::in_use;
use crate::core::address::{Address, Cidr, Range};
use crate::core::command::{Context, GrantOptions, Target};
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, EventKind, NetworkKind, Reservation, ReservationKind};
use crate::core::types::{Claimant, SlotKey};

impl Network {
    /// Whose address is to be written down by a bind; none where it is about what is held already.
    pub(super) fn records(&self, target: &Target) -> Option<(Address, SlotKey)> {
        let dynamic = self.config.kind == NetworkKind::Dynamic && target.if_generation.is_none();
        let (address, owner) = (target.address.filter(|_| dynamic)?, target.owner.clone()?);
        let scope = target.scope.clone().unwrap_or_default();
        let holder = SlotKey { scope, owner, slot: target.slot.clone().unwrap_or_default() };
        let own = matches!(self.holdings.at(address), Some(Entry::Held(held)) if held.holder == holder);
        (!own).then_some((address, holder))
    }

    /// A refusal of what could be written down and was not: that takes all of who, where, and no holding of before.
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

    /// Writes down that the slot has this address.
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

    /// What a dynamic network has written down.
    pub fn recorded(&self) -> impl Iterator<Item = Address> + '_ {
        let all =
            (self.config.kind == NetworkKind::Dynamic).then(|| self.holdings.ascending(std::ops::Bound::Unbounded));
        all.into_iter().flatten().filter(|(_, entry)| matches!(entry, Entry::Held(_))).map(|(address, _)| address)
    }
}

/// Somebody else uses it.
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
