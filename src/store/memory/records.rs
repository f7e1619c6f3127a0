//! The records of a network in memory: a map that never grows all at once.
//!
//! A plain hash table doubles in one go. With a million records this is a pause of a third of a second in the middle of a
//! commit. This map consists of as many small tables as its records fill. It adds one table at a time by splitting another
//! one (linear hashing, Litwin 1980), which takes some tenths of a millisecond whatever the size of the map.
//!
//! It never gets fewer tables: a network may come to hold again what it once held.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::core::state::{Key, State};

/// How many records a table has on average before another table is added.
const TABLE_RECORDS: usize = 1_024;

/// State by key. Finding, adding and removing cost the same at any size.
#[derive(Debug)]
pub(super) struct StateByKey {
    tables: Vec<HashTable<(Key, State)>>,
    hasher: DefaultHashBuilder,
    len: usize,
}

impl Default for StateByKey {
    fn default() -> Self {
        Self { tables: vec![HashTable::new()], hasher: DefaultHashBuilder::default(), len: 0 }
    }
}

impl StateByKey {
    pub(super) fn get(&self, key: &Key) -> Option<&State> {
        let hash = self.hasher.hash_one(key);
        self.tables[self.table_of(hash)].find(hash, |(there, _)| there == key).map(|(_, state)| state)
    }

    /// Stores a state, in place of the present one if there is any.
    pub(super) fn insert(&mut self, key: Key, state: State) {
        let hash = self.hasher.hash_one(key);
        let at = self.table_of(hash);
        let Self { tables, hasher, .. } = self;
        match tables[at].entry(hash, |(there, _)| *there == key, |(there, _)| hasher.hash_one(there)) {
            Entry::Occupied(mut there) => there.get_mut().1 = state,
            Entry::Vacant(place) => {
                place.insert((key, state));
                self.len += 1;
                if self.len > self.tables.len() * TABLE_RECORDS {
                    self.split_next();
                }
            }
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let hash = self.hasher.hash_one(key);
        let at = self.table_of(hash);
        let removed = self.tables[at].find_entry(hash, |(there, _)| there == key).map(|there| drop(there.remove()));
        self.len -= usize::from(removed.is_ok());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &State)> {
        self.tables.iter().flatten().map(|(key, state)| (key, state))
    }

    /// How many tables there were when the present round of splits began: a power of two.
    fn round(&self) -> usize {
        1 << self.tables.len().ilog2()
    }

    fn table_of(&self, hash: u64) -> usize {
        let (bits, round) = (bits_of(hash), self.round());
        let at = bits & (2 * round - 1);
        if at < self.tables.len() { at } else { bits & (round - 1) }
    }

    /// Moves half of the records of the table whose turn it is to a new one.
    fn split_next(&mut self) {
        let round = self.round();
        let turn = self.tables.len() - round;
        let Self { tables, hasher, .. } = self;
        let mut new = HashTable::with_capacity(TABLE_RECORDS);
        for record in tables[turn].extract_if(|(key, _)| bits_of(hasher.hash_one(key)) & round != 0) {
            new.insert_unique(hasher.hash_one(record.0), record, |(key, _)| hasher.hash_one(key));
        }
        tables.push(new);
    }
}

/// Different bits of a hash than those by which a table finds its places: all records of a table have these bits in common.
fn bits_of(hash: u64) -> usize {
    (hash >> 24) as usize
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::address::Address;
    use crate::core::state::Entry as Held;
    use crate::store::codec::samples;

    fn key(number: u32) -> Key {
        Key::Address(Address::V4(number.wrapping_mul(0x9e37_79b9)))
    }

    #[test]
    fn every_record_is_found_while_tables_are_split_and_none_is_when_it_is_taken_away() {
        let state = State::Entry(Held::Held(Arc::new(samples::typical())));
        let mut records = StateByKey::default();
        let count = 40 * TABLE_RECORDS as u32;
        for number in 0..count {
            records.insert(key(number), state.clone());
            // Records from before the split, including those that moved in it.
            let earlier = number / 2;
            assert!(records.get(&key(earlier)).is_some(), "{earlier} after {number}");
            assert!(records.get(&key(number + count)).is_none());
        }
        assert_eq!(records.iter().count(), count as usize);
        records.insert(key(7), state.clone());
        assert_eq!(records.iter().count(), count as usize);
        for number in 0..count {
            records.remove(&key(number));
            records.remove(&key(number));
            assert!(records.get(&key(number)).is_none());
            assert_eq!(records.is_empty(), number + 1 == count);
        }
    }

    #[test]
    fn no_table_has_to_hold_much_more_than_its_share() {
        let state = State::Entry(Held::Held(Arc::new(samples::typical())));
        let mut records = StateByKey::default();
        for number in 0..48 * TABLE_RECORDS as u32 {
            records.insert(key(number), state.clone());
            let most = records.tables.iter().map(HashTable::len).max().unwrap_or(0);
            assert!(number % 512 != 0 || most <= 3 * TABLE_RECORDS, "{most} in one table of {}", records.tables.len());
        }
    }
}
