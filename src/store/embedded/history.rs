//! The log as history: reads batches of some shards from the segments that are kept.
//!
//! It reads in pieces, compares each frame with its checksum, and follows the order of the log, so that batches of several
//! shards come in the order of their commits. The marks of a segment say where to begin, and the space between two stretches
//! that are far apart is skipped. Segments that a snapshot covers are opened when they are read, and may have been removed
//! by then.
//!
//! Neighbours: `reader` calls; `writer` and `recovery` set the marks.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::disk::DiskFile;
use super::frame::{self, Frame, FrameEntry};
use super::replay::Misfit;
use super::segment::{self, Segment};
use super::shared::{EmbeddedShared, HistorySegment, KeptSegment};
use super::{plates, presence, problem, replay};
use crate::store::history::{RecordedBatch, Stretch, is_full};
use crate::store::{StoreError, codec, fence};

/// Bytes of one read. A longer frame is read by itself.
const PIECE_BYTES: u64 = 256 << 10;
const BAD_FRAME: &str = "a frame does not fit its checksum";

struct Reading {
    /// The stretches that are not read yet.
    wanted: Vec<Stretch>,
    recorded: Vec<RecordedBatch>,
    read_bytes: usize,
    bytes: usize,
}

pub(super) fn read(
    shared: &EmbeddedShared,
    stretches: Vec<Stretch>,
    bytes: usize,
) -> Result<Vec<RecordedBatch>, StoreError> {
    let shards = shared.meta.shards;
    if let Some(stretch) = stretches.iter().find(|stretch| stretch.shard.0 >= shards) {
        return Err(super::unknown_shard(stretch.shard, shards.into()));
    }
    loop {
        if let Some(recorded) = read_of(shared, stretches.clone(), bytes)? {
            return Ok(recorded);
        }
    }
}

/// None if a segment was removed before it was read: the caller then reads again, as if the request had just come.
fn read_of(
    shared: &EmbeddedShared,
    wanted: Vec<Stretch>,
    bytes: usize,
) -> Result<Option<Vec<RecordedBatch>>, StoreError> {
    let (history, segments) = {
        let catalog = shared.catalog();
        (catalog.history.clone(), catalog.segments.clone())
    };
    let mut reading = Reading { wanted, recorded: Vec::new(), read_bytes: 0, bytes };
    for HistorySegment { segment, end } in history {
        if reading.is_done() {
            break;
        }
        if reading.next_of(&segment, 0).is_none() {
            continue;
        }
        let number = segment.header.number;
        let Some(file) = opened(shared, &segment)? else { return Ok(None) };
        let read = reading.segment(&KeptSegment { segment, file, end });
        read.inspect_err(|error| shared.note_damage(error, Some(number)))?;
    }
    for kept in &segments {
        if reading.is_done() {
            break;
        }
        let number = kept.segment.header.number;
        reading.segment(kept).inspect_err(|error| shared.note_damage(error, Some(number)))?;
    }
    Ok(Some(reading.recorded))
}

/// Reads the first covered segment with this number or a higher one, whole, and returns where to go on. Only history is read
/// from such segments, but a start reads them, too. The first call (`from` 0) also checks that every file has its name, and
/// that the headers of the open files are right.
pub(super) fn reread(shared: &EmbeddedShared, from: u64) -> Result<Option<u64>, StoreError> {
    if from == 0 {
        presence::check(shared)?;
        plates::check_open(shared)?;
    }
    let found = {
        let catalog = shared.catalog();
        catalog.history.iter().find(|of| of.segment.header.number >= from).cloned()
    };
    let Some(HistorySegment { segment, end }) = found else { return Ok(None) };
    let number = segment.header.number;
    if let Some(file) = opened(shared, &segment)? {
        let kept = KeptSegment { segment, file, end };
        plates::check_segment(shared, &kept)?;
        let read = replay::segment_frames(&kept, segment::HEADER_BYTES as u64, &mut Vec::new(), |_| Ok(()));
        read.inspect_err(|error| shared.note_damage(error, Some(number)))?;
    }
    Ok(Some(number + 1))
}

/// Opens a segment that a snapshot covers. None if it was removed just now. A segment that is still kept, but is not under
/// its name, is missing, unless the whole directory was moved elsewhere.
fn opened(shared: &EmbeddedShared, segment: &Segment) -> Result<Option<Arc<dyn DiskFile>>, StoreError> {
    match shared.disk.open(&segment.path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound && !is_kept(shared, segment) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let elsewhere = || problem::io("opening", &segment.path)(error);
            Err(presence::check(shared).err().unwrap_or_else(elsewhere))
        }
        Err(error) => {
            let error = problem::io("opening", &segment.path)(error);
            shared.note_damage(&error, Some(segment.header.number));
            Err(error)
        }
    }
}

fn is_kept(shared: &EmbeddedShared, segment: &Segment) -> bool {
    shared.catalog().headers().any(|header| header.number == segment.header.number)
}

fn unread(path: &Path, offset: u64, misfit: &Misfit) -> StoreError {
    match misfit {
        Misfit::Codec(error) => problem::unread_at(path, offset, "a record", error),
        Misfit::Other(text) => problem::unreadable_at(path, offset, text),
    }
}

impl Reading {
    fn is_done(&self) -> bool {
        self.wanted.is_empty() || is_full(&self.recorded, self.read_bytes, self.bytes)
    }

    /// Where to read on, at `at` or after it; none if the segment has nothing more that is wanted.
    fn next_of(&self, segment: &Segment, at: u64) -> Option<u64> {
        let offset = |wanted: &Stretch| segment.marks.offset_of(wanted.shard, wanted.after, wanted.until);
        Some(self.wanted.iter().filter_map(offset).min()?.max(at))
    }

    fn segment(&mut self, KeptSegment { segment, file, end }: &KeptSegment) -> Result<(), StoreError> {
        let (mut at, mut piece, mut buffer) = (segment::HEADER_BYTES as u64, PIECE_BYTES, Vec::new());
        while !self.is_done()
            && let Some(next) = self.next_of(segment, at).filter(|next| next < end)
        {
            at = next;
            let wanted = piece.min(end - at) as usize;
            if buffer.len() < wanted {
                buffer = vec![0; wanted];
            }
            let buffer = &mut buffer[..wanted];
            super::disk::read_exact(&**file, buffer, at).map_err(problem::io("reading", &segment.path))?;
            let read = self.piece(buffer);
            let (length, cut) = read.map_err(|(place, misfit)| unread(&segment.path, at + place as u64, &misfit))?;
            if length == 0 && (cut <= buffer.len() || at + cut as u64 > *end) {
                return Err(problem::unreadable_at(&segment.path, at, BAD_FRAME));
            }
            at += length as u64;
            // A frame that was cut off is read as a whole next time.
            piece = PIECE_BYTES.max(cut as u64);
        }
        Ok(())
    }

    /// Reads frames. Returns where they end, and the length of the frame that is cut off there.
    fn piece(&mut self, bytes: &[u8]) -> Result<(usize, usize), (usize, Misfit)> {
        let mut place = 0;
        while place < bytes.len() && !self.is_done() {
            let rest = &bytes[place..];
            let Some(frame) = Frame::parse(rest) else {
                // Cut off, or damaged: reading it again from its beginning shows which.
                return match Frame::announced(rest) {
                    None if rest.len() < frame::HEADER_BYTES => Ok((place, frame::HEADER_BYTES)),
                    Some(length) if length > rest.len() => Ok((place, length)),
                    None | Some(_) => Err((place, Misfit::Other(BAD_FRAME.to_owned()))),
                };
            };
            self.frame(&frame).map_err(|error| (place, Misfit::Codec(error)))?;
            place += frame.length;
        }
        Ok((place, 0))
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), codec::CodecError> {
        let Self { wanted, recorded, read_bytes, .. } = self;
        frame::entries(frame.payload, |entry| {
            let FrameEntry::Batch(parent, bytes) = entry else { return Ok(()) };
            let header = codec::batch_header(&mut codec::Reader::new(bytes))?;
            let Some(at) = wanted.iter().position(|stretch| stretch.shard == header.shard) else { return Ok(()) };
            let stretch = &mut wanted[at];
            if header.seq > stretch.after && header.seq <= stretch.until {
                stretch.after = header.seq;
                *read_bytes += bytes.len();
                recorded.push(RecordedBatch {
                    shard: header.shard,
                    seq: header.seq,
                    digest: parent.map(|parent| fence::digest(parent, bytes)),
                    bytes: bytes.into(),
                });
            }
            if stretch.after >= stretch.until {
                wanted.swap_remove(at);
            }
            Ok(())
        })
    }
}
