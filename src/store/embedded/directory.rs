//! The data directory: locked for one process, made at the first start, and repaired at each start.
//!
//! Before: [`EmbeddedStore::open`](super::EmbeddedStore::open). A directory that has files but no register is left unchanged.

use std::path::{Path, PathBuf};

use super::disk::{self, DirectoryLock, Disk};
use super::meta::{MARK, META, Mark, Meta};
use super::recovery::Recovered;
use super::segment::{self, LOG, Spare};
use super::shared::{self, KeptSegment};
use super::snapshot::SNAP;
use super::window::Window;
use super::{EmbeddedOptions, moving, problem, retention};
use crate::store::StoreError;
use crate::store::lock::{LOCK, holder_of, in_use, owner};

/// What a file system puts into its root. A directory with nothing else counts as empty.
pub(super) const LOST_AND_FOUND: &str = "lost+found";

pub(super) fn lock(disk: &dyn Disk, dir: &Path) -> Result<DirectoryLock, StoreError> {
    disk::make_dir(disk, dir).map_err(problem::io("making directory", dir))?;
    if !disk.list(dir).map_err(problem::io("listing", dir))?.iter().any(|name| name == LOCK) {
        // A directory that belongs to something else must be left unchanged.
        initialised(disk, dir)?;
    }
    take_lock(disk, dir)
}

pub(super) fn take_lock(disk: &dyn Disk, dir: &Path) -> Result<DirectoryLock, StoreError> {
    let taken = disk.lock(dir, &owner()).map_err(problem::io("locking", &dir.join(LOCK)))?;
    taken.map_err(|holder| in_use(dir, &holder, ONE_AT_A_TIME))
}

/// Why a register is not opened that another process has open.
const ONE_AT_A_TIME: &str = "a register is open in one process at a time";

/// The refusal if another process has the register of a directory, as [`take_lock`] words it.
pub(super) fn held(dir: &Path) -> Option<StoreError> {
    holder_of(dir).map(|holder| in_use(dir, &holder, ONE_AT_A_TIME))
}

/// Is there a register? An empty directory has none; a directory that has anything else and no register is refused.
pub(super) fn initialised(disk: &dyn Disk, dir: &Path) -> Result<bool, StoreError> {
    let names = disk.list(dir).map_err(problem::io("listing", dir))?;
    if names.iter().any(|name| name == META) {
        return Ok(true);
    }
    let ours = [LOCK, MARK, LOG, SNAP, "META.tmp", LOST_AND_FOUND];
    // A move into this directory was begun, so `moving` has already judged its content.
    if names.iter().any(|name| name == moving::MOVED) {
        return Ok(false);
    }
    let missing = |there: &Path| {
        problem::damaged(&dir.join(META), format_args!("is missing, though {} is there", there.display()))
    };
    if names.iter().any(|name| name == MARK) && Mark::open(disk, dir).is_ok_and(|(_, marked)| marked.last.0 > 0) {
        return Err(missing(&dir.join(MARK)));
    }
    // A first start that was interrupted leaves at most one blank segment, or part of one.
    for folder in [LOG, SNAP] {
        let path = dir.join(folder);
        let inside = if names.iter().any(|name| name == folder) { disk.list(&path) } else { Ok(Vec::new()) };
        for name in inside.map_err(problem::io("listing", &path))? {
            let path = path.join(&name);
            let first = segment::name(1);
            let begun = folder == LOG && (name == segment::temporary(1) || name == first && is_unused(disk, &path)?);
            if !begun {
                return Err(missing(&path));
            }
        }
    }
    if let Some(notice) = moving::begun(disk, dir, &names)? {
        return Err(problem::foreign(dir, notice.refusal()));
    }
    if let Some(noted) = names.iter().find(|name| crate::store::moving::is_of_node(name)) {
        return Err(moving::of_redis(dir, noted));
    }
    // The index is only created when the register is complete.
    if let Some(index) = names.iter().find(|name| moving::is_index(name)) {
        return Err(missing(&dir.join(index)));
    }
    if let Some(other) = names.iter().find(|name| !ours.contains(&name.as_str())) {
        let text = format!("has no META file but has `{other}`: it is not an allod register; give an empty directory");
        return Err(problem::foreign(dir, text));
    }
    Ok(false)
}

fn is_unused(disk: &dyn Disk, path: &Path) -> Result<bool, StoreError> {
    let file = disk.open(path).map_err(problem::io("opening", path))?;
    let length = file.length().map_err(problem::io("reading", path))?;
    Ok(Window::new(path, &*file, length, &mut Vec::new()).written(0)? == 0)
}

/// Makes a new register. `META` is written last: without it there is no register yet.
pub(super) fn initialise(
    disk: &dyn Disk,
    dir: &Path,
    shards: u16,
    options: &EmbeddedOptions,
) -> Result<(), StoreError> {
    for folder in [LOG, SNAP] {
        let path: PathBuf = dir.join(folder);
        disk::make_dir(disk, &path).map_err(problem::io("making directory", &path))?;
    }
    let first = segment::create(disk, dir, 1, options.lengths(), segment::AT_ONCE);
    first.map_err(problem::io("making the first segment in", dir))?;
    disk.sync_dir(&dir.join(SNAP)).map_err(problem::io("flushing", dir))?;
    Mark::create(disk, dir, 0, 0)?;
    let meta = Meta {
        register: rand::random::<u128>().max(1),
        shards,
        created_ms: shared::now_ms(),
        restored_from: 0,
        generation_floor: 0,
    };
    disk.sync_dir(dir).map_err(problem::io("flushing", dir))?;
    meta.write(disk, dir)
}

/// Cuts a torn tail, writes the last frame again, and removes leftovers. First it makes durable what this start relies on,
/// before anything new is written and before anything is removed: so far these names of files, and the last frame, were only
/// seen, and a process that was killed may not have flushed them. The last frame may be a seal.
pub(super) fn mend(disk: &dyn Disk, dir: &Path, recovered: &Recovered) -> Result<(), StoreError> {
    for path in [dir.to_owned(), dir.join(LOG), dir.join(SNAP)] {
        disk.sync_dir(&path).map_err(problem::io("flushing", &path))?;
    }
    if recovered.oldest_noted > 0 {
        // The note may only be in the cache, and the segments before it are about to be removed.
        retention::write(disk, dir, recovered.oldest_noted)?;
    }
    if let Some(torn) = &recovered.torn {
        tracing::warn!(path = %torn.path.display(), offset = torn.from, bytes = torn.bytes,
            "cut a torn tail off the log: the last write before the power went, which MARK does not name as acknowledged");
        let zeros = vec![0; torn.bytes as usize];
        let cut = || {
            torn.file.write_at(&zeros, torn.from)?;
            torn.file.sync()
        };
        cut().map_err(problem::io("cutting", &torn.path))?;
    }
    if let Some(&KeptSegment { ref segment, ref file, end }) = recovered.segments.last() {
        // After a failed flush the cache may hold pages as clean that the disk does not have. Writing them again gets them
        // flushed.
        let from = recovered.last_frame.unwrap_or(0);
        let rewrite = || {
            let mut bytes = vec![0; (end - from) as usize];
            disk::read_exact(&**file, &mut bytes, from)?;
            file.write_at(&bytes, from)?;
            if from > 0 {
                file.write_at(&segment.header.bytes(), 0)?;
            }
            file.sync()
        };
        rewrite().map_err(problem::io("flushing", &segment.path))?;
    }
    for (Spare { path, file, .. }, written) in &recovered.unusable {
        // It is cleared in place, because there may be no room for another segment.
        tracing::warn!(path = %path.display(), bytes = written, "a segment that should be blank is not; it is blank again");
        let clear = || {
            file.write_at(&vec![0; *written as usize], 0)?;
            file.sync()
        };
        clear().map_err(problem::io("clearing", path))?;
    }
    for path in &recovered.short {
        tracing::warn!(path = %path.display(), "a segment is too short to be used; it is made anew");
    }
    for path in &recovered.leftovers {
        tracing::info!(path = %path.display(), "removing what was left over");
        disk.remove(path).map_err(problem::io("removing", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::embedded::{EmbeddedStore, nameplate};

    #[test]
    fn where_nothing_but_the_index_of_a_register_is_left_its_files_are_missing() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        drop(EmbeddedStore::open(dir, 1, EmbeddedOptions::default()).unwrap());
        for name in [META, MARK] {
            std::fs::remove_file(dir.join(name)).unwrap();
        }
        for name in [LOG, SNAP] {
            std::fs::remove_dir_all(dir.join(name)).unwrap();
        }
        std::fs::File::create(dir.join("HISTORY")).unwrap();
        let refused = EmbeddedStore::open(dir, 1, EmbeddedOptions::default()).unwrap_err();
        let said = refused.to_string();
        assert!(matches!(refused, StoreError::Damaged(_)) && said.contains("META is missing"), "{said}");
        assert!(!said.contains("empty directory") && nameplate::may_be_there(dir), "{said}");
    }

    #[test]
    fn only_a_first_segment_that_was_never_written_tells_of_a_first_start_that_was_broken_off() {
        for (file, begins) in
            [("log/00000001.seg.tmp", true), ("log/00000002.seg.tmp", false), ("snap/0000000000000007.snap.tmp", false)]
        {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(file);
            std::fs::create_dir(path.parent().unwrap()).unwrap();
            std::fs::File::create(&path).unwrap();
            let opened = EmbeddedStore::open(directory.path(), 1, EmbeddedOptions::default());
            match opened {
                Ok(_) => assert!(begins, "{file}"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(!begins && said.contains("META") && said.contains("is missing"), "{file}: {said}");
                }
            }
        }
    }
}
