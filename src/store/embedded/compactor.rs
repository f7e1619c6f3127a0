//! The thread that merges: the snapshot before and the closed segments behind it become the next snapshot.
//!
//! Works on files that do not change any more, beside the commits. Memory is bounded by taking the shards in as many
//! passes as the log is long. Segments stay as history until they are too old or too many; which one is the oldest to be
//! kept stands in the snapshot, so that a missing one is noticed.
//!
//! The snapshot before is state, and may be damaged by then. Where the log still has all that led to it, the next one is made of the
//! log alone; the damaged file is put aside, as where an operator gives it up.
//!
//! Neighbours: `lost_snapshot` has the same for a start; `replay` merges, `snapshot` writes, `retention` tells what history
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

/// Records between two looks at whether a snapshot is still to be written.
const LOOK_RECORDS: u64 = 4_096;
/// A log that did not help is left alone for so many times as long as a snapshot that failed.
const FROM_LOG_RETRIES: u32 = 60;

/// What one compaction reads and where its result stands.
struct CompactionPlan {
    view: LogView,
    place: SnapshotPlace,
    /// The segments that the snapshot before covers, if all of them are there.
    history: Option<Vec<HistorySegment>>,
    log_bytes: u64,
    /// Segments go with it, so it gives back room.
    gives_back: bool,
}

/// What is to be done.
enum Task {
    /// Segments before this one go.
    LetGo(u64),
    Compact(CompactionPlan),
}

/// Why something is not done.
enum Unmade {
    /// It cannot be written, or removed; or it is not wanted any more.
    Unwritten(StoreError),
    /// What it is made of cannot be read.
    Unread(StoreError),
    /// Nor can the log that has all of it.
    LogUnread(StoreError),
}

impl Unmade {
    fn error(&self) -> &StoreError {
        let (Self::Unwritten(error) | Self::Unread(error) | Self::LogUnread(error)) = self;
        error
    }

    /// Where it is the log that is read.
    fn of_log(self) -> Self {
        match self {
            // What else a disk or a machine refuses may pass.
            Self::Unread(error) if error.is_unreadable() => Self::LogUnread(error),
            other => other,
        }
    }
}

/// When something is to be done again, and what a start has still to do.
struct Pace {
    /// A snapshot that failed is left alone until then; a removal that failed likewise, each by itself: history may give the room
    /// that a snapshot did not find.
    snapshot_from: Instant,
    let_go_from: Instant,
    /// Until then a start takes nothing away.
    settled_from: Instant,
    /// What the bounds of this start let go is not gone yet.
    at_start: bool,
    /// Until then a snapshot that cannot be read is not made anew from the log: the log did not help, and is long.
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
/// The directory is not where everything in it is looked for.
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
        // A close does not wait for a long merge; the next start begins it anew.
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

/// History goes without a snapshot after a start, for the bounds may be others than before; on a full disk, where no segment
/// is closed any more, so that there may be no next snapshot; and before a snapshot that has it go anyhow, which finds the room
/// then. Until a start has settled nothing goes but on a full disk.
fn next(shared: &EmbeddedShared, catalog: &LogFiles, pace: &mut Pace) -> Option<Task> {
    let now = Instant::now();
    let is_full = shared.health() == StoreHealth::Full;
    // What else keeps the next segment from being made is not mended by that.
    let lacks_room = is_full && shared.lacks_room();
    let may_let_go = lacks_room || now >= pace.settled_from;
    let plan = if now >= pace.snapshot_from { due(shared, catalog, may_let_go) } else { None };
    let is_to_go = is_full || pace.at_start || plan.as_ref().is_some_and(|plan| plan.gives_back);
    if may_let_go && is_to_go {
        // All of history is gone through for this, under the lock: not each time that somebody wakes this thread.
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
            // Under whichever name it stands; what cannot be removed the next start judges.
            let name = snapshot::name(plan.place.covered);
            for left in [format!("{name}.tmp"), name] {
                let left = shared.dir.join(SNAP).join(left);
                let _ = in_place(shared).is_ok_and(|()| shared.disk.remove(&left).is_ok());
            }
            // Who waits for the room that it took has it now.
            shared.notify();
        }
    }
}

/// A plan, if the log is long enough to be worth it; with history as long as it is if nothing of it may go yet. One that gives
/// back no room is begun only once the next segment is there: the room for that is not taken from the log.
fn due(shared: &EmbeddedShared, catalog: &LogFiles, may_let_go: bool) -> Option<CompactionPlan> {
    // Those with a successor are closed.
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

/// Is it still to be written?
///
/// # Errors
/// The store is closed; or the log needs the room that a snapshot takes and does not give back.
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
    // All that state is made of could be read, after all.
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

/// Merges what is in view, which ends at the place, into a snapshot.
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
            // What cannot be written is of the next snapshot, and nothing is lost by that.
            merged.map_err(|error| if is_unread { unread(error) } else { Unmade::Unwritten(error) })?;
        }
    }
    Ok(Arc::new(writer.finish(&*shared.disk, place, &heads).map_err(Unmade::Unwritten)?))
}

/// The same where the snapshot before is damaged, and the log has all that led to it: from the log, in steps that take no more memory
/// than any other. Tells which file it was. Where it is not that, what failed it is.
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
        // It would take the name, and the place, of the damaged one.
        if log.get(count).is_some_and(|next| next.segment.header.first_group == lost.place.covered + 1) {
            count += 1;
        }
        // No more of them are open than a step has.
        let opened = log.drain(..count).map(|HistorySegment { segment, end }| {
            let file = shared.disk.open(&segment.path).map_err(problem::io("opening", &segment.path))?;
            Ok(KeptSegment { segment, file, end })
        });
        let opened = opened.collect::<Result<Vec<_>, StoreError>>();
        let segments = opened.map_err(|error| Unmade::Unread(error).of_log())?;
        let place = match log.first() {
            Some(next) => place_before(&next.segment.header, plan.place),
            None => plan.place,
        };
        let before = step.take();
        let view = LogView { snapshot: before.clone(), segments };
        let written = write(shared, plan, &view, &place);
        retention::remove(shared, before.iter().map(|before| before.path.clone()).collect());
        match written {
            Ok(snapshot) if !log.is_empty() => step = Some(snapshot),
            written => break written.map_err(Unmade::of_log)?,
        }
    };
    tracing::warn!(%path, "wrote a snapshot from the log in place of the damaged one: nothing is lost. Look after the disk");
    Ok((written, Some(lost.path.clone())))
}

/// How many of the first segments come to so many bytes; one at least.
fn first_step(log: &[HistorySegment], bytes_max: u64) -> usize {
    let mut bytes = 0;
    let fits = |kept: &&HistorySegment| {
        bytes += kept.end;
        bytes <= bytes_max
    };
    log.iter().take_while(fits).count().max(1).min(log.len())
}

/// Where a snapshot ends that covers all before a segment, of which nothing is let go.
fn place_before(next: &SegmentHeader, last: SnapshotPlace) -> SnapshotPlace {
    SnapshotPlace { covered: next.first_group - 1, digest: next.parent, oldest: 1, ..last }
}
