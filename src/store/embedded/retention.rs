//! How far history reaches: which segments are within the bounds, and how the others are removed without a new snapshot.
//!
//! A snapshot names the oldest segment that is kept beside it, and is never changed. If more is removed than it says, at a
//! start or when the disk is full, the number of the oldest remaining segment is noted in `MARK`, after each of the two
//! marks. It has a sector of its own, so that no write of it damages a mark, in blocks that exist, so that a full disk takes
//! it. If one note is torn, the other remains. As everywhere, the note that something may be missing is durable before
//! anything is removed.
//!
//! Neighbours: `compactor` asks and calls, `recovery` reads the note, `directory` writes it again at each start.

use std::path::{Path, PathBuf};

use super::disk::{Disk, DiskFile, read_exact};
use super::meta::{self, MARK, MARK_STRIDE, u64_at};
use super::problem;
use super::shared::{EmbeddedShared, LogFiles, now_ms};
use crate::store::StoreError;

const MAGIC: &[u8; 4] = b"KEPT";
const NOTE_BYTES: usize = 16;
/// After the mark, in each of its two places.
const NOTE_OFFSET: u64 = MARK_STRIDE / 2;
const PLACES: [u64; 2] = [NOTE_OFFSET, MARK_STRIDE + NOTE_OFFSET];

enum Note {
    Oldest(u64),
    /// Nothing was ever written there.
    Blank,
    Torn,
    /// The disk cannot read it now.
    Unread(std::io::Error),
}

fn note(file: &dyn DiskFile, place: u64) -> Note {
    let mut bytes = [0; NOTE_BYTES];
    match read_exact(file, &mut bytes, place) {
        Ok(()) if bytes[..4] == *MAGIC && meta::is_sealed(&bytes) => Note::Oldest(u64_at(&bytes, 4)),
        Ok(()) if bytes == [0; NOTE_BYTES] => Note::Blank,
        Ok(()) => Note::Torn,
        Err(error) => Note::Unread(error),
    }
}

/// The oldest segment that must exist, whatever the snapshot says; 0 if nothing was removed without a snapshot. Both places
/// are written before anything is removed, so either of them is enough, even a blank one.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<u64, StoreError> {
    let path = dir.join(MARK);
    let file = disk.open(&path).map_err(problem::io("opening", &path))?;
    let (mut oldest, mut unread) = (None, None);
    for place in PLACES {
        match note(&*file, place) {
            Note::Oldest(noted) => oldest = oldest.max(Some(noted)),
            Note::Blank => oldest = oldest.max(Some(0)),
            // The other place counts. If both were readable once and are torn now, recovery will report a segment as missing.
            Note::Torn => {
                tracing::warn!(path = %path.display(), offset = place, "a note of the oldest segment is unreadable");
            }
            Note::Unread(error) => {
                tracing::warn!(path = %path.display(), offset = place, %error, "a note of the oldest segment cannot be read");
                unread = Some(error);
            }
        }
    }
    match (oldest, unread) {
        // Without a note, segments that were rightly removed would seem to be missing.
        (None, Some(error)) => Err(problem::unread(&path, "has no note that can be read of the oldest segment")(error)),
        (oldest, _) => Ok(oldest.unwrap_or(0)),
    }
}

/// Notes the oldest segment that must exist, in one place and then in the other, each durably.
pub(super) fn write(disk: &dyn Disk, dir: &Path, oldest: u64) -> Result<(), StoreError> {
    let path = dir.join(MARK);
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&oldest.to_be_bytes());
    let bytes = meta::seal(bytes);
    let write = || {
        let file = disk.open(&path)?;
        PLACES.iter().try_for_each(|&place| {
            file.write_at(&bytes, place)?;
            file.sync()
        })
    };
    write().map_err(problem::io("writing", &path))
}

/// The oldest segment within the bounds of history. The one that is being written always is.
pub(super) fn oldest(shared: &EmbeddedShared, catalog: &LogFiles) -> u64 {
    let now = now_ms();
    let mut bytes = 0;
    let mut headers = catalog.headers().rev();
    let Some(mut next) = headers.next() else { return 1 };
    for segment in headers {
        bytes += segment.length;
        let age_seconds = now.saturating_sub(next.created_ms) / 1_000;
        if bytes > shared.options.history_bytes || age_seconds > shared.options.history_seconds {
            break;
        }
        next = segment;
    }
    next.number
}

/// The oldest segment to keep, if others can be removed without a new snapshot: they are beyond the bounds, and the snapshot
/// covers them.
pub(super) fn overdue(shared: &EmbeddedShared, catalog: &LogFiles) -> Option<u64> {
    let first = catalog.history.first()?.segment.header.number;
    let needed = catalog.segments.first()?.segment.header.number;
    Some(oldest(shared, catalog).min(needed)).filter(|&oldest| oldest > first)
}

pub(super) fn let_go(shared: &EmbeddedShared, oldest: u64) -> Result<(), StoreError> {
    write(&*shared.disk, &shared.dir, oldest)?;
    let gone = drain(&mut shared.catalog(), oldest);
    tracing::info!(dir = %shared.dir.display(), oldest, segments = gone.len(), "let go what is beyond the bounds of history");
    remove(shared, gone);
    // The log may be waiting for the room.
    shared.notify();
    Ok(())
}

/// Takes the segments before this one out of the history, together with their damage, and returns their paths.
pub(super) fn drain(catalog: &mut LogFiles, oldest: u64) -> Vec<PathBuf> {
    let gone = catalog.history.partition_point(|of| of.segment.header.number < oldest);
    catalog.damage.retain(|segment, _| segment.is_none_or(|segment| segment >= oldest));
    catalog.history.drain(..gone).map(|of| of.segment.path.clone()).collect()
}

/// Removes files. What must exist is noted elsewhere, so a file that goes late, or at the next start, does no harm.
pub(super) fn remove(shared: &EmbeddedShared, obsolete: Vec<PathBuf>) {
    for path in obsolete {
        let removed = shared.check_place().and_then(|()| shared.disk.remove(&path));
        if let Err(error) = removed {
            tracing::warn!(path = %path.display(), %error, "cannot remove an old file; the next start will");
        }
    }
}
