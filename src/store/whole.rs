//! Small files that are either complete or absent, and the errors of reading and writing a file.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::StoreError;
use super::embedded::disk::{RealDisk, make_dir};

/// Makes the error of a failed operation on this file.
pub(crate) fn io(doing: &'static str, path: &Path) -> impl Fn(std::io::Error) -> StoreError {
    move |error| StoreError::Io { context: format!("{doing} {}", path.display()).into(), source: Arc::new(error) }
}

/// Replaces a file durably, or creates it, together with its directory if that is new. A crash on the way leaves the old
/// content, and perhaps a file beside it whose name begins with `new-`.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidFilename.into());
    };
    // If the directory exists, whoever made it has flushed its entry in the directory above.
    if !directory.is_dir() {
        make_dir(&RealDisk, directory)?;
    }
    let mut new_name = std::ffi::OsString::from("new-");
    new_name.push(name);
    let new = directory.join(new_name);
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}
