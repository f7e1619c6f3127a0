//! The thread that commits: the only one that writes the log.
//!
//! It takes everything that waits, of all shards, as one group: it encodes, compares with the lines, makes one frame, writes
//! and flushes once, and then answers all. While the flush runs the next group gathers, so no timer is needed.
//!
//! After a write or flush that failed nobody knows what the disk has, and a second flush may report success for pages that
//! were dropped. So nothing is tried again: the group is *unknown*, the store is *failed*, and only a restart can find out
//! what is true.
//!
//! Neighbours: `mod` queues the jobs, `fence` has the rules, `allocator` makes the segments that are taken here.
//!
//! Review notes: is anything answered before the flush? Is a line changed before all checks of its call have passed?

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use tokio::sync::oneshot;

use super::disk::DiskFile;
use super::frame;
use super::meta::{MARK, Mark};
use super::segment::{self, Lengths, Segment, SegmentHeader, Spare};
use super::shared::{EmbeddedShared, KeptSegment, now_ms};
use crate::core::types::Generation;
use crate::store::fence::{self, BatchFit, FenceLine};
use crate::store::{Batch, CommitError, Committed, Head, Seq, ShardId, StoreError, StoreHealth, Token};

/// A group is closed once it is longer than this.
const GROUP_BYTES: usize = 4 << 20;
/// With less than this left in the segment, a group waits for the spare one.
const ROOM_BYTES: u64 = GROUP_BYTES as u64 * 2;

pub(super) enum WriteJob {
    Commit(Arc<[Batch]>, oneshot::Sender<Result<Vec<Committed>, CommitError>>),
    Take(ShardId, Token, oneshot::Sender<Result<Head, StoreError>>),
    Close,
}

/// An answer that waits for the flush.
enum FlushAnswer {
    Commit(oneshot::Sender<Result<Vec<Committed>, CommitError>>, Result<Vec<Committed>, CommitError>),
    Take(oneshot::Sender<Result<Head, StoreError>>, Result<Head, StoreError>),
}

impl FlushAnswer {
    /// If the caller has gone, nobody needs the answer.
    fn send(self) {
        match self {
            FlushAnswer::Commit(reply, answer) => drop(reply.send(answer)),
            FlushAnswer::Take(reply, answer) => drop(reply.send(answer)),
        }
    }

    /// The answer after a failed write: a change that was staged may or may not be durable; a refusal stays a refusal.
    fn unknown(self, cause: &StoreError) -> Self {
        match self {
            FlushAnswer::Commit(reply, Ok(_)) => {
                FlushAnswer::Commit(reply, Err(CommitError::Unknown { cause: cause.clone() }))
            }
            FlushAnswer::Take(reply, Ok(_)) => FlushAnswer::Take(reply, Err(cause.clone())),
            refused => refused,
        }
    }
}

/// The segment that is being filled.
#[derive(Debug)]
pub(super) struct Active {
    pub segment: Arc<Segment>,
    pub file: Arc<dyn DiskFile>,
    /// Where the next frame goes.
    pub at: u64,
}

/// Why a call is not part of the group.
enum Unstaged {
    Refused(CommitError),
    /// It does not fit into the rest of the group's room.
    NoRoom,
}

impl From<CommitError> for Unstaged {
    fn from(error: CommitError) -> Self {
        Unstaged::Refused(error)
    }
}

pub(super) struct Writer {
    pub shared: Arc<EmbeddedShared>,
    pub jobs: Receiver<WriteJob>,
    pub lines: Vec<FenceLine>,
    pub active: Option<Active>,
    pub group: u64,
    pub digest: u128,
    pub mark: Mark,
    /// The frame that is being made; its first bytes are reserved for the header.
    pub frame: Vec<u8>,
    pub scratch: Vec<u8>,
    /// The first job of the next group.
    pub carried: Option<WriteJob>,
}

impl Writer {
    pub(super) fn run(mut self) {
        self.shared.note_left(self.remaining());
        while let Some(job) = self.carried.take().or_else(|| self.jobs.recv().ok()) {
            if matches!(job, WriteJob::Close) {
                break;
            }
            if self.shared.health() == StoreHealth::Failed {
                self.refuse(job);
            } else {
                self.group(job);
            }
        }
        if self.shared.health() != StoreHealth::Failed {
            // Jobs that remain were never begun. The mark is flushed, so that a log that is cut after a clean end is noticed.
            if let Err(error) = self.mark.sync() {
                tracing::warn!(%error, "cannot flush the mark of the log's end");
            }
            self.shared.fail("it was closed".into());
        }
        while let Ok(job) = self.jobs.try_recv() {
            self.refuse(job);
        }
    }

    fn refuse(&self, job: WriteJob) {
        let cause = self.shared.poisoned();
        match job {
            WriteJob::Commit(_, reply) => drop(reply.send(Err(CommitError::NotApplied { cause }))),
            WriteJob::Take(_, _, reply) => drop(reply.send(Err(cause))),
            WriteJob::Close => {}
        }
    }

    fn group(&mut self, first: WriteJob) {
        let room = self.wait_for_room();
        self.frame.clear();
        self.frame.resize(frame::HEADER_BYTES, 0);
        let mut touched = Vec::new();
        let mut answers = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next {
            if let Some(job) = self.stage(job, room, &mut answers, &mut touched) {
                self.carried = Some(job);
                break;
            }
            if self.frame.len() > GROUP_BYTES {
                break;
            }
            next = self.jobs.try_recv().ok();
        }
        if self.frame.len() > frame::HEADER_BYTES {
            match self.write() {
                Ok(at) => self.publish(&touched, at),
                Err(cause) => {
                    tracing::error!(dir = %self.shared.dir.display(), error = ?cause,
                        "cannot write the log; nothing is taken any more, restart to read what is durable");
                    self.shared.fail(cause.to_string().into());
                    answers = answers.into_iter().map(|answer| answer.unknown(&cause)).collect();
                }
            }
        }
        answers.into_iter().for_each(FlushAnswer::send);
    }

    fn remaining(&self) -> u64 {
        self.active
            .as_ref()
            .map_or(0, |active| active.segment.header.length.saturating_sub(active.at + frame::SEAL_BYTES as u64))
    }

    /// The longest frame that this group may have. Waits for the spare segment if it is likely to be needed and will come.
    fn wait_for_room(&self) -> usize {
        let remaining = self.remaining();
        if remaining < ROOM_BYTES {
            self.give_up_nameless_spare();
        }
        let is_enough = remaining >= ROOM_BYTES && self.shared.catalog().spares.is_empty();
        let spare = if is_enough { None } else { self.wait_for_spare() };
        spare.map_or(remaining as usize, |fresh| fresh.max(remaining as usize))
    }

    /// Gives up a spare segment that somebody removed, so that it is made again before anything is staged. If there is no
    /// room for it, the store is full, as for want of any other segment.
    fn give_up_nameless_spare(&self) {
        let Some(spare) = self.shared.catalog().spares.front().cloned() else { return };
        if self.has_its_name(&spare) {
            return;
        }
        tracing::error!(path = %spare.path.display(), "{}", segment::SPARE_GONE);
        let number = spare.number;
        // With the last handle, its room is free again.
        drop(spare);
        let mut catalog = self.shared.catalog();
        catalog.spares.clear();
        catalog.next_number = number;
    }

    fn has_its_name(&self, spare: &Spare) -> bool {
        // After the directory was moved away, the segment has its name there. A disk that cannot answer will report its own
        // error.
        spare.file.is_at(&spare.path).unwrap_or(true) || self.shared.check_place().is_err()
    }

    /// Waits for the spare segment if it will come, and returns the longest frame that fits into it.
    fn wait_for_spare(&self) -> Option<usize> {
        let mut catalog = self.shared.catalog();
        loop {
            if let Some(spare) = catalog.spares.front() {
                let taken = (segment::HEADER_BYTES + frame::SEAL_BYTES) as u64;
                return Some(spare.length.saturating_sub(taken) as usize);
            }
            if self.shared.health() != StoreHealth::Ready || catalog.stopping {
                return None;
            }
            if !std::mem::replace(&mut catalog.is_awaited, true) {
                self.shared.notify();
            }
            catalog = self.shared.wait(catalog, self.shared.options.idle);
        }
    }

    /// Adds a job to the group, or refuses it, or returns it for the next group.
    fn stage(
        &mut self,
        job: WriteJob,
        room: usize,
        answers: &mut Vec<FlushAnswer>,
        touched: &mut Vec<ShardId>,
    ) -> Option<WriteJob> {
        let start = self.frame.len();
        match job {
            WriteJob::Close => return Some(WriteJob::Close),
            WriteJob::Commit(batches, reply) => match self.stage_commit(&batches, room, touched) {
                Ok(committed) => answers.push(FlushAnswer::Commit(reply, Ok(committed))),
                Err(Unstaged::Refused(error)) => {
                    self.frame.truncate(start);
                    answers.push(FlushAnswer::Commit(reply, Err(error)));
                }
                Err(Unstaged::NoRoom) => {
                    let wanted = self.frame.len();
                    self.frame.truncate(start);
                    // A job that is alone in its group is refused only if it does not fit into a fresh segment either, or
                    // none will come.
                    if start > frame::HEADER_BYTES || self.wait_for_spare().is_some_and(|fresh| wanted <= fresh) {
                        return Some(WriteJob::Commit(batches, reply));
                    }
                    answers.push(FlushAnswer::Commit(reply, Err(CommitError::NotApplied { cause: self.no_room() })));
                }
            },
            WriteJob::Take(shard, token, reply) => match self.stage_take(shard, token, room, touched) {
                Ok(head) => answers.push(FlushAnswer::Take(reply, Ok(head))),
                Err(error) => {
                    self.frame.truncate(start);
                    if start > frame::HEADER_BYTES && matches!(error, StoreError::Full) {
                        return Some(WriteJob::Take(shard, token, reply));
                    }
                    answers.push(FlushAnswer::Take(reply, Err(error)));
                }
            },
        }
        None
    }

    fn no_room(&self) -> StoreError {
        match self.shared.health() {
            StoreHealth::Full => StoreError::Full,
            StoreHealth::Ready | StoreHealth::Hindered | StoreHealth::Failed => {
                let bytes = self.shared.options.segment_bytes;
                StoreError::Invalid(format!("the batches are longer than a log segment of {bytes} bytes").into())
            }
        }
    }

    fn stage_commit(
        &mut self,
        batches: &[Batch],
        room: usize,
        touched: &mut Vec<ShardId>,
    ) -> Result<Vec<Committed>, Unstaged> {
        fence::check_once_each(batches)?;
        let full = self.shared.health() == StoreHealth::Full;
        let mut verdicts = Vec::with_capacity(batches.len());
        for batch in batches {
            let header = fence::header_of(batch);
            let count = self.lines.len();
            let line = self.lines.get(usize::from(batch.shard.0));
            let unknown = || CommitError::NotApplied { cause: super::unknown_shard(batch.shard, count) };
            let line = line.ok_or_else(unknown)?;
            self.scratch.clear();
            fence::encode(batch, line.head().format, &mut self.scratch)?;
            let verdict = line.check(&header, &self.scratch)?;
            if let BatchFit::Next(_) = verdict {
                if full && !batch.lets_go() {
                    return Err(CommitError::NotApplied { cause: StoreError::Full }.into());
                }
                frame::put_batch(&mut self.frame, line.head().digest, &self.scratch);
            }
            verdicts.push((header, verdict));
        }
        if self.frame.len() > room {
            return Err(Unstaged::NoRoom);
        }
        // Every check has passed. From here on everything succeeds.
        let mut committed = Vec::with_capacity(batches.len());
        for (header, verdict) in verdicts {
            if let BatchFit::Next(digest) = verdict {
                self.lines[usize::from(header.shard.0)].follow(&header, digest);
                touched.push(header.shard);
            }
            committed.push(fence::committed(&header, verdict));
        }
        Ok(committed)
    }

    fn line(&mut self, shard: ShardId) -> Result<&mut FenceLine, StoreError> {
        let count = self.lines.len();
        self.lines.get_mut(usize::from(shard.0)).ok_or_else(|| super::unknown_shard(shard, count))
    }

    fn stage_take(
        &mut self,
        shard: ShardId,
        token: Token,
        room: usize,
        touched: &mut Vec<ShardId>,
    ) -> Result<Head, StoreError> {
        let floor = Generation(self.shared.meta.generation_floor);
        let wanted = self.shared.record_format();
        let line = self.line(shard)?;
        let Some(mut head) = line.after_take(token, wanted) else { return Ok(line.head()) };
        head.generation = head.generation.max(floor);
        frame::put_take(&mut self.frame, shard, &head)
            .map_err(|error| StoreError::Invalid(format!("the head of shard {} {error}", shard.0).into()))?;
        if self.frame.len() > room {
            return Err(StoreError::Full);
        }
        self.line(shard)?.take(head);
        touched.push(shard);
        Ok(head)
    }

    /// One write and one flush. Returns the offset of the frame.
    fn write(&mut self) -> Result<u64, StoreError> {
        let length = self.frame.len() as u64;
        if self.remaining() < length {
            self.rotate()?;
        }
        let digest = frame::finish(&mut self.frame, self.group + 1, self.digest);
        let Some(active) = &mut self.active else { return Err(StoreError::Full) };
        let segment = &active.segment;
        let write = || {
            if active.at == 0 {
                let mut first = segment.header.bytes();
                first.extend_from_slice(&self.frame);
                active.file.write_at(&first, 0)?;
            } else {
                active.file.write_at(&self.frame, active.at)?;
            }
            active.file.sync()
        };
        write().map_err(super::problem::io("writing", &segment.path))?;
        if let Err(error) = self.mark.put(self.group + 1, digest) {
            return Err(super::problem::io("writing", &self.shared.dir.join(MARK))(error));
        }
        let begin = active.at.max(segment::HEADER_BYTES as u64);
        active.at = begin + length;
        self.group += 1;
        self.digest = digest;
        self.shared.note_left(self.remaining());
        tracing::trace!(log_group = self.group, bytes = length, "flushed");
        self.shared.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.shared.counters.log_bytes.fetch_add(length, Ordering::Relaxed);
        Ok(begin)
    }

    /// Ensures that a spare segment has its name. Whatever is written to a file without a name is lost when the process
    /// ends, and the next start would miss it. So a spare that somebody removed since the group was begun is made again,
    /// while its commits wait. It must have the same length, because the room of the group was computed with it.
    fn named(&self, spare: Spare) -> Result<Spare, StoreError> {
        if self.has_its_name(&spare) {
            return Ok(spare);
        }
        tracing::error!(path = %spare.path.display(), "{}", segment::SPARE_GONE);
        let EmbeddedShared { disk, dir, options, .. } = &*self.shared;
        let lengths = Lengths { whole: spare.length, ..options.lengths() };
        segment::create(&**disk, dir, spare.number, lengths, segment::AT_ONCE)
            .map_err(super::problem::io("making", &spare.path))
    }

    /// Seals the active segment and goes on in the spare one.
    fn rotate(&mut self) -> Result<(), StoreError> {
        // The room of the group was computed with this spare; only this thread takes spares.
        let Some(spare) = self.shared.catalog().spares.pop_front() else { return Err(StoreError::Full) };
        let spare = self.named(spare)?;
        if let Some(active) = &self.active {
            let mut seal = vec![0; frame::HEADER_BYTES];
            frame::put_seal(&mut seal);
            let digest = frame::finish(&mut seal, self.group + 1, self.digest);
            let write = || {
                active.file.write_at(&seal, active.at)?;
                active.file.sync()
            };
            write().map_err(super::problem::io("writing", &active.segment.path))?;
            self.group += 1;
            self.digest = digest;
            if let Some(kept) = self.shared.catalog().segments.last_mut() {
                kept.end = active.at + seal.len() as u64;
            }
        }
        let header = SegmentHeader {
            number: spare.number,
            register: self.shared.meta.register,
            first_group: self.group + 1,
            parent: self.digest,
            created_ms: now_ms(),
            length: spare.length,
        };
        let segment = Segment { header, path: spare.path, marks: Default::default() };
        self.active = Some(Active { segment: Arc::new(segment), file: spare.file, at: 0 });
        Ok(())
    }

    /// Shows the other threads what is durable now: a frame at this offset.
    fn publish(&mut self, touched: &[ShardId], at: u64) {
        let Some(active) = &self.active else { return };
        let mut catalog = self.shared.catalog();
        for &shard in touched {
            let head = self.lines[usize::from(shard.0)].head();
            let before = std::mem::replace(&mut catalog.heads[usize::from(shard.0)], head);
            if head.seq > before.seq {
                active.segment.marks.note(shard, (Seq(before.seq.0 + 1), head.seq), at);
            }
        }
        match catalog.segments.last_mut() {
            Some(kept) if kept.segment.header.number == active.segment.header.number => kept.end = active.at,
            _ => {
                let (segment, file) = (active.segment.clone(), active.file.clone());
                catalog.segments.push(KeptSegment { segment, file, end: active.at });
                drop(catalog);
                self.shared.notify();
            }
        }
    }
}
