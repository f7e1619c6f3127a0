//! Brings back what was acknowledged on a line that a failover cut off, as claims that may fail. If the address is
//! free, it is held again as it was, under the generation that its holder knows. Otherwise the claim is a *conflict*: it is
//! kept with the network's configuration, and nothing new is granted here, until an operator has decided it, or until the
//! claim is brought once more and its holder has the address by then. Until then the network keeps its space, and a deleted
//! one does not end.
//!
//! Nobody ever loses an address by this: after the cut, somebody else may have been given the address, or its holder another
//! one.
//!
//! A renewal is such a claim, too. The holder has the address here until the lease from before ends, and was told a later
//! end. So the lease is extended, or, if it has ended here, the address is held again as if it had been granted. Up to where
//! the two lines part they share one time, and this line has since counted no more time than has really passed. So a lease
//! whose end has come by this line's time is over for its holder as well. Only if the other owner could commit nothing for a
//! while after the lines had parted was the holder told a slightly later end than is counted here.
//!
//! Review notes: is the same claim, brought again, recognised? Yes, as long as its holder has the address, or it still cools
//! after being let go. After that it cannot be told from a new claim, so `serve::late` never repeats a claim that was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Network;
use super::draft::Draft;
use super::holdings::covered;
use crate::core::address::{Address, Cidr, Range};
use crate::core::command::{Command, Configure, Context, Heal};
use crate::core::outcome::{Contested, Decision, Healing, Outcome, Present};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{
    Conflict, Entry, Event, EventKind, Key, Lease, NetworkConfig, NetworkKind, Reservation, State, Step, SubnetConfig,
};
use crate::core::types::{SlotKey, Version};
use crate::limits::{CONFLICTS_MAX, LEASE_GRACE_SECONDS};

/// What becomes of a late claim.
enum Fate<'a> {
    /// The holder has it, had it and let it go, or had it for as long as they were told.
    Stands,
    /// The holder has it, but was told a later end.
    Longer(&'a Arc<Reservation>),
    /// Nobody has it; these cooling entries make way.
    Free(Vec<(Address, &'a Entry)>),
    /// It cannot be given back; with the reservation that stands in the way, if there is one.
    Contested(Option<(Address, &'a Arc<Reservation>)>),
}

impl Network {
    /// Gives back what can be given back, and notes the rest as conflicts.
    pub(super) fn heal(&self, ask: &Heal, context: Context) -> Decision {
        let mut draft = Draft::new(self, context);
        let mut conflicts = self.config.conflicts.clone();
        let mut done = Healing::default();
        let (mut taken, mut slots): (Vec<Range>, BTreeSet<&SlotKey>) = (Vec::new(), BTreeSet::new());
        let mut lengthened: BTreeMap<Address, Arc<Reservation>> = BTreeMap::new();
        for (address, late) in claims_of(ask) {
            let range = covered(address, late.prefix_length);
            let is_current = late.obsolete.is_none();
            let has_slot = is_current && slots.contains(&late.holder);
            let asked_before = has_slot || taken.iter().any(|other| other.overlaps(range));
            let fate = if asked_before { Fate::Contested(None) } else { self.fate_of(address, late, ask, context) };
            if !matches!(fate, Fate::Contested(_)) {
                // Nothing about the claim is left to decide.
                conflicts.retain(|known| !known.is_of(address, late));
            }
            match fate {
                Fate::Stands => done.standing += 1,
                Fate::Longer(held) => {
                    let held = lengthened.get(&address).unwrap_or(held);
                    if let Some(lease) = self.longer(held, late, context) {
                        let longer = Reservation { lease, ..Reservation::clone(held) };
                        let longer = draft.change(address, held, longer, EventKind::Renewed);
                        lengthened.insert(address, longer);
                    }
                    done.healed += 1;
                }
                Fate::Free(cooling) => {
                    for (other, entry) in cooling.iter().filter(|(other, _)| *other != address) {
                        draft.put(*other, Some(*entry), None, None);
                    }
                    let replaced = cooling.iter().find(|(other, _)| *other == address).map(|(_, entry)| *entry);
                    let event = Event { kind: EventKind::Healed, before: None };
                    draft.put(address, replaced, Some(Entry::Held(Arc::new(as_it_was(late, context)))), Some(event));
                    taken.push(range);
                    slots.extend(is_current.then_some(&late.holder));
                    done.healed += 1;
                }
                Fate::Contested(_) if conflicts.iter().any(|known| known.is_of(address, late)) => done.conflicts += 1,
                Fate::Contested(_) if conflicts.len() == CONFLICTS_MAX => done.left += 1,
                Fate::Contested(present) => {
                    conflicts.push(Conflict::of(address, late, context.wall));
                    done.conflicts += 1;
                    let at = present.map(|(at, _)| at).filter(|at| *at != address);
                    for place in at.into_iter().chain([address]) {
                        let told = self.told_at(place, late, &draft.steps);
                        draft.steps.push(told);
                    }
                }
            }
        }
        if conflicts != self.config.conflicts {
            // A known conflict whose claim was brought again while its holder has the address: there is nothing left to decide.
            let is_settled = self.config.conflicts.iter().any(|known| !conflicts.contains(known));
            let event = is_settled.then_some(Event { kind: EventKind::NetworkChanged, before: None });
            self.leave_conflicts(&mut draft.steps, conflicts, event);
        }
        draft.finish(Outcome::Healed(done))
    }

    fn fate_of(&self, address: Address, late: &Reservation, ask: &Heal, context: Context) -> Fate<'_> {
        let range = covered(address, late.prefix_length);
        if let Some(Entry::Held(held)) = self.holdings.at(address)
            && held.holder == late.holder
            && is_as_long(held, late)
        {
            return if self.longer(held, late, context).is_some() { Fate::Longer(held) } else { Fate::Stands };
        }
        let renewal = ask.renewed.iter().find(|it| (it.address, it.generation) == (address, late.generation));
        let is_over = late.lease.is_some_and(|lease| self.holdings.end_of(lease) <= context.now);
        if renewal.is_some() && is_over {
            return Fate::Stands;
        }
        // Is the entry left from this very holding, which was known here and let go? A renewed lease may instead have ended at
        // its former end. If nothing cools any more, that is assumed: then the address is held for too long, but never by two.
        let was_let_go = |entry: &Entry| match entry {
            Entry::Held(_) => false,
            Entry::Released(released) => renewal.is_none_or(|renewal| released.released_at < renewal.ended),
            Entry::Declined(_) => true,
        };
        let mut cooling = Vec::new();
        for (at, entry) in self.holdings.overlapping(range) {
            match entry {
                Entry::Held(held) => return Fate::Contested(Some((at, held))),
                entry if at == address && entry.generation() == late.generation && was_let_go(entry) => {
                    return Fate::Stands;
                }
                Entry::Released(_)
                    if range.contains(at) && covered(at, entry.prefix_length()).last() <= range.last() =>
                {
                    cooling.push((at, entry));
                }
                Entry::Released(_) | Entry::Declined(_) => return Fate::Contested(None),
            }
        }
        // Its slot had left an obsolete one for another address, which it has, or will claim.
        if let Some((at, held)) = self.holdings.slot(&late.holder).filter(|_| late.obsolete.is_none()) {
            return Fate::Contested(Some((at, held)));
        }
        if let Some(mac) = late.details.as_ref().and_then(|details| details.mac) {
            if let Some((at, held)) = self.holdings.mac(mac) {
                return Fate::Contested(Some((at, held)));
            }
            if context.mac_elsewhere.is_some_and(|(used, _)| used == mac) {
                return Fate::Contested(None);
            }
        }
        if ask.elsewhere {
            return Fate::Contested(None);
        }
        // A dynamic network has no space of its own; the caller has made sure that no other network has the address.
        let has_place = self.config.kind == NetworkKind::Dynamic
            || self.layout.subnet_of(address).is_some_and(|index| {
                let inside = self.subnets[index].cidr.range();
                inside.contains(range.last()) && !self.layout.subnets[index].has_unusable(range)
            });
        let is_block = Cidr::new(address, late.prefix_length).is_some();
        if has_place && is_block && !self.config.closed { Fate::Free(cooling) } else { Fate::Contested(None) }
    }

    /// The lease of which the holder was told, if it is longer than the present one. An inner none means that it is permanent.
    fn longer(&self, held: &Reservation, late: &Reservation, context: Context) -> Option<Option<Lease>> {
        let has = held.lease?;
        let is_longer = late.lease.is_none_or(|told| told.ends > self.holdings.end_of(has));
        is_longer.then(|| as_it_was(late, context).lease)
    }

    /// The step by which the history records a late claim at an address, after these steps: the claim, and what lies at the
    /// address, if anything, which stays as it is. So both can be found there.
    fn told_at(&self, address: Address, late: &Arc<Reservation>, steps: &[Step]) -> Step {
        let key = Key::Address(address);
        let state = match steps.iter().rev().find(|step| step.key == key) {
            Some(step) => step.state.clone(),
            None => self.holdings.at(address).cloned().map(State::Entry),
        };
        let event = Event { kind: EventKind::Conflict, before: Some(Arc::clone(late)) };
        Step { key, expect: state.as_ref().map(State::mark), state, event: Some(event) }
    }

    /// Leaves these conflicts to be decided. A deleted network that was kept only for those from before goes with the last; if
    /// something still cools in it, it goes with that, at once (`next_due`).
    fn leave_conflicts(&self, steps: &mut Vec<Step>, conflicts: Vec<Conflict>, event: Option<Event>) {
        if self.config.closed && conflicts.is_empty() && self.holdings.len() == 0 {
            return steps.extend(self.end());
        }
        let version = self.config.version;
        let config = NetworkConfig { conflicts, version: Version(version.0 + 1), ..(*self.config).clone() };
        let state = Some(State::Config(Arc::new(config)));
        steps.push(Step { key: Key::Config, expect: Some(version.0), state, event });
    }

    /// Does a decision let space of the network go, so that another one may grant it? As long as late claims are undecided that
    /// is not carried out, because the address of a claim may lie there.
    pub fn lets_space_go(&self, command: &Command, decision: &Decision) -> bool {
        let shrinks = |step: &Step| {
            let Key::Subnet(id) = step.key else { return false };
            let before = self.subnets.iter().find(|subnet| subnet.id == id);
            let keeps = |before: &SubnetConfig| match &step.state {
                Some(State::Subnet(after)) => after.cidr.range().covers(before.cidr.range()),
                _ => false,
            };
            before.is_some_and(|before| !keeps(before))
        };
        match command {
            // It is only judged.
            Command::MoveOut { bytes_max: None, .. } => false,
            // Even if it still holds something: whoever deletes it is told of the claims first.
            Command::Configure { change, .. } if matches!(**change, Configure::Delete { .. }) => true,
            Command::Configure { .. } | Command::MoveOut { .. } => decision.steps.iter().any(shrinks),
            _ => false,
        }
    }

    /// `cluster.conflicts`: each late claim, with who has the address, what its holder has instead, or who has its MAC here.
    /// Whether another network has the MAC is not known here.
    pub(super) fn conflicts(&self) -> Decision {
        super::read::read(Outcome::Conflicts(self.contested(&self.config.conflicts)))
    }

    fn contested(&self, conflicts: &[Conflict]) -> Vec<Contested> {
        let contested = |conflict: &Conflict| Contested {
            network: self.config.name.clone(),
            network_id: self.config.id,
            conflict: conflict.clone(),
            present: self.present(conflict),
        };
        conflicts.iter().map(contested).collect()
    }

    fn present(&self, conflict: &Conflict) -> Option<Present> {
        let (holdings, range) = (&self.holdings, covered(conflict.address, conflict.prefix_length));
        let (address, held) = holdings
            .overlapping(range)
            .find_map(|(at, entry)| Some((at, entry.held()?)))
            .or_else(|| holdings.slot(&conflict.holder))
            .or_else(|| holdings.mac(conflict.mac?))?;
        let (network, network_id) = (self.config.name.clone(), self.config.id);
        Some(Present { network, network_id, address, reservation: Arc::clone(held) })
    }

    /// `cluster.accept`: the present holdings stay, and the late claims are given up.
    pub(super) fn accept(&self, address: Option<Address>) -> Result<Decision, Refusal> {
        let is_meant = |conflict: &Conflict| address.is_none_or(|address| conflict.address == address);
        let (accepted, left): (Vec<Conflict>, Vec<Conflict>) =
            self.config.conflicts.iter().cloned().partition(|conflict| is_meant(conflict));
        if let Some(address) = address.filter(|_| accepted.is_empty()) {
            let what = format!("at {address} in network `{}`", self.config.name);
            return Err(Refusal::NotFound { missing: Missing::Conflict, what, hint: None });
        }
        // The history records each claim once more, with who decided and why, because from now on it exists nowhere else.
        let mut steps = Vec::new();
        for conflict in &accepted {
            steps.push(self.told_at(conflict.address, &Arc::new(conflict.late()), &[]));
        }
        if !accepted.is_empty() {
            let event = Event { kind: EventKind::NetworkChanged, before: None };
            self.leave_conflicts(&mut steps, left, Some(event));
        }
        let outcome = Outcome::Accepted(self.contested(&accepted));
        Ok(Decision { steps, outcome })
    }
}

fn claims_of(ask: &Heal) -> impl Iterator<Item = (Address, &Arc<Reservation>)> {
    ask.claims.iter().filter_map(|(address, entry)| match entry {
        Entry::Held(late) => Some((*address, late)),
        Entry::Released(_) | Entry::Declined(_) => None,
    })
}

fn is_as_long(held: &Reservation, late: &Reservation) -> bool {
    held.prefix_length == late.prefix_length
}

/// The reservation as its holder knows it; an obsolete one stays so, until any commit of its deployment. What else a
/// deployment intended with it is not known here. Its lease ends late rather than early.
fn as_it_was(late: &Reservation, context: Context) -> Reservation {
    let lease = late.lease.map(|mut lease| {
        lease.ends = lease.ends.max(context.now.after_seconds(lease.ttl_seconds.get().min(LEASE_GRACE_SECONDS)));
        lease
    });
    Reservation { lease, granted_by: None, planned: None, ..late.clone() }
}
