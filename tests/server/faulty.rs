//! A store that fails on demand: before or after applying, late, never, fenced, or by a panic. Wraps any other.

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

/// What happens to one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing special.
    None,
    /// Certainly nothing is written.
    NotApplied,
    /// It is written, and the answer is lost.
    UnknownApplied,
    /// It is not written, and nobody can say.
    UnknownNotApplied,
    /// Refused: somebody else took the shard.
    Fenced,
    /// Refused: no room.
    Full,
    /// Refused: of the first thing that it changes, something else is there.
    Mismatch,
    /// Never answered, never written.
    Hang,
    /// The one who commits crashes.
    Panic,
}

struct Inner {
    /// For the next commits, in order.
    script: VecDeque<Fault>,
    /// For all that come after the script.
    always: Fault,
    health: StoreHealth,
    commits: u64,
    /// Longest commit in bytes, once somebody wants to know.
    longest: Option<usize>,
}

/// The wrapper.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    state: Mutex<Inner>,
    /// While false, commits wait.
    open: watch::Sender<bool>,
    /// While false, loads wait.
    loads: watch::Sender<bool>,
    /// What of its files is damaged.
    pub damage: Mutex<Option<Arc<str>>>,
    /// What stands in the way of what takes space, if it is not room.
    pub obstacle: Mutex<Option<Arc<str>>>,
    /// What is left for what lets go, if it is not as the store inside says.
    pub room: Mutex<Option<u64>>,
    /// What was acknowledged and the register lacks.
    pub late: Mutex<Vec<Arc<Late>>>,
    /// Loads find that somebody else took the shard.
    pub overtaken: std::sync::atomic::AtomicBool,
    /// Loads are refused.
    pub loads_fail: std::sync::atomic::AtomicBool,
    /// How often one was begun.
    pub loads_begun: std::sync::atomic::AtomicU64,
    /// Nobody can say whether the owner still is one.
    pub unproved: std::sync::atomic::AtomicBool,
    /// Whoever asked it last did not reach it, as far as it says.
    pub away: Mutex<Option<Arc<str>>>,
    /// Each proof takes so long, or to say that it is not to be had.
    pub proof_takes_ms: std::sync::atomic::AtomicU64,
    /// Nobody can take a shard: there is no room for that.
    pub no_room_to_take: std::sync::atomic::AtomicBool,
    /// From when a load has read its image until it hands it out, as with a large register.
    pub image_takes_ms: std::sync::atomic::AtomicU64,
    /// Each reading of the past takes so long.
    pub past_takes_ms: std::sync::atomic::AtomicU64,
    /// So many images that are read beside the owner lack this address, of those that should have it.
    pub beside_lacks: Arc<Mutex<Option<(Address, u64)>>>,
    /// The past cannot be read, but for the first batch somewhere, by which it is seen whether a place is there.
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
            inner,
            state: Mutex::new(state),
            open: watch::Sender::new(true),
            loads: watch::Sender::new(true),
            overtaken: false.into(),
            loads_fail: false.into(),
            loads_begun: 0.into(),
            unproved: false.into(),
            away: Mutex::default(),
            proof_takes_ms: 0.into(),
            no_room_to_take: false.into(),
            image_takes_ms: 0.into(),
            past_takes_ms: 0.into(),
            beside_lacks: Arc::default(),
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

    /// Commits wait from here on, until [`FaultyStore::let_go`].
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    pub fn let_go(&self) {
        self.open.send_replace(true);
    }

    /// Commits are measured from here on.
    pub fn measure(&self) {
        self.state.lock().unwrap().longest = Some(0);
    }

    /// Bytes of the longest commit since [`FaultyStore::measure`].
    pub fn longest(&self) -> usize {
        self.state.lock().unwrap().longest.unwrap_or_default()
    }

    /// Loads wait from here on, until [`FaultyStore::let_loads_go`].
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

/// The refusal of these for the first thing that they change.
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
        // It fills up as a disk does, whatever is inside.
        StoreInfo { full: "the disk under the data directory is full", ..self.inner.info() }
    }

    fn health(&self) -> StoreHealth {
        match self.state.lock().unwrap().health {
            // What is inside may run full by itself.
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
        self.inner.take(shard, token)
    }

    fn load(&self, shard: ShardId, token: Token) -> Later<Result<ShardImage, StoreError>> {
        if self.overtaken.load(std::sync::atomic::Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Fenced { shard, current: Epoch(9) })));
        }
        self.loads_begun.fetch_add(1, Ordering::SeqCst);
        if self.loads_fail.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(io_error())));
        }
        let (inner, mut loads) = (Arc::clone(&self.inner), self.loads.subscribe());
        let takes = Duration::from_millis(self.image_takes_ms.load(Ordering::Relaxed));
        Box::pin(async move {
            loads.wait_for(|open| *open).await.unwrap();
            let image = inner.load(shard, token).await;
            tokio::time::sleep(takes).await;
            image
        })
    }

    fn beside(&self, shard: ShardId) -> Later<Result<ShardImage, StoreError>> {
        let (image, lacks) = (self.inner.beside(shard), Arc::clone(&self.beside_lacks));
        Box::pin(async move {
            let mut image = image.await?;
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
        // Called now where it is to be applied: the order of calls is the order of effect.
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
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
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

    fn introduce(&self, card: NodeCard) {
        self.inner.introduce(card);
    }

    fn late(&self) -> Vec<Arc<Late>> {
        self.late.lock().unwrap().clone()
    }

    fn dealt_with(&self, late: &Arc<Late>) -> Later<Result<(), StoreError>> {
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
