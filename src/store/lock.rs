//! One process for one directory, by a lock on a file in it: a directory is one server's, whatever it keeps there.
//!
//! Two on a data directory would write over each other's log; two on the directory of a server over Redis would bring the same
//! late journals, and write over each other's notes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::embedded::disk::{RealDisk, make_dir};
use super::{StoreError, whole};

/// Its name.
pub(crate) const LOCK: &str = "LOCK";
/// As much is read of who has it.
const HOLDER_BYTES_MAX: usize = 64;

/// Whoever only looks has a lock for an instant: so often it is tried again, and so far apart.
const TRIES: usize = 20;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// A lock on a file. Given back when it is dropped, or with the process.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// Locks a file for this opener alone, and writes `owner` into it; or tells who has it, and has had it for a tenth of a
    /// second. It is made if it is not there.
    ///
    /// # Errors
    /// It cannot be opened to be written, or not be locked.
    pub(crate) fn take(path: &Path, owner: &str) -> io::Result<Result<Self, String>> {
        #[expect(clippy::disallowed_methods, reason = "a directory is taken before anything is served")]
        let rest = || std::thread::sleep(TRY_AGAIN_AFTER);
        Self::take_between(path, owner, rest)
    }

    fn take_between(path: &Path, owner: &str, mut rest: impl FnMut()) -> io::Result<Result<Self, String>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut locked = file.try_lock();
        for _ in 0..TRIES {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            rest();
            locked = file.try_lock();
        }
        let taken = Self::of(file, locked)?;
        if let Ok(Self(file)) = &taken {
            // Over what is there, which needs no room. It is for people only: no reason to be without a lock.
            let written = file.write_all_at(owner.as_bytes(), 0).and_then(|()| file.set_len(owner.len() as u64));
            if let Err(error) = written {
                tracing::warn!(path = %path.display(), %error, "it is locked, and does not say by whom");
                // Rather nobody than who had it before.
                let _ = file.set_len(0);
            }
        }
        Ok(taken)
    }

    /// Locks an open file together with others who only read, without a word in it; or tells who has it alone.
    ///
    /// # Errors
    /// It cannot be locked.
    pub(crate) fn share(file: File) -> io::Result<Result<Self, String>> {
        let locked = file.try_lock_shared();
        Self::of(file, locked)
    }

    fn of(file: File, locked: Result<(), TryLockError>) -> io::Result<Result<Self, String>> {
        match locked {
            Ok(()) => Ok(Ok(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(Err(holder(&file))),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // To close it is not enough: a process that is just being started has it open, too, until it is another program. Where this
        // fails nobody can have it before this process has ended.
        let _ = self.0.unlock();
    }
}

/// Who wrote itself into a lock. Only for people; whoever has just taken it writes it a moment later.
fn holder(lock: &File) -> String {
    let mut holder = [0; HOLDER_BYTES_MAX];
    match lock.read_at(&mut holder, 0) {
        Ok(0) | Err(_) => "another process".to_owned(),
        Ok(length) => String::from_utf8_lossy(&holder[..length]).into_owned(),
    }
}

/// What this process is called in its locks.
pub(crate) fn owner() -> String {
    format!("process {}", std::process::id())
}

/// Somebody else has a directory: who, and what to do.
pub(crate) fn in_use(directory: &Path, holder: &str, advice: &str) -> StoreError {
    StoreError::Locked(format!("{} is in use by {holder}; {advice}", directory.display()).into())
}

/// Takes the directory of a server over Redis, which is made if it is not there.
///
/// # Errors
/// [`StoreError::Locked`] if another server has it; it cannot be written.
pub(crate) fn take_directory(directory: &Path) -> Result<FileLock, StoreError> {
    make_dir(&RealDisk, directory).map_err(whole::io("making directory", directory))?;
    let path = directory.join(LOCK);
    let taken = FileLock::take(&path, &owner()).map_err(whole::io("locking", &path))?;
    taken.map_err(|holder| in_use(directory, &holder, OF_ITS_OWN))
}

/// What to do where another server over Redis has the directory.
const OF_ITS_OWN: &str = "give each server a `store.directory` of its own, or end the other one";

/// Who has a directory, as `process 7`. It takes the lock for an instant where nobody has it, together with others who only look.
pub(crate) fn holder_of(directory: &Path) -> Option<String> {
    FileLock::share(File::open(directory.join(LOCK)).ok()?).ok()?.err()
}

/// Another server has the directory of one over Redis: as [`take_directory`] says so.
pub(crate) fn held_by_node(directory: &Path) -> Option<StoreError> {
    holder_of(directory).map(|holder| in_use(directory, &holder, OF_ITS_OWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(path: &Path, owner: &str) -> FileLock {
        FileLock::take(path, owner).unwrap().unwrap_or_else(|holder| panic!("{holder} has it"))
    }

    #[test]
    fn a_lock_is_taken_also_where_there_is_no_room_for_a_word_in_it() {
        // Whatever is written there finds no room.
        drop(taken(Path::new("/dev/full"), "process 7"));
    }

    #[test]
    fn a_look_at_a_lock_keeps_nobody_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LOCK);
        drop(taken(&path, "process 1"));
        let mut looking = FileLock::share(File::open(&path).unwrap()).unwrap().ok();
        let took = FileLock::take_between(&path, "process 7", || drop(looking.take())).unwrap();
        assert_eq!(took.map(drop), Ok(()));
    }

    #[test]
    fn a_lock_names_its_holder_and_nothing_of_who_had_it_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LOCK);
        drop(taken(&path, "process 1234567"));
        let held = taken(&path, "process 7");
        assert_eq!(FileLock::take(&path, "process 8").unwrap().map(drop), Err("process 7".to_owned()));
        drop(held);
    }
}
