//! Which register this server kept in Redis before: a small file, so that an emptied Redis is not taken for a new one.
//! And whether Redis went back behind what was acknowledged of it: what is missing may be in use, and a supervisor that
//! starts the server again must not have it granted once more.

use std::path::{Path, PathBuf};

use crate::store::{Epoch, Seq, ShardId, StoreError, whole};

const FILE: &str = "REDIS";
const TITLE: &str = "allod: the register that this server keeps in Redis";

/// A shard that stood further back than the batch that was acknowledged last, in this epoch.
pub(super) type Behind = (ShardId, Seq, Epoch);

/// The file in a directory of this machine.
#[derive(Debug)]
pub(super) struct IdentityFile {
    path: PathBuf,
    /// What it says.
    pub(super) known: Option<u128>,
    /// Redis went back, and what was missing was not seen there again.
    pub(super) behind: Option<Behind>,
}

impl IdentityFile {
    /// Reads it; none where there is none yet.
    pub(super) fn read(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let mut behind = None;
        let known = match std::fs::read_to_string(&path) {
            Ok(text) => {
                behind = text.lines().find_map(|line| {
                    let mut words = line.strip_prefix("behind ")?.split(' ');
                    let shard = ShardId(words.next()?.parse().ok()?);
                    Some((shard, Seq(words.next()?.parse().ok()?), Epoch(words.next()?.parse().ok()?)))
                });
                let register = text.lines().find_map(|line| line.strip_prefix("register "));
                let known = register.and_then(|hex| u128::from_str_radix(hex, 16).ok());
                let unreadable = || StoreError::Damaged(format!("{} names no register", path.display()).into());
                Some(known.ok_or_else(unreadable)?)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(whole::io("reading", &path)(error)),
        };
        Ok(Self { path, known, behind })
    }

    /// Writes down which register it is, durably.
    pub(super) fn remember(&self, register: u128) -> Result<(), StoreError> {
        if self.known == Some(register) && self.behind.is_none() {
            return Ok(());
        }
        self.write(&format!("{TITLE}\nregister {register:032x}\n"))
    }

    /// Writes down that a shard was acknowledged up to this batch, and stood further back.
    pub(super) fn went_back(&self, register: u128, (shard, acknowledged, epoch): Behind) -> Result<(), StoreError> {
        let behind = format!("behind {} {} {}", shard.0, acknowledged.0, epoch.0);
        self.write(&format!("{TITLE}\nregister {register:032x}\n{behind}\n"))
    }

    fn write(&self, text: &str) -> Result<(), StoreError> {
        whole::write(&self.path, text.as_bytes()).map_err(whole::io("writing", &self.path))
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
        let identity = IdentityFile::read(&inside).unwrap();
        assert_eq!(identity.known, None);
        identity.remember(7).unwrap();
        assert_eq!(IdentityFile::read(&inside).unwrap().known, Some(7));
        IdentityFile::read(&inside).unwrap().remember(8).unwrap();
        assert_eq!(IdentityFile::read(&inside).unwrap().known, Some(8));
        identity.went_back(8, (ShardId(3), Seq(17), Epoch(2))).unwrap();
        let behind = IdentityFile::read(&inside).unwrap();
        assert_eq!((behind.known, behind.behind), (Some(8), Some((ShardId(3), Seq(17), Epoch(2)))));
        behind.remember(8).unwrap();
        assert_eq!(IdentityFile::read(&inside).unwrap().behind, None);
    }
}
