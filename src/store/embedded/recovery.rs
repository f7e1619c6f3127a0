//! Start: every file is read and judged before anything is served.
//!
//! The rule: what was acknowledged is there, whole and unchanged, or the start is refused with the file, the place and
//! what to do. Only one thing is mended, and it is said: a *torn tail*, the last frame, whose flush never ended. It is one
//! only if
//! - nothing valid stands behind it, in its segment or in a later one (a frame is written only after the one before it is
//!   durable, so what stands behind proves that it was durable too), and
//! - the mark does not name it: it was never acknowledged.
//!
//! An absence is judged like a change: numbers of segments and groups are dense, the snapshot names the oldest segment that
//! must be there, unless `retention` has noted a later one, a sealed segment has a successor, and the log must reach the mark.
//!
//! Neighbours: `mod` opens with what comes out, `report` prints it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::frame::{self, Frame, FrameEntry};
use super::meta::Meta;
use super::problem;
use super::replay::{Gathered, Misfit, Overlay, Prepared};
use super::retention;
use super::segment::{self, LOG, Segment, SegmentHeader, Spare};
use super::shared::{self, HistorySegment, KeptSegment};
use super::snapshot::{self, SNAP, Snapshot};
use super::window::Window;
use crate::store::codec;
use crate::store::fence::{BatchFit, FenceLine};
use crate::store::{ShardId, StoreError};

/// A data directory that can be trusted.
#[derive(Debug)]
pub(super) struct Recovered {
    pub lines: Vec<FenceLine>,
    /// Segments that the snapshot covers, oldest first, each with the end of its last frame.
    pub history: Vec<HistorySegment>,
    /// Those behind them, with a header.
    pub segments: Vec<KeptSegment>,
    /// Blank segments behind them.
    pub spares: Vec<Spare>,
    pub snapshot: Option<Arc<Snapshot>>,
    /// Last group and the digest of its frame.
    pub group: u64,
    pub digest: u128,
    /// Where the last segment goes on; none if it is sealed or there is none.
    pub open_end: Option<u64>,
    /// Offset of the last frame in the last segment, if it has one.
    pub last_frame: Option<u64>,
    /// A torn tail: its segment, from where, how many bytes.
    pub torn: Option<Torn>,
    /// Segments that should be blank and are not, and how much of each is written: blank again before they are used.
    pub unusable: Vec<(Spare, u64)>,
    /// Those that are too short to be of any use: made anew before they are used.
    pub short: Vec<PathBuf>,
    /// Files that are left over from something that was broken off.
    pub leftovers: Vec<PathBuf>,
    /// What `retention` has noted, or 0.
    pub oldest_noted: u64,
    /// What the log did behind the snapshot, if that was asked for.
    pub prepared: Prepared,
}

/// The last write of a process that lost power; it was never acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Torn {
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub from: u64,
    pub bytes: u64,
}

/// Reads everything under `dir`. Changes nothing. Where it is `to_be_loaded`, what is read is kept for that: it would be
/// read once more.
pub(super) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    meta: &Meta,
    mark: (u64, u128),
    to_be_loaded: bool,
) -> Result<Recovered, StoreError> {
    let mut leftovers = Vec::new();
    let oldest_noted = retention::read(disk, dir)?;
    let snapshot = newest_snapshot(disk, dir, meta, oldest_noted, &mut leftovers)?;
    let numbers = segment_numbers(disk, dir, snapshot.as_deref(), &mut leftovers)?;
    let mut scan = Scan::new(dir, meta, mark, snapshot);
    scan.gathered = to_be_loaded.then(|| (0..meta.shards).map(|_| Gathered::default()).collect());
    let mut buffer = Vec::new();
    for number in numbers {
        let path = dir.join(LOG).join(segment::name(number));
        let file = disk.open(&path).map_err(problem::io("opening", &path))?;
        let length = file.length().map_err(problem::io("reading", &path))?;
        scan.segment(number, path, file, length, &mut buffer)?;
    }
    scan.finish(leftovers, oldest_noted)
}

fn newest_snapshot(
    disk: &dyn Disk,
    dir: &Path,
    meta: &Meta,
    oldest_noted: u64,
    leftovers: &mut Vec<PathBuf>,
) -> Result<Option<Arc<Snapshot>>, StoreError> {
    let snap = dir.join(SNAP);
    let names = disk.list(&snap).map_err(problem::unread(&snap, "cannot be listed"))?;
    let mut covered: Vec<u64> = names.iter().filter_map(|name| snapshot::covered_of(name)).collect();
    leftovers.extend(names.iter().filter(|name| name.ends_with(".tmp")).map(|name| snap.join(name)));
    covered.sort_unstable();
    let Some(newest) = covered.pop() else { return Ok(None) };
    // It was read back before it had its name, so those before it are of no use any more, whole or not.
    leftovers.extend(covered.into_iter().map(|older| snap.join(snapshot::name(older))));
    let path = snap.join(snapshot::name(newest));
    let mut snapshot = Snapshot::open(disk, &path, meta.register, meta.shards)?;
    snapshot.place.oldest = snapshot.place.oldest.max(oldest_noted);
    if snapshot.place.covered != newest {
        return Err(problem::damaged(&path, "has the content of another snapshot"));
    }
    Ok(Some(Arc::new(snapshot)))
}

/// Numbers of the segments that belong to the register, ascending without a gap.
fn segment_numbers(
    disk: &dyn Disk,
    dir: &Path,
    snapshot: Option<&Snapshot>,
    leftovers: &mut Vec<PathBuf>,
) -> Result<Vec<u64>, StoreError> {
    let log = dir.join(LOG);
    let names = disk.list(&log).map_err(problem::unread(&log, "cannot be listed"))?;
    leftovers.extend(names.iter().filter(|name| name.ends_with(".tmp")).map(|name| log.join(name)));
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number_of(name)).collect();
    numbers.sort_unstable();
    let oldest = snapshot.map_or(1, |snapshot| snapshot.place.oldest);
    let kept = numbers.partition_point(|&number| number < oldest);
    leftovers.extend(numbers.drain(..kept).map(|number| log.join(segment::name(number))));
    for (expected, place) in (oldest..).zip(0..numbers.len().max(1)) {
        if numbers.get(place) != Some(&expected) {
            return Err(problem::damaged(&log.join(segment::name(expected)), "is missing"));
        }
    }
    Ok(numbers)
}

struct Scan<'a> {
    dir: &'a Path,
    meta: &'a Meta,
    mark: (u64, u128),
    snapshot: Option<Arc<Snapshot>>,
    /// None: nothing of the shard was seen yet, and history begins after its beginning.
    lines: Vec<Option<FenceLine>>,
    /// Last group and its digest; none before the first segment that is kept.
    last: Option<(u64, u128)>,
    /// Where the log ended; what comes behind must be blank.
    ended: Option<(PathBuf, u64)>,
    history: Vec<HistorySegment>,
    segments: Vec<KeptSegment>,
    spares: Vec<Spare>,
    last_frame: Option<u64>,
    open_end: Option<u64>,
    torn: Option<Torn>,
    unusable: Vec<(Spare, u64)>,
    short: Vec<PathBuf>,
    /// Steps of each shard behind the snapshot, if they are to be kept.
    gathered: Option<Vec<Gathered>>,
}

impl<'a> Scan<'a> {
    fn new(dir: &'a Path, meta: &'a Meta, mark: (u64, u128), snapshot: Option<Arc<Snapshot>>) -> Self {
        let shards = 0..meta.shards;
        let from_start = snapshot.as_ref().is_none_or(|snapshot| snapshot.place.oldest == 1);
        Self {
            dir,
            meta,
            mark,
            lines: shards.map(|shard| from_start.then(|| FenceLine::new(ShardId(shard)))).collect(),
            last: from_start.then_some((0, 0)),
            snapshot,
            ended: None,
            history: Vec::new(),
            segments: Vec::new(),
            spares: Vec::new(),
            last_frame: None,
            open_end: None,
            torn: None,
            unusable: Vec::new(),
            short: Vec::new(),
            gathered: None,
        }
    }

    /// Group that the snapshot covers.
    fn covered(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.place.covered)
    }

    fn segment(
        &mut self,
        number: u64,
        path: PathBuf,
        file: Arc<dyn DiskFile>,
        length: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let mut window = Window::new(&path, &*file, length, buffer);
        let header = SegmentHeader::parse(window.bytes(0, segment::HEADER_BYTES)?);
        if let Some((end_path, end)) = &self.ended {
            let written = window.written(0)?;
            if header.is_some() || window.find_frame(0, written)?.is_some() {
                let text = "the log breaks off there, though a later segment goes on";
                return Err(problem::damaged_at(end_path, *end, text));
            }
            self.blank(Spare { number, path, file, length }, written);
            return Ok(());
        }
        let Some(header) = header else {
            let written = window.written(0)?;
            if window.find_frame(0, written)?.is_some() {
                return Err(problem::damaged_at(&path, 0, "its header is unreadable, though frames stand behind it"));
            }
            self.ended = Some((path.clone(), 0));
            self.blank(Spare { number, path, file, length }, written);
            return Ok(());
        };
        self.check_header(&header, number, &path, length)?;
        let segment = Arc::new(Segment { header, path, marks: segment::Marks::default() });
        let mut window = Window::new(&segment.path, &*file, length, buffer);
        let end = self.frames(&segment, &file, &mut window)?;
        self.segments.push(KeptSegment { segment, file, end });
        // Closed at once: a start has no more of history open than what comes after it.
        let covered = self.covered();
        shared::cover(&mut self.segments, covered, &mut self.history);
        Ok(())
    }

    /// A segment without content: a spare, or what a broken-off first write left of one.
    fn blank(&mut self, spare: Spare, written: u64) {
        // One that is too short is made anew. So are those behind it: numbers are dense.
        if !self.short.is_empty() || spare.length <= (segment::HEADER_BYTES + frame::SEAL_BYTES) as u64 {
            self.short.push(spare.path);
            return;
        }
        if written > 0 {
            self.unusable.push((spare.clone(), written));
        }
        self.spares.push(spare);
    }

    fn check_header(
        &mut self,
        header: &SegmentHeader,
        number: u64,
        path: &Path,
        length: u64,
    ) -> Result<(), StoreError> {
        if header.register != self.meta.register {
            return Err(problem::foreign(path, "is of another register; put back the file that belongs here"));
        }
        if header.number != number {
            return Err(problem::damaged(path, format_args!("has the content of segment {}", header.number)));
        }
        if header.length != length {
            let text = format!("is {length} bytes long and should be {}", header.length);
            return Err(problem::damaged(path, text));
        }
        // The first segment that is kept is believed; everything behind it follows from it.
        let (group, digest) = *self.last.get_or_insert((header.first_group.saturating_sub(1), header.parent));
        if header.first_group != group + 1 || header.parent != digest {
            let text = format!("begins with group {} where group {} belongs", header.first_group, group + 1);
            return Err(problem::damaged(path, text));
        }
        if let Some(snapshot) = &self.snapshot
            && snapshot.place.covered < group
            && self.history.is_empty()
            && self.segments.is_empty()
        {
            let text = format!("ends at group {}, before the first segment that is kept", snapshot.place.covered);
            return Err(problem::damaged(&snapshot.path, text));
        }
        self.meet_snapshot()
    }

    fn frames(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn DiskFile>,
        window: &mut Window<'_>,
    ) -> Result<u64, StoreError> {
        let mut at = segment::HEADER_BYTES as u64;
        self.last_frame = None;
        loop {
            let Some(frame) = window.frame(at)? else {
                self.end(segment, file, window, at)?;
                return Ok(at);
            };
            let (group, digest) = self.last.unwrap_or_default();
            if frame.group != group + 1 || frame.parent != digest || frame.durable >= frame.group {
                let text = format!("group {} stands where group {} belongs", frame.group, group + 1);
                return Err(problem::damaged_at(&segment.path, at, text));
            }
            let sealed =
                self.entries(segment, &frame, at).map_err(|misfit| problem::damaged_at(&segment.path, at, misfit))?;
            self.last = Some((frame.group, frame.digest()));
            self.last_frame = Some(at);
            self.meet_snapshot()?;
            self.meet_mark(&segment.path, at)?;
            at += frame.length as u64;
            if sealed {
                return Ok(at);
            }
        }
    }

    fn entries(&mut self, segment: &Segment, frame: &Frame<'_>, at: u64) -> Result<bool, Misfit> {
        let mut sealed = false;
        let keeps = frame.group > self.covered();
        let (lines, gathered) = (&mut self.lines, &mut self.gathered);
        let shards = lines.len();
        let unknown = |shard: ShardId| Misfit::Other(format!("shard {} is none of {shards}", shard.0));
        frame::entries(frame.payload, |entry| match entry {
            FrameEntry::Batch(parent, bytes) => {
                let header = codec::batch_header(&mut codec::Reader::new(bytes))?;
                segment.marks.note(header.shard, (header.seq, header.seq), at);
                let known = lines.get(usize::from(header.shard.0)).and_then(Option::as_ref);
                if known.zip(parent).is_some_and(|(line, parent)| line.head().digest != parent) {
                    let text = format!("batch {} of shard {} is of another line", header.seq.0, header.shard.0);
                    return Err(Misfit::Other(text));
                }
                match lines.get_mut(usize::from(header.shard.0)) {
                    None => Err(unknown(header.shard)),
                    Some(None) => Ok(()),
                    Some(Some(line)) => match line.check(&header, bytes) {
                        Ok(BatchFit::Next(digest)) => {
                            line.follow(&header, digest);
                            let of_shard = gathered.as_mut().filter(|_| keeps);
                            match of_shard.and_then(|all| all.get_mut(usize::from(header.shard.0))) {
                                Some(gathered) => gathered.batch(bytes).map(drop),
                                None => Ok(()),
                            }
                        }
                        Ok(BatchFit::Applied(_)) | Err(_) => {
                            let text = format!("batch {} of shard {} does not follow", header.seq.0, header.shard.0);
                            Err(Misfit::Other(text))
                        }
                    },
                }
            }
            FrameEntry::Take(shard, head) => {
                let line = lines.get_mut(usize::from(shard.0)).ok_or_else(|| unknown(shard))?;
                match line {
                    Some(line) => line.take(head),
                    None => *line = Some(FenceLine::at(shard, head)),
                }
                Ok(())
            }
            FrameEntry::Seal => {
                sealed = true;
                Ok(())
            }
        })?;
        Ok(sealed)
    }

    /// The frames of a segment end without a seal.
    fn end(
        &mut self,
        segment: &Segment,
        file: &Arc<dyn DiskFile>,
        window: &mut Window<'_>,
        at: u64,
    ) -> Result<(), StoreError> {
        let written = window.written(at)?;
        if let Some(next) = window.find_frame(at, written)? {
            let text = format!("a frame is unreadable, though a valid one follows at offset {next}");
            return Err(problem::damaged_at(&segment.path, at, text));
        }
        if written > at {
            let (path, file) = (segment.path.clone(), Arc::clone(file));
            self.torn = Some(Torn { path, file, from: at, bytes: written - at });
        }
        self.ended = Some((segment.path.clone(), at));
        self.open_end = Some(at);
        Ok(())
    }

    /// Where the log reaches the snapshot, both must tell the same; from there on the snapshot's heads count.
    fn meet_snapshot(&mut self) -> Result<(), StoreError> {
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        let Some((group, digest)) = self.last else { return Ok(()) };
        if group != snapshot.place.covered {
            return Ok(());
        }
        if digest != snapshot.place.digest {
            return Err(problem::damaged(&snapshot.path, "is of another log than the segments beside it"));
        }
        for (shard, (line, &head)) in self.lines.iter_mut().zip(&snapshot.heads).enumerate() {
            match line {
                Some(line) if line.head() != head => {
                    let text = format!("and the log tell different heads of shard {shard} at group {group}");
                    return Err(problem::damaged(&snapshot.path, text));
                }
                Some(_) => {}
                None => *line = Some(FenceLine::at(ShardId(shard as u16), head)),
            }
        }
        Ok(())
    }

    fn meet_mark(&self, path: &Path, at: u64) -> Result<(), StoreError> {
        let (marked, digest) = self.mark;
        if self.last.is_some_and(|last| last.0 == marked && last.1 != digest) {
            return Err(problem::damaged_at(
                path,
                at,
                format_args!("group {marked} is not the one that was acknowledged"),
            ));
        }
        Ok(())
    }

    fn finish(mut self, leftovers: Vec<PathBuf>, oldest_noted: u64) -> Result<Recovered, StoreError> {
        if let Some(snapshot) = &self.snapshot
            && self.last.is_none()
        {
            // No segment with frames is kept: the log goes on where the snapshot ends.
            self.last = Some((snapshot.place.covered, snapshot.place.digest));
            self.meet_snapshot()?;
        }
        let (group, digest) = self.last.unwrap_or_default();
        let log = self.dir.join(LOG);
        if let Some(snapshot) = &self.snapshot
            && snapshot.place.covered > group
        {
            let text = format!("ends at group {group}, though a snapshot has group {}", snapshot.place.covered);
            return Err(problem::damaged(&log, text));
        }
        if self.mark.0 > group {
            let (path, at) = self.ended.clone().unwrap_or((log, 0));
            let text = format!("the log ends there with group {group}, but group {} was acknowledged", self.mark.0);
            return Err(problem::damaged_at(&path, at, text));
        }
        if self.ended.is_none() {
            let next = self.segments.last().map_or(1, |kept| kept.segment.header.number + 1);
            let path = log.join(segment::name(next));
            return Err(problem::damaged(&path, "is missing, though the segment before it is sealed"));
        }
        let covered = self.covered();
        let until = self.segments.last().map_or((0, 0), |kept| (kept.segment.header.number, kept.end));
        let lines = self.lines.into_iter().enumerate();
        let lines: Vec<FenceLine> =
            lines.map(|(shard, line)| line.unwrap_or_else(|| FenceLine::new(ShardId(shard as u16)))).collect();
        let overlay =
            |(line, gathered): (&FenceLine, Gathered)| (line.shard(), Overlay { line: line.clone(), gathered });
        let overlays = lines.iter().zip(self.gathered.into_iter().flatten()).map(overlay).collect();
        Ok(Recovered {
            prepared: Prepared { overlays, covered, until },
            lines,
            history: self.history,
            segments: self.segments,
            spares: self.spares,
            snapshot: self.snapshot,
            group,
            digest,
            open_end: self.open_end,
            last_frame: self.last_frame,
            torn: self.torn,
            unusable: self.unusable,
            short: self.short,
            leftovers,
            oldest_noted,
        })
    }
}
