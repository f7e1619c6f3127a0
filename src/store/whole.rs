//! A small file that is there as a whole, or not at all.

use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Writes a file in place of whatever was there, durably, its directory too where that is new. A crash on the way leaves what
/// was there before, and a file beside it whose name begins with `new-`.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidFilename.into());
    };
    std::fs::create_dir_all(directory)?;
    let mut new_name = std::ffi::OsString::from("new-");
    new_name.push(name);
    let new = directory.join(new_name);
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}
