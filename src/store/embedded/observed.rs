//! A source that reports how much of it was read. A copy of a large register takes minutes, and people want to see that it
//! goes on.
//!
//! Neighbours: `report` reads through it, the command line draws a bar.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::disk::{DirectoryLock, Disk, DiskFile};
use super::segment::LOG;
use super::snapshot::SNAP;
use super::source::SourceDisk;

/// Called with the number of bytes read and the expected total, from several threads.
pub type Heard = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// A [`SourceDisk`] that reports.
pub(super) struct ObservedDisk {
    read: Arc<Reading>,
}

struct Reading {
    heard: Heard,
    bytes: AtomicU64,
    of: u64,
}

impl ObservedDisk {
    /// The data directory `dir`. Every byte of it is read twice: when it is verified, and when it is copied.
    pub fn new(dir: &Path, heard: Heard) -> Self {
        let length = |folder: &str| -> u64 {
            let entries = std::fs::read_dir(dir.join(folder)).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
        };
        // Errors are ignored here, since this only scales a bar; they will be reported when the file is read.
        let of = 2 * (length(LOG) + length(SNAP));
        Self { read: Arc::new(Reading { heard, bytes: AtomicU64::new(0), of }) }
    }
}

impl fmt::Debug for ObservedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObservedDisk")
    }
}

impl Disk for ObservedDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        SourceDisk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        SourceDisk.create_dir(dir)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ObservedFile { file: SourceDisk.open(path)?, read: Arc::clone(&self.read) }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        SourceDisk.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SourceDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SourceDisk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        SourceDisk.sync_dir(dir)
    }

    fn lock(&self, dir: &Path, owner: &str) -> io::Result<Result<DirectoryLock, String>> {
        SourceDisk.lock(dir, owner)
    }
}

struct ObservedFile {
    file: Arc<dyn DiskFile>,
    read: Arc<Reading>,
}

impl fmt::Debug for ObservedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl DiskFile for ObservedFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let count = self.file.read_at(buffer, at)?;
        let before = self.read.bytes.fetch_add(count as u64, Ordering::Relaxed);
        // A place that is read again counts again, but the bar must not go beyond its end.
        (self.read.heard)((before + count as u64).min(self.read.of), self.read.of);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_at(bytes, at)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.file.allocate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::report::copy_heard;
    use super::super::{EmbeddedOptions, EmbeddedStore};
    use super::*;
    use crate::store::moving::Copier;

    #[test]
    fn a_copy_tells_how_much_it_has_read_and_never_more_than_there_is() {
        let directory = tempfile::tempdir().unwrap();
        let (data, target) = (directory.path().join("data"), directory.path().join("copy"));
        drop(EmbeddedStore::open(&data, 1, EmbeddedOptions::default()).unwrap());
        let told = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&told);
        let heard = Arc::new(move |read, of| notes.lock().unwrap().push((read, of)));
        copy_heard(&data, &target, Copier::Backup, heard).unwrap();
        let told = told.lock().unwrap();
        assert!(!told.is_empty() && told.iter().all(|(read, of)| read <= of && *of == told[0].1), "{told:?}");
    }
}
