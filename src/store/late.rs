//! *Late journals*: changes that this node acknowledged and that the register lacks. Redis went back to an earlier state,
//! and another node went on from there before the changes could be given back.
//!
//! Each journal is a file on this machine until somebody has dealt with it, so that it outlives the process. It has the
//! batches byte for byte, as they would have been in the history.
//!
//! As soon as a claim is answered, a second file beside the journal notes it. The claim is not made again, because a holder
//! that got something back may have let it go since.
//!
//! `journal` has the content of a journal, `format` its file.
//!
//! Used by `redis`, which finds late changes; `actors` and `serve` hand them over.

mod format;
mod journal;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::journal::{ClaimName, Late, OtherChange};

use self::format::{Unread, answered_text, decode, decode_answered, encode};
use self::journal::AnsweredClaims;
use super::{Digest, ShardId, StoreError, whole};
use crate::core::address::Address;
use crate::core::state::Entry;

pub(super) const PREFIX: &str = "LATE-";
/// The prefix of journals that were dealt with.
const PAST: &str = "PAST-";
/// The prefix of files that note what was answered.
const ANSWERED: &str = "DONE-";

/// The journals that nobody has dealt with yet.
#[derive(Debug, Default)]
pub struct Lates {
    directory: Option<PathBuf>,
    register: u128,
    pending: Mutex<Vec<Arc<Late>>>,
    /// How many batches of each shard are missing in the register, and could not be written down either.
    unwritten: Mutex<BTreeMap<ShardId, u64>>,
    /// The highest number of a journal. Held while a file is written: two threads that note answers at the same time would
    /// write the same file, and the older note could be the one that remains.
    writing: Mutex<u64>,
}

impl Lates {
    /// Reads the journals of a directory; without a directory nothing is kept. Journals of another register are given up if
    /// an operator says so.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or belongs to another register: a journal is never taken for less than it is.
    pub fn open(directory: Option<&Path>, register: u128, gives_up_others: bool) -> Result<Self, StoreError> {
        let mut found = Vec::new();
        let files = directory.map(|directory| files(directory).map_err(whole::io("listing", directory)));
        for path in files.transpose()?.unwrap_or_default() {
            let bytes = std::fs::read(&path).map_err(whole::io("reading", &path))?;
            let (number, of, late) = decode(&bytes).map_err(|what| unread(&path, what))?;
            if of == register {
                read_answered(&path, register, &late)?;
                found.push((number, Arc::new(late)));
            } else if gives_up_others {
                give_up(&path, &[late])?;
            } else {
                return Err(of_another(&path, ""));
            }
        }
        found.sort_by_key(|(number, _)| *number);
        Ok(Self {
            directory: directory.map(Path::to_owned),
            register,
            unwritten: Mutex::default(),
            writing: Mutex::new(found.last().map_or(0, |(number, _)| *number)),
            pending: Mutex::new(found.into_iter().map(|(_, late)| late).collect()),
        })
    }

    /// Notes a journal, durably. Noting the same one again changes nothing. A journal that ends in the same place and begins
    /// earlier, because Redis went back further since, replaces the one that was noted, and claims answered there stay answered.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, shard: ShardId, digest: Digest, batches: &[Vec<u8>]) -> Result<Arc<Late>, StoreError> {
        let mut last = locked(&self.writing);
        let (late, known) = self.write(&mut last, shard, digest, batches)?;
        self.shows(vec![(Arc::clone(&late), known)]);
        Ok(late)
    }

    /// Notes several journals as [`add`](Self::add) does. A reader of the list sees either none or all of them, because a
    /// claim in one of them may end in another.
    ///
    /// # Errors
    /// One cannot be written. Those before it are noted.
    pub fn add_together(&self, several: &[(ShardId, Digest, Vec<Vec<u8>>)]) -> Result<(), StoreError> {
        let mut last = locked(&self.writing);
        let mut written = Vec::with_capacity(several.len());
        let mut failed = None;
        for (shard, digest, batches) in several {
            match self.write(&mut last, *shard, *digest, batches) {
                Ok(one) => written.push(one),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let (noted, unnoted) = several.split_at(written.len());
        {
            let mut unwritten = locked(&self.unwritten);
            unwritten.retain(|shard, _| noted.iter().all(|(noted, ..)| noted != shard));
            unwritten.extend(unnoted.iter().map(|(shard, _, batches)| (*shard, batches.len() as u64)));
        }
        self.shows(written);
        failed.map_or(Ok(()), Err)
    }

    /// How many batches are missing in the register, and could not be written down either. Nothing is claimed of them.
    pub fn unwritten(&self) -> u64 {
        locked(&self.unwritten).values().sum()
    }

    /// Nothing is missing in any shard but these.
    pub(super) fn lacks_only(&self, shards: &[ShardId]) {
        locked(&self.unwritten).retain(|shard, _| shards.contains(shard));
    }

    /// Adds journals to the list, each in place of the one that was known before.
    fn shows(&self, written: Vec<(Arc<Late>, Option<Arc<Late>>)>) {
        let mut pending = self.locked();
        for (late, known) in written {
            if known.as_ref() == Some(&late) {
                continue;
            }
            pending.retain(|other| Some(other) != known.as_ref());
            pending.push(late);
        }
    }

    /// Writes a journal, with the number after the `last` one. Returns it, and the one that was known before; both are the
    /// known one if that is as long.
    fn write(
        &self,
        last: &mut u64,
        shard: ShardId,
        digest: Digest,
        batches: &[Vec<u8>],
    ) -> Result<(Arc<Late>, Option<Arc<Late>>), StoreError> {
        let known = self.named(shard, digest);
        if let Some(known) = known.as_ref().filter(|known| known.batches.len() >= batches.len()) {
            return Ok((Arc::clone(known), Some(Arc::clone(known))));
        }
        *last += 1;
        let bytes = encode(*last, self.register, shard, digest, batches);
        let (_, _, late) = decode(&bytes).map_err(|why| {
            let (Unread::Damaged(what) | Unread::Newer(what)) = why;
            StoreError::Invalid(format!("a late journal {what}").into())
        })?;
        if let Some(known) = &known {
            *locked(&late.answered) = self.still_answered(known, &late)?;
        }
        if let Some(path) = self.path(shard, digest) {
            whole::write(&path, &bytes).map_err(whole::io("writing", &path))?;
        }
        Ok((Arc::new(late), known))
    }

    /// Which answers to a journal hold for its longer replacement. If some do not, the shorter list is written to disk first.
    fn still_answered(&self, known: &Late, late: &Late) -> Result<AnsweredClaims, StoreError> {
        let kept = locked(&known.answered).kept;
        let mut answered = AnsweredClaims { claims: known.answered_in(late), kept };
        if answered.claims.len() < kept {
            if let Some(path) = self.path(late.shard, late.digest).map(|path| beside(&path, ANSWERED)) {
                let text = answered_text(self.register, late, &answered.claims);
                whole::write(&path, text.as_bytes()).map_err(whole::io("writing", &path))?;
            }
            answered.kept = answered.claims.len();
        }
        Ok(answered)
    }

    /// All journals, oldest first.
    pub fn all(&self) -> Vec<Arc<Late>> {
        self.locked().clone()
    }

    /// Saves which claims of a journal were answered, durably, so that they are not made again after a restart.
    ///
    /// # Errors
    /// It cannot be written. The answers are in memory, and saving them can be tried again.
    pub fn keep_answered(&self, late: &Late) -> Result<(), StoreError> {
        let _alone = locked(&self.writing);
        self.write_answered(late)
    }

    fn write_answered(&self, late: &Late) -> Result<(), StoreError> {
        if let Some(longer) = self.longer_than(late) {
            let answered = late.answered_in(&longer);
            locked(&longer.answered).claims.extend(answered);
            return self.write_answered(&longer);
        }
        let (text, count) = {
            let answered = locked(&late.answered);
            if answered.claims.len() == answered.kept {
                return Ok(());
            }
            (answered_text(self.register, late, &answered.claims), answered.claims.len())
        };
        if let Some(path) = self.path(late.shard, late.digest).map(|path| beside(&path, ANSWERED)) {
            whole::write(&path, text.as_bytes()).map_err(whole::io("writing", &path))?;
        }
        locked(&late.answered).kept = count;
        Ok(())
    }

    /// Somebody has dealt with the whole journal. Its file stays under another name, for people.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn remove(&self, late: &Late) -> Result<(), StoreError> {
        let _alone = locked(&self.writing);
        if self.longer_than(late).is_some() {
            // The longer journal will be dealt with in its place.
            return self.write_answered(late);
        }
        if let Some(path) = self.path(late.shard, late.digest) {
            std::fs::rename(&path, beside(&path, PAST)).map_err(whole::io("renaming", &path))?;
            // Only after the rename: a journal without its answers would be brought again from the beginning.
            let answered = beside(&path, ANSWERED);
            let renamed = path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all());
            match renamed.and_then(|()| std::fs::remove_file(&answered)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::warn!(path = %answered.display(), %error, "a file of what was dealt with stays; remove it");
                }
                Ok(()) | Err(_) => {}
            }
        }
        self.locked().retain(|other| **other != *late);
        Ok(())
    }

    /// The longer journal that was noted in place of one that a caller still has.
    fn longer_than(&self, late: &Late) -> Option<Arc<Late>> {
        self.named(late.shard, late.digest).filter(|noted| **noted != *late)
    }

    fn named(&self, shard: ShardId, digest: Digest) -> Option<Arc<Late>> {
        self.locked().iter().find(|late| (late.shard, late.digest) == (shard, digest)).cloned()
    }

    /// Where the journals lie, if anywhere.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Where one journal lies.
    pub fn path(&self, shard: ShardId, digest: Digest) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{PREFIX}{}-{:032x}", shard.0, digest.0)))
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Arc<Late>>> {
        locked(&self.pending)
    }
}

/// The journal at this place is not read.
fn unread(path: &Path, why: Unread) -> StoreError {
    let (path, of) = (path.display(), "it has changes that were acknowledged and that the register lacks");
    match why {
        Unread::Damaged(what) => {
            let text = format!(
                "{path} {what}: {of}. Bring it back from a copy, or move it away and tell those whom it concerns by hand"
            );
            StoreError::Damaged(text.into())
        }
        Unread::Newer(what) => StoreError::newer(format_args!("{path} {what}: {of}")),
    }
}

/// The journal belongs to another register, for example because the register was moved or restored before the changes were
/// brought.
pub(super) fn of_another(path: &Path, more: &str) -> StoreError {
    let text = format!(
        "{} has changes that were acknowledged in another register and brought to nobody: whoever was told of them may find \
         that somebody else has what he was granted. `allod serve` with the store that was there before brings \
         them, if that was not moved; --accept-new-store gives them up, and the file stays as PAST-…{more}",
        path.display()
    );
    StoreError::Foreign(text.into())
}

/// Gives up the content of a file of another register. The log names it, and the file stays for people under the name that
/// is returned.
///
/// # Errors
/// The file cannot be renamed.
pub(super) fn give_up(path: &Path, lates: &[Late]) -> Result<PathBuf, StoreError> {
    let named = |(address, entry): (Address, Entry)| match entry {
        Entry::Held(held) => format!("{address} of `{}`", held.holder.owner),
        Entry::Released(_) | Entry::Declined(_) => address.to_string(),
    };
    let claims: Vec<String> = lates.iter().flat_map(|late| late.claims().into_values().flatten().map(named)).collect();
    tracing::error!(
        path = %path.display(),
        claims = claims.join(", "),
        "what was acknowledged in another register and brought to nobody is given up: whoever was told that he has \
         one of these is to ask for another"
    );
    put_past(path)
}

/// Renames a file whose content nobody is to bring any more. It stays for people, under the name that is returned.
///
/// # Errors
/// The file cannot be renamed.
pub(super) fn put_past(path: &Path) -> Result<PathBuf, StoreError> {
    let past = beside(path, PAST);
    std::fs::rename(path, &past).map_err(whole::io("renaming", path))?;
    Ok(past)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that belongs to the same journal and has another prefix.
fn beside(path: &Path, prefix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{prefix}{}", name.strip_prefix(PREFIX).unwrap_or(&name)))
}

/// The journals of a directory, by the time of each file; none if the directory does not exist yet. Those without a number
/// have no other order.
fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let listed = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let written = |entry: &std::fs::DirEntry| entry.metadata().and_then(|metadata| metadata.modified()).ok();
    let mut files = Vec::new();
    for entry in listed {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            files.push((written(&entry), entry.path()));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Reads what was answered of a journal, if anything was.
fn read_answered(path: &Path, register: u128, late: &Late) -> Result<(), StoreError> {
    let path = beside(path, ANSWERED);
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.map_err(whole::io("reading", &path))?,
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| "is no text");
    let claims = text.and_then(|text| decode_answered(text, register, late)).map_err(|what| {
        let text = format!(
            "{} {what}: it has what was given back already of the changes beside it. Bring it back from a copy; without it \
             all of them are given back again, also what its holders let go since",
            path.display()
        );
        StoreError::Damaged(text.into())
    })?;
    *locked(&late.answered) = AnsweredClaims { kept: claims.len(), claims };
    Ok(())
}
