//! First misses: which binding a sweep missed for the first time, and when.
//!
//! The network's actor keeps them, so that a look, a bind and the act of a sweep see them one after the other. A miss belongs
//! to one binding. It is forgotten when the address changes its holder or claimant, when the claimant is seen alive, when the
//! address is bound again (even if it already was bound), and when the memory of the network is loaded again. So a claimant
//! whose binding is released was missing from two sweeps, at least the grace apart by the shard's time, and nothing was heard
//! of it in between. The act of a sweep names the very miss that made the binding due: if the claimant was heard of since, and
//! then missed for the first time again, by the second look of that sweep or by another sweep, that is another miss.
//!
//! Bounded over all networks by [`crate::limits::SWEEP_MISSES_MAX`]; a miss that finds no place is noted as a first miss by a
//! later sweep.

use std::collections::HashMap;
use std::sync::Arc;

use super::NetworkActor;
use crate::actors::sweeps::Sweeps;
use crate::core::address::Address;
use crate::core::command::{Binding, Command, MissNumber, SweepLook};
use crate::core::outcome::{Outcome, UsedAddress};
use crate::core::state::{Entry, Key, Reservation, State, Step};
use crate::core::types::{Claimant, Generation, ShardTime};

#[derive(Debug)]
struct Miss {
    number: MissNumber,
    generation: Generation,
    claimant: Claimant,
    since: ShardTime,
    /// The list that missed it was doubted.
    doubted: bool,
}

impl Miss {
    fn is_of(&self, generation: Generation, claimant: Option<&Claimant>) -> bool {
        self.generation == generation && Some(&self.claimant) == claimant
    }

    /// Was it missed long enough ago to be due, now that this look misses it again?
    fn is_due(&self, look: &SweepLook, now: ShardTime) -> bool {
        // Several sweeps, by different names, may have lost the same marks.
        let count_as_one = look.doubted && self.doubted;
        !count_as_one && self.since.after_seconds(look.grace_seconds) <= now
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Misses {
    of: HashMap<Address, Miss>,
    sweeps: Arc<Sweeps>,
}

impl Drop for Misses {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Misses {
    pub(super) fn new(sweeps: Arc<Sweeps>) -> Self {
        Self { of: HashMap::new(), sweeps }
    }

    /// Forgets all misses: that makes sweeps late, never early.
    pub(super) fn clear(&mut self) {
        self.sweeps.forget_misses(self.of.len());
        // Its memory, too: a sweep of a large scope may have been the only one for a long time.
        self.of = HashMap::new();
    }

    fn forget(&mut self, address: Address) {
        if self.of.remove(&address).is_some() {
            self.sweeps.forget_misses(1);
        }
    }

    /// Forgets misses whose binding was changed by these steps: a miss belongs to one binding.
    fn stepped(&mut self, steps: &[Step]) {
        for step in steps {
            let Key::Address(address) = step.key else { continue };
            let Some(miss) = self.of.get(&address) else { continue };
            let same = |held: &Reservation| miss.is_of(held.generation, held.claimant.as_ref());
            let stands = matches!(&step.state, Some(State::Entry(Entry::Held(held))) if same(held));
            if !stands {
                self.forget(address);
            }
        }
    }

    /// Marks which of the missing were missed before, for long enough, as due; notes the others.
    fn judge(&mut self, look: &SweepLook, used: &mut [UsedAddress], now: ShardTime) {
        for UsedAddress { binding, missing, .. } in used {
            let Binding { address, generation, claimant, miss: due_by } = binding;
            let known = self.of.get(address).filter(|miss| miss.is_of(*generation, Some(claimant)));
            match known {
                Some(_) if !*missing && look.note => self.forget(*address),
                Some(miss) => *due_by = (*missing && miss.is_due(look, now)).then_some(miss.number),
                None if *missing && look.note => {
                    let Some(number) = self.sweeps.note_miss() else { continue };
                    let (generation, claimant) = (*generation, claimant.clone());
                    let miss = Miss { number, generation, claimant, since: now, doubted: look.doubted };
                    if self.of.insert(*address, miss).is_some() {
                        self.sweeps.forget_misses(1);
                    }
                }
                None => {}
            }
        }
    }

    /// Is the miss that made it due still remembered? Another miss of the same binding means that the claimant was heard of in
    /// between.
    fn stands(&self, binding: &Binding) -> bool {
        let same =
            |miss: &Miss| miss.is_of(binding.generation, Some(&binding.claimant)) && Some(miss.number) == binding.miss;
        self.of.get(&binding.address).is_some_and(same)
    }
}

impl NetworkActor {
    /// Reduces a sweep to those of its bindings whose claimants were not heard of since.
    pub(super) fn still_missed(&self, command: &mut Command) {
        if let Command::Sweep(bindings) = command {
            bindings.retain(|binding| self.misses.stands(binding));
        }
    }

    /// Notes what a decision that is about to be carried out tells of claimants.
    pub(super) fn hear_of_claimants(&mut self, command: &Command, outcome: &mut Outcome, now: ShardTime) {
        match (command, outcome) {
            (Command::SweepLook(look), Outcome::SweepLooked { used, .. }) => self.misses.judge(look, used, now),
            _ if self.misses.of.is_empty() => {}
            (Command::Bind(..), Outcome::Reservation(view)) => self.misses.forget(view.address),
            (Command::Allocate(ask), Outcome::Granted(grant)) if ask.options.claimant.is_some() => {
                self.misses.forget(grant.view.address);
            }
            (Command::Claim(ask), Outcome::Granted(grant)) if ask.options.claimant.is_some() => {
                self.misses.forget(grant.view.address);
            }
            (Command::Acquire(ask), Outcome::Acquired { grants, .. }) if ask.options.claimant.is_some() => {
                grants.iter().for_each(|(_, grant)| self.misses.forget(grant.view.address));
            }
            // No other command shows that a claimant is there: the compiler cannot check pairs.
            _ => {}
        }
    }

    /// Notes steps that are being carried out.
    pub(super) fn claimants_stepped(&mut self, steps: &[Step]) {
        if !self.misses.of.is_empty() {
            self.misses.stepped(steps);
        }
    }
}
