//! Reads the segments one after another, and judges each by what came before it.
//!
//! Called by `recovery`, which has the rule.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Ground, Recovered, Torn};
use crate::store::codec;
use crate::store::embedded::disk::DiskFile;
use crate::store::embedded::frame::{self, Frame, FrameEntry};
use crate::store::embedded::problem;
use crate::store::embedded::replay::{Gathered, Misfit, Overlay, Prepared};
use crate::store::embedded::segment::{self, LOG, Segment, SegmentHeader, Spare};
use crate::store::embedded::shared::{self, HistorySegment, KeptSegment};
use crate::store::embedded::snapshot::Snapshot;
use crate::store::embedded::window::Window;
use crate::store::fence::{BatchFit, FenceLine};
use crate::store::{Seq, ShardId, StoreError};

pub(super) struct Scan<'a> {
    ground: Ground<'a>,
    snapshot: Option<Arc<Snapshot>>,
    /// None if nothing of the shard was seen yet and the kept history does not begin with the shard.
    lines: Vec<Option<FenceLine>>,
    /// The first batch of each shard that was read.
    pub(super) first: Vec<Option<Seq>>,
    /// The log contradicts the snapshot or the mark, and leaving out part of the log cannot change that.
    pub(super) contradicts: bool,
    /// The last group and its digest; none before the first segment that is kept.
    last: Option<(u64, u128)>,
    /// Where the log ended; whatever follows must be blank.
    ended: Option<(PathBuf, u64)>,
    history: Vec<HistorySegment>,
    segments: Vec<KeptSegment>,
    spares: Vec<Spare>,
    last_frame: Option<u64>,
    open_end: Option<u64>,
    torn: Option<Torn>,
    unusable: Vec<(Spare, u64)>,
    short: Vec<PathBuf>,
    /// Steps of each shard after the snapshot, if they are to be kept.
    gathered: Option<Vec<Gathered>>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(ground: Ground<'a>, snapshot: Option<Arc<Snapshot>>) -> Self {
        let shards = 0..ground.meta.shards;
        let from_start = snapshot.as_ref().is_none_or(|snapshot| snapshot.place.oldest == 1);
        let gathered = ground.to_be_loaded.then(|| shards.clone().map(|_| Gathered::default()).collect());
        Self {
            ground,
            first: shards.clone().map(|_| None).collect(),
            contradicts: false,
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
            gathered,
        }
    }

    /// The last group that the snapshot covers.
    fn covered(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.place.covered)
    }

    pub(super) fn segment(
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
        // Segments of history are closed at once, so that a start has few files open.
        let covered = self.covered();
        shared::cover(&mut self.segments, covered, &mut self.history);
        Ok(())
    }

    /// A segment without content: a spare, or what an interrupted first write left.
    fn blank(&mut self, spare: Spare, written: u64) {
        // A segment that is too short must be made again, and so must those after it, because numbers are dense.
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
        if header.register != self.ground.meta.register {
            return Err(problem::foreign(path, "is of another register; put back the file that belongs here"));
        }
        if header.number != number {
            return Err(problem::damaged(path, format_args!("has the content of segment {}", header.number)));
        }
        if header.length != length {
            let text = format!("is {length} bytes long and should be {}", header.length);
            return Err(problem::damaged(path, text));
        }
        // The first segment that is kept is believed; everything after it must follow from it.
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
            self.contradicts = true;
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
                self.entries(segment, &frame, at).map_err(|misfit| problem::misfit_at(&segment.path, at, &misfit))?;
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
        let (lines, first, gathered) = (&mut self.lines, &mut self.first, &mut self.gathered);
        let shards = lines.len();
        let unknown = |shard: ShardId| Misfit::Other(format!("shard {} is none of {shards}", shard.0));
        frame::entries(frame.payload, |entry| match entry {
            FrameEntry::Batch(parent, bytes) => {
                let header = codec::batch_header(&mut codec::Reader::new(bytes))?;
                segment.marks.note(header.shard, (header.seq, header.seq), at);
                if let Some(first) = first.get_mut(usize::from(header.shard.0)) {
                    first.get_or_insert(header.seq);
                }
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

    /// The frames of this segment end without a seal.
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

    /// Where the log reaches the snapshot, both must have the same digest and heads. From there on the snapshot's heads fill
    /// in shards of which nothing was seen.
    fn meet_snapshot(&mut self) -> Result<(), StoreError> {
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        let Some((group, digest)) = self.last else { return Ok(()) };
        if group != snapshot.place.covered {
            return Ok(());
        }
        if digest != snapshot.place.digest {
            self.contradicts = true;
            return Err(problem::damaged(&snapshot.path, "is of another log than the segments beside it"));
        }
        for (shard, (line, &head)) in self.lines.iter_mut().zip(&snapshot.heads).enumerate() {
            match line {
                Some(line) if line.head() != head => {
                    self.contradicts = true;
                    let text = format!("and the log tell different heads of shard {shard} at group {group}");
                    return Err(problem::damaged(&snapshot.path, text));
                }
                Some(_) => {}
                None => *line = Some(FenceLine::at(ShardId(shard as u16), head)),
            }
        }
        Ok(())
    }

    fn meet_mark(&mut self, path: &Path, at: u64) -> Result<(), StoreError> {
        let (marked, digest) = self.ground.marked.last;
        if self.last.is_some_and(|last| last.0 == marked && last.1 != digest) {
            self.contradicts = true;
            return Err(problem::damaged_at(
                path,
                at,
                format_args!("group {marked} is not the one that was acknowledged"),
            ));
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(Recovered, Vec<Option<Seq>>), StoreError> {
        if let Some(snapshot) = &self.snapshot
            && self.last.is_none()
        {
            // No segment with frames is kept: the log goes on where the snapshot ends.
            self.last = Some((snapshot.place.covered, snapshot.place.digest));
            self.meet_snapshot()?;
        }
        let (group, digest) = self.last.unwrap_or_default();
        let log = self.ground.dir.join(LOG);
        if let Some(snapshot) = &self.snapshot
            && snapshot.place.covered > group
        {
            let text = format!("ends at group {group}, though a snapshot has group {}", snapshot.place.covered);
            return Err(problem::damaged(&log, text));
        }
        if self.ground.marked.last.0 > group {
            let (path, at) = self.ended.clone().unwrap_or((log, 0));
            let text = format!(
                "the log ends there with group {group}, but group {} was acknowledged",
                self.ground.marked.last.0
            );
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
        let recovered = Recovered {
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
            leftovers: Vec::new(),
            oldest_noted: 0,
            given_up: None,
            lost_snapshot: None,
            aside: 0,
            snapshots_aside: 0,
            half_marked: self.ground.marked.is_half,
        };
        Ok((recovered, self.first))
    }
}
