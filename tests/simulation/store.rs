//! One node's way to the register: a [`Store`] whose calls become messages. The world carries them, and may lose, delay and
//! double them.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use allod::store::codec::{Format, encode_batch};
use allod::store::history::{RecordedBatch, Stretch};
use allod::store::{
    Batch, CommitError, Committed, Digest, Head, Later, Seq, ShardId, ShardImage, Store, StoreError, StoreFigures,
    StoreHealth, StoreInfo, Token,
};
use tokio::sync::oneshot;

use super::register::{Sealed, Who, digest};

/// How long an answer may take before its outcome is unknown.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
/// Batches whose digests are remembered: more than can be under way.
const REMEMBERED_BATCHES_MAX: usize = 64;

/// What a node asks of the register, and where the answer goes.
pub enum Ask {
    Take {
        shard: ShardId,
        token: Token,
        before: bool,
        to: oneshot::Sender<Result<Head, StoreError>>,
    },
    Load {
        shard: ShardId,
        token: Token,
        to: oneshot::Sender<Result<ShardImage, StoreError>>,
    },
    /// A doubled commit arrives once more, `again_ms` after it was applied.
    Commit {
        sealed: Arc<[Sealed]>,
        again_ms: Option<u64>,
        to: Option<oneshot::Sender<Result<Vec<Committed>, CommitError>>>,
    },
    Check {
        names: Vec<(ShardId, Token, Seq, Digest)>,
        to: oneshot::Sender<Result<(), CommitError>>,
    },
    Renew {
        shards: Vec<(ShardId, Token)>,
        to: oneshot::Sender<Result<(), StoreError>>,
    },
    Read {
        stretches: Vec<Stretch>,
        bytes: usize,
        to: oneshot::Sender<Result<Vec<RecordedBatch>, StoreError>>,
    },
    Release(Vec<(ShardId, Token)>),
}

/// What leaves a node.
pub enum Out {
    /// To the register.
    Ask(Ask),
    /// To the client of a connection.
    Lines(u64, Vec<u8>),
}

/// Where a node puts what leaves it; the world collects it at once.
pub struct Outbox {
    out: Mutex<Vec<Out>>,
    told: Waker,
}

impl Outbox {
    pub fn new(told: Waker) -> Self {
        Self { out: Mutex::default(), told }
    }

    pub fn put(&self, out: Out) {
        self.out.lock().unwrap().push(out);
        self.told.wake_by_ref();
    }

    pub fn take(&self) -> Vec<Out> {
        std::mem::take(&mut self.out.lock().unwrap())
    }
}

/// What the handle knows of a line: the digests of the batches that it sent.
#[derive(Default)]
struct Line {
    taken: bool,
    token: Option<Token>,
    known: VecDeque<(Seq, Digest)>,
}

impl Line {
    /// The digest of the batch that this one follows. Batches are sent in order, and a repeated batch has the same bytes.
    fn link(&mut self, batch: &Batch, bytes: &[u8]) -> Option<Digest> {
        if self.token != Some(batch.token) {
            return None;
        }
        let &(_, parent) = self.known.iter().find(|(seq, _)| seq.0 + 1 == batch.seq.0)?;
        let next = (batch.seq, digest(parent, bytes));
        if !self.known.contains(&next) {
            // Batches that were sent before under this number or later ones were refused, or will be.
            self.known.retain(|(seq, _)| *seq < batch.seq);
            if self.known.len() == REMEMBERED_BATCHES_MAX {
                self.known.pop_front();
            }
            self.known.push_back(next);
        }
        Some(parent)
    }
}

/// The handle of one process of a node.
pub struct SimStore {
    pub who: Who,
    info: StoreInfo,
    outbox: Arc<Outbox>,
    lines: Arc<Mutex<HashMap<ShardId, Line>>>,
    /// Whether a missing answer is taken to mean that nothing was applied.
    concludes: bool,
}

impl SimStore {
    pub fn new(who: Who, shards: u16, together: bool, concludes: bool, outbox: Arc<Outbox>) -> Self {
        let info = StoreInfo {
            kind: "simulated",
            durability: "confirmed by simulated replicas".to_owned(),
            full: "the simulated register is full",
            register: 1,
            shards,
            commits_shards_together: together,
            ownership_is_standing: false,
            may_be_emptied: true,
            act_bytes_max: allod::limits::ACT_BYTES_MAX,
            move_bytes_max: allod::limits::ACT_BYTES_MAX,
            restored_from: None,
        };
        Self { who, info, outbox, lines: Arc::default(), concludes }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<ShardId, Line>> {
        self.lines.lock().unwrap()
    }

    /// What was taken, and under which tokens.
    fn owned(&self) -> Vec<(ShardId, Token)> {
        let lines = self.lines();
        let taken = lines.iter().filter(|(_, line)| line.taken);
        let mut owned: Vec<(ShardId, Token)> = taken.filter_map(|(shard, line)| Some((*shard, line.token?))).collect();
        owned.sort_unstable_by_key(|(shard, _)| *shard);
        owned
    }

    /// Sends a question, and waits for the answer as long as a store does.
    fn ask<T: Send + 'static>(
        &self,
        ask: Ask,
        answer: oneshot::Receiver<T>,
    ) -> impl Future<Output = Option<T>> + use<T> {
        self.outbox.put(Out::Ask(ask));
        async move { tokio::time::timeout(ANSWER_WITHIN, answer).await.ok()?.ok() }
    }
}

/// The error when the connection broke or no answer came.
pub fn lost() -> StoreError {
    let source = io::Error::from(io::ErrorKind::TimedOut);
    StoreError::Io { context: "talking to the simulated register".into(), source: Arc::new(source) }
}

fn unknown() -> CommitError {
    CommitError::Unknown { cause: lost() }
}

impl Store for SimStore {
    fn info(&self) -> StoreInfo {
        self.info.clone()
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::Ready
    }

    fn figures(&self) -> StoreFigures {
        StoreFigures::default()
    }

    fn take(&self, shard: ShardId, token: Token) -> Later<Result<Head, StoreError>> {
        let before = self.lines().entry(shard).or_default().taken;
        let (to, answer) = oneshot::channel();
        let asked = self.ask(Ask::Take { shard, token, before, to }, answer);
        let lines = Arc::clone(&self.lines);
        Box::pin(async move {
            let taken = asked.await.unwrap_or_else(|| Err(lost()));
            let mut lines = lines.lock().unwrap();
            let line = lines.entry(shard).or_default();
            if let Ok(head) = &taken {
                let known = VecDeque::from([(head.seq, head.digest)]);
                *line = Line { taken: true, token: Some(head.token), known };
            }
            taken
        })
    }

    fn load(&self, shard: ShardId, token: Token) -> Later<Result<ShardImage, StoreError>> {
        let (to, answer) = oneshot::channel();
        let asked = self.ask(Ask::Load { shard, token, to }, answer);
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(lost())) })
    }

    fn commit(&self, batches: Arc<[Batch]>) -> Later<Result<Vec<Committed>, CommitError>> {
        let mut sealed = Vec::with_capacity(batches.len());
        for batch in &*batches {
            let mut bytes = Vec::new();
            encode_batch(batch, Format::NEWEST, &mut bytes).unwrap();
            let parent = self.lines().entry(batch.shard).or_default().link(batch, &bytes);
            sealed.push(Sealed { batch: batch.clone(), parent, bytes: bytes.into() });
        }
        let (to, answer) = oneshot::channel();
        let asked = self.ask(Ask::Commit { sealed: sealed.into(), again_ms: None, to: Some(to) }, answer);
        let concludes = self.concludes;
        let unanswered = move || if concludes { CommitError::NotApplied { cause: lost() } } else { unknown() };
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(unanswered())) })
    }

    fn confirm(&self, names: Vec<(ShardId, Token, Seq, Digest)>) -> Later<Result<(), CommitError>> {
        let (to, answer) = oneshot::channel();
        let asked = self.ask(Ask::Check { names, to }, answer);
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(unknown())) })
    }

    fn renew(&self) -> Later<Result<(), StoreError>> {
        let (to, answer) = oneshot::channel();
        let asked = self.ask(Ask::Renew { shards: self.owned(), to }, answer);
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(lost())) })
    }

    fn release(&self) -> Later<Result<(), StoreError>> {
        // A handle that has nothing, like those of most contenders, sends nothing.
        let shards = self.owned();
        if !shards.is_empty() {
            self.outbox.put(Out::Ask(Ask::Release(shards)));
        }
        // The next take begins anew.
        self.lines().values_mut().for_each(|line| line.taken = false);
        Box::pin(std::future::ready(Ok(())))
    }

    fn recorded(&self, stretches: Vec<Stretch>, bytes: usize) -> Later<Result<Vec<RecordedBatch>, StoreError>> {
        let (to, answer) = oneshot::channel();
        let asked = self.ask(Ask::Read { stretches, bytes, to }, answer);
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(lost())) })
    }

    fn close(&self) -> Later<()> {
        Box::pin(std::future::ready(()))
    }
}
