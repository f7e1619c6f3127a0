//! The register in a data directory: a log of preallocated segments, and snapshots of the state that it leads to.
//!
//! ```text
//! META   whose data, how many shards        LOCK   who has it open
//! MARK   last acknowledged group            log/00000001.seg …   snap/….snap
//! MOVED  only where it is moved: see `moving`
//! ```
//!
//! A commit is a frame at the end of the log and one flush for all that waited, of all shards. A segment is zeroed and
//! durable before it is used, so a flush changes no metadata. A start reads everything: see `recovery` for what is refused,
//! and `directory` for what is made and repaired. Segments stay as history within `retention`; once a snapshot covers them,
//! state is never taken from them.
//!
//! Threads: `writer`, `allocator`, `compactor` (not while the register is being moved away), `reader` twice. Callers never
//! block on them: each call is a message to one of them and a future. Calls take effect in their order.
//!
//! Why own segments and not redb: two-phase commit, the setting of redb that loses nothing to a changed byte, flushes twice
//! and writes pages around each record. `benches/store.rs` measures both with the same encoded batches. Medians on two cores
//! shared with several builds (so compare, do not quote), in ms for groups of 1, 32, 256, 1024 reservations: 4.0, 3.1, 4.5,
//! 4.5 here and 10.4, 10.7, 8.5, 13.5 in redb; the least seen 0.4, 0.4, 0.5, 0.7 and 4.0, 8.1, 2.7, 8.5.
//!
//! After a loss of power a sector may be lost or have its old content. It is assumed that a write never corrupts the bytes
//! of its sector that it does not change: a frame shares no bytes with the one before it, but may share its last sector.

mod allocator;
mod compactor;
mod directory;
pub mod disk;
mod frame;
mod giving_up;
mod history;
mod index;
mod lost_snapshot;
mod meta;
mod moving;
pub mod nameplate;
mod observed;
mod options;
mod plates;
mod presence;
mod problem;
mod reader;
mod recovery;
mod replay;
mod report;
mod retention;
mod segment;
mod shared;
mod snapshot;
mod source;
mod steps;
mod window;
mod writer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

pub use moving::look_at_target;
pub use options::EmbeddedOptions;
pub use report::{CannotCopy, Report, copy, copy_heard, left_behind, look, taken, verify};

use self::directory::{initialise, initialised, lock, mend, take_lock};
use self::disk::DirectoryLock;
use self::meta::{Mark, Meta};
use self::options::act_bytes_max;
use self::recovery::{GivesUp, Ground, Recovered};
use self::shared::{EmbeddedShared, LogFiles};
use self::writer::{Active, Writer};
use crate::limits::SHARDS_OF_NEW;
use crate::store::history::{RecordedBatch, Stretch};
use crate::store::moving::{MoveNotice, Opening};
use crate::store::{
    Batch, CommitError, Committed, Digest, Head, Later, Seq, ShardId, ShardImage, Store, StoreError, StoreFigures,
    StoreHealth, StoreInfo, Token,
};

/// Calls that wait for a thread. Each shard's committer has only a few under way, so a healthy store never reaches this.
const QUEUE_CALLS_MAX: usize = 65_536;

/// Keeps the register in a directory of this machine.
#[derive(Debug)]
pub struct EmbeddedStore {
    shared: Arc<EmbeddedShared>,
    writer: SyncSender<writer::WriteJob>,
    readers: Mutex<Option<Readers>>,
    /// The threads; none once the store is closed.
    running: Mutex<Option<Vec<JoinHandle<()>>>>,
    torn_bytes: u64,
    notice: Mutex<Option<MoveNotice>>,
}

/// The channels to the threads that read.
#[derive(Debug)]
struct Readers {
    /// For loads by the owner.
    loads: SyncSender<reader::ReadJob>,
    /// For everything else.
    reads: SyncSender<reader::ReadJob>,
}

fn unknown_shard(shard: ShardId, count: usize) -> StoreError {
    StoreError::Invalid(format!("there is no shard {}: the register has {count}, from 0", shard.0).into())
}

impl EmbeddedStore {
    /// Opens the register in `dir`, or makes a new one of `shards` shards there if the directory is empty or absent. Without
    /// a number, an existing register keeps its number of shards and a new one gets [`SHARDS_OF_NEW`]. A register that is
    /// being moved keeps its number in any case.
    ///
    /// Reads every file, so it takes as long as the disk needs for that. Call it where blocking is allowed.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if it is open already, [`StoreError::Foreign`] if it is something else or has another number
    /// of shards, [`StoreError::Damaged`] if anything that was acknowledged is missing, [`StoreError::HistoryDamaged`] if
    /// all state exists but some of the history does not, [`StoreError::SnapshotDamaged`] if a snapshot is damaged and the
    /// log has all of it.
    pub fn open(dir: &Path, shards: impl Into<Option<u16>>, options: EmbeddedOptions) -> Result<Self, StoreError> {
        let disk = options.disk.clone();
        let smallest = 4 * (segment::HEADER_BYTES + frame::SEAL_BYTES) as u64;
        let wanted: Option<u16> = shards.into();
        if wanted == Some(0) || options.segment_bytes < smallest {
            let text = format!("a register has 1 shard at least, and segments of {smallest} bytes");
            return Err(StoreError::Invalid(text.into()));
        }
        moving::check_before(&*disk, dir, &options.opening)?;
        let is_target = matches!(options.opening, Opening::Target { .. });
        let lock = if is_target { take_lock(&*disk, dir) } else { lock(&*disk, dir) }?;
        let notice = moving::check(&*disk, dir, &options.opening)?;
        moving::check_beside_redis(&*disk, dir, &options.opening)?;
        let is_new = !initialised(&*disk, dir)?;
        if is_new {
            initialise(&*disk, dir, wanted.unwrap_or(SHARDS_OF_NEW), &options)?;
        }
        let mut meta = Meta::read(&*disk, dir)?;
        if is_new && options.opening == Opening::Serve {
            // A disk that is not mounted, or a mistake in the name, looks just like this.
            let (directory, register, shards) = (dir.display(), format!("{:032x}", meta.register), meta.shards);
            tracing::info!(
                %directory, register, shards,
                "began a new, empty register: every address is free in it. If there should have been one, stop the server, and see \
                 whether its disk is mounted there"
            );
        }
        moving::check_register(dir, &meta, &options.opening)?;
        let as_it_is = matches!(options.opening, Opening::Source | Opening::Unfinished(_));
        if let Some(wanted) = wanted.filter(|&wanted| wanted != meta.shards && !as_it_is) {
            let text = format!(
                "belongs to a register of {} shards, which is fixed at its first start, and the configuration says \
                 {wanted}; leave `store.shards` out, or set it to {}, or give another data directory",
                meta.shards, meta.shards
            );
            return Err(problem::foreign(dir, text));
        }
        let (mark, marked) = Mark::open(&*disk, dir)?;
        let ground = Ground { disk: &*disk, dir, meta: &meta, marked, to_be_loaded: true };
        let gives_up = GivesUp { history: options.give_up_history, snapshot: options.give_up_snapshot };
        let mut recovered = recovery::recover(ground, gives_up)?;
        if let Some(lost) = &recovered.lost_snapshot {
            recovered.snapshots_aside += lost.set_aside(&*disk, dir, recovered.oldest_noted)?;
        }
        if let Some(given_up) = &recovered.given_up {
            recovered.aside += given_up.set_aside(&*disk, dir)?;
        }
        mend(&*disk, dir, &recovered)?;
        if matches!(options.opening, Opening::Serve) && recovered.group > 0 {
            index::look_for(&*disk, dir)?;
        }
        if options.accept_restored && meta.restored_from != 0 {
            tracing::warn!(dir = %dir.display(), "the restored register is accepted: it grants again");
            meta.restored_from = 0;
            meta.write(&*disk, dir)?;
        }
        Self::start(dir, meta, options, mark, recovered, (lock, notice))
    }

    fn start(
        dir: &Path,
        meta: Meta,
        options: EmbeddedOptions,
        mark: Mark,
        recovered: Recovered,
        (lock, notice): (DirectoryLock, Option<MoveNotice>),
    ) -> Result<Self, StoreError> {
        let torn_bytes = recovered.torn.as_ref().map_or(0, |torn| torn.bytes);
        let Recovered { lines, history, segments, spares, snapshot, group, digest, open_end, prepared, .. } = recovered;
        let (aside, snapshots_aside) = (recovered.aside, recovered.snapshots_aside);
        let last_number = segments.last().map_or(0, |kept| kept.segment.header.number);
        let oldest = snapshot.as_ref().map_or(1, |snapshot| snapshot.place.oldest);
        let next_number = (last_number + 1).max(oldest) + spares.len() as u64;
        let active = segments.last().zip(open_end);
        let active = active.map(|(kept, at)| Active { segment: kept.segment.clone(), file: kept.file.clone(), at });
        let catalog = LogFiles {
            heads: lines.iter().map(crate::store::fence::FenceLine::head).collect(),
            history,
            segments,
            spares: spares.into(),
            is_awaited: false,
            next_number,
            snapshot,
            stopping: false,
            failure: None,
            aside,
            snapshots_aside,
            damage: BTreeMap::new(),
        };
        let shared = Arc::new(EmbeddedShared::new((dir.into(), lock, mark.clone()), meta, options, catalog, prepared));
        let (writer, writer_jobs) = sync_channel(QUEUE_CALLS_MAX);
        let (loads, load_jobs) = sync_channel(QUEUE_CALLS_MAX);
        let (reads, read_jobs) = sync_channel(QUEUE_CALLS_MAX);
        let state = Writer {
            shared: shared.clone(),
            jobs: writer_jobs,
            lines,
            active,
            group,
            digest,
            mark,
            frame: Vec::new(),
            scratch: Vec::new(),
            carried: None,
        };
        let (for_loads, for_reads) = (shared.clone(), shared.clone());
        let (for_allocator, for_compactor) = (shared.clone(), shared.clone());
        let mut threads = vec![
            spawn("store-writer", &shared, move || state.run())?,
            spawn("store-loads", &shared, move || reader::run(&for_loads, &load_jobs))?,
            spawn("store-reads", &shared, move || reader::run(&for_reads, &read_jobs))?,
            spawn("store-allocator", &shared, move || allocator::run(&for_allocator))?,
        ];
        // A register that is being moved away keeps its history: the move does not know its server's bounds.
        if shared.options.opening != Opening::Source {
            threads.push(spawn("store-compactor", &shared, move || compactor::run(&for_compactor))?);
        }
        let running = Mutex::new(Some(threads));
        let (readers, notice) = (Mutex::new(Some(Readers { loads, reads })), Mutex::new(notice));
        Ok(Self { shared, writer, readers, running, torn_bytes, notice })
    }

    /// The register that this one was restored from, if it was: it must be reconciled before it grants automatically.
    pub fn restored_from(&self) -> Option<u128> {
        Some(self.shared.meta.restored_from).filter(|&register| register != 0)
    }

    /// Bytes of a torn tail that the start cut off: written by a process that lost power, and never acknowledged.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    fn queue(&self, job: writer::WriteJob) -> Result<(), StoreError> {
        self.writer.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => busy("the store's writer"),
            TrySendError::Disconnected(_) => self.shared.poisoned(),
        })
    }

    fn ask<T: Send + 'static>(
        &self,
        whom: impl FnOnce(&Readers) -> &SyncSender<reader::ReadJob>,
        make: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> reader::ReadJob,
    ) -> Later<Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let sender = self.readers.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(whom).cloned();
        let asked = match sender.map(|sender| sender.try_send(make(reply))) {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_))) => Err(busy("the store's reader")),
            Some(Err(TrySendError::Disconnected(_))) | None => Err(self.shared.poisoned()),
        };
        Box::pin(async move {
            asked?;
            answer.await.unwrap_or_else(|_| Err(StoreError::Poisoned("its reader thread ended".into())))
        })
    }

    /// Tells all threads to end, and returns those that must be waited for.
    fn stop(&self) -> Option<Vec<JoinHandle<()>>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        // If the queue is full, this waits until the writer has taken something; if the writer has ended, nobody needs to be
        // told.
        let _ = self.writer.send(writer::WriteJob::Close);
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).take();
        Some(running)
    }
}

/// Waits for the threads of a store that was told to stop, then lets others open it.
fn wait(shared: &EmbeddedShared, threads: Vec<JoinHandle<()>>) {
    let mut threads = threads.into_iter();
    // The writer first: whatever was queued before the end is still committed, and may need a new segment.
    if let Some(writer) = threads.next() {
        drop(writer.join());
    }
    shared.stop();
    for thread in threads {
        drop(thread.join());
    }
    shared.release();
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        if let Some(running) = self.stop() {
            wait(&self.shared, running);
        }
    }
}

fn busy(what: &str) -> StoreError {
    let source = Arc::new(std::io::Error::from(std::io::ErrorKind::WouldBlock));
    StoreError::Io { context: format!("queueing for {what}").into(), source }
}

/// Marks the store failed if its thread panics: without any one of the threads the store would sooner or later stand still.
struct FailOnPanic(Arc<EmbeddedShared>, &'static str);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(format!("its thread {} panicked", self.1).into());
        }
    }
}

fn spawn(
    name: &'static str,
    shared: &Arc<EmbeddedShared>,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StoreError> {
    let guard = FailOnPanic(Arc::clone(shared), name);
    let spawned = std::thread::Builder::new().name(name.into()).spawn(move || {
        let _guard = guard;
        run();
    });
    spawned
        .map_err(|error| StoreError::Io { context: format!("starting thread {name}").into(), source: Arc::new(error) })
}

impl Store for EmbeddedStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            kind: "embedded",
            durability: "loss of power: each change is flushed to this machine's disk before it is acknowledged".into(),
            full: shared::NO_ROOM,
            register: self.shared.meta.register,
            shards: self.shared.meta.shards,
            commits_shards_together: true,
            ownership_is_standing: true,
            may_be_emptied: false,
            act_bytes_max: act_bytes_max(self.shared.options.segment_bytes),
            move_bytes_max: act_bytes_max(self.shared.options.segment_bytes),
            restored_from: self.restored_from(),
        }
    }

    fn health(&self) -> StoreHealth {
        self.shared.health()
    }

    fn lacks_room(&self) -> bool {
        self.shared.lacks_room()
    }

    fn obstacle(&self) -> Arc<str> {
        self.shared.obstacle()
    }

    fn room(&self) -> Option<u64> {
        self.shared.room()
    }

    fn damage(&self) -> Option<Arc<str>> {
        self.shared.damage()
    }

    fn figures(&self) -> StoreFigures {
        self.shared.figures()
    }

    fn take(&self, shard: ShardId, token: Token) -> Later<Result<Head, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let queued = self.queue(writer::WriteJob::Take(shard, token, reply));
        Box::pin(async move {
            queued?;
            answer.await.unwrap_or_else(|_| Err(StoreError::Poisoned("its writer thread ended".into())))
        })
    }

    fn load(&self, shard: ShardId, token: Token) -> Later<Result<ShardImage, StoreError>> {
        self.ask(|readers| &readers.loads, |reply| reader::ReadJob::Load(shard, Some(token), reply))
    }

    fn beside(&self, shard: ShardId) -> Later<Result<ShardImage, StoreError>> {
        self.ask(|readers| &readers.reads, |reply| reader::ReadJob::Load(shard, None, reply))
    }

    fn reread(&self, from: u64) -> Later<Result<Option<u64>, StoreError>> {
        self.ask(|readers| &readers.reads, |reply| reader::ReadJob::Reread(from, reply))
    }

    fn commit(&self, batches: Arc<[Batch]>) -> Later<Result<Vec<Committed>, CommitError>> {
        let (reply, answer) = oneshot::channel();
        let queued = self.queue(writer::WriteJob::Commit(batches, reply));
        Box::pin(async move {
            queued.map_err(|cause| CommitError::NotApplied { cause })?;
            answer.await.unwrap_or_else(|_| {
                Err(CommitError::Unknown { cause: StoreError::Poisoned("its writer thread ended".into()) })
            })
        })
    }

    fn confirm(&self, batches: Vec<(ShardId, Token, Seq, Digest)>) -> Later<Result<(), CommitError>> {
        // A commit is answered once it is durable. What remains to be proved is that it happened, and under this token.
        let heads = self.shared.catalog().heads.clone();
        let confirmed = batches.into_iter().try_for_each(|(shard, token, seq, digest)| {
            let Some(head) = heads.get(usize::from(shard.0)) else {
                return Err(CommitError::NotApplied { cause: unknown_shard(shard, heads.len()) });
            };
            let reached = seq < head.seq || (seq == head.seq && digest == head.digest);
            if head.token == token && reached {
                Ok(())
            } else {
                Err(CommitError::Fenced { shard, current: head.epoch })
            }
        });
        Box::pin(std::future::ready(confirmed))
    }

    fn recorded(&self, stretches: Vec<Stretch>, bytes: usize) -> Later<Result<Vec<RecordedBatch>, StoreError>> {
        self.ask(|readers| &readers.reads, |reply| reader::ReadJob::Recorded(stretches, bytes, reply))
    }

    fn directory(&self) -> Option<PathBuf> {
        Some(self.shared.dir.clone())
    }

    fn close(&self) -> Later<()> {
        let Some(running) = self.stop() else { return Box::pin(std::future::ready(())) };
        let (done, ended) = oneshot::channel();
        let shared = self.shared.clone();
        let waiter = spawn("store-closer", &Arc::clone(&shared), move || {
            wait(&shared, running);
            let _ = done.send(());
        });
        Box::pin(async move {
            if waiter.is_ok() {
                let _ = ended.await;
            }
        })
    }
}
