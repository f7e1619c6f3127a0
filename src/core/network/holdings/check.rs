//! Compares every index with the entries. For tests and debug builds, because it costs as much as loading.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use super::promised::{Promised, taker_of};
use super::{Holdings, covered};
use crate::core::address::Range;
use crate::core::state::Entry;

impl Holdings {
    /// Compares every index with the entries; the error says what differs.
    pub(in crate::core::network) fn check(&self) -> Result<(), String> {
        let live = self.records.count();
        if live != self.len() {
            return Err(format!("{live} records, {} addresses", self.len()));
        }
        let mut last: Option<Range> = None;
        let mut held = 0;
        let mut chained = 0;
        let mut promised = Promised::default();
        for (address, entry) in self.ascending(std::ops::Bound::Unbounded) {
            let range = covered(address, entry.prefix_length());
            if range.first() != address {
                return Err(format!("{address} is not the first of its block"));
            }
            if last.is_some_and(|last| last.overlaps(range)) {
                return Err(format!("{range} overlaps the entry before it"));
            }
            last = Some(range);
            if let Entry::Released(released) = entry
                && !self.cools(self.hasher.hash_one(&released.last))
            {
                return Err(format!("{} is not noted to have let {address} go", released.last));
            }
            if let Entry::Declined(declined) = entry {
                promised.breaks(address, declined);
            }
            if let Entry::Held(reservation) = entry {
                held += 1;
                promised.note(reservation);
                if let Some(taker) = taker_of(reservation) {
                    let holds = self.slot(&taker).is_some();
                    promised.add(taker, holds);
                }
                if reservation.obsolete.is_none()
                    && self.slot(&reservation.holder).map(|found| found.0) != Some(address)
                {
                    return Err(format!("slot of {} does not lead to {address}", reservation.holder));
                }
                let of_owner = self.of_owner(&reservation.holder.scope, &reservation.holder.owner);
                let (mut found, mut current) = (false, 0);
                for (other, theirs) in of_owner {
                    found |= other == address;
                    current += u64::from(theirs.obsolete.is_none());
                }
                if !found || current != self.owner_count(&reservation.holder.scope, &reservation.holder.owner) {
                    return Err(format!("chain of owner {} is wrong at {address}", reservation.holder));
                }
            }
        }
        let hashes: BTreeSet<u64> = self.cooling_slots.iter().map(|(hash, ..)| *hash).collect();
        if hashes.len() != self.cooling_hashes.len() {
            return Err(format!("{} slots let something go, {} are noted", hashes.len(), self.cooling_hashes.len()));
        }
        for scope in self.scope_names() {
            chained += self.of_scope(scope).count() as u64;
        }
        if held != self.held || chained != held {
            return Err(format!("{held} held, {} counted, {chained} chained", self.held));
        }
        if promised != self.promised {
            return Err(format!("promises are {promised:?}, noted as {:?}", self.promised));
        }
        Ok(())
    }
}
