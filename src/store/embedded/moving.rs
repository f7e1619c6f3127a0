//! A data directory that a register is moved from or into. The file `MOVED` says so, in one line for people and programs.
//!
//! In a target, of a move or of a copy (`report`), it is written before everything else and removed last; in a source it is
//! written last. When a move begins in a target where an earlier one was broken off, it removes everything but this file.
//!
//! Only the holder of the lock may write it, and the lock is a file. So before the lock file is made, the notice is written
//! under its temporary name, `MOVED.tmp`; in a directory without a register that says as much. Otherwise a process that was
//! killed in between would leave what a first start leaves, and a server would begin an empty register where one was being
//! restored.
//!
//! Neighbours: `mod` asks before it opens; `store::moving` has the words and the order.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::PoisonError;

use super::directory::{LOST_AND_FOUND, held, initialised};
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

/// The notice while it is being written, or before the directory was locked.
pub(super) const MOVED_TEMPORARY: &str = "MOVED.tmp";
/// A notice is one line; no more than this is read.
const NOTICE_BYTES_MAX: u64 = 64 << 10;

pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<MoveNotice>, StoreError> {
    let names = disk.list(dir).map_err(problem::io("listing", dir))?;
    let is_there = |wanted: &str| names.iter().any(|name| name == wanted);
    if !is_there(MOVED) {
        return Ok(None);
    }
    let path = dir.join(MOVED);
    match notice_in(disk, &path)? {
        // `META` is written last of all.
        Some(MoveNotice::Copying { by, from, .. }) => {
            Ok(Some(MoveNotice::Copying { by, from, is_whole: is_there(META) }))
        }
        Some(notice) => Ok(Some(notice)),
        None => Err(problem::damaged(&path, "does not say where the register went")),
    }
}

/// What the directory says of its move, even if that broke off before the notice had its own name.
pub(super) fn read_or_begun(disk: &dyn Disk, dir: &Path) -> Result<Option<MoveNotice>, StoreError> {
    match read(disk, dir)? {
        Some(notice) => Ok(Some(notice)),
        None => begun(disk, dir, &disk.list(dir).map_err(problem::io("listing", dir))?),
    }
}

/// The beginning of a move or of a copy, if these names of a directory show one and no register.
pub(super) fn begun(disk: &dyn Disk, dir: &Path, names: &[String]) -> Result<Option<MoveNotice>, StoreError> {
    let is_there = |wanted: &str| names.iter().any(|name| name == wanted);
    if is_there(META) || !is_there(MOVED_TEMPORARY) {
        return Ok(None);
    }
    Ok(Some(match notice_in(disk, &dir.join(MOVED_TEMPORARY))? {
        Some(notice @ (MoveNotice::Unfinished { .. } | MoveNotice::Copying { .. })) => notice,
        Some(MoveNotice::Moved { .. } | MoveNotice::Anew { .. } | MoveNotice::Begun) | None => MoveNotice::Begun,
    }))
}

/// None if the file contains no notice, or only part of one.
fn notice_in(disk: &dyn Disk, path: &Path) -> Result<Option<MoveNotice>, StoreError> {
    let file = disk.open(path).map_err(problem::io("opening", path))?;
    let length = file.length().map_err(problem::io("reading", path))?.min(NOTICE_BYTES_MAX);
    let mut bytes = vec![0; length as usize];
    read_exact(&*file, &mut bytes, 0).map_err(problem::io("reading", path))?;
    Ok(std::str::from_utf8(&bytes).ok().and_then(MoveNotice::parse))
}

/// Makes an empty directory say what is being made in it, durably, before it is locked. Another process at work there may
/// have said so just now, and may be about to rename its file: that file is left alone. The process that gets the lock
/// writes its own.
///
/// # Errors
/// [`StoreError::Locked`] if another process has the directory, and nothing was written; another error if the notice cannot
/// be written.
pub(super) fn announce(disk: &dyn Disk, dir: &Path, notice: &MoveNotice) -> Result<(), StoreError> {
    if let Some(held) = held(dir) {
        return Err(held);
    }
    let path = dir.join(MOVED_TEMPORARY);
    let names = disk.list(dir).map_err(problem::io("listing", dir))?;
    let say = || {
        if !names.iter().any(|name| name == MOVED_TEMPORARY) {
            let file = disk.create(&path)?;
            file.write_at(line_of(notice).as_bytes(), 0)?;
            file.sync()?;
        }
        disk.sync_dir(dir)
    };
    say().map_err(problem::io("writing", &path))
}

fn line_of(notice: &MoveNotice) -> String {
    format!("{}\n", notice.text())
}

/// Runs before the lock, which would make the directory: a mistake in the name of a source must not create one.
pub(super) fn check_before(disk: &dyn Disk, dir: &Path, opening: &Opening) -> Result<(), StoreError> {
    let must_be_there = matches!(opening, Opening::Source | Opening::Unfinished(_));
    if must_be_there && !disk.list(dir).is_ok_and(|names| names.iter().any(|name| name == META)) {
        let notice = read_or_begun(disk, dir).ok().flatten();
        return Err(problem::foreign(dir, notice.map_or("holds no register".to_owned(), |notice| notice.refusal())));
    }
    if let Opening::Target { from } = opening {
        make_dir(disk, dir).map_err(problem::io("making directory", dir))?;
        if !empty_but_for_a_broken_move(disk, dir, from)? {
            announce(disk, dir, &MoveNotice::Unfinished { from: from.clone() })?;
        }
    }
    Ok(())
}

/// Checks whether a register can be moved from there into this directory, which need not exist. Changes nothing. Returns
/// whether an earlier move from there was broken off in it.
///
/// # Errors
/// As for [`EmbeddedStore::open`] with a target.
pub fn look_at_target(dir: &Path, from: &Origin) -> Result<bool, StoreError> {
    match SourceDisk.list(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        _ => empty_but_for_a_broken_move(&SourceDisk, dir, from),
    }
}

/// Refuses a target that holds anything. Returns whether an earlier move from there was broken off in it.
fn empty_but_for_a_broken_move(disk: &dyn Disk, dir: &Path, from: &Origin) -> Result<bool, StoreError> {
    match read(disk, dir)? {
        Some(MoveNotice::Unfinished { from: begun }) if !begun.is(from) => {
            return Err(problem::foreign(dir, other_move(&begun, from)));
        }
        Some(MoveNotice::Unfinished { .. }) => return Ok(true),
        Some(
            notice @ (MoveNotice::Moved { .. }
            | MoveNotice::Copying { .. }
            | MoveNotice::Anew { .. }
            | MoveNotice::Begun),
        ) => {
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

/// Is this the index of the history, or one that is being made?
pub(super) fn is_index(name: &str) -> bool {
    Path::new(name).file_stem().is_some_and(|stem| stem == chapters::FILE)
}

/// Why such a directory cannot hold an embedded register. This must not end in advice to give an empty directory: in an
/// empty register every address would be free.
pub(super) fn of_redis(dir: &Path, noted: &str) -> StoreError {
    problem::foreign(
        dir,
        format_args!(
            "is the directory of a node whose register is in Redis (it has `{noted}`): `--redis URL` or `store.kind` is missing"
        ),
    )
}

/// Checks that the register is here, and not in Redis. If a node noted in this directory that its register is in Redis, only
/// a person knows which of the two should be served: the register here may be an empty one that the package made before
/// anybody named Redis, and it would grant every address again. Nor is a register served beside changes that such a node
/// acknowledged and brought to nobody.
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

/// Runs under the lock: refuses a directory that does not fit the purpose, and prepares a target.
pub(super) fn check(disk: &dyn Disk, dir: &Path, opening: &Opening) -> Result<Option<MoveNotice>, StoreError> {
    let notice = read(disk, dir)?;
    match (opening, notice) {
        (Opening::Serve | Opening::Source, None) => Ok(None),
        (Opening::Source, moved @ Some(MoveNotice::Moved { .. })) => Ok(moved),
        (Opening::Unfinished(_), unfinished @ Some(MoveNotice::Unfinished { .. })) => Ok(unfinished),
        (Opening::Serve | Opening::Source | Opening::Unfinished(_), Some(notice)) => {
            Err(problem::foreign(dir, notice.refusal()))
        }
        (Opening::Unfinished(_), None) => Err(problem::foreign(dir, "is not an unfinished copy of a register")),
        (Opening::Target { from }, _) => {
            let begun = empty_but_for_a_broken_move(disk, dir, from)?;
            let notice = MoveNotice::Unfinished { from: from.clone() };
            // This comes first, before anything of an earlier move is removed, so that nobody takes the directory for a register.
            write(disk, dir, &notice)?;
            if begun {
                clear(disk, dir)?;
            }
            Ok(Some(notice))
        }
    }
}

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
    replace(disk, dir, MOVED, line_of(notice).as_bytes()).map_err(problem::io("writing", &dir.join(MOVED)))
}

pub(super) fn remove(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    let path = dir.join(MOVED);
    disk.remove(&path).map_err(problem::io("removing", &path))?;
    disk.sync_dir(dir).map_err(problem::io("flushing", dir))
}

/// Removes what an unfinished move or copy left, except its notice, which keeps the rest from being taken for a register
/// until all of it is gone. `META` goes first, because without it there is no register anyway.
pub(super) fn clear(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    let there = disk.list(dir).map_err(problem::io("listing", dir))?;
    for name in there.iter().filter(|name| name.starts_with(META) || *name == MARK) {
        disk.remove(&dir.join(name)).map_err(problem::io("removing", &dir.join(name)))?;
    }
    // Durably: as long as `META` exists, so does all the rest.
    disk.sync_dir(dir).map_err(problem::io("flushing", dir))?;
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
        // The lock of the directory keeps everybody else away, so nothing comes between the check and the change.
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
            // Which register in Redis was served from here is irrelevant now: this one will be.
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

/// Checks that a directory can be copied. Without a notice it holds what it seems to hold; an unfinished copy is refused.
pub(super) fn check_copy(disk: &dyn Disk, dir: &Path) -> Result<bool, StoreError> {
    match read(disk, dir)? {
        Some(
            notice @ (MoveNotice::Unfinished { .. }
            | MoveNotice::Copying { .. }
            | MoveNotice::Anew { .. }
            | MoveNotice::Begun),
        ) => Err(problem::foreign(dir, notice.refusal())),
        Some(MoveNotice::Moved { .. }) | None => initialised(disk, dir),
    }
}
