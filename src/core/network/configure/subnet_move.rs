//! `subnet.move`: a subnet leaves one network and arrives in another, with everything that lies in it.
//!
//! These are two decisions that one transaction makes durable together. Everything keeps its identity: the subnet its id,
//! and reservations their generations, so no holder notices. The two networks may be in shards whose times are far apart:
//! the times in entries are converted, so that no lease and no cooldown ends early.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ConfigDraft, held_by, leaving_step, pool};
use crate::core::address::{Address, Range};
use crate::core::command::{Context, Moved, SubnetRef};
use crate::core::network::draft::{cut_to, part_comes};
use crate::core::network::holdings::{covered, taker_of};
use crate::core::network::{Network, Standing};
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, Event, EventKind, Key, Lease, State, Step, SubnetConfig};
use crate::core::types::{ShardTime, SlotKey, Version};

impl Network {
    /// Takes a subnet out of its network, or only judges whether it may go.
    ///
    /// Cost: O(what lies in it), but none of that if the move is refused or only judged. A subnet with too much in it is
    /// counted, not copied.
    ///
    /// # Errors
    /// `not_found`, `in_use` if the network is closed or too much lies in the subnet, `conflict`.
    pub(in crate::core::network) fn decide_move_out(
        &self,
        wanted: &SubnetRef,
        if_version: Option<Version>,
        bytes_max: Option<usize>,
        now: ShardTime,
    ) -> Result<Decision, Refusal> {
        let mut draft = ConfigDraft::of_open(self, if_version);
        let subnet = match self.subnet(wanted) {
            Ok(subnet) => Arc::clone(subnet),
            Err(refusal) => return draft.refused(refusal),
        };
        let next_generation = self.next_generation();
        draft.subnets.retain(|other| other.id != subnet.id);
        // A refusal noted so far is answered whatever the subnet contains, so nobody has to wait for its contents to be
        // collected.
        draft.verdict.standing()?;
        let mut entries = Entries::new();
        if let Some(bytes_max) = bytes_max {
            self.little_enough_to_move(&subnet, bytes_max)?;
            (draft.leaving, entries) = cut_at(subnet.cidr.range(), self.entries_in(subnet.cidr.range()));
        }
        let done = draft.finish(EventKind::NetworkChanged)?;
        // A holder who was given extra time here to renew a lease keeps that time.
        for (_, entry) in &mut entries {
            let Entry::Held(held) = entry else { continue };
            let Some(lease) = held.lease else { continue };
            let ends = self.holdings.end_of(lease);
            if ends != lease.ends {
                Arc::make_mut(held).lease = Some(Lease { ends, ..lease });
            }
        }
        done.answer(Outcome::MovedOut(Box::new(Moved { subnet, entries, now, next_generation })))
    }

    /// Takes in what [`Network::decide_move_out`] of another network gave up. The subnet is drawn from after the existing
    /// ones. Limits per owner and scope apply to what arrives as well.
    ///
    /// # Errors
    /// `invalid_argument` for a second `dhcp` or a bound, `wrong_kind` if the network is dynamic, `overlap` within it,
    /// `in_use` if it is closed, `already_in_use` for a MAC, `already_exists` for a name or a slot that is also taken here,
    /// `quota_exceeded` for a limit. The catalog checks other networks of the realm.
    pub(in crate::core::network) fn decide_move_in(
        &self,
        moved: &Moved,
        context: Context,
    ) -> Result<Decision, Refusal> {
        let mut draft = ConfigDraft::of_open(self, None);
        draft.check_beside(&moved.subnet, None);
        draft.check_takes_subnets();
        let refusals = [slot_taken(self, moved), mac_taken(self, moved, context), over_limits(self, moved).err()];
        for refusal in refusals.into_iter().flatten() {
            draft.refuse(refusal);
        }
        let mut subnet = SubnetConfig::clone(&moved.subnet);
        subnet.position = self.subnets().iter().map(|other| other.position + 1).max().unwrap_or(0);
        pool::carry_over(&mut subnet, moved.next_generation.max(self.next_generation()));
        let (id, range) = (subnet.id, subnet.cidr.range());
        draft.put(subnet);
        draft.check_bounds("to");
        let mut done = draft.finish(EventKind::NetworkChanged)?;
        let (mut left, before, beside) = self.make_way(range, &moved.entries);
        let arrives = |(address, entry): &(Address, Entry)| Step {
            key: Key::Address(*address),
            expect: left.remove(address).map(|old| old.generation().0),
            state: Some(State::Entry(entry.clone().in_time_of(moved.now, context.now))),
            event: matches!(entry, Entry::Held(_)).then_some(Event { kind: EventKind::Transferred, before: None }),
        };
        let arriving: Vec<Step> = moved.entries.iter().map(arrives).collect();
        done.steps.extend(before.into_iter().chain(arriving).chain(beside));
        let subnet = done.subnet(id);
        done.answer(Outcome::Subnet { subnet, created: true })
    }
}

/// Entries by their first address.
type Entries = Vec<(Address, Entry)>;

/// What happens to the entries over a range that leaves: the steps that remove them, and the entries that go along. A cooling or
/// declined entry may reach beyond the range, from a subnet that was once larger: it is cut there, and the rest stays.
fn cut_at(range: Range, entries: Entries) -> (Vec<Step>, Entries) {
    let (mut steps, mut inside) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
    for (address, entry) in entries {
        let whole = covered(address, entry.prefix_length());
        let within = whole.intersection(range).filter(|_| !range.covers(whole));
        let (Some(within), Entry::Released(_) | Entry::Declined(_)) = (within, &entry) else {
            steps.push(leaving_step(address, &entry));
            inside.push((address, entry));
            continue;
        };
        steps.extend(cut_to(address, &entry, whole.without(range).flat_map(Range::cidrs)));
        inside.extend(within.cidrs().filter_map(|part| Some((part.base(), entry.part(part.length())?))));
    }
    (steps, inside)
}

/// The least number of bytes of a step by which something leaves or arrives, without the texts in its record.
pub(in crate::core::network) const STEP_BYTES_LEAST: usize = 16;

/// The least number of bytes that moving an entry takes. The record of a held one is written twice: where it leaves, as the
/// former state, and where it arrives. What cools or is declined leaves without a record.
fn moved_bytes_least(entry: &Entry) -> usize {
    let texts = |holder: &SlotKey| holder.scope.as_str().len() + holder.owner.as_str().len();
    match entry {
        Entry::Held(held) => 2 * (STEP_BYTES_LEAST + texts(&held.holder)),
        Entry::Released(released) => STEP_BYTES_LEAST + texts(&released.last),
        Entry::Declined(declined) => STEP_BYTES_LEAST + texts(&declined.by),
    }
}

impl Network {
    /// Refuses to move more bytes than may move at once, by a lower estimate.
    fn little_enough_to_move(&self, subnet: &SubnetConfig, bytes_max: usize) -> Result<(), Refusal> {
        let over = || self.holdings.overlapping(subnet.cidr.range());
        let bytes = over().map(|(_, entry)| moved_bytes_least(entry)).sum();
        if bytes <= bytes_max {
            return Ok(());
        }
        let Standing { count, first } = self.standing_in(subnet.cidr.range());
        Err(Refusal::TooMuchToMove { subnet: subnet.cidr, count, first, bytes, bytes_max })
    }

    /// Makes room in a range where addresses of a removed subnet may still be cooling; what arrives replaces exactly the
    /// addresses that it covers. Returns the entries at the very addresses of arriving ones, and the steps before and after
    /// the arrivals.
    fn make_way(&self, range: Range, arriving: &Entries) -> (BTreeMap<Address, Entry>, Vec<Step>, Vec<Step>) {
        let (mut left, mut before, mut beside) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (address, entry) in self.entries_in(range) {
            let whole = covered(address, entry.prefix_length());
            // Both sequences are in address order and disjoint in themselves.
            let of = |(address, entry): &(Address, Entry)| covered(*address, entry.prefix_length());
            let from = arriving.partition_point(|arrives| of(arrives).last() < whole.first());
            let over = arriving[from..].iter().map(of).take_while(|arrives| arrives.first() <= whole.last());
            let (mut rest, mut behind, mut meets, mut is_there) = (Vec::new(), Some(whole), false, false);
            for arrives in over {
                (meets, is_there) = (true, is_there || arrives.first() == address);
                let Some(piece) = behind.take() else { break };
                for part in piece.without(arrives) {
                    if part.first() < arrives.first() { rest.push(part) } else { behind = Some(part) }
                }
            }
            let parts = rest.into_iter().chain(behind).flat_map(Range::cidrs);
            if is_there {
                beside.extend(parts.map(|part| part_comes(&entry, part)));
                left.insert(address, entry);
            } else if meets {
                before.extend(cut_to(address, &entry, parts));
            }
        }
        (left, before, beside)
    }
}

/// The refusal for the first slot that both networks have: each has something current or promised for it, so its owner would
/// have two, now or after the commit of the plan that made the promise.
fn slot_taken(network: &Network, moved: &Moved) -> Option<Refusal> {
    let name = || network.config().name.clone();
    let has = |holder: &SlotKey| {
        let held = network.slot_holder(holder).map(|address| (address, false));
        held.or_else(|| network.promised_to(holder).map(|address| (address, true)))
    };
    let plan_waits = |holder: &SlotKey, here: (Address, bool), there: (Address, bool)| {
        let of = |(address, is_promised): (Address, bool)| {
            if is_promised { format!("is promised {address}") } else { format!("holds {address}") }
        };
        let problem = format!(
            "{holder} {} in network `{}`, and {} in the subnet: it would have both when the plan of deployment `{}` that \
             promised one is committed; commit or revert the plan, then move the subnet",
            of(here),
            name(),
            of(there),
            holder.scope
        );
        let promised = [here, there].into_iter().filter(|(_, is_promised)| *is_promised);
        let first: Vec<Address> = promised.map(|(address, _)| address).collect();
        Refusal::Guarded { problem, count: first.len() as u64, first }
    };
    moved.entries.iter().find_map(|(address, entry)| {
        let Entry::Held(held) = entry else { return None };
        let current = held.obsolete.is_none().then(|| (held.holder.clone(), false));
        let promised = taker_of(held).map(|taker| (taker, true));
        current.into_iter().chain(promised).find_map(|(holder, is_promised)| match (has(&holder)?, is_promised) {
            ((address, false), false) => {
                Some(Refusal::SlotTaken { network: name(), holder, address, differs: Vec::new() })
            }
            (here, _) => Some(plan_waits(&holder, here, (*address, is_promised))),
        })
    })
}

/// Would an owner or a scope exceed a limit with what arrives?
fn over_limits(network: &Network, moved: &Moved) -> Result<(), Refusal> {
    let limits = network.config.limits;
    if limits.per_owner.is_none() && limits.per_scope.is_none() {
        return Ok(());
    }
    let held = || moved.entries.iter().filter_map(|(_, entry)| entry.held());
    let current = || held().filter(|held| held.obsolete.is_none()).map(|held| &held.holder);
    // What is promised to a slot counts as long as that slot holds nothing. No slot has something in both networks.
    let filled: BTreeSet<&SlotKey> = current().collect();
    let waits = |slot: &SlotKey| !filled.contains(slot);
    let awaited: BTreeSet<SlotKey> = held().filter_map(|held| taker_of(held)).filter(waits).collect();
    let (mut owners, mut scopes) = (BTreeMap::new(), BTreeMap::new());
    for SlotKey { scope, owner, .. } in current().chain(&awaited) {
        *owners.entry((scope, owner)).or_insert(0) += 1;
        *scopes.entry(scope).or_insert(0) += 1;
    }
    for ((scope, owner), more) in owners {
        network.quota_of_owner(owner, network.holdings.owner_load(scope, owner) + more)?;
    }
    for (scope, more) in scopes {
        network.quota_of_scope(scope, network.holdings.scope_load(scope) + more)?;
    }
    Ok(())
}

/// What to do about a MAC that stands in the way.
const TAKE_AWAY: &str = "remove it there, or from what moves, with ip.update";

/// The refusal for the first MAC that is used in both networks.
fn mac_taken(network: &Network, moved: &Moved, context: Context) -> Option<Refusal> {
    moved.entries.iter().find_map(|(_, entry)| match entry {
        Entry::Held(reservation) => {
            let mac = reservation.details.as_ref()?.mac?;
            if let Some((_, address)) = context.mac_elsewhere.filter(|(used, _)| *used == mac) {
                let problem = format!(
                    "MAC {mac} is used by {address} in the realm of network `{}`; {TAKE_AWAY}",
                    network.config().name
                );
                return Some(Refusal::Taken {
                    problem,
                    network: None,
                    address: Some(address),
                    held_by: None,
                    used_in: None,
                });
            }
            let (address, carrier) = network.holdings.mac(mac)?;
            Some(Refusal::Taken {
                problem: format!("MAC {mac} is used by {address} of network `{}`; {TAKE_AWAY}", network.config().name),
                network: None,
                address: Some(address),
                held_by: Some(held_by(carrier)),
                used_in: None,
            })
        }
        Entry::Released(_) | Entry::Declined(_) => None,
    })
}
