//! `subnet.move`: a subnet leaves one network and arrives in another, with all that lies in it.
//!
//! Two decisions that one transaction makes durable together. Everything keeps its identity: the subnet its id,
//! reservations their generations, so nobody who holds an address notices.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Draft, leaving_step};
use crate::core::address::Address;
use crate::core::command::{Moved, SubnetRef};
use crate::core::network::Network;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, EventKind, Key, State, Step, SubnetConfig};
use crate::core::types::Version;

impl Network {
    /// Takes a subnet out of its network.
    ///
    /// # Errors
    /// `not_found`, `in_use` if the network is closed, `conflict`.
    pub(in crate::core::network) fn decide_move_out(
        &self,
        wanted: &SubnetRef,
        if_version: Option<Version>,
    ) -> Result<Decision, Refusal> {
        let mut draft = Draft::of_open(self, if_version);
        let subnet = match self.subnet(wanted) {
            Ok(subnet) => Arc::clone(subnet),
            Err(refusal) => return draft.refused(refusal),
        };
        let entries = self.entries_in(subnet.cidr.range());
        draft.subnets.retain(|other| other.id != subnet.id);
        draft.leaving = entries.iter().cloned().collect();
        let done = draft.finish(EventKind::NetworkChanged)?;
        done.answer(Outcome::MovedOut(Box::new(Moved { subnet, entries })))
    }

    /// Takes in what [`Network::decide_move_out`] of another network gave up. It is drawn after the subnets that are
    /// there. Limits per owner and scope bind grants, and so do not stand in the way.
    ///
    /// # Errors
    /// `invalid_argument` for a second `dhcp` or a bound, `overlap` within this network, `in_use` if it is closed,
    /// `already_exists` for a name, or for a slot that is taken here too. Other networks of the realm are the catalog's.
    pub(in crate::core::network) fn decide_move_in(&self, moved: &Moved) -> Result<Decision, Refusal> {
        let mut draft = Draft::of_open(self, None);
        draft.check_beside(&moved.subnet, "");
        if let Some(refusal) = slot_taken(self, moved) {
            draft.refuse(refusal);
        }
        let mut subnet = SubnetConfig::clone(&moved.subnet);
        subnet.position = self.subnets().iter().map(|other| other.position + 1).max().unwrap_or(0);
        for pool in &mut subnet.pools {
            // What is granted here from now on is granted in the pool as it is.
            pool.since = pool.since.min(self.next_generation());
        }
        let (id, range) = (subnet.id, subnet.cidr.range());
        draft.put(subnet);
        draft.check_bounds("to");
        let mut done = draft.finish(EventKind::NetworkChanged)?;
        // Addresses may cool here still, from a subnet that was removed: what arrives takes their place.
        let mut left: BTreeMap<Address, Entry> = self.entries_in(range).into_iter().collect();
        let arriving: Vec<Step> = moved
            .entries
            .iter()
            .map(|(address, entry)| Step {
                key: Key::Address(*address),
                expect: left.remove(address).map(|old| old.generation().0),
                state: Some(State::Entry(entry.clone())),
                event: None,
            })
            .collect();
        done.steps.extend(left.iter().map(|(address, entry)| leaving_step(*address, entry)));
        done.steps.extend(arriving);
        let subnet = done.subnet(id);
        done.answer(Outcome::Subnet { subnet, created: true })
    }
}

/// The first slot that something current holds in both networks.
fn slot_taken(network: &Network, moved: &Moved) -> Option<Refusal> {
    moved.entries.iter().find_map(|(_, entry)| match entry {
        Entry::Held(reservation) if reservation.obsolete.is_none() => {
            let address = network.slot_holder(&reservation.holder)?;
            let (network, holder) = (network.config().name.clone(), reservation.holder.clone());
            Some(Refusal::SlotTaken { network, holder, address, differs: Vec::new() })
        }
        Entry::Held(_) | Entry::Released(_) | Entry::Declined(_) => None,
    })
}
