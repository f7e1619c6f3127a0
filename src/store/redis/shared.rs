//! What the tasks of the store share: names, lines, health, figures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use super::awaited::Awaited;
use super::blocking::Blocking;
use super::followers::Followers;
use super::identity::IdentityFile;
use super::journal::{Journal, Point};
use super::keys::Keys;
use super::line::{Found, RedisLine};
use super::place::SAID_EVERY;
use super::rare::Rare;
use super::redo::Redo;
use super::replicas::ReplicaWait;
use super::scripts::Shas;
use super::tls::RedisTls;
use crate::store::codec::Format;
use crate::store::late::Lates;
use crate::store::{CommitError, Epoch, NodeCard, Seq, ShardId, StoreError, StoreInfo, Token};
use crate::telemetry::Seldom;

mod doubts;
mod health;
mod settings;
mod stopped;
mod tenure;

/// See the module's text.
#[derive(Debug)]
pub(super) struct RedisShared {
    pub(super) keys: Keys,
    pub(super) shas: Arc<Shas>,
    pub(super) info: StoreInfo,
    /// Where Redis is, for people.
    pub(super) place: Arc<str>,
    /// What the next start shall know of it; none where nothing is kept on this machine.
    identity: Option<IdentityFile>,
    /// It is open to be served, not to be moved.
    serves: bool,
    /// A cluster has the register: a key may be on another of its servers.
    in_cluster: bool,
    /// How Redis is reached over TLS, if it is.
    pub(super) tls: Option<Arc<RedisTls>>,
    /// Where files are written.
    pub(super) blocking: Blocking,
    /// How this node is known to the others.
    card: Mutex<NodeCard>,
    keep_seconds: u64,
    /// Of one shard.
    keep_bytes: u64,
    /// Another node reads the register beside this owner.
    read_beside: AtomicBool,
    pub(super) commits: AtomicU64,
    pub(super) commit_bytes: AtomicU64,
    lines: Mutex<Vec<RedisLine>>,
    closed: AtomicBool,
    failure: OnceLock<Arc<str>>,
    /// It is stopped because Redis went back.
    gone_back: AtomicBool,
    /// It is stopped because the register is somewhere else.
    moved_away: AtomicBool,
    /// It was emptied, and is whole again by what was in memory.
    written_anew: AtomicBool,
    /// When it had no memory left for something last, since it took something.
    refused_at: Rare<Instant>,
    /// It has none, by its own word; or by a refusal since which it was not asked.
    is_full: AtomicBool,
    /// How many replicas are waited for.
    pub(super) replicas: u32,
    /// In which format records are to be written, if that was said.
    record_format: Mutex<Option<Format>>,
    waiting: ReplicaWait,
    /// Redis tells when a change is on its own disk, a moment later.
    pub(super) flushes_in_a_moment: bool,
    /// How many of them answered last; as many as are wanted until the first answer.
    pub(super) answering: AtomicU64,
    /// Why those were too few, if they were.
    pub(super) lacking: Rare<Arc<str>>,
    /// It was said that this node acknowledges without those that are missing.
    pub(super) says_degraded: AtomicBool,
    /// Which they are, as far as Redis names them.
    pub(super) followers: Mutex<Followers>,
    /// When they were counted last.
    pub(super) counted_at: Mutex<Option<Instant>>,
    /// They were too few when they were looked at last beside all changes, and it was not said yet.
    pub(super) missed: AtomicBool,
    /// Number of the connection on which batches are confirmed.
    confirming: AtomicU64,
    /// The policy by which Redis may throw records away, while it may.
    evicting: Rare<Arc<str>>,
    /// Whether Redis has an append-only file, as it was seen last.
    appends: Mutex<Option<bool>>,
    /// What an acknowledged change survives, by what Redis was set to when it was looked at last.
    survives: Mutex<Arc<str>>,
    /// What is being done to Redis that keeps it from changing anything.
    moving: Rare<Arc<str>>,
    /// Why whoever asked it last got no answer.
    unreached: Rare<Arc<str>>,
    journal: Mutex<Journal>,
    /// What somebody was told of and is not on the line of those who own it now.
    pub(super) lates: Arc<Lates>,
    /// Stands in for replicas that are missing; none where it may not.
    pub(super) redo: Option<Arc<Redo>>,
    /// One heals, the others wait for it.
    pub(super) healing: tokio::sync::Mutex<()>,
    /// How often it was in doubt whether Redis has everything, and up to which doubt that is settled.
    doubts: AtomicU64,
    /// It is said now and then only that something is played again: where Redis refuses it, that is tried again and again.
    pub(super) says_played: Seldom,
    settled: AtomicU64,
    healed: AtomicU64,
    healed_batches: AtomicU64,
    /// When the leases of all that is owned were renewed last beside what is played again.
    leased: watch::Sender<Option<Instant>>,
    /// How long others were waited for who have something to give back.
    awaited: Rare<Awaited>,
    /// When something was played again last.
    played: Mutex<Option<Instant>>,
    /// Somebody else owned the register since this process did, or may have: it let go.
    yielded: AtomicBool,
    /// Its tenure ended while Redis was not reached: somebody else may have owned the register since.
    may_have_yielded: AtomicBool,
    /// Which run of Redis had the register when this process took it.
    taken_from: Mutex<Option<String>>,
    /// Number of the connection on which the register was seen to be owned.
    saw_owner: AtomicU64,
    /// Since when nothing of the register is there.
    emptied: Rare<Instant>,
}

/// What is known of a shard's line, at an instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownLine {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) token: Token,
    /// The last that somebody was told of.
    pub(super) told: Point,
    /// The take-over under which that stood.
    pub(super) told_epoch: Epoch,
    pub(super) owned: bool,
    /// The token of the tenure that was cut off.
    pub(super) cut: Option<Token>,
    /// Whose line has everything that somebody was told of.
    pub(super) reviewed: Option<Token>,
    /// What the journal said of its head when it was asked last.
    pub(super) found: Option<Found>,
    /// What is missing of it may be given up, where nobody knows what that is.
    pub(super) given_up: bool,
}

/// How a store is described to its tasks.
pub(super) struct StoreParts {
    pub(super) keys: Keys,
    pub(super) shas: Arc<Shas>,
    pub(super) info: StoreInfo,
    pub(super) place: Arc<str>,
    pub(super) card: NodeCard,
    pub(super) keep_seconds: u64,
    pub(super) keep_bytes: u64,
    pub(super) replicas: u32,
    pub(super) waiting: ReplicaWait,
    pub(super) flushes_in_a_moment: bool,
    pub(super) appends: Option<bool>,
    pub(super) heal_bytes: usize,
    pub(super) record_format: Option<Format>,
    pub(super) lates: Lates,
    pub(super) redo: Option<Redo>,
    pub(super) identity: Option<IdentityFile>,
    /// It is open to be served, not to be moved.
    pub(super) serves: bool,
    pub(super) in_cluster: bool,
    pub(super) tls: Option<Arc<RedisTls>>,
    pub(super) blocking: Blocking,
}

/// What a mutex guards. Nobody leaves it half-changed.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RedisShared {
    pub(super) fn new(parts: StoreParts) -> Self {
        let StoreParts {
            keys,
            shas,
            info,
            place,
            card,
            keep_seconds,
            keep_bytes,
            replicas,
            waiting,
            flushes_in_a_moment,
            appends,
            heal_bytes,
            record_format,
            lates,
            redo,
            identity,
            serves,
            in_cluster,
            tls,
            blocking,
        } = parts;
        let survives = Mutex::new(info.durability.as_str().into());
        let lines = Mutex::new(vec![RedisLine::new(); usize::from(info.shards)]);
        Self {
            keys,
            shas,
            info,
            place,
            identity,
            serves,
            in_cluster,
            tls,
            blocking,
            card: Mutex::new(card),
            keep_seconds,
            keep_bytes,
            read_beside: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            commit_bytes: AtomicU64::new(0),
            lines,
            closed: AtomicBool::new(false),
            failure: OnceLock::new(),
            gone_back: AtomicBool::new(false),
            moved_away: AtomicBool::new(false),
            written_anew: AtomicBool::new(false),
            refused_at: Rare::default(),
            is_full: AtomicBool::new(false),
            replicas,
            record_format: Mutex::new(record_format),
            waiting,
            flushes_in_a_moment,
            answering: AtomicU64::new(replicas.into()),
            lacking: Rare::default(),
            says_degraded: AtomicBool::new(false),
            followers: Mutex::default(),
            counted_at: Mutex::default(),
            missed: AtomicBool::new(false),
            confirming: AtomicU64::new(0),
            evicting: Rare::default(),
            appends: Mutex::new(appends),
            survives,
            moving: Rare::default(),
            unreached: Rare::default(),
            journal: Mutex::new(Journal::new(heal_bytes)),
            lates: Arc::new(lates),
            redo: redo.map(Arc::new),
            healing: tokio::sync::Mutex::new(()),
            doubts: AtomicU64::new(0),
            says_played: Seldom::new(SAID_EVERY),
            settled: AtomicU64::new(0),
            healed: AtomicU64::new(0),
            healed_batches: AtomicU64::new(0),
            leased: watch::Sender::new(None),
            awaited: Rare::default(),
            played: Mutex::default(),
            yielded: AtomicBool::new(false),
            may_have_yielded: AtomicBool::new(false),
            taken_from: Mutex::default(),
            saw_owner: AtomicU64::new(0),
            emptied: Rare::default(),
        }
    }

    /// In which format records are to be written when a shard is taken next; none: as they are, or the latest where there are none.
    pub(super) fn record_format(&self) -> Option<Format> {
        *locked(&self.record_format)
    }

    /// Says it.
    pub(super) fn write_in(&self, format: Format) {
        *locked(&self.record_format) = Some(format);
    }

    /// How this node is known to the others.
    pub(super) fn card(&self) -> NodeCard {
        locked(&self.card).clone()
    }

    pub(super) fn introduce(&self, card: NodeCard) {
        *locked(&self.card) = card;
    }

    /// Shards that are owned, and the token of each.
    pub(super) fn owned(&self) -> Vec<(ShardId, Token)> {
        self.each(RedisLine::mine)
    }

    /// The tenure is over. What was owned until now.
    pub(super) fn let_go(&self) -> Vec<(ShardId, Token)> {
        self.journal().let_go();
        self.each(RedisLine::let_go)
    }

    fn each(&self, token: impl Fn(&mut RedisLine) -> Option<Token>) -> Vec<(ShardId, Token)> {
        let mut lines = locked(&self.lines);
        lines.iter_mut().enumerate().filter_map(|(at, line)| Some((ShardId(at as u16), token(line)?))).collect()
    }

    /// Does something with the line of a shard.
    pub(super) fn line<T>(&self, shard: ShardId, with: impl FnOnce(&mut RedisLine) -> T) -> Result<T, StoreError> {
        let mut lines = locked(&self.lines);
        let count = lines.len();
        let unknown =
            || StoreError::Invalid(format!("there is no shard {}: the register has {count}, from 0", shard.0).into());
        lines.get_mut(usize::from(shard.0)).map(with).ok_or_else(unknown)
    }

    /// Somebody is told that this stands.
    ///
    /// # Errors
    /// It was cut off meanwhile: nobody may be told.
    pub(super) fn tells(&self, shard: ShardId, stands: Point) -> Result<(), CommitError> {
        let told = self.line(shard, |line| (line.tells(stands), line.known(shard).epoch));
        match told.map_err(|cause| CommitError::NotApplied { cause })? {
            (true, _) => Ok(()),
            (false, current) => Err(CommitError::Fenced { shard, current }),
        }
    }

    /// Is it open to be served, not to be moved?
    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    /// Can what is in Redis still be trusted?
    pub(super) fn sound(&self) -> Result<(), StoreError> {
        self.failure.get().map_or(Ok(()), |failure| Err(StoreError::Poisoned(Arc::clone(failure))))
    }

    /// Why what is in Redis cannot be trusted any more.
    pub(super) fn failed_of(&self) -> Option<Arc<str>> {
        self.failure.get().map(Arc::clone)
    }

    /// May anything new be asked of it? What was asked before it was closed is still done.
    pub(super) fn open(&self) -> Result<(), StoreError> {
        self.sound()?;
        if self.closed.load(Ordering::Acquire) { Err(StoreError::Poisoned("it was closed".into())) } else { Ok(()) }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// What was sent last.
    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        locked(&self.journal)
    }

    /// The lines of all shards that were ever taken.
    pub(super) fn lines(&self) -> Vec<KnownLine> {
        let lines = locked(&self.lines);
        let known = lines.iter().enumerate().map(|(at, line)| line.known(ShardId(at as u16)));
        known.filter(|known| known.epoch > Epoch(0)).collect()
    }

    /// Is all that somebody was told of on the lines that stand under these tokens, or put aside? Not where a line was not looked
    /// at since it was taken over: whoever did may have gone on from before.
    pub(super) fn accounts(&self, stand: &[(ShardId, Token)]) -> bool {
        let is_there = |line: &KnownLine| {
            let stands = stand.iter().find(|(shard, _)| *shard == line.shard).map(|(_, token)| *token);
            let held = Some(line.token).filter(|_| line.owned && line.cut.is_none());
            line.told.seq == Seq(0) || stands.is_some_and(|stands| [held, line.reviewed].contains(&Some(stands)))
        };
        !self.in_doubt() && self.lines().iter().all(is_there)
    }
}
