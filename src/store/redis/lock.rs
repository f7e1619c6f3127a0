//! One server for one directory: two would bring the same late journals, and write over each other's notes.
//!
//! By the file that says so in a data directory of the embedded store, too: a directory is one server's, whatever it keeps there.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::store::{StoreError, whole};

const FILE: &str = "LOCK";
/// As much is read of who has it.
const HOLDER_BYTES_MAX: u64 = 64;

/// Given back when it is dropped, or with the process.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    /// Takes a directory, which is made if it is not there.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another server has it; it cannot be written.
    pub(super) fn take(directory: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(directory).map_err(whole::io("making directory", directory))?;
        let path = directory.join(FILE);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(whole::io("opening", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for people; whoever has just taken it writes it a moment later.
                let read = (&mut file).take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
                let holder = if read.is_ok() && !holder.is_empty() { holder.as_str() } else { "another process" };
                let text = format!(
                    "{} is in use by {holder}; give each server a `store.directory` of its own, or end the other one",
                    directory.display()
                );
                return Err(StoreError::Locked(text.into()));
            }
            Err(TryLockError::Error(error)) => return Err(whole::io("locking", &path)(error)),
        }
        let owner = format!("process {}", std::process::id());
        let noted = file.set_len(0).and_then(|()| file.write_all_at(owner.as_bytes(), 0));
        noted.map_err(whole::io("writing", &path))?;
        Ok(Self { file })
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // To close it is not enough: a process that is just being started has it open, too, until it is another program. Where this
        // fails nobody can have it before this process has ended.
        let _ = self.file.unlock();
    }
}
