//! The register in memory only, for trials and tests. Everything is lost with the process.
//!
//! Apart from durability it keeps the contract of a store. It compares token, seq, digest and expectations exactly, so a
//! test of the fence against it is a real one. Its history is bounded by bytes.
//!
//! Neighbours: `fence` has the rules, `codec` the bytes whose digests are chained; `records` holds the state.

mod records;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use self::records::StateByKey;
use super::fence::{self, BatchFit, FenceLine};
use super::history::{self, RecordedBatch, Stretch};
use super::{
    Batch, CommitError, Committed, Digest, Head, Later, RecordImage, Seq, ShardId, ShardImage, Store, StoreError,
    StoreFigures, StoreHealth, StoreInfo, Token,
};
use crate::core::state::{Key, State, Step};
use crate::core::types::{NetworkId, ShardTime};

/// Bytes of batches that are kept as history by default.
const HISTORY_BYTES: u64 = 64 << 20;
/// Bytes of a usual act. Room for them is reserved at once, so that the bytes of a long batch are not copied again and again.
const ACT_BYTES: usize = 96;

/// Keeps the register for as long as the process lives.
#[derive(Debug)]
pub struct MemoryStore {
    register: u128,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    shards: Vec<Shard>,
    closed: bool,
    figures: StoreFigures,
}

#[derive(Debug)]
struct Shard {
    line: FenceLine,
    networks: BTreeMap<NetworkId, StateByKey>,
    history: VecDeque<RecordedBatch>,
    /// When each batch of `history` was written, by the shard's time.
    times: VecDeque<ShardTime>,
    history_bytes: u64,
    history_bytes_max: u64,
    history_seconds_max: u64,
}

impl MemoryStore {
    /// An empty register of `shards` shards with a random identity.
    pub fn new(shards: u16) -> Self {
        Self::keeping(shards, HISTORY_BYTES)
    }

    /// An empty register that keeps this many bytes of history over all shards. The last batch of a shard is always kept.
    pub fn keeping(shards: u16, history_bytes: u64) -> Self {
        Self::keeping_for(shards, history_bytes, u64::MAX)
    }

    /// An empty register that keeps this many bytes of history over all shards, and drops a batch when the last one of its
    /// shard is more than this many seconds younger.
    pub fn keeping_for(shards: u16, history_bytes: u64, history_seconds: u64) -> Self {
        let history_bytes_max = history_bytes / u64::from(shards.max(1));
        let shards = (0..shards)
            .map(|shard| Shard {
                line: FenceLine::new(ShardId(shard)),
                networks: BTreeMap::new(),
                history: VecDeque::new(),
                times: VecDeque::new(),
                history_bytes: 0,
                history_bytes_max,
                history_seconds_max: history_seconds,
            })
            .collect();
        let inner = Inner { shards, closed: false, figures: StoreFigures::default() };
        Self { register: rand::random(), inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic inside leaves nothing half done: all checks come before the first change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn open(&self) -> Result<(), StoreError> {
        if self.closed { Err(StoreError::Poisoned("it was closed".into())) } else { Ok(()) }
    }

    fn shard(&mut self, shard: ShardId) -> Result<&mut Shard, StoreError> {
        let count = self.shards.len();
        self.shards.get_mut(usize::from(shard.0)).ok_or_else(|| unknown_shard(shard, count))
    }

    fn take(&mut self, shard: ShardId, token: Token) -> Result<Head, StoreError> {
        self.open()?;
        let shard = self.shard(shard)?;
        if let Some(head) = shard.line.after_take(token, None) {
            shard.line.take(head);
        }
        Ok(shard.line.head())
    }

    fn commit(&mut self, batches: &[Batch]) -> Result<Vec<Committed>, CommitError> {
        self.open().map_err(|cause| CommitError::NotApplied { cause })?;
        fence::check_once_each(batches)?;
        let mut verdicts = Vec::with_capacity(batches.len());
        for batch in batches {
            let shard = self.shard(batch.shard).map_err(|cause| CommitError::NotApplied { cause })?;
            let mut bytes = Vec::with_capacity(ACT_BYTES * (batch.acts.len() + 1));
            fence::encode(batch, shard.line.head().format, &mut bytes)?;
            let verdict = shard.line.check(&fence::header_of(batch), &bytes)?;
            if let BatchFit::Next(_) = verdict {
                shard.check_expectations(batch)?;
            }
            verdicts.push((verdict, bytes));
        }
        // Every check has passed. From here on everything succeeds.
        let mut answers = Vec::with_capacity(batches.len());
        for (batch, (verdict, bytes)) in batches.iter().zip(verdicts) {
            let header = fence::header_of(batch);
            answers.push(fence::committed(&header, verdict));
            if let BatchFit::Next(digest) = verdict
                && let Some(shard) = self.shards.get_mut(usize::from(batch.shard.0))
            {
                shard.line.follow(&header, digest);
                shard.apply(batch);
                let (digest, bytes) = (Some(digest), bytes.into());
                shard.record(RecordedBatch { shard: batch.shard, seq: batch.seq, digest, bytes }, batch.time);
            }
        }
        self.figures.flushes += 1;
        Ok(answers)
    }

    /// For the owner if a token is given, else for anybody.
    fn load(&mut self, shard: ShardId, token: Option<Token>) -> Result<ShardImage, StoreError> {
        self.open()?;
        let shard = self.shard(shard)?;
        let head = token.map_or_else(|| Ok(shard.line.head()), |token| shard.line.check_owner(token))?;
        let mut image = ShardImage::new(head);
        for (&id, keys) in &shard.networks {
            let mut record = RecordImage::new(id);
            let mut keys: Vec<(&Key, &State)> = keys.iter().collect();
            keys.sort_unstable_by_key(|(key, _)| **key);
            for (key, state) in keys {
                record.add(*key, state.clone()).map_err(StoreError::Damaged)?;
            }
            image.add(record).map_err(StoreError::Damaged)?;
        }
        Ok(image)
    }
}

impl Inner {
    fn recorded(&mut self, stretches: &[Stretch], bytes: usize) -> Result<Vec<RecordedBatch>, StoreError> {
        let (mut recorded, mut read_bytes) = (Vec::new(), 0);
        for stretch in stretches {
            let history = &self.shard(stretch.shard)?.history;
            let begin = history.partition_point(|batch| batch.seq <= stretch.after);
            for batch in history.range(begin..).take_while(|batch| batch.seq <= stretch.until) {
                if history::is_full(&recorded, read_bytes, bytes) {
                    return Ok(recorded);
                }
                read_bytes += batch.bytes.len();
                recorded.push(batch.clone());
            }
        }
        Ok(recorded)
    }
}

fn unknown_shard(shard: ShardId, count: usize) -> StoreError {
    StoreError::Invalid(format!("there is no shard {}: the register has {count}, from 0", shard.0).into())
}

impl Shard {
    /// Several steps of one batch may change the same key; each expects what the one before left.
    fn check_expectations(&self, batch: &Batch) -> Result<(), CommitError> {
        let mut marks: HashMap<(NetworkId, Key), Option<u64>> = HashMap::with_capacity(batch.acts.len());
        for act in &batch.acts {
            let keys = self.networks.get(&act.network);
            for step in &act.steps {
                let there = || keys.and_then(|keys| keys.get(&step.key)).map(State::mark);
                let mark = marks.entry((act.network, step.key)).or_insert_with(there);
                if *mark != step.expect {
                    return Err(CommitError::Mismatch {
                        shard: batch.shard,
                        seq: batch.seq,
                        network: act.network,
                        key: step.key,
                        expected: step.expect,
                        found: *mark,
                    });
                }
                *mark = step.state.as_ref().map(State::mark);
            }
        }
        Ok(())
    }

    fn apply(&mut self, batch: &Batch) {
        for act in &batch.acts {
            let keys = self.networks.entry(act.network).or_default();
            for Step { key, state, .. } in &act.steps {
                match state {
                    Some(state) => keys.insert(*key, state.clone()),
                    None => keys.remove(key),
                }
            }
            if keys.is_empty() {
                self.networks.remove(&act.network);
            }
        }
    }

    fn record(&mut self, recorded: RecordedBatch, time: ShardTime) {
        self.history_bytes += recorded.bytes.len() as u64;
        self.history.push_back(recorded);
        self.times.push_back(time);
        let is_old = |oldest: Option<&ShardTime>| {
            oldest.is_some_and(|oldest| time.0.saturating_sub(oldest.0) / 1_000 > self.history_seconds_max)
        };
        while (self.history_bytes > self.history_bytes_max || is_old(self.times.front())) && self.history.len() > 1 {
            let (Some(oldest), Some(_)) = (self.history.pop_front(), self.times.pop_front()) else { break };
            self.history_bytes -= oldest.bytes.len() as u64;
        }
    }
}

fn ready<T: Send + 'static>(value: T) -> Later<T> {
    Box::pin(std::future::ready(value))
}

impl Store for MemoryStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            kind: "memory",
            durability: "nothing: all is lost when the process ends".into(),
            full: "this machine has no memory left",
            register: self.register,
            shards: self.inner().shards.len() as u16,
            commits_shards_together: true,
            ownership_is_standing: true,
            may_be_emptied: false,
            act_bytes_max: crate::limits::ACT_BYTES_MAX,
            move_bytes_max: crate::limits::ACT_BYTES_MAX,
            restored_from: None,
        }
    }

    fn health(&self) -> StoreHealth {
        if self.inner().closed { StoreHealth::Failed } else { StoreHealth::Ready }
    }

    fn figures(&self) -> StoreFigures {
        self.inner().figures
    }

    fn take(&self, shard: ShardId, token: Token) -> Later<Result<Head, StoreError>> {
        ready(self.inner().take(shard, token))
    }

    fn load(&self, shard: ShardId, token: Token) -> Later<Result<ShardImage, StoreError>> {
        ready(self.inner().load(shard, Some(token)))
    }

    fn beside(&self, shard: ShardId) -> Later<Result<ShardImage, StoreError>> {
        ready(self.inner().load(shard, None))
    }

    fn commit(&self, batches: Arc<[Batch]>) -> Later<Result<Vec<Committed>, CommitError>> {
        ready(self.inner().commit(&batches))
    }

    fn confirm(&self, batches: Vec<(ShardId, Token, Seq, Digest)>) -> Later<Result<(), CommitError>> {
        let mut inner = self.inner();
        ready(batches.into_iter().try_for_each(|(shard, token, seq, digest)| {
            let shard = inner.shard(shard).map_err(|cause| CommitError::NotApplied { cause })?;
            shard.line.confirm(token, seq, digest)
        }))
    }

    fn recorded(&self, stretches: Vec<Stretch>, bytes: usize) -> Later<Result<Vec<RecordedBatch>, StoreError>> {
        ready(self.inner().recorded(&stretches, bytes))
    }

    fn close(&self) -> Later<()> {
        self.inner().closed = true;
        ready(())
    }
}
