//! The register in Redis: records in compact hashes, a stream of batches for each shard, and scripts that compare before
//! they write.
//!
//! ```text
//!  commit ──▶ commits ──▶ net, line ──▶ link ══▶ EVALSHA commit        in order, several under way
//!          └▶ confirms ──────────────▶ link ══▶ EVALSHA confirm, WAIT  a round at a time, when it is applied
//!  take, renew ──▶ checks ────────────▶ link ══▶ EVALSHA take, lease
//!  load ──▶ load ─────────────────────▶ link ══▶ HGETALL …             in bounded pieces
//!  beside, recorded ─▶ load, history ─▶ link ══▶ HGETALL …, XRANGE …   in bounded pieces
//! ```
//!
//! There are six tasks with a connection each (`watch` is not shown), so that a batch never waits for a bulk read, nor a
//! load by an owner for other reads. The task that commits runs on the thread of the committer, once there is one: a round
//! trip to another thread took as long as Redis itself. The others run on threads of the store, so that leases are renewed
//! however busy the committer is. `keys` names everything that is stored in Redis, `scripts` everything that runs there.
//!
//! **Fence and expectations** are compared inside Redis, in the same script as the writes: a paused or slow owner cannot
//! write, whatever it believes. The batches of several shards go in one call, so they are applied together. For this all
//! keys of a register lie in one slot of a Redis cluster, and `cluster` finds the server that has it.
//!
//! **Nothing is missing unseen.** A cluster moves a slot key by key, and a move may break off; a server with full memory may
//! evict keys. While a slot is being moved, a commit is refused before it begins, because it names a key that never exists.
//! And every key is vouched for by another one, which is checked by `commit.lua` before it writes and by `whole` when a
//! shard is loaded.
//!
//! **In doubt.** A call that Redis refuses before a script begins was not applied; one that was sent and not answered is
//! unknown (see `failed`). A script that breaks off is not rolled back: it asks for whatever may be refused before its first
//! write, and what breaks off all the same is found when the shard is loaded (see `surplus`). The same bytes are recognised
//! by token, seq and digest, whichever connection brings them. A head that is behind what was acknowledged is healed from
//! what this process sent last, if it lies on its own line (see `heal`, `playing`, `awaited`, `finished`). A head that is
//! gone, or does not fit, stops the store: it is never taken for that of a new or an older register. A change that too few
//! replicas have may be acknowledged once it is on this machine's disk (see `redo`). A process that ends leaves there what
//! it acknowledged and does not know to be in Redis (see `farewell`). A file on this machine names the register, so that the
//! next process refuses an emptied Redis as well.
//!
//! **IPv6** has no fixed buckets: random addresses of a /64 would need a hash each. Its hashes cover from one LOW to the
//! next in an ordered index, and are split when they grow beyond 96 records; dense and sparse ones take the same room.
//!
//! **Room** for a million reservations with records of 47 bytes, without history (Redis 7.0.15; `used_memory`, and in
//! brackets the MEMORY USAGE of the hashes and of the index), in bytes for each: contiguous IPv4 61 (57.6, 1.6); IPv6 at
//! random in a /64 100 (92.5, 2.2), contiguous 104 (98.1, 2.1). The field of an IPv6 address takes 32 of these.
//!
//! Review notes: does every error have its class? Is anything sent twice except after NOSCRIPT? Does every script compare
//! everything before it writes? Is each wait bounded?

mod anew;
mod astray;
mod awaited;
mod begin;
mod blocking;
mod calls;
mod checks;
mod cluster;
mod commits;
mod confirms;
mod connect;
pub mod examine;
mod failed;
mod farewell;
mod finished;
mod followers;
mod following;
mod heal;
mod history;
mod identity;
mod indexer;
mod journal;
mod keys;
mod late;
mod left;
mod line;
mod link;
mod load;
mod moving;
mod net;
mod options;
mod place;
mod plate;
mod playing;
mod probe;
mod rare;
mod reach;
mod redo;
mod refusal;
mod replicas;
mod scripts;
mod sentinels;
mod server;
mod shared;
mod surplus;
mod take;
mod takes;
mod tls;
mod watch;
mod whole;
mod written;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::anew::Anew;
use self::begin::Begun;
use self::blocking::Blocking;
pub use self::connect::{RedisStream, RedisWay};
use self::identity::IdentityFile;
pub use self::identity::{is_noted, may_know};
use self::keys::Keys;
pub use self::keys::{check_prefix, commands_for};
use self::link::Link;
pub use self::moving::{has_password, without_secret};
pub use self::options::RedisOptions;
use self::place::RedisPlace;
pub use self::place::{check_url, is_over_tls};
use self::redo::{LeftJournal, Redo};
pub(crate) use self::refusal::WayRefusal;
use self::shared::{RedisShared, StoreParts};
pub use self::tls::{CertificateEnd, NearEnd, TlsEnds, TlsFiles};
use crate::store::embedded::{self, nameplate};
use crate::store::late::Lates;
use crate::store::lock::{self, FolderLock};
use crate::store::moving::{MoveNotice, Opening};
use crate::store::{NodeCard, StoreError, StoreInfo};

/// Calls that wait for a task. Each shard's committer has only a few under way, so a healthy store never reaches this.
const QUEUE_CALLS_MAX: usize = 65_536;

/// Keeps the register in a Redis server.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<RedisShared>,
    senders: Mutex<Option<Senders>>,
    running: Mutex<Option<Running>>,
    place: RedisPlace,
    /// Where it is, without a password.
    url: String,
    notice: Arc<Mutex<Option<MoveNotice>>>,
    /// Journals that its nodes left on their disks and whose content is all in Redis; set once.
    left_journals: OnceLock<Vec<LeftJournal>>,
    options: RedisOptions,
}

#[derive(Debug)]
struct Senders {
    /// To the task that commits, once something was committed.
    commits: Option<mpsc::Sender<commits::CommitJob>>,
    checks: mpsc::Sender<checks::CheckJob>,
    /// To the task that loads for an owner.
    loads: mpsc::Sender<load::LoadJob>,
    /// To the task for all other bulk reads.
    reads: mpsc::Sender<load::LoadJob>,
    confirms: mpsc::Sender<confirms::ConfirmJob>,
    /// When it is dropped with the rest, the watching task ends.
    _watch: mpsc::Sender<()>,
}

/// The threads of the store, and the tasks whose end means that everything that was begun is over.
#[derive(Debug)]
struct Running {
    ground: Ground,
    tasks: Vec<JoinHandle<()>>,
    /// Nobody else may have the directory before they have ended.
    directory: Option<FolderLock>,
}

impl Running {
    /// Does not wait for what was begun.
    fn shutdown(self) {
        if let Ground::Here(_) = self.ground {
            self.tasks.iter().for_each(JoinHandle::abort);
        }
        self.ground.shutdown();
    }
}

#[derive(Debug)]
enum Ground {
    /// On threads of the store: one runtime for work that each batch needs, one for bulk reads.
    Threads([Runtime; 2]),
    /// Where the store was opened.
    Here(Handle),
}

impl Ground {
    fn threads() -> Result<Self, StoreError> {
        Ok(Self::Threads([runtime("store-redis", 1)?, runtime("store-redis-load", 2)?]))
    }

    /// For work that each batch needs.
    fn swift(&self) -> &Handle {
        match self {
            Self::Threads([swift, _]) => swift.handle(),
            Self::Here(here) => here,
        }
    }

    /// For work that takes long.
    fn bulk(&self) -> &Handle {
        match self {
            Self::Threads([_, bulk]) => bulk.handle(),
            Self::Here(here) => here,
        }
    }

    /// A store without threads of its own starts none for files either.
    fn blocking(&self) -> Blocking {
        match self {
            Self::Threads(_) => Blocking::Threads,
            Self::Here(_) => Blocking::Here,
        }
    }

    fn shutdown(self) {
        if let Self::Threads(runtimes) = self {
            runtimes.into_iter().for_each(Runtime::shutdown_background);
        }
    }
}

struct StoreOpening {
    keys: Keys,
    options: RedisOptions,
    place: RedisPlace,
    lock: Option<FolderLock>,
    identity: Option<IdentityFile>,
    anew: Option<Arc<Anew>>,
}

impl StoreOpening {
    fn new(options: RedisOptions, place: RedisPlace, anew: Option<Arc<Anew>>) -> Result<Self, StoreError> {
        let keys = Keys::new(&options.prefix)?;
        if options.shards == Some(0) {
            return Err(StoreError::Invalid("a register has 1 shard at least".into()));
        }
        // Before anything in the directory is read.
        let lock = options.directory.as_deref().map(lock::take_directory).transpose()?;
        let identity = options.directory.as_deref().map(IdentityFile::read).transpose()?;
        if let (Some(directory), Some(identity), Opening::Serve) = (&options.directory, &identity, &options.opening) {
            leaves_nothing_behind(directory, identity)?;
        }
        Ok(Self { keys, options, place, lock, identity, anew })
    }

    async fn begin(self) -> Result<(Self, Begun, Link), StoreError> {
        let mut link = Link::new(self.place.clone(), None);
        let Self { keys, options, identity, anew, .. } = &self;
        let begun = begin::begin(&mut link, keys, options, identity.as_ref(), anew.as_deref()).await?;
        Ok((self, begun, link))
    }
}

struct StoreStart {
    shared: Arc<RedisShared>,
    options: RedisOptions,
    place: RedisPlace,
    url: String,
    notice: Arc<Mutex<Option<MoveNotice>>>,
    ground: Ground,
    lock: Option<FolderLock>,
    is_compact: bool,
}

/// Refuses to begin with Redis if the files of the same directory hold a register. It would go on whenever the server is
/// started without Redis, and grant addresses that are granted in Redis. If the node already keeps a register in Redis, a
/// refusal is too late: then the node only warns, whatever became of those files, and does not read them.
fn leaves_nothing_behind(directory: &Path, identity: &IdentityFile) -> Result<(), StoreError> {
    if identity.known.is_none() {
        return embedded::left_behind(directory)?.map_or(Ok(()), |holds| Err(StoreError::Foreign(holds.into())));
    }
    if nameplate::stands_beside(directory) {
        tracing::warn!(
            directory = %directory.display(),
            "an embedded register that was not moved lies beside the note of the register in Redis, which this node has kept from \
             here before: what it granted may be granted once more. See `allod doctor`"
        );
    }
    Ok(())
}

impl RedisStore {
    /// Connects, checks the configuration of Redis, and opens the register there or makes a new one.
    ///
    /// Blocks until Redis has answered. Call it where blocking is allowed.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] if Redis cannot keep a register, or holds another one; [`StoreError::Damaged`] if a register
    /// that was there is gone.
    pub fn open(options: RedisOptions) -> Result<Self, StoreError> {
        Self::open_or_begin(options, None)
    }

    /// The same over a connection that the caller provides, whatever the URL says. The tasks run on this runtime, in its
    /// time; when the store is dropped, they end.
    ///
    /// # Errors
    /// As for [`RedisStore::open`].
    pub async fn open_over(options: RedisOptions, way: Arc<dyn RedisWay>) -> Result<Self, StoreError> {
        Self::open_or_begin_over(options, way, None).await
    }

    /// As [`RedisStore::open`]. A register to be begun `anew` is begun first, and belongs to this process from the start.
    fn open_or_begin(options: RedisOptions, anew: Option<Arc<Anew>>) -> Result<Self, StoreError> {
        let place = RedisPlace::new(&options.url, &options.tls, &Keys::new(&options.prefix)?)?;
        let (opening, ground) = (StoreOpening::new(options, place, anew)?, Ground::threads()?);
        // On a thread of the new runtime, because the present thread may belong to another runtime.
        let (told, asked) = std::sync::mpsc::sync_channel(1);
        ground.swift().spawn(async move {
            // The caller waits for it.
            let _ = told.send(opening.begin().await);
        });
        let crashed = |_| StoreError::Poisoned("its first task crashed".into());
        match asked.recv().map_err(crashed).and_then(std::convert::identity) {
            Ok(begun) => Self::run(begun, ground),
            Err(error) => {
                ground.shutdown();
                Err(error)
            }
        }
    }

    /// As [`RedisStore::open_over`].
    async fn open_or_begin_over(
        options: RedisOptions,
        way: Arc<dyn RedisWay>,
        anew: Option<Arc<Anew>>,
    ) -> Result<Self, StoreError> {
        let begun = StoreOpening::new(options, RedisPlace::over(way), anew)?.begin().await?;
        Self::run(begun, Ground::Here(Handle::current()))
    }

    /// Starts a store that was opened.
    fn run((opening, begun, link): (StoreOpening, Begun, Link), ground: Ground) -> Result<Self, StoreError> {
        let StoreOpening { keys, options, place, lock, identity, anew } = opening;
        let Begun { server, replicas, is_compact, shas, register, shards, notice, went_on, left_journals } = begun;
        tracing::info!(redis = %place.name(), engine = server.engine(), tls = place.is_over_tls(), "connected");
        let info = StoreInfo {
            kind: "redis",
            durability: server.durability(replicas, options.degrade, place.is_in_cluster()),
            full: "Redis has no memory left (its `maxmemory` is reached: raise it by `redis-cli config set maxmemory BYTES` and in \
                   its file, or let addresses go)",
            act_bytes_max: crate::limits::ACT_BYTES_MAX,
            move_bytes_max: options.move_bytes_max,
            register,
            shards,
            commits_shards_together: true,
            ownership_is_standing: false,
            may_be_emptied: true,
            restored_from: None,
        };
        if let Some(directory) = &options.directory {
            redo::check_others(directory, register, options.accept_new_store)?;
        }
        let redo = options.directory.as_deref().map(|directory| Redo::open(directory, register, options.degrade));
        let (redo, kept) = redo.transpose()?.flatten().map_or((None, None), |(redo, kept)| (Some(redo), Some(kept)));
        let parts = StoreParts {
            keys,
            shas: Arc::clone(&shas),
            info,
            place: Arc::clone(place.name()),
            card: NodeCard { name: options.owner.clone(), process: rand::random(), ..NodeCard::default() },
            keep_seconds: options.history_seconds,
            keep_bytes: options.history_bytes / u64::from(shards.max(1)),
            replicas,
            waiting: server.waiting(),
            flushes_in_a_moment: server.flushes_in_a_moment(),
            appends: server.appends(),
            heal_bytes: options.heal_bytes,
            record_format: options.record_format,
            lates: Lates::open(options.directory.as_deref(), register, options.accept_new_store)?,
            redo,
            identity,
            serves: options.opening == Opening::Serve,
            in_cluster: place.is_in_cluster(),
            tls: place.tls().cloned(),
            blocking: ground.blocking(),
        };
        let (url, notice) = (moving::without_secret(&options.url), Arc::new(Mutex::new(notice)));
        let shared = Arc::new(RedisShared::new(parts));
        shared.sees_followers(&server);
        let given_up = went_on || options.accept_rollback;
        kept.map_or(Ok(()), |kept| redo::restore(&shared, kept, given_up))?;
        anew.map_or(Ok(()), |anew| anew.is_owned(&shared))?;
        let store = Self::start(StoreStart { shared, options, place, url, notice, ground, lock, is_compact }, link);
        store.left_journals.get_or_init(|| left_journals);
        Ok(store)
    }

    /// Starts the tasks. `link` is the connection over which the store was opened.
    fn start(start: StoreStart, link: Link) -> Self {
        let StoreStart { shared, options, place, url, notice, ground, lock, is_compact } = start;
        let another = || Link::new(place.clone(), Some(Arc::clone(&shared.shas)));
        let (checks, check_jobs) = mpsc::channel(QUEUE_CALLS_MAX);
        let (loads, load_jobs) = mpsc::channel(QUEUE_CALLS_MAX);
        let (reads, read_jobs) = mpsc::channel(QUEUE_CALLS_MAX);
        let (confirms, confirm_jobs) = mpsc::channel(QUEUE_CALLS_MAX);
        let (watch, watched) = mpsc::channel(1);
        let watches = watch::run(Arc::clone(&shared), place.clone(), another(), watched, is_compact);
        let proves = confirms::run(Arc::clone(&shared), another(), confirm_jobs);
        let takes = checks::run(Arc::clone(&shared), link, check_jobs, confirms.clone());
        let loaded = load::run(Arc::clone(&shared), another(), load_jobs);
        let read = load::run(Arc::clone(&shared), another(), read_jobs);
        let tasks = vec![
            ground.bulk().spawn(missed(&shared, "watches", watches)),
            ground.swift().spawn(missed(&shared, "confirms", proves)),
            ground.swift().spawn(missed(&shared, "checks", takes)),
            ground.bulk().spawn(missed(&shared, "loads", loaded)),
            ground.bulk().spawn(missed(&shared, "reads", read)),
        ];
        let senders = Mutex::new(Some(Senders { commits: None, checks, loads, reads, confirms, _watch: watch }));
        let running = Mutex::new(Some(Running { ground, tasks, directory: lock }));
        Self { shared, senders, running, place, url, notice, options, left_journals: OnceLock::new() }
    }

    /// Starts the task that commits, on this runtime. If one is running already, it finishes what it has begun and ends.
    fn start_commits(&self, senders: &mut Senders, on: Option<&Handle>) -> Result<(), StoreError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Running { ground, tasks, .. } = running.as_mut().ok_or_else(closed)?;
        let (sender, jobs) = mpsc::channel(QUEUE_CALLS_MAX);
        let link = Link::new(self.place.clone(), Some(Arc::clone(&self.shared.shas)));
        let run = commits::run(Arc::clone(&self.shared), link, jobs, senders.confirms.clone());
        tasks.retain(|task| !task.is_finished());
        tasks.push(on.unwrap_or(ground.swift()).spawn(run));
        senders.commits = Some(sender);
        Ok(())
    }

    /// The channel to the task that commits: on a thread of the store, unless the committer has it on its own.
    fn commits<'a>(&self, senders: &'a mut Senders) -> Result<&'a mpsc::Sender<commits::CommitJob>, StoreError> {
        if senders.commits.as_ref().is_none_or(mpsc::Sender::is_closed) {
            self.start_commits(senders, None)?;
        }
        senders.commits.as_ref().ok_or_else(closed)
    }

    /// Refuses calls from here on, and returns what must be waited for.
    fn stop(&self) -> Option<Running> {
        self.shared.close();
        self.senders.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        if let Some(running) = self.stop() {
            // Does not wait for what was begun: `close` does.
            running.shutdown();
        }
    }
}

/// Reports the crash of a task that nothing restarts: everything asked of it from then on would be refused, and a process
/// that went on without it would keep the register, or try to, for ever.
struct Missed {
    shared: Arc<RedisShared>,
    task: &'static str,
}

impl Drop for Missed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { shared, task } = self;
            shared.damaged(format!("the task of the store that {task} crashed; start the server again"));
        }
    }
}

/// A task whose crash is reported.
fn missed<F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<RedisShared>,
    task: &'static str,
    run: F,
) -> impl Future<Output = ()> + Send + 'static + use<F> {
    let missed = Missed { shared: Arc::clone(shared), task };
    async move {
        let _missed = missed;
        run.await;
    }
}

fn runtime(name: &str, threads: usize) -> Result<Runtime, StoreError> {
    let built =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build();
    built.map_err(|error| StoreError::Io { context: format!("starting thread {name}").into(), source: Arc::new(error) })
}

fn closed() -> StoreError {
    StoreError::Poisoned("it was closed".into())
}

fn ended() -> StoreError {
    StoreError::Poisoned("its task ended".into())
}

#[cfg(test)]
mod tests;
