//! What the tasks of the store share: names, lines, health, figures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::awaited::{self, Awaited};
use super::identity::IdentityFile;
use super::journal::{Journal, Point};
use super::keys::Keys;
use super::line::RedisLine;
use super::rare::Rare;
use super::redo::Redo;
use super::replicas::ReplicaWait;
use super::scripts::Shas;
use crate::store::codec::Format;
use crate::store::late::Lates;
use crate::store::{CommitError, Epoch, NodeCard, Seq, ShardId, StoreError, StoreHealth, StoreInfo, Token};

mod settings;
mod stopped;

/// For how long at least grants are refused without asking after Redis had no memory left. Longer while it says so itself.
const FULL_RETRY: Duration = Duration::from_secs(1);

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
    /// An operator gives up what Redis lost of others: the store goes on from what there is.
    pub(super) accepts_rollback: bool,
    /// It is open to be served, not to be moved.
    serves: bool,
    /// How this node is known to the others.
    card: Mutex<NodeCard>,
    pub(super) keep_seconds: u64,
    /// Of one shard.
    pub(super) keep_bytes: u64,
    pub(super) commits: AtomicU64,
    pub(super) commit_bytes: AtomicU64,
    lines: Mutex<Vec<RedisLine>>,
    closed: AtomicBool,
    failure: OnceLock<Arc<str>>,
    /// When it had no memory left for something last, since it took something.
    refused_at: Rare<Instant>,
    /// It has none, by its own word; or by a refusal since which it was not asked.
    is_full: AtomicBool,
    /// How many replicas are waited for.
    pub(super) replicas: u32,
    /// In which format records are to be written, if that was said.
    pub(super) record_format: Option<Format>,
    waiting: ReplicaWait,
    /// How many of them answered last; as many as are wanted until the first answer.
    pub(super) answering: AtomicU64,
    /// Why those were too few, if they were.
    pub(super) lacking: Rare<Arc<str>>,
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
    journal: Mutex<Journal>,
    /// What somebody was told of and is not on the line of those who own it now.
    pub(super) lates: Arc<Lates>,
    /// Stands in for replicas that are missing; none where it may not.
    pub(super) redo: Option<Arc<Redo>>,
    /// One heals, the others wait for it.
    pub(super) healing: tokio::sync::Mutex<()>,
    /// How often it was in doubt whether Redis has everything, and up to which doubt that is settled.
    doubts: AtomicU64,
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
    pub(super) appends: Option<bool>,
    pub(super) heal_bytes: usize,
    pub(super) record_format: Option<Format>,
    pub(super) lates: Lates,
    pub(super) redo: Option<Redo>,
    pub(super) identity: Option<IdentityFile>,
    /// An operator gives up what Redis lost of others: the store goes on from what there is.
    pub(super) accepts_rollback: bool,
    /// It is open to be served, not to be moved.
    pub(super) serves: bool,
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
            appends,
            heal_bytes,
            record_format,
            lates,
            redo,
            identity,
            accepts_rollback,
            serves,
        } = parts;
        let survives = Mutex::new(info.durability.as_str().into());
        let lines = Mutex::new(vec![RedisLine::new(); usize::from(info.shards)]);
        Self {
            keys,
            shas,
            info,
            place,
            identity,
            accepts_rollback,
            serves,
            card: Mutex::new(card),
            keep_seconds,
            keep_bytes,
            commits: AtomicU64::new(0),
            commit_bytes: AtomicU64::new(0),
            lines,
            closed: AtomicBool::new(false),
            failure: OnceLock::new(),
            refused_at: Rare::default(),
            is_full: AtomicBool::new(false),
            replicas,
            record_format,
            waiting,
            answering: AtomicU64::new(replicas.into()),
            lacking: Rare::default(),
            counted_at: Mutex::default(),
            missed: AtomicBool::new(false),
            confirming: AtomicU64::new(0),
            evicting: Rare::default(),
            appends: Mutex::new(appends),
            survives,
            moving: Rare::default(),
            journal: Mutex::new(Journal::new(heal_bytes)),
            lates: Arc::new(lates),
            redo: redo.map(Arc::new),
            healing: tokio::sync::Mutex::new(()),
            doubts: AtomicU64::new(0),
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

    pub(super) fn health(&self) -> StoreHealth {
        if self.open().is_err() {
            StoreHealth::Failed
        } else if self.is_full.load(Ordering::Acquire)
            || self.refused_at.get().is_some_and(|at| at.elapsed() < FULL_RETRY)
        {
            StoreHealth::Full
        } else if self.obstacle().is_some() {
            StoreHealth::Hindered
        } else {
            StoreHealth::Ready
        }
    }

    /// Why nothing may be granted although Redis takes changes.
    pub(super) fn obstacle(&self) -> Option<Arc<str>> {
        if let Some(policy) = self.evicting.get() {
            return Some(
                format!(
                    "Redis may throw records away when its memory is full (maxmemory-policy {policy}), until \
                     `redis-cli config set maxmemory-policy noeviction`"
                )
                .into(),
            );
        }
        self.bars_taking()
    }

    /// Why no commit can be confirmed now, and no take-over.
    pub(super) fn bars_taking(&self) -> Option<Arc<str>> {
        if let Some(moving) = self.moving.get() {
            return Some(moving);
        }
        if self.emptied.is_there() {
            return Some(
                "Redis was emptied, and whoever owned the register last is waited for, to write it anew".into(),
            );
        }
        if self.awaited.is_there() {
            let text = "Redis went back past a hand-over, and the node that owned the register before gives back its part first";
            return Some(text.into());
        }
        let lacking = self.lacking.get()?;
        match self.stand_in() {
            None => Some(lacking),
            Some(redo) => redo.refuses().map(|why| format!("{lacking}, and {why}").into()),
        }
    }

    /// The redo journal, where it stands in for replicas that are missing.
    pub(super) fn stand_in(&self) -> Option<&Arc<Redo>> {
        self.redo.as_ref().filter(|redo| redo.acknowledges())
    }

    /// Did fewer replicas answer last than are wanted, or not as is wanted?
    pub(super) fn lacks_replicas(&self) -> bool {
        self.lacking.is_there()
    }

    /// Is it acknowledged what too few replicas have, because it is on this machine's disk?
    pub(super) fn is_degraded(&self) -> bool {
        self.lacks_replicas() && self.obstacle().is_none()
    }

    /// Are replicas waited for?
    pub(super) fn waits(&self) -> bool {
        self.replicas > 0
    }

    /// How they are, if they are.
    pub(super) fn waiting(&self) -> Option<ReplicaWait> {
        self.waits().then_some(self.waiting)
    }

    /// For how many a round of confirmations waits: for those that are there, where others may be missing.
    pub(super) fn waited_for(&self) -> u32 {
        let answering = u32::try_from(self.answering()).unwrap_or(u32::MAX);
        if self.stand_in().is_some() { answering.min(self.replicas) } else { self.replicas }
    }

    /// How many replicas answered last.
    pub(super) fn answering(&self) -> u64 {
        self.answering.load(Ordering::Relaxed)
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

    /// Redis may have gone back: nothing is asked of it before that is known.
    pub(super) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    pub(super) fn in_doubt(&self) -> bool {
        self.settled.load(Ordering::Acquire) < self.doubts()
    }

    /// All doubts up to this one.
    pub(super) fn settled(&self, doubt: u64) {
        self.settled.fetch_max(doubt, Ordering::AcqRel);
    }

    /// Something was played again: so many batches, or a take-over.
    pub(super) fn heals(&self, batches: u64) {
        self.healed.fetch_add(1, Ordering::AcqRel);
        self.healed_batches.fetch_add(batches, Ordering::AcqRel);
    }

    /// How often.
    pub(super) fn healed(&self) -> u64 {
        self.healed.load(Ordering::Acquire)
    }

    pub(super) fn healed_batches(&self) -> u64 {
        self.healed_batches.load(Ordering::Acquire)
    }

    /// The leases of all that is owned were renewed, by a call that was sent then.
    pub(super) fn leased(&self, at: Instant) {
        self.leased.send_replace(Some(at));
    }

    /// Waits until they are, by a call that is sent after this instant.
    pub(super) async fn leased_after(&self, instant: Instant) {
        let mut leased = self.leased.subscribe();
        if leased.wait_for(|at| at.is_some_and(|at| at > instant)).await.is_err() {
            // Whoever tells of it is this very value.
            std::future::pending().await
        }
    }

    /// The shards stand here, and others may have something to give back. Are they still waited for?
    pub(super) fn awaits(&self, points: &awaited::Points) -> bool {
        self.awaited.change(|waits| {
            if waits.is_none() {
                tracing::warn!(
                    redis = %self.place,
                    "Redis went back past a hand-over: the node that owned the register then is waited for, to give back its \
                     part"
                );
            }
            awaited::looks(waits, points, Instant::now())
        })
    }

    pub(super) fn awaits_nobody(&self) {
        self.awaited.clear();
    }

    /// What was missing is there again, as far as this process has it.
    pub(super) fn played(&self) {
        *locked(&self.played) = Some(Instant::now());
    }

    /// When that was last.
    pub(super) fn played_at(&self) -> Option<Instant> {
        *locked(&self.played)
    }

    /// The register is somebody else's to own from here on, or is again this process's.
    pub(super) fn yields(&self, yields: bool) {
        self.may_have_yielded.store(false, Ordering::Release);
        self.yielded.store(yields, Ordering::Release);
    }

    /// Somebody else may take the register from here on.
    pub(super) fn may_yield(&self) {
        self.may_have_yielded.store(true, Ordering::Release);
    }

    /// May somebody else have owned the register since this process did?
    pub(super) fn may_have_yielded(&self) -> bool {
        self.may_have_yielded.load(Ordering::Acquire)
    }

    /// Was the register taken from this run of Redis? Then that knows of all who came after.
    pub(super) fn is_taken_from(&self, run: Option<&str>) -> bool {
        run.is_some() && locked(&self.taken_from).as_deref() == run
    }

    /// This process took the register from this run of Redis, if that says which it is.
    pub(super) fn took_from(&self, run: Option<String>) {
        *locked(&self.taken_from) = run;
    }

    pub(super) fn has_yielded(&self) -> bool {
        self.yielded.load(Ordering::Acquire)
    }

    /// Somebody owns the register as far as Redis knows, by the connection of this number.
    pub(super) fn sees_owner_on(&self, number: u64) {
        self.saw_owner.store(number, Ordering::Release);
    }

    pub(super) fn saw_owner_on(&self) -> u64 {
        self.saw_owner.load(Ordering::Acquire)
    }

    /// Batches are confirmed on the connection of this number.
    pub(super) fn confirming(&self, number: u64) {
        self.confirming.store(number, Ordering::Release);
    }

    pub(super) fn confirms_on(&self) -> u64 {
        self.confirming.load(Ordering::Acquire)
    }

    /// It had no memory left for something.
    pub(super) fn full(&self) {
        self.refused_at.set(Some(Instant::now()));
        self.sees_memory(Some(true));
    }

    /// It took something that is no letting go.
    pub(super) fn has_room(&self) {
        self.refused_at.clear();
        self.sees_memory(Some(false));
    }

    /// Is its memory full, by its own word? Where that cannot be asked it is tried again a moment after each refusal.
    pub(super) fn sees_memory(&self, full: Option<bool>) {
        let full = full.unwrap_or(false);
        // Read first: it is told after each commit, and others ask beside that.
        if self.is_full.load(Ordering::Acquire) == full || self.is_full.swap(full, Ordering::AcqRel) == full {
            return;
        }
        if full {
            tracing::error!(redis = %self.place, "{}: releases and reads go on, nothing new is taken", self.info.full);
        } else {
            tracing::info!(redis = %self.place, "Redis has memory again, as far as it tells");
        }
    }

    /// Is it to be asked whether its memory is full still?
    pub(super) fn may_be_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire) || self.refused_at.is_there()
    }
}
