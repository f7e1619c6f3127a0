//! Segments: files of a fixed length that the log is written into, one after another.
//!
//! ```text
//! 0    magic (8)  format (4)  number (8)  register (16)  first group (8)  digest of the frame before (16)
//! 60   created, ms since 1970 (8)  length of the file (8)  zeros  crc32 (4)
//! 128  frames, then zeros
//! ```
//!
//! A segment is filled with zeros before it is used, so that a commit changes no metadata and one flush is one write to the
//! disk. The header is written together with the first frame. A full segment ends with a seal.
//!
//! Neighbours: `allocator` makes segments ahead of need, `writer` fills them, `recovery` judges them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::disk::{Disk, DiskFile};
use super::meta::{self, u32_at, u64_at, u128_at};
use super::options::PIECE_BYTES;
use crate::store::{Seq, ShardId};

const MAGIC: &[u8; 8] = b"ALLODSEG";
pub(super) const HEADER_BYTES: usize = 128;
pub(super) const LOG: &str = "log";

/// The part before the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub number: u64,
    pub register: u128,
    pub first_group: u64,
    pub parent: u128,
    pub created_ms: u64,
    pub length: u64,
}

impl SegmentHeader {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&meta::FORMAT.to_be_bytes());
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.extend_from_slice(&self.register.to_be_bytes());
        bytes.extend_from_slice(&self.first_group.to_be_bytes());
        bytes.extend_from_slice(&self.parent.to_be_bytes());
        bytes.extend_from_slice(&self.created_ms.to_be_bytes());
        bytes.extend_from_slice(&self.length.to_be_bytes());
        bytes.resize(HEADER_BYTES - 4, 0);
        meta::seal(bytes)
    }

    /// The header at the front of a segment, if a valid one is there.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let valid = bytes[..8] == *MAGIC && u32_at(bytes, 8) == meta::FORMAT && meta::is_sealed(bytes);
        valid.then(|| Self {
            number: u64_at(bytes, 12),
            register: u128_at(bytes, 20),
            first_group: u64_at(bytes, 36),
            parent: u128_at(bytes, 44),
            created_ms: u64_at(bytes, 60),
            length: u64_at(bytes, 68),
        })
    }
}

/// A segment of the log that has a header.
#[derive(Debug)]
pub(super) struct Segment {
    pub header: SegmentHeader,
    pub path: PathBuf,
    /// Where batches lie in it, so that history need not be read from the front.
    pub marks: Marks,
}

/// Distance in bytes between two places that are remembered for a shard.
const MARK_STRIDE_BYTES: u64 = 256 << 10;

/// Where in a segment a shard's batches lie.
#[derive(Debug, Default)]
struct BatchOffsets {
    /// A batch and the offset of its frame: of the first batch, and then of one for every `MARK_STRIDE_BYTES`.
    of: Vec<(Seq, u64)>,
    last: Seq,
}

#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<HashMap<ShardId, BatchOffsets>>);

impl Marks {
    /// Notes that the frame at this offset holds batches from `first` to `last`. Called in the order of the log.
    pub(super) fn note(&self, shard: ShardId, (first, last): (Seq, Seq), at: u64) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let places = marks.entry(shard).or_default();
        if places.of.last().is_none_or(|&(_, offset)| at >= offset + MARK_STRIDE_BYTES) {
            places.of.push((first, at));
        }
        places.last = last;
    }

    /// The offset of a frame from which to read on, to find the first batch after `after`; none if no batch of the shard
    /// lies between `after` and `until`.
    pub(super) fn offset_of(&self, shard: ShardId, after: Seq, until: Seq) -> Option<u64> {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let BatchOffsets { of, last } = marks.get(&shard)?;
        let &(first, offset) = of.first()?;
        if *last <= after || first > until {
            return None;
        }
        let before = of.partition_point(|&(seq, _)| seq.0 <= after.0 + 1).checked_sub(1);
        Some(before.map_or(offset, |before| of[before].1))
    }
}

/// A segment that waits for use: only zeros.
#[derive(Debug, Clone)]
pub(super) struct Spare {
    pub number: u64,
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub length: u64,
}

pub(super) fn name(number: u64) -> String {
    format!("{number:08}.seg")
}

/// Its name while it is being made.
pub(super) fn temporary(number: u64) -> String {
    format!("{}.tmp", name(number))
}

pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    let number = digits.parse().ok()?;
    (self::name(number) == name).then_some(number)
}

/// For [`create`] if nobody commits meanwhile: no pause between pieces.
pub(super) const AT_ONCE: fn(&dyn DiskFile) -> std::io::Result<()> = |_| Ok(());

/// The message if somebody removed a spare beside a running server.
pub(super) const SPARE_GONE: &str = "a blank segment of the log was removed, or another file put in its place, beside the running server. \
                                     Nothing is lost: it is made anew before it is used. Find out who did that";

/// Length of a segment, and of its pieces, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub whole: u64,
    pub piece: u64,
}

impl Lengths {
    /// For a segment of this length, in pieces of the usual size.
    pub(super) fn of(whole: u64) -> Self {
        Self { whole, piece: PIECE_BYTES }
    }
}

/// Makes a segment of zeros, durable under its name. Calls `between` after each piece, which may flush and pause if somebody
/// else needs the disk.
pub(super) fn create(
    disk: &dyn Disk,
    dir: &Path,
    number: u64,
    lengths: Lengths,
    mut between: impl FnMut(&dyn DiskFile) -> std::io::Result<()>,
) -> std::io::Result<Spare> {
    let length = lengths.whole;
    let log = dir.join(LOG);
    let path = log.join(name(number));
    let temporary = log.join(temporary(number));
    let file = disk.create(&temporary)?;
    let mut fill = || {
        file.allocate(length)?;
        let zeros = vec![0; lengths.piece.min(length) as usize];
        let mut at = 0;
        while at < length {
            let piece = (length - at).min(zeros.len() as u64);
            file.write_at(&zeros[..piece as usize], at)?;
            between(&*file)?;
            at += piece;
        }
        file.sync()?;
        disk.rename(&temporary, &path)?;
        disk.sync_dir(&log)
    };
    if let Err(error) = fill() {
        // Gives the space back, so that changes that let go have room. A file that cannot be removed now goes at the next start.
        let _ = disk.remove(&temporary);
        return Err(error);
    }
    Ok(Spare { number, path, file, length })
}
