//! The records themselves, by number, in pieces. A single table would be copied whole each time it grows.

use std::sync::Arc;

use crate::core::address::{Address, Family};
use crate::core::state::{Entry, Reservation};

/// Number of a record.
pub(super) type RecordId = u32;
/// Marks the end of a chain.
pub(super) const NONE: RecordId = RecordId::MAX;
/// Records per piece, as a power of two: some 64 KiB.
const PIECE_BITS: u32 = 10;
const PIECE: usize = 1 << PIECE_BITS;

/// What lies at one address, with its neighbours in the chains.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub entry: Entry,
    high: u64,
    low: u64,
    pub family: Family,
    pub links: Links,
}

/// The neighbours of a record in the chains.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    pub owner_next: RecordId,
    pub owner_previous: RecordId,
    /// Number of the owner's current reservations; kept only in the first record of its chain.
    pub owner_current: u32,
    pub scope_next: RecordId,
    pub scope_previous: RecordId,
}

impl Default for Links {
    /// In no chain yet.
    fn default() -> Self {
        let (owner_next, owner_previous, scope_next, scope_previous) = (NONE, NONE, NONE, NONE);
        Self { owner_next, owner_previous, owner_current: 0, scope_next, scope_previous }
    }
}

impl Record {
    /// A record that is in no chain yet.
    pub(super) fn new(address: Address, entry: Entry) -> Self {
        Self::linked(address, entry, Links::default())
    }

    /// A record with the links that it already has.
    pub(super) fn linked(address: Address, entry: Entry, links: Links) -> Self {
        let bits = address.bits();
        Self { entry, high: (bits >> 64) as u64, low: bits as u64, family: address.family(), links }
    }

    pub(super) fn address(&self) -> Address {
        Address::new(self.family, u128::from(self.high) << 64 | u128::from(self.low))
    }

    pub(super) fn held(&self) -> Option<&Arc<Reservation>> {
        self.entry.held()
    }
}

/// Records by number. Numbers that were given back are used again.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    /// Every piece but the last one is full.
    pieces: Vec<Vec<Option<Record>>>,
    vacant: Vec<RecordId>,
}

impl Records {
    pub(super) fn get(&self, id: RecordId) -> &Record {
        self.pieces[id as usize >> PIECE_BITS][id as usize % PIECE].as_ref().expect("an index names live records only")
    }

    pub(super) fn get_mut(&mut self, id: RecordId) -> &mut Record {
        self.pieces[id as usize >> PIECE_BITS][id as usize % PIECE].as_mut().expect("an index names live records only")
    }

    /// The number that the next record gets.
    pub(super) fn next_id(&self) -> RecordId {
        let counted = || self.pieces.last().map_or(0, |last| ((self.pieces.len() - 1) << PIECE_BITS) + last.len());
        self.vacant.last().copied().unwrap_or_else(|| counted() as RecordId)
    }

    pub(super) fn insert(&mut self, record: Record) -> RecordId {
        if let Some(id) = self.vacant.pop() {
            self.pieces[id as usize >> PIECE_BITS][id as usize % PIECE] = Some(record);
            return id;
        }
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            // The first piece grows with its contents, because most networks are small.
            let room = if self.pieces.is_empty() { 4 } else { PIECE };
            self.pieces.push(Vec::with_capacity(room));
        }
        let before = (self.pieces.len() - 1) << PIECE_BITS;
        let last = self.pieces.last_mut().expect("one was pushed");
        last.push(Some(record));
        (before + last.len() - 1) as RecordId
    }

    pub(super) fn remove(&mut self, id: RecordId) -> Record {
        self.vacant.push(id);
        self.pieces[id as usize >> PIECE_BITS][id as usize % PIECE].take().expect("an index names live records only")
    }

    /// The live records, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.pieces.iter().flatten().flatten()
    }

    /// The live records, by number. Each piece is freed when its last record has been taken.
    pub(super) fn into_iter(self) -> impl Iterator<Item = Record> + Send {
        self.pieces.into_iter().flatten().flatten()
    }

    /// Number of live records.
    pub(super) fn count(&self) -> usize {
        self.iter().count()
    }

    /// Bytes that the table takes, without what the entries point to.
    pub(super) fn bytes(&self) -> usize {
        let records: usize = self.pieces.iter().map(Vec::capacity).sum();
        records * size_of::<Option<Record>>() + self.vacant.capacity() * size_of::<RecordId>()
    }
}
