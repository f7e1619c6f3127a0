//! The interface to the file system: few calls, so that a test can fail each of them or cut the power.
//!
//! Neighbours: everything in `embedded` reaches files through this alone. Callers pass complete paths.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use crate::store::lock::{FolderLock, is_at};

/// Held while a directory is in use; released when dropped.
pub type DirectoryLock = Arc<dyn HeldDirectory>;

/// A directory that is in use.
pub trait HeldDirectory: Debug + Send + Sync + 'static {
    /// Does the name under which the directory was taken still lead to it? It does not after the directory was moved away or
    /// removed.
    ///
    /// # Errors
    /// This cannot be found out.
    fn is_in_place(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// What a store needs from a file system.
pub trait Disk: Debug + Send + Sync + 'static {
    /// The names in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes a directory, if it does not exist, inside one that does. Only `make_dir` makes it durable.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a file. An existing one becomes empty.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing any file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name. A process that has the file open can go on reading it.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Locks a directory for this opener alone and writes `owner` into its lock file, or returns who has it.
    fn lock(&self, dir: &Path, owner: &str) -> io::Result<Result<DirectoryLock, String>>;
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync + 'static {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Reads some bytes at a place; 0 only at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all bytes at a place.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Reserves space for a file of this length.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;
    /// Does this path lead to this file? It does not after the file was removed or replaced.
    ///
    /// # Errors
    /// This cannot be found out.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }
}

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

/// A file of this machine.
#[derive(Debug)]
pub(super) struct RealFile(pub(super) File);

impl Disk for RealDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            made => made,
        }
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, dir: &Path, owner: &str) -> io::Result<Result<DirectoryLock, String>> {
        Ok(FolderLock::take(dir, owner)?.map(|lock| Arc::new(lock) as DirectoryLock))
    }
}

impl DiskFile for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, length) {
            Ok(()) => Ok(()),
            // Some file systems cannot reserve space. The zeros that are written next take it as well.
            Err(error) if error == rustix::io::Errno::OPNOTSUPP => self.0.set_len(length),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.0)?)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_at(&self.0, path)
    }
}

/// Bytes that this process may still write in a directory. None if that cannot be found out.
pub(super) fn free_in(dir: &Path) -> Option<u64> {
    rustix::fs::statvfs(dir).ok().map(|space| space.f_bavail.saturating_mul(space.f_frsize))
}

/// Makes a directory and those above it. Each is durable before anything lies in it: a file that was flushed is lost all the
/// same if the name of its directory is.
pub(crate) fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let above = match dir.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => return Ok(()),
    };
    match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_dir(disk, above)?;
            disk.create_dir(dir)?;
            disk.sync_dir(above)
        }
        // The process that made it may have been killed before it flushed the name. If the directory existed before, this
        // process may lack the right to read the one above it, and need not have it.
        Ok(_) => {
            if let Err(error) = disk.sync_dir(above) {
                tracing::debug!(path = %above.display(), %error, "a directory is not flushed again");
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads as many bytes at a place as the buffer holds.
pub(super) fn read_exact(file: &dyn DiskFile, buffer: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a small file under a temporary name, and then makes it durable under its own.
pub(super) fn replace(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let file = disk.create(&temporary)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&temporary, &dir.join(name))?;
    disk.sync_dir(dir)
}
