//! A redo journal of another register in the same directory. Its changes were acknowledged, and no start with this register
//! brings them.
//!
//! *A node acknowledges changes to its disk and is killed. Its register is moved, and the node is started with the new one.
//! That is another register, and nobody ever looks at the file.* So a start refuses it, like a late journal of another
//! register. An operator who moves a register names the directories of its nodes. If the register has all that a node left
//! there, the file is put aside after the move. If it does not, the move stops, because the changes can only be given back
//! where the register is now.
//!
//! Neighbours: `frames` and `restored` read the file; `late` words the refusal, and names what is given up.

use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::frames::{Redone, decode};
use super::restored::{Moves, decoded, remaining};
use super::{PREFIX, length, path_of, unread};
use crate::store::late::{self, Late};
use crate::store::moving::redo_keeps;
use crate::store::redis::identity::IdentityFile;
use crate::store::redis::journal::{Move, Point};
use crate::store::redis::keys::Keys;
use crate::store::redis::link::Link;
use crate::store::redis::reach;
use crate::store::{Batch, Digest, Epoch, ShardId, StoreError, whole};

/// Refuses what was kept of another register, unless the operator `gives_up` those changes.
///
/// # Errors
/// There is such a file; or it cannot be read.
pub(in crate::store::redis) fn check_others(
    directory: &Path,
    register: u128,
    gives_up: bool,
) -> Result<(), StoreError> {
    let own = path_of(directory, register);
    let listed = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(whole::io("listing", directory))?,
    };
    for entry in listed {
        let entry = entry.map_err(whole::io("listing", directory))?;
        let path = entry.path();
        let is_another = path != own && entry.file_name().to_string_lossy().starts_with(PREFIX);
        if !is_another || !length(&path)?.is_some_and(redo_keeps) {
            continue;
        }
        if !gives_up {
            let once_moved = ". If it was moved with all of that, say that move again with `--node-data` and this directory, which looks \
                              for it there, and puts the file aside";
            return Err(late::of_another(&path, once_moved));
        }
        drop(late::give_up(&path, &lines(&path)?)?);
    }
    Ok(())
}

/// The shards of this node's register for which an earlier process left something: whatever of it is missing in Redis is
/// given back, or known to be missing.
///
/// # Errors
/// The file cannot be read.
pub(in crate::store::redis) fn shards_left(identity: &IdentityFile) -> Result<HashSet<ShardId>, StoreError> {
    let Some((directory, register)) = identity.path().parent().zip(identity.known) else { return Ok(HashSet::new()) };
    let path = path_of(directory, register);
    if !length(&path)?.is_some_and(redo_keeps) {
        return Ok(HashSet::new());
    }
    let bytes = std::fs::read(&path).map_err(whole::io("reading", &path))?;
    let (found, _) = decode(&bytes).map_err(|why| unread(&path, why))?;
    let counts = |redone: &Redone| !matches!(redone, Redone::Commit { applied: false, .. });
    let moves = remaining(found)?.into_iter().filter(|(redone, _)| counts(redone)).flat_map(|(_, moves)| moves);
    Ok(moves.map(|(one, _)| one.shard).collect())
}

/// A file that a process left in the directory of a node, for a register that is being moved, or was moved.
#[derive(Debug)]
pub(in crate::store::redis) struct LeftJournal {
    path: PathBuf,
    /// The register has all of it; otherwise it is given up.
    is_there: bool,
}

impl LeftJournal {
    /// Looks for the file, and checks whether the register has everything in it, which it must unless that is `given_up`.
    ///
    /// # Errors
    /// The register lacks some of it, or this is not known; or the file cannot be read.
    pub(in crate::store::redis) async fn find(
        link: &mut Link,
        keys: &Keys,
        (directory, register, was_moved): (&Path, u128, bool),
        given_up: bool,
    ) -> Result<Option<Self>, StoreError> {
        let path = path_of(directory, register);
        if !length(&path)?.is_some_and(redo_keeps) {
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(whole::io("reading", &path))?;
        let (found, _) = decode(&bytes).map_err(|why| unread(&path, why))?;
        for end in ends(&remaining(found)?) {
            if reach::has_batch(link, keys, end).await? == Some(true) {
                continue;
            }
            if given_up {
                return Ok(Some(Self { path, is_there: false }));
            }
            let (shard, Point { seq, .. }, _) = end;
            let helps = if was_moved {
                "The register was moved without it, so no start brings it: claim what is in use there (`allod ip claim`). \
                 `--accept-rollback` names what is in it, gives it up, and keeps the file as PAST-…"
            } else {
                "Start that node once more (`allod serve`, with that directory): it gives back what is missing. Then stop it, and say the \
                 move again; `--accept-rollback` gives it up"
            };
            let text = format!(
                "{} has changes that this node acknowledged, and Redis at {} is not known to have them: batch {} of shard {}. {helps}",
                path.display(),
                link.name(),
                seq.0,
                shard.0
            );
            return Err(StoreError::Damaged(text.into()));
        }
        Ok(Some(Self { path, is_there: true }))
    }

    /// Renames the file, so that it is only for people. Returns the new name.
    ///
    /// # Errors
    /// A server has the file open, or it cannot be renamed.
    pub(in crate::store::redis) fn put_aside(&self) -> Result<PathBuf, StoreError> {
        let path = &self.path;
        let file = std::fs::File::open(path).map_err(whole::io("opening", path))?;
        if let Err(error) = file.try_lock() {
            return Err(StoreError::Locked(format!("{} is a server's that runs ({error})", path.display()).into()));
        }
        if self.is_there { late::put_past(path) } else { late::give_up(path, &lines(path)?) }
    }
}

/// The last batches that were acknowledged: those that no other one in the file follows.
fn ends(entries: &[(Redone, Moves)]) -> Vec<(ShardId, Point, Epoch)> {
    let applied = |redone: &Redone| matches!(redone, Redone::Commit { applied: true, .. });
    let moves = || entries.iter().filter(|(redone, _)| applied(redone)).flat_map(|(_, moves)| moves);
    let followed: HashSet<(ShardId, Digest)> = moves().map(|(one, _)| (one.shard, one.before.digest)).collect();
    let is_end = |one: &Move| !followed.contains(&(one.shard, one.after.digest));
    moves().filter(|(one, _)| is_end(one)).map(|(one, epoch)| (one.shard, one.after, *epoch)).collect()
}

/// What of it was not put aside elsewhere, by shard.
pub(super) fn lines(path: &Path) -> Result<Vec<Late>, StoreError> {
    let bytes = std::fs::read(path).map_err(whole::io("reading", path))?;
    let (found, _) = decode(&bytes).map_err(|why| unread(path, why))?;
    let mut lines: BTreeMap<ShardId, Vec<Batch>> = BTreeMap::new();
    for (redone, moves) in remaining(found)? {
        let Redone::Commit { batches, .. } = redone else { continue };
        for batch in decoded(&batches)? {
            if moves.iter().any(|(one, _)| one.shard == batch.shard) {
                lines.entry(batch.shard).or_default().push(batch);
            }
        }
    }
    // No line leads there, so the digest is not needed to find one.
    Ok(lines.into_iter().map(|(shard, batches)| Late::new(shard, Digest(0), batches)).collect())
}
