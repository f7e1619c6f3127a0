//! What the threads of one store share: the catalog of files, health, figures.
//!
//! Five threads: `writer` commits, `allocator` makes segments ahead of need, `compactor` merges, and `reader` runs twice:
//! for loads by the owner, and for all other reads. Each of them changes the catalog under the lock, which is never held
//! over a read or write of a file.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::EmbeddedOptions;
use super::disk::{DirectoryLock, Disk, DiskFile, free_in};
use super::meta::{Mark, Meta};
use super::problem;
use super::replay::Prepared;
use super::segment::{Segment, SegmentHeader, Spare};
use super::snapshot::Snapshot;
use crate::store::codec::Format;
use crate::store::{Head, StoreError, StoreFigures, StoreHealth};

const READY: u8 = 0;
const FULL: u8 = 1;
const FAILED: u8 = 2;
const MB: u64 = 1_000_000;
/// The most that the take-over of a shard writes, if it is alone in its frame.
const TAKE_BYTES: u64 = 160;
/// How many starts find room on a full disk whose reserve is used up. A start that found none would make even reads impossible.
const STARTS: u64 = 8;

/// The obstacle if the disk has no more room.
pub(super) const NO_ROOM: &str = "the disk under the data directory is full";

/// The obstacle if the directory is no longer where it was opened.
const MOVED_AWAY: &str = "the data directory was moved away, or something else lies in its place: nothing is lost if it is moved \
                          back, and the server goes on by itself then";

/// `NO_ROOM` with what is wanted and what is free, because `df` shows a disk that still has some room.
fn no_room(wanted: u64, free: Option<u64>) -> String {
    match free.filter(|free| *free < wanted) {
        Some(free) => format!(
            "{NO_ROOM}: the log wants {} MB at once for its next segment, and {} MB are free",
            wanted.div_ceil(MB),
            free / MB
        ),
        None => NO_ROOM.to_owned(),
    }
}

/// Why the next segment could not be made.
#[derive(Debug, Clone)]
enum Obstacle {
    /// There is no room for it. The text says what is wanted and what is free.
    NoRoom(Arc<str>),
    /// The disk refuses it for another reason, which the text gives.
    Refused(Arc<str>),
}

/// A segment of the log that state is made from, and up to where it is durable.
#[derive(Debug, Clone)]
pub(super) struct KeptSegment {
    pub segment: Arc<Segment>,
    pub file: Arc<dyn DiskFile>,
    pub end: u64,
}

/// A segment that a snapshot covers. It is only opened when it is read, so that the limit on open files does not limit history.
#[derive(Debug, Clone)]
pub(super) struct HistorySegment {
    pub segment: Arc<Segment>,
    pub end: u64,
}

/// Which files hold the register now.
#[derive(Debug)]
pub(super) struct LogFiles {
    /// Head of each shard after the last durable group.
    pub heads: Vec<Head>,
    /// Segments that the snapshot covers, oldest first.
    pub history: Vec<HistorySegment>,
    /// Segments with frames after the snapshot, oldest first; the last one is being written.
    pub segments: Vec<KeptSegment>,
    pub spares: VecDeque<Spare>,
    /// A commit is waiting for the next spare.
    pub is_awaited: bool,
    /// Number of the next spare.
    pub next_number: u64,
    pub snapshot: Option<Arc<Snapshot>>,
    pub stopping: bool,
    pub failure: Option<Arc<str>>,
    /// Segments that were given up; their files are still in the directory.
    pub aside: u64,
    /// The same for snapshots.
    pub snapshots_aside: u64,
    /// What turned out to be unreadable since the start, by segment. The key none is for files that are not segments of history.
    pub damage: BTreeMap<Option<u64>, Arc<str>>,
}

/// Counted since the start of the process.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub flushes: AtomicU64,
    pub log_bytes: AtomicU64,
    pub compactions: AtomicU64,
    pub compaction_failures: AtomicU64,
}

impl LogFiles {
    /// Headers of all segments that are kept, oldest first.
    pub(super) fn headers(&self) -> impl DoubleEndedIterator<Item = &SegmentHeader> {
        let log = self.history.iter().map(|of| &of.segment).chain(self.segments.iter().map(|kept| &kept.segment));
        log.map(|segment| &segment.header)
    }
}

/// Moves segments that a snapshot covers from those that state is made from to the history. The last segment always stays.
pub(super) fn cover(segments: &mut Vec<KeptSegment>, covered: u64, history: &mut Vec<HistorySegment>) {
    let begins_behind = |kept: &KeptSegment| kept.segment.header.first_group <= covered + 1;
    let count = segments.iter().skip(1).take_while(|kept| begins_behind(kept)).count();
    history.extend(segments.drain(..count).map(|KeptSegment { segment, end, .. }| HistorySegment { segment, end }));
}

#[derive(Debug)]
pub(super) struct EmbeddedShared {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    /// The lock that keeps the directory for this store alone, until it is closed.
    held: Mutex<Option<DirectoryLock>>,
    /// The file into which the writer puts its marks, so that it can be checked.
    pub mark: Mark,
    pub meta: Meta,
    pub options: EmbeddedOptions,
    pub counters: Counters,
    catalog: Mutex<LogFiles>,
    changed: Condvar,
    health: AtomicU8,
    /// Bytes left for frames in the segment that is being filled.
    left: AtomicU64,
    /// Why the next segment cannot be made, while that is so.
    obstacle: Mutex<Option<Obstacle>>,
    /// A file that is not under its name, while that is so.
    gone: Mutex<Option<Arc<str>>>,
    /// What was read of the log when it was judged, for the first load of each shard.
    pub prepared: Mutex<Prepared>,
    /// The format in which records are to be written, if one was set.
    format: Mutex<Option<Format>>,
}

impl EmbeddedShared {
    pub(super) fn new(
        (dir, lock, mark): (PathBuf, DirectoryLock, Mark),
        meta: Meta,
        options: EmbeddedOptions,
        catalog: LogFiles,
        prepared: Prepared,
    ) -> Self {
        Self {
            disk: options.disk.clone(),
            format: Mutex::new(options.record_format),
            dir,
            held: Mutex::new(Some(lock)),
            mark,
            meta,
            options,
            counters: Counters::default(),
            catalog: Mutex::new(catalog),
            changed: Condvar::new(),
            health: AtomicU8::new(READY),
            left: AtomicU64::new(0),
            obstacle: Mutex::default(),
            gone: Mutex::default(),
            prepared: Mutex::new(prepared),
        }
    }

    /// The format in which records are to be written when a shard is taken next; none means the format of the register, or
    /// the newest for a new one.
    pub(super) fn record_format(&self) -> Option<Format> {
        *self.format.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write_in(&self, format: Format) {
        *self.format.lock().unwrap_or_else(PoisonError::into_inner) = Some(format);
    }

    pub(super) fn release(&self) {
        drop(self.held().take());
    }

    fn held(&self) -> MutexGuard<'_, Option<DirectoryLock>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Must be called before a file is made or removed by its name: if the directory was moved away, whatever has its name
    /// now belongs to somebody else. Open files stay in the directory wherever it goes, and can be written.
    ///
    /// # Errors
    /// The directory was moved away.
    pub(super) fn check_place(&self) -> std::io::Result<()> {
        let held = self.held().clone();
        // A disk that cannot answer this will report its own error.
        let is_moved = held.is_some_and(|held| matches!(held.is_in_place(), Ok(false)));
        if is_moved { Err(std::io::Error::other(MOVED_AWAY)) } else { Ok(()) }
    }

    pub(super) fn catalog(&self) -> MutexGuard<'_, LogFiles> {
        // Changes of the catalog are single assignments, so a panic leaves none half done.
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something in the catalog changes, or the time is over.
    pub(super) fn wait<'a>(&self, guard: MutexGuard<'a, LogFiles>, longest: Duration) -> MutexGuard<'a, LogFiles> {
        self.changed.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    pub(super) fn health(&self) -> StoreHealth {
        match self.health.load(Ordering::Acquire) {
            READY => StoreHealth::Ready,
            FULL => StoreHealth::Full,
            _ => StoreHealth::Failed,
        }
    }

    /// Notes whether there is room for changes that take space. A failed store stays failed. True if this is news.
    pub(super) fn set_full(&self, full: bool) -> bool {
        let (from, to) = if full { (READY, FULL) } else { (FULL, READY) };
        self.health.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Called by the writer: this much is left for frames in the segment that is being filled.
    pub(super) fn note_left(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Release);
    }

    /// While no other segment can be made: how much of that is for changes that let go, which is all but what the next
    /// starts need.
    pub(super) fn room(&self) -> Option<u64> {
        let for_starts = STARTS * TAKE_BYTES * u64::from(self.meta.shards);
        let is_full = self.health() == StoreHealth::Full;
        is_full.then(|| self.left.load(Ordering::Acquire).saturating_sub(for_starts))
    }

    pub(super) fn obstacle(&self) -> Arc<str> {
        match self.noted_obstacle() {
            Some(Obstacle::NoRoom(text) | Obstacle::Refused(text)) => text,
            None => NO_ROOM.into(),
        }
    }

    pub(super) fn lacks_room(&self) -> bool {
        !matches!(self.noted_obstacle(), Some(Obstacle::Refused(_)))
    }

    fn noted_obstacle(&self) -> Option<Obstacle> {
        self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes why the next segment could not be made: not every refusal of a disk is a lack of room.
    pub(super) fn note_obstacle(&self, error: &std::io::Error) {
        let is_room = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let obstacle = if is_room {
            // The free space is only mentioned if it is known and too small.
            let free = free_in(&self.dir);
            Obstacle::NoRoom(no_room(self.options.segment_bytes, free).into())
        } else {
            Obstacle::Refused(format!("the log cannot be continued ({error})").into())
        };
        *self.obstacle.lock().unwrap_or_else(PoisonError::into_inner) = Some(obstacle);
    }

    /// Notes that data which a start would read cannot be read, in this segment or outside any segment of history. The
    /// server goes on from memory. The note stays until the segment is removed, because a start reads everything that exists.
    pub(super) fn note_damage(&self, error: &StoreError, segment: Option<u64>) {
        let Some(text) = problem::unreadable(error) else { return };
        let mut files = self.catalog();
        // Nobody needs a segment that was removed while it was being read.
        if segment.is_none_or(|segment| files.headers().any(|header| header.number == segment)) {
            files.damage.entry(segment).or_insert(text);
        }
    }

    /// Notes which file the next start would miss, by the last check; none if all exist. A missing file may be brought back.
    pub(super) fn note_gone(&self, text: Option<Arc<str>>) {
        *self.gone.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// The first damage that was noted in either way.
    pub(super) fn damage(&self) -> Option<Arc<str>> {
        let damaged = self.catalog().damage.values().next().cloned();
        damaged.or_else(|| self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Marks the store as failed: nothing is accepted any more.
    pub(super) fn fail(&self, reason: Arc<str>) {
        self.health.store(FAILED, Ordering::Release);
        self.catalog().failure.get_or_insert(reason);
        self.notify();
    }

    /// Why nothing is accepted any more.
    pub(super) fn poisoned(&self) -> StoreError {
        StoreError::Poisoned(self.catalog().failure.clone().unwrap_or_else(|| "it was closed".into()))
    }

    pub(super) fn stop(&self) {
        self.catalog().stopping = true;
        self.notify();
    }

    pub(super) fn figures(&self) -> StoreFigures {
        let catalog = self.catalog();
        let segments: u64 = catalog.headers().map(|header| header.length).sum();
        let spares: u64 = catalog.spares.iter().map(|spare| spare.length).sum();
        StoreFigures {
            flushes: self.counters.flushes.load(Ordering::Relaxed),
            log_bytes: self.counters.log_bytes.load(Ordering::Relaxed),
            disk_bytes: segments + spares + catalog.snapshot.as_ref().map_or(0, |snapshot| snapshot.length),
            compactions: self.counters.compactions.load(Ordering::Relaxed),
            compaction_failures: self.counters.compaction_failures.load(Ordering::Relaxed),
            given_up_segments: catalog.aside,
            given_up_snapshots: catalog.snapshots_aside,
            ..StoreFigures::default()
        }
    }
}

/// Milliseconds since 1970, for people and for retention: nothing that must be right depends on it.
#[expect(clippy::disallowed_methods, reason = "the store has no other clock, and only retention asks")]
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_for_a_segment_is_said_to_have_the_room_that_it_has() {
        let said = no_room(64 << 20, Some(42 * MB));
        assert!(said.starts_with(NO_ROOM) && said.contains("wants 68 MB") && said.contains("42 MB are free"), "{said}");
        // Somebody made room meanwhile, or the free space is not known.
        assert_eq!(
            (no_room(64 << 20, Some(64 << 20)), no_room(64 << 20, None)),
            (NO_ROOM.to_owned(), NO_ROOM.to_owned())
        );
    }
}
