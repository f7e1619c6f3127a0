//! A redo journal of another register in the same directory. What is in it was acknowledged, and no start with this one brings it.
//!
//! *A node acknowledges to its disk and is killed; its register is moved, and the node started with what it became: it is another
//! register, and nobody ever looks at that file.* So it is refused, as a late journal of another register is.
//!
//! Neighbours: `frames` and `restored` read the file; `late` says what is refused, and names what is given up.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use super::frames::{Redone, TITLE, decode};
use super::restored::{decoded, remaining};
use super::{PREFIX, damaged, length, path_of};
use crate::store::late::{self, Late};
use crate::store::{Batch, Digest, ShardId, StoreError, whole};

/// Refuses what was kept of another register, unless an operator `gives_up` what it has.
///
/// # Errors
/// There is something; it cannot be read.
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
        if !is_another || length(&path)?.is_none_or(|length| length <= TITLE.len() as u64) {
            continue;
        }
        if !gives_up {
            return Err(late::of_another(&path));
        }
        late::give_up(&path, &lines(&path)?)?;
    }
    Ok(())
}

/// What was not put aside elsewhere of it, each shard for itself.
pub(super) fn lines(path: &Path) -> Result<Vec<Late>, StoreError> {
    let bytes = std::fs::read(path).map_err(whole::io("reading", path))?;
    let (found, _) = decode(&bytes).map_err(|what| damaged(path, &what))?;
    let mut lines: BTreeMap<ShardId, Vec<Batch>> = BTreeMap::new();
    for (redone, moves) in remaining(found)? {
        let Redone::Commit { batches, .. } = redone else { continue };
        for batch in decoded(&batches)? {
            if moves.iter().any(|(one, _)| one.shard == batch.shard) {
                lines.entry(batch.shard).or_default().push(batch);
            }
        }
    }
    // No line leads there, and none is to be found by it.
    Ok(lines.into_iter().map(|(shard, batches)| Late::new(shard, Digest(0), batches)).collect())
}
