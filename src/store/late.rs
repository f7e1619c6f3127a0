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

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::journal::{ClaimName, Late, OtherChange};

use self::format::{answered_text, decode, decode_answered, encode};
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
    /// Held while a file is written. Two threads that note answers at the same time would write the same file, and the older
    /// note could be the one that remains.
    writing: Mutex<()>,
}

impl Lates {
    /// Reads the journals of a directory; without a directory nothing is kept. Journals of another register are given up if
    /// an operator says so.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or belongs to another register: a journal is never taken for less than it is.
    pub fn open(directory: Option<&Path>, register: u128, gives_up_others: bool) -> Result<Self, StoreError> {
        let mut pending = Vec::new();
        let files = directory.map(|directory| files(directory).map_err(whole::io("listing", directory)));
        for path in files.transpose()?.unwrap_or_default() {
            let bytes = std::fs::read(&path).map_err(whole::io("reading", &path))?;
            let damaged = |what: &str| {
                let text = format!(
                    "{} {what}: it has changes that were acknowledged and that the register lacks. Bring it back from a \
                     copy, or move it away and tell those whom it concerns by hand",
                    path.display()
                );
                StoreError::Damaged(text.into())
            };
            let (of, late) = decode(&bytes).map_err(|what| damaged(&what))?;
            if of == register {
                read_answered(&path, register, &late)?;
                pending.push(Arc::new(late));
            } else if gives_up_others {
                give_up(&path, &[late])?;
            } else {
                return Err(of_another(&path, ""));
            }
        }
        Ok(Self {
            directory: directory.map(Path::to_owned),
            register,
            pending: Mutex::new(pending),
            writing: Mutex::default(),
        })
    }

    /// Notes a journal, durably. Noting the same one again changes nothing. A journal that ends in the same place and begins
    /// earlier, because Redis went back further since, replaces the one that was noted, and claims answered there stay answered.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, shard: ShardId, digest: Digest, batches: &[Vec<u8>]) -> Result<Arc<Late>, StoreError> {
        let _alone = locked(&self.writing);
        let (late, known) = self.write(shard, digest, batches)?;
        self.shows(vec![(Arc::clone(&late), known)]);
        Ok(late)
    }

    /// Notes several journals as [`add`](Self::add) does. A reader of the list sees either none or all of them, because a
    /// claim in one of them may end in another.
    ///
    /// # Errors
    /// One cannot be written. Those before it are noted.
    pub fn add_together(&self, several: &[(ShardId, Digest, Vec<Vec<u8>>)]) -> Result<(), StoreError> {
        let _alone = locked(&self.writing);
        let mut written = Vec::with_capacity(several.len());
        let mut failed = None;
        for (shard, digest, batches) in several {
            match self.write(*shard, *digest, batches) {
                Ok(one) => written.push(one),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.shows(written);
        failed.map_or(Ok(()), Err)
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

    /// Writes a journal. Returns it, and the one that was known before; both are the known one if that is as long.
    fn write(
        &self,
        shard: ShardId,
        digest: Digest,
        batches: &[Vec<u8>],
    ) -> Result<(Arc<Late>, Option<Arc<Late>>), StoreError> {
        let known = self.named(shard, digest);
        if let Some(known) = known.as_ref().filter(|known| known.batches.len() >= batches.len()) {
            return Ok((Arc::clone(known), Some(Arc::clone(known))));
        }
        let bytes = encode(self.register, shard, digest, batches);
        let (_, late) = decode(&bytes).map_err(|what| StoreError::Invalid(format!("a late journal {what}").into()))?;
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

/// The journals of a directory, in the order in which they were written; none if the directory does not exist yet.
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

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::disallowed_methods, reason = "files are damaged here")]

    use super::format::TITLE;
    use super::*;
    use crate::core::state::{Event, EventKind, Key, Lease, Reservation, State, Step};
    use crate::core::types::{Generation, NetworkId, Scope, ShardTime, SlotKey, WallTime};
    use crate::store::codec::Format;
    use crate::store::{Act, Batch, Epoch, Seq, Token, fence};

    fn batches(count: u64) -> Vec<Vec<u8>> {
        let batch = |seq| Batch {
            shard: ShardId(3),
            epoch: Epoch(2),
            token: Token(7),
            seq: Seq(seq),
            time: ShardTime(seq),
            generation: Generation(1),
            acts: Vec::new(),
        };
        (1..=count).map(|seq| encoded(&batch(seq))).collect()
    }

    fn encoded(batch: &Batch) -> Vec<u8> {
        let mut bytes = Vec::new();
        fence::encode(batch, Format::FIRST, &mut bytes).unwrap();
        bytes
    }

    /// One batch that grants these addresses in network 7.
    pub(in crate::store) fn granted(addresses: &[&str]) -> Vec<Vec<u8>> {
        held(addresses, None)
    }

    /// One batch that grants these addresses, or that renews what was held until then.
    fn held(addresses: &[&str], renewed: Option<u64>) -> Vec<Vec<u8>> {
        let step = |(at, address): (usize, &&str)| {
            let address: Address = address.parse().unwrap();
            let owner = format!("owner-{at}");
            let holder = SlotKey { scope: Scope::default(), owner: owner.parse().unwrap(), slot: "0".parse().unwrap() };
            let width = address.family().width();
            let held = Reservation::plain(holder, Generation(77), width, WallTime(1_772_356_360_000));
            let lease = |ends| Lease { ends: ShardTime(ends), ttl_seconds: std::num::NonZeroU64::MIN };
            let before = renewed.map(|ends| Arc::new(Reservation { lease: Some(lease(ends)), ..held.clone() }));
            let state = Some(State::Entry(Entry::Held(Arc::new(held))));
            let kind = if before.is_some() { EventKind::Renewed } else { EventKind::Granted };
            let expect = before.as_ref().map(|before| before.generation.0);
            Step { key: Key::Address(address), expect, state, event: Some(Event { kind, before }) }
        };
        let steps = addresses.iter().enumerate().map(step).collect();
        let (network, wall, by) = (NetworkId(7), WallTime(0), "anonymous".into());
        let act = Act { network, wall, by, reason: None, transaction: None, steps };
        vec![encoded(&first_batch(vec![act]))]
    }

    pub(super) fn first_batch(acts: Vec<Act>) -> Batch {
        Batch {
            shard: ShardId(3),
            epoch: Epoch(2),
            token: Token(7),
            seq: Seq(1),
            time: ShardTime(1),
            generation: Generation(1),
            acts,
        }
    }

    #[test]
    fn what_is_late_is_there_after_a_restart_until_it_is_dealt_with() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("new");
        let lates = Lates::open(Some(&inside), 5, false).unwrap();
        let first = lates.add(ShardId(3), Digest(1), &batches(2)).unwrap();
        assert_eq!(lates.add(ShardId(3), Digest(1), &batches(2)).unwrap(), first);
        lates.add(ShardId(3), Digest(2), &batches(1)).unwrap();
        let again = Lates::open(Some(&inside), 5, false).unwrap();
        assert_eq!(again.all().len(), 2);
        let found = again.all().into_iter().find(|late| late.digest == Digest(1)).unwrap();
        assert_eq!((&found, found.batches.len()), (&first, 2));
        assert!(matches!(Lates::open(Some(&inside), 6, false), Err(StoreError::Foreign(_))), "of another register");
        again.remove(&found).unwrap();
        assert_eq!(again.all().len(), 1);
        assert_eq!(Lates::open(Some(&inside), 5, false).unwrap().all().len(), 1);
        // Without a directory, a journal lasts as long as the process.
        let nowhere = Lates::open(None, 5, false).unwrap();
        let late = nowhere.add(ShardId(3), Digest(1), &batches(2)).unwrap();
        nowhere.remove(&late).unwrap();
        assert!(nowhere.all().is_empty());
    }

    #[test]
    fn a_directory_that_cannot_be_listed_is_not_taken_for_one_without_late_journals() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("data");
        assert!(Lates::open(Some(&place), 5, false).unwrap().all().is_empty(), "it is not made yet");
        std::fs::write(&place, b"").unwrap();
        assert!(matches!(Lates::open(Some(&place), 5, false), Err(StoreError::Io { .. })));
    }

    fn addresses(late: &Late) -> Vec<String> {
        late.claims().into_values().flatten().map(|(address, _)| address.to_string()).collect()
    }

    #[test]
    fn what_was_answered_is_asked_by_nobody_any_more_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Lates::open(Some(directory.path()), 5, false).unwrap();
        let lates = open();
        let late = lates.add(ShardId(3), Digest(1), &granted(&["10.0.0.1", "10.0.0.2", "2001:db8::1"])).unwrap();
        assert_eq!(addresses(&late), ["10.0.0.1", "10.0.0.2", "2001:db8::1"]);
        // In another network the same address is another claim.
        let claims = late.claims().remove(&NetworkId(7)).unwrap();
        late.answered(NetworkId(8), &claims[..1]);
        late.answered(NetworkId(7), &[claims[0].clone(), claims[2].clone()]);
        assert_eq!(addresses(&late), ["10.0.0.2"]);
        assert_eq!(addresses(&open().all()[0]).len(), 3, "nobody kept it");
        lates.keep_answered(&late).unwrap();
        let again = open();
        let [late] = &again.all()[..] else { panic!("one") };
        assert_eq!(addresses(late), ["10.0.0.2"]);
        late.answered(NetworkId(7), &claims[1..2]);
        again.keep_answered(late).unwrap();
        assert!(addresses(&open().all()[0]).is_empty());
        again.remove(late).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0].to_string_lossy().starts_with(PAST));
    }

    #[test]
    fn what_two_note_at_once_is_all_noted() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Lates::open(Some(directory.path()), 5, false).unwrap();
        let lates = open();
        let addresses: Vec<String> = (0..40).map(|at| format!("10.0.0.{at}")).collect();
        let granted = granted(&addresses.iter().map(String::as_str).collect::<Vec<_>>());
        let late = lates.add(ShardId(3), Digest(1), &granted).unwrap();
        let claims = late.claims().remove(&NetworkId(7)).unwrap();
        let (one, other) = claims.split_at(20);
        std::thread::scope(|scope| {
            for some in [one, other] {
                let (lates, late) = (&lates, &late);
                scope.spawn(move || {
                    for claim in some.chunks(1) {
                        late.answered(NetworkId(7), claim);
                        lates.keep_answered(late).unwrap();
                    }
                });
            }
        });
        assert!(open().all()[0].claims().is_empty());
    }

    #[test]
    fn what_was_answered_is_refused_with_one_changed_byte_cut_anywhere_or_of_another_journal() {
        let directory = tempfile::tempdir().unwrap();
        let lates = Lates::open(Some(directory.path()), 5, false).unwrap();
        let late = lates.add(ShardId(3), Digest(1), &granted(&["10.0.0.1"])).unwrap();
        let other = lates.add(ShardId(3), Digest(2), &granted(&["10.0.0.1"])).unwrap();
        for late in [&late, &other] {
            late.answered(NetworkId(7), &late.claims()[&NetworkId(7)]);
            lates.keep_answered(late).unwrap();
        }
        let file = |late: &Late| beside(&lates.path(late.shard, late.digest).unwrap(), ANSWERED);
        let path = file(&late);
        let whole = std::fs::read(&path).unwrap();
        let changed = |at: usize| [&whole[..at], &[whole[at] ^ 1], &whole[at + 1..]].concat();
        let damaged = (0..whole.len()).map(changed).chain((0..whole.len()).map(|length| whole[..length].to_vec()));
        for damaged in damaged.chain([std::fs::read(file(&other)).unwrap()]) {
            std::fs::write(&path, &damaged).unwrap();
            let opened = Lates::open(Some(directory.path()), 5, false);
            assert!(matches!(opened, Err(StoreError::Damaged(_))), "{}", String::from_utf8_lossy(&damaged));
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(Lates::open(Some(directory.path()), 5, false).unwrap().all().len(), 2);
    }

    /// The answer that the renewal stands came from a line that had the grant; by then the grant is cut off as well.
    #[test]
    fn what_was_answered_of_a_renewal_is_no_answer_of_the_grant_where_redis_went_back_further() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Lates::open(Some(directory.path()), 5, false).unwrap();
        let lates = open();
        let (grant, renewal) = (granted(&["10.0.0.1"]), held(&["10.0.0.1"], Some(5)));
        let shorter = lates.add(ShardId(3), Digest(1), &renewal).unwrap();
        shorter.answered(NetworkId(7), &shorter.claims()[&NetworkId(7)]);
        lates.keep_answered(&shorter).unwrap();
        assert!(addresses(&shorter).is_empty());
        lates.add(ShardId(3), Digest(1), &[grant.clone(), renewal].concat()).unwrap();
        // The same if a caller still has the shorter journal.
        lates.keep_answered(&shorter).unwrap();
        for lates in [&lates, &open()] {
            assert_eq!(addresses(&lates.all()[0]), ["10.0.0.1"]);
        }
    }

    #[test]
    fn one_that_begins_earlier_is_in_place_of_what_was_noted_and_what_was_answered_of_that_stays_answered() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Lates::open(Some(directory.path()), 5, false).unwrap();
        let lates = open();
        let (first, second) = (granted(&["10.0.0.9"]), granted(&["10.0.0.1", "10.0.0.2"]));
        let shorter = lates.add(ShardId(3), Digest(1), &second).unwrap();
        let name = |late: &Late, at: usize| (NetworkId(7), late.claims()[&NetworkId(7)][at].clone());
        let (network, claim) = name(&shorter, 0);
        shorter.answered(network, &[claim]);
        lates.keep_answered(&shorter).unwrap();
        // Redis went back further before anybody dealt with it.
        let both = [first, second.clone()].concat();
        let longer = lates.add(ShardId(3), Digest(1), &both).unwrap();
        assert_eq!(addresses(&longer), ["10.0.0.2", "10.0.0.9"]);
        for lates in [&lates, &open()] {
            assert_eq!(lates.all().iter().map(|late| addresses(late)).collect::<Vec<_>>(), [["10.0.0.2", "10.0.0.9"]]);
        }
        assert_eq!(lates.add(ShardId(3), Digest(1), &second).unwrap(), longer, "it has that, too");
        // A caller that still has the shorter journal deals with a part of the longer one.
        let (network, claim) = name(&shorter, 0);
        shorter.answered(network, &[claim]);
        lates.remove(&shorter).unwrap();
        for lates in [&lates, &open()] {
            assert_eq!(lates.all().iter().map(|late| addresses(late)).collect::<Vec<_>>(), [["10.0.0.9"]]);
        }
        lates.remove(&longer).unwrap();
        assert!(open().all().is_empty());
    }

    #[test]
    fn what_a_release_before_noted_without_generations_is_asked_by_nobody_either() {
        let directory = tempfile::tempdir().unwrap();
        let lates = Lates::open(Some(directory.path()), 5, false).unwrap();
        let late = lates.add(ShardId(3), Digest(1), &granted(&["10.0.0.1", "10.0.0.2"])).unwrap();
        late.answered(NetworkId(7), &late.claims()[&NetworkId(7)][..1]);
        lates.keep_answered(&late).unwrap();
        let path = beside(&lates.path(late.shard, late.digest).unwrap(), ANSWERED);
        let written = std::fs::read_to_string(&path).unwrap();
        let (lines, _) = written.trim_end().rsplit_once('\n').unwrap();
        let before = format!("{}\n", lines.strip_suffix(" 77").unwrap());
        std::fs::write(&path, format!("{before}{:08x}\n", crc32fast::hash(before.as_bytes()))).unwrap();
        let again = Lates::open(Some(directory.path()), 5, false).unwrap();
        assert_eq!(addresses(&again.all()[0]), ["10.0.0.2"]);
    }

    #[test]
    fn a_file_with_one_changed_byte_or_cut_anywhere_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let lates = Lates::open(Some(directory.path()), 5, false).unwrap();
        lates.add(ShardId(3), Digest(1), &batches(2)).unwrap();
        let path = lates.path(ShardId(3), Digest(1)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let header = TITLE.len() + 1 + 16 + 2 + 16;
        for at in (0..TITLE.len()).chain(header..whole.len()) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert!(matches!(Lates::open(Some(directory.path()), 5, false), Err(StoreError::Damaged(_))), "byte {at}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(
                matches!(Lates::open(Some(directory.path()), 5, false), Err(StoreError::Damaged(_))),
                "{length} bytes"
            );
        }
    }
}
