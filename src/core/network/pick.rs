//! Which address a request gets: the order of the pools, the policy inside a pool, and the exceptions.
//!
//! Before: `selection` looks up what a wish names. After: `draft` grants what was picked.
//!
//! In order: an address reserved for this owner; an address that this slot let go a short time ago; pool by pool in drawing
//! order, by the policy inside a pool; finally, if cooling addresses yield, the one that has cooled longest. The cost is
//! O(log) of the pools' sizes plus one step per 64 pools, however full anything is.
//!
//! Blocks follow the same order with two simplifications. Under `oldest`, never used blocks come first, then a block in the
//! range that was freed longest ago (of a bounded number of ranges), then the lowest block. If cooling addresses yield, it
//! is the lowest block with nothing but free and cooling addresses in it, in not too many pieces.

use std::ops::Bound;

use super::Network;
use super::draft::{Blocks, Draft, Freed, block};
use super::holdings::covered;
use super::pool_set::PoolSet;
use super::pool_space::PoolSpace;
use super::rested::Rank;
use super::selection::Selection;
use crate::core::address::{Address, Family, Range};
use crate::core::command::mixed;
use crate::core::space::Space;
use crate::core::state::{Entry, Policy, Released};
use crate::core::types::{OwnerUid, ShardTime, SlotKey};

/// Most cooling pieces that a grant may clear for one block.
pub(super) const YIELDED_PIECES_MAX: usize = 256;
/// How many more blocks in all, after the first of each pool, are tried to find one with no more cooling pieces than that.
const YIELDED_BLOCKS_MORE: usize = 16;

/// How many cooling ranges of a slot, latest first, are tried for one that fits the wish. A script that claims and lets go
/// under one name can leave any number.
pub(super) const OWN_COOLING_LOOKED_AT_MAX: usize = 256;

/// How many freed ranges, oldest first, are searched for a block before the lowest block is taken.
const RESTED_LOOKED_AT_MAX: usize = 256;

/// How many times one grant draws again after it meets what the same request already took.
const DRAWS_MAX: u64 = 16;

/// The choice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Picked {
    pub(super) range: Range,
    /// Whether nothing lies there. Otherwise something may be cooling there that has to be cleared.
    pub(super) is_free: bool,
}

/// May the object that asks be the one that let this go under the same name? Two objects of one name are two owners.
fn is_same_object(released: &Released, uid: Option<&OwnerUid>) -> bool {
    uid.is_none_or(|uid| released.owner_uid.as_ref().is_none_or(|last| last == uid))
}

impl Network {
    /// Chooses an address or block for a slot.
    pub(super) fn pick(
        &self,
        draft: &Draft<'_>,
        selection: &Selection,
        holder: &SlotKey,
        uid: Option<&OwnerUid>,
    ) -> Option<Picked> {
        let cleared = |range| Picked { range, is_free: false };
        let own = self
            .pick_kept(draft, selection, holder, uid)
            .or_else(|| self.pick_own_cooling(draft, selection, holder, uid))
            .map(cleared);
        own.or_else(|| self.pick_free(draft, selection).map(|range| Picked { range, is_free: true })).or_else(|| {
            if self.config.cooldown_yields { self.pick_yielding(draft, selection).map(cleared) } else { None }
        })
    }

    pub(super) fn pick_kept(
        &self,
        draft: &Draft<'_>,
        selection: &Selection,
        holder: &SlotKey,
        uid: Option<&OwnerUid>,
    ) -> Option<Range> {
        let usable = |&address: &Address| {
            let range = Range::single(address);
            selection.order(address.family()) == Some(0)
                && self.admits(selection, address)
                && self.layout.subnet_of(address).is_some_and(|index| {
                    !self.subnets[index].draining && !self.layout.subnets[index].has_unusable(range)
                })
                && self.layout.pool_of(address).is_none_or(|index| !self.pool_config(index).draining)
                && draft.taken(range).is_none()
                && match self.holdings.covering(address) {
                    None => true,
                    Some((_, Entry::Released(released))) => released.last == *holder && is_same_object(released, uid),
                    Some((_, Entry::Held(_) | Entry::Declined(_))) => false,
                }
        };
        self.kept_for(holder).find(usable).map(Range::single)
    }

    /// The addresses that are reserved for a slot, which gets them before others.
    pub(super) fn kept_for(&self, holder: &SlotKey) -> impl Iterator<Item = Address> {
        let of_owner = || self.layout.kept_for.get(&(holder.scope.clone(), holder.owner.clone()));
        let kept = if self.layout.kept_for.is_empty() { None } else { of_owner() };
        let of_slot = kept.into_iter().flatten().filter(|(slot, _)| slot.as_ref().is_none_or(|s| *s == holder.slot));
        of_slot.map(|(_, address)| *address)
    }

    /// Does the address pass the filters of a wish?
    fn admits(&self, selection: &Selection, address: Address) -> bool {
        let in_pools = |set: &Option<PoolSet>| {
            set.as_ref().is_none_or(|set| self.layout.pool_of(address).is_some_and(|index| set.contains(index)))
        };
        let subnet = self.layout.subnet_of(address);
        selection.family.is_none_or(|family| family == address.family())
            && (selection.subnet.is_none() || selection.subnet == subnet)
            && in_pools(&selection.pool)
            // A reserved address may lie outside every pool, so its subnet decides.
            && (selection.zone_name.as_ref())
                .is_none_or(|zone| subnet.is_some_and(|index| self.subnets[index].serves(zone)))
            && selection.like.is_none_or(|home| subnet.is_some_and(|index| self.subnets[index].serves_all_of(&self.subnets[home])))
    }

    /// Of several, the one let go last: the one that the machine had most recently.
    fn pick_own_cooling(
        &self,
        draft: &Draft<'_>,
        selection: &Selection,
        holder: &SlotKey,
        uid: Option<&OwnerUid>,
    ) -> Option<Range> {
        if !self.holdings.anything_cools() {
            return None;
        }
        let mut last: Option<(ShardTime, Address, Range)> = None;
        for (address, released) in self.holdings.cooling_of(holder).take(OWN_COOLING_LOOKED_AT_MAX) {
            if last.is_some_and(|(at, ..)| released.released_at < at) {
                break;
            }
            let range = covered(address, released.prefix_length);
            let lower = last.is_none_or(|(_, found, _)| address < found);
            if lower && is_same_object(released, uid) && self.may_cool_back(draft, selection, address, range) {
                last = Some((released.released_at, address, range));
            }
        }
        last.map(|(_, _, range)| range)
    }

    fn may_cool_back(&self, draft: &Draft<'_>, selection: &Selection, address: Address, range: Range) -> bool {
        let length = |order: u8| address.family().width() - order;
        let covers = |order: u8| covered(address, length(order)) == range;
        self.layout.pool_of(address).is_some_and(|pool| {
            selection.order(address.family()).is_some_and(covers)
                && self.draws_from(pool, selection.sets_of(self))
                && self.layout.pools[pool].range.covers(range)
                && self.layout.pools[pool].is_unblocked(range)
                && draft.taken(range).is_none()
                && !draft.has_let_go(address)
        })
    }

    /// Is the pool open, and in all of these sets?
    pub(super) fn draws_from(&self, pool: usize, sets: [Option<&PoolSet>; 4]) -> bool {
        self.layout.open.contains(pool) && sets.iter().flatten().all(|set| set.contains(pool))
    }

    fn pick_free(&self, draft: &Draft<'_>, selection: &Selection) -> Option<Range> {
        if let Some(length) = selection.prefix_length {
            let find = |pools: &PoolSet, has_nothing: &mut dyn FnMut(usize)| {
                self.find_free(pools, draft, selection, has_nothing)
            };
            return self.find_block(draft, Blocks::Free(length), find);
        }
        let mut room = draft.take_room();
        let mut emptied = Vec::new();
        let found =
            self.find_free(room.as_ref().unwrap_or(&self.layout.room), draft, selection, |index| emptied.push(index));
        if !emptied.is_empty() {
            let room = room.get_or_insert_with(|| self.layout.room.clone());
            emptied.into_iter().for_each(|index| room.set(index, false));
        }
        if let Some(room) = room {
            draft.give_room(room);
        }
        found
    }

    /// Looks for a block in the open pools, without those in which this request already found none of that kind. Otherwise
    /// each of hundreds of blocks would search thousands of pools that have none. `find` reports each pool that has nothing.
    fn find_block(
        &self,
        draft: &Draft<'_>,
        blocks: Blocks,
        find: impl FnOnce(&PoolSet, &mut dyn FnMut(usize)) -> Option<Range>,
    ) -> Option<Range> {
        let open = &self.layout.open;
        let Some(mut left) = draft.take_left(blocks) else { return find(open, &mut |_| {}) };
        let mut in_vain = Vec::new();
        let found = find(left.as_ref().unwrap_or(open), &mut |index| in_vain.push(index));
        if !in_vain.is_empty() {
            let left = left.get_or_insert_with(|| open.clone());
            in_vain.into_iter().for_each(|index| left.set(index, false));
        }
        draft.give_left(blocks, left);
        found
    }

    /// The first free block in these pools, in drawing order. Reports each pool that has nothing left for this draft.
    fn find_free(
        &self,
        pools: &PoolSet,
        draft: &Draft<'_>,
        selection: &Selection,
        mut has_nothing: impl FnMut(usize),
    ) -> Option<Range> {
        pools.find_in(selection.sets_of(self), |index| {
            let pool = &self.layout.pools[index];
            let family = pool.range.family();
            let order = selection.order(family)?;
            let first = match (self.config.policy, order) {
                _ if !pool.free.may_have(order) => None,
                (Policy::Lowest, _) => lowest(&pool.free, draft, family, order, pool.range.first().bits()),
                (Policy::Random, 0) => random(&pool.free, draft, family),
                (Policy::Random, _) => random_block(pool, draft, order),
                (Policy::Oldest, _) => oldest(pool, draft, order),
            };
            if first.is_none() {
                has_nothing(index);
            }
            first.map(|first| block(family, first, order))
        })
    }

    fn pick_yielding(&self, draft: &Draft<'_>, selection: &Selection) -> Option<Range> {
        let sets = selection.sets_of(self);
        // Single addresses: the one that has cooled longest, over all pools that may be drawn from. The pools are ordered by
        // what has cooled longest in each, so usually the first one has it.
        let mut longest: Option<(ShardTime, usize, Address)> = None;
        let mut behind = draft.cooled();
        let mut all_before = true;
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        for &(first_released, index) in self.layout.cooling_longest.range((from, Bound::Unbounded)) {
            if longest.is_some_and(|(released_at, found, _)| (released_at, found) < (first_released, index)) {
                break;
            }
            let pool = &self.layout.pools[index];
            if !self.draws_from(index, sets) || selection.order(pool.range.family()) != Some(0) {
                all_before = false;
                continue;
            }
            let place = draft.searched(pool.range.first(), Freed::Cooling);
            let from = place.map_or(Bound::Unbounded, |((released_at, _), bits)| Bound::Excluded((released_at, bits)));
            let candidate = pool.cooling.range((from, Bound::Unbounded)).find_map(|&(released_at, bits)| {
                let found = self.yielding_address(draft, pool, bits);
                if found.is_none() {
                    draft.nothing_left(pool.range.first(), Freed::Cooling, ((released_at, 0), bits));
                }
                found.map(|address| (released_at, index, address))
            });
            all_before &= candidate.is_none();
            if all_before {
                behind = Some((first_released, index));
            }
            longest = longest.into_iter().chain(candidate).min();
        }
        draft.cooled_until(behind);
        if let Some((_, _, address)) = longest {
            return Some(Range::single(address));
        }
        let length = selection.prefix_length?;
        self.find_block(draft, Blocks::Yielding(length), |pools, has_nothing| {
            self.find_yielding(pools, draft, selection, has_nothing)
        })
    }

    /// The lowest block of these pools, in drawing order, with nothing but free and cooling addresses, in not too many
    /// pieces. Reports each pool that has no such block at all for this draft.
    fn find_yielding(
        &self,
        pools: &PoolSet,
        draft: &Draft<'_>,
        selection: &Selection,
        has_nothing: &mut dyn FnMut(usize),
    ) -> Option<Range> {
        let mut more = YIELDED_BLOCKS_MORE;
        pools.find_in(selection.sets_of(self), |index| {
            let pool = &self.layout.pools[index];
            let family = pool.range.family();
            let order = selection.order(family).filter(|order| *order > 0)?;
            let space = pool.yielding.as_ref()?;
            let mut from = pool.range.first().bits();
            let mut found = lowest(space, draft, family, order, from);
            if found.is_none() {
                has_nothing(index);
            }
            loop {
                let range = block(family, found?, order);
                if self.holdings.overlapping(range).take(YIELDED_PIECES_MAX + 1).count() <= YIELDED_PIECES_MAX {
                    return Some(range);
                }
                more = more.checked_sub(1)?;
                from = range.last().bits().checked_add(1)?;
                found = lowest(space, draft, family, order, from);
            }
        })
    }

    /// Do these pools have a block with nothing but free and cooling addresses? If a search found none before, such a block
    /// cools in too many pieces.
    pub(super) fn has_yielding_block(&self, draft: &Draft<'_>, selection: &Selection) -> bool {
        self.config.cooldown_yields
            && self.layout.open.intersection(selection.sets_of(self)).any(|index| {
                let pool = &self.layout.pools[index];
                let family = pool.range.family();
                let order = selection.order(family).filter(|order| *order > 0);
                order.zip(pool.yielding.as_ref()).is_some_and(|(order, space)| {
                    lowest(space, draft, family, order, pool.range.first().bits()).is_some()
                })
            })
    }

    /// The lowest address of a cooling entry that may be granted, if there is one.
    fn yielding_address(&self, draft: &Draft<'_>, pool: &PoolSpace, bits: u128) -> Option<Address> {
        let family = pool.range.family();
        let address = Address::new(family, bits);
        let entry = self.holdings.at(address)?;
        let range = covered(address, entry.prefix_length()).intersection(pool.range)?;
        let first = lowest_within(pool.yielding.as_ref()?, draft, family, range.first().bits(), range.last().bits())?;
        (!draft.has_let_go(address)).then(|| Address::new(family, first))
    }
}

/// The lowest free block at or after `from` that the draft has not taken.
fn lowest(space: &Space, draft: &Draft<'_>, family: Family, order: u8, from: u128) -> Option<u128> {
    let mut from = from;
    loop {
        let first = space.lowest(order, from)?;
        match draft.taken_until(block(family, first, order)) {
            None => return Some(first),
            Some(end) => from = end.bits().max(first).checked_add(1)?,
        }
    }
}

/// The lowest free number of a range that the draft has not taken. Looks at nothing after the range.
fn lowest_within(space: &Space, draft: &Draft<'_>, family: Family, first: u128, last: u128) -> Option<u128> {
    let mut from = first;
    loop {
        // This comes first because most of what a request meets is what it has already taken itself.
        if let Some(end) = draft.taken_until(block(family, from, 0)) {
            from = end.bits().checked_add(1).filter(|next| *next <= last)?;
        }
        let found = space.lowest(0, from).filter(|found| *found <= last)?;
        if draft.taken(block(family, found, 0)).is_none() {
            return Some(found);
        }
        from = found;
    }
}

/// The draws for the next grant of a draft. All draws come from the entropy of one request, so each grant must use others:
/// with the same ones, a large acquire would keep meeting what it took itself and fall back to the lowest addresses.
fn draws(draft: &Draft<'_>) -> impl Iterator<Item = u128> {
    let (first, entropy) = (draft.granted() as u64 * DRAWS_MAX, draft.context.entropy);
    (first..first + DRAWS_MAX).map(move |draw| mixed(entropy, draw))
}

/// Any free address, each equally likely.
fn random(space: &Space, draft: &Draft<'_>, family: Family) -> Option<u128> {
    let free = space.free();
    // If a draw meets what this request already took, it draws again; after a few draws it takes the next free one.
    draws(draft)
        .filter_map(|draw| space.nth_free(draw % free))
        .find(|&first| draft.taken(block(family, first, 0)).is_none())
        .or_else(|| lowest(space, draft, family, 0, space.first()))
}

/// The first free block after a random place.
fn random_block(pool: &PoolSpace, draft: &Draft<'_>, order: u8) -> Option<u128> {
    let (family, first) = (pool.range.family(), pool.range.first().bits());
    let start = first + draws(draft).next().unwrap_or_default() % pool.range.size();
    lowest(&pool.free, draft, family, order, start).or_else(|| lowest(&pool.free, draft, family, order, first))
}

/// Never used addresses first, then those freed longest ago.
fn oldest(pool: &PoolSpace, draft: &Draft<'_>, order: u8) -> Option<u128> {
    let (family, first) = (pool.range.family(), pool.range.first().bits());
    let fresh = pool.fresh.as_ref()?;
    lowest(fresh, draft, family, order, first).or_else(|| {
        if order > 0 {
            let fits = |(_, start, end): &(Rank, u128, u128)| end - start >= (1 << order) - 1;
            let mut aged = pool.rested.iter().take(RESTED_LOOKED_AT_MAX).filter(fits);
            let within = |(_, start, end)| {
                let found = lowest(&pool.free, draft, family, order, start)?;
                (found + ((1 << order) - 1) <= end).then_some(found)
            };
            return aged.find_map(within).or_else(|| lowest(&pool.free, draft, family, order, first));
        }
        let place = draft.searched(pool.range.first(), Freed::Rested);
        pool.rested.behind(place).find_map(|(rank, start, end)| {
            let found = lowest_within(&pool.free, draft, family, start, end);
            if found.is_none() {
                draft.nothing_left(pool.range.first(), Freed::Rested, (rank, start));
            }
            found
        })
    })
}
