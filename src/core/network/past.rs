//! What a network was when a list of it began: a list takes several looks, and all of them see it as the first one did.
//!
//! ```text
//! decide(List) ─▶ first slice ─▶ goes_on ─▶ ListRest ──list_rest──▶ slice ──list_rest──▶ … last slice; ListRest dropped
//!                                               │
//! apply(step) at an address ──before──▶ Past, as long as somebody has a ListRest that began before
//! ```
//!
//! Kept is what lay at an address before it first changed behind the beginning of a list, and that once for all lists that began
//! before. While nothing is listed nothing is noted, and what was is forgotten by and by.
//!
//! Review notes: is there another way to change an entry than [`Network::apply_before`]? Does what a filter looks at, or a
//! view shows, come from something that is not kept here? Then its change has to end the lists.

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

/// Which list: they are counted as they begin.
type Began = u64;

/// Changes that are forgotten with each that is noted: more than one, so that nothing is left in the end.
const FORGOTTEN_AT_ONCE: usize = 4;

/// What lay at addresses that changed while lists were under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    /// Another one whenever no list can go on: loaded again, configured, served from another time on.
    era: Arc<()>,
    /// The last list that began.
    last: Began,
    /// Those over the network that may be under way, oldest first.
    lists: VecDeque<(Began, Weak<ListRest>)>,
    /// What lay at an address when it changed first since a list began.
    before: BTreeMap<(Address, Began), Option<Entry>>,
    /// Its keys, as they came.
    order: VecDeque<(Began, Address)>,
}

impl Past {
    /// An entry changes, and before it was this.
    ///
    /// Cost: a comparison while nothing is listed, else O(log) of what is kept.
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
            // It began first, and needs most.
            self.lists.pop_front();
        }
    }

    /// No list that is under way can go on.
    pub(super) fn end_lists(&mut self) {
        if self.last > 0 {
            self.era = Arc::default();
            self.lists.clear();
        }
    }

    /// Forgets so many changes that no list asks for any more.
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

    /// Addresses behind this one that changed since a list began, ascending, and what lay there then.
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
    /// The rest of a list of which the first slice was decided just now, in this context, and is not the last one.
    ///
    /// Cost: O(1), or of what the owner of its filter holds where that is little.
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

    /// The next slice of a list, behind `after`, as the network was when the first one was decided: at most `limit` records
    /// that match, and at most [`crate::limits::LIST_SLICE_RECORDS_MAX`] looked at. None: what it was then is not known any
    /// more, because it was loaded again, its configuration changed, or more than
    /// [`crate::limits::LIST_CHANGES_KEPT_MAX`] changes came.
    ///
    /// Cost: O(records looked at), and one step for each change there that is kept for other lists.
    pub fn list_rest(&self, rest: &ListRest, after: Address, limit: usize) -> Option<Slice> {
        if !self.past.knows(rest) {
            return None;
        }
        let (most, context) = ((limit, rest.count_only), rest.context);
        // It was found when the list began, and has not changed.
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

    /// Is anything kept for lists, also if they are over?
    pub fn keeps_past(&self) -> bool {
        !self.past.order.is_empty()
    }

    /// Forgets so many changes that were kept for lists that are over.
    pub fn forget_past(&mut self, changes: usize) {
        self.past.forget(changes);
    }

    /// What lay behind an address when a list began, ascending; nothing where something lies now that did not then.
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
