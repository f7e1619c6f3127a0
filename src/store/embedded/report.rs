//! Verifies and copies a data directory that no server has open.
//!
//! A copy is another register with a new identity, because the original may have gone on and granted addresses that are free
//! in the copy. Its generations begin above all that can have been given. It names the register that it comes from, so that
//! it does not grant automatically until it was reconciled.
//!
//! Neighbours: `recovery` judges; the command line prints.

use std::io;
use std::path::{Path, PathBuf};

use super::directory::{LOST_AND_FOUND, initialised};
use super::disk::{Disk, DiskFile, RealDisk, free_in, make_dir, read_exact};
use super::meta::{Mark, Meta};
use super::moving::{self, MOVED};
use super::observed::{Heard, ObservedDisk};
use super::problem;
use super::recovery::{self, GivesUp, Ground, Recovered};
use super::segment::{self, LOG, Lengths, Segment, SegmentHeader};
use super::shared::{HistorySegment, KeptSegment, now_ms};
use super::snapshot::{self, SNAP};
use super::source::SourceDisk;
use crate::core::plural::counted;
use crate::store::lock::LOCK;
use crate::store::moving::{Copier, MoveNotice};
use crate::store::{Head, StoreError, chapters};

/// A generation has the seconds since 1970 in its upper bits and room for this many generations in each second below them.
const GENERATIONS_PER_SECOND: u64 = 1 << 20;
const COPY_BYTES: usize = 1 << 20;
/// An upper bound for everything in a copy that is neither log nor snapshot.
const SMALL_FILES_BYTES: u64 = 64 << 10;
/// Bytes in a megabyte.
const MB: u64 = 1_000_000;

/// What a data directory holds.
#[derive(Debug, Clone)]
pub struct Report {
    /// Identity of the register.
    pub register: u128,
    /// The register that it was restored from.
    pub restored_from: Option<u128>,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// Head of each shard.
    pub heads: Vec<Head>,
    /// The last group of the log.
    pub groups: u64,
    /// Segments with frames.
    pub segments: usize,
    /// Length of the snapshot, if there is one.
    pub snapshot_bytes: Option<u64>,
    /// Bytes of a torn tail that the next start would cut off.
    pub torn_bytes: u64,
    /// Segments of history that were given up; their files are still in the directory.
    pub given_up_segments: u64,
    /// Snapshots that were given up; their files are still in the directory.
    pub given_up_snapshots: u64,
    /// One of the two places of `MARK` is unreadable.
    pub half_marked: bool,
}

/// Reads everything in a data directory and changes nothing.
///
/// # Errors
/// [`StoreError`] says what is wrong, where, and what to do.
pub fn verify(dir: &Path) -> Result<Report, StoreError> {
    let (_lock, meta, recovered) = read(&SourceDisk, dir)?;
    Ok(report(&meta, &recovered))
}

/// Reads everything in a data directory without locking it, and changes nothing. If a server starts meanwhile, its writes
/// may look like damage.
///
/// # Errors
/// As for [`verify`], without [`StoreError::Locked`].
pub fn look(dir: &Path) -> Result<Report, StoreError> {
    check_there(&SourceDisk, dir)?;
    let (meta, recovered) = read_unlocked(&SourceDisk, dir)?;
    Ok(report(&meta, &recovered))
}

/// Is there a register that a server would leave behind if it keeps its register in Redis and uses this directory? Whenever
/// the server is started without Redis again, that register would go on granting, and what it grants is free in Redis.
/// Returns a sentence that says where it is and how much it holds. None if there is no register; if it was moved away or is
/// being moved here; or if nobody ever changed anything in it, because a package makes such a register before anybody has
/// said where the real one should be.
///
/// Reads as much as a start does, and locks nothing.
///
/// # Errors
/// [`StoreError`] says why it is not known what is there.
pub fn left_behind(dir: &Path) -> Result<Option<String>, StoreError> {
    if !dir.exists() || dir.join(moving::MOVED).exists() {
        return Ok(None);
    }
    match initialised(&SourceDisk, dir) {
        Ok(true) => {}
        // Other files are those that a node over Redis keeps.
        Ok(false) | Err(StoreError::Foreign(_)) => return Ok(None),
        Err(error) => return Err(error),
    }
    let batches: u64 = look(dir)?.heads.iter().map(|head| head.seq.0).sum();
    let holds =
        format!("{} holds an embedded register ({}) that was not moved", dir.display(), counted(batches, "batch"));
    Ok(Some(holds).filter(|_| batches > 0))
}

fn read(disk: &dyn Disk, dir: &Path) -> Result<(super::DirectoryLock, Meta, Recovered), StoreError> {
    check_there(disk, dir)?;
    let lock = super::directory::take_lock(disk, dir)?;
    let (meta, recovered) = read_unlocked(disk, dir)?;
    Ok((lock, meta, recovered))
}

fn check_there(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    if moving::check_copy(disk, dir)? { Ok(()) } else { Err(problem::foreign(dir, "holds no register")) }
}

fn read_unlocked(disk: &dyn Disk, dir: &Path) -> Result<(Meta, Recovered), StoreError> {
    let meta = Meta::read(disk, dir)?;
    let (_, marked) = Mark::open(disk, dir)?;
    let ground = Ground { disk, dir, meta: &meta, marked, to_be_loaded: false };
    let recovered = recovery::recover(ground, GivesUp::default())?;
    Ok((meta, recovered))
}

fn report(meta: &Meta, recovered: &Recovered) -> Report {
    Report {
        register: meta.register,
        restored_from: Some(meta.restored_from).filter(|&register| register != 0),
        created_ms: meta.created_ms,
        heads: recovered.lines.iter().map(crate::store::fence::FenceLine::head).collect(),
        groups: recovered.group,
        segments: recovered.history.len() + recovered.segments.len(),
        snapshot_bytes: recovered.snapshot.as_ref().map(|snapshot| snapshot.length),
        torn_bytes: recovered.torn.as_ref().map_or(0, |torn| torn.bytes),
        given_up_segments: recovered.aside,
        given_up_snapshots: recovered.snapshots_aside,
        half_marked: recovered.half_marked,
    }
}

/// Why nothing was copied.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CannotCopy {
    /// The source does not exist, is in use, or cannot be trusted.
    #[error(transparent)]
    Source(StoreError),
    /// The target holds something, or cannot be written.
    #[error(transparent)]
    Target(StoreError),
    /// The copy needs more room than its target has; nothing was written.
    #[error("the copy needs {} MB in {}, and {} MB are free there", needed.div_ceil(MB), target.display(), free / MB)]
    NoRoom {
        /// The target directory.
        target: PathBuf,
        /// Bytes of the copy.
        needed: u64,
        /// Bytes that this process may still write there.
        free: u64,
    },
}

/// Verifies a data directory and copies it into an empty or absent one, as a new register.
///
/// # Errors
/// [`CannotCopy`] if the source cannot be trusted, or the target holds something or lies inside the source.
pub fn copy(dir: &Path, target: &Path) -> Result<Report, CannotCopy> {
    copy_from(&SourceDisk, dir, target, Copier::Backup, free_near)
}

/// As [`copy`], for a command, and reports meanwhile how much of the source it has read.
///
/// # Errors
/// As for [`copy`].
pub fn copy_heard(dir: &Path, target: &Path, by: Copier, heard: Heard) -> Result<Report, CannotCopy> {
    copy_from(&ObservedDisk::new(dir, heard), dir, target, by, free_near)
}

fn copy_from(
    disk: &dyn Disk,
    dir: &Path,
    target: &Path,
    by: Copier,
    free_near: fn(&Path) -> Option<u64>,
) -> Result<Report, CannotCopy> {
    let (_lock, meta, recovered) = read(disk, dir).map_err(CannotCopy::Source)?;
    if lies_inside(target, dir) {
        let text = format!("lies inside {}, where only the server has something to write", dir.display());
        return Err(CannotCopy::Target(problem::foreign(target, text)));
    }
    // An earlier copy that broke off there is removed first, so its room counts as free.
    let broken_off = if moving::is_copying(&RealDisk, target) { taken(target) } else { 0 };
    let needed = needed(&recovered).saturating_sub(broken_off);
    if let Some(free) = free_near(target).filter(|&free| free < needed) {
        return Err(CannotCopy::NoRoom { target: target.to_owned(), needed, free });
    }
    let missing: Vec<&Path> = target.ancestors().take_while(|above| !is_there(above)).collect();
    let from = format!("the directory {}", dir.canonicalize().as_deref().unwrap_or(dir).display());
    let notice = MoveNotice::Copying { by, from, is_whole: false };
    let filled = fill(CopyEnds { source: disk, disk: &RealDisk, target }, &notice, &meta, &recovered);
    if filled.is_err() {
        // Removes the directories that were made, innermost first; one that is not empty stays.
        missing.into_iter().for_each(|above| drop(std::fs::remove_dir(above)));
    }
    filled
}

/// Bytes that a copy takes: each segment has its whole length, however much of it is used.
fn needed(recovered: &Recovered) -> u64 {
    let covered = recovered.history.iter().map(|of| of.segment.header.length);
    let open = recovered.segments.iter().map(|kept| kept.segment.header.length);
    let snapshot = recovered.snapshot.as_ref().map_or(0, |snapshot| snapshot.length);
    covered.chain(open).sum::<u64>() + blank_segment(recovered).1 + snapshot + SMALL_FILES_BYTES
}

/// Total size of the files of a register in this directory.
pub fn taken(dir: &Path) -> u64 {
    let folders = [dir.to_owned(), dir.join(LOG), dir.join(SNAP)];
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).filter(|facts| facts.is_file()).map(|facts| facts.len()).sum()
}

/// Bytes that are free where a directory is, or would be created. None if that cannot be found out.
fn free_near(dir: &Path) -> Option<u64> {
    let absolute = std::path::absolute(dir).ok()?;
    let near = absolute.ancestors().find(|above| above.exists())?;
    free_in(near)
}

fn is_there(dir: &Path) -> bool {
    dir.as_os_str().is_empty() || dir.exists()
}

/// Is the target inside this directory, or would it be once it is made?
fn lies_inside(target: &Path, dir: &Path) -> bool {
    let (Ok(dir), Ok(target)) = (dir.canonicalize(), std::path::absolute(target)) else { return false };
    let there = target.ancestors().find_map(|above| above.canonicalize().ok());
    there.is_some_and(|there| there.starts_with(&dir)) && target.canonicalize().ok() != Some(dir)
}

#[derive(Debug, Clone, Copy)]
struct CopyEnds<'a> {
    /// The file system that is read.
    source: &'a dyn Disk,
    /// The file system that is written, in the directory `target`.
    disk: &'a dyn Disk,
    target: &'a Path,
}

/// Fills a directory, which says meanwhile what it is copied from.
fn fill(ends: CopyEnds<'_>, notice: &MoveNotice, meta: &Meta, recovered: &Recovered) -> Result<Report, CannotCopy> {
    let CopyEnds { disk, target, .. } = ends;
    let _target_lock = begin(disk, target, notice).map_err(CannotCopy::Target)?;
    let copied = write_register(ends, meta, recovered);
    let copied = copied.and_then(|report| moving::remove(disk, target).map_err(CannotCopy::Target).map(|()| report));
    if copied.is_err() {
        leave_nothing(disk, target);
    }
    copied
}

/// Takes an empty directory, or one in which a copy was broken off, and writes the notice of what it will be. The notice
/// comes first, because an incomplete copy looks like a register that was never begun. It is announced before there is a lock,
/// and written under the lock, so that a process that does not get the lock changes nothing of what another one makes there.
fn begin(disk: &dyn Disk, target: &Path, notice: &MoveNotice) -> Result<super::DirectoryLock, StoreError> {
    make_dir(disk, target).map_err(problem::io("making directory", target))?;
    let check = |disk: &dyn Disk| {
        let is_begun = moving::is_copying(disk, target);
        if is_begun { Ok(true) } else { check_empty(disk, target).map(|()| false) }
    };
    // A file may have been made even though it could not be written or locked.
    let clear = |error: &StoreError| {
        if !matches!(error, StoreError::Locked(_)) && !moving::is_copying(disk, target) {
            leave_nothing(disk, target);
        }
    };
    if !check(disk)? {
        moving::announce(disk, target, notice).inspect_err(clear)?;
    }
    let lock = super::directory::take_lock(disk, target).inspect_err(clear)?;
    // The previous holder of the lock may have finished or begun a copy meanwhile.
    if check(disk)? {
        moving::clear(disk, target)?;
    }
    moving::write(disk, target, notice).inspect_err(|_| leave_nothing(disk, target))?;
    Ok(lock)
}

fn occupied(target: &Path) -> StoreError {
    problem::foreign(target, "is not empty; give an empty directory to copy into")
}

/// Is nothing there but what a file system, a lock, or a notice that was never finished leaves in an empty directory?
fn check_empty(disk: &dyn Disk, target: &Path) -> Result<(), StoreError> {
    let there = disk.list(target).map_err(problem::io("listing", target))?;
    let is_nothing = |name: &String| [LOST_AND_FOUND, LOCK, moving::MOVED_TEMPORARY].contains(&name.as_str());
    if there.iter().all(is_nothing) { Ok(()) } else { Err(occupied(target)) }
}

/// Removes a copy that failed, so that the next one into the same directory finds it empty. If something cannot be removed,
/// the notice stays, and the next copy begins by removing the rest.
fn leave_nothing(disk: &dyn Disk, target: &Path) {
    if let Err(error) = moving::clear(disk, target) {
        tracing::debug!(copy = %target.display(), %error, "what a copy left is removed by the next one");
        return;
    }
    [LOG, SNAP].into_iter().for_each(|folder| drop(std::fs::remove_dir(target.join(folder))));
    for name in [chapters::FILE, moving::MOVED_TEMPORARY, MOVED, LOCK] {
        drop(disk.remove(&target.join(name)));
    }
}

fn write_register(ends: CopyEnds<'_>, meta: &Meta, recovered: &Recovered) -> Result<Report, CannotCopy> {
    let CopyEnds { disk, target, .. } = ends;
    let report = report(meta, recovered);
    let highest = report.heads.iter().map(|head| head.generation.0).max().unwrap_or(0);
    let copied = Meta {
        register: rand::random::<u128>().max(1),
        restored_from: meta.register,
        generation_floor: highest.max(now_ms() / 1_000 * GENERATIONS_PER_SECOND) + GENERATIONS_PER_SECOND,
        ..*meta
    };
    write_copy(ends, &copied, recovered)?;
    let finish = || {
        Mark::create(disk, target, recovered.group, recovered.digest)?;
        disk.sync_dir(target).map_err(problem::io("flushing", target))?;
        copied.write(disk, target)
    };
    finish().map_err(CannotCopy::Target)?;
    super::index::begin(disk, target, copied.register);
    Ok(Report {
        register: copied.register,
        restored_from: Some(meta.register),
        torn_bytes: 0,
        given_up_segments: 0,
        given_up_snapshots: 0,
        half_marked: false,
        ..report
    })
}

fn write_copy(ends: CopyEnds<'_>, meta: &Meta, recovered: &Recovered) -> Result<(), CannotCopy> {
    let CopyEnds { source, disk, target } = ends;
    let unwritten = |error| CannotCopy::Target(problem::io("copying into", target)(error));
    for folder in [LOG, SNAP] {
        make_dir(disk, &target.join(folder)).map_err(unwritten)?;
    }
    let copy_segment = |segment: &Segment, file: &dyn DiskFile, end: u64| {
        let header = SegmentHeader { register: meta.register, ..segment.header };
        let lengths = Lengths::of(header.length);
        let copy = segment::create(disk, target, header.number, lengths, segment::AT_ONCE).map_err(unwritten)?;
        copy_bytes((file, &*segment.path, end), &*copy.file, &header.bytes(), unwritten)
    };
    for HistorySegment { segment, end } in &recovered.history {
        let file = source.open(&segment.path).map_err(problem::io("opening", &segment.path));
        copy_segment(segment, &*file.map_err(CannotCopy::Source)?, *end)?;
    }
    for KeptSegment { segment, file, end } in &recovered.segments {
        copy_segment(segment, &**file, *end)?;
    }
    // A sealed segment needs a successor. The spare segments of the source are blank, so one blank segment serves as well.
    let (number, length) = blank_segment(recovered);
    segment::create(disk, target, number, Lengths::of(length), segment::AT_ONCE).map_err(unwritten)?;
    if let Some(snapshot) = &recovered.snapshot {
        let place = snapshot::SnapshotPlace { register: meta.register, ..snapshot.place };
        let snap = target.join(SNAP);
        let copy = disk.create(&snap.join(snapshot::name(place.covered))).map_err(unwritten)?;
        copy_bytes((snapshot.file(), &snapshot.path, snapshot.length), &*copy, &place.bytes(), unwritten)?;
        disk.sync_dir(&snap).map_err(unwritten)?;
    }
    Ok(())
}

/// Number and length of the segment with which a copy continues.
fn blank_segment(recovered: &Recovered) -> (u64, u64) {
    let oldest = recovered.snapshot.as_ref().map_or(1, |snapshot| snapshot.place.oldest);
    let last = recovered.segments.last().map(|kept| (kept.segment.header.number + 1, kept.segment.header.length));
    let spare_bytes = recovered.spares.first().map(|spare| spare.length);
    last.unwrap_or((oldest, spare_bytes.unwrap_or(super::EmbeddedOptions::default().segment_bytes)))
}

/// Copies this many bytes of a file, durably, with another header.
fn copy_bytes(
    (from, path, length): (&dyn DiskFile, &Path, u64),
    to: &dyn DiskFile,
    header: &[u8],
    unwritten: impl Fn(io::Error) -> CannotCopy,
) -> Result<(), CannotCopy> {
    let mut buffer = vec![0; COPY_BYTES.min(length as usize)];
    let mut at = 0;
    while at < length {
        let piece = (length - at).min(COPY_BYTES as u64) as usize;
        let read = read_exact(from, &mut buffer[..piece], at);
        read.map_err(|error| CannotCopy::Source(problem::io("reading", path)(error)))?;
        to.write_at(&buffer[..piece], at).map_err(&unwritten)?;
        at += piece as u64;
    }
    to.write_at(header, 0).and_then(|()| to.sync()).map_err(&unwritten)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::disk::DirectoryLock;
    use super::super::{EmbeddedOptions, EmbeddedStore};
    use super::*;

    /// A file system that locks no file: it creates the lock file, and then fails, or says who has it.
    #[derive(Debug)]
    struct LocksNothing {
        holder: Option<&'static str>,
    }

    impl Disk for LocksNothing {
        fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            RealDisk.list(dir)
        }
        fn create_dir(&self, dir: &Path) -> io::Result<()> {
            RealDisk.create_dir(dir)
        }
        fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
            RealDisk.open(path)
        }
        fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
            RealDisk.create(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            RealDisk.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            RealDisk.remove(path)
        }
        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            RealDisk.sync_dir(dir)
        }
        fn lock(&self, dir: &Path, _: &str) -> io::Result<Result<DirectoryLock, String>> {
            RealDisk.create(&dir.join(LOCK))?;
            match self.holder {
                Some(holder) => Ok(Err(holder.to_owned())),
                None => Err(rustix::io::Errno::NOLCK.into()),
            }
        }
    }

    fn from_elsewhere() -> MoveNotice {
        MoveNotice::Copying { by: Copier::Backup, from: "elsewhere".to_owned(), is_whole: false }
    }

    #[test]
    fn a_copy_that_cannot_lock_its_target_leaves_it_empty_for_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let (dir, target) = (directory.path().join("data"), directory.path().join("copy"));
        drop(EmbeddedStore::open(&dir, 1, EmbeddedOptions::default()).unwrap());
        let into = |disk: &dyn Disk| {
            let (_lock, meta, recovered) = read(&SourceDisk, &dir).unwrap();
            fill(CopyEnds { source: &SourceDisk, disk, target: &target }, &from_elsewhere(), &meta, &recovered)
        };
        let refused = into(&LocksNothing { holder: None });
        assert!(matches!(refused, Err(CannotCopy::Target(StoreError::Io { .. }))), "{refused:?}");
        assert_eq!(RealDisk.list(&target).unwrap(), [""; 0]);
        let refused = into(&LocksNothing { holder: Some("process 7") });
        assert!(matches!(refused, Err(CannotCopy::Target(StoreError::Locked(_)))), "{refused:?}");
        let mut left = RealDisk.list(&target).unwrap();
        left.sort();
        assert_eq!(left, [LOCK, moving::MOVED_TEMPORARY], "the lock is of the one who has it, who says what he makes");
        copy(&dir, &target).unwrap();
    }

    #[test]
    fn a_copy_that_needs_more_room_than_there_is_says_both_and_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (dir, target) = (directory.path().join("data"), directory.path().join("new/copy"));
        drop(EmbeddedStore::open(&dir, 1, EmbeddedOptions::default()).unwrap());
        let into = |free: fn(&Path) -> Option<u64>| copy_from(&SourceDisk, &dir, &target, Copier::Backup, free);
        let refused = into(|_| Some(1_000_000)).unwrap_err();
        let CannotCopy::NoRoom { needed, .. } = refused else { panic!("{refused}") };
        let said = refused.to_string();
        assert!(
            said.contains(&format!("needs {} MB", needed.div_ceil(MB))) && said.contains("1 MB are free"),
            "{said}"
        );
        assert!(!target.parent().unwrap().exists(), "nothing was written");
        // A copy that broke off gives its room back.
        begin(&RealDisk, &target, &from_elsewhere()).unwrap();
        make_dir(&RealDisk, &target.join(LOG)).unwrap();
        std::fs::File::create(target.join(LOG).join("1")).unwrap().set_len(needed).unwrap();
        into(|_| Some(0)).unwrap();
        assert!(taken(&target) <= needed && needed <= taken(&target) + SMALL_FILES_BYTES, "{needed}");
    }

    #[test]
    fn who_finds_another_at_work_in_a_directory_leaves_what_that_one_says_there() {
        let directory = tempfile::tempdir().unwrap();
        let (dir, target) = (directory.path().join("data"), directory.path().join("copy"));
        drop(EmbeddedStore::open(&dir, 1, EmbeddedOptions::default()).unwrap());
        std::fs::create_dir(&target).unwrap();
        let notice = from_elsewhere();
        let first = begin(&RealDisk, &target, &notice).unwrap();
        let (lock, meta, recovered) = read(&SourceDisk, &dir).unwrap();
        let held = LocksNothing { holder: Some("process 7") };
        let ends = CopyEnds { source: &SourceDisk, disk: &held, target: &target };
        let refused = fill(ends, &notice, &meta, &recovered);
        assert!(matches!(refused, Err(CannotCopy::Target(StoreError::Locked(_)))), "{refused:?}");
        assert!(moving::is_copying(&RealDisk, &target));
        drop((first, lock));
        copy(&dir, &target).unwrap();
    }
}
