//! `META` says whose data a directory holds; `MARK` says how much of it was acknowledged.
//!
//! `META` is written once, under a temporary name, and renamed. `MARK` has two places, 4 KiB apart, that are written in
//! turns after each group became durable, and not flushed: after a crash of the process it names the last group that
//! was acknowledged, after a loss of power at least one from the seconds before. A log that ends before its mark has lost
//! something, however clean its end looks.
//!
//! Neighbours: `recovery` compares, `writer` marks, `retention` has a place behind each mark.

use std::path::Path;
use std::sync::Arc;

use super::disk::{Disk, DiskFile, read_exact, replace};
use super::problem;
use crate::store::StoreError;

/// Version of the directory's layout and of the frames.
pub(super) const FORMAT: u32 = 1;
pub(super) const META: &str = "META";
pub(super) const MARK: &str = "MARK";

const META_MAGIC: &[u8; 8] = b"ALLODREG";
const META_BYTES: usize = 72;
const MARK_MAGIC: &[u8; 4] = b"MARK";
const MARK_BYTES: usize = 32;
pub(super) const MARK_STRIDE: u64 = 4_096;

/// Whose data it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    /// Identity of the register.
    pub register: u128,
    /// Shards, for ever.
    pub shards: u16,
    /// When it was made, milliseconds since 1970.
    pub created_ms: u64,
    /// Register that this one was restored from; 0 for none.
    pub restored_from: u128,
    /// No generation up to this one is given by a restored register.
    pub generation_floor: u64,
}

/// Numbers out of fixed places of a checked record.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut array = [0; 8];
    array.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(array)
}

pub(super) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    let mut array = [0; 16];
    array.copy_from_slice(&bytes[at..at + 16]);
    u128::from_be_bytes(array)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut array = [0; 4];
    array.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(array)
}

/// Appends the checksum of all that is there.
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

/// Does the record end with its own checksum?
pub(super) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.split_last_chunk::<4>().is_some_and(|(body, crc)| crc32fast::hash(body) == u32::from_be_bytes(*crc))
}

impl Meta {
    pub(super) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
        let mut bytes = Vec::with_capacity(META_BYTES);
        bytes.extend_from_slice(META_MAGIC);
        bytes.extend_from_slice(&FORMAT.to_be_bytes());
        bytes.extend_from_slice(&self.register.to_be_bytes());
        bytes.extend_from_slice(&u64::from(self.shards).to_be_bytes());
        bytes.extend_from_slice(&self.created_ms.to_be_bytes());
        bytes.extend_from_slice(&self.restored_from.to_be_bytes());
        bytes.extend_from_slice(&self.generation_floor.to_be_bytes());
        let bytes = seal(bytes);
        debug_assert_eq!(bytes.len(), META_BYTES);
        replace(disk, dir, META, &bytes).map_err(problem::io("writing", &dir.join(META)))
    }

    pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(META);
        let file = disk.open(&path).map_err(problem::io("opening", &path))?;
        let length = file.length().map_err(problem::io("reading", &path))?;
        let mut bytes = vec![0; (length as usize).min(META_BYTES)];
        read_exact(&*file, &mut bytes, 0).map_err(problem::io("reading", &path))?;
        if bytes.get(..8) != Some(META_MAGIC) {
            let text = "is not the META file of an allod register, or was damaged: restore the data directory from a backup, or \
                        give another one if it is no register's";
            return Err(problem::foreign(&path, text));
        }
        if bytes.len() >= 12 && u32_at(&bytes, 8) > FORMAT && length as usize != META_BYTES {
            let text = format!("was written by a newer allod (format {}); upgrade allod", u32_at(&bytes, 8));
            return Err(problem::foreign(&path, text));
        }
        if length as usize != META_BYTES || !is_sealed(&bytes) {
            return Err(problem::damaged(&path, "does not fit its checksum"));
        }
        match u32_at(&bytes, 8) {
            FORMAT => {}
            newer => {
                let text =
                    format!("has format {newer}, this allod reads {FORMAT}; use the allod that wrote it, or newer");
                return Err(problem::foreign(&path, text));
            }
        }
        Ok(Self {
            register: u128_at(&bytes, 12),
            shards: u64_at(&bytes, 28) as u16,
            created_ms: u64_at(&bytes, 36),
            restored_from: u128_at(&bytes, 44),
            generation_floor: u64_at(&bytes, 60),
        })
    }
}

/// The file that names the last acknowledged group.
#[derive(Debug)]
pub(super) struct Mark {
    file: Arc<dyn DiskFile>,
    /// Whose turn it is: never the place of the mark that counts. The number of its group does not tell it, for a group that
    /// only seals a segment is not marked.
    turn: u64,
}

impl Mark {
    /// A mark of a group, durable.
    pub(super) fn create(disk: &dyn Disk, dir: &Path, group: u64, digest: u128) -> Result<(), StoreError> {
        let path = dir.join(MARK);
        let write = || {
            let mark = Mark { file: disk.create(&path)?, turn: 0 };
            mark.file.write_at(&vec![0; 2 * MARK_STRIDE as usize], 0)?;
            // Both places: whatever happens to a write of one, the other is readable.
            mark.put_at(0, group, digest)?;
            mark.put_at(1, group, digest)?;
            mark.sync()
        };
        write().map_err(problem::io("writing", &path))
    }

    /// Opens it and tells the group that it names, with its digest.
    pub(super) fn open(disk: &dyn Disk, dir: &Path) -> Result<(Self, u64, u128), StoreError> {
        let path = dir.join(MARK);
        let file = disk.open(&path).map_err(problem::unread(&path, "cannot be opened"))?;
        let (mut best, mut damaged, mut unread): (Option<(u64, u128, u64)>, bool, _) = (None, false, None);
        for slot in 0..2 {
            let mut bytes = [0; MARK_BYTES];
            let read = read_exact(&*file, &mut bytes, slot * MARK_STRIDE);
            if read.is_ok() && bytes[..4] == *MARK_MAGIC && is_sealed(&bytes) {
                let found = (u64_at(&bytes, 4), u128_at(&bytes, 12), slot);
                best = best.max(Some(found));
            } else {
                damaged = true;
                unread = unread.or(read.err());
            }
        }
        let Some((group, digest, slot)) = best else {
            let text = "has no readable mark, so nobody knows where the log ended";
            return Err(match unread {
                Some(error) => problem::unread(&path, text)(error),
                None => problem::damaged(&path, text),
            });
        };
        if damaged {
            tracing::warn!(
                path = %path.display(),
                group,
                "one of its two places is unreadable; the other one names this group, and what was acknowledged behind it might \
                 be missing unseen. Look after the disk"
            );
        }
        Ok((Self { file, turn: 1 - slot }, group, digest))
    }

    /// Notes that a group is durable. Not flushed: see the module.
    pub(super) fn put(&mut self, group: u64, digest: u128) -> std::io::Result<()> {
        self.put_at(self.turn, group, digest)?;
        self.turn = 1 - self.turn;
        Ok(())
    }

    /// It, to be looked for.
    pub(super) fn file(&self) -> Arc<dyn DiskFile> {
        Arc::clone(&self.file)
    }

    fn put_at(&self, slot: u64, group: u64, digest: u128) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(MARK_BYTES);
        bytes.extend_from_slice(MARK_MAGIC);
        bytes.extend_from_slice(&group.to_be_bytes());
        bytes.extend_from_slice(&digest.to_be_bytes());
        self.file.write_at(&seal(bytes), slot * MARK_STRIDE)
    }

    pub(super) fn sync(&self) -> std::io::Result<()> {
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::embedded::disk::RealDisk;

    /// Groups that only seal a segment are not marked, so the marked ones may be all even, or all odd.
    #[test]
    fn a_torn_mark_leaves_the_one_before_it_whatever_numbers_the_groups_have() {
        for (first, second) in [(1, 2), (2, 4), (3, 5)] {
            let directory = tempfile::tempdir().unwrap();
            let (disk, dir) = (&RealDisk, directory.path());
            Mark::create(disk, dir, 0, 0).unwrap();
            let (mut mark, group, _) = Mark::open(disk, dir).unwrap();
            assert_eq!(group, 0);
            mark.put(first, 7).unwrap();
            drop(mark);
            // Also in the first turn after a start.
            let (mut mark, group, digest) = Mark::open(disk, dir).unwrap();
            assert_eq!((group, digest), (first, 7));
            let before = std::fs::read(dir.join(MARK)).unwrap();
            mark.put(second, 8).unwrap();
            let mut torn = std::fs::read(dir.join(MARK)).unwrap();
            let at = before.iter().zip(&torn).position(|(before, now)| before != now).unwrap();
            torn[at] ^= 0xff;
            disk.create(&dir.join(MARK)).unwrap().write_at(&torn, 0).unwrap();
            let (_, group, digest) = Mark::open(disk, dir).unwrap();
            assert_eq!((group, digest), (first, 7), "{first}, then {second}");
        }
    }
}
