//! One pool: its free space, its counts, and what cools or rests in it.
//!
//! Neighbour: `layout`, which has all pools and reports which entry changed.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::counting::{count_address, count_entry, empty_counts};
use super::holdings::{Holdings, covered};
use super::pool_set::{Spans, each_gap, meeting};
use super::rested::{Rank, Rested};
use crate::core::address::{Address, Family, Range};
use crate::core::outcome::{Counts, Grantable};
use crate::core::space::Space;
use crate::core::state::{Entry, NetworkConfig, Policy, PoolConfig, PoolKind, SubnetConfig};
use crate::core::types::ShardTime;

/// A range that `oldest` remembers: family, when it was freed, first and last number.
pub(super) type Remembered = (Family, Rank, u128, u128);

/// The ranges that `oldest` remembers, ascending and disjoint, because an address rests only once.
pub(super) struct Memory(Vec<Remembered>);

impl Memory {
    pub(super) fn of(mut remembered: Vec<Remembered>) -> Self {
        remembered.sort_unstable_by_key(|&(family, _, first, _)| (family, first));
        Self(remembered)
    }

    /// The remembered ranges that share addresses with a range. Cost: O(log).
    fn meeting(&self, range: Range) -> &[Remembered] {
        let family = range.family();
        let (first, last) = (range.first().bits(), range.last().bits());
        let behind = &self.0[self.0.partition_point(|&(of, _, _, end)| (of, end) < (family, first))..];
        &behind[..behind.partition_point(|&(of, _, start, _)| (of, start) <= (family, last))]
    }

    pub(super) fn into_vec(self) -> Vec<Remembered> {
        self.0
    }
}

#[cfg(test)]
thread_local! {
    /// How many reserved or remembered ranges pools looked at when they were built.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts the looks, for tests.
fn looked_at<T>(found: &[T]) -> &[T] {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + found.len());
    found
}

/// A pool with its free space.
#[derive(Debug, Clone)]
pub(super) struct PoolSpace {
    /// Index of its subnet.
    pub(super) subnet: usize,
    /// Index of the pool in its subnet.
    pub(super) pool: usize,
    pub(super) range: Range,
    /// Whether automatic grants may draw from it.
    pub(super) open: bool,
    /// Reserved and unusable addresses: never granted automatically.
    pub(super) blocked: Spans,
    /// Whether the pool or its subnet drains.
    pub(super) draining: bool,
    pub(super) free: Space,
    pub(super) fresh: Option<Space>,
    pub(super) yielding: Option<Space>,
    /// Freed addresses past their cooldown, for `oldest`.
    pub(super) rested: Rested,
    /// Entries that cool in this pool and are not wholly reserved, by release; only if cooling addresses yield.
    pub(super) cooling: BTreeSet<(ShardTime, u128)>,
    pub(super) counts: Counts,
}

/// In which of the spaces an entry counts as taken: free, fresh, yielding.
pub(super) fn taken_in(entry: Option<&Entry>) -> [bool; 3] {
    match entry {
        None => [false, false, false],
        Some(Entry::Released(_)) => [true, true, false],
        Some(Entry::Held(_) | Entry::Declined(_)) => [true, true, true],
    }
}

impl PoolSpace {
    /// Builds the pool around what is held. If `reusable` has the same pool, that one is taken out and used instead.
    #[allow(clippy::too_many_arguments, reason = "one call, and the parts have no life together")]
    pub(super) fn build(
        config: &NetworkConfig,
        subnet: &SubnetConfig,
        pool: &PoolConfig,
        (subnet_index, pool_index): (usize, usize),
        subnet_blocked: &Spans,
        holdings: &Holdings,
        reusable: &mut HashMap<Range, PoolSpace>,
        remembered: &Memory,
    ) -> Self {
        let (first, last) = (pool.range.first().bits(), pool.range.last().bits());
        let clip = |&(start, end): &(u128, u128)| (start.max(first), end.min(last));
        let blocked: Spans = looked_at(meeting(subnet_blocked, first, last)).iter().map(clip).collect();
        let draining = subnet.draining || pool.draining;
        let open = pool.kind == PoolKind::Dynamic && !draining && !config.closed;
        let (wants_fresh, wants_yielding) = (config.policy == Policy::Oldest, config.cooldown_yields);
        if let Some(mut same) = reusable.remove(&pool.range)
            && same.blocked == blocked
            && same.draining == draining
            && same.fresh.is_some() == wants_fresh
            && same.yielding.is_some() == wants_yielding
        {
            (same.subnet, same.pool, same.open) = (subnet_index, pool_index, open);
            return same;
        }
        let mut empty = Space::new(first, last);
        for &(start, end) in &blocked {
            empty.occupy(start, end);
        }
        let mut space = PoolSpace {
            subnet: subnet_index,
            pool: pool_index,
            range: pool.range,
            open,
            counts: Counts::default(),
            draining,
            fresh: wants_fresh.then(|| empty.clone()),
            yielding: wants_yielding.then(|| empty.clone()),
            free: empty,
            blocked,
            rested: Rested::default(),
            cooling: BTreeSet::new(),
        };
        space.counts = space.empty_counts();
        if wants_fresh {
            for &(_, rank, start, end) in looked_at(remembered.meeting(pool.range)) {
                space.rest(rank, start.max(first), end.min(last));
            }
        }
        space.add_all(holdings.overlapping(pool.range));
        space
    }

    /// Does an entry's range count as taken in every space in which it should? Cost: O(log).
    pub(super) fn has_taken(&self, range: Range, entry: &Entry) -> bool {
        let Some(part) = range.intersection(self.range) else { return true };
        let spaces = [Some(&self.free), self.fresh.as_ref(), self.yielding.as_ref()];
        let mut is_taken_in = spaces.into_iter().zip(taken_in(Some(entry)));
        is_taken_in.all(|(space, is_taken)| {
            let free = |space: &Space| space.free_in(part.first().bits(), part.last().bits());
            !is_taken || space.is_none_or(|space| free(space) == 0)
        })
    }

    /// Enters what lies here, ascending. Adjacent entries are taken in one operation, because most of what is held is adjacent.
    fn add_all<'a>(&mut self, entries: impl Iterator<Item = (Address, &'a Entry)>) {
        let mut taken: [Option<(u128, u128)>; 3] = [None; 3];
        for (address, entry) in entries {
            let range = covered(address, entry.prefix_length());
            let Some(part) = range.intersection(self.range) else { continue };
            let (first, last) = (part.first().bits(), part.last().bits());
            self.count(address, None, Some(entry));
            self.cools(address, (first, last), None, Some(entry));
            for (at, _) in taken_in(Some(entry)).into_iter().enumerate().filter(|(_, is)| *is) {
                match &mut taken[at] {
                    Some(run) if run.1.checked_add(1) == Some(first) => run.1 = last,
                    run => {
                        if let Some(before) = run.replace((first, last)) {
                            self.take(at, before);
                        }
                    }
                }
            }
        }
        for (at, run) in taken.into_iter().enumerate() {
            if let Some(run) = run {
                self.take(at, run);
            }
        }
    }

    /// The counts of this pool when nothing lies in it.
    pub(super) fn empty_counts(&self) -> Counts {
        if self.draining {
            empty_counts(self.range, &[(self.range.first().bits(), self.range.last().bits())])
        } else {
            empty_counts(self.range, &self.blocked)
        }
    }

    /// What automatic grants may draw from it: nothing unless it is open.
    pub(super) fn grantable(&self) -> Grantable {
        let Some(space) = self.drawn_from() else { return Grantable::default() };
        Grantable { size: empty_counts(self.range, &self.blocked).free, left: space.free() }
    }

    /// The space from which automatic grants may draw, including what yields to them.
    pub(super) fn drawn_from(&self) -> Option<&Space> {
        self.open.then(|| self.yielding.as_ref().unwrap_or(&self.free))
    }

    /// Takes a range in one of the spaces: free, fresh, yielding.
    fn take(&mut self, at: usize, (first, last): (u128, u128)) {
        if at == 0 && self.fresh.is_some() {
            self.rested.remove(first, last);
        }
        let space = match at {
            0 => Some(&mut self.free),
            1 => self.fresh.as_mut(),
            _ => self.yielding.as_mut(),
        };
        if let Some(space) = space {
            space.occupy(first, last);
        }
    }

    /// When the longest cooling entry here was released, if cooling addresses yield.
    pub(super) fn cools_since(&self) -> Option<ShardTime> {
        self.cooling.first().map(|&(released_at, _)| released_at)
    }

    fn rest(&mut self, rank: Rank, first: u128, last: u128) {
        let (rested, fresh) = (&mut self.rested, &mut self.fresh);
        each_gap(&self.blocked, first, last, |start, end| {
            rested.add(rank, start, end);
            if let Some(fresh) = fresh {
                fresh.occupy(start, end);
            }
        });
    }

    /// What `oldest` remembers here: when the oldest range was freed, and how many ranges there are.
    pub(super) fn rests(&self) -> (Option<Rank>, usize) {
        if self.fresh.is_some() { (self.rested.since(), self.rested.len()) } else { (None, 0) }
    }

    /// Forgets the range that was freed longest ago, which then counts as never used.
    pub(super) fn forget_oldest(&mut self) {
        if let Some((first, last)) = self.rested.forget_oldest()
            && let Some(fresh) = &mut self.fresh
        {
            fresh.vacate(first, last);
        }
    }

    /// Keeps space, counts and orders in step with a changed entry, of which the addresses from `first` to `last` lie here.
    pub(super) fn entry_changed(
        &mut self,
        (address, first, last): (Address, u128, u128),
        before: Option<&Entry>,
        after: Option<&Entry>,
        rest: Option<Rank>,
    ) {
        self.count(address, before, after);
        let (was, is) = (taken_in(before), taken_in(after));
        let blocked = &self.blocked;
        let change = |space: &mut Space, was: bool, is: bool| {
            if is && !was {
                space.occupy(first, last);
            } else if was && !is {
                each_gap(blocked, first, last, |start, end| space.vacate(start, end));
            }
        };
        change(&mut self.free, was[0], is[0]);
        if let Some(fresh) = &mut self.fresh {
            change(fresh, was[1], is[1]);
        }
        if let Some(yielding) = &mut self.yielding {
            change(yielding, was[2], is[2]);
        }
        self.cools(address, (first, last), before, after);
        if self.fresh.is_some() {
            if is[0] {
                self.rested.remove(first, last);
            } else if let Some(rank) = rest {
                self.rest(rank, first, last);
            }
        }
    }

    fn count(&mut self, address: Address, before: Option<&Entry>, after: Option<&Entry>) {
        let whole = [(self.range.first().bits(), self.range.last().bits())];
        let counted: &[(u128, u128)] = if self.draining { &whole } else { &self.blocked };
        let (counts, range) = (&mut self.counts, self.range);
        let mut count = |entry: &Entry, add| {
            // It is a single address, and the caller knows that it lies here, so the range need not be compared again.
            if entry.prefix_length() == address.family().width() {
                count_address(counts, counted, address.bits(), entry, add);
            } else {
                count_entry(counts, counted, range, address, entry, add);
            }
        };
        if let Some(before) = before {
            count(before, false);
        }
        if let Some(after) = after {
            count(after, true);
        }
    }

    /// Keeps the order of cooling entries, if they may yield. `first` and `last` bound the part that lies here.
    fn cools(&mut self, address: Address, (first, last): (u128, u128), before: Option<&Entry>, after: Option<&Entry>) {
        if self.yielding.is_none() {
            return;
        }
        if let Some(Entry::Released(released)) = before {
            self.cooling.remove(&(released.released_at, address.bits()));
        }
        // A wholly reserved entry cools but never yields, and would be passed over again and again.
        if let Some(Entry::Released(released)) = after
            && each_gap(&self.blocked, first, last, |_, _| ()) < (last - first).saturating_add(1)
        {
            self.cooling.insert((released.released_at, address.bits()));
        }
    }

    /// Is no address of the range reserved or unusable?
    pub(super) fn is_unblocked(&self, range: Range) -> bool {
        each_gap(&self.blocked, range.first().bits(), range.last().bits(), |_, _| ()) == 0
    }
}
