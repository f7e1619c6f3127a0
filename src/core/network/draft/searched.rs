//! What a request searched in vain. A request only takes, so what is exhausted for it stays exhausted. Without this, each of
//! many grants would search again through what the ones before it took.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::super::pool_set::PoolSet;
use super::super::rested::Rank;
use super::Draft;
use crate::core::address::Address;
use crate::core::types::ShardTime;

/// Freed addresses, which are searched in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core::network) enum Freed {
    /// Past their cooldown.
    Rested,
    /// Cooling.
    Cooling,
}

/// Blocks, which are searched pool by pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core::network) enum Blocks {
    /// Free ones of this prefix length.
    Free(u8),
    /// Blocks of this prefix length that may contain cooling addresses.
    Yielding(u8),
}

#[derive(Default)]
pub(super) struct Searched {
    /// How far the freed addresses of a pool were searched, in the order in which they were freed.
    freed: BTreeMap<(Address, Freed), (Rank, u128)>,
    /// The pools with room for a single address, without those whose last address this request took; none until it took a
    /// pool's last one.
    room: Option<PoolSet>,
    /// The pools that may still have such a block, once one was looked for twice.
    blocks: BTreeMap<Blocks, Option<PoolSet>>,
    /// In the order of what has cooled longest in each pool: the last of the leading pools in which nothing is left.
    cooled: Option<(ShardTime, usize)>,
}

impl Draft<'_> {
    /// The last place among the freed addresses of a pool, named by its first address, up to which nothing is left for this
    /// request.
    pub(in crate::core::network) fn searched(&self, pool: Address, freed: Freed) -> Option<(Rank, u128)> {
        self.searched.borrow().as_ref()?.freed.get(&(pool, freed)).copied()
    }

    /// Notes that nothing is left up to and including this place.
    pub(in crate::core::network) fn nothing_left(&self, pool: Address, freed: Freed, place: (Rank, u128)) {
        self.searched.borrow_mut().get_or_insert_default().freed.insert((pool, freed), place);
    }

    /// The pools that still have room for a single address; none if this request exhausted no pool yet. Must be given back.
    pub(in crate::core::network) fn take_room(&self) -> Option<PoolSet> {
        self.searched.borrow_mut().as_mut()?.room.take()
    }

    /// Gives back what [`Draft::take_room`] took.
    pub(in crate::core::network) fn give_room(&self, room: PoolSet) {
        self.searched.borrow_mut().get_or_insert_default().room = Some(room);
    }

    /// The pools that may still have such a block. The outer none is for the first such block of a request, which needs no
    /// notes; most requests have no second one. The inner none means that no pool has been exhausted yet. Must be given back.
    pub(in crate::core::network) fn take_left(&self, blocks: Blocks) -> Option<Option<PoolSet>> {
        let mut searched = self.searched.borrow_mut();
        match searched.get_or_insert_default().blocks.entry(blocks) {
            Entry::Occupied(mut left) => Some(left.get_mut().take()),
            Entry::Vacant(first) => {
                first.insert(None);
                None
            }
        }
    }

    /// Gives back what [`Draft::take_left`] took.
    pub(in crate::core::network) fn give_left(&self, blocks: Blocks, left: Option<PoolSet>) {
        self.searched.borrow_mut().get_or_insert_default().blocks.insert(blocks, left);
    }

    /// The pool up to which nothing cooling is left, in the order of what has cooled longest in each.
    pub(in crate::core::network) fn cooled(&self) -> Option<(ShardTime, usize)> {
        self.searched.borrow().as_ref()?.cooled
    }

    /// Notes that nothing cooling is left up to this pool.
    pub(in crate::core::network) fn cooled_until(&self, pool: Option<(ShardTime, usize)>) {
        if pool.is_some() {
            self.searched.borrow_mut().get_or_insert_default().cooled = pool;
        }
    }
}
