//! The thread that merges the last snapshot and the closed segments after it into the next snapshot.
//!
//! It works beside the commits, on files that no longer change. To bound its memory it takes the shards in several passes; a
//! longer log needs more passes. Segments stay as history until they are too old or too many. The snapshot names the oldest
//! segment to be kept, so that a missing one is noticed.
//!
//! The last snapshot is part of the state, and may have been damaged since. If the log still has everything that led to it,
//! the next snapshot is made from the log alone, and the damaged file is put aside, as when an operator gives it up.
//!
//! Neighbours: `lost_snapshot` does the same for a start; `replay` merges, `snapshot` writes, `retention` knows what history
//! keeps, `recovery` removes what a crash here leaves behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::replay::LogView;
use super::segment::SegmentHeader;
use super::shared::{self, EmbeddedShared, HistorySegment, KeptSegment, LogFiles};
use super::snapshot::{self, SNAP, Snapshot, SnapshotPlace, SnapshotWriter};
use super::{lost_snapshot, problem, retention};
use crate::store::{ShardId, StoreError, StoreHealth};

/// After how many records it checks again whether the snapshot is still wanted.
const LOOK_RECORDS: u64 = 4_096;
/// If the log did not help, it is left alone for this many times the pause after a failed snapshot.
const FROM_LOG_RETRIES: u32 = 60;

/// What one compaction reads, and the place of its result.
struct CompactionPlan {
    view: LogView,
    place: SnapshotPlace,
    /// The segments that the last snapshot covers, if all of them exist.
    history: Option<Vec<HistorySegment>>,
    log_bytes: u64,
    /// Segments are removed with this compaction, so it frees room.
    gives_back: bool,
}

enum Task {
    /// Remove the segments before this one.
    LetGo(u64),
    Compact(CompactionPlan),
}

enum Unmade {
    /// The result cannot be written, or files cannot be removed; or the snapshot is no longer wanted.
    Unwritten(StoreError),
    /// What the snapshot is made from cannot be read.
    Unread(StoreError),
    /// Nor can the log be read that has everything.
    LogUnread(StoreError),
}

impl Unmade {
    fn error(&self) -> &StoreError {
        let (Self::Unwritten(error) | Self::Unread(error) | Self::LogUnread(error)) = self;
        error
    }

    /// The same error, if it was the log that was read.
    fn of_log(self) -> Self {
        match self {
            // Any other error of the disk or the machine may pass.
            Self::Unread(error) if error.is_unreadable() => Self::LogUnread(error),
            other => other,
        }
    }
}

/// When each task may be tried again, and what remains to be done after the start.
struct Pace {
    /// A failed snapshot is not tried again before this time, and a failed removal likewise. The two are separate, because
    /// removing history may free the room that a snapshot did not find.
    snapshot_from: Instant,
    let_go_from: Instant,
    /// Until this time after the start nothing is removed.
    settled_from: Instant,
    /// The start may have changed the bounds, and history beyond them is not removed yet.
    at_start: bool,
    /// Until this time an unreadable snapshot is not rebuilt from the log: the log did not help, and reading it takes long.
    from_log_from: Instant,
}

impl Pace {
    fn new(shared: &EmbeddedShared) -> Self {
        let now = Instant::now();
        let settled_from = now + shared.options.history_grace;
        Self { snapshot_from: now, let_go_from: now, settled_from, at_start: true, from_log_from: now }
    }
}

/// # Errors
/// The directory is no longer under the name by which its files are opened.
fn in_place(shared: &EmbeddedShared) -> Result<(), StoreError> {
    shared.check_place().map_err(problem::io("looking for", &shared.dir))
}

pub(super) fn run(shared: &EmbeddedShared) {
    let mut pace = Pace::new(shared);
    loop {
        let mut catalog = shared.catalog();
        let task = loop {
            if catalog.stopping || catalog.failure.is_some() {
                return;
            }
            if let Some(task) = next(shared, &catalog, &mut pace) {
                break task;
            }
            catalog = shared.wait(catalog, shared.options.idle);
        };
        drop(catalog);
        let done = match &task {
            Task::LetGo(oldest) => {
                in_place(shared).and_then(|()| retention::let_go(shared, *oldest)).map_err(Unmade::Unwritten)
            }
            Task::Compact(plan) => in_place(shared).map_err(Unmade::Unwritten).and_then(|()| compact(shared, plan)),
        };
        // Closing does not wait for a long merge; the next start begins it again.
        let Err(unmade) = done else { continue };
        if shared.catalog().stopping {
            return;
        }
        failed(shared, &task, unmade.error());
        let retry = shared.options.compaction_retry;
        let again = Instant::now() + retry;
        match task {
            Task::LetGo(_) => pace.let_go_from = again,
            Task::Compact(_) => {
                pace.snapshot_from = again;
                if let Unmade::LogUnread(_) = unmade {
                    pace.from_log_from = Instant::now() + retry * FROM_LOG_RETRIES;
                }
            }
        }
    }
}

/// The next task. History is removed without a new snapshot in three cases: after a start, because the bounds may have
/// changed; on a full disk, where no segment is closed any more, so that there may be no next snapshot; and before a
/// snapshot that would remove it anyway, because the snapshot then finds the room. Until the grace period of the start is
/// over, nothing is removed unless the disk is full.
fn next(shared: &EmbeddedShared, catalog: &LogFiles, pace: &mut Pace) -> Option<Task> {
    let now = Instant::now();
    let is_full = shared.health() == StoreHealth::Full;
    // If something else than lack of room keeps the next segment from being made, removing history does not help.
    let lacks_room = is_full && shared.lacks_room();
    let may_let_go = lacks_room || now >= pace.settled_from;
    let plan = if now >= pace.snapshot_from { due(shared, catalog, may_let_go) } else { None };
    let is_to_go = is_full || pace.at_start || plan.as_ref().is_some_and(|plan| plan.gives_back);
    if may_let_go && is_to_go {
        // This goes through all of history under the lock, so it is not done each time that somebody wakes this thread.
        let overdue = retention::overdue(shared, catalog);
        if let Some(oldest) = overdue.filter(|_| now >= pace.let_go_from) {
            return Some(Task::LetGo(oldest));
        }
        pace.at_start &= overdue.is_some();
    }
    plan.map(|plan| {
        Task::Compact(CompactionPlan { history: plan.history.filter(|_| now >= pace.from_log_from), ..plan })
    })
}

fn failed(shared: &EmbeddedShared, task: &Task, error: &StoreError) {
    shared.counters.compaction_failures.fetch_add(1, Ordering::Relaxed);
    let dir = shared.dir.display();
    match task {
        Task::LetGo(oldest) => {
            tracing::error!(%dir, ?error, oldest, "cannot let history go that is beyond its bounds; it is tried again");
        }
        Task::Compact(plan) => {
            tracing::error!(%dir, ?error, "cannot write a snapshot; commits go on, the log grows, it is tried again");
            take_back(shared, plan.place.covered);
            // Wakes a thread that waits for the room that the file took.
            shared.notify();
        }
    }
}

/// Removes a snapshot that failed. The file may have its temporary or its final name. If it cannot be removed now, the next
/// start decides about it.
fn take_back(shared: &EmbeddedShared, covered: u64) {
    let name = snapshot::name(covered);
    for left in [format!("{name}.tmp"), name] {
        let left = shared.dir.join(SNAP).join(left);
        let _ = in_place(shared).is_ok_and(|()| shared.disk.remove(&left).is_ok());
    }
}

/// A plan, if the log is long enough to be worth a snapshot. While no history may be removed, the plan keeps all of it. A
/// snapshot that frees no room is only begun when the next segment exists, so as not to take that room from the log.
fn due(shared: &EmbeddedShared, catalog: &LogFiles, may_let_go: bool) -> Option<CompactionPlan> {
    // A segment that has a successor is closed.
    let (active, closed) = catalog.segments.split_last()?;
    let next = active.segment.header;
    let log_bytes: u64 = closed.iter().map(|kept| kept.end).sum();
    let snapshot_bytes = catalog.snapshot.as_ref().map_or(0, |snapshot| snapshot.length);
    if log_bytes <= shared.options.snapshot_log_bytes.max(snapshot_bytes) {
        return None;
    }
    let first = catalog.headers().next()?.number;
    let place = SnapshotPlace {
        register: shared.meta.register,
        covered: next.first_group - 1,
        digest: next.parent,
        oldest: if may_let_go { retention::oldest(shared, catalog) } else { first },
    };
    let gives_back = first < place.oldest;
    if catalog.spares.is_empty() && !gives_back {
        return None;
    }
    let view = LogView { snapshot: catalog.snapshot.clone(), segments: closed.to_vec() };
    let history = (first == 1).then(|| catalog.history.clone());
    Some(CompactionPlan { view, place, history, log_bytes, gives_back })
}

/// Is the snapshot still to be written?
///
/// # Errors
/// The store was closed; or the log needs the room that the snapshot would take without freeing any.
fn go_on(shared: &EmbeddedShared, gives_back: bool) -> Result<(), StoreError> {
    if shared.catalog().stopping {
        return Err(shared.poisoned());
    }
    if !gives_back && shared.health() == StoreHealth::Full { Err(StoreError::Full) } else { Ok(()) }
}

fn compact(shared: &EmbeddedShared, plan: &CompactionPlan) -> Result<(), Unmade> {
    let started = Instant::now();
    let CompactionPlan { place, log_bytes, .. } = plan;
    let (snapshot, lost) = match write(shared, plan, &plan.view, place) {
        Ok(snapshot) => (snapshot, None),
        Err(Unmade::Unread(error)) => from_log(shared, plan, error)?,
        Err(unmade) => return Err(unmade),
    };
    tracing::info!(
        covered = place.covered,
        bytes = snapshot.length,
        log_bytes,
        milliseconds = started.elapsed().as_millis() as u64,
        "wrote a snapshot"
    );
    let mut catalog = shared.catalog();
    let mut obsolete: Vec<PathBuf> = catalog.snapshot.replace(snapshot).iter().map(|old| old.path.clone()).collect();
    let LogFiles { segments, history, damage, .. } = &mut *catalog;
    // So everything that state is made from could be read after all.
    damage.remove(&None);
    shared::cover(segments, place.covered, history);
    obsolete.extend(retention::drain(&mut catalog, place.oldest));
    drop(catalog);
    if let Some(lost) = lost
        && lost_snapshot::put_aside(&*shared.disk, &lost).is_ok()
    {
        obsolete.retain(|path| *path != lost);
        shared.catalog().snapshots_aside += 1;
    }
    retention::remove(shared, obsolete);
    shared.counters.compactions.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Merges the files of a view into a snapshot that covers all groups up to `place`.
fn write(
    shared: &EmbeddedShared,
    plan: &CompactionPlan,
    view: &LogView,
    place: &SnapshotPlace,
) -> Result<Arc<Snapshot>, Unmade> {
    let mut writer = SnapshotWriter::create(&*shared.disk, &shared.dir, place).map_err(Unmade::Unwritten)?;
    let shards: Vec<ShardId> = (0..shared.meta.shards).map(ShardId).collect();
    let log_bytes: u64 = view.segments.iter().map(|kept| kept.end).sum();
    let passes = log_bytes.div_ceil(shared.options.pass_bytes.max(1)).clamp(1, shards.len() as u64) as usize;
    let mut heads = Vec::with_capacity(shards.len());
    let mut records = 0u64;
    for part in shards.chunks(shards.len().div_ceil(passes)) {
        let unread = |error| {
            shared.note_damage(&error, None);
            Unmade::Unread(error)
        };
        let mut overlays = view.overlays(part).map_err(unread)?;
        for shard in part {
            let Some(overlay) = overlays.remove(shard) else { continue };
            heads.push(overlay.line.head());
            let mut is_unread = true;
            let merged = overlay.merge(*shard, view.snapshot.as_deref(), |network, key, record| {
                records += 1;
                let looked = if records.is_multiple_of(LOOK_RECORDS) { go_on(shared, plan.gives_back) } else { Ok(()) };
                let put = looked.and_then(|()| writer.put(*shard, network, key, record));
                put.inspect_err(|_| is_unread = false)
            });
            // A failure to write concerns the next snapshot only; nothing is lost by it.
            merged.map_err(|error| if is_unread { unread(error) } else { Unmade::Unwritten(error) })?;
        }
    }
    Ok(Arc::new(writer.finish(&*shared.disk, place, &heads).map_err(Unmade::Unwritten)?))
}

/// The same if the last snapshot is damaged and the log has everything that led to it: the snapshot is made from the log, in
/// steps that each take no more memory than a usual compaction. Returns the damaged file. If the snapshot is not what is
/// damaged, the original error stands.
fn from_log(
    shared: &EmbeddedShared,
    plan: &CompactionPlan,
    error: StoreError,
) -> Result<(Arc<Snapshot>, Option<PathBuf>), Unmade> {
    let Some((lost, history)) = plan.view.snapshot.as_ref().zip(plan.history.as_ref()) else {
        return Err(Unmade::Unread(error));
    };
    let read = Snapshot::open(&*shared.disk, &lost.path, shared.meta.register, shared.meta.shards);
    if !error.is_unreadable() || !read.is_err_and(|error| error.is_unreadable()) {
        return Err(Unmade::Unread(error));
    }
    let path = lost.path.display();
    tracing::warn!(%path, ?error, "a snapshot is damaged, and the next one is made of the log, which has all that led to it");
    let behind = plan.view.segments.iter().map(|kept| (&kept.segment, kept.end));
    let log = history.iter().map(|of| (&of.segment, of.end)).chain(behind);
    let mut log: Vec<HistorySegment> =
        log.map(|(segment, end)| HistorySegment { segment: Arc::clone(segment), end }).collect();
    let step_bytes = shared.options.pass_bytes.saturating_mul(shared.meta.shards.into());
    let mut step: Option<Arc<Snapshot>> = None;
    let written = loop {
        let mut count = first_step(&log, step_bytes);
        // Otherwise this step would have the name, and take the place, of the damaged snapshot.
        if log.get(count).is_some_and(|next| next.segment.header.first_group == lost.place.covered + 1) {
            count += 1;
        }
        // Only the segments of one step are open at a time.
        let opened = log.drain(..count).map(|HistorySegment { segment, end }| {
            let file = shared.disk.open(&segment.path).map_err(problem::io("opening", &segment.path))?;
            Ok(KeptSegment { segment, file, end })
        });
        let opened = opened.collect::<Result<Vec<_>, StoreError>>().map_err(Unmade::Unread);
        let place = match log.first() {
            Some(next) => place_before(&next.segment.header, plan.place),
            None => plan.place,
        };
        let before = step.take();
        let snapshot = before.clone();
        let written = opened.and_then(|segments| write(shared, plan, &LogView { snapshot, segments }, &place));
        retention::remove(shared, before.iter().map(|before| before.path.clone()).collect());
        match written {
            Ok(snapshot) if !log.is_empty() => step = Some(snapshot),
            Ok(snapshot) => break snapshot,
            Err(unmade) => {
                // Otherwise a step would keep the room that it took until the next start.
                take_back(shared, place.covered);
                return Err(unmade.of_log());
            }
        }
    };
    tracing::warn!(%path, "wrote a snapshot from the log in place of the damaged one: nothing is lost. Look after the disk");
    Ok((written, Some(lost.path.clone())))
}

/// How many of the first segments fit into this many bytes; at least one.
fn first_step(log: &[HistorySegment], bytes_max: u64) -> usize {
    let mut bytes = 0;
    let fits = |kept: &&HistorySegment| {
        bytes += kept.end;
        bytes <= bytes_max
    };
    log.iter().take_while(fits).count().max(1).min(log.len())
}

/// The place of a snapshot that covers everything before a segment and removes nothing.
fn place_before(next: &SegmentHeader, last: SnapshotPlace) -> SnapshotPlace {
    SnapshotPlace { covered: next.first_group - 1, digest: next.parent, oldest: 1, ..last }
}
