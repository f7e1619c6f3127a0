//! The register in Redis: records in compact hashes, a stream of batches a shard, and scripts that compare before they
//! write.
//!
//! ```text
//!  commit ──▶ commits ──▶ net, line ──▶ link ══▶ EVALSHA commit        in order, several under way
//!          └▶ confirms ──────────────▶ link ══▶ EVALSHA confirm, WAIT  a round at a time, when it is applied
//!  take, renew ──▶ checks ────────────▶ link ══▶ EVALSHA take, lease
//!  load, recorded ─▶ load, history ───▶ link ══▶ HGETALL …, XRANGE …   in bounded pieces
//! ```
//!
//! Four tasks with a connection each: what is read in bulk never stands before a batch. The one that commits runs on the
//! thread of the committer, once there is one: the way to another thread and back took as long as Redis does. The others
//! run on threads of the store's own, so that a lease is renewed however busy that one is. `keys` names everything that
//! lies in Redis, `scripts` everything that runs there.
//!
//! **Fence and expectations** are compared inside Redis, in one script with the writes: a paused or slow owner cannot
//! write, whatever it believes. The batches of several shards go as one call, so they are applied together; for that all
//! keys of a register lie in one slot of a Redis cluster, and `cluster` finds the server that has it.
//!
//! **Nothing is missing unseen.** A cluster moves a slot key by key, and a move may break off; a full memory may throw keys
//! away. While a slot is moved a commit is refused before it begins, because it names a key that is never there; and every
//! key is vouched for by another, which `commit.lua` asks before it writes and `whole` when a shard is loaded.
//!
//! **In doubt.** What Redis refuses before a script begins was not applied; what was sent and not answered is unknown
//! (see `failed`). A script that breaks off is not rolled back: what may be refused is asked before the first write, and
//! what broke off all the same is found when a shard is loaded (see `surplus`). The same bytes are recognised by token,
//! seq and digest, whichever connection brings them. A head that is behind what was acknowledged is healed from what this
//! process sent last, if it lies on its own line (see `heal`, `playing`, `awaited`, `finished`). One that is gone, or that does not
//! fit, stops the store: it is never taken for a new or an older register. What too few replicas have may be acknowledged once
//! it is on this machine's disk (see `redo`); and there a process that ends leaves what it acknowledged and does not know to be
//! in Redis (see `farewell`). Which register it is stands in a file on this machine, so that an emptied Redis is refused also by
//! the next process.
//!
//! **IPv6** has no fixed buckets: random addresses of a /64 would have a hash each. Its hashes cover from one LOW to the
//! next, in an ordered index, and are cut when they grow beyond 96 records; dense and sparse ones take the same room.
//!
//! **Room** of a million reservations whose records have 47 bytes, history apart (Redis 7.0.15; `used_memory`, and of it
//! MEMORY USAGE of the hashes and of the index): IPv4 side by side 61 bytes each (57.6, 1.6); IPv6 at random in a /64 100
//! (92.5, 2.2), side by side 104 (98.1, 2.1). The field of an IPv6 address takes 32 of them.
//!
//! Review notes: does every error have its class? Is anything sent twice except after NOSCRIPT? Does every script compare
//! all before it writes? Is each wait bounded?

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
mod playing;
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

/// Calls that wait for a task. A shard's committer has a few under way, so this is never reached in order.
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
    /// What its nodes left on their disks, and what it has all of; set once.
    left_journals: OnceLock<Vec<LeftJournal>>,
    /// How it was opened.
    options: RedisOptions,
}

#[derive(Debug)]
struct Senders {
    /// Of the task that commits, once something was committed.
    commits: Option<mpsc::Sender<commits::CommitJob>>,
    checks: mpsc::Sender<checks::CheckJob>,
    loads: mpsc::Sender<load::LoadJob>,
    confirms: mpsc::Sender<confirms::ConfirmJob>,
    /// Dropped with the rest: there is nothing more to watch.
    _watch: mpsc::Sender<()>,
}

/// The threads, and the tasks whose end is the end of what was begun.
#[derive(Debug)]
struct Running {
    ground: Ground,
    tasks: Vec<JoinHandle<()>>,
    /// Nobody else may have the directory before they have ended.
    directory: Option<FolderLock>,
}

impl Running {
    /// What was begun is not waited for any more.
    fn shutdown(self) {
        if let Ground::Here(_) = self.ground {
            self.tasks.iter().for_each(JoinHandle::abort);
        }
        self.ground.shutdown();
    }
}

/// Where the tasks run.
#[derive(Debug)]
enum Ground {
    /// On threads of the store's own: of what is done for each batch, and of what is read in bulk.
    Threads([Runtime; 2]),
    /// Where it was opened.
    Here(Handle),
}

impl Ground {
    fn threads() -> Result<Self, StoreError> {
        Ok(Self::Threads([runtime("store-redis", 1)?, runtime("store-redis-load", 2)?]))
    }

    /// For what is done for each batch.
    fn swift(&self) -> &Handle {
        match self {
            Self::Threads([swift, _]) => swift.handle(),
            Self::Here(here) => here,
        }
    }

    /// For what takes long.
    fn bulk(&self) -> &Handle {
        match self {
            Self::Threads([_, bulk]) => bulk.handle(),
            Self::Here(here) => here,
        }
    }

    /// Where there are no threads but the caller's none is started for a file either.
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

/// A store that is being opened.
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
        // Before anything in it is read.
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

/// Refuses to begin with Redis beside a register in the files of the same directory, which would go on whenever Redis is not named
/// and grants what is granted there. Where that was done long ago it is too late: the node is not kept from its register then,
/// whatever became of those files since, and does not read them.
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
    /// Connects, checks what Redis is set to, and opens the register there, or makes a new one.
    ///
    /// Blocks until Redis has answered. Call it where blocking is allowed.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] if Redis cannot keep a register, or holds another one; [`StoreError::Damaged`] if what was
    /// there is gone.
    pub fn open(options: RedisOptions) -> Result<Self, StoreError> {
        Self::open_or_begin(options, None)
    }

    /// The same over a way of the caller's, whatever the URL says. Its tasks run on this runtime, and in the time of it; dropped,
    /// they end.
    ///
    /// # Errors
    /// As [`RedisStore::open`].
    pub async fn open_over(options: RedisOptions, way: Arc<dyn RedisWay>) -> Result<Self, StoreError> {
        Self::open_or_begin_over(options, way, None).await
    }

    /// As [`RedisStore::open`]; what is to be begun `anew` is begun before, and is this process's from the start.
    fn open_or_begin(options: RedisOptions, anew: Option<Arc<Anew>>) -> Result<Self, StoreError> {
        let place = RedisPlace::new(&options.url, &options.tls, &Keys::new(&options.prefix)?)?;
        let (opening, ground) = (StoreOpening::new(options, place, anew)?, Ground::threads()?);
        // On the runtime's thread: this one may belong to a runtime of its own.
        let (told, asked) = std::sync::mpsc::sync_channel(1);
        ground.swift().spawn(async move {
            // Whoever asked waits.
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

    /// Runs what was opened.
    fn run((opening, begun, link): (StoreOpening, Begun, Link), ground: Ground) -> Result<Self, StoreError> {
        let StoreOpening { keys, options, place, lock, identity, anew } = opening;
        let Begun { server, shas, register, shards, notice, went_on, left_journals } = begun;
        tracing::info!(redis = %place.name(), engine = server.engine(), tls = place.is_over_tls(), "connected");
        let replicas = if options.replicas_that_follow { server.following_replicas() } else { options.replicas };
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
        let store = Self::start((shared, options), place, (url, notice), link, (ground, lock));
        store.left_journals.get_or_init(|| left_journals);
        Ok(store)
    }

    fn start(
        (shared, options): (Arc<RedisShared>, RedisOptions),
        place: RedisPlace,
        (url, notice): (String, Arc<Mutex<Option<MoveNotice>>>),
        link: Link,
        (ground, directory): (Ground, Option<FolderLock>),
    ) -> Self {
        let another = || Link::new(place.clone(), Some(Arc::clone(&shared.shas)));
        let (checks, check_jobs) = mpsc::channel(QUEUE_CALLS_MAX);
        let (loads, load_jobs) = mpsc::channel(QUEUE_CALLS_MAX);
        let (confirms, confirm_jobs) = mpsc::channel(QUEUE_CALLS_MAX);
        let (watch, watched) = mpsc::channel(1);
        let watches = watch::run(Arc::clone(&shared), place.clone(), another(), watched);
        let proves = confirms::run(Arc::clone(&shared), another(), confirm_jobs);
        let takes = checks::run(Arc::clone(&shared), link, check_jobs, confirms.clone());
        let reads = load::run(Arc::clone(&shared), another(), load_jobs);
        let tasks = vec![
            ground.bulk().spawn(missed(&shared, "watches", watches)),
            ground.swift().spawn(missed(&shared, "confirms", proves)),
            ground.swift().spawn(missed(&shared, "checks", takes)),
            ground.bulk().spawn(missed(&shared, "loads", reads)),
        ];
        let senders = Mutex::new(Some(Senders { commits: None, checks, loads, confirms, _watch: watch }));
        let running = Mutex::new(Some(Running { ground, tasks, directory }));
        Self { shared, senders, running, place, url, notice, options, left_journals: OnceLock::new() }
    }

    /// Starts the task that commits, on this runtime. One that runs already ends with what it has begun.
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

    /// The way to the task that commits: on a thread of the store's own, unless a committer has it on its own.
    fn commits<'a>(&self, senders: &'a mut Senders) -> Result<&'a mpsc::Sender<commits::CommitJob>, StoreError> {
        if senders.commits.as_ref().is_none_or(mpsc::Sender::is_closed) {
            self.start_commits(senders, None)?;
        }
        senders.commits.as_ref().ok_or_else(closed)
    }

    /// Refuses from here on, and gives what must be waited for.
    fn stop(&self) -> Option<Running> {
        self.shared.close();
        self.senders.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        if let Some(running) = self.stop() {
            // What was begun is not waited for: `close` is for that.
            running.shutdown();
        }
    }
}

/// Says so when a task crashes that nothing starts again: whatever is asked of it from then on is refused, and the process
/// that goes on without it would keep the register, or try to, for ever.
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

/// A task, which is missed when it crashes.
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
