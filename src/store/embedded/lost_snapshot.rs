//! A snapshot that is damaged, where the log leads to all of the state without it (`allod serve --give-up-snapshot`).
//!
//! *One bit of the snapshot turns over. It is where state is taken from, so the register does not start; and the operator takes
//! a backup, though each group since the first is in the log, where history has not yet been let go.* So it is looked whether the log
//! leads there: behind an older snapshot, where one was not yet removed, or from the first segment on. What is judged is judged as ever:
//! numbers are dense, each frame names the digest of the one before it, the mark is reached; and so is the group of which the damaged
//! file says by its name that it had it.
//!
//! Nothing is mended silently: where it helps that is said, and somebody says it. Nothing of state or history is given up.
//!
//! **Order.** What `retention` knew by the damaged file only is noted; the file gets another name and stays. Killed in between, the
//! same helps, or nothing is left to be done.
//!
//! Neighbours: `recovery` judges, `mod` opens, `compactor` does the same where a server serves, `report` and the doctor tell who looks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::Disk;
use super::recovery::{Ground, Recovered, judge, open_snapshot};
use super::snapshot::{self, SNAP};
use super::{giving_up, problem, retention, segment};
use crate::store::StoreError;

/// Snapshots that are there, by the group that each covers.
pub(super) struct Covered<'a> {
    /// The one that counts, and is damaged.
    pub newest: u64,
    /// Those before it, ascending: a crash came before they were removed.
    pub older: &'a [u64],
}

/// Snapshots that are given up.
#[derive(Debug)]
pub(super) struct LostSnapshot {
    problem: String,
    /// Those that are put aside, the newest first.
    files: Vec<PathBuf>,
    /// The older one that the log goes on from; none: from its beginning.
    behind: Option<PathBuf>,
}

/// What the log leads to without the snapshot, where somebody `gives_up` that; else the refusal, which says so where it helps.
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
    // What is only looked at is not loaded.
    let ground = Ground { to_be_loaded: ground.to_be_loaded && gives_up, ..ground };
    let path = |covered: u64| ground.dir.join(SNAP).join(snapshot::name(covered));
    let mut lost = LostSnapshot { problem: problem::fact(&error), files: vec![path(covered.newest)], behind: None };
    for &older in covered.older.iter().rev() {
        if let Ok(mut snapshot) = open_snapshot(ground, older, oldest_noted) {
            // The damaged one may have let go more than this one says.
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

/// The refusal where the log does not help either, with the reason.
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

    /// The refusal of what is wrong, with what helps.
    fn offer(&self, error: StoreError) -> StoreError {
        let aside = self.files.first().map_or_else(String::new, |path| giving_up::aside(path).display().to_string());
        let offer = format!(
            "the log has all that led to it, {}, so no state is lost: `allod serve --give-up-snapshot`, once, starts from the log, \
             and keeps the file as {aside}",
            self.way()
        );
        giving_up::offered(error, "a snapshot", &offer, StoreError::SnapshotDamaged)
    }

    /// Puts the files aside, durably, and says so. Answers how many they are.
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

/// Gives a snapshot the name under which it is none any more.
pub(super) fn put_aside(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    disk.rename(path, &giving_up::aside(path)).map_err(problem::io("renaming", path))
}

/// Is it the name of a snapshot that was given up?
pub(super) fn is_aside(name: &str) -> bool {
    giving_up::before_aside(name).and_then(snapshot::covered_of).is_some()
}
