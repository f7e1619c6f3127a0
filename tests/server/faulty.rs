//! A wrapper of any store that fails on demand: before or after applying, late, never, fenced, or by a panic.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allod::core::address::Address;
use allod::core::network::Entries;
use allod::store::history::{RecordedBatch, Stretch};
use allod::store::late::Late;
use allod::store::{
    Batch, CommitError, Committed, Digest, Epoch, Followed, Head, Holder, Later, NodeCard, SeenNode, Seq, ShardId,
    ShardImage, Store, StoreError, StoreFigures, StoreHealth, StoreInfo, Token,
};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Certainly nothing is written.
    NotApplied,
    /// It is written, but the answer is lost.
    UnknownApplied,
    /// It is not written, but nobody can say so.
    UnknownNotApplied,
    /// Refused because another node took the shard.
    Fenced,
    /// Refused for want of room.
    Full,
    /// Refused because the first thing that it changes is not as expected.
    Mismatch,
    /// Never written and never answered.
    Hang,
    /// The committer panics.
    Panic,
}

/// Changes the image that is read of a shard.
pub type ReadAs = Box<dyn Fn(&mut ShardImage) + Send>;

struct Inner {
    /// Faults of the next commits, in order.
    script: VecDeque<Fault>,
    /// The fault of all commits after the script.
    always: Fault,
    health: StoreHealth,
    commits: u64,
    /// The longest commit in bytes; None while nobody measures.
    longest: Option<usize>,
}

pub struct FaultyStore {
    inner: Arc<dyn Store>,
    state: Mutex<Inner>,
    /// While false, commits wait.
    open: watch::Sender<bool>,
    /// How long each commit takes, one after the other.
    pub commit_takes_ms: std::sync::atomic::AtomicU64,
    /// The commit that is made now.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// While false, what nobody owns is not taken.
    takes: watch::Sender<bool>,
    /// How often somebody waits to take it.
    pub takes_wait: Arc<std::sync::atomic::AtomicU64>,
    /// While false, loads wait.
    loads: watch::Sender<bool>,
    /// Which of its files are damaged.
    pub damage: Mutex<Option<Arc<str>>>,
    /// What keeps it from taking more, if it is not room.
    pub obstacle: Mutex<Option<Arc<str>>>,
    /// The room left for releases, if it is not what the inner store says.
    pub room: Mutex<Option<u64>>,
    /// Changes that were acknowledged and that the register lacks.
    pub late: Mutex<Vec<Arc<Late>>>,
    /// None of them can be put aside, even once all of them are answered.
    pub keeps_late: std::sync::atomic::AtomicBool,
    /// How often one was brought until all of its claims were answered.
    pub brought: std::sync::atomic::AtomicU64,
    /// Loads find that another node took the shard.
    pub overtaken: std::sync::atomic::AtomicBool,
    pub loads_fail: std::sync::atomic::AtomicBool,
    /// Loads find what this version cannot read.
    pub is_newer: std::sync::atomic::AtomicBool,
    pub loads_begun: std::sync::atomic::AtomicU64,
    /// How many proofs of ownership were requested.
    pub proofs_begun: std::sync::atomic::AtomicU64,
    /// Ownership cannot be proved.
    pub unproved: std::sync::atomic::AtomicBool,
    /// Why the last request did not reach the store, as far as it says.
    pub away: Mutex<Option<Arc<str>>>,
    /// How long each proof takes, or its failure.
    pub proof_takes_ms: std::sync::atomic::AtomicU64,
    /// There is no room to take a shard.
    pub no_room_to_take: std::sync::atomic::AtomicBool,
    /// The time between reading an image and handing it out, as with a large register.
    pub image_takes_ms: std::sync::atomic::AtomicU64,
    /// How long each reading of history takes.
    pub past_takes_ms: std::sync::atomic::AtomicU64,
    /// So many images read beside the owner lack this address, although it should be there.
    pub beside_lacks: Arc<Mutex<Option<(Address, u64)>>>,
    /// Changes what is read of a shard, by its owner or beside it.
    pub reads_as: Arc<Mutex<Option<ReadAs>>>,
    /// Reads of history fail, except for the first batch of a place, which shows whether the place exists.
    pub past_is: Mutex<Option<StoreError>>,
}

impl FaultyStore {
    pub fn around(inner: Arc<dyn Store>) -> Arc<Self> {
        let state = Inner {
            script: VecDeque::new(),
            always: Fault::None,
            health: StoreHealth::Ready,
            commits: 0,
            longest: None,
        };
        Arc::new(Self {
            damage: Mutex::default(),
            obstacle: Mutex::default(),
            room: Mutex::default(),
            late: Mutex::default(),
            keeps_late: false.into(),
            brought: 0.into(),
            inner,
            state: Mutex::new(state),
            open: watch::Sender::new(true),
            commit_takes_ms: 0.into(),
            turn: Arc::default(),
            takes: watch::Sender::new(true),
            takes_wait: Arc::default(),
            loads: watch::Sender::new(true),
            overtaken: false.into(),
            loads_fail: false.into(),
            is_newer: false.into(),
            loads_begun: 0.into(),
            proofs_begun: 0.into(),
            unproved: false.into(),
            away: Mutex::default(),
            proof_takes_ms: 0.into(),
            no_room_to_take: false.into(),
            image_takes_ms: 0.into(),
            past_takes_ms: 0.into(),
            beside_lacks: Arc::default(),
            reads_as: Arc::default(),
            past_is: Mutex::default(),
        })
    }

    pub fn next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().unwrap().script.extend(faults);
    }

    pub fn always(&self, fault: Fault) {
        self.state.lock().unwrap().always = fault;
    }

    pub fn health_is(&self, health: StoreHealth) {
        self.state.lock().unwrap().health = health;
    }

    /// Makes commits wait until [`FaultyStore::let_go`].
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    pub fn let_go(&self) {
        self.open.send_replace(true);
    }

    pub fn measure(&self) {
        self.state.lock().unwrap().longest = Some(0);
    }

    /// Bytes of the longest commit since [`FaultyStore::measure`].
    pub fn longest(&self) -> usize {
        self.state.lock().unwrap().longest.unwrap_or_default()
    }

    /// Makes whoever takes what nobody owns wait until [`FaultyStore::let_takes_go`].
    pub fn hold_takes(&self) {
        self.takes.send_replace(false);
    }

    pub fn let_takes_go(&self) {
        self.takes.send_replace(true);
    }

    /// Makes loads wait until [`FaultyStore::let_loads_go`].
    pub fn hold_loads(&self) {
        self.loads.send_replace(false);
    }

    pub fn let_loads_go(&self) {
        self.loads.send_replace(true);
    }

    pub fn commits(&self) -> u64 {
        self.state.lock().unwrap().commits
    }
}

/// Refuses these batches for the first thing that they change.
fn mismatch(batches: &[Batch]) -> CommitError {
    let first = |batch: &Batch| {
        let (network, step) = batch.acts.iter().find_map(|act| Some((act.network, act.steps.first()?)))?;
        let found = Some(step.expect.map_or(1, |mark| mark + 1));
        let (shard, seq, key, expected) = (batch.shard, batch.seq, step.key, step.expect);
        Some(CommitError::Mismatch { shard, seq, network, key, expected, found })
    };
    batches.iter().find_map(first).expect("a test asks for it where something is changed")
}

pub fn io_error() -> StoreError {
    StoreError::Io { context: "a test".into(), source: Arc::new(io::Error::other("as asked")) }
}

impl Store for FaultyStore {
    fn info(&self) -> StoreInfo {
        // It fills up like a disk, whatever is inside.
        StoreInfo { full: "the disk under the data directory is full", ..self.inner.info() }
    }

    fn health(&self) -> StoreHealth {
        match self.state.lock().unwrap().health {
            // The inner store may run full by itself.
            StoreHealth::Ready if self.inner.health() == StoreHealth::Full => StoreHealth::Full,
            health => health,
        }
    }

    fn obstacle(&self) -> Arc<str> {
        self.obstacle.lock().unwrap().clone().unwrap_or_else(|| self.info().full.into())
    }

    fn lacks_room(&self) -> bool {
        self.obstacle.lock().unwrap().is_none()
    }

    fn room(&self) -> Option<u64> {
        self.room.lock().unwrap().or_else(|| self.inner.room())
    }

    fn unreached(&self) -> Option<Arc<str>> {
        self.away.lock().unwrap().clone().or_else(|| self.inner.unreached())
    }

    fn damage(&self) -> Option<Arc<str>> {
        self.damage.lock().unwrap().clone()
    }

    fn figures(&self) -> StoreFigures {
        self.inner.figures()
    }

    fn take(&self, shard: ShardId, token: Token) -> Later<Result<Head, StoreError>> {
        if self.no_room_to_take.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Full)));
        }
        let mut takes = self.takes.subscribe();
        if *takes.borrow() {
            return self.inner.take(shard, token);
        }
        let (inner, holder) = (Arc::clone(&self.inner), self.inner.holder());
        let waiting = Arc::clone(&self.takes_wait);
        Box::pin(async move {
            if let Ok(None) = holder.await {
                waiting.fetch_add(1, Ordering::SeqCst);
                takes.wait_for(|open| *open).await.unwrap();
            }
            inner.take(shard, token).await
        })
    }

    fn load(&self, shard: ShardId, token: Token) -> Later<Result<ShardImage, StoreError>> {
        if self.overtaken.load(std::sync::atomic::Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Fenced { shard, current: Epoch(9) })));
        }
        self.loads_begun.fetch_add(1, Ordering::SeqCst);
        if self.is_newer.load(Ordering::SeqCst) {
            let newer = Err(StoreError::Newer("a record of a later version".into()));
            return Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                newer
            });
        }
        if self.loads_fail.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(io_error())));
        }
        let (inner, mut loads) = (Arc::clone(&self.inner), self.loads.subscribe());
        let takes = Duration::from_millis(self.image_takes_ms.load(Ordering::Relaxed));
        let reads_as = Arc::clone(&self.reads_as);
        Box::pin(async move {
            loads.wait_for(|open| *open).await.unwrap();
            let image = inner.load(shard, token).await;
            tokio::time::sleep(takes).await;
            image.map(|mut image| {
                if let Some(reads_as) = &*reads_as.lock().unwrap() {
                    reads_as(&mut image);
                }
                image
            })
        })
    }

    fn beside(&self, shard: ShardId) -> Later<Result<ShardImage, StoreError>> {
        let (image, lacks) = (self.inner.beside(shard), Arc::clone(&self.beside_lacks));
        let reads_as = Arc::clone(&self.reads_as);
        Box::pin(async move {
            let mut image = image.await?;
            if let Some(reads_as) = &*reads_as.lock().unwrap() {
                reads_as(&mut image);
            }
            let mut lacks = lacks.lock().unwrap();
            if let Some((address, times)) = lacks.as_mut().filter(|(_, times)| *times > 0) {
                for network in &mut image.networks {
                    let mut all: Vec<_> = std::mem::take(&mut network.entries).into_iter().collect();
                    let before = all.len();
                    all.retain(|(at, _)| at != address);
                    *times -= (before - all.len()) as u64;
                    network.entries = Entries::of_any_order(all);
                }
            }
            Ok(image)
        })
    }

    fn reread(&self, from: u64) -> Later<Result<Option<u64>, StoreError>> {
        self.inner.reread(from)
    }

    fn commit(&self, batches: Arc<[Batch]>) -> Later<Result<Vec<Committed>, CommitError>> {
        let fault = {
            let mut state = self.state.lock().unwrap();
            state.commits += 1;
            if let Some(longest) = &mut state.longest {
                let mut bytes = Vec::new();
                batches.iter().for_each(|batch| {
                    allod::store::codec::encode_batch(batch, allod::store::codec::Format::NEWEST, &mut bytes).unwrap()
                });
                *longest = bytes.len().max(*longest);
            }
            state.script.pop_front().unwrap_or(state.always)
        };
        let mismatch = (fault == Fault::Mismatch).then(|| mismatch(&batches));
        let shard = batches.first().map_or(ShardId(0), |batch| batch.shard);
        let mut open = self.open.subscribe();
        // Call the inner store now if it is to be applied: the order of calls is the order of effects.
        let applied = match fault {
            Fault::None | Fault::UnknownApplied => Some(batches),
            Fault::NotApplied
            | Fault::UnknownNotApplied
            | Fault::Fenced
            | Fault::Full
            | Fault::Mismatch
            | Fault::Hang => None,
            Fault::Panic => panic!("as asked"),
        };
        let (inner, turn) = (Arc::clone(&self.inner), Arc::clone(&self.turn));
        let takes = Duration::from_millis(self.commit_takes_ms.load(Ordering::Relaxed));
        Box::pin(async move {
            // Whoever waits gets it in order.
            let _turn = if takes.is_zero() { None } else { Some(turn.lock().await) };
            tokio::time::sleep(takes).await;
            open.wait_for(|open| *open).await.unwrap();
            let answer = match applied {
                Some(batches) => Some(inner.commit(batches).await),
                None => None,
            };
            if let Some(mismatch) = mismatch {
                return Err(mismatch);
            }
            match (fault, answer) {
                (Fault::None, Some(answer)) => answer,
                (Fault::NotApplied, _) => Err(CommitError::NotApplied { cause: io_error() }),
                (Fault::Full, _) => Err(CommitError::NotApplied { cause: StoreError::Full }),
                (Fault::Fenced, _) => Err(CommitError::Fenced { shard, current: Epoch(99) }),
                (Fault::Hang, _) => std::future::pending().await,
                _ => Err(CommitError::Unknown { cause: io_error() }),
            }
        })
    }

    fn follow(&self, shard: ShardId, from: Head) -> Later<Result<Option<Followed>, StoreError>> {
        self.inner.follow(shard, from)
    }

    fn holder(&self) -> Later<Result<Option<Holder>, StoreError>> {
        self.inner.holder()
    }

    fn confirm(&self, batches: Vec<(ShardId, Token, Seq, Digest)>) -> Later<Result<(), CommitError>> {
        self.proofs_begun.fetch_add(1, Ordering::SeqCst);
        let is_unproved = self.unproved.load(Ordering::SeqCst);
        let confirmed = (!is_unproved).then(|| self.inner.confirm(batches));
        let takes = Duration::from_millis(self.proof_takes_ms.load(Ordering::Relaxed));
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            match confirmed {
                Some(confirmed) => confirmed.await,
                None => Err(CommitError::NotApplied { cause: io_error() }),
            }
        })
    }

    fn review(&self) -> Later<Result<(), StoreError>> {
        self.inner.review()
    }

    fn introduce(&self, card: NodeCard) {
        self.inner.introduce(card);
    }

    fn late(&self) -> Vec<Arc<Late>> {
        self.late.lock().unwrap().clone()
    }

    fn dealt_with(&self, late: &Arc<Late>) -> Later<Result<(), StoreError>> {
        self.brought.fetch_add(1, Ordering::SeqCst);
        if self.keeps_late.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(io_error())));
        }
        self.late.lock().unwrap().retain(|other| other != late);
        Box::pin(std::future::ready(Ok(())))
    }

    fn meet(&self, here: bool) -> Later<Result<Vec<SeenNode>, StoreError>> {
        self.inner.meet(here)
    }

    fn renew(&self) -> Later<Result<(), StoreError>> {
        self.inner.renew()
    }

    fn release(&self) -> Later<Result<(), StoreError>> {
        self.inner.release()
    }

    fn directory(&self) -> Option<PathBuf> {
        self.inner.directory()
    }

    fn recorded(&self, stretches: Vec<Stretch>, bytes: usize) -> Later<Result<Vec<RecordedBatch>, StoreError>> {
        let recorded = self.inner.recorded(stretches, bytes);
        let takes = Duration::from_millis(self.past_takes_ms.load(Ordering::Relaxed));
        let fault = self.past_is.lock().unwrap().clone().filter(|_| bytes > 0);
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            fault.map_or(Ok(()), Err)?;
            recorded.await
        })
    }

    fn close(&self) -> Later<()> {
        self.inner.close()
    }
}
