//! What a network was when a list of it began: a list takes several looks, and all of them see it as the first one did.
//!
//! ```text
//! decide(List) ─▶ first slice ─▶ goes_on ─▶ ListRest ──list_rest──▶ slice ──list_rest──▶ … last slice; ListRest dropped
//!                                               │
//! apply(step) at an address ──before──▶ Past, as long as somebody has a ListRest that began before
//! ```
//!
//! Of an address only what a list that is under way may still ask for is kept: what lay there before its first change since
//! the last list began. While nothing is listed, nothing is kept.
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

/// What lay at addresses that changed while lists were under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    /// The last list that began.
    last: Began,
    /// Those that may be under way, oldest first.
    lists: VecDeque<(Began, Weak<ListRest>)>,
    /// What lay at an address when it first changed behind the beginning of a list and before that of the next.
    before: BTreeMap<(Address, Began), Option<Entry>>,
    /// Its keys, as they came: by lists.
    order: VecDeque<(Began, Address)>,
}

impl Past {
    /// An entry changes, and before it was this.
    ///
    /// Cost: a comparison while nothing is listed, else O(log) of what is kept.
    pub(super) fn note(&mut self, address: Address, before: Option<&Entry>) {
        if self.lists.is_empty() {
            return;
        }
        self.forget_ended();
        if self.lists.is_empty() {
            return;
        }
        if let std::collections::btree_map::Entry::Vacant(place) = self.before.entry((address, self.last)) {
            place.insert(before.cloned());
            self.order.push_back((self.last, address));
        }
        if self.order.len() > LIST_CHANGES_KEPT_MAX {
            self.end_lists();
        }
    }

    /// Lists that are under way cannot go on.
    pub(super) fn end_lists(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }

    /// What no list asks for any more.
    fn forget_ended(&mut self) {
        while self.lists.front().is_some_and(|(_, rest)| rest.strong_count() == 0) {
            self.lists.pop_front();
        }
        let Some(&(oldest, _)) = self.lists.front() else { return self.end_lists() };
        while let Some(&(began, address)) = self.order.front()
            && began < oldest
        {
            self.before.remove(&(address, began));
            self.order.pop_front();
        }
    }

    /// How many changes are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        assert_eq!(self.before.len(), self.order.len());
        self.order.len()
    }

    fn knows(&self, rest: &Arc<ListRest>) -> bool {
        let at = self.lists.binary_search_by_key(&rest.began, |(began, _)| *began);
        at.is_ok_and(|at| std::ptr::eq(self.lists[at].1.as_ptr(), Arc::as_ptr(rest)))
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
    /// The rest of a list of which the first slice was decided just now, and is not the last one.
    ///
    /// Cost: O(1), or of what the owner of its filter holds where that is little.
    pub fn goes_on(&mut self, ask: &ListSlice) -> Arc<ListRest> {
        self.past.last += 1;
        let of_owner = self.few_of_owner(&ask.filter).map(|held| {
            let mut held: Vec<_> = held.into_iter().map(|(address, held)| (address, Arc::clone(held))).collect();
            held.sort_unstable_by_key(|(address, _)| *address);
            held
        });
        let (began, filter) = (self.past.last, ask.filter.clone());
        let rest = Arc::new(ListRest { began, filter, count_only: ask.count_only, of_owner });
        self.past.lists.push_back((began, Arc::downgrade(&rest)));
        self.past.forget_ended();
        rest
    }

    /// The next slice of a list, behind `after`, as the network was when the first one was decided: at most `limit` records
    /// that match, and at most [`crate::limits::LIST_SLICE_RECORDS_MAX`] looked at. None: what it was then is not known any
    /// more, because it was loaded again, its configuration changed, or more than
    /// [`crate::limits::LIST_CHANGES_KEPT_MAX`] addresses did.
    pub fn list_rest(&self, rest: &Arc<ListRest>, after: Address, limit: usize, context: Context) -> Option<Slice> {
        if !self.past.knows(rest) {
            return None;
        }
        // It was found when the list began, and has not changed.
        let test = Test::new(self, &rest.filter, context).ok()?;
        Some(match &rest.of_owner {
            Some(held) => {
                let from = held.partition_point(|(address, _)| *address <= after);
                let held = held[from..].iter().map(|(address, held)| (*address, Some(held)));
                self.slice(&test, (limit, rest.count_only), held, context)
            }
            None => self.slice(&test, (limit, rest.count_only), self.as_it_began(rest.began, after), context),
        })
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
