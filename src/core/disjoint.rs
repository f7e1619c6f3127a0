//! Ranges that never overlap, found by address: the search behind every `overlap` refusal.
//!
//! It knows only the order of the ranges; what a range belongs to is the caller's business. A search costs O(log n),
//! whatever the size of the ranges. Users: `catalog` (prefixes of a realm), `network::configure` (subnets of a network,
//! pools of a subnet).

use std::collections::BTreeMap;

use super::address::{Address, Range};

/// Disjoint ranges, each with a value.
#[derive(Debug, Clone)]
pub(crate) struct Disjoint<T> {
    by_first: BTreeMap<Address, (Range, T)>,
}

impl<T> Default for Disjoint<T> {
    fn default() -> Self {
        Self { by_first: BTreeMap::new() }
    }
}

impl<T> Disjoint<T> {
    /// Are there no ranges?
    pub(crate) fn is_empty(&self) -> bool {
        self.by_first.is_empty()
    }

    /// The ranges that overlap this one, in address order.
    pub(crate) fn overlapping(&self, range: Range) -> impl Iterator<Item = (Range, &T)> {
        let before =
            self.by_first.range(..range.first()).next_back().filter(move |(_, (found, _))| found.overlaps(range));
        let inside = self.by_first.range(range.first()..=range.last());
        before.into_iter().chain(inside).map(|(_, (found, value))| (*found, value))
    }

    /// The value of exactly this range.
    pub(crate) fn get_mut(&mut self, range: Range) -> Option<&mut T> {
        self.by_first.get_mut(&range.first()).filter(|(found, _)| *found == range).map(|(_, value)| value)
    }

    /// Adds a range that overlaps no existing one.
    pub(crate) fn insert(&mut self, range: Range, value: T) {
        debug_assert!(self.overlapping(range).next().is_none(), "{range} overlaps what is there");
        self.by_first.insert(range.first(), (range, value));
    }

    /// Removes exactly this range.
    pub(crate) fn remove(&mut self, range: Range) -> Option<T> {
        self.get_mut(range)?;
        self.by_first.remove(&range.first()).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found_in_address_order_and_nothing_else_is() {
        let range = |text: &str| text.parse::<Range>().unwrap();
        let mut ranges = Disjoint::default();
        for text in ["10.0.0.0/24", "10.0.2.0/24", "10.0.4.0-10.0.4.9", "2001:db8::/32"] {
            ranges.insert(range(text), text);
        }
        for (asked, expected) in [
            ("10.0.0.0/16", vec!["10.0.0.0/24", "10.0.2.0/24", "10.0.4.0-10.0.4.9"]),
            ("10.0.0.255-10.0.2.0", vec!["10.0.0.0/24", "10.0.2.0/24"]),
            ("10.0.1.0/24", vec![]),
            ("10.0.4.9", vec!["10.0.4.0-10.0.4.9"]),
            ("10.0.4.10", vec![]),
            ("2001:db8::5", vec!["2001:db8::/32"]),
            ("0.0.0.0/0", vec!["10.0.0.0/24", "10.0.2.0/24", "10.0.4.0-10.0.4.9"]),
        ] {
            let found: Vec<&str> = ranges.overlapping(range(asked)).map(|(_, text)| *text).collect();
            assert_eq!(found, expected, "{asked}");
        }
        assert_eq!(ranges.remove(range("10.0.0.0/25")), None);
        assert_eq!(ranges.remove(range("10.0.0.0/24")), Some("10.0.0.0/24"));
        assert_eq!(ranges.overlapping(range("10.0.0.0/24")).count(), 0);
    }
}
