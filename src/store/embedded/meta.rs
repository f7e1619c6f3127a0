//! `META` says whose data a directory holds; `MARK` says how much of it was acknowledged.
//!
//! `META` is written once, under a temporary name, and renamed. `MARK` has two places, 4 KiB apart, that are written
//! one after the other after each group became durable, and not flushed: after a crash of the process they name the last group that
//! was acknowledged, after a loss of power at least one from the seconds before. A log that ends before its mark has lost
//! something, however clean its end looks. Whichever place the disk damages, the other one names that group as well; what a loss
//! of power leaves of a write of one was durable in the log before.
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
const PLACES: [u64; 2] = [0, 1];

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
}

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marked {
    /// The group that was acknowledged last, and its digest.
    pub last: (u64, u128),
    /// One of its two places says nothing: it is written again with the next group.
    pub is_half: bool,
}

impl Mark {
    /// A mark of a group, durable.
    pub(super) fn create(disk: &dyn Disk, dir: &Path, group: u64, digest: u128) -> Result<(), StoreError> {
        let path = dir.join(MARK);
        let write = || {
            let mark = Mark { file: disk.create(&path)? };
            mark.file.write_at(&vec![0; 2 * MARK_STRIDE as usize], 0)?;
            mark.put(group, digest)?;
            mark.sync()
        };
        write().map_err(problem::io("writing", &path))
    }

    /// Opens it and tells what it says.
    pub(super) fn open(disk: &dyn Disk, dir: &Path) -> Result<(Self, Marked), StoreError> {
        let path = dir.join(MARK);
        let file = disk.open(&path).map_err(problem::unread(&path, "cannot be opened"))?;
        let (mut best, mut is_half, mut unread): (Option<(u64, u128)>, bool, _) = (None, false, None);
        for slot in PLACES {
            let mut bytes = [0; MARK_BYTES];
            let read = read_exact(&*file, &mut bytes, slot * MARK_STRIDE);
            if read.is_ok() && bytes[..4] == *MARK_MAGIC && is_sealed(&bytes) {
                best = best.max(Some((u64_at(&bytes, 4), u128_at(&bytes, 12))));
            } else {
                is_half = true;
                unread = unread.or(read.err());
            }
        }
        let Some(last) = best else {
            let text = "has no readable mark, so nobody knows where the log ended";
            return Err(match unread {
                Some(error) => problem::unread(&path, text)(error),
                None => problem::damaged(&path, text),
            });
        };
        if is_half {
            tracing::warn!(
                path = %path.display(),
                group = last.0,
                "one of its two places is unreadable; the other one names this group, and both are written with the next. Where \
                 the power did not fail just now, look after the disk"
            );
        }
        Ok((Self { file }, Marked { last, is_half }))
    }

    /// Notes that a group is durable, in one place after the other. Not flushed: see the module.
    pub(super) fn put(&self, group: u64, digest: u128) -> std::io::Result<()> {
        PLACES.into_iter().try_for_each(|slot| self.put_at(slot, group, digest))
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

    /// A place of `MARK` is damaged: of both, the newest group is named by the other.
    #[test]
    fn one_place_of_the_mark_is_enough_to_name_the_last_group_and_the_next_one_mends_the_other() {
        for spoilt in [0, MARK_STRIDE] {
            let directory = tempfile::tempdir().unwrap();
            let (disk, dir) = (&RealDisk, directory.path());
            Mark::create(disk, dir, 0, 0).unwrap();
            let opened = || Mark::open(disk, dir).unwrap();
            for group in 1..4 {
                opened().0.put(group, 7).unwrap();
                opened().0.file.write_at(&[0xff; 4], spoilt + 8).unwrap();
                let (_, marked) = opened();
                assert_eq!(marked, Marked { last: (group, 7), is_half: true }, "place {spoilt}");
            }
            let (mark, _) = opened();
            mark.put(9, 8).unwrap();
            assert_eq!(opened().1, Marked { last: (9, 8), is_half: false });
        }
    }

    /// A process, or the power, that ends while it is written leaves one place as it was, and the other whole.
    #[test]
    fn a_mark_that_was_written_in_one_place_only_names_the_later_group_and_a_torn_one_at_least_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let (disk, dir) = (&RealDisk, directory.path());
        Mark::create(disk, dir, 4, 7).unwrap();
        let (mark, _) = Mark::open(disk, dir).unwrap();
        mark.put_at(0, 5, 8).unwrap();
        assert_eq!(Mark::open(disk, dir).unwrap().1, Marked { last: (5, 8), is_half: false });
        mark.file.write_at(&[0xff; 4], 8).unwrap();
        assert_eq!(Mark::open(disk, dir).unwrap().1, Marked { last: (4, 7), is_half: true });
    }
}
