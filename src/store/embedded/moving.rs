//! A data directory that a register is moved from or into: the file `MOVED` says so, in one line for people and programs.
//!
//! It is written before anything else of a target, be it of a move or of a copy (`report`), and removed last; into a source it is
//! written last. What a move that was broken off left in a target is removed when the next one begins, all but this file.
//!
//! Neighbours: `mod` asks before it opens; `store::moving` has the words and the order.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::PoisonError;

use super::directory::{LOST_AND_FOUND, initialised};
use super::disk::{Disk, make_dir, read_exact, replace};
use super::meta::{MARK, META, Meta};
use super::segment::LOG;
use super::snapshot::SNAP;
use super::source::SourceDisk;
use super::{EmbeddedStore, problem};
use crate::store::chapters;
use crate::store::codec::Format;
use crate::store::lock::LOCK;
pub(super) use crate::store::moving::MOVED_FILE as MOVED;
use crate::store::moving::{
    LastOf, Movable, MoveNotice, Opening, Origin, REDIS_FILE, REDO_PREFIX, is_of_node, other_move, redo_keeps,
};
use crate::store::{Later, StoreError};

/// A notice that is being written.
pub(super) const MOVED_TEMPORARY: &str = "MOVED.tmp";
/// A notice is a line; more than this is none.
const NOTICE_BYTES_MAX: u64 = 64 << 10;

/// What the directory says of its move.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<MoveNotice>, StoreError> {
    let path = dir.join(MOVED);
    if !disk.list(dir).map_err(problem::io("listing", dir))?.iter().any(|name| name == MOVED) {
        return Ok(None);
    }
    let file = disk.open(&path).map_err(problem::io("opening", &path))?;
    let length = file.length().map_err(problem::io("reading", &path))?.min(NOTICE_BYTES_MAX);
    let mut bytes = vec![0; length as usize];
    read_exact(&*file, &mut bytes, 0).map_err(problem::io("reading", &path))?;
    let notice = std::str::from_utf8(&bytes).ok().and_then(MoveNotice::parse);
    notice.map(Some).ok_or_else(|| problem::damaged(&path, "does not say where the register went"))
}

/// Before the lock, which would make the directory: a slip in the name of a source must not.
pub(super) fn check_before(disk: &dyn Disk, dir: &Path, opening: &Opening) -> Result<(), StoreError> {
    let must_be_there = matches!(opening, Opening::Source | Opening::Unfinished(_));
    if must_be_there && !disk.list(dir).is_ok_and(|names| names.iter().any(|name| name == META)) {
        return Err(problem::foreign(dir, "holds no register"));
    }
    if let Opening::Target { from } = opening {
        make_dir(disk, dir).map_err(problem::io("making directory", dir))?;
        empty_but_for_a_broken_move(disk, dir, from)?;
    }
    Ok(())
}

/// Whether a register can be moved from there into this directory, or into one that is to be made. Changes nothing. Tells whether an
/// earlier move from there was broken off in it.
///
/// # Errors
/// As [`EmbeddedStore::open`] says of a target.
pub fn look_at_target(dir: &Path, from: &Origin) -> Result<bool, StoreError> {
    match SourceDisk.list(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        _ => empty_but_for_a_broken_move(&SourceDisk, dir, from),
    }
}

/// Refuses a target that holds anything. Tells whether an earlier move from there was broken off in it.
fn empty_but_for_a_broken_move(disk: &dyn Disk, dir: &Path, from: &Origin) -> Result<bool, StoreError> {
    match read(disk, dir)? {
        Some(MoveNotice::Unfinished { from: begun }) if !begun.is(from) => {
            return Err(problem::foreign(dir, other_move(&begun, from)));
        }
        Some(MoveNotice::Unfinished { .. }) => return Ok(true),
        Some(notice @ (MoveNotice::Moved { .. } | MoveNotice::Copying { .. } | MoveNotice::Anew { .. })) => {
            return Err(problem::foreign(dir, notice.refusal()));
        }
        None => {}
    }
    let names = disk.list(dir).map_err(problem::io("listing", dir))?;
    let lock = |name: &str| {
        name == LOCK || name == LOST_AND_FOUND || name == REDIS_FILE || name == MOVED_TEMPORARY || is_index(name)
    };
    match names.iter().find(|name| !lock(name)) {
        Some(name) => Err(problem::foreign(
            dir,
            format_args!("is not empty: it has `{name}`; give an empty directory to move into"),
        )),
        None => Ok(false),
    }
}

/// Is it the index of the history, or one that is being made?
pub(super) fn is_index(name: &str) -> bool {
    Path::new(name).file_stem().is_some_and(|stem| stem == chapters::FILE)
}

/// Why such a directory is no place of an embedded register. In an empty one every address would be free, so none is asked for.
pub(super) fn of_redis(dir: &Path, noted: &str) -> StoreError {
    problem::foreign(
        dir,
        format_args!(
            "is the directory of a node whose register is in Redis (it has `{noted}`): `--redis URL` or `store.kind` is missing"
        ),
    )
}

/// Is the register here, and not in Redis? Beside the note of a node whose register is there only a person knows which of the two
/// goes on: what the package made before anybody named Redis has nothing in it, and would grant every address again. Nor is it served
/// beside what such a node acknowledged and brought to nobody.
pub(super) fn check_beside_redis(disk: &dyn Disk, dir: &Path, opening: &Opening) -> Result<(), StoreError> {
    if *opening != Opening::Serve {
        return Ok(());
    }
    let names = disk.list(dir).map_err(problem::io("listing", dir))?;
    if names.iter().any(|name| name == REDIS_FILE) {
        return Err(of_redis(dir, REDIS_FILE));
    }
    for name in names.iter().filter(|name| is_of_node(name)) {
        let path = dir.join(name);
        let length = disk.open(&path).and_then(|file| file.length()).map_err(problem::io("reading", &path))?;
        if !name.starts_with(REDO_PREFIX) || redo_keeps(length) {
            let text = "has changes that were acknowledged in a register in Redis and brought to nobody: whoever was told of them \
                        may find that somebody else has what he was granted";
            return Err(problem::foreign(&path, text));
        }
    }
    Ok(())
}

/// Under the lock: refuses what the directory is not for, and makes an empty target ready.
pub(super) fn check(disk: &dyn Disk, dir: &Path, opening: &Opening) -> Result<Option<MoveNotice>, StoreError> {
    let notice = read(disk, dir)?;
    match (opening, notice) {
        (Opening::Serve | Opening::Source, None) => Ok(None),
        (Opening::Source, moved @ Some(MoveNotice::Moved { .. })) => Ok(moved),
        (Opening::Unfinished(_), unfinished @ Some(MoveNotice::Unfinished { .. })) => Ok(unfinished),
        (Opening::Serve | Opening::Source | Opening::Unfinished(_), Some(notice)) => {
            Err(problem::foreign(dir, notice.refusal()))
        }
        (Opening::Unfinished(_), None) => Err(problem::foreign(dir, "is no unfinished copy of a register")),
        (Opening::Target { from }, _) => {
            let begun = empty_but_for_a_broken_move(disk, dir, from)?;
            let notice = MoveNotice::Unfinished { from: from.clone() };
            // First of all, and before anything of an earlier move goes: it is never taken for a register.
            write(disk, dir, &notice)?;
            if begun {
                clear(disk, dir)?;
            }
            Ok(Some(notice))
        }
    }
}

/// Is it the register that is to be finished?
pub(super) fn check_register(dir: &Path, meta: &Meta, opening: &Opening) -> Result<(), StoreError> {
    match *opening {
        Opening::Unfinished(register) if register != meta.register => {
            Err(problem::foreign(dir, "is the unfinished copy of another register"))
        }
        Opening::Serve | Opening::Source | Opening::Target { .. } | Opening::Unfinished(_) => Ok(()),
    }
}

/// Was a copy into this directory begun and not finished?
pub(super) fn is_copying(disk: &dyn Disk, dir: &Path) -> bool {
    matches!(read(disk, dir), Ok(Some(MoveNotice::Copying { .. })))
}

pub(super) fn write(disk: &dyn Disk, dir: &Path, notice: &MoveNotice) -> Result<(), StoreError> {
    let line = format!("{}\n", notice.text());
    replace(disk, dir, MOVED, line.as_bytes()).map_err(problem::io("writing", &dir.join(MOVED)))
}

/// Says nothing any more.
pub(super) fn remove(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    let path = dir.join(MOVED);
    disk.remove(&path).map_err(problem::io("removing", &path))?;
    disk.sync_dir(dir).map_err(problem::io("flushing", dir))
}

/// Removes what an unfinished move, or copy, left, but for what it says of itself: that keeps it from being taken for a register until
/// all of it is gone. `META` goes first, without which it is none anyhow.
pub(super) fn clear(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    let there = disk.list(dir).map_err(problem::io("listing", dir))?;
    for name in there.iter().filter(|name| name.starts_with(META) || *name == MARK) {
        disk.remove(&dir.join(name)).map_err(problem::io("removing", &dir.join(name)))?;
    }
    for folder in [LOG, SNAP].into_iter().filter(|folder| there.iter().any(|name| name == folder)) {
        let path = dir.join(folder);
        for name in disk.list(&path).map_err(problem::io("listing", &path))? {
            disk.remove(&path.join(&name)).map_err(problem::io("removing", &path.join(&name)))?;
        }
        disk.sync_dir(&path).map_err(problem::io("flushing", &path))?;
    }
    disk.sync_dir(dir).map_err(problem::io("flushing", dir))
}

impl EmbeddedStore {
    fn say(&self, notice: Option<MoveNotice>, shards: &[LastOf]) -> Result<(), StoreError> {
        // The lock of the directory keeps everybody else away, so nothing comes between the two.
        let heads = self.shared.catalog().heads.clone();
        for &(shard, token, seq, digest) in shards {
            let head = heads.get(usize::from(shard.0)).ok_or_else(|| super::unknown_shard(shard, heads.len()))?;
            if (head.token, head.seq, head.digest) != (token, seq, digest) {
                return Err(StoreError::Fenced { shard, current: head.epoch });
            }
        }
        let (disk, dir) = (&*self.shared.disk, &self.shared.dir);
        self.shared.check_place().map_err(problem::io("writing", &dir.join(MOVED)))?;
        if let Some(notice) = &notice {
            write(disk, dir, notice)?;
        } else {
            let names = disk.list(dir).map_err(problem::io("listing", dir))?;
            // Which register was kept in Redis from here is of no interest any more: this one is.
            for name in [REDIS_FILE, MOVED].into_iter().filter(|name| names.iter().any(|there| there == name)) {
                disk.remove(&dir.join(name)).map_err(problem::io("removing", &dir.join(name)))?;
            }
            disk.sync_dir(dir).map_err(problem::io("flushing", dir))?;
            super::index::begin(disk, dir, self.shared.meta.register);
        }
        *self.notice.lock().unwrap_or_else(PoisonError::into_inner) = notice;
        Ok(())
    }
}

impl Movable for EmbeddedStore {
    fn place(&self) -> String {
        let dir = &self.shared.dir;
        format!("the directory {}", std::fs::canonicalize(dir).as_deref().unwrap_or(dir).display())
    }

    fn notice(&self) -> Option<MoveNotice> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write_in(&self, format: Format) {
        self.shared.write_in(format);
    }

    fn post(&self, notice: Option<MoveNotice>, shards: Vec<LastOf>) -> Later<Result<(), StoreError>> {
        Box::pin(std::future::ready(self.say(notice, &shards)))
    }
}

/// A directory without a notice holds what it seems to hold; one that a move left unfinished is nothing to copy.
pub(super) fn check_copy(disk: &dyn Disk, dir: &Path) -> Result<bool, StoreError> {
    match read(disk, dir)? {
        Some(notice @ (MoveNotice::Unfinished { .. } | MoveNotice::Copying { .. } | MoveNotice::Anew { .. })) => {
            Err(problem::foreign(dir, notice.refusal()))
        }
        Some(MoveNotice::Moved { .. }) | None => initialised(disk, dir),
    }
}
