//! The file of the history's index in a data directory: created with a copy, and looked for at a start. Its content belongs
//! to `store::chapters`.

use std::path::Path;

use super::disk::Disk;
use super::problem;
use crate::store::{StoreError, chapters};

/// Creates an empty index, such as a newly made register has. If this fails, the next start creates the index and logs a warning.
pub(super) fn begin(disk: &dyn Disk, dir: &Path, register: u128) {
    let begun = disk.create(&dir.join(chapters::FILE)).and_then(|file| file.write_at(&chapters::head_of(register), 0));
    if let Err(error) = begun {
        tracing::debug!(dir = %dir.display(), %error, "the index of the history cannot be begun");
    }
}

/// Warns if the index is missing. A register that was served has one. Nothing is lost, because the index holds nothing that
/// the log does not: `store::chapters` makes it again when the history is read. But a file that disappeared should not go
/// unmentioned.
pub(super) fn look_for(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    if !disk.list(dir).map_err(problem::io("listing", dir))?.iter().any(|name| name == chapters::FILE) {
        tracing::warn!(
            path = %dir.join(chapters::FILE).display(),
            "the index of the history is missing: it is made again from the log"
        );
    }
    Ok(())
}
