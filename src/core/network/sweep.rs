//! The part of a sweep that concerns one network: which claimants use what a scope holds, and letting go of what nobody uses.
//!
//! The network's actor remembers who was missed before and since when (`actors::network::sweeping`). Here are only the
//! present state and the act.

use std::ops::Bound;
use std::sync::Arc;

use super::Network;
use super::draft::Draft;
use super::read::read;
use crate::core::address::Address;
use crate::core::command::{Binding, Context, SweepLook};
use crate::core::outcome::{Decision, Outcome, UsedAddress};
use crate::core::state::{Entry, EventKind, Reservation};
use crate::limits::LIST_SLICE_RECORDS_MAX;

impl Network {
    /// A slice of what a scope holds, including obsolete reservations, with its claimants. A walk by slices looks exactly
    /// once at whatever exists throughout the walk.
    pub(super) fn sweep_look(&self, ask: &SweepLook) -> Decision {
        let mut used = Vec::new();
        let mut reservations = 0;
        let mut look = |address: Address, held: &Arc<Reservation>| {
            reservations += 1;
            if let Some(claimant) = &held.claimant {
                let (generation, claimant) = (held.generation, claimant.clone());
                let (missing, released) = (!ask.alive.contains(&claimant), held.release_with_claimant);
                used.push(UsedAddress {
                    missing,
                    released,
                    binding: Binding { address, generation, claimant, miss: None },
                });
            }
        };
        let mut next = None;
        if ask.after.is_none() && self.holdings.scope_held(&ask.scope) <= LIST_SLICE_RECORDS_MAX as u64 {
            // Most scopes hold little, so their own holdings are looked at, however much else the network has.
            self.holdings.of_scope(&ask.scope).for_each(|(address, held)| look(address, held));
            used.sort_unstable_by_key(|used| used.binding.address);
        } else {
            let from = ask.after.map_or(Bound::Unbounded, Bound::Excluded);
            for (looked_at, (address, entry)) in self.holdings.ascending(from).enumerate() {
                if let Entry::Held(held) = entry
                    && held.holder.scope == ask.scope
                {
                    look(address, held);
                }
                if looked_at + 1 >= LIST_SLICE_RECORDS_MAX {
                    next = Some(address);
                    break;
                }
            }
        }
        read(Outcome::SweepLooked { used, reservations, next })
    }

    /// Lets go of the bindings that are still as they were judged: reservations made with `release_with_claimant` are
    /// released, the others stay with their owners. What has changed since is skipped.
    pub(super) fn sweep(&self, bindings: &[Binding], context: Context) -> Decision {
        let mut draft = Draft::new(self, context);
        let (mut unbound, mut released) = (Vec::new(), Vec::new());
        for binding in bindings {
            // A promise that was kept for a binding before this one may have changed it.
            let Some(held) = draft.held_now(binding.address) else { continue };
            if held.generation != binding.generation || held.claimant.as_ref() != Some(&binding.claimant) {
                continue;
            }
            if held.release_with_claimant {
                draft.release(binding.address, &held, EventKind::Swept);
                released.push(binding.clone());
            } else {
                let now = Reservation { claimant: None, ..Reservation::clone(&held) };
                draft.change(binding.address, &held, now, EventKind::Unbound);
                unbound.push(binding.clone());
            }
        }
        self.and_vanish(draft, Outcome::Swept { unbound, released })
    }
}
