//! Refusals for requests that something obsolete stands in the way of. Nobody uses it any more, and a commit ends it, but it
//! cannot be found by naming its owner alone.

use super::draft::held_by;
use super::{Network, Standing};
use crate::core::address::Address;
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, Reservation};
use crate::core::types::{Name, SlotKey};

/// Says that a holding is obsolete and what the commit does with it, as a fragment; none if it is current.
pub(super) fn fate_of(held: &Reservation) -> Option<String> {
    let (plan, deployment) = (held.obsolete.as_ref()?.plan, &held.holder.scope);
    let ends = match held.promise() {
        Some(promise) => format!("gives it to instance `{}`", promise.owner),
        None => "lets it go".to_owned(),
    };
    Some(format!("obsolete since plan {plan} of deployment `{deployment}`, whose commit {ends}"))
}

/// The refusal of an address that another slot holds.
pub(super) fn in_use(network: &Name, address: Address, held: &Reservation) -> Refusal {
    let (network, held_by) = (network.clone(), Box::new(held_by(held)));
    let Some(fate) = fate_of(held) else { return Refusal::AlreadyInUse { network, address, held_by } };
    let holder = &held_by.holder;
    let or = if held.promise().is_none() { ", or wait for that" } else { "" };
    let problem = format!("{address} of network `{network}` is held by {holder}, {fate}; ask for another address{or}");
    Refusal::Taken { problem, network: Some(network), address: Some(address), held_by: Some(held_by), used_in: None }
}

impl Network {
    /// The refusal to remove or shrink `what` because of reservations.
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
        let problem = format!("{plain}: {which}; ip.release finds an obsolete reservation by its address alone");
        Refusal::Guarded { problem, count, first }
    }

    /// What to do if a slot holds nothing, but did until a plan made it obsolete. Of several holdings the last one is named,
    /// so that the answer is the same after a restart.
    pub(super) fn left_by(&self, holder: &SlotKey) -> Option<String> {
        let held = self.holdings.of_owner(&holder.scope, &holder.owner);
        let left = held.filter(|(_, held)| held.obsolete.is_some() && held.holder.slot == holder.slot);
        let (address, held) = left.max_by_key(|(_, held)| held.generation)?;
        Some(format!("{address}, which it held, is {}; name it by its address", fate_of(held)?))
    }
}
