//! `META` says whose data a directory holds; `MARK` says how much of it was acknowledged.
//!
//! `META` is written under a temporary name and then renamed. `MARK` has two places, 4 KiB apart. After each group became
//! durable, both are written, one after the other, and not flushed. After a crash of the process they name the last group
//! that was acknowledged; after a loss of power they name at least one from the seconds before. A log that ends before its
//! mark has lost something, however clean its end looks. If the disk damages one place, the other one names that group as
//! well; and if a loss of power cuts the write of a place short, its group was durable in the log before.
//!
//! Neighbours: `recovery` compares, `writer` marks, `retention` has its note after each of the two marks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
/// How often a mark that does not fit is read: it may be in the middle of being written.
const CHECKS: usize = 3;

/// Whose data it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    /// Identity of the register.
    pub register: u128,
    /// Number of shards, which never changes.
    pub shards: u16,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// Register that this one was restored from; 0 for none.
    pub restored_from: u128,
    /// A restored register gives no generation up to this one.
    pub generation_floor: u64,
}

/// Reads a number at a fixed place of a checked record.
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

/// Appends the checksum of everything before it.
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
            let text = "is not the META file of an allod register, or was damaged: restore the data directory from a backup, or give another one if it belongs to no register";
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
#[derive(Debug, Clone)]
pub(super) struct Mark {
    file: Arc<dyn DiskFile>,
    /// The group that it named when it was opened, or that was written last.
    named: Arc<AtomicU64>,
}

/// What the two places of the file say.
struct Places {
    /// The later group of the two, and its digest.
    best: Option<(u64, u128)>,
    /// One of the places is unreadable.
    is_half: bool,
    /// The error, if the disk could not read a place.
    unread: Option<std::io::Error>,
}

impl Places {
    fn read(file: &dyn DiskFile) -> Self {
        let mut places = Self { best: None, is_half: false, unread: None };
        for slot in PLACES {
            let mut bytes = [0; MARK_BYTES];
            let read = read_exact(file, &mut bytes, slot * MARK_STRIDE);
            if read.is_ok() && bytes[..4] == *MARK_MAGIC && is_sealed(&bytes) {
                places.best = places.best.max(Some((u64_at(&bytes, 4), u128_at(&bytes, 12))));
            } else {
                places.is_half = true;
                places.unread = places.unread.or(read.err());
            }
        }
        places
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marked {
    /// The group that was acknowledged last, and its digest.
    pub last: (u64, u128),
    /// One of its two places is unreadable; it is written again with the next group.
    pub is_half: bool,
}

impl Mark {
    /// Creates the file with a mark of this group, durably.
    pub(super) fn create(disk: &dyn Disk, dir: &Path, group: u64, digest: u128) -> Result<(), StoreError> {
        let path = dir.join(MARK);
        let write = || {
            let mark = Mark { file: disk.create(&path)?, named: Arc::default() };
            mark.file.write_at(&vec![0; 2 * MARK_STRIDE as usize], 0)?;
            mark.put(group, digest)?;
            mark.sync()
        };
        write().map_err(problem::io("writing", &path))
    }

    pub(super) fn open(disk: &dyn Disk, dir: &Path) -> Result<(Self, Marked), StoreError> {
        let path = dir.join(MARK);
        let file = disk.open(&path).map_err(problem::unread(&path, "cannot be opened"))?;
        let Places { best, is_half, unread } = Places::read(&*file);
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
        Ok((Self { file, named: Arc::new(AtomicU64::new(last.0)) }, Marked { last, is_half }))
    }

    /// Notes that a group is durable, in one place and then in the other. Not flushed: see the module.
    pub(super) fn put(&self, group: u64, digest: u128) -> std::io::Result<()> {
        PLACES.into_iter().try_for_each(|slot| self.put_at(slot, group, digest))?;
        self.named.store(group, Ordering::Release);
        Ok(())
    }

    /// Does it name the right group? If not, returns what is wrong, as the rest of a sentence about the file.
    ///
    /// # Errors
    /// The disk can read neither place.
    pub(super) fn check(&self) -> std::io::Result<Option<String>> {
        let mut wrong = None;
        for _ in 0..CHECKS {
            let before = self.named.load(Ordering::Acquire);
            let Places { best, unread, .. } = Places::read(&*self.file);
            // The file is written before `named`, and may be two ahead: the seal of a segment counts as a group, too.
            let at_most = self.named.load(Ordering::Acquire) + 2;
            wrong = match (best, unread) {
                (Some((group, _)), _) if (before..=at_most).contains(&group) => return Ok(None),
                (Some((group, _)), _) => Some(format!("names group {group}, and group {before} was acknowledged last")),
                (None, Some(error)) => return Err(error),
                (None, None) => Some("has no readable mark".to_owned()),
            };
            // It may be in the middle of being written.
        }
        Ok(wrong)
    }

    /// The open file, so that its name can be checked.
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

    /// One place of `MARK` is damaged: the other one names the newest group as well.
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

    /// If the process ends or the power fails during a write, one place stays as it was, and the other one is whole.
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
