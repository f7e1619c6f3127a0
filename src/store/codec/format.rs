//! Which version of records is written, and how a record begins in each.
//!
//! A shard's head says in which format its records are written (`Head::format`): it is fixed for a tenure and rises at a
//! take-over only, so no batch is ever sent in two spellings. A program reads all formats up to [`Format::NEWEST`] and goes
//! on in the one that it finds; whoever runs it raises that by `store.record_format` when every node is new enough.
//! So a release with a new format is rolled out node by node, and back, before anything that the old one cannot read
//! is written.
//!
//! **What every record begins with stands alike in all formats**: version, kind, mark, and of what lies at an address the
//! length of the prefix. The scripts in Redis compare and count by it, whatever wrote the record that is there, and a merge
//! passes records on without decoding them.
//!
//! The feature `next-format` makes the program that comes after this one, in which the owner stands before the scope: the
//! upgrade between the two is tested with both (`tests/faults/upgrade`). It is never released.

use super::bytes::{CodecError, MARK_MAX, Reader, Result, Write};
use crate::limits;

/// A version of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Format(u8);

impl Format {
    /// The first. A head that says nothing is of it.
    pub const FIRST: Self = Self(1);
    /// The highest that this program reads, and what a new register is written in.
    pub const NEWEST: Self = Self(limits::RECORD_FORMAT_NEWEST);

    /// The format of this number, if this program reads it.
    pub fn new(number: u64) -> Option<Self> {
        u8::try_from(number).ok().map(Self).filter(|format| (Self::FIRST..=Self::NEWEST).contains(format))
    }

    /// Its number, which every record begins with.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Reads the number at the beginning of a record.
    pub(super) fn read(reader: &mut Reader<'_>, what: &'static str) -> Result<Self> {
        let number = reader.u8(what)?;
        Self::new(number.into()).ok_or(CodecError::Version(number))
    }

    /// Does the owner stand before the scope?
    pub(super) fn has_owner_first(self) -> bool {
        self > Self::FIRST
    }
}

impl Default for Format {
    fn default() -> Self {
        Self::FIRST
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Begins the record of a state.
pub(super) fn put_header(out: &mut Vec<u8>, format: Format, kind: u8, mark: u64) -> Result<()> {
    if mark > MARK_MAX {
        return Err(CodecError::Range("mark"));
    }
    out.put_u8(format.number());
    out.put_u8(kind);
    out.put_varint(mark);
    Ok(())
}

/// What the record of a state begins with.
pub(super) struct RecordHeader {
    pub(super) format: Format,
    pub(super) kind: u8,
    pub(super) mark: u64,
}

pub(super) fn header(reader: &mut Reader<'_>) -> Result<RecordHeader> {
    let format = Format::read(reader, "record")?;
    let kind = reader.u8("kind of record")?;
    Ok(RecordHeader { format, kind, mark: reader.varint_to(MARK_MAX, "mark")? })
}
