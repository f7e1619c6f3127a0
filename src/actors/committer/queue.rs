//! The queue of units that wait for the next group. A group takes them fairly over networks, bounded by changes and by bytes.
//!
//! Bytes are an upper estimate (`store::size`): units that are legal one by one must not add up to more than a store can write at
//! once. A unit that is longer than a group is a group of its own.

use std::collections::{HashMap, HashSet, VecDeque};

use super::unit::{Unit, UnitPart};
use crate::core::types::NetworkId;
use crate::limits::{BATCH_BYTES_MAX, BATCH_CHANGES_MAX};

/// In the order in which they came.
#[derive(Debug, Default)]
pub(super) struct UnitQueue {
    units: VecDeque<Unit>,
    changes: usize,
    bytes: usize,
}

impl UnitQueue {
    pub(super) fn push(&mut self, unit: Unit) {
        self.changes += unit.changes();
        self.bytes += unit.bytes();
        self.units.push_back(unit);
    }

    /// Changes of all that wait.
    pub(super) fn changes(&self) -> usize {
        self.changes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    pub(super) fn take_all(&mut self) -> Vec<Unit> {
        (self.changes, self.bytes) = (0, 0);
        self.units.drain(..).collect()
    }

    /// Units of the next group: all where they fit, else a fair share of each network first, then more in order.
    pub(super) fn next_group(&mut self) -> Vec<Unit> {
        if self.changes <= BATCH_CHANGES_MAX && self.bytes <= BATCH_BYTES_MAX {
            return self.take_all();
        }
        let networks: HashSet<NetworkId> = self.units.iter().flat_map(|u| u.parts.iter().map(|p| p.lane.id)).collect();
        let share = |whole: usize| (whole / networks.len().max(1)).max(1);
        let mut taken = Vec::new();
        let (mut room, mut room_bytes) = (BATCH_CHANGES_MAX, BATCH_BYTES_MAX);
        let whole = (BATCH_CHANGES_MAX, BATCH_BYTES_MAX);
        for quota in [(share(whole.0), share(whole.1)), whole] {
            let mut used: HashMap<NetworkId, (usize, usize)> = HashMap::new();
            // A network that was passed over once in this round is passed over to its end: its order stays.
            let mut blocked: HashSet<NetworkId> = HashSet::new();
            let mut kept = VecDeque::with_capacity(self.units.len());
            for unit in self.units.drain(..) {
                let (changes, bytes) = (unit.changes(), unit.bytes());
                let over = |part: &UnitPart| {
                    blocked.contains(&part.lane.id)
                        || (used.get(&part.lane.id))
                            .is_some_and(|u| u.0 + part.changes > quota.0 || u.1 + part.bytes > quota.1)
                };
                let fits = (changes <= room && bytes <= room_bytes) || taken.is_empty();
                if !fits || unit.parts.iter().any(over) {
                    blocked.extend(unit.parts.iter().map(|part| part.lane.id));
                    kept.push_back(unit);
                    continue;
                }
                for part in &unit.parts {
                    let used = used.entry(part.lane.id).or_default();
                    *used = (used.0 + part.changes, used.1 + part.bytes);
                }
                room = room.saturating_sub(changes);
                room_bytes = room_bytes.saturating_sub(bytes);
                self.changes -= changes;
                self.bytes -= bytes;
                taken.push(unit);
            }
            self.units = kept;
        }
        taken
    }
}

#[cfg(test)]
mod tests;
