//! A small file that is there as a whole, or not at all; and what is said of one that cannot be read or written.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::StoreError;
use super::embedded::disk::{RealDisk, make_dir};

/// What failed is the reading or writing of this file.
pub(crate) fn io(doing: &'static str, path: &Path) -> impl Fn(std::io::Error) -> StoreError {
    move |error| StoreError::Io { context: format!("{doing} {}", path.display()).into(), source: Arc::new(error) }
}

/// Writes a file in place of whatever was there, durably, its directory too where that is new. A crash on the way leaves what
/// was there before, and a file beside it whose name begins with `new-`.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidFilename.into());
    };
    // One that is there whoever made it has flushed above it.
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
