//! Freed addresses past their cooldown, in the order in which they were freed: the memory of the policy `oldest`.
//!
//! It is kept in memory only, and `layout` bounds it; what is forgotten counts as never used. It has ranges rather than
//! addresses, so that a freed block costs no more than an address.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::core::types::ShardTime;

/// When a range was freed. The counter orders what was freed in one millisecond.
pub(super) type Rank = (ShardTime, u64);

/// Ranges by rank and by address.
#[derive(Debug, Clone, Default)]
pub(super) struct Rested {
    by_rank: BTreeMap<(Rank, u128), u128>,
    by_address: BTreeMap<u128, (u128, Rank)>,
}

impl Rested {
    /// Remembers a range, in place of whatever was remembered of it before.
    pub(super) fn add(&mut self, rank: Rank, first: u128, last: u128) {
        self.remove(first, last);
        self.by_rank.insert((rank, first), last);
        self.by_address.insert(first, (last, rank));
    }

    /// Forgets a range; of remembered ranges that reach beyond it, the rest stays.
    pub(super) fn remove(&mut self, first: u128, last: u128) {
        if self.by_address.is_empty() {
            // This is the case at every grant in networks whose policy is not `oldest`.
            return;
        }
        let from = self.by_address.range(..=first).next_back().map_or(first, |(&start, _)| start);
        let hit: Vec<_> = self
            .by_address
            .range(from..=last)
            .filter(|(_, (end, _))| *end >= first)
            .map(|(&start, &(end, rank))| (start, end, rank))
            .collect();
        for (start, end, rank) in hit {
            self.by_address.remove(&start);
            self.by_rank.remove(&(rank, start));
            if start < first {
                self.by_address.insert(start, (first - 1, rank));
                self.by_rank.insert((rank, start), first - 1);
            }
            if end > last {
                self.by_address.insert(last + 1, (end, rank));
                self.by_rank.insert((rank, last + 1), end);
            }
        }
    }

    /// All ranges, the one freed longest ago first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Rank, u128, u128)> {
        self.behind(None)
    }

    /// The ranges after this one, or all of them.
    pub(super) fn behind(&self, place: Option<(Rank, u128)>) -> impl Iterator<Item = (Rank, u128, u128)> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_rank.range((from, Bound::Unbounded)).map(|(&(rank, first), &last)| (rank, first, last))
    }

    /// How many ranges there are.
    pub(super) fn len(&self) -> usize {
        self.by_rank.len()
    }

    /// When the oldest range was freed.
    pub(super) fn since(&self) -> Option<Rank> {
        self.by_rank.first_key_value().map(|(&(rank, _), _)| rank)
    }

    /// Forgets the range that was freed longest ago, and returns it.
    pub(super) fn forget_oldest(&mut self) -> Option<(u128, u128)> {
        let (&(_, first), &last) = self.by_rank.first_key_value()?;
        self.remove(first, last);
        Some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(at: u64) -> Rank {
        (ShardTime(at), at)
    }

    #[test]
    fn the_part_that_was_not_taken_keeps_its_place_in_the_order() {
        let mut rested = Rested::default();
        rested.add(rank(1), 16, 31);
        rested.add(rank(2), 40, 40);
        rested.remove(20, 20);
        let order: Vec<_> = rested.iter().map(|(_, first, last)| (first, last)).collect();
        assert_eq!(order, [(16, 19), (21, 31), (40, 40)]);
    }

    #[test]
    fn what_is_freed_again_goes_to_the_end() {
        let mut rested = Rested::default();
        rested.add(rank(1), 5, 5);
        rested.add(rank(2), 6, 6);
        rested.add(rank(3), 5, 5);
        assert_eq!(rested.iter().map(|(_, first, _)| first).collect::<Vec<_>>(), [6, 5]);
    }
}
