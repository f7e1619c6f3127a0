//! A damaged snapshot that is not needed, because the log leads to all of the state without it (`allod serve
//! --give-up-snapshot`).
//!
//! *A bit of the snapshot flips. State is taken from it, so the register does not start, and the operator resorts to a
//! backup. Yet while no history has been removed, every group since the first is in the log.* So this module checks whether
//! the log leads to the same state: from an older snapshot if one was not removed yet, or from the first segment on. The
//! usual rules apply: numbers are dense, each frame names the digest of the one before it, the log reaches the mark. In
//! addition the log must reach the group in the name of the damaged file.
//!
//! Nothing is repaired silently: the refusal offers the remedy if it would help, and the operator has to ask for it. No
//! state and no history is given up.
//!
//! **Order.** What `retention` knew only from the damaged file is noted first; then the file is renamed and stays. If the
//! process is killed in between, the same remedy helps, or nothing is left to do.
//!
//! Neighbours: `recovery` judges, `mod` opens, `compactor` does the same in a running server, `report` and the doctor show
//! it to operators.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::Disk;
use super::recovery::{Ground, Recovered, judge, open_snapshot};
use super::snapshot::{self, SNAP};
use super::{giving_up, problem, retention, segment};
use crate::store::StoreError;

/// The snapshots that exist, by the last group that each covers.
pub(super) struct Covered<'a> {
    /// The current one, which is damaged.
    pub newest: u64,
    /// Earlier ones, ascending: a crash came before they were removed.
    pub older: &'a [u64],
}

#[derive(Debug)]
pub(super) struct LostSnapshot {
    problem: String,
    /// The ones that are put aside, newest first.
    files: Vec<PathBuf>,
    /// The older snapshot after which the log goes on; none if it is read from its beginning.
    behind: Option<PathBuf>,
}

/// The state to which the log leads without the snapshot, if the operator `gives_up` that; else the refusal, which offers
/// this if it would help.
pub(super) fn without(
    ground: Ground<'_>,
    covered: Covered<'_>,
    (numbers, oldest_noted): (&[u64], u64),
    error: StoreError,
    gives_up: bool,
) -> Result<Recovered, StoreError> {
    if !error.is_unreadable() {
        return Err(error);
    }
    // If nothing will be given up, the register is only examined, not loaded.
    let ground = Ground { to_be_loaded: ground.to_be_loaded && gives_up, ..ground };
    let path = |covered: u64| ground.dir.join(SNAP).join(snapshot::name(covered));
    let mut lost = LostSnapshot { problem: problem::fact(&error), files: vec![path(covered.newest)], behind: None };
    for &older in covered.older.iter().rev() {
        if let Ok(mut snapshot) = open_snapshot(ground, older, oldest_noted) {
            // After the damaged snapshot was written, more segments may have been removed than this one knows.
            let from = numbers.partition_point(|&number| number < snapshot.place.oldest);
            let kept = &numbers[from..];
            snapshot.place.oldest = kept.first().copied().unwrap_or(snapshot.place.oldest);
            let oldest_noted = snapshot.place.oldest;
            if let Ok(recovered) = led_to(ground, covered.newest, Some(Arc::new(snapshot)), kept) {
                lost.behind = Some(path(older));
                return lost.given_up(Recovered { oldest_noted, ..recovered }, error, gives_up);
            }
        }
        lost.files.push(path(older));
    }
    match led_to(ground, covered.newest, None, numbers) {
        Ok(recovered) => lost.given_up(Recovered { oldest_noted, ..recovered }, error, gives_up),
        Err(why) => Err(helpless(error, numbers, &why)),
    }
}

/// What the log leads to, if that is no less than the damaged snapshot had.
fn led_to(
    ground: Ground<'_>,
    newest: u64,
    snapshot: Option<Arc<snapshot::Snapshot>>,
    numbers: &[u64],
) -> Result<Recovered, StoreError> {
    let (recovered, _) = judge(ground, snapshot, numbers).map_err(|refused| refused.error)?;
    if recovered.group < newest {
        let text = format!("ends at group {}, though a snapshot had group {newest}", recovered.group);
        return Err(problem::damaged(&ground.dir.join(segment::LOG), text));
    }
    Ok(recovered)
}

/// The refusal if the log does not help either, with the reason.
fn helpless(error: StoreError, numbers: &[u64], why: &StoreError) -> StoreError {
    let StoreError::Damaged(_) = error else { return error };
    let why = match numbers.first() {
        Some(&first) if first > 1 => format!("the log begins with {}", segment::name(first)),
        _ => problem::fact(why),
    };
    problem::damaged_so(format_args!("{}, and the log alone does not lead to the state: {why}", problem::fact(&error)))
}

impl LostSnapshot {
    fn given_up(self, recovered: Recovered, error: StoreError, gives_up: bool) -> Result<Recovered, StoreError> {
        if gives_up { Ok(Recovered { lost_snapshot: Some(self), ..recovered }) } else { Err(self.offer(error)) }
    }

    fn way(&self) -> String {
        match &self.behind {
            Some(older) => format!("behind {}", older.display()),
            None => "from the first segment on".to_owned(),
        }
    }

    /// The refusal, with the remedy.
    fn offer(&self, error: StoreError) -> StoreError {
        let aside = self.files.first().map_or_else(String::new, |path| giving_up::aside(path).display().to_string());
        let offer = format!(
            "the log has all that led to it, {}, so no state is lost: `allod serve --give-up-snapshot`, once, starts from the log, \
             and keeps the file as {aside}",
            self.way()
        );
        giving_up::offered(error, "a snapshot", &offer, StoreError::SnapshotDamaged)
    }

    /// Renames the files, durably, and logs this. Returns how many files these are.
    pub(super) fn set_aside(&self, disk: &dyn Disk, dir: &Path, oldest_noted: u64) -> Result<u64, StoreError> {
        tracing::warn!(
            dir = %dir.display(),
            problem = self.problem,
            files = self.files.iter().map(|path| giving_up::aside(path).display().to_string()).collect::<Vec<_>>().join(", "),
            "going on from the log, {}, without a damaged snapshot, as `--give-up-snapshot` says: nothing is given up. The file \
             stays beside the others, under another name, until somebody removes it; look after the disk",
            self.way()
        );
        if oldest_noted > 0 {
            retention::write(disk, dir, oldest_noted)?;
        }
        self.files.iter().try_for_each(|path| put_aside(disk, path))?;
        let snap = dir.join(SNAP);
        disk.sync_dir(&snap).map_err(problem::io("flushing", &snap))?;
        Ok(self.files.len() as u64)
    }
}

/// Renames a snapshot so that it no longer counts as one.
pub(super) fn put_aside(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    disk.rename(path, &giving_up::aside(path)).map_err(problem::io("renaming", path))
}

/// Is this the name of a snapshot that was given up?
pub(super) fn is_aside(name: &str) -> bool {
    giving_up::before_aside(name).and_then(snapshot::covered_of).is_some()
}
