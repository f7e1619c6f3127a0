//! One process for one directory, by a lock on it and on a file in it: a directory is one server's, whatever it keeps there.
//!
//! Two on a data directory would write over each other's log; two on the directory of a server over Redis would bring the same
//! late journals, and write over each other's notes.
//!
//! The directory itself is locked, which nobody removes by a slip while a server has it. The file says who has it, and is locked as
//! well: earlier versions lock nothing else, and a file system over a network may lock no directory. Whoever has waited for either
//! looks whether its name still leads to what was locked: another one may have been made there meanwhile.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::embedded::disk::{HeldDirectory, RealDisk, make_dir};
use super::{StoreError, whole};

/// The file that says who has it.
pub(crate) const LOCK: &str = "LOCK";
/// As much is read of who has it.
const HOLDER_BYTES_MAX: usize = 64;

/// Whoever only looks has a lock for an instant: so often it is tried again, and so far apart.
const TRIES: usize = 20;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// With whom a lock is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    /// With nobody.
    None,
    /// With others who only read.
    Readers,
}

/// A lock on a directory. Given back when it is dropped, or with the process.
#[derive(Debug)]
pub(crate) struct FolderLock {
    path: PathBuf,
    /// Given back first: whoever waits for the directory finds it free. None where there is none, for who only reads.
    file: Option<Locked>,
    folder: Locked,
}

impl FolderLock {
    /// Locks a directory for this opener alone, and writes `owner` into its file; or tells who has it, and has had it for a tenth
    /// of a second. The file is made if it is not there.
    ///
    /// # Errors
    /// The directory cannot be opened, or its file not be written or not be locked.
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

    /// Locks a directory together with others who only read, without a word in its file; or tells who has it alone.
    ///
    /// # Errors
    /// It cannot be opened, or its file not be locked.
    pub(crate) fn share(directory: &Path) -> io::Result<Result<Self, String>> {
        Self::lock(directory, Company::Readers)
    }

    /// Once.
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
            // Nobody who locks nothing else has it.
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

/// Does a name lead to what was opened?
pub(crate) fn is_at(opened: &File, path: &Path) -> io::Result<bool> {
    let opened = opened.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What is open and locked.
#[derive(Debug)]
struct Locked {
    file: File,
    is_locked: bool,
}

impl Locked {
    /// Gives it back where somebody else has it, and where it cannot be locked.
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
        // To close it is not enough: a process that is just being started has it open, too, until it is another program. Where this
        // fails nobody can have it before this process has ended.
        if self.is_locked {
            let _ = self.file.unlock();
        }
    }
}

/// Writes down who has it.
fn sign(file: &File, directory: &Path, owner: &str) {
    // Over what is there, which needs no room. It is for people only: no reason to be without a lock.
    let written = file.write_all_at(owner.as_bytes(), 0).and_then(|()| file.set_len(owner.len() as u64));
    if let Err(error) = written {
        tracing::warn!(path = %directory.display(), %error, "it is locked, and does not say by whom");
        // Rather nobody than who had it before.
        let _ = file.set_len(0);
    }
}

/// Of whom nothing is known.
const SOMEBODY: &str = "another process";

/// Who wrote itself into a file. Only for people; whoever has just taken it writes it a moment later.
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
pub(crate) fn take_directory(directory: &Path) -> Result<FolderLock, StoreError> {
    make_dir(&RealDisk, directory).map_err(whole::io("making directory", directory))?;
    let taken = FolderLock::take(directory, &owner()).map_err(whole::io("locking", &directory.join(LOCK)))?;
    taken.map_err(|holder| in_use(directory, &holder, OF_ITS_OWN))
}

/// What to do where another server over Redis has the directory.
const OF_ITS_OWN: &str = "give each server a `store.directory` of its own, or end the other one";

/// Who has a directory, as `process 7`. It takes the lock for an instant where nobody has it, together with others who only look.
pub(crate) fn holder_of(directory: &Path) -> Option<String> {
    FolderLock::share(directory).ok()?.err()
}

/// Another server has the directory of one over Redis: as [`take_directory`] says so.
pub(crate) fn held_by_node(directory: &Path) -> Option<StoreError> {
    holder_of(directory).map(|holder| in_use(directory, &holder, OF_ITS_OWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(directory: &Path, owner: &str) -> FolderLock {
        FolderLock::take(directory, owner).unwrap().unwrap_or_else(|holder| panic!("{holder} has it"))
    }

    /// Without a rest.
    fn refused(directory: &Path) -> Option<String> {
        FolderLock::take_between(directory, "process 8", || {}).unwrap().err()
    }

    #[test]
    fn a_lock_is_taken_also_where_there_is_no_room_for_a_word_in_it() {
        // Whatever is written there finds no room.
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

    /// As earlier versions have it.
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

    /// A copy that fails removes what it made, and has it locked until then.
    #[test]
    fn who_waited_for_a_file_that_was_removed_meanwhile_has_the_one_that_others_see() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LOCK);
        File::create(&path).unwrap().write_all_at(b"process 7", 0).unwrap();
        // Where a directory cannot be locked this is all that keeps two apart.
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
