//! One process per directory, by a lock on the directory and on a file in it. A directory belongs to one server, whatever it
//! keeps there.
//!
//! Two servers on one data directory would write over each other's log. Two servers over Redis with one directory would both
//! bring the same late journals, and write over each other's notes.
//!
//! The directory itself is locked because nobody removes it by mistake while a server has it. The file says who has the
//! directory, and is locked as well: earlier versions lock only that, and a network file system may refuse to lock a
//! directory. A process that has waited for either lock checks that the name still leads to what it locked: it may lead to a
//! new one by then.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::embedded::disk::{HeldDirectory, RealDisk, make_dir};
use super::{StoreError, whole};

/// The file that says who has the directory.
pub(crate) const LOCK: &str = "LOCK";
/// How much of that file is read.
const HOLDER_BYTES_MAX: usize = 64;

/// How often, and how far apart, a lock is tried: processes that only look hold it for an instant.
const TRIES: usize = 20;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// With whom a lock is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    None,
    Readers,
}

/// A lock on a directory. It is released when it is dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct FolderLock {
    path: PathBuf,
    /// Released first, so that a process that waits for the directory finds the file free. None if the file does not exist
    /// and this opener only reads.
    file: Option<Locked>,
    folder: Locked,
}

impl FolderLock {
    /// Locks a directory for this opener alone, and writes `owner` into its file; or returns who has it, after trying for a
    /// tenth of a second. Creates the file if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be opened, or the file cannot be opened for writing or locked.
    pub(crate) fn take(directory: &Path, owner: &str) -> io::Result<Result<Self, String>> {
        #[expect(clippy::disallowed_methods, reason = "a directory is taken before anything is served")]
        let rest = || std::thread::sleep(TRY_AGAIN_AFTER);
        Self::take_between(directory, owner, rest)
    }

    fn take_between(directory: &Path, owner: &str, mut rest: impl FnMut()) -> io::Result<Result<Self, String>> {
        let mut taken = Self::lock(directory, Company::None)?;
        for _ in 0..TRIES {
            if taken.is_ok() {
                break;
            }
            rest();
            taken = Self::lock(directory, Company::None)?;
        }
        if let Ok(Self { file: Some(Locked { file, .. }), .. }) = &taken {
            sign(file, directory, owner);
        }
        Ok(taken)
    }

    /// Locks a directory together with others who only read, and writes nothing; or returns who has it alone.
    ///
    /// # Errors
    /// The directory cannot be opened, or its file cannot be locked.
    pub(crate) fn share(directory: &Path) -> io::Result<Result<Self, String>> {
        Self::lock(directory, Company::Readers)
    }

    /// One attempt.
    fn lock(directory: &Path, company: Company) -> io::Result<Result<Self, String>> {
        let path = directory.join(LOCK);
        let folder = match Locked::new(File::open(directory)?, company) {
            Ok(Ok(folder)) => folder,
            Ok(Err(_)) => return Ok(Err(holder(&path))),
            Err((folder, error)) => {
                tracing::debug!(path = %directory.display(), %error, "a directory is not locked here, only a file in it");
                Locked { file: folder, is_locked: false }
            }
        };
        let opened = match company {
            Company::None => OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path),
            Company::Readers => File::open(&path),
        };
        let file = match opened {
            Ok(file) => Some(file),
            // Then no process of a version that locks only the file has it.
            Err(error) if error.kind() == ErrorKind::NotFound && company == Company::Readers => None,
            Err(error) => return Err(error),
        };
        let file = match file.map(|file| Locked::new(file, company)).transpose().map_err(|(_, error)| error)? {
            Some(Err(file)) => return Ok(Err(holder_in(&file))),
            Some(Ok(file)) => Some(file),
            None => None,
        };
        let is_ours =
            is_at(&folder.file, directory)? && file.as_ref().map_or(Ok(true), |lock| is_at(&lock.file, &path))?;
        Ok(if is_ours { Ok(Self { path: directory.into(), file, folder }) } else { Err(SOMEBODY.to_owned()) })
    }
}

impl HeldDirectory for FolderLock {
    fn is_in_place(&self) -> io::Result<bool> {
        is_at(&self.folder.file, &self.path)
    }
}

/// Does a name still lead to the file that was opened?
pub(crate) fn is_at(opened: &File, path: &Path) -> io::Result<bool> {
    let opened = opened.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A file that is open, and locked if `is_locked`.
#[derive(Debug)]
struct Locked {
    file: File,
    is_locked: bool,
}

impl Locked {
    /// Returns the file unlocked if another process has the lock, and also if it cannot be locked.
    fn new(file: File, company: Company) -> Result<Result<Self, File>, (File, io::Error)> {
        let locked = match company {
            Company::None => file.try_lock(),
            Company::Readers => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => Ok(Ok(Self { file, is_locked: true })),
            Err(TryLockError::WouldBlock) => Ok(Err(file)),
            Err(TryLockError::Error(error)) => Err((file, error)),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is just being started has it open, too, until it executes its
        // program. If unlocking fails, nobody can take the lock before this process has ended.
        if self.is_locked {
            let _ = self.file.unlock();
        }
    }
}

/// Writes who has the directory.
fn sign(file: &File, directory: &Path, owner: &str) {
    // Overwrites what is there, which needs no room. The name is only for people, so a failure is no reason to be without a lock.
    let written = file.write_all_at(owner.as_bytes(), 0).and_then(|()| file.set_len(owner.len() as u64));
    if let Err(error) = written {
        tracing::warn!(path = %directory.display(), %error, "it is locked, and does not say by whom");
        // Better no name than the name of the previous holder.
        let _ = file.set_len(0);
    }
}

/// The holder of a lock, if nothing is known about it.
const SOMEBODY: &str = "another process";

/// Who wrote its name into a file. Only for people: a process that has just taken the lock writes its name a moment later.
fn holder(path: &Path) -> String {
    File::open(path).map_or_else(|_| SOMEBODY.to_owned(), |file| holder_in(&file))
}

fn holder_in(lock: &File) -> String {
    let mut holder = [0; HOLDER_BYTES_MAX];
    match lock.read_at(&mut holder, 0) {
        Ok(0) | Err(_) => SOMEBODY.to_owned(),
        Ok(length) => String::from_utf8_lossy(&holder[..length]).into_owned(),
    }
}

pub(crate) fn owner() -> String {
    format!("process {}", std::process::id())
}

/// Another process has a directory: who, and what to do.
pub(crate) fn in_use(directory: &Path, holder: &str, advice: &str) -> StoreError {
    StoreError::Locked(format!("{} is in use by {holder}; {advice}", directory.display()).into())
}

/// Takes the directory of a server over Redis. Creates it if it does not exist.
///
/// # Errors
/// [`StoreError::Locked`] if another server has it; other errors if it cannot be written.
pub(crate) fn take_directory(directory: &Path) -> Result<FolderLock, StoreError> {
    make_dir(&RealDisk, directory).map_err(whole::io("making directory", directory))?;
    let taken = FolderLock::take(directory, &owner()).map_err(whole::io("locking", &directory.join(LOCK)))?;
    taken.map_err(|holder| in_use(directory, &holder, OF_ITS_OWN))
}

/// What to do if another server over Redis has the directory.
const OF_ITS_OWN: &str = "give each server a `store.directory` of its own, or end the other one";

/// Who has a directory, as `process 7`. If nobody has it, this takes the lock for an instant, together with others who only look.
pub(crate) fn holder_of(directory: &Path) -> Option<String> {
    FolderLock::share(directory).ok()?.err()
}

/// The error if another server over Redis has the directory, as [`take_directory`] reports it.
pub(crate) fn held_by_node(directory: &Path) -> Option<StoreError> {
    holder_of(directory).map(|holder| in_use(directory, &holder, OF_ITS_OWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(directory: &Path, owner: &str) -> FolderLock {
        FolderLock::take(directory, owner).unwrap().unwrap_or_else(|holder| panic!("{holder} has it"))
    }

    /// Tries without resting in between.
    fn refused(directory: &Path) -> Option<String> {
        FolderLock::take_between(directory, "process 8", || {}).unwrap().err()
    }

    #[test]
    fn a_lock_is_taken_also_where_there_is_no_room_for_a_word_in_it() {
        // The disk has no room for anything written to the lock file.
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join(LOCK)).unwrap();
        drop(taken(directory.path(), "process 7"));
    }

    #[test]
    fn a_look_at_a_lock_keeps_nobody_away() {
        let directory = tempfile::tempdir().unwrap();
        drop(taken(directory.path(), "process 1"));
        let mut looking = FolderLock::share(directory.path()).unwrap().ok();
        let took = FolderLock::take_between(directory.path(), "process 7", || drop(looking.take())).unwrap();
        assert_eq!(took.map(drop), Ok(()));
    }

    #[test]
    fn a_lock_names_its_holder_and_nothing_of_who_had_it_before() {
        let directory = tempfile::tempdir().unwrap();
        drop(taken(directory.path(), "process 1234567"));
        let held = taken(directory.path(), "process 7");
        assert_eq!(refused(directory.path()), Some("process 7".to_owned()));
        drop(held);
    }

    #[test]
    fn a_directory_whose_file_is_removed_is_still_who_has_it_and_nobody_makes_the_file_anew_before() {
        let directory = tempfile::tempdir().unwrap();
        let held = taken(directory.path(), "process 7");
        std::fs::remove_file(directory.path().join(LOCK)).unwrap();
        assert_eq!(refused(directory.path()), Some(SOMEBODY.to_owned()));
        assert_eq!(FolderLock::share(directory.path()).unwrap().err(), Some(SOMEBODY.to_owned()));
        assert!(!directory.path().join(LOCK).exists());
        drop(held);
        drop(taken(directory.path(), "process 8"));
    }

    /// As earlier versions lock a directory.
    #[test]
    fn a_directory_is_of_who_has_locked_nothing_but_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LOCK);
        File::create(&path).unwrap().write_all_at(b"process 7", 0).unwrap();
        let earlier = File::open(&path).unwrap();
        earlier.try_lock().unwrap();
        let process_7 = Some("process 7".to_owned());
        assert_eq!(
            (refused(directory.path()), FolderLock::share(directory.path()).unwrap().err()),
            (process_7.clone(), process_7)
        );
        drop(earlier);
        let held = taken(directory.path(), "process 8");
        assert!(File::open(&path).unwrap().try_lock().is_err(), "nor has an earlier one what is had here");
        drop(held);
    }

    /// A copy that fails removes the lock file that it made, and holds its lock until then.
    #[test]
    fn who_waited_for_a_file_that_was_removed_meanwhile_has_the_one_that_others_see() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LOCK);
        File::create(&path).unwrap().write_all_at(b"process 7", 0).unwrap();
        // If a directory cannot be locked, this alone keeps two processes apart.
        let mut copying = Some(File::open(&path).unwrap());
        copying.as_ref().unwrap().try_lock().unwrap();
        let end = || {
            let _ = std::fs::remove_file(&path);
            drop(copying.take());
        };
        let held = FolderLock::take_between(directory.path(), "process 8", end).unwrap().unwrap();
        assert!(is_at(&held.file.as_ref().unwrap().file, &path).unwrap());
        assert_eq!(refused(directory.path()), Some("process 8".to_owned()));
    }
}
