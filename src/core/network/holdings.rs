//! What lies at the addresses of a network, found by address and slot. Scans: to be replaced by indexes.

use std::collections::BTreeMap;

use super::Standing;
use crate::core::address::{Address, Cidr, Range};
use crate::core::state::{Entry, Reservation};
use crate::core::types::SlotKey;

/// Entries by address.
#[derive(Debug, Clone, Default)]
pub(super) struct Holdings {
    entries: BTreeMap<Address, Entry>,
}

impl Holdings {
    #[cfg(test)]
    pub(super) fn of_entries(entries: impl IntoIterator<Item = (Address, Entry)>) -> Self {
        Self { entries: entries.into_iter().collect() }
    }

    fn held(&self) -> impl Iterator<Item = (Address, &Reservation)> {
        self.entries.iter().filter_map(|(address, entry)| match entry {
            Entry::Held(reservation) => Some((*address, &**reservation)),
            Entry::Released(_) | Entry::Declined(_) => None,
        })
    }

    pub(super) fn standing_in(&self, range: Range) -> Standing {
        let mut standing = Standing::default();
        for (address, reservation) in self.held() {
            if Cidr::containing(address, reservation.prefix_length).range().overlaps(range) {
                standing.count += 1;
                if standing.first.len() < 10 {
                    standing.first.push(address);
                }
            }
        }
        standing
    }

    pub(super) fn entries_in(&self, range: Range) -> Vec<(Address, Entry)> {
        self.entries.range(range.first()..=range.last()).map(|(address, entry)| (*address, entry.clone())).collect()
    }

    pub(super) fn reservations(&self) -> u64 {
        self.held().count() as u64
    }

    pub(super) fn slot_holder(&self, key: &SlotKey) -> Option<Address> {
        let current =
            |(_, reservation): &(Address, &Reservation)| reservation.holder == *key && reservation.obsolete.is_none();
        self.held().find(current).map(|(address, _)| address)
    }
}
