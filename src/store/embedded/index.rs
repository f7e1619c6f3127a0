//! The index of the history in a data directory: begun with a copy, looked for with a start. What is in it is the affair of
//! `store::chapters`.

use std::path::Path;

use super::disk::Disk;
use super::problem;
use crate::store::{StoreError, chapters};

/// Begins an index of the history without anything in it, as a register has that was just made. One that cannot be begun
/// the next start makes, and says so.
pub(super) fn begin(disk: &dyn Disk, dir: &Path, register: u128) {
    let begun = disk.create(&dir.join(chapters::FILE)).and_then(|file| file.write_at(&chapters::head_of(register), 0));
    if let Err(error) = begun {
        tracing::debug!(dir = %dir.display(), %error, "the index of the history cannot be begun");
    }
}

/// A register that was served has an index of its history. It holds nothing that the log does not: whoever reads the history
/// makes it again (`store::chapters`), and what becomes of a file is said all the same.
pub(super) fn look_for(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    if !disk.list(dir).map_err(problem::io("listing", dir))?.iter().any(|name| name == chapters::FILE) {
        tracing::warn!(
            path = %dir.join(chapters::FILE).display(),
            "the index of the history is missing: it is made again from the log"
        );
    }
    Ok(())
}
