//! Is every file of the register still under its name? Who has a file open reads and writes it wherever it is, and also where it is no
//! more; a start goes by names. What was removed beside a running server, or had another file put in its place, nobody would miss
//! until then, and what is written meanwhile goes with the server's end.
//!
//! What is let go just now is no longer in the catalog when its name goes. A directory that was moved away has all its files, and none
//! under its name: that is no damage either.
//!
//! Neighbours: `history` asks, once in each round of the self-check; `shared` keeps what was found.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::DiskFile;
use super::meta::{MARK, META};
use super::problem;
use super::segment::LOG;
use super::shared::EmbeddedShared;
use super::snapshot::Snapshot;
use crate::store::StoreError;

/// A file that the next start wants.
enum Wanted {
    /// It is never made anew while it is served.
    Always(PathBuf, Option<Arc<dyn DiskFile>>),
    /// A segment, by its number. One that a snapshot covers is not open.
    Segment(u64, PathBuf, Option<Arc<dyn DiskFile>>),
    Snapshot(Arc<Snapshot>),
}

impl Wanted {
    fn path(&self) -> &Path {
        match self {
            Self::Always(path, _) | Self::Segment(_, path, _) => path,
            Self::Snapshot(snapshot) => &snapshot.path,
        }
    }

    /// Is it under its name?
    fn is_there(&self, shared: &EmbeddedShared) -> io::Result<bool> {
        match self {
            Self::Always(path, Some(file)) | Self::Segment(_, path, Some(file)) => file.is_at(path),
            Self::Always(path, None) | Self::Segment(_, path, None) => is_listed(shared, path),
            Self::Snapshot(snapshot) => snapshot.file().is_at(&snapshot.path),
        }
    }

    /// Or was it let go, or replaced by a newer one, since?
    fn is_still(&self, shared: &EmbeddedShared) -> bool {
        let files = shared.catalog();
        match self {
            Self::Always(..) => true,
            Self::Segment(number, ..) => files.headers().any(|header| header.number == *number),
            Self::Snapshot(snapshot) => files.snapshot.as_ref().is_some_and(|now| Arc::ptr_eq(now, snapshot)),
        }
    }
}

/// Looks for all of them, and notes what was found: also that all of them are there again.
///
/// # Errors
/// [`StoreError::Damaged`] names the first one that is gone; [`StoreError::Io`] if nobody can tell, or if the directory was moved away.
pub(super) fn check(shared: &EmbeddedShared) -> Result<(), StoreError> {
    let gone = first_gone(shared)?;
    shared.note_gone(gone.clone());
    gone.map_or(Ok(()), |text| Err(StoreError::Damaged(text)))
}

fn first_gone(shared: &EmbeddedShared) -> Result<Option<Arc<str>>, StoreError> {
    for wanted in all(shared)? {
        let looks = || wanted.is_there(shared).map_err(problem::io("looking for", wanted.path()));
        if looks()? || !wanted.is_still(shared) {
            continue;
        }
        shared.check_place().map_err(problem::io("looking for", &shared.dir))?;
        // The directory may have been moved back just now.
        if !looks()? && wanted.is_still(shared) {
            return Ok(Some(text(shared, wanted.path()).into()));
        }
    }
    Ok(None)
}

fn text(shared: &EmbeddedShared, path: &Path) -> String {
    if is_listed(shared, path).unwrap_or(false) {
        let shown = path.display();
        format!("{shown} is another file than the one that is open: it was put there beside a running server")
    } else {
        format!("{} is missing", path.display())
    }
}

/// What the next start wants, but for segments that a snapshot covers and that are there: there may be thousands of them.
fn all(shared: &EmbeddedShared) -> Result<Vec<Wanted>, StoreError> {
    let (history, segments, snapshot) = {
        let files = shared.catalog();
        (files.history.clone(), files.segments.clone(), files.snapshot.clone())
    };
    let log = shared.dir.join(LOG);
    let listed = names_in(shared, &log).map_err(problem::io("listing", &log))?;
    let is_missed = |path: &Path| path.file_name().is_none_or(|name| !listed.contains(&*name.to_string_lossy()));
    let covered = history.into_iter().filter(|of| is_missed(&of.segment.path));
    let covered = covered.map(|of| Wanted::Segment(of.segment.header.number, of.segment.path.clone(), None));
    let open = segments.into_iter();
    let open = open.map(|kept| Wanted::Segment(kept.segment.header.number, kept.segment.path.clone(), Some(kept.file)));
    let mark = Wanted::Always(shared.dir.join(MARK), Some(Arc::clone(&shared.mark)));
    let fixed = [Wanted::Always(shared.dir.join(META), None), mark];
    Ok(fixed.into_iter().chain(snapshot.map(Wanted::Snapshot)).chain(covered).chain(open).collect())
}

fn is_listed(shared: &EmbeddedShared, path: &Path) -> io::Result<bool> {
    let names = names_in(shared, path.parent().unwrap_or(Path::new(".")))?;
    Ok(path.file_name().is_some_and(|name| names.contains(&*name.to_string_lossy())))
}

/// None, where the directory itself is gone.
fn names_in(shared: &EmbeddedShared, dir: &Path) -> io::Result<BTreeSet<String>> {
    match shared.disk.list(dir) {
        Ok(names) => Ok(names.into_iter().collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EmbeddedOptions, EmbeddedStore};
    use super::*;
    use crate::store::Store;

    /// By device and inode.
    #[tokio::test]
    async fn a_file_that_was_replaced_by_a_copy_of_itself_is_missed_until_the_open_one_is_back() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().join("data");
        let store = EmbeddedStore::open(&dir, 1, EmbeddedOptions::default()).unwrap();
        let (mark, aside) = (dir.join(MARK), dir.join("aside"));
        assert_eq!(store.reread(0).await.unwrap(), None);
        std::fs::rename(&mark, &aside).unwrap();
        let told = store.reread(0).await.unwrap_err();
        assert!(told.is_unreadable() && told.to_string() == format!("{} is missing", mark.display()), "{told}");
        std::fs::copy(&aside, &mark).unwrap();
        let told = store.reread(0).await.unwrap_err().to_string();
        assert!(told.contains("MARK is another file than the one that is open"), "{told}");
        assert_eq!(store.damage().as_deref(), Some(&*told));
        std::fs::rename(&aside, &mark).unwrap();
        assert_eq!((store.reread(0).await.unwrap(), store.damage()), (None, None));
    }
}
