//! The calls of the store. Each is handed to the task that carries it out.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{RedisStore, Running, Senders, checks, closed, commits, confirms, ended, load};
use crate::core::types::ShardTime;
use crate::store::history::{RecordedBatch, Stretch};
use crate::store::late::{Late, Lates};
use crate::store::moving::Begun;
use crate::store::{
    Batch, CommitError, Committed, Digest, Followed, Head, Holder, Later, NodeCard, SeenNode, Seq, ShardId, ShardImage,
    Store, StoreError, StoreFigures, StoreHealth, StoreInfo, Token,
};

impl RedisStore {
    /// Hands a job to a task, in the order of the calls.
    fn queue<J>(
        &self,
        job: J,
        to: impl FnOnce(&mut Senders) -> Result<&mpsc::Sender<J>, StoreError>,
    ) -> Result<(), StoreError> {
        self.shared.open()?;
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        to(senders.as_mut().ok_or_else(closed)?)?.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Io {
                context: "queueing for Redis".into(),
                source: Arc::new(std::io::Error::from(std::io::ErrorKind::WouldBlock)),
            },
            mpsc::error::TrySendError::Closed(_) => StoreError::Poisoned("its task ended".into()),
        })
    }

    /// Hands a job to a task and waits for the answer.
    pub(super) fn asked<J: Send + 'static, T: Send + 'static>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> J,
        to: impl FnOnce(&mut Senders) -> Result<&mpsc::Sender<J>, StoreError>,
    ) -> Later<Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let queued = self.queue(job(reply), to);
        Box::pin(async move {
            queued?;
            answer.await.unwrap_or_else(|_| Err(ended()))
        })
    }

    /// Updates the files of a late journal on a thread that may block, because the caller must also renew the lease.
    fn of_lates(
        &self,
        late: &Arc<Late>,
        writes: fn(&Lates, &Late) -> Result<(), StoreError>,
    ) -> Later<Result<(), StoreError>> {
        let (blocking, lates, late) = (self.shared.blocking, Arc::clone(&self.shared.lates), Arc::clone(late));
        Box::pin(blocking.run(move || writes(&lates, &late)))
    }

    fn lease(&self, what: checks::LeaseChange) -> Later<Result<(), StoreError>> {
        self.asked(|reply| checks::CheckJob::Lease(what, reply), |senders| Ok(&senders.checks))
    }
}

impl Store for RedisStore {
    fn info(&self) -> StoreInfo {
        let mut info = StoreInfo { durability: self.shared.durability().to_string(), ..self.shared.info.clone() };
        if self.shared.is_degraded() {
            let (wanted, answering) = (self.shared.replicas, self.shared.answering());
            info.durability.push_str(&format!(
                "; degraded now: {answering} of {wanted} answer, and what is acknowledged is on the disk of the node that owns \
                 the register instead{}",
                self.shared.named_followers()
            ));
        } else if let Some(lacking) = self.shared.lacking.get() {
            info.durability.push_str(&format!("; nothing is granted now: {lacking}{}", self.shared.named_followers()));
        }
        info
    }

    fn health(&self) -> StoreHealth {
        self.shared.health()
    }

    fn obstacle(&self) -> Arc<str> {
        self.shared.obstacle().unwrap_or_else(|| self.shared.info.full.into())
    }

    fn lacks_room(&self) -> bool {
        self.shared.obstacle().is_none()
    }

    fn bars_taking(&self) -> Option<Arc<str>> {
        self.shared.bars_taking()
    }

    fn unreached(&self) -> Option<Arc<str>> {
        self.shared.unreached()
    }

    fn is_unreached(&self) -> bool {
        self.shared.is_unreached()
    }

    fn failure(&self) -> Option<Arc<str>> {
        self.shared.failed_of()
    }

    fn figures(&self) -> StoreFigures {
        let ends = self.shared.tls.as_ref().map(|tls| tls.ends()).unwrap_or_default();
        StoreFigures {
            flushes: self.shared.commits.load(Ordering::Relaxed),
            log_bytes: self.shared.commit_bytes.load(Ordering::Relaxed),
            replicas_wanted: self.shared.replicas.into(),
            replicas_answering: self.shared.answering(),
            healed_batches: self.shared.healed_batches(),
            degraded: self.shared.is_degraded(),
            redo_bytes: self.shared.redo.as_ref().map_or(0, |redo| redo.bytes()),
            appends: self.shared.appends(),
            ca_ends: ends.ca.map(|end| end.0),
            certificate_ends: ends.certificate.map(|end| end.0),
            ..StoreFigures::default()
        }
    }

    fn take(&self, shard: ShardId, token: Token) -> Later<Result<Head, StoreError>> {
        self.asked(|reply| checks::CheckJob::Take(shard, token, reply), |senders| Ok(&senders.checks))
    }

    fn load(&self, shard: ShardId, token: Token) -> Later<Result<ShardImage, StoreError>> {
        self.asked(|reply| load::LoadJob::Load(shard, token, reply), |senders| Ok(&senders.loads))
    }

    fn beside(&self, shard: ShardId) -> Later<Result<ShardImage, StoreError>> {
        self.asked(|reply| load::LoadJob::Beside(shard, reply), |senders| Ok(&senders.reads))
    }

    fn follow(&self, shard: ShardId, from: Head) -> Later<Result<Option<Followed>, StoreError>> {
        self.asked(|reply| load::LoadJob::Follow(shard, from, reply), |senders| Ok(&senders.reads))
    }

    fn commits_from_here(&self) {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        // A store that was closed commits nothing, here or elsewhere, and says so when it is called.
        let _ = senders.as_mut().map(|senders| self.start_commits(senders, Some(&Handle::current())));
    }

    fn commit(&self, batches: Arc<[Batch]>) -> Later<Result<Vec<Committed>, CommitError>> {
        if batches.is_empty() {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        let (reply, answer) = oneshot::channel();
        let queued = self.queue(commits::CommitJob { batches, reply }, |senders| self.commits(senders));
        Box::pin(async move {
            queued.map_err(|cause| CommitError::NotApplied { cause })?;
            answer.await.unwrap_or_else(|_| Err(CommitError::Unknown { cause: ended() }))
        })
    }

    fn confirm(&self, batches: Vec<(ShardId, Token, Seq, Digest)>) -> Later<Result<(), CommitError>> {
        let (reply, answer) = oneshot::channel();
        let job = confirms::ConfirmJob { names: batches, since: None, tells: true, reply };
        let queued = self.queue(job, |senders| Ok(&senders.confirms));
        Box::pin(async move {
            queued.map_err(|cause| CommitError::NotApplied { cause })?;
            answer.await.unwrap_or_else(|_| Err(CommitError::Unknown { cause: ended() }))
        })
    }

    fn review(&self) -> Later<Result<(), StoreError>> {
        self.asked(checks::CheckJob::Review, |senders| Ok(&senders.checks))
    }

    fn late(&self) -> Vec<Arc<Late>> {
        self.shared.lates.all()
    }

    fn late_unwritten(&self) -> u64 {
        self.shared.lates.unwritten()
    }

    fn keep_answered(&self, late: &Arc<Late>) -> Later<Result<(), StoreError>> {
        self.of_lates(late, Lates::keep_answered)
    }

    fn dealt_with(&self, late: &Arc<Late>) -> Later<Result<(), StoreError>> {
        self.of_lates(late, Lates::remove)
    }

    fn was_emptied(&self) -> bool {
        self.shared.was_emptied()
    }

    fn anew(&self, times: Vec<ShardTime>) -> Later<Result<Begun, StoreError>> {
        let (shared, options, way) = (Arc::clone(&self.shared), self.options.clone(), self.place.way().cloned());
        Box::pin(async move { Self::begin_anew(&shared, options, way, &times).await })
    }

    fn written_anew(&self) {
        self.shared.written_anew();
    }

    fn is_read_beside(&self, is_read: bool) {
        self.shared.is_read_beside(is_read);
    }

    fn introduce(&self, card: NodeCard) {
        self.shared.introduce(card);
    }

    /// Does not wait for a replay, which renews the leases as it goes.
    fn renew(&self) -> Later<Result<(), StoreError>> {
        let (shared, begun) = (Arc::clone(&self.shared), Instant::now());
        let renewed = self.lease(checks::LeaseChange::Renewed);
        Box::pin(async move {
            tokio::select! {
                biased;
                ended = renewed => ended,
                () = shared.leased_after(begun) => Ok(()),
            }
        })
    }

    fn release(&self) -> Later<Result<(), StoreError>> {
        self.lease(checks::LeaseChange::Ended)
    }

    fn meet(&self, here: bool) -> Later<Result<Vec<SeenNode>, StoreError>> {
        self.asked(|reply| checks::CheckJob::Meet(here, reply), |senders| Ok(&senders.checks))
    }

    fn holder(&self) -> Later<Result<Option<Holder>, StoreError>> {
        self.asked(checks::CheckJob::Holder, |senders| Ok(&senders.checks))
    }

    fn recorded(&self, stretches: Vec<Stretch>, bytes: usize) -> Later<Result<Vec<RecordedBatch>, StoreError>> {
        self.asked(|reply| load::LoadJob::Recorded(stretches, bytes, reply), |senders| Ok(&senders.reads))
    }

    /// All of it at once, because there is little.
    fn reread(&self, _: u64) -> Later<Result<Option<u64>, StoreError>> {
        let checked = self.asked(load::LoadJob::Plate, |senders| Ok(&senders.reads));
        Box::pin(async move { checked.await.map(|()| None) })
    }

    fn directory(&self) -> Option<PathBuf> {
        self.options.directory.clone()
    }

    fn close(&self) -> Later<()> {
        let running = self.stop();
        Box::pin(async move {
            let Some(Running { ground, tasks, directory }) = running else { return };
            for task in tasks {
                // A crashed task has nothing left to wait for.
                drop(task.await);
            }
            ground.shutdown();
            drop(directory);
        })
    }
}
