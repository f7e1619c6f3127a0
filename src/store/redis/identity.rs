//! Which register this server kept in Redis before: a small file, so that an emptied Redis is not taken for a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::{StoreError, whole};

const FILE: &str = "REDIS";
const TITLE: &str = "allod: the register that this server keeps in Redis";

fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError + use<> {
    let context = format!("{doing} {}", path.display()).into();
    move |error| StoreError::Io { context, source: Arc::new(error) }
}

/// The file in a directory of this machine.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    /// What it says.
    pub(super) known: Option<u128>,
}

impl Identity {
    /// Reads it; none where there is none yet.
    pub(super) fn read(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let known = match std::fs::read_to_string(&path) {
            Ok(text) => {
                let register = text.lines().find_map(|line| line.strip_prefix("register "));
                let known = register.and_then(|hex| u128::from_str_radix(hex, 16).ok());
                let unreadable = || StoreError::Damaged(format!("{} names no register", path.display()).into());
                Some(known.ok_or_else(unreadable)?)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(io("reading", &path)(error)),
        };
        Ok(Self { path, known })
    }

    /// Writes down which register it is, durably.
    pub(super) fn remember(&self, register: u128) -> Result<(), StoreError> {
        if self.known == Some(register) {
            return Ok(());
        }
        let text = format!("{TITLE}\nregister {register:032x}\n");
        whole::write(&self.path, text.as_bytes()).map_err(io("writing", &self.path))
    }

    /// Where it is, for people.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("new");
        let identity = Identity::read(&inside).unwrap();
        assert_eq!(identity.known, None);
        identity.remember(7).unwrap();
        assert_eq!(Identity::read(&inside).unwrap().known, Some(7));
        Identity::read(&inside).unwrap().remember(8).unwrap();
        assert_eq!(Identity::read(&inside).unwrap().known, Some(8));
    }
}
