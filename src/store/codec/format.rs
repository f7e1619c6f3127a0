//! The version in which records are written, and how a record begins in every version.
//!
//! A shard's head says in which format its records are written (`Head::format`): it is fixed for a tenure and rises only at
//! a take-over, so a batch is never sent in two spellings. A program reads all formats up to [`Format::NEWEST`], and goes on
//! writing in the one that it finds. The operator raises that with `store.record_format` when every node is new enough. So a
//! release with a new format can be rolled out node by node, and rolled back, before anything is written that the old
//! release cannot read. What is added within a format is the exception: `deploy/README.md` lists it ("Going back").
//!
//! **Every record begins in the same way in all formats**: version, kind, mark, and for the records of addresses the length
//! of the prefix. The scripts in Redis compare and count by these fields, whichever version wrote a record, and a merge
//! passes records on without decoding them.
//!
//! The feature `next-format` builds a successor of this program, whose records have the owner before the scope: tests
//! upgrade from one to the other (`tests/faults/upgrade`). It is never released.

use super::bytes::{CodecError, MARK_MAX, Reader, Result, Write};
use crate::limits;

/// A version of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Format(u8);

impl Format {
    /// The first format. A head that does not name a format has this one.
    pub const FIRST: Self = Self(1);
    /// The newest format that this program reads. A new register is written in it.
    pub const NEWEST: Self = Self(limits::RECORD_FORMAT_NEWEST);

    /// The format of this number, if this program reads it.
    pub fn new(number: u64) -> Option<Self> {
        u8::try_from(number).ok().map(Self).filter(|format| (Self::FIRST..=Self::NEWEST).contains(format))
    }

    /// Its number, with which every record begins.
    pub const fn number(self) -> u8 {
        self.0
    }

    pub(super) fn read(reader: &mut Reader<'_>, what: &'static str) -> Result<Self> {
        let number = reader.u8(what)?;
        Self::new(number.into()).ok_or(CodecError::Version(number))
    }

    /// Do records have the owner before the scope?
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

pub(super) fn put_header(out: &mut Vec<u8>, format: Format, kind: u8, mark: u64) -> Result<()> {
    if mark > MARK_MAX {
        return Err(CodecError::Range("mark"));
    }
    out.put_u8(format.number());
    out.put_u8(kind);
    out.put_varint(mark);
    Ok(())
}

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
