//! A file system that only reads a directory: it makes and changes nothing there except the lock, and the lock only if it
//! may be written. So a copy on a read-only medium, or one that belongs to another user, can be verified and restored.
//!
//! If the lock file cannot be written, it is locked as it is. This still keeps a server away that uses the same directory
//! through another mount. If there is no lock file, the directory alone is locked.
//!
//! Neighbours: `report` reads through it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::disk::{DirectoryLock, Disk, DiskFile, RealDisk, RealFile};
use crate::store::lock::{FolderLock, LOCK};
use crate::store::owner::other_than_root;

/// The file system of this machine, read-only.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SourceDisk;

/// The answer to calls that a source must not get.
fn never<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a source is only read"))
}

impl Disk for SourceDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        never()
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(File::open(path)?)))
    }

    fn create(&self, _: &Path) -> io::Result<Arc<dyn DiskFile>> {
        never()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        never()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        never()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        never()
    }

    fn lock(&self, dir: &Path, owner: &str) -> io::Result<Result<DirectoryLock, String>> {
        // If root made the lock file, the server, which runs as another user, could not open it later.
        if !dir.join(LOCK).exists() && other_than_root(dir).is_some() {
            return lock_as_it_lies(dir);
        }
        match RealDisk.lock(dir, owner) {
            Err(error) if cannot_be_written(&error) => lock_as_it_lies(dir),
            locked => locked,
        }
    }
}

fn cannot_be_written(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// Locks what exists, and writes nothing. The lock is shared with others who only read.
fn lock_as_it_lies(dir: &Path) -> io::Result<Result<DirectoryLock, String>> {
    Ok(FolderLock::share(dir)?.map(|lock| Arc::new(lock) as DirectoryLock))
}

#[cfg(test)]
mod tests {
    use super::super::{EmbeddedOptions, EmbeddedStore};
    use super::*;

    #[test]
    fn a_lock_that_cannot_be_written_still_tells_of_a_server_that_runs_and_keeps_one_away() {
        let directory = tempfile::tempdir().unwrap();
        let (dir, lock) = (directory.path().join("data"), directory.path().join("data").join(LOCK));
        let store = EmbeddedStore::open(&dir, 1, EmbeddedOptions::default()).unwrap();
        let held = lock_as_it_lies(&dir).unwrap().map(drop);
        assert_eq!(held, Err(format!("process {}", std::process::id())));
        drop(store);
        let taken = lock_as_it_lies(&dir).unwrap().unwrap_or_else(|holder| panic!("{holder} holds it"));
        assert!(EmbeddedStore::open(&dir, 1, EmbeddedOptions::default()).is_err(), "it is read");
        drop(taken);
        std::fs::remove_file(&lock).unwrap();
        assert!(lock_as_it_lies(&dir).unwrap().is_ok(), "no server has ever run on it");
        assert!(!lock.exists());
    }
}
