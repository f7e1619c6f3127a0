//! What is told to those whom something obsolete stands in the way: nobody uses it any more, and a commit ends it. Its owner,
//! named alone, does not lead to it.

use super::draft::held_by;
use super::{Network, Standing};
use crate::core::address::Address;
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, Reservation};
use crate::core::types::{Name, SlotKey};

/// That a holding is obsolete and what the commit makes of it, as a fragment; none where it is current.
pub(super) fn fate_of(held: &Reservation) -> Option<String> {
    let (plan, deployment) = (held.obsolete.as_ref()?.plan, &held.holder.scope);
    let ends = match held.promise() {
        Some(promise) => format!("gives it to instance `{}`", promise.owner),
        None => "lets it go".to_owned(),
    };
    Some(format!("obsolete since plan {plan} of deployment `{deployment}`, whose commit {ends}"))
}

/// An address is held by somebody else than who wants it.
pub(super) fn in_use(network: &Name, address: Address, held: &Reservation) -> Refusal {
    let (network, held_by) = (network.clone(), Box::new(held_by(held)));
    let Some(fate) = fate_of(held) else { return Refusal::AlreadyInUse { network, address, held_by } };
    let holder = &held_by.holder;
    let or = if held.promise().is_none() { ", or wait for that" } else { "" };
    let problem = format!("{address} of network `{network}` is held by {holder}, {fate}; ask for another address{or}");
    Refusal::Taken { problem, network: Some(network), address: Some(address), held_by: Some(held_by), used_in: None }
}

impl Network {
    /// `what` cannot go, or be made smaller, because of reservations.
    pub(super) fn stands_against(&self, what: String, Standing { count, first }: Standing) -> Refusal {
        let obsolete = |address: &Address| match self.holdings.at(*address) {
            Some(Entry::Held(held)) => Some((*address, fate_of(held)?)),
            Some(Entry::Released(_) | Entry::Declined(_)) | None => None,
        };
        let left: Vec<(Address, String)> = first.iter().filter_map(obsolete).collect();
        let plain = Refusal::InUse { what, count, first: first.clone() };
        let which = match left.as_slice() {
            [] => return plain,
            [(_, fate)] if count == 1 => format!("it is {fate}"),
            [(address, fate)] => format!("of these {address} is {fate}"),
            [(address, fate), ..] => format!("{} of these are obsolete, {address} is {fate}", left.len()),
        };
        let problem = format!("{plain}: {which}; ip.release finds what is obsolete by its address alone");
        Refusal::Guarded { problem, count, first }
    }

    /// What to do where a slot holds nothing, but did until a plan made it obsolete. Of several the last, so that it is the same
    /// one behind a restart.
    pub(super) fn left_by(&self, holder: &SlotKey) -> Option<String> {
        let held = self.holdings.of_owner(&holder.scope, &holder.owner);
        let left = held.filter(|(_, held)| held.obsolete.is_some() && held.holder.slot == holder.slot);
        let (address, held) = left.max_by_key(|(_, held)| held.generation)?;
        Some(format!("{address}, which it held, is {}; it is named by its address", fate_of(held)?))
    }
}
