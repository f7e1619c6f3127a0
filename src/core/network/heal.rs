//! What was acknowledged on a line that a failover cut off comes back as claims on a condition: what is free
//! is held again, as it was, under the generation that its holder knows. What is not is a *conflict*: it is kept with the
//! network's configuration until an operator has decided, and nothing new is granted here before; or until the claim comes once more,
//! and its holder has the address by then.
//!
//! Nobody is ever put out: between the cut and now, somebody else may have been given the address, or its holder another one.
//!
//! A renewal is such a claim, too. Its holder has the address here until his lease from before ends, and was told that it is his for
//! longer: so that is lengthened, or, where it ended here, held again as if it had been granted. Both lines have one time up to
//! where they part, and this one counts no more of what came since than has passed: a lease whose end has come by it is over for its
//! holder, too. Only where the other owner could commit nothing for a while, and that after they had parted, was he told a little
//! more than is counted here.
//!
//! Review notes: is the same claim, once more, the same? As long as its holder has it, or what he let go cools; after that it
//! is not told from one that is new, so `serve::late` never repeats what was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Network;
use super::draft::Draft;
use super::holdings::covered;
use crate::core::address::{Address, Cidr, Range};
use crate::core::command::{Context, Heal};
use crate::core::outcome::{Contested, Decision, Healing, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{
    Conflict, Entry, Event, EventKind, Key, Lease, NetworkConfig, NetworkKind, Reservation, State, Step,
};
use crate::core::types::{SlotKey, Version};
use crate::limits::{CONFLICTS_MAX, LEASE_GRACE_SECONDS};

/// What becomes of a late claim.
enum Fate<'a> {
    /// Its holder has it, had it and let it go, or had it for as long as he was told.
    Stands,
    /// Its holder has it, and was told that it is his for longer.
    Longer(&'a Arc<Reservation>),
    /// Nobody has it: these cooling entries make way.
    Free(Vec<(Address, &'a Entry)>),
    /// It cannot be given back; who stands in the way, if that is anybody.
    Contested(Option<(Address, &'a Arc<Reservation>)>),
}

impl Network {
    /// Gives back what can be, and notes what cannot.
    pub(super) fn heal(&self, ask: &Heal, context: Context) -> Decision {
        let mut draft = Draft::new(self, context);
        let mut conflicts = self.config.conflicts.clone();
        let mut done = Healing::default();
        let (mut taken, mut slots): (Vec<Range>, BTreeSet<&SlotKey>) = (Vec::new(), BTreeSet::new());
        let mut lengthened: BTreeMap<Address, Arc<Reservation>> = BTreeMap::new();
        for (address, late) in claims_of(ask) {
            let range = covered(address, late.prefix_length);
            let asked_before = taken.iter().any(|other| other.overlaps(range)) || slots.contains(&late.holder);
            let fate = if asked_before { Fate::Contested(None) } else { self.fate_of(address, late, ask, context) };
            if !matches!(fate, Fate::Contested(_)) {
                // Nothing is left of it to be decided.
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
                    slots.insert(&late.holder);
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
            // One of before whose claim came once more, and its holder has the address by now: there is nothing to decide.
            let is_settled = self.config.conflicts.iter().any(|known| !conflicts.contains(known));
            let event = is_settled.then_some(Event { kind: EventKind::NetworkChanged, before: None });
            draft.steps.push(self.with_conflicts(conflicts, event));
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
        // Of this very holding: it was known here, and was let go. What was renewed may have come to its end from before instead, and
        // where nothing of it cools any more it is taken to have: then it is held too long, and not by two.
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
        if let Some((at, held)) = self.holdings.slot(&late.holder) {
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
        // A dynamic network has no space of its own: who asked has seen to it that no other network has the address.
        let has_place = self.config.kind == NetworkKind::Dynamic
            || self.layout.subnet_of(address).is_some_and(|index| {
                let inside = self.subnets[index].cidr.range();
                inside.contains(range.last()) && !self.layout.subnets[index].has_unusable(range)
            });
        let is_block = Cidr::new(address, late.prefix_length).is_some();
        if has_place && is_block && !self.config.closed { Fate::Free(cooling) } else { Fate::Contested(None) }
    }

    /// The lease that its holder was told of, where that is longer than the one that he has; none in it: for good.
    fn longer(&self, held: &Reservation, late: &Reservation, context: Context) -> Option<Option<Lease>> {
        let has = held.lease?;
        let is_longer = late.lease.is_none_or(|told| told.ends > self.holdings.end_of(has));
        is_longer.then(|| as_it_was(late, context).lease)
    }

    /// What the history tells of a late claim at an address, behind these steps: the claim, and what lies there, which stays as
    /// it is, also where that is nothing. Whoever looks for either finds it.
    fn told_at(&self, address: Address, late: &Arc<Reservation>, steps: &[Step]) -> Step {
        let key = Key::Address(address);
        let state = match steps.iter().rev().find(|step| step.key == key) {
            Some(step) => step.state.clone(),
            None => self.holdings.at(address).cloned().map(State::Entry),
        };
        let event = Event { kind: EventKind::Conflict, before: Some(Arc::clone(late)) };
        Step { key, expect: state.as_ref().map(State::mark), state, event: Some(event) }
    }

    fn with_conflicts(&self, conflicts: Vec<Conflict>, event: Option<Event>) -> Step {
        let version = self.config.version;
        let config = NetworkConfig { conflicts, version: Version(version.0 + 1), ..(*self.config).clone() };
        Step { key: Key::Config, expect: Some(version.0), state: Some(State::Config(Arc::new(config))), event }
    }

    /// `cluster.conflicts`: each late claim, and who has the address, or something else instead.
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

    fn present(&self, conflict: &Conflict) -> Option<(Address, Arc<Reservation>)> {
        let held =
            self.holdings.overlapping(covered(conflict.address, conflict.prefix_length)).find_map(|(at, entry)| {
                match entry {
                    Entry::Held(held) => Some((at, Arc::clone(held))),
                    Entry::Released(_) | Entry::Declined(_) => None,
                }
            });
        held.or_else(|| self.holdings.slot(&conflict.holder).map(|(at, held)| (at, Arc::clone(held))))
    }

    /// `cluster.accept`: what is there stays; the late claims are given up.
    pub(super) fn accept(&self, address: Option<Address>) -> Result<Decision, Refusal> {
        let is_meant = |conflict: &Conflict| address.is_none_or(|address| conflict.address == address);
        let (accepted, left): (Vec<Conflict>, Vec<Conflict>) =
            self.config.conflicts.iter().cloned().partition(|conflict| is_meant(conflict));
        if let Some(address) = address.filter(|_| accepted.is_empty()) {
            let what = format!("at {address} in network `{}`", self.config.name);
            return Err(Refusal::NotFound { missing: Missing::Conflict, what, hint: None });
        }
        // Each is told of once more, with who decided and why: what is given up is nowhere else from here on.
        let mut steps = Vec::new();
        for Conflict { address, prefix_length, holder, generation, granted_at, .. } in &accepted {
            let late = Reservation::plain(holder.clone(), *generation, *prefix_length, *granted_at);
            steps.push(self.told_at(*address, &Arc::new(late), &[]));
        }
        if !accepted.is_empty() {
            let event = Event { kind: EventKind::NetworkChanged, before: None };
            steps.push(self.with_conflicts(left, Some(event)));
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

/// As its holder knows it. What a deployment had in mind with it is not known here, and its lease ends late rather than early.
fn as_it_was(late: &Reservation, context: Context) -> Reservation {
    let lease = late.lease.map(|mut lease| {
        lease.ends = lease.ends.max(context.now.after_seconds(lease.ttl_seconds.get().min(LEASE_GRACE_SECONDS)));
        lease
    });
    Reservation { lease, obsolete: None, granted_by: None, planned: None, ..late.clone() }
}
