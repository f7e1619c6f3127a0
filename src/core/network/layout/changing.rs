//! Keeps the layout in step with a changed entry: counts, free space, the order of pools, and what rests.

use super::{Layout, SubnetSpace};
use crate::core::address::{Address, Family};
use crate::core::network::counting::{count_address, count_entry};
use crate::core::network::holdings::covered;
use crate::core::network::pool_set::each_gap;
use crate::core::network::pool_space::taken_in;
use crate::core::network::rested::Rank;
use crate::core::state::Entry;
use crate::core::types::ShardTime;
use crate::limits::OLDEST_REMEMBERED_MAX;

impl Layout {
    /// Keeps spaces and counts in step with a changed entry. Cost: O(log) of the pools' sizes.
    pub(in crate::core::network) fn entry_changed(
        &mut self,
        address: Address,
        before: Option<&Entry>,
        after: Option<&Entry>,
        rest: Option<Rank>,
    ) {
        let is_single = |entry: &Entry| entry.prefix_length() == address.family().width();
        if rest.is_none() && before.into_iter().chain(after).all(is_single) {
            return self.address_changed(address, before, after);
        }
        let length = |entry: Option<&Entry>| entry.map(|entry| covered(address, entry.prefix_length()));
        let (old, new) = (length(before), length(after));
        // A new length at the same address is treated as two changes.
        if let (Some(old), Some(new)) = (old, new)
            && old != new
        {
            self.entry_changed(address, before, None, None);
            self.entry_changed(address, None, after, None);
            return;
        }
        let Some(range) = new.or(old) else { return };
        // A cooling or declined entry may reach beyond the ends of a subnet that was added, or shrank, since.
        let from = self.subnets_by_address.partition_point(|(subnet, _)| subnet.last() < range.first());
        for &(_, subnet) in
            self.subnets_by_address[from..].iter().take_while(|(subnet, _)| subnet.first() <= range.last())
        {
            let subnet = &mut self.subnets[subnet];
            if let Some(before) = before {
                count_entry(&mut subnet.counts, &subnet.counted, subnet.range, address, before, false);
            }
            if let Some(after) = after {
                count_entry(&mut subnet.counts, &subnet.counted, subnet.range, address, after, true);
            }
        }
        if let Some(rank) = rest {
            self.remember_elsewhere(range.family(), rank, range.first().bits(), range.last().bits());
        } else if taken_in(after)[0] {
            self.elsewhere[usize::from(range.family() == Family::V6)].remove(range.first().bits(), range.last().bits());
        }
        let mut at = self.pools_by_address.partition_point(|(pool, _)| pool.last() < range.first());
        while let Some(&(pool_range, index)) =
            self.pools_by_address.get(at).filter(|(pool, _)| pool.first() <= range.last())
        {
            if let Some(part) = range.intersection(pool_range) {
                let (first, last) = (part.first().bits(), part.last().bits());
                self.pool_changed(index, (address, first, last), before, after, rest);
                if rest.is_some() {
                    // The pool remembers its own addresses, except for reserved ones, which may become free again.
                    let rested = &mut self.elsewhere[usize::from(range.family() == Family::V6)];
                    each_gap(&self.pools[index].blocked, first, last, |start, end| rested.remove(start, end));
                }
            }
            debug_assert_eq!(pool_range, self.pools[index].range);
            at += 1;
        }
        self.forget_over_bound();
    }

    /// Counts the change of a single address, the most frequent change. It lies in one subnet and one pool, or in none.
    fn address_changed(&mut self, address: Address, before: Option<&Entry>, after: Option<&Entry>) {
        let bits = address.bits();
        if let Some(index) = self.subnet_of(address) {
            let SubnetSpace { counted, counts, .. } = &mut self.subnets[index];
            if let Some(before) = before {
                count_address(counts, counted, bits, before, false);
            }
            if let Some(after) = after {
                count_address(counts, counted, bits, after, true);
            }
        }
        if taken_in(after)[0] {
            self.elsewhere[usize::from(address.family() == Family::V6)].remove(bits, bits);
        }
        if let Some(index) = self.pool_of(address) {
            self.pool_changed(index, (address, bits, bits), before, after, None);
        }
        self.forget_over_bound();
    }

    /// Keeps a pool, and the orders and sets of pools, in step with an entry that lies partly in it.
    #[inline]
    fn pool_changed(
        &mut self,
        index: usize,
        part: (Address, u128, u128),
        before: Option<&Entry>,
        after: Option<&Entry>,
        rest: Option<Rank>,
    ) {
        let pool = &mut self.pools[index];
        let (since, rests) = (pool.cools_since(), pool.rests());
        pool.entry_changed(part, before, after, rest);
        if pool.open {
            self.room.set(index, pool.free.free() > 0);
        }
        self.reorder(index, since);
        self.recount(index, rests);
    }

    /// Forgets the ranges that were freed longest ago, in whichever pool, while too many are remembered.
    #[inline]
    pub(super) fn forget_over_bound(&mut self) {
        while self.remembered > OLDEST_REMEMBERED_MAX
            && let Some(&(_, index)) = self.rested_longest.first()
        {
            let before = self.pools[index].rests();
            self.pools[index].forget_oldest();
            self.recount(index, before);
        }
    }

    /// Updates the totals of what is remembered, if that changed in a pool.
    #[inline]
    fn recount(&mut self, index: usize, before: (Option<Rank>, usize)) {
        let now = self.pools[index].rests();
        if now == before {
            return;
        }
        self.remembered = self.remembered - before.1 + now.1;
        before.0.map(|since| self.rested_longest.remove(&(since, index)));
        self.rested_longest.extend(now.0.map(|since| (since, index)));
    }

    /// Moves a pool to its place in the order of what has cooled longest, if that changed.
    fn reorder(&mut self, index: usize, before: Option<ShardTime>) {
        let now = self.pools[index].cools_since();
        if now != before {
            before.map(|before| self.cooling_longest.remove(&(before, index)));
            self.cooling_longest.extend(now.map(|now| (now, index)));
        }
    }

    /// Remembers a freed range. The parts that lie in pools are left to those pools.
    pub(super) fn remember_elsewhere(&mut self, family: Family, rank: Rank, first: u128, last: u128) {
        let rested = &mut self.elsewhere[usize::from(family == Family::V6)];
        rested.add(rank, first, last);
        while rested.len() > OLDEST_REMEMBERED_MAX {
            rested.forget_oldest();
        }
    }
}
