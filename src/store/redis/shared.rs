//! What the tasks of the store share: names, lines, health, figures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use super::awaited::Awaited;
use super::blocking::Blocking;
use super::followers::Followers;
use super::identity::{Behind, IdentityFile};
use super::journal::{Journal, Point};
use super::keys::Keys;
use super::line::{Found, RedisLine};
use super::place::SAID_EVERY;
use super::rare::Rare;
use super::redo::Redo;
use super::replicas::ReplicaWait;
use super::scripts::Shas;
use super::tls::RedisTls;
use crate::seldom::Seldom;
use crate::store::codec::Format;
use crate::store::late::Lates;
use crate::store::{CommitError, Epoch, NodeCard, Seq, ShardId, StoreError, StoreInfo, Token};

mod doubts;
mod health;
mod settings;
mod stopped;
mod tenure;

#[derive(Debug)]
pub(super) struct RedisShared {
    pub(super) keys: Keys,
    pub(super) shas: Arc<Shas>,
    pub(super) info: StoreInfo,
    /// Where Redis is, for people.
    pub(super) place: Arc<str>,
    /// The note for the next start; none if nothing is kept on this machine.
    identity: Option<IdentityFile>,
    /// The store is open to be served, not to be moved.
    serves: bool,
    /// The register is in a cluster: a key may be on another of its servers.
    in_cluster: bool,
    pub(super) tls: Option<Arc<RedisTls>>,
    pub(super) blocking: Blocking,
    /// How the other nodes know this node.
    card: Mutex<NodeCard>,
    keep_seconds: u64,
    /// For one shard.
    keep_bytes: u64,
    /// Another node is reading the register in order to take it over.
    read_beside: AtomicBool,
    pub(super) commits: AtomicU64,
    pub(super) commit_bytes: AtomicU64,
    lines: Mutex<Vec<RedisLine>>,
    closed: AtomicBool,
    failure: OnceLock<Arc<str>>,
    /// The store stopped because Redis went back: what was noted of that.
    gone_back: Mutex<Option<Behind>>,
    /// The store stopped because the register was moved away.
    moved_away: AtomicBool,
    /// Redis was emptied, and the register is complete again from this process's memory.
    written_anew: AtomicBool,
    /// When Redis last refused something for lack of memory, unless it has accepted something since.
    refused_at: Rare<Instant>,
    /// Its memory is full: it says so itself, or refused something and was not asked since.
    is_full: AtomicBool,
    /// How many replicas must have a change.
    pub(super) replicas: u32,
    /// The format in which records are to be written, if one was set.
    record_format: Mutex<Option<Format>>,
    waiting: ReplicaWait,
    /// Redis flushes a moment after a change, and can say when it has.
    pub(super) flushes_in_a_moment: bool,
    /// How many replicas answered last; as many as are wanted until the first answer.
    pub(super) answering: AtomicU64,
    /// Why those were too few, if they were.
    pub(super) lacking: Rare<Arc<str>>,
    /// It was reported that this node acknowledges without the missing replicas.
    pub(super) says_degraded: AtomicBool,
    /// Which replicas there are, as far as Redis names them.
    pub(super) followers: Mutex<Followers>,
    /// When they were counted last.
    pub(super) counted_at: Mutex<Option<Instant>>,
    /// They were too few at the last count outside of changes, and this was not reported yet.
    pub(super) missed: AtomicBool,
    /// Number of the connection on which batches are confirmed.
    confirming: AtomicU64,
    /// The policy by which Redis may evict records, while it may.
    evicting: Rare<Arc<str>>,
    /// Whether Redis had an append-only file when this was last checked.
    appends: Mutex<Option<bool>>,
    /// What an acknowledged change survives, by the configuration of Redis at the last check.
    survives: Mutex<Arc<str>>,
    /// What is being done to Redis that keeps it from taking changes.
    moving: Rare<Arc<str>>,
    /// Why the last request got no answer.
    unreached: Rare<Arc<str>>,
    journal: Mutex<Journal>,
    /// What clients were told of and the lines of the present owners lack.
    pub(super) lates: Arc<Lates>,
    /// Stands in for missing replicas; none if it may not.
    pub(super) redo: Option<Arc<Redo>>,
    /// One task heals, the others wait for it.
    pub(super) healing: tokio::sync::Mutex<()>,
    /// How often there was a doubt whether Redis has everything; `settled` says up to which doubt that is resolved.
    doubts: AtomicU64,
    /// How often it is logged that something cannot be put aside.
    pub(super) says_unwritten: Seldom,
    /// A replay is only reported now and then: if Redis refuses it, it is tried again and again.
    pub(super) says_played: Seldom,
    settled: AtomicU64,
    healed: AtomicU64,
    healed_batches: AtomicU64,
    /// When a replay last renewed the leases of all that is owned.
    leased: watch::Sender<Option<Instant>>,
    /// How long this node has waited for others that have something to give back.
    awaited: Rare<Awaited>,
    /// When something was last replayed.
    played: Mutex<Option<Instant>>,
    /// Another node owned the register since this process did, or may have: this process released it.
    yielded: AtomicBool,
    /// The tenure ended while Redis was out of reach: another node may have owned the register since.
    may_have_yielded: AtomicBool,
    /// The run of Redis from which this process took the register.
    taken_from: Mutex<Option<String>>,
    /// Number of the connection on which the register was last seen to have an owner.
    saw_owner: AtomicU64,
    /// Since when nothing of the register is there.
    emptied: Rare<Instant>,
}

/// What is known of a shard's line at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownLine {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) token: Token,
    /// The last point that clients were told of.
    pub(super) told: Point,
    /// The epoch under which that stood.
    pub(super) told_epoch: Epoch,
    pub(super) owned: bool,
    /// The token of the tenure that was cut off.
    pub(super) cut: Option<Token>,
    /// The token of an owner whose line has everything that clients were told of.
    pub(super) reviewed: Option<Token>,
    /// What the journal said of its head when it was asked last.
    pub(super) found: Option<Found>,
    /// If nobody knows what of it is missing, that may be given up.
    pub(super) given_up: bool,
}

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
    /// The store is open to be served, not to be moved.
    pub(super) serves: bool,
    pub(super) in_cluster: bool,
    pub(super) tls: Option<Arc<RedisTls>>,
    pub(super) blocking: Blocking,
}

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
            gone_back: Mutex::default(),
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
            says_unwritten: Seldom::new(SAID_EVERY),
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

    /// The format in which records are to be written when a shard is taken next; none means the format of the register, or
    /// the newest for a new one.
    pub(super) fn record_format(&self) -> Option<Format> {
        *locked(&self.record_format)
    }

    pub(super) fn write_in(&self, format: Format) {
        *locked(&self.record_format) = Some(format);
    }

    pub(super) fn card(&self) -> NodeCard {
        locked(&self.card).clone()
    }

    pub(super) fn introduce(&self, card: NodeCard) {
        *locked(&self.card) = card;
    }

    /// The shards that are owned, and the token of each.
    pub(super) fn owned(&self) -> Vec<(ShardId, Token)> {
        self.each(RedisLine::mine)
    }

    /// Ends the tenure. Returns what was owned until now.
    pub(super) fn let_go(&self) -> Vec<(ShardId, Token)> {
        self.journal().let_go();
        self.each(RedisLine::let_go)
    }

    fn each(&self, token: impl Fn(&mut RedisLine) -> Option<Token>) -> Vec<(ShardId, Token)> {
        let mut lines = locked(&self.lines);
        lines.iter_mut().enumerate().filter_map(|(at, line)| Some((ShardId(at as u16), token(line)?))).collect()
    }

    pub(super) fn line<T>(&self, shard: ShardId, with: impl FnOnce(&mut RedisLine) -> T) -> Result<T, StoreError> {
        let mut lines = locked(&self.lines);
        let count = lines.len();
        let unknown =
            || StoreError::Invalid(format!("there is no shard {}: the register has {count}, from 0", shard.0).into());
        lines.get_mut(usize::from(shard.0)).map(with).ok_or_else(unknown)
    }

    /// Notes that a client is told that this stands.
    ///
    /// # Errors
    /// The line was cut off meanwhile: nobody may be told.
    pub(super) fn tells(&self, shard: ShardId, stands: Point) -> Result<(), CommitError> {
        let told = self.line(shard, |line| (line.tells(stands), line.known(shard).epoch));
        match told.map_err(|cause| CommitError::NotApplied { cause })? {
            (true, _) => Ok(()),
            (false, current) => Err(CommitError::Fenced { shard, current }),
        }
    }

    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    /// Can the data in Redis still be trusted?
    pub(super) fn sound(&self) -> Result<(), StoreError> {
        self.failure.get().map_or(Ok(()), |failure| Err(StoreError::Poisoned(Arc::clone(failure))))
    }

    /// Why the data in Redis can no longer be trusted.
    pub(super) fn failed_of(&self) -> Option<Arc<str>> {
        self.failure.get().map(Arc::clone)
    }

    /// May anything new be asked of the store? What was asked before it was closed is still done.
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

    /// Is everything that clients were told of on the lines that stand under these tokens, or put aside? Not if a line was
    /// not reviewed since another node took it over: that node may have gone on from further back.
    pub(super) fn accounts(&self, stand: &[(ShardId, Token)]) -> bool {
        let is_there = |line: &KnownLine| {
            let stands = stand.iter().find(|(shard, _)| *shard == line.shard).map(|(_, token)| *token);
            let held = Some(line.token).filter(|_| line.owned && line.cut.is_none());
            line.told.seq == Seq(0) || stands.is_some_and(|stands| [held, line.reviewed].contains(&Some(stands)))
        };
        !self.in_doubt() && self.lines().iter().all(is_there)
    }
}
