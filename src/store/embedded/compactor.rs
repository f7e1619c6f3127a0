//! The thread that merges: the snapshot before and the closed segments behind it become the next snapshot.
//!
//! Works on files that do not change any more, beside the commits. Memory is bounded by taking the shards in as many
//! passes as the log is long. Segments stay as history until they are too old or too many; which one is the oldest to be
//! kept stands in the snapshot, so that a missing one is noticed.
//!
//! Neighbours: `replay` merges, `snapshot` writes, `retention` tells what history keeps, `recovery` removes what a crash here
//! leaves behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::replay::LogView;
use super::retention;
use super::shared::{self, EmbeddedShared, LogFiles};
use super::snapshot::{self, SNAP, SnapshotPlace, SnapshotWriter};
use crate::store::{ShardId, StoreError, StoreHealth};

/// Bytes of log whose net effect is held in memory at once.
const PASS_BYTES: u64 = 128 << 20;

/// Records between two looks at whether a snapshot is still to be written.
const LOOK_RECORDS: u64 = 4_096;

/// What one compaction reads and where its result stands.
struct CompactionPlan {
    view: LogView,
    place: SnapshotPlace,
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
}

impl Pace {
    fn new(shared: &EmbeddedShared) -> Self {
        let now = Instant::now();
        let settled_from = now + shared.options.history_grace;
        Self { snapshot_from: now, let_go_from: now, settled_from, at_start: true }
    }
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
            Task::LetGo(oldest) => retention::let_go(shared, *oldest),
            Task::Compact(plan) => compact(shared, plan),
        };
        // A close does not wait for a long merge; the next start begins it anew.
        let Err(error) = done else { continue };
        if shared.catalog().stopping {
            return;
        }
        failed(shared, &task, &error);
        let again = Instant::now() + shared.options.compaction_retry;
        match task {
            Task::LetGo(_) => pace.let_go_from = again,
            Task::Compact(_) => pace.snapshot_from = again,
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
    plan.map(Task::Compact)
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
                let _ = shared.disk.remove(&shared.dir.join(SNAP).join(left));
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
    Some(CompactionPlan { view, place, log_bytes, gives_back })
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

fn compact(shared: &EmbeddedShared, plan: &CompactionPlan) -> Result<(), StoreError> {
    let started = Instant::now();
    let CompactionPlan { view, place, log_bytes, gives_back } = plan;
    let mut writer = SnapshotWriter::create(&*shared.disk, &shared.dir, place)?;
    let shards: Vec<ShardId> = (0..shared.meta.shards).map(ShardId).collect();
    let passes = log_bytes.div_ceil(PASS_BYTES).clamp(1, shards.len() as u64) as usize;
    let mut heads = Vec::with_capacity(shards.len());
    let mut records = 0u64;
    for part in shards.chunks(shards.len().div_ceil(passes)) {
        let mut overlays = view.overlays(part).inspect_err(|error| shared.note_damage(error, None))?;
        for shard in part {
            let Some(overlay) = overlays.remove(shard) else { continue };
            heads.push(overlay.line.head());
            let mut is_unread = true;
            let merged = overlay.merge(*shard, view.snapshot.as_deref(), |network, key, record| {
                records += 1;
                let looked = if records.is_multiple_of(LOOK_RECORDS) { go_on(shared, *gives_back) } else { Ok(()) };
                let put = looked.and_then(|()| writer.put(*shard, network, key, record));
                put.inspect_err(|_| is_unread = false)
            });
            // What cannot be written is of the next snapshot, and nothing is lost by that.
            merged.inspect_err(|error| {
                if is_unread {
                    shared.note_damage(error, None)
                }
            })?;
        }
    }
    let snapshot = Arc::new(writer.finish(&*shared.disk, place, &heads)?);
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
    retention::remove(shared, obsolete);
    shared.counters.compactions.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
