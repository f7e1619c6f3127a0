//! What lies at the addresses of a network, found by address, slot, owner, scope, time.

use std::collections::BTreeMap;

use super::Standing;
use crate::core::address::{Address, Range};
use crate::core::state::Entry;

/// Entries by address.
#[derive(Debug, Clone, Default)]
pub(super) struct Holdings {
    entries: BTreeMap<Address, Entry>,
}

impl Holdings {
    pub(super) fn standing_in(&self, range: Range) -> Standing {
        let _ = (&self.entries, range);
        Standing::default()
    }

    pub(super) fn entries_in(&self, range: Range) -> Vec<(Address, Entry)> {
        self.entries.range(range.first()..=range.last()).map(|(address, entry)| (*address, entry.clone())).collect()
    }
}
