//! Refuses requests that are wrong in themselves before the network is looked up, because `invalid_argument` precedes `not_found`.
//!
//! Before: `wire`, which checks each member by itself. After: `dispatch`. The checks that need no network are the core's, which
//! makes them again when it decides.

use super::faults;
use crate::actors::coordinator::AcquirePart;
use crate::core::address::Address;
use crate::core::command::{Allocate, Claim, NetworkPatch, SubnetInput, SubnetPatch, SubnetRef};
use crate::core::forms;
use crate::core::refusal::Refusal;
use crate::core::types::Owner;
use crate::wire::RpcError;

/// Checks that the request says which reservation it means.
pub(super) fn says_which(address: Option<Address>, owner: Option<&Owner>) -> Result<(), RpcError> {
    if address.is_none() && owner.is_none() {
        let problem = "`address` or `owner` must be given, to say which reservation is meant";
        return Err(RpcError::invalid("address", problem));
    }
    Ok(())
}

/// Checks that `set` has members.
pub(super) fn says_what<T: Default + PartialEq>(set: &T) -> Result<(), RpcError> {
    if *set == T::default() {
        return Err(RpcError::invalid("set", "`set` is empty: nothing to change"));
    }
    Ok(())
}

fn judged(form: Result<(), Refusal>) -> Result<(), RpcError> {
    form.map_err(|refusal| faults::refused(&refusal))
}

/// Checks `ip.allocate`.
pub(super) fn allocate(ask: &Allocate) -> Result<(), RpcError> {
    judged(forms::of_allocate(ask))
}

/// Checks `ip.claim`.
pub(super) fn claim(ask: &Claim) -> Result<(), RpcError> {
    judged(forms::of_claim(ask))
}

/// Checks `ip.acquire`; the refusal is about the item that comes first in the request.
pub(super) fn acquire(parts: &[AcquirePart]) -> Result<(), RpcError> {
    let wrong = parts.iter().filter_map(|part| forms::of_acquire(&part.ask).err());
    let place = |refusal: &Refusal| match refusal {
        Refusal::OfItem { index, .. } => *index,
        _ => 0,
    };
    judged(wrong.min_by_key(place).map_or(Ok(()), Err))
}

/// Checks `network.update`.
pub(super) fn network_patch(set: &NetworkPatch) -> Result<(), RpcError> {
    says_what(set)?;
    judged(forms::of_network_patch(set))
}

/// Checks `subnet.add`.
pub(super) fn subnet(input: &SubnetInput) -> Result<(), RpcError> {
    judged(forms::of_subnet(input))
}

/// Checks `subnet.modify`.
pub(super) fn subnet_patch(subnet: &SubnetRef, set: &SubnetPatch) -> Result<(), RpcError> {
    says_what(set)?;
    judged(forms::of_subnet_patch(subnet, set))
}
