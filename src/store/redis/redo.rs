//! The redo journal: changes that were acknowledged although fewer replicas have them than are wanted, on the disk of this
//! machine (`store.redis_degrade`, R-8).
//!
//! While too few replicas answer, a round of confirmations ends with a flush of this file instead of a count: the file has
//! everything that was sent since enough replicas had everything. What a failover loses of it is healed from memory as
//! usual. The next process has it from here (`restore`), as if it had sent it itself: what Redis lacks is replayed if no
//! other node took the register meanwhile, and put aside and given back if one did. The file is emptied when enough replicas
//! have all of it and the owner of the register has it on its line, which is checked once a second (see `checks`).
//!
//! **A process that ends** and does not know whether the register has all that it acknowledged leaves here what it remembers
//! ([`leave`]), whether or not replicas are waited for.
//!
//! **Removals.** The file notes which changes need not be given back any more: those that are missing on the line that
//! goes on, and that were put aside elsewhere or that no client was told of. Changes up to the point where the lines
//! parted stay: they were acknowledged, and perhaps only one server has them.
//!
//! **The disk** holds up nothing else, and is not awaited for long. While it hangs, nothing more is accepted, but only for
//! as long as a task has the file. A node that is not ready may get no request by which it would notice a recovery, so a
//! disk that could not be written is tried again once a second ([`try_again`]).
//!
//! Neighbours: `confirms` calls [`keep`]; `journal` has what must be kept; `written` reads and makes calls; `frames` is the
//! file's form, `restored` what a start makes of it, `others` what a start or a move does with that of another register.

mod frames;
mod others;
mod restored;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use self::frames::{FRAME_BYTES_FULL, Redone, TITLE, Unread, decode, encode};
pub(super) use self::others::{LeftJournal, check_others, shards_left};
pub(super) use self::restored::restore;
use super::blocking::Blocking;
use super::journal::{Deed, Point, Unkept};
use super::shared::{RedisShared, locked};
use super::written;
use crate::store::{ShardId, StoreError, whole};

pub(super) use crate::store::moving::REDO_PREFIX as PREFIX;
use crate::store::moving::redo_keeps;
/// How long the disk may take: less than the time for which a commit is awaited.
const DISK_WITHIN: Duration = Duration::from_secs(1);
/// The same for everything that is remembered at the end: up to `store.redis_heal_bytes`.
const LEFT_WITHIN: Duration = Duration::from_secs(10);
/// With how many bytes a disk that refused some is tried: as many as it refused, but at least a block, and not more than can
/// be written quickly once a second.
const TRIED_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=4 << 20;
const HANGS: &str = "the disk of the redo journal does not answer";

#[derive(Debug)]
pub(super) struct Redo {
    path: PathBuf,
    /// May changes be acknowledged that are in here and on too few replicas?
    acknowledges: bool,
    /// Held while the file is written, on whatever thread, and until the journal knows what is in it. So to whoever holds
    /// this, file and journal never differ.
    open: Arc<tokio::sync::Mutex<OpenFile>>,
    bytes: AtomicU64,
    /// Why nothing more can be kept. Outside the lock of the file, because it is read for every message while the file may
    /// be flushed.
    refuses: Mutex<Option<Refusal>>,
}

/// Why nothing more can be kept.
#[derive(Debug, Clone)]
struct Refusal {
    why: Arc<str>,
    /// How many bytes the disk refused; none if the disk is not the reason.
    unwritten: Option<usize>,
}

/// What is asked of the file once it is open. A disk may refuse any of it.
trait Medium: std::fmt::Debug + Send {
    fn write_at(&self, bytes: &[u8], at: u64) -> std::io::Result<()>;
    fn set_len(&self, length: u64) -> std::io::Result<()>;
    fn sync(&self) -> std::io::Result<()>;
}

impl Medium for File {
    fn write_at(&self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn set_len(&self, length: u64) -> std::io::Result<()> {
        File::set_len(self, length)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.sync_data()
    }
}

#[derive(Debug)]
struct OpenFile {
    /// Locked while the process lives: two nodes in one directory would write over each other.
    file: Box<dyn Medium>,
    /// Where the next frame begins, which the frame itself states. It is written there whatever became of earlier attempts:
    /// a frame at another place than it states would be taken for a torn end.
    end: u64,
    /// Something of which no client was told may lie after the end, or may come back there. It is removed before anything is
    /// added: otherwise its rest, after something shorter, would be read as if a client had been told of it.
    has_rest: bool,
}

impl OpenFile {
    fn add(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.has_rest {
            self.file.set_len(self.end)?;
        }
        self.has_rest = true;
        self.file.write_at(bytes, self.end)?;
        self.file.sync()?;
        self.has_rest = false;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Does the disk accept data again? Writes zeros, with which no frame begins, and cuts them off.
    fn try_out(&mut self, bytes: usize) -> std::io::Result<()> {
        self.has_rest = true;
        self.file.set_len(self.end)?;
        self.file.write_at(&vec![0; bytes.clamp(*TRIED_BYTES.start(), *TRIED_BYTES.end())], self.end)?;
        self.file.sync()?;
        self.file.set_len(self.end)?;
        self.file.sync()?;
        self.has_rest = false;
        Ok(())
    }

    /// Empties the file. The inner result says whether this is durable, too.
    fn empty(&mut self) -> std::io::Result<std::io::Result<()>> {
        let begin = TITLE.len() as u64;
        self.file.set_len(begin)?;
        (self.end, self.has_rest) = (begin, true);
        let synced = self.file.sync();
        self.has_rest = synced.is_err();
        Ok(synced)
    }
}

/// The file at this place is not read.
fn unread(path: &Path, why: Unread) -> StoreError {
    let (path, of) = (path.display(), "it has changes that were acknowledged and that Redis may lack");
    match why {
        Unread::Damaged(what) => {
            let text = format!(
                "{path} {what}: {of}. Bring it back from a copy, or move it away and compare what was granted then with who \
                 uses it"
            );
            StoreError::Damaged(text.into())
        }
        Unread::Newer(what) => StoreError::newer(format_args!("{path} {what}: {of}")),
    }
}

fn path_of(directory: &Path, register: u128) -> PathBuf {
    directory.join(format!("{PREFIX}{register:032x}"))
}

fn length(path: &Path) -> Result<Option<u64>, StoreError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(whole::io("reading", path)(error)),
    }
}

/// Did an earlier process leave anything there?
///
/// # Errors
/// The file cannot be read.
fn is_left(directory: &Path, register: u128) -> Result<bool, StoreError> {
    Ok(length(&path_of(directory, register))?.is_some_and(redo_keeps))
}

/// What an existing file contained.
#[derive(Debug, Default)]
pub(super) struct Found(Vec<Redone>);

impl Redo {
    /// Opens the file of a register in a directory, or creates it if it may be needed, and reads what an earlier process
    /// left in it. None if nothing may be kept and nothing is there.
    ///
    /// # Errors
    /// The file cannot be read or written, is damaged, or is another process's.
    pub(super) fn open(
        directory: &Path,
        register: u128,
        acknowledges: bool,
    ) -> Result<Option<(Self, Found)>, StoreError> {
        let is_wanted = acknowledges || is_left(directory, register)?;
        if is_wanted { Self::made(path_of(directory, register), acknowledges).map(Some) } else { Ok(None) }
    }

    fn made(path: PathBuf, acknowledges: bool) -> Result<(Self, Found), StoreError> {
        if length(&path)?.is_none() {
            // Created completely or not at all. An existing file is never replaced, or it would not be the one that is locked.
            whole::write(&path, TITLE.as_bytes()).map_err(whole::io("writing", &path))?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(whole::io("opening", &path))?;
        if let Err(error) = file.try_lock() {
            let text = format!(
                "{} is another server's ({error}); give each node a `store.directory` of its own, or end the other one",
                path.display()
            );
            return Err(StoreError::Locked(text.into()));
        }
        let bytes = std::fs::read(&path).map_err(whole::io("reading", &path))?;
        let (found, end) = decode(&bytes).map_err(|why| unread(&path, why))?;
        // No client was told of what is torn.
        file.set_len(end).and_then(|()| file.sync_all()).map_err(whole::io("writing", &path))?;
        let open = Arc::new(tokio::sync::Mutex::new(OpenFile { file: Box::new(file), end, has_rest: false }));
        let bytes = AtomicU64::new(end - TITLE.len() as u64);
        Ok((Self { path, acknowledges, open, bytes, refuses: Mutex::default() }, Found(found)))
    }

    /// May it stand in for missing replicas?
    pub(super) fn acknowledges(&self) -> bool {
        self.acknowledges
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn refuses(&self) -> Option<Arc<str>> {
        let mut refuses = locked(&self.refuses);
        // A task may note that the disk hangs just after the disk has answered. If no task has the file, it does not
        // hang.
        refuses.take_if(|refusal| &*refusal.why == HANGS && self.open.try_lock().is_ok());
        refuses.as_ref().map(|refusal| Arc::clone(&refusal.why))
    }

    /// Does it refuse to keep anything until enough replicas have everything? The disk may work.
    pub(super) fn awaits_replicas(&self) -> bool {
        let is_for_replicas = |refusal: &Refusal| refusal.unwritten.is_none() && &*refusal.why != HANGS;
        locked(&self.refuses).as_ref().is_some_and(is_for_replicas)
    }

    /// Notes that nothing more can be kept for now.
    fn refuse(&self, why: &'static str) -> StoreError {
        let before = locked(&self.refuses).replace(Refusal { why: why.into(), unwritten: None });
        if before.is_none_or(|before| *before.why != *why) {
            tracing::error!(path = %self.path.display(), why, "nothing more is acknowledged before the replicas are there");
        }
        let context = "keeping what too few replicas of Redis have".into();
        StoreError::Io { context, source: Arc::new(std::io::Error::other(why)) }
    }

    /// The file, for one task at a time.
    async fn opened(&self, by: Instant) -> Result<OwnedMutexGuard<OpenFile>, StoreError> {
        let opened = tokio::time::timeout_at(by, Arc::clone(&self.open).lock_owned()).await;
        opened.map_err(|_| self.refuse(HANGS))
    }

    /// Works on the file on a thread that may block. If the disk hangs, nothing more is asked of it until it answers: a node
    /// that waited for it would keep the register and confirm nothing, and no other node could take over.
    async fn works(
        self: &Arc<Self>,
        blocking: Blocking,
        mut open: OwnedMutexGuard<OpenFile>,
        by: Instant,
        with: impl FnOnce(&Self, &mut OpenFile) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), StoreError> {
        let redo = Arc::clone(self);
        let working = blocking.run(move || with(&redo, &mut open));
        tokio::time::timeout_at(by, working).await.unwrap_or_else(|_| Err(self.refuse(HANGS)))
    }

    fn append(&self, open: &mut OpenFile, deeds: &[Redone]) -> Result<(), StoreError> {
        let mut left = deeds;
        while !left.is_empty() {
            let (bytes, count) = encode(left, open.end, FRAME_BYTES_FULL);
            if let Err(error) = open.add(&bytes) {
                if locked(&self.refuses).replace(self.unwritten(&error, bytes.len())).is_none() {
                    tracing::error!(path = %self.path.display(), %error, "the redo journal cannot be written");
                }
                // All of it is written again the next time: nobody knows what of it is on disk, and no client was told.
                return Err(whole::io("writing", &self.path)(error));
            }
            self.bytes.store(open.end - TITLE.len() as u64, Ordering::Relaxed);
            left = &left[count..];
        }
        if !deeds.is_empty() {
            *locked(&self.refuses) = None;
        }
        Ok(())
    }

    fn unwritten(&self, error: &std::io::Error, bytes: usize) -> Refusal {
        Refusal { why: format!("{} cannot be written ({error})", self.path.display()).into(), unwritten: Some(bytes) }
    }

    /// The disk refused this many bytes. Does it accept as many now?
    fn try_out(&self, open: &mut OpenFile, bytes: usize) -> Result<(), StoreError> {
        let tried = open.try_out(bytes);
        let mut refuses = locked(&self.refuses);
        if let Err(error) = tried {
            // A task that waited for the file meanwhile may have noted that the disk hangs; this is over now.
            if refuses.as_ref().is_none_or(|refusal| &*refusal.why == HANGS) {
                *refuses = Some(self.unwritten(&error, bytes));
            }
            return Err(whole::io("writing", &self.path)(error));
        }
        if refuses.take_if(|refusal| refusal.unwritten.is_some()).is_some() {
            tracing::info!(path = %self.path.display(), "the redo journal can be written again");
        }
        Ok(())
    }

    /// Empties the file: enough replicas have all that is in it.
    fn empty(&self, open: &mut OpenFile) {
        match open.empty() {
            Ok(synced) => {
                let bytes = self.bytes.swap(0, Ordering::Relaxed);
                *locked(&self.refuses) = None;
                tracing::info!(path = %self.path.display(), bytes, "enough replicas have what was in the redo journal");
                if let Err(error) = synced {
                    // If the content comes back, enough replicas have it all the same.
                    tracing::warn!(path = %self.path.display(), %error, "the redo journal is not known to be empty on disk");
                }
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the redo journal cannot be emptied");
            }
        }
    }
}

/// Notes that all changes of a shard so far were put aside elsewhere, durably, or that no client was told of them, so
/// that the next process does not put them aside again. Changes that lead to the point `stays` are excepted: they are on
/// the line that goes on, and perhaps only one server has them.
///
/// # Errors
/// The note cannot be written.
pub(super) async fn put_aside(shared: &RedisShared, shard: ShardId, stays: Point) -> Result<(), StoreError> {
    let Some(redo) = &shared.redo else { return Ok(()) };
    let by = Instant::now() + DISK_WITHIN;
    let open = redo.opened(by).await?;
    // What a failed flush left behind the end is perhaps whole: the next process would put it aside once more. The note takes
    // its place.
    if redo.bytes() == 0 && !open.has_rest {
        return Ok(());
    }
    let stays = shared.journal().kept_last(shard, stays);
    redo.works(shared.blocking, open, by, move |redo, open| redo.append(open, &[Redone::Aside(shard, stays)])).await
}

/// Enough replicas have everything that was in the file when it had this many bytes. Empties it, if nothing was added since.
pub(super) async fn empty(shared: &RedisShared, bytes: u64) {
    let Some(redo) = &shared.redo else { return };
    let by = Instant::now() + DISK_WITHIN;
    let Ok(open) = redo.opened(by).await else { return };
    if bytes == 0 && redo.refuses().is_none() || redo.bytes() != bytes {
        return;
    }
    // If the file cannot be emptied, its entries are written to it again; a start restores each of them only once.
    shared.journal().emptied();
    let emptied = redo.works(shared.blocking, open, by, |redo, open| {
        redo.empty(open);
        Ok(())
    });
    if let Err(error) = emptied.await {
        tracing::warn!(path = %redo.path.display(), %error, "the redo journal is emptied later");
    }
}

/// Too few replicas have what was sent. Keeps it on this machine instead, if that is permitted.
///
/// # Errors
/// `too_few` if it is not permitted; otherwise why it cannot be kept.
pub(super) async fn keep(shared: &Arc<RedisShared>, too_few: StoreError) -> Result<(), StoreError> {
    let Some(redo) = shared.stand_in() else { return Err(too_few) };
    let by = Instant::now() + DISK_WITHIN;
    let (open, shared) = (redo.opened(by).await?, Arc::clone(shared));
    let keeping = redo.works(shared.blocking, open, by, move |redo, open| {
        let (unkept, is_full) = {
            let journal = shared.journal();
            (journal.unkept(), journal.is_full())
        };
        if is_full {
            return Err(redo.refuse("the redo journal is full (store.redis_heal_bytes)"));
        }
        // None: more was under way at once than the journal remembers.
        let unkept = unkept.ok_or_else(|| redo.refuse("some of what is to be kept is remembered no more"))?;
        let deeds: Option<Vec<Redone>> = unkept.iter().map(redone).collect();
        redo.append(open, &deeds.ok_or_else(|| redo.refuse("what is to be kept is no commit"))?)?;
        shared.journal().kept(&unkept);
        Ok(())
    });
    keeping.await
}

/// Tries the disk again, if it refused something while replicas were missing. A node that owns nothing writes nothing, so
/// it would not notice otherwise that the disk works again. Does not wait for the disk, because the caller must also
/// renew a lease.
pub(super) fn try_again(shared: &RedisShared) {
    let Some(redo) = shared.stand_in() else { return };
    let Some(bytes) = locked(&redo.refuses).as_ref().and_then(|refusal| refusal.unwritten) else { return };
    // Otherwise the task that has the file will find out.
    let Ok(mut open) = Arc::clone(&redo.open).try_lock_owned() else { return };
    let (redo, blocking) = (Arc::clone(redo), shared.blocking);
    tokio::spawn(async move {
        if let Err(error) = blocking.run(move || redo.try_out(&mut open, bytes)).await {
            tracing::debug!(%error, "the redo journal cannot be written yet");
        }
    });
}

/// This process ends: leaves what it remembers of what clients were told for the next process. Returns how many changes
/// these are, and where the file is.
///
/// # Errors
/// There is no directory for it, or the file cannot be written.
pub(super) async fn leave(shared: &RedisShared) -> Result<Option<(usize, PathBuf)>, StoreError> {
    let remembered = shared.journal().remembered();
    if !remembered.iter().any(|one| matches!(one.deed, Deed::Commit(_) | Deed::Batch(_))) {
        return Ok(None);
    }
    let redo = match &shared.redo {
        Some(redo) => Arc::clone(redo),
        None => {
            let nowhere = || StoreError::Invalid("there is no directory to keep it in (`store.directory`)".into());
            let path = path_of(shared.lates.directory().ok_or_else(nowhere)?, shared.info.register);
            Arc::new(shared.blocking.run(move || Redo::made(path, false)).await?.0)
        }
    };
    let by = Instant::now() + LEFT_WITHIN;
    let (open, count) = (redo.opened(by).await?, remembered.len());
    let keeping = redo.works(shared.blocking, open, by, move |redo, open| {
        let deeds: Vec<Redone> = remembered.iter().filter_map(redone).collect();
        redo.append(open, &deeds)
    });
    keeping.await?;
    Ok(Some((count, redo.path.clone())))
}

fn redone(unkept: &Unkept) -> Option<Redone> {
    match (&unkept.deed, unkept.moves.first()) {
        (Deed::Take(epoch), Some(taken)) => Some(Redone::Take(*taken, *epoch)),
        (Deed::Commit(call), _) => {
            let batches = written::read(call)?.into_iter();
            // A batch without digests followed nothing that was sent, so Redis refused it.
            let linked = batches.filter_map(|(bytes, digests)| Some((bytes.to_vec(), digests?)));
            Some(Redone::Commit { applied: unkept.applied, batches: linked.collect() })
        }
        (Deed::Batch(batch), Some(one)) => {
            let written = (batch.bytes.clone(), (one.before.digest, one.after.digest));
            Some(Redone::Commit { applied: unkept.applied, batches: vec![written] })
        }
        (Deed::Take(_) | Deed::Batch(_), None) => None,
    }
}
