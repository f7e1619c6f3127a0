//! What a request looked through in vain. It only takes, so what is gone for it stays gone: without this each of many grants would
//! look again at what the ones before it took.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::super::pool_set::PoolSet;
use super::super::rested::Rank;
use super::Draft;
use crate::core::address::Address;
use crate::core::types::ShardTime;

/// Freed addresses that are looked through in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core::network) enum Freed {
    /// Past their cooldown.
    Rested,
    /// Cooling.
    Cooling,
}

/// Blocks that are looked for pool by pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core::network) enum Blocks {
    /// Free ones of this prefix length.
    Free(u8),
    /// Of this prefix length, with cooling addresses in them.
    Yielding(u8),
}

#[derive(Default)]
pub(super) struct Searched {
    /// How far the freed addresses of a pool were looked through, in the order in which they were freed.
    freed: BTreeMap<(Address, Freed), (Rank, u128)>,
    /// The pools with room for a single address, but for those of which this request took the last one; once it took one's last.
    room: Option<PoolSet>,
    /// The pools that may have such a block still, once one was looked for twice.
    blocks: BTreeMap<Blocks, Option<PoolSet>>,
    /// Of the pools in the order of what cools longest in each, the last one of those at the front in which nothing is left.
    cooled: Option<(ShardTime, usize)>,
}

impl Draft<'_> {
    /// The last place of a pool's freed addresses, by its first address, at which nothing is left for this request.
    pub(in crate::core::network) fn searched(&self, pool: Address, freed: Freed) -> Option<(Rank, u128)> {
        self.searched.borrow().as_ref()?.freed.get(&(pool, freed)).copied()
    }

    /// Nothing is left at this place, nor at those before it.
    pub(in crate::core::network) fn nothing_left(&self, pool: Address, freed: Freed, place: (Rank, u128)) {
        self.searched.borrow_mut().get_or_insert_default().freed.insert((pool, freed), place);
    }

    /// The pools that still have room for a single address; none while this request emptied none. To be given back.
    pub(in crate::core::network) fn take_room(&self) -> Option<PoolSet> {
        self.searched.borrow_mut().as_mut()?.room.take()
    }

    /// Gives back what [`Draft::take_room`] took.
    pub(in crate::core::network) fn give_room(&self, room: PoolSet) {
        self.searched.borrow_mut().get_or_insert_default().room = Some(room);
    }

    /// The pools that may have such a block still: of the first one that this request looks for nothing is to be noted, which most
    /// are; inside, none while none were found to have nothing. To be given back.
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

    /// Up to which pool nothing that cools is left, in the order of what cools longest in each.
    pub(in crate::core::network) fn cooled(&self) -> Option<(ShardTime, usize)> {
        self.searched.borrow().as_ref()?.cooled
    }

    /// Up to this pool nothing that cools is left.
    pub(in crate::core::network) fn cooled_until(&self, pool: Option<(ShardTime, usize)>) {
        if pool.is_some() {
            self.searched.borrow_mut().get_or_insert_default().cooled = pool;
        }
    }
}
