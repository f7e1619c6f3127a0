//! The entries of the journal in order, with an index of the entries of each shard: a take-over asks only for the entries of
//! its shard, and a register has many shards.
//!
//! Pure. The moves of an entry never change while it is in here.

use std::collections::VecDeque;
use std::ops::RangeBounds;

use super::{JournalEntry, Move};
use crate::store::ShardId;

/// An index keeps room for this many places even when it is empty.
const PLACES_KEPT: usize = 64;

/// Which entry moves a shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Number of the entry; entries that were removed from the front count as well.
    number: u64,
    /// Which of the moves of the entry it is.
    at: usize,
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    queue: VecDeque<JournalEntry>,
    /// How many entries were removed from the front.
    gone: u64,
    /// For each shard, oldest first.
    places: Vec<VecDeque<Place>>,
    /// How many entries were looked at for a shard.
    #[cfg(test)]
    pub(super) looked: std::cell::Cell<usize>,
}

impl Entries {
    pub(super) fn push_back(&mut self, entry: JournalEntry) {
        let number = self.gone + self.queue.len() as u64;
        for (at, one) in entry.moves.iter().enumerate() {
            let shard = usize::from(one.shard.0);
            if self.places.len() <= shard {
                self.places.resize_with(shard + 1, VecDeque::new);
            }
            self.places[shard].push_back(Place { number, at });
        }
        self.queue.push_back(entry);
    }

    pub(super) fn pop_front(&mut self) -> Option<JournalEntry> {
        let entry = self.queue.pop_front()?;
        self.gone += 1;
        for one in &entry.moves {
            let places = &mut self.places[usize::from(one.shard.0)];
            places.pop_front();
            // The room that each shard once needed would add up, so an index shrinks with its content.
            if places.capacity() > PLACES_KEPT && places.len() < places.capacity() / 4 {
                places.shrink_to(2 * places.len());
            }
        }
        Some(entry)
    }

    pub(super) fn pop_back(&mut self) -> Option<JournalEntry> {
        let entry = self.queue.pop_back()?;
        for one in &entry.moves {
            self.places[usize::from(one.shard.0)].pop_back();
        }
        Some(entry)
    }

    /// Removes and returns all entries from the `at`-th on, in order.
    pub(super) fn split_off(&mut self, at: usize) -> Vec<JournalEntry> {
        let mut taken: Vec<JournalEntry> = Vec::with_capacity(self.len().saturating_sub(at));
        while self.len() > at {
            taken.extend(self.pop_back());
        }
        taken.reverse();
        taken
    }

    pub(super) fn remove(&mut self, at: usize) {
        let behind = self.split_off(at);
        behind.into_iter().skip(1).for_each(|entry| self.push_back(entry));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The moves of one shard, each with the index of its entry.
    pub(super) fn of_shard(&self, shard: ShardId) -> impl DoubleEndedIterator<Item = (usize, Move)> + '_ {
        let places = self.places.get(usize::from(shard.0)).into_iter().flatten();
        places.map(|place| {
            #[cfg(test)]
            self.looked.set(self.looked.get() + 1);
            let at = (place.number - self.gone) as usize;
            (at, self.queue[at].moves[place.at])
        })
    }

    /// The shards that were ever moved.
    pub(super) fn shards(&self) -> impl Iterator<Item = ShardId> {
        (0..self.places.len()).map(|shard| ShardId(shard as u16))
    }

    pub(super) fn get(&self, at: usize) -> &JournalEntry {
        &self.queue[at]
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut JournalEntry {
        &mut self.queue[at]
    }

    pub(super) fn front(&self) -> Option<&JournalEntry> {
        self.queue.front()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &JournalEntry> + ExactSizeIterator {
        self.queue.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut JournalEntry> {
        self.queue.iter_mut()
    }

    pub(super) fn range(&self, which: impl RangeBounds<usize>) -> impl DoubleEndedIterator<Item = &JournalEntry> {
        self.queue.range(which)
    }

    pub(super) fn range_mut(&mut self, which: impl RangeBounds<usize>) -> impl Iterator<Item = &mut JournalEntry> {
        self.queue.range_mut(which)
    }
}

impl FromIterator<JournalEntry> for Entries {
    fn from_iter<I: IntoIterator<Item = JournalEntry>>(entries: I) -> Self {
        let mut all = Self::default();
        entries.into_iter().for_each(|entry| all.push_back(entry));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{call, point, step};
    use super::super::{Journal, Point};
    use super::*;
    use crate::store::{Epoch, Token};

    /// Found by going through all entries.
    fn of_shard(journal: &Journal, shard: ShardId) -> Vec<(usize, Move)> {
        let moved =
            |(at, entry): (usize, &JournalEntry)| Some((at, *entry.moves.iter().find(|one| one.shard == shard)?));
        journal.entries.iter().enumerate().filter_map(moved).collect()
    }

    fn taken(shard: u16, before: Point, token: u128) -> Move {
        Move { shard: ShardId(shard), before, after: Point { token: Token(token), ..before } }
    }

    /// Three shards that are taken over now and then, with calls that move several of them, some of which are replaced, cut
    /// off or trimmed.
    #[test]
    fn what_is_of_a_shard_is_found_whatever_was_taken_out_before_and_between() {
        for bytes_max in [0, 5_000, 1 << 20] {
            let mut journal = Journal::new(bytes_max);
            let mut stands = [point(1, 5), point(1, 5), point(1, 5)];
            for round in 0..300_u64 {
                let (shard, token) = (round as u16 % 3, u128::from(round + 2));
                let at = usize::from(shard);
                match round % 7 {
                    0 => {
                        journal.took(taken(shard, stands[at], token), Epoch(round));
                        stands[at] = Point { token: Token(token), ..stands[at] };
                    }
                    5 if round % 5 == 0 => journal.cut(&[(ShardId(shard), stands[at])]),
                    6 if round % 11 == 0 => journal.let_go(),
                    kind => {
                        let others = if kind == 1 { vec![0, 1, 2] } else { vec![shard] };
                        let moved = |shard: u16| {
                            let Point { token, seq, .. } = stands[usize::from(shard)];
                            step(shard, token.0, seq.0 + 1)
                        };
                        let mut moves: Vec<Move> = others.into_iter().map(moved).collect();
                        if kind == 4 {
                            // Another call takes the number of this one, which was not applied.
                            journal.sends(&call(), moves.clone());
                            moves[0].after.digest.0 += 1;
                        }
                        journal.sends(&call(), moves.clone());
                        if kind != 2 {
                            journal.applied(&moves);
                            moves.iter().for_each(|one| stands[usize::from(one.shard.0)] = one.after);
                        }
                    }
                }
                for shard in [0, 1, 2, 9].map(ShardId) {
                    let found: Vec<(usize, Move)> = journal.entries.of_shard(shard).collect();
                    assert_eq!(found, of_shard(&journal, shard), "round {round} of {bytes_max}");
                }
            }
            assert!(bytes_max == 0 || journal.entries.len() > 5);
            assert_eq!(bytes_max == 5_000, journal.entries.gone > 0);
        }
    }

    #[test]
    fn shards_that_are_busy_one_after_the_other_take_no_more_room_than_one_that_always_is() {
        let mut journal = Journal::new(1 << 20);
        for shard in 0..8 {
            for seq in 6..10_006 {
                journal.sends(&call(), vec![step(shard, 2, seq)]);
                journal.applied(&[step(shard, 2, seq)]);
            }
        }
        let room: usize = journal.entries.places.iter().map(VecDeque::capacity).sum();
        let there = journal.entries.len();
        assert!(there > 500 && room <= 4 * there + 8 * PLACES_KEPT, "{room} places for {there} entries");
    }

    /// A register has many shards, and they are taken one after another.
    #[test]
    fn whoever_takes_a_shard_goes_through_what_is_of_that_one_and_not_through_the_rest() {
        let mut journal = Journal::new(1 << 20);
        for seq in 6..1_006 {
            journal.sends(&call(), vec![step(1, 2, seq)]);
        }
        journal.took(taken(0, point(1, 5), 2), Epoch(2));
        journal.sends(&call(), vec![step(0, 2, 6)]);
        let (shard, takes) = (ShardId(0), super::super::Takes::default());
        let asks: [&dyn Fn(&mut Journal); 7] = [
            &|journal| assert!(!journal.is_own(shard, Token(9))),
            &|journal| assert!(!journal.knows(shard, point(9, 6))),
            &|journal| assert!(!journal.leads(shard, point(9, 5), point(2, 6))),
            &|journal| assert!(journal.doubts(shard)),
            &|journal| assert!(journal.found(shard, &takes, &[]).is_empty()),
            &|journal| assert_eq!(journal.stretches_to(shard, point(2, 6)).0.len(), 2),
            &|journal| journal.took(taken(0, point(2, 6), 3), Epoch(3)),
        ];
        for ask in asks {
            journal.entries.looked.set(0);
            ask(&mut journal);
            assert!((1..=2).contains(&journal.entries.looked.get()), "{}", journal.entries.looked.get());
        }
    }
}
