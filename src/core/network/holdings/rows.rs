//! A table of tags and the records that they lead to, in rows of one cache line: looking for a tag and then adding it waits
//! for memory only once. (A table with control bytes beside its entries waits for two or three lines.)
//!
//! A tag belongs into the row that it names, or if that is full, into the next row that is not. All rows between the two
//! stay full, so a search ends at the first row with a vacant place (linear probing by rows, Knuth 6.4). When an entry
//! leaves a full row, one from the rows behind it moves up if necessary.
//!
//! Review notes: does every search end, and does each entry stay reachable when another one is removed?

use super::records::{NONE, RecordId};

/// Entries per row.
const ROW: usize = 8;
/// The most entries per row on average. Beyond that, too many searches would go on into the next row.
const ROW_USUAL_MAX: usize = 6;

/// One cache line: its entries come first, then the vacant places.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Row {
    tags: [u32; ROW],
    /// [`NONE`] in a vacant place.
    ids: [RecordId; ROW],
}

impl Row {
    const EMPTY: Self = Self { tags: [0; ROW], ids: [NONE; ROW] };

    /// The positions of the values equal to `value`, one bit each.
    fn equal(values: &[u32; ROW], value: u32) -> u32 {
        values.iter().enumerate().fold(0, |places, (at, other)| places | u32::from(*other == value) << at)
    }

    fn len(&self) -> usize {
        (Self::equal(&self.ids, NONE).trailing_zeros() as usize).min(ROW)
    }

    fn is_full(&self) -> bool {
        self.ids[ROW - 1] != NONE
    }

    fn put(&mut self, at: usize, (tag, id): (u32, RecordId)) {
        self.tags[at] = tag;
        self.ids[at] = id;
    }

    /// Removes an entry; the last one of the row takes its place.
    fn take(&mut self, at: usize) {
        let last = self.len() - 1;
        self.put(at, (self.tags[last], self.ids[last]));
        self.ids[last] = NONE;
    }

    /// The place of the first entry with this tag that satisfies `is`.
    fn place(&self, tag: u32, is: impl Fn(RecordId) -> bool) -> Option<usize> {
        let mut places = Self::equal(&self.tags, tag);
        while places != 0 {
            let at = places.trailing_zeros() as usize;
            if self.ids[at] != NONE && is(self.ids[at]) {
                return Some(at);
            }
            places &= places - 1;
        }
        None
    }
}

/// A multimap from tags to records.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    /// Empty, or a power of two in number.
    rows: Vec<Row>,
    len: usize,
}

impl Rows {
    /// An empty table with places for this many entries.
    pub(super) fn with_room_for(entries: usize) -> Self {
        let rows = entries.div_ceil(ROW_USUAL_MAX);
        let rows = if rows == 0 { Vec::new() } else { vec![Row::EMPTY; rows.next_power_of_two()] };
        Self { rows, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
    }

    /// The row that a tag names. There must be rows.
    fn home(&self, tag: u32) -> usize {
        // The bits of the product from the 32nd on depend on the whole tag (Knuth 6.4, Fibonacci hashing).
        let spread = u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((spread >> 32) as usize) & (self.rows.len() - 1)
    }

    fn after(&self, row: usize) -> usize {
        (row + 1) & (self.rows.len() - 1)
    }

    /// Reads the row that a tag names. The result has no meaning.
    pub(super) fn touch(&self, tag: u32) -> u32 {
        if self.rows.is_empty() { 0 } else { self.rows[self.home(tag)].tags[0] }
    }

    /// Row and place of the first entry with this tag that satisfies `is`.
    fn place(&self, tag: u32, is: impl Fn(RecordId) -> bool) -> Option<(usize, usize)> {
        if self.rows.is_empty() {
            return None;
        }
        let mut row = self.home(tag);
        loop {
            if let Some(at) = self.rows[row].place(tag, &is) {
                return Some((row, at));
            }
            if !self.rows[row].is_full() {
                return None;
            }
            row = self.after(row);
        }
    }

    /// The first record with this tag that satisfies `is`.
    pub(super) fn find(&self, tag: u32, is: impl Fn(RecordId) -> bool) -> Option<RecordId> {
        self.place(tag, is).map(|(row, at)| self.rows[row].ids[at])
    }

    /// All records of this tag, in no particular order.
    #[cfg(test)]
    pub(super) fn of_tag(&self, tag: u32) -> Vec<RecordId> {
        let found = std::cell::RefCell::new(Vec::new());
        self.find(tag, |id| {
            found.borrow_mut().push(id);
            false
        });
        found.into_inner()
    }

    /// Adds an entry, even if others have the same tag.
    pub(super) fn insert(&mut self, tag: u32, id: RecordId) {
        debug_assert_ne!(id, NONE, "no record has the number that says that there is none");
        if self.len >= self.rows.len() * ROW_USUAL_MAX {
            self.grow();
        }
        self.put(tag, id);
        self.len += 1;
    }

    /// Puts an entry into the first vacant place. There must be one.
    fn put(&mut self, tag: u32, id: RecordId) {
        let mut row = self.home(tag);
        while self.rows[row].is_full() {
            row = self.after(row);
        }
        let row = &mut self.rows[row];
        row.put(row.len(), (tag, id));
    }

    fn grow(&mut self) {
        let grown = Self { rows: vec![Row::EMPTY; (self.rows.len() * 2).max(1)], len: self.len };
        for (tag, id) in std::mem::replace(self, grown).into_entries() {
            self.put(tag, id);
        }
    }

    /// Removes an entry. Returns false if it was not there.
    pub(super) fn remove(&mut self, tag: u32, id: RecordId) -> bool {
        let Some((row, at)) = self.place(tag, |other| other == id) else { return false };
        self.len -= 1;
        self.vacate(row, at);
        true
    }

    /// Makes a place vacant. If its row was full, an entry in the rows behind may be there only because of that; it moves up.
    fn vacate(&mut self, mut row: usize, mut at: usize) {
        loop {
            let was_full = self.rows[row].is_full();
            self.rows[row].take(at);
            let Some((behind, from)) = was_full.then(|| self.comes_back(row)).flatten() else { return };
            let entry = (self.rows[behind].tags[from], self.rows[behind].ids[from]);
            self.rows[row].put(ROW - 1, entry);
            (row, at) = (behind, from);
        }
    }

    /// An entry behind `row` whose search passes through `row`, because its home is not behind it.
    fn comes_back(&self, row: usize) -> Option<(usize, usize)> {
        let mask = self.rows.len() - 1;
        let mut behind = self.after(row);
        while behind != row {
            let distance = behind.wrapping_sub(row) & mask;
            let (tags, len) = (&self.rows[behind].tags, self.rows[behind].len());
            let from = tags[..len].iter().position(|&tag| behind.wrapping_sub(self.home(tag)) & mask >= distance);
            if let Some(from) = from {
                return Some((behind, from));
            }
            if len < ROW {
                return None;
            }
            behind = self.after(behind);
        }
        None
    }

    /// Replaces one record with another of the same tag. Returns false if the old one was not there.
    pub(super) fn replace(&mut self, tag: u32, old: RecordId, new: RecordId) -> bool {
        let place = self.place(tag, |id| id == old);
        if let Some((row, at)) = place {
            self.rows[row].ids[at] = new;
        }
        place.is_some()
    }

    /// All entries, in no particular order.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (u32, RecordId)> {
        self.rows.into_iter().flat_map(|row| row.tags.into_iter().zip(row.ids)).filter(|(_, id)| *id != NONE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_is_a_cache_line() {
        assert_eq!(size_of::<Row>(), 64);
    }

    #[test]
    fn nothing_is_found_and_nothing_removed_where_nothing_was_added() {
        let mut rows = Rows::default();
        assert_eq!(rows.find(0, |_| true), None);
        assert!(!rows.remove(0, 0) && !rows.replace(0, 0, 1));
        assert_eq!(rows.touch(0), 0);
        assert_eq!(rows.bytes(), 0);
    }

    proptest! {
        /// Few tags and many operations, so that rows overflow, wrap around and are refilled from behind.
        #[test]
        fn it_has_what_a_list_of_the_same_pairs_has(acts in vec((0u8..4, 0u32..6, 0u32..40), 0..400), spread in 1u32..5) {
            let mut rows = Rows::default();
            let mut pairs: Vec<(u32, RecordId)> = Vec::new();
            for (act, tag, id) in acts {
                let tag = tag.wrapping_mul(0x2545_f491u32.wrapping_mul(spread));
                let known = pairs.iter().position(|pair| *pair == (tag, id));
                match act {
                    0 | 1 if known.is_none() => {
                        rows.insert(tag, id);
                        pairs.push((tag, id));
                    }
                    2 => {
                        prop_assert_eq!(rows.remove(tag, id), known.is_some());
                        if let Some(at) = known {
                            pairs.swap_remove(at);
                        }
                    }
                    3 => {
                        prop_assert_eq!(rows.replace(tag, id, id + 100), known.is_some());
                        if let Some(at) = known {
                            pairs[at].1 = id + 100;
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(rows.len(), pairs.len());
                for (tag, id) in &pairs {
                    prop_assert_eq!(rows.find(*tag, |other| other == *id), Some(*id));
                }
                let mut found = rows.of_tag(tag);
                let mut wanted: Vec<RecordId> = pairs.iter().filter(|pair| pair.0 == tag).map(|pair| pair.1).collect();
                found.sort_unstable();
                wanted.sort_unstable();
                prop_assert_eq!(found, wanted);
            }
            let mut entries: Vec<_> = rows.into_entries().collect();
            entries.sort_unstable();
            pairs.sort_unstable();
            prop_assert_eq!(entries, pairs);
        }
    }
}
