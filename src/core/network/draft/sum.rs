//! The result of a draft's steps, by address. It serves requests with many steps, where searching all of them for each grant
//! would take time with the square of their number.

use std::collections::{BTreeMap, BTreeSet};

use super::covered;
use crate::core::address::{Address, Range};
use crate::core::state::{Entry, Key, State, Step};

/// The result of the steps so far, by address.
#[derive(Debug, Default)]
pub(super) struct Sum {
    present: BTreeMap<Address, Entry>,
    gone: BTreeSet<Address>,
}

impl Sum {
    pub(super) fn add(&mut self, step: &Step) {
        let Key::Address(address) = step.key else { return };
        if let Some(State::Entry(entry)) = &step.state {
            self.gone.remove(&address);
            self.present.insert(address, entry.clone());
        } else {
            self.present.remove(&address);
            self.gone.insert(address);
        }
    }

    /// Do the steps determine what is at this address?
    pub(super) fn knows(&self, address: Address) -> bool {
        self.present.contains_key(&address) || self.gone.contains(&address)
    }

    /// What the steps put over addresses of a range. Entries never overlap, so only the last one before the range can reach
    /// into it.
    pub(super) fn overlapping(&self, range: Range) -> impl Iterator<Item = (&Address, &Entry)> {
        let before = self.present.range(..range.first()).next_back();
        let reaches =
            move |(address, entry): &(&Address, &Entry)| covered(**address, entry.prefix_length()).overlaps(range);
        before.into_iter().filter(reaches).chain(self.present.range(range.first()..=range.last()))
    }
}
