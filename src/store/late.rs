//! Changes that this node acknowledged and that the register has not: a *late journal*. Redis went back behind them, and
//! another node went on from there before they could be given back (CONSISTENCY 9).
//!
//! Each is a file of this machine until somebody has dealt with it, so that it outlives the node. Batches lie in it byte for
//! byte, as they were to stand in the history.
//!
//! Used by `redis`, which finds them; `actors` and `serve` hand them over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Batch, Digest, ShardId, StoreError, codec, whole};
use crate::core::address::Address;
use crate::core::state::{Entry, Key, State};
use crate::core::types::NetworkId;

const TITLE: &str = "allod: changes that were acknowledged and that the register lacks";
const PREFIX: &str = "LATE-";
/// Of those that were dealt with.
const PAST: &str = "PAST-";

/// What was acknowledged of one shard, behind the last that the register has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// The shard.
    pub shard: ShardId,
    /// Digest of the line that was cut off, up to the last of them: no two have the same.
    pub digest: Digest,
    /// In order.
    pub batches: Vec<Batch>,
}

impl Late {
    /// What was granted in it and is held at its end, by network: what is to be claimed again.
    pub fn claims(&self) -> BTreeMap<NetworkId, Vec<(Address, Entry)>> {
        let mut claims: BTreeMap<NetworkId, Vec<(Address, Entry)>> = BTreeMap::new();
        for ((network, address), entry) in self.reduced().0 {
            claims.entry(network).or_default().push((address, entry));
        }
        claims
    }

    /// How many changes in it were none of these: what let go, renewed, bound or changed something that was there before, and
    /// configuration.
    pub fn others(&self) -> usize {
        self.reduced().1
    }

    fn reduced(&self) -> (BTreeMap<(NetworkId, Address), Entry>, usize) {
        let (mut held, mut others) = (BTreeMap::new(), 0);
        let acts = self.batches.iter().flat_map(|batch| &batch.acts);
        for (network, step) in acts.flat_map(|act| act.steps.iter().map(|step| (act.network, step))) {
            let Key::Address(address) = step.key else {
                others += 1;
                continue;
            };
            let place = (network, address);
            match &step.state {
                Some(State::Entry(entry @ Entry::Held(reservation))) => {
                    // Under a generation that was given in it, or on something that was.
                    if step.expect != Some(reservation.generation.0) || held.contains_key(&place) {
                        held.insert(place, entry.clone());
                    } else {
                        others += 1;
                    }
                }
                Some(_) | None if held.remove(&place).is_some() => {}
                // What was granted over something that cooled, or cools no more, is nothing by itself.
                Some(_) | None => others += usize::from(step.event.is_some()),
            }
        }
        (held, others)
    }
}

/// Those of which nobody has disposed yet.
#[derive(Debug, Default)]
pub struct Lates {
    directory: Option<PathBuf>,
    register: u128,
    pending: Mutex<Vec<Arc<Late>>>,
}

impl Lates {
    /// Reads what lies in a directory; none: nothing is kept there.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged: it is never taken for less than it is.
    pub fn open(directory: Option<&Path>, register: u128) -> Result<Self, StoreError> {
        let mut pending = Vec::new();
        for path in directory.into_iter().flat_map(files) {
            let bytes = std::fs::read(&path).map_err(io("reading", &path))?;
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
                pending.push(Arc::new(late));
            } else {
                tracing::warn!(path = %path.display(), "changes of another register lie here; they are left alone");
            }
        }
        Ok(Self { directory: directory.map(Path::to_owned), register, pending: Mutex::new(pending) })
    }

    /// Notes one, durably. The same once more is the same.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, shard: ShardId, digest: Digest, batches: &[Vec<u8>]) -> Result<Arc<Late>, StoreError> {
        if let Some(known) = self.all().iter().find(|late| (late.shard, late.digest) == (shard, digest)) {
            return Ok(Arc::clone(known));
        }
        let bytes = encode(self.register, shard, digest, batches);
        let (_, late) = decode(&bytes).map_err(|what| StoreError::Invalid(format!("a late journal {what}").into()))?;
        if let Some(path) = self.path(shard, digest) {
            whole::write(&path, &bytes).map_err(io("writing", &path))?;
        }
        let late = Arc::new(late);
        self.locked().push(Arc::clone(&late));
        Ok(late)
    }

    /// All of them, oldest first.
    pub fn all(&self) -> Vec<Arc<Late>> {
        self.locked().clone()
    }

    /// Somebody has dealt with all of it. Its file stays under another name, for people.
    ///
    /// # Errors
    /// It cannot be named so: it is dealt with again after a restart, which does no harm.
    pub fn remove(&self, late: &Late) -> Result<(), StoreError> {
        if let Some(path) = self.path(late.shard, late.digest) {
            let past = path.with_file_name(format!("{PAST}{}-{:032x}", late.shard.0, late.digest.0));
            std::fs::rename(&path, past).map_err(io("renaming", &path))?;
        }
        self.locked().retain(|other| **other != *late);
        Ok(())
    }

    /// Where one lies.
    pub fn path(&self, shard: ShardId, digest: Digest) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{PREFIX}{}-{:032x}", shard.0, digest.0)))
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Arc<Late>>> {
        // Nothing under this lock can panic half-way.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError + use<> {
    let context = format!("{doing} {}", path.display()).into();
    move |error| StoreError::Io { context, source: Arc::new(error) }
}

/// The files of a directory, in the order in which they were written.
fn files(directory: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_one = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
    let written = |entry: &std::fs::DirEntry| entry.metadata().and_then(|metadata| metadata.modified()).ok();
    let mut files: Vec<_> = listed.filter(is_one).map(|entry| (written(&entry), entry.path())).collect();
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

/// A line for people; register, shard and digest; how many batches; each behind its length and checksum.
fn encode(register: u128, shard: ShardId, digest: Digest, batches: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("{TITLE}\n").into_bytes();
    bytes.extend(register.to_be_bytes());
    bytes.extend(shard.0.to_be_bytes());
    bytes.extend(digest.0.to_be_bytes());
    bytes.extend((batches.len() as u32).to_be_bytes());
    for batch in batches {
        bytes.extend((batch.len() as u32).to_be_bytes());
        bytes.extend(crc32fast::hash(batch).to_be_bytes());
        bytes.extend(batch);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Result<(u128, Late), String> {
    fn front<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], String> {
        let (front, behind) = rest.split_first_chunk().ok_or("ends early")?;
        *rest = behind;
        Ok(front)
    }
    let rest = &mut bytes.strip_prefix(TITLE.as_bytes()).ok_or("begins with something else")?;
    front::<1>(rest)?;
    let register = u128::from_be_bytes(*front(rest)?);
    let shard = ShardId(u16::from_be_bytes(*front(rest)?));
    let digest = Digest(u128::from_be_bytes(*front(rest)?));
    let count = u32::from_be_bytes(*front(rest)?);
    let mut batches = Vec::new();
    for number in 0..count {
        let length = u32::from_be_bytes(*front(rest)?) as usize;
        let sum = u32::from_be_bytes(*front(rest)?);
        let (batch, behind) = rest.split_at_checked(length).ok_or("ends early")?;
        *rest = behind;
        if crc32fast::hash(batch) != sum {
            return Err(format!("has another checksum at batch {number} than was written"));
        }
        batches
            .push(codec::decode_batch(batch).map_err(|error| format!("cannot be read at batch {number}: it {error}"))?);
    }
    if !rest.is_empty() {
        return Err("goes on behind its end".to_owned());
    }
    Ok((register, Late { shard, digest, batches }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "files are damaged here")]

    use super::*;
    use crate::core::types::{Generation, ShardTime};
    use crate::store::codec::Format;
    use crate::store::{Epoch, Seq, Token, fence};

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
        let encoded = |seq| {
            let mut bytes = Vec::new();
            fence::encode(&batch(seq), Format::FIRST, &mut bytes).unwrap();
            bytes
        };
        (1..=count).map(encoded).collect()
    }

    #[test]
    fn what_is_late_is_there_after_a_restart_until_it_is_dealt_with() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("new");
        let lates = Lates::open(Some(&inside), 5).unwrap();
        let first = lates.add(ShardId(3), Digest(1), &batches(2)).unwrap();
        assert_eq!(lates.add(ShardId(3), Digest(1), &batches(2)).unwrap(), first);
        lates.add(ShardId(3), Digest(2), &batches(1)).unwrap();
        let again = Lates::open(Some(&inside), 5).unwrap();
        assert_eq!(again.all().len(), 2);
        let found = again.all().into_iter().find(|late| late.digest == Digest(1)).unwrap();
        assert_eq!((&found, found.batches.len()), (&first, 2));
        assert_eq!(Lates::open(Some(&inside), 6).unwrap().all().len(), 0, "of another register");
        again.remove(&found).unwrap();
        assert_eq!(again.all().len(), 1);
        assert_eq!(Lates::open(Some(&inside), 5).unwrap().all().len(), 1);
        // Where nothing is kept, it is there as long as the process.
        let nowhere = Lates::open(None, 5).unwrap();
        let late = nowhere.add(ShardId(3), Digest(1), &batches(2)).unwrap();
        nowhere.remove(&late).unwrap();
        assert!(nowhere.all().is_empty());
    }

    #[test]
    fn a_file_with_one_changed_byte_or_cut_anywhere_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let lates = Lates::open(Some(directory.path()), 5).unwrap();
        lates.add(ShardId(3), Digest(1), &batches(2)).unwrap();
        let path = lates.path(ShardId(3), Digest(1)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let header = TITLE.len() + 1 + 16 + 2 + 16;
        for at in (0..TITLE.len()).chain(header..whole.len()) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert!(matches!(Lates::open(Some(directory.path()), 5), Err(StoreError::Damaged(_))), "byte {at}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(matches!(Lates::open(Some(directory.path()), 5), Err(StoreError::Damaged(_))), "{length} bytes");
        }
    }
}
