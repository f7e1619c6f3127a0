//! Steps of the log as they are gathered for a merge: small, and in pieces that never move.
//!
//! A start reads a million of them, and the kernel must clear all the memory that they take. So a step takes 48 bytes, its
//! record lies beside others in a large piece, and the pieces of both are freed one by one during the merge.
//!
//! Neighbour: `replay` gathers and merges.

use std::num::NonZeroU64;

use super::replay::{Misfit, unexpected};
use crate::core::state::Key;
use crate::core::types::NetworkId;
use crate::store::codec;

/// Bytes of one piece of [`Records`]; a longer record gets a piece of its own.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes before each record: its length.
const LENGTH_BYTES: usize = 4;
/// Steps of one piece of [`Steps`].
const PIECE_STEPS: usize = 4_096;

/// Records one after another, in pieces: a single growing buffer would copy a long log again and again.
#[derive(Debug, Default)]
pub(super) struct Records {
    pieces: Vec<Vec<u8>>,
    /// The pieces before this one were freed.
    first: usize,
}

/// Where a record lies in [`Records`]: the number of its piece, plus one, and its place in the piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot(NonZeroU64);

impl Spot {
    fn piece(self) -> usize {
        (self.0.get() >> 32) as usize - 1
    }

    fn at(self) -> usize {
        self.0.get() as u32 as usize
    }
}

impl Records {
    pub(super) fn put(&mut self, record: &[u8]) -> Spot {
        let bytes = LENGTH_BYTES + record.len();
        if self.pieces.last().is_none_or(|piece| piece.capacity() - piece.len() < bytes) {
            self.pieces.push(Vec::with_capacity(PIECE_BYTES.max(bytes)));
        }
        let number = self.pieces.len() as u64;
        let piece = self.pieces.last_mut().expect("one was pushed");
        let at = piece.len() as u64;
        piece.extend_from_slice(&(record.len() as u32).to_le_bytes());
        piece.extend_from_slice(record);
        Spot(NonZeroU64::new(number << 32 | at).expect("pieces are counted from one"))
    }

    pub(super) fn get(&self, spot: Spot) -> &[u8] {
        let (length, rest) = self.pieces[spot.piece()][spot.at()..].split_at(LENGTH_BYTES);
        let length = length.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
        &rest[..length]
    }

    /// Frees all pieces before the one of this record. For records that are taken in the order in which they were stored.
    pub(super) fn give_back_before(&mut self, spot: Spot) {
        while self.first < spot.piece() {
            self.pieces[self.first] = Vec::new();
            self.first += 1;
        }
    }
}

/// An optional mark in the size of a mark. This works because marks stay far below 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SomeMark(u64);

impl SomeMark {
    fn of(mark: Option<u64>) -> Self {
        Self(mark.map_or(0, |mark| mark + 1))
    }

    fn mark(self) -> Option<u64> {
        self.0.checked_sub(1)
    }
}

/// A step, or the net effect of several at one key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) key: Key,
    expect: SomeMark,
    /// The record afterwards; none if nothing is there.
    pub(super) record: Option<Spot>,
}

// A start holds a million of these.
const _: () = assert!(size_of::<Change>() == 48);

impl Change {
    /// The mark that must be there before.
    pub(super) fn expect(&self) -> Option<u64> {
        self.expect.mark()
    }
}

/// The steps of one network, in pieces.
#[derive(Debug)]
pub(super) struct Steps {
    pieces: Vec<Vec<Change>>,
    /// The keys are distinct and ascending, as when addresses are granted for the first time: no sort is needed.
    is_ascending: bool,
}

impl Default for Steps {
    fn default() -> Self {
        Self { pieces: Vec::new(), is_ascending: true }
    }
}

impl Steps {
    pub(super) fn push(&mut self, key: Key, expect: Option<u64>, record: Option<Spot>) {
        let last = self.pieces.last();
        self.is_ascending &= last.and_then(|piece| piece.last()).is_none_or(|last| last.key < key);
        if last.is_none_or(|piece| piece.len() >= PIECE_STEPS) {
            // The first piece grows with its content, because most networks are small.
            let room = if last.is_none() { 4 } else { PIECE_STEPS };
            self.pieces.push(Vec::with_capacity(room));
        }
        let piece = self.pieces.last_mut().expect("one was pushed");
        piece.push(Change { key, expect: SomeMark::of(expect), record });
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    /// Taken by key, do the records come in the order in which they were stored?
    pub(super) fn is_ascending(&self) -> bool {
        self.is_ascending
    }

    /// One change for each key, ascending. Each step must expect what the step before it at the same key left.
    pub(super) fn net_effect(self, network: NetworkId, records: &Records) -> Result<Self, Misfit> {
        if self.is_ascending {
            return Ok(self);
        }
        let mut changes = Vec::with_capacity(self.len());
        self.pieces.into_iter().for_each(|piece| changes.extend(piece));
        // A stable sort keeps the steps of one key in their order, and it is fast if addresses were granted in ascending order.
        changes.sort_by_key(|change: &Change| change.key);
        let mut problem = Ok(());
        changes.dedup_by(|next, kept| {
            if next.key != kept.key {
                return false;
            }
            if problem.is_ok() {
                problem = follows(network, next, kept, records);
            }
            *kept = Change { expect: kept.expect, ..*next };
            true
        });
        problem.map(|()| Self { pieces: vec![changes], is_ascending: true })
    }
}

impl IntoIterator for Steps {
    type Item = Change;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<Change>>>;

    /// Each piece is freed once its last step was taken.
    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter().flatten()
    }
}

/// Does a step expect what the step before it at the same key left?
fn follows(network: NetworkId, next: &Change, before: &Change, records: &Records) -> Result<(), Misfit> {
    let left = before.record.map(|record| codec::mark_of(records.get(record))).transpose()?;
    if next.expect() == left { Ok(()) } else { Err(unexpected(network, next.key, next.expect(), left)) }
}
