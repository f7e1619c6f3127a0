//! An index from the hash of a key to the numbers of the records that may have that key. It never grows all at once.
//!
//! A plain hash table doubles in one go: at a million entries, that is a pause of a third of a second in the middle of a
//! request. This table is divided into parts of at most [`PART_ENTRIES_MAX`] entries, chosen by the upper bits of the hash. A
//! full part is split in two (extendible hashing, Fagin and others 1979), which costs some ten microseconds however many entries
//! there are. Every entry keeps 32 bits of its hash, so that neither a split nor a growing part has to read a record.
//!
//! The index has no keys: the caller compares the records that it is offered.
//!
//! It is not meant for keys that many records share: entries of one hash take as many rows as they need, and adding and
//! removing walk along all of them.
//!
//! Review notes: can equal hashes make it split without end?

use super::records::RecordId;
use super::rows::Rows;

/// Entries of one part: as many as 1 024 rows take.
const PART_ENTRIES_MAX: usize = 6_144;
/// How many bits longer the directory may be than an even spread of the entries needs.
const SPARE_BITS: u32 = 3;

#[derive(Debug, Clone, Default)]
struct IndexPart {
    /// How many leading bits of the tag all its entries share.
    depth: u32,
    rows: Rows,
}

/// A multimap from hashes to record numbers. Finding, adding and removing cost the same at any size.
#[derive(Debug, Clone)]
pub(super) struct Index {
    /// The part for each value of the tag's leading bits.
    directory: Vec<u32>,
    /// The length of the directory, as a power of two.
    depth: u32,
    parts: Vec<IndexPart>,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { directory: vec![0], depth: 0, parts: vec![IndexPart::default()], len: 0 }
    }
}

fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The first `bits` bits of a tag.
fn leading(tag: u32, bits: u32) -> usize {
    if bits == 0 { 0 } else { (tag >> (u32::BITS - bits)) as usize }
}

impl Index {
    /// An empty index with parts and places for this many entries.
    pub(super) fn with_room_for(entries: usize) -> Self {
        if entries <= PART_ENTRIES_MAX {
            return Self::default();
        }
        // No fuller than the average part that was split as it grew.
        let depth = (entries / (PART_ENTRIES_MAX * 3 / 4)).next_power_of_two().ilog2();
        let parts = 1usize << depth;
        let part = || IndexPart { depth, rows: Rows::with_room_for(entries / parts) };
        Self { directory: (0..parts as u32).collect(), depth, parts: (0..parts).map(|_| part()).collect(), len: 0 }
    }

    fn part_of(&self, tag: u32) -> usize {
        self.directory[leading(tag, self.depth)] as usize
    }

    /// The first record of this hash that satisfies `is`.
    pub(super) fn find(&self, hash: u64, is: impl Fn(RecordId) -> bool) -> Option<RecordId> {
        let tag = tag_of(hash);
        self.parts[self.part_of(tag)].rows.find(tag, is)
    }

    /// Reads where an entry of this hash is, or would be. The result has no meaning.
    pub(super) fn touch(&self, hash: u64) -> u32 {
        let tag = tag_of(hash);
        self.parts[self.part_of(tag)].rows.touch(tag)
    }

    /// All records of this hash, in no particular order.
    #[cfg(test)]
    fn of_hash(&self, hash: u64) -> Vec<RecordId> {
        let tag = tag_of(hash);
        self.parts[self.part_of(tag)].rows.of_tag(tag)
    }

    /// Adds a record, even if others have the same hash.
    pub(super) fn insert(&mut self, hash: u64, id: RecordId) {
        let tag = tag_of(hash);
        let mut at = self.part_of(tag);
        while self.parts[at].rows.len() >= PART_ENTRIES_MAX && self.may_split(at) {
            self.split(at);
            at = self.part_of(tag);
        }
        self.parts[at].rows.insert(tag, id);
        self.len += 1;
    }

    /// Removes a record. Returns false if it was not there.
    pub(super) fn remove(&mut self, hash: u64, id: RecordId) -> bool {
        let tag = tag_of(hash);
        let at = self.part_of(tag);
        let removed = self.parts[at].rows.remove(tag, id);
        self.len -= usize::from(removed);
        removed
    }

    /// Replaces one record with another of the same hash. Returns false if the old one was not there.
    pub(super) fn replace(&mut self, hash: u64, old: RecordId, new: RecordId) -> bool {
        let tag = tag_of(hash);
        let at = self.part_of(tag);
        self.parts[at].rows.replace(tag, old, new)
    }

    /// How many it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// May this part be split? Splitting does not help if many entries have one hash; then the part grows instead.
    fn may_split(&self, at: usize) -> bool {
        let even = (self.len / PART_ENTRIES_MAX).max(1).ilog2() + 1;
        self.parts[at].depth < (even + SPARE_BITS).min(u32::BITS - 1)
    }

    fn split(&mut self, at: usize) {
        let depth = self.parts[at].depth + 1;
        if depth > self.depth {
            self.directory = self.directory.iter().flat_map(|&part| [part, part]).collect();
            self.depth = depth;
        }
        let rows = std::mem::take(&mut self.parts[at].rows);
        let mut halves = [Rows::with_room_for(rows.len() / 2), Rows::with_room_for(rows.len() / 2)];
        for (tag, id) in rows.into_entries() {
            halves[leading(tag, depth) & 1].insert(tag, id);
        }
        let [lower, upper] = halves;
        self.parts[at] = IndexPart { depth, rows: lower };
        let new = self.parts.len() as u32;
        self.parts.push(IndexPart { depth, rows: upper });
        // The second half of the directory entries that named the old part now names the new one.
        let first = self.directory.iter().position(|&part| part == at as u32).unwrap_or_default();
        let stretch = 1usize << (self.depth - depth + 1);
        self.directory[first + stretch / 2..first + stretch].fill(new);
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let tables: usize = self.parts.iter().map(|part| part.rows.bytes()).sum();
        tables + self.parts.capacity() * size_of::<IndexPart>() + self.directory.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spreads small numbers over 64 bits, deterministically.
    fn hash(number: u32) -> u64 {
        (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    #[test]
    fn every_entry_is_found_after_any_number_of_splits() {
        let mut index = Index::default();
        for id in 0..100_000 {
            index.insert(hash(id), id);
        }
        assert!(index.parts.len() > 10, "{} parts", index.parts.len());
        assert!(index.parts.iter().all(|part| part.rows.len() <= PART_ENTRIES_MAX));
        for id in 0..100_000 {
            assert_eq!(index.find(hash(id), |found| found == id), Some(id));
        }
        for id in (0..100_000).step_by(2) {
            assert!(index.remove(hash(id), id));
            assert!(!index.remove(hash(id), id));
        }
        for id in 0..100_000 {
            assert_eq!(index.find(hash(id), |_| true).is_some(), id % 2 == 1);
        }
        assert_eq!(index.len, 50_000);
    }

    #[test]
    fn a_table_with_room_for_many_is_as_one_that_grew() {
        for (room, entries) in [(0, 10), (6_144, 6_145), (6_145, 6_145), (100_000, 100_000), (8_000, 60_000)] {
            let mut index = Index::with_room_for(room);
            let parts = index.parts.len();
            for id in 0..entries {
                index.insert(hash(id), id);
            }
            assert!(room < 100_000 || index.parts.len() == parts, "nothing was split that was made in its size");
            assert!(index.parts.iter().all(|part| part.rows.len() <= PART_ENTRIES_MAX));
            for id in 0..entries {
                assert_eq!(index.find(hash(id), |found| found == id), Some(id));
                assert!(index.remove(hash(id), id));
            }
            assert_eq!(index.len, 0);
        }
    }

    #[test]
    fn one_hash_with_many_records_does_not_lengthen_the_directory_without_end() {
        let mut index = Index::default();
        for id in 0..50_000 {
            index.insert(hash(7), id);
        }
        assert_eq!(index.of_hash(hash(7)).len(), 50_000);
        assert!(index.directory.len() <= 128, "{}", index.directory.len());
        assert!(index.find(hash(8), |_| true).is_none());
    }

    #[test]
    fn a_record_takes_the_place_of_another() {
        let mut index = Index::default();
        index.insert(hash(1), 10);
        assert!(index.replace(hash(1), 10, 11));
        assert!(!index.replace(hash(1), 10, 12));
        assert_eq!(index.of_hash(hash(1)), [11]);
    }
}
