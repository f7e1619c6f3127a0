//! The state of a network when a list of it began. A list takes several slices, and all of them show the network as the
//! first one did.
//!
//! ```text
//! decide(List) ─▶ first slice ─▶ goes_on ─▶ ListRest ──list_rest──▶ slice ──list_rest──▶ … last slice; ListRest dropped
//!                                               │
//! apply(step) at an address ──before──▶ Past, as long as somebody has a ListRest that began before
//! ```
//!
//! It keeps what lay at an address before its first change after a list began, once for all lists that began before the
//! change. While nothing is listed, nothing is noted, and earlier notes are gradually forgotten.
//!
//! Review notes: is there another way to change an entry than [`Network::apply_before`]? Does anything that a filter looks
//! at, or a view shows, come from something that is not kept here? Then its change has to end the lists.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use super::Network;
use super::read::Test;
use crate::core::address::Address;
use crate::core::command::{Context, ListRest, ListSlice};
use crate::core::outcome::Slice;
use crate::core::state::{Entry, Reservation};
use crate::limits::LIST_CHANGES_KEPT_MAX;

/// The number of a list, in the order in which lists began.
type Began = u64;

/// How many changes are forgotten with each one that is noted: more than one, so that nothing is left in the end.
const FORGOTTEN_AT_ONCE: usize = 4;

/// What lay at addresses that changed while lists were under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    /// Replaced whenever no list can go on: after a reload, a change of configuration, or a new start of service.
    era: Arc<()>,
    /// The number of the last list that began.
    last: Began,
    /// Lists over the network that may still be under way, oldest first.
    lists: VecDeque<(Began, Weak<ListRest>)>,
    /// What lay at an address before its first change after a list began.
    before: BTreeMap<(Address, Began), Option<Entry>>,
    /// The keys of `before`, in the order in which they were added.
    order: VecDeque<(Began, Address)>,
}

impl Past {
    /// Notes what an entry was before it changes.
    ///
    /// Cost: one comparison while nothing is listed, otherwise O(log) of what is kept.
    #[inline]
    pub(super) fn note(&mut self, address: Address, before: Option<&Entry>) {
        if self.lists.is_empty() && self.order.is_empty() {
            return;
        }
        self.forget(FORGOTTEN_AT_ONCE);
        let Some(&(newest, _)) = self.lists.back() else { return };
        let since = (address, newest)..=(address, Began::MAX);
        if self.before.range(since).next().is_none() {
            self.before.insert((address, newest), before.cloned());
            self.order.push_back((newest, address));
        }
        if self.order.len() > LIST_CHANGES_KEPT_MAX {
            // The oldest list needs the most notes, so it is the one that ends.
            self.lists.pop_front();
        }
    }

    /// Ends all lists that are under way.
    pub(super) fn end_lists(&mut self) {
        if self.last > 0 {
            self.era = Arc::default();
            self.lists.clear();
        }
    }

    /// Forgets this many changes, as far as no list needs them any more.
    fn forget(&mut self, changes: usize) {
        let is_over = |list: Option<&(Began, Weak<ListRest>)>| list.is_some_and(|(_, rest)| rest.strong_count() == 0);
        while is_over(self.lists.front()) {
            self.lists.pop_front();
        }
        while is_over(self.lists.back()) {
            self.lists.pop_back();
        }
        let oldest = self.lists.front().map_or(Began::MAX, |(began, _)| *began);
        for _ in 0..changes {
            let Some(&(began, address)) = self.order.front().filter(|(began, _)| *began < oldest) else { return };
            self.order.pop_front();
            self.before.remove(&(address, began));
        }
    }

    /// How many changes are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        assert_eq!(self.before.len(), self.order.len());
        self.order.len()
    }

    fn knows(&self, rest: &ListRest) -> bool {
        Arc::ptr_eq(&self.era, &rest.era)
            && (rest.of_owner.is_some() || self.lists.binary_search_by_key(&rest.began, |(began, _)| *began).is_ok())
    }

    /// The addresses after this one that changed since a list began, ascending, and what lay there then.
    fn since(&self, began: Began, after: Address) -> impl Iterator<Item = (Address, Option<&Entry>)> {
        let behind = (Bound::Excluded((after, Began::MAX)), Bound::Unbounded);
        let mut last = None;
        self.before.range(behind).filter_map(move |(&(address, noted), before)| {
            let is_first = noted >= began && last.replace(address) != Some(address);
            is_first.then_some((address, before.as_ref()))
        })
    }
}

impl Network {
    /// The rest of a list whose first slice was decided just now in this context, and was not the last one.
    ///
    /// Cost: O(1), or O(what the owner in its filter holds) if that is little.
    pub fn goes_on(&mut self, ask: &ListSlice, context: Context) -> Arc<ListRest> {
        self.past.last += 1;
        let held = self.few_of_owner(&ask.filter);
        let of_owner: Option<Vec<_>> =
            held.map(|held| held.into_iter().map(|(address, held)| (address, Arc::clone(held))).collect());
        let (began, era) = (self.past.last, Arc::clone(&self.past.era));
        let (filter, count_only) = (ask.filter.clone(), ask.count_only);
        let rest = Arc::new(ListRest { began, era, context, filter, count_only, of_owner });
        if rest.of_owner.is_none() {
            self.past.lists.push_back((began, Arc::downgrade(&rest)));
        }
        rest
    }

    /// The next slice of a list, after `after`, with the network as it was when the first slice was decided: returns at most
    /// `limit` records that match, and looks at no more than [`crate::limits::LIST_SLICE_RECORDS_MAX`]. None if the former
    /// state is no longer known, because the network was loaded again, its configuration changed, or more than
    /// [`crate::limits::LIST_CHANGES_KEPT_MAX`] changes came.
    ///
    /// Cost: O(records looked at), and one step for each change there that is kept for other lists.
    pub fn list_rest(&self, rest: &ListRest, after: Address, limit: usize) -> Option<Slice> {
        if !self.past.knows(rest) {
            return None;
        }
        let (most, context) = ((limit, rest.count_only), rest.context);
        // This succeeded when the list began, and the configuration has not changed since.
        let test = Test::new(self, &rest.filter, context).ok()?;
        Some(match &rest.of_owner {
            Some(held) => {
                let from = held.partition_point(|(address, _)| *address <= after);
                let held = held[from..].iter().map(|(address, held)| (*address, Some(held)));
                self.slice(&test, most, held, context)
            }
            None => self.slice(&test, most, self.as_it_began(rest.began, after), context),
        })
    }

    /// Is anything kept for lists, even for those that are over?
    pub fn keeps_past(&self) -> bool {
        !self.past.order.is_empty()
    }

    /// Forgets this many changes that were kept for lists that are over.
    pub fn forget_past(&mut self, changes: usize) {
        self.past.forget(changes);
    }

    /// What lay after an address when a list began, ascending. An address that is in use now but was not then has no
    /// reservation.
    fn as_it_began(&self, began: Began, after: Address) -> impl Iterator<Item = (Address, Option<&Arc<Reservation>>)> {
        let mut now = self.holdings.ascending(Bound::Excluded(after)).peekable();
        let mut then = self.past.since(began, after).peekable();
        std::iter::from_fn(move || {
            let (is_then, is_now) = match (then.peek(), now.peek()) {
                (Some((then, _)), Some((now, _))) => (then <= now, now <= then),
                (then, now) => (then.is_some(), now.is_some()),
            };
            let now = if is_now { now.next() } else { None };
            match if is_then { then.next() } else { None } {
                Some((address, before)) => Some((address, before.and_then(Entry::held))),
                None => now.map(|(address, entry)| (address, entry.held())),
            }
        })
    }
}
