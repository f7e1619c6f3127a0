//! What is wrong with a request by itself is told before anybody looks for the network: `invalid_argument` precedes
//! `not_found`.
//!
//! Before: `wire`, which knows each member by itself. After: `dispatch`. What the core can say without a network is asked
//! there; the core asks it again when it decides.

use super::faults;
use crate::actors::coordinator::AcquirePart;
use crate::core::address::Address;
use crate::core::command::{Allocate, Claim, NetworkPatch, SubnetInput, SubnetPatch, SubnetRef};
use crate::core::forms;
use crate::core::refusal::Refusal;
use crate::core::types::Owner;
use crate::wire::RpcError;

/// Is it said which reservation is meant?
pub(super) fn says_which(address: Option<Address>, owner: Option<&Owner>) -> Result<(), RpcError> {
    if address.is_none() && owner.is_none() {
        let problem = "`address` or `owner` must be given, to say which reservation is meant";
        return Err(RpcError::invalid("address", problem));
    }
    Ok(())
}

/// Has a `set` any members?
pub(super) fn says_what<T: Default + PartialEq>(set: &T) -> Result<(), RpcError> {
    if *set == T::default() {
        return Err(RpcError::invalid("set", "`set` is empty: nothing to change"));
    }
    Ok(())
}

fn judged(form: Result<(), Refusal>) -> Result<(), RpcError> {
    form.map_err(|refusal| faults::refused(&refusal))
}

/// `ip.allocate`.
pub(super) fn allocate(ask: &Allocate) -> Result<(), RpcError> {
    judged(forms::of_allocate(ask))
}

/// `ip.claim`.
pub(super) fn claim(ask: &Claim) -> Result<(), RpcError> {
    judged(forms::of_claim(ask))
}

/// `ip.acquire`: of several networks, what comes first in the request.
pub(super) fn acquire(parts: &[AcquirePart]) -> Result<(), RpcError> {
    let wrong = parts.iter().filter_map(|part| forms::of_acquire(&part.ask).err());
    let place = |refusal: &Refusal| match refusal {
        Refusal::OfItem { index, .. } => *index,
        _ => 0,
    };
    judged(wrong.min_by_key(place).map_or(Ok(()), Err))
}

/// `network.update`.
pub(super) fn network_patch(set: &NetworkPatch) -> Result<(), RpcError> {
    says_what(set)?;
    judged(forms::of_network_patch(set))
}

/// `subnet.add`.
pub(super) fn subnet(input: &SubnetInput) -> Result<(), RpcError> {
    judged(forms::of_subnet(input))
}

/// `subnet.modify`.
pub(super) fn subnet_patch(subnet: &SubnetRef, set: &SubnetPatch) -> Result<(), RpcError> {
    says_what(set)?;
    judged(forms::of_subnet_patch(subnet, set))
}
