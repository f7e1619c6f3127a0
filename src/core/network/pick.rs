//! Which address a request gets: the order of pools, the policy inside a pool, and the exceptions.
//!
//! Before: `selection` looks up what a wish names. After: `draft` grants what was picked.
//!
//! In order: an address kept for this owner; the address that this slot let go a short time ago; pool by pool in drawing
//! order, the policy inside a pool; at last, where cooling addresses yield, the one that cools longest. Cost is O(log) of
//! the pools' sizes and one step per 64 pools; it does not depend on how full anything is.
//!
//! Blocks follow the same order with two simplifications: under `oldest`, behind never used ones, the block that lies in the
//! range freed longest ago, of a bounded number, else the lowest; where cooling addresses yield, the lowest block that holds
//! nothing but free and cooling ones, in not too many pieces.

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

/// Cooling pieces that a yielding block may displace.
pub(super) const YIELDED_PIECES_MAX: usize = 256;
/// So many blocks beyond the first one of each pool are looked at for one that cools in no more pieces.
const YIELDED_BLOCKS_MORE: usize = 16;

/// Of what a slot let go and cools, the last so many are looked at for one that fits the wish. A script that claims and lets go
/// under one name leaves any number.
pub(super) const OWN_COOLING_LOOKED_AT_MAX: usize = 256;

/// Freed ranges among which it is looked for the oldest that holds a block; behind them comes the lowest block.
const RESTED_LOOKED_AT_MAX: usize = 256;

/// Draws of one grant that may meet what the same request took already.
const DRAWS_MAX: u64 = 16;

/// What was chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Picked {
    pub(super) range: Range,
    /// Nothing lies there. Otherwise something may cool in it, and has to be cleared.
    pub(super) is_free: bool,
}

/// May what a slot let go be of the object that asks in its name? Two objects of one name are two owners.
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

    fn pick_kept(
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

    /// The addresses that are reserved for a slot: it gets them first.
    pub(super) fn kept_for(&self, holder: &SlotKey) -> impl Iterator<Item = Address> {
        let of_owner = || self.layout.kept_for.get(&(holder.scope.clone(), holder.owner.clone()));
        let kept = if self.layout.kept_for.is_empty() { None } else { of_owner() };
        let of_slot = kept.into_iter().flatten().filter(|(slot, _)| slot.as_ref().is_none_or(|s| *s == holder.slot));
        of_slot.map(|(_, address)| *address)
    }

    /// Do the filters of a wish let this address pass?
    fn admits(&self, selection: &Selection, address: Address) -> bool {
        let in_pools = |set: &Option<PoolSet>| {
            set.as_ref().is_none_or(|set| self.layout.pool_of(address).is_some_and(|index| set.contains(index)))
        };
        let subnet = self.layout.subnet_of(address);
        selection.family.is_none_or(|family| family == address.family())
            && (selection.subnet.is_none() || selection.subnet == subnet)
            && in_pools(&selection.pool)
            // A kept address may lie outside every pool; its subnet decides.
            && (selection.zone_name.as_ref())
                .is_none_or(|zone| subnet.is_some_and(|index| self.subnets[index].serves(zone)))
    }

    /// Of several, the one let go last: what the machine had most recently.
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

    /// Looks for a block in the open pools, but for those that this request looked through in vain for others of that kind: each of
    /// hundreds would look again through thousands of pools that have none. `find` tells of each that has nothing.
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

    /// The first that is free in one of these pools, in drawing order; tells of each that has nothing, for this draft.
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
        // Single addresses: the one that cools longest, over all pools that may be drawn from. Pools come in the order of
        // what cools longest in each, so that as a rule the first one has it.
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

    /// The lowest block of one of these pools, in drawing order, that holds nothing but free and cooling addresses, in not too many
    /// pieces; tells of each that has none at all, for this draft.
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

    /// Is there a block in one of these pools that holds nothing but free and cooling addresses? Behind a search in vain: one that cools
    /// in too many pieces.
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

    /// The lowest address of a cooling entry that may be given, if any.
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

/// The lowest free number of a range that the draft has not taken. Looks at nothing behind the range.
fn lowest_within(space: &Space, draft: &Draft<'_>, family: Family, first: u128, last: u128) -> Option<u128> {
    let mut from = first;
    loop {
        // Asked first: of what one request takes, most is what it has taken already.
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

/// The draws of the next grant of a draft: each grant has its own, for all come from the entropy of one request. With the
/// same draws for each, a large acquire would meet what it took itself, and go on with the lowest addresses.
fn draws(draft: &Draft<'_>) -> impl Iterator<Item = u128> {
    let (first, entropy) = (draft.granted() as u64 * DRAWS_MAX, draft.context.entropy);
    (first..first + DRAWS_MAX).map(move |draw| mixed(entropy, draw))
}

/// Any free address, each as likely as the other.
fn random(space: &Space, draft: &Draft<'_>, family: Family) -> Option<u128> {
    let free = space.free();
    // A draw that meets what this request took already is drawn again; a few draws, then the next free one.
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

/// Never used first, then what was freed longest ago.
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
