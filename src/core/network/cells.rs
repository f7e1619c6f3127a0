//! `network.map` in cells: counts of what is held, free and neither, cell by cell and one slice at a time.
//!
//! Held addresses are counted entry by entry, and a network may have a million. So a slice ends after a number of entries,
//! even in the middle of a cell, and the next slice goes on there (`coordinator::maps`). Each slice counts its addresses as
//! they are at that time.
//!
//! Before: `read`.

use super::Network;
use super::holdings::covered;
use crate::core::address::{Address, Cidr, Range, host_mask};
use crate::core::command::{CellSize, MapPlace};
use crate::core::outcome::{Drawing, Outcome, PoolMap};
use crate::core::refusal::Refusal;
use crate::core::state::Entry;
use crate::limits::MAP_SLICE_RECORDS_MAX;

/// First address, then the counts of held, reserved (including cooling and declined) and free addresses.
type Cell = (Address, u128, u128, u128);

impl Network {
    /// A slice of the cells of these pools. It is empty if the configuration has changed since the slice before.
    ///
    /// Cost: O(log) for each cell and each entry that is looked at, [`MAP_SLICE_RECORDS_MAX`] of both together at most.
    pub(super) fn map_cells(
        &self,
        pools: &[usize],
        size: CellSize,
        from: Option<&MapPlace>,
    ) -> Result<Outcome, Refusal> {
        let version = self.config.version;
        let (mut drawn, mut next, mut left) = (Vec::new(), None, MAP_SLICE_RECORDS_MAX);
        let is_of = |index: usize| from.is_none_or(|from| self.layout.pools[index].range == from.pool);
        let begins = pools.iter().position(|index| is_of(*index)).unwrap_or(pools.len());
        let pools = if from.is_some_and(|from| from.version != version) { &[] } else { &pools[begins..] };
        for (place, &index) in pools.iter().enumerate() {
            let range = self.layout.pools[index].range;
            let (width, prefix_length) = (range.family().width(), size.prefix_length(range));
            if prefix_length > width {
                let problem = format!("must be 0 to {width} for pool {range}");
                return Err(Refusal::invalid("cell_prefix_length", problem));
            }
            let at = from.filter(|_| place == 0).map_or(range.first(), |from| from.at);
            if left == 0 {
                next = Some(Box::new(MapPlace { version, pool: range, at }));
                break;
            }
            let (cells, ended) = self.draw_cells(index, prefix_length, at, &mut left);
            let name = self.pool_config(index).name.clone();
            drawn.push(PoolMap { range, name, drawing: Drawing::Cells { prefix_length, cells } });
            if let Some(at) = ended {
                next = Some(Box::new(MapPlace { version, pool: range, at }));
                break;
            }
            left = left.saturating_sub(1);
        }
        Ok(Outcome::Map { pools: drawn, version, next })
    }

    /// Cells of a pool, from an address on, in which something is taken. Also returns where the slice ended if that is
    /// before the end of the pool; the rest of the last cell is then not counted yet.
    fn draw_cells(
        &self,
        index: usize,
        prefix_length: u8,
        from: Address,
        left: &mut usize,
    ) -> (Vec<Cell>, Option<Address>) {
        let space = &self.layout.pools[index];
        let (family, last) = (space.range.family(), space.range.last().bits());
        let host_bits = host_mask(family.width() - prefix_length);
        let base_of = |bits| Cidr::containing(Address::new(family, bits), prefix_length).base().bits();
        let begin_of = |bits| base_of(bits).max(space.range.first().bits());
        let mut cells = Vec::new();
        let mut at = from.bits();
        // In the middle of a cell, something was taken in its first part.
        let mut is_inside = at > begin_of(at);
        loop {
            if !is_inside {
                let taken = |&(_, _, taken): &(u128, u128, bool)| taken;
                let next = if space.draining { Some(at) } else { space.free.runs(at).find(taken).map(|run| run.0) };
                let Some(taken) = next else { return (cells, None) };
                at = begin_of(taken).max(at);
            }
            if *left == 0 {
                return (cells, Some(Address::new(family, at)));
            }
            let end = (base_of(at) | host_bits).min(last);
            let (held, counted) = self.held_in(Range::of_bits(family, at, end), left);
            let free = if space.draining { 0 } else { space.free.free_in(at, counted) };
            let reserved = counted - at + 1 - held - free;
            cells.push((Address::new(family, base_of(at)), held, reserved, free));
            is_inside = counted < end;
            at = match counted.checked_add(1) {
                Some(next) if next <= last => next,
                _ => return (cells, None),
            };
        }
    }

    /// The number of held addresses in a range, and the address up to which they were counted: its end, or as far as the
    /// slice may look.
    fn held_in(&self, range: Range, left: &mut usize) -> (u128, u128) {
        *left = left.saturating_sub(1);
        let mut held = 0;
        for (address, entry) in self.holdings.overlapping(range) {
            let Some(part) = covered(address, entry.prefix_length()).intersection(range) else { continue };
            if matches!(entry, Entry::Held(_)) {
                held += part.size();
            }
            *left = left.saturating_sub(1);
            if *left == 0 {
                return (held, part.last().bits());
            }
        }
        (held, range.last().bits())
    }
}
