//! Is every file of the register still under its name? An open file is read and written wherever it is, even after its name
//! was removed; but a start goes by names. If somebody removes or replaces a file beside a running server, nobody notices
//! until the next start, and what is written meanwhile is lost when the server ends.
//!
//! A file that the server itself removes has left the catalog before its name goes. A directory that was moved away still
//! has all its files, though none under its name: this is not damage either.
//!
//! Neighbours: `history` asks, once in each round of the self-check; `shared` keeps what was found.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::DiskFile;
use super::meta::{MARK, META};
use super::segment::{self, LOG};
use super::shared::EmbeddedShared;
use super::snapshot::Snapshot;
use super::{plates, problem};
use crate::store::StoreError;

/// A file that the next start needs.
enum Wanted {
    /// A file that is never replaced while the register is served.
    Always(PathBuf, Option<Arc<dyn DiskFile>>),
    /// A segment, by its number. The file is not open if a snapshot covers the segment.
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

    /// Is it still needed, or was it removed, or replaced by a newer one, meanwhile?
    fn is_still(&self, shared: &EmbeddedShared) -> bool {
        let files = shared.catalog();
        match self {
            Self::Always(..) => true,
            Self::Segment(number, ..) => files.headers().any(|header| header.number == *number),
            Self::Snapshot(snapshot) => files.snapshot.as_ref().is_some_and(|now| Arc::ptr_eq(now, snapshot)),
        }
    }
}

/// Checks that all files exist, and that those which only a start reads say what they should. Notes what was found,
/// including that everything is in order again.
///
/// # Errors
/// [`StoreError::Damaged`] names the first file that is missing or has changed; [`StoreError::Io`] if this cannot be found
/// out, or if the directory was moved away.
pub(super) fn check(shared: &EmbeddedShared) -> Result<(), StoreError> {
    let gone = match first_gone(shared)? {
        None => plates::first_wrong(shared)?,
        gone => gone,
    };
    shared.note_gone(gone.clone());
    tell_spares(shared);
    gone.map_or(Ok(()), |text| Err(StoreError::Damaged(text)))
}

/// A spare that is gone is not damage: it holds nothing, and the writer makes it again. But somebody has removed it, and
/// should know.
fn tell_spares(shared: &EmbeddedShared) {
    let spares = shared.catalog().spares.clone();
    for spare in spares.iter().filter(|spare| !spare.file.is_at(&spare.path).unwrap_or(true)) {
        let is_still = shared.catalog().spares.iter().any(|now| now.number == spare.number);
        if is_still && shared.check_place().is_ok() {
            tracing::warn!(path = %spare.path.display(), "{}", segment::SPARE_GONE);
        }
    }
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

/// What the next start needs, without the covered segments that exist: there may be thousands of them.
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
    let mark = Wanted::Always(shared.dir.join(MARK), Some(shared.mark.file()));
    let fixed = [Wanted::Always(shared.dir.join(META), None), mark];
    Ok(fixed.into_iter().chain(snapshot.map(Wanted::Snapshot)).chain(covered).chain(open).collect())
}

fn is_listed(shared: &EmbeddedShared, path: &Path) -> io::Result<bool> {
    let names = names_in(shared, path.parent().unwrap_or(Path::new(".")))?;
    Ok(path.file_name().is_some_and(|name| names.contains(&*name.to_string_lossy())))
}

/// Empty if the directory itself is gone.
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

    /// Files are told apart by device and inode.
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
