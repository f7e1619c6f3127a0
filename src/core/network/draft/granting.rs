//! How a draft grants: it clears what cools in the way, draws a generation, and puts the new holding there; or it gives an
//! existing holding to another slot.
//!
//! Before: `grant`, which got the range from `pick`; `lifecycle`, `deploy` and `settle` for holdings that change hands.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::sum::Sum;
use super::{Draft, cut_to};
use crate::core::address::{Address, Cidr, Range};
use crate::core::command::GrantOptions;
use crate::core::network::holdings::covered;
use crate::core::outcome::View;
use crate::core::refusal::Refusal;
use crate::core::state::{
    Details, Entry, Event, EventKind, Key, Planned, Promise, Reservation, ReservationKind, State,
};
use crate::core::types::{Generation, Mac, SlotKey};
use crate::limits;

/// Most entries that one grant may clear out of its way.
const DISPLACED_MAX: usize = limits::BATCH_CHANGES_MAX / 2;

/// With more steps than this, their result is kept by address instead of being searched for.
const STEPS_SEARCHED_MAX: usize = 32;

impl Draft<'_> {
    /// Grants `range` to a slot: clears what cools there and draws a generation.
    ///
    /// # Errors
    /// `already_in_use` if the MAC is taken, or if too much cools in the way.
    pub(in crate::core::network) fn grant(
        &mut self,
        range: Range,
        holder: &SlotKey,
        kind: ReservationKind,
        options: &GrantOptions,
    ) -> Result<View, Refusal> {
        let mac = self.mac_for(options.mac, None)?;
        let Some(replaced) = self.displace(range) else {
            let network = self.network.config.name.clone();
            return Err(Refusal::Cools { network, block: range, pieces_max: DISPLACED_MAX });
        };
        Ok(self.place(range, replaced.as_ref(), holder, kind, (options, mac)))
    }

    /// Grants `range`, in which there is no entry, to a slot.
    ///
    /// # Errors
    /// `already_in_use` if the MAC is taken.
    pub(in crate::core::network) fn grant_free(
        &mut self,
        range: Range,
        holder: &SlotKey,
        kind: ReservationKind,
        options: &GrantOptions,
    ) -> Result<View, Refusal> {
        debug_assert!(self.network.holdings.overlapping(range).next().is_none(), "something lies in {range}");
        let mac = self.mac_for(options.mac, None)?;
        Ok(self.place(range, None, holder, kind, (options, mac)))
    }

    /// Puts a new holding there, in place of `replaced`.
    fn place(
        &mut self,
        range: Range,
        replaced: Option<&Entry>,
        holder: &SlotKey,
        kind: ReservationKind,
        (options, mac): (&GrantOptions, Option<Mac>),
    ) -> View {
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        let width = range.family().width();
        let is_single = range.first() == range.last();
        let length = if is_single { width } else { range.as_cidr().map_or(width, Cidr::length) };
        let reservation = Arc::new(Reservation {
            prefix_length: length,
            holder: holder.clone(),
            generation,
            kind,
            created_at: self.context.wall,
            lease: self.carried_lease.take().or_else(|| options.ttl_seconds.map(|ttl| self.lease(ttl))),
            transient: options.transient,
            release_with_claimant: options.release_with_claimant,
            claimant: options.claimant.clone(),
            obsolete: None,
            granted_by: self.granted_by,
            planned: None,
            details: details_of(options, mac),
        });
        self.taken.add(range);
        self.fills(holder);
        if let Some(mac) = mac {
            self.ledger().macs.push(mac);
        }
        let event = Event { kind: EventKind::Granted, before: None };
        self.put(range.first(), replaced, Some(Entry::Held(Arc::clone(&reservation))), Some(event));
        self.view(range.first(), reservation)
    }

    /// Clears what cools or is declined in the way of `range`, and returns the entry that the grant itself will replace.
    /// Parts beside `range` stay as they are. None: there is too much to clear in one batch.
    fn displace(&mut self, range: Range) -> Option<Option<Entry>> {
        if range.size() == 1 && self.network.holdings.covering(range.first()).is_none() {
            // Most grants: one free address. What this request released or cleared had an entry in the network, so it does
            // not get here.
            return Some(None);
        }
        let standing = self.standing(range);
        if standing.len() > DISPLACED_MAX {
            return None;
        }
        let mut replaced = None;
        for (address, entry) in standing {
            let mut rest = covered(address, entry.prefix_length()).without(range).flat_map(Range::cidrs).peekable();
            if address == range.first() && rest.peek().is_none() {
                replaced = Some(entry);
                continue;
            }
            cut_to(address, &entry, rest).for_each(|step| self.push(step));
        }
        Some(replaced)
    }

    /// The entries that cover addresses of `range` after the steps so far.
    fn standing(&mut self, range: Range) -> BTreeMap<Address, Entry> {
        let has_sum = self.ledger.as_ref().is_some_and(|ledger| ledger.sum.is_some());
        if !has_sum && self.steps.len() > STEPS_SEARCHED_MAX {
            let mut sum = Box::new(Sum::default());
            self.steps.iter().for_each(|step| sum.add(step));
            self.ledger().sum = Some(sum);
        }
        // What the steps took away is no longer there, so it does not count towards the bound: otherwise the cut could leave
        // out an entry that stands, and the count not show it.
        let there = self.network.holdings.overlapping(range).map(|(address, entry)| (address, entry.clone()));
        if let Some(sum) = self.ledger.as_ref().and_then(|ledger| ledger.sum.as_ref()) {
            let there = there.filter(|(address, _)| !sum.knows(*address)).take(DISPLACED_MAX + 1);
            let put = sum.overlapping(range).map(|(address, entry)| (*address, entry.clone()));
            return there.chain(put).collect();
        }
        let by_steps = |address: Address| self.steps.iter().any(|step| step.key == Key::Address(address));
        let there = there.filter(|(address, _)| !by_steps(*address));
        let mut standing: BTreeMap<Address, Entry> = there.take(DISPLACED_MAX + 1).collect();
        for step in &self.steps {
            let Key::Address(address) = step.key else { continue };
            match &step.state {
                Some(State::Entry(entry)) if covered(address, entry.prefix_length()).overlaps(range) => {
                    standing.insert(address, entry.clone());
                }
                Some(_) | None => drop(standing.remove(&address)),
            }
        }
        standing
    }

    /// Gives a holding to another slot, as a new grant of the same address. Everything in it stays, except for the
    /// `owner_uid` if the owner changes: that becomes the one in what the new owner gives in return, if it is known.
    pub(in crate::core::network) fn hand_over(
        &mut self,
        address: Address,
        from: &Arc<Reservation>,
        to: &SlotKey,
        given_for_it: Option<&Reservation>,
    ) -> View {
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        let same_owner = from.holder.owner == to.owner && from.holder.scope == to.scope;
        let whose = if same_owner { Some(&**from) } else { given_for_it };
        let owner_uid = whose.and_then(|held| held.details.as_ref()?.owner_uid.clone());
        let details = Details { owner_uid, ..from.details.as_deref().cloned().unwrap_or_default() };
        let reservation = Arc::new(Reservation {
            holder: to.clone(),
            generation,
            created_at: self.context.wall,
            obsolete: None,
            granted_by: None,
            planned: None,
            details: (details != Details::default()).then(|| Box::new(details)),
            ..Reservation::clone(from)
        });
        let event = Event { kind: EventKind::Transferred, before: Some(Arc::clone(from)) };
        let before = Entry::Held(Arc::clone(from));
        self.put(address, Some(&before), Some(Entry::Held(Arc::clone(&reservation))), Some(event));
        self.view(address, reservation)
    }

    /// Gives a promised address to another slot of the deployment, as a new grant. Nothing that the old holder added to the
    /// reservation goes along.
    pub(in crate::core::network) fn give(
        &mut self,
        address: Address,
        from: &Arc<Reservation>,
        to: SlotKey,
        granted_by: Option<NonZeroU64>,
        back: Option<Promise>,
    ) {
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        self.fills(&to);
        let reservation = Arc::new(Reservation {
            prefix_length: from.prefix_length,
            holder: to,
            generation,
            kind: ReservationKind::Static,
            created_at: self.context.wall,
            lease: None,
            transient: false,
            release_with_claimant: false,
            claimant: None,
            obsolete: None,
            granted_by,
            planned: back.map(|back| Box::new(Planned { back: Some(back), ..Planned::default() })),
            details: None,
        });
        let event = Event { kind: EventKind::Transferred, before: Some(Arc::clone(from)) };
        self.put(address, Some(&Entry::Held(Arc::clone(from))), Some(Entry::Held(reservation)), Some(event));
    }
}

/// The details that a grant asks for, if any.
fn details_of(options: &GrantOptions, mac: Option<Mac>) -> Option<Box<Details>> {
    let GrantOptions { owner_uid, labels, note, hostname, .. } = options;
    if owner_uid.is_none() && labels.is_none() && note.is_none() && hostname.is_none() && mac.is_none() {
        return None;
    }
    let details = Details {
        owner_uid: owner_uid.clone(),
        labels: labels.clone().unwrap_or_default(),
        note: note.clone().unwrap_or_default(),
        hostname: hostname.clone().unwrap_or_default(),
        mac,
    };
    (details != Details::default()).then(|| Box::new(details))
}
