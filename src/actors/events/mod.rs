//! Reports what happened to those who want to know: from any cursor on, in order, without gaps.
//!
//! ```text
//!  committer ──durable groups──▶ Feed ◀──pages── watch (`server::watch`, here or through another node)
//!                                  │
//!                                store: what is older than the feed's memory
//! ```
//!
//! **Pulled, not pushed.** A watcher keeps a [`Cursor`] and asks for the page of events after it ([`page()`]); if there are
//! none it waits for the next group. So nothing is kept for any watcher, a slow watcher slows nobody, and continuing after a
//! lost connection, a restart or a take-over is the same as continuing at any time: the cursor says from where, and its digest
//! whether that is a place of this line. If it is not, the answer is `cursor_lost`, never a silent jump.
//!
//! **Only durable events are reported.** The feed knows how far each shard is durable, by the durability that the store is set
//! to; what may be written beyond that is not reported.
//!
//! **Cost.** A commit notes where its shards stand. While somebody watches, the last groups are kept in memory, so that
//! watchers who keep up never read from the store: each group until as many bytes followed it as [`Feed::new`] is given.
//!
//! | file | does |
//! | --- | --- |
//! | `cursor` | a place in the history |
//! | `happened` | events, made from batches |
//! | `filter` | which events are wanted |
//! | `names` | the names of networks over time |
//! | `page` | the events after a cursor |
//! | `lost` | where to continue when a cursor is lost |
//! | `history` | what happened, page by page |
//! | `held` | what was held at a time |
//! | `scan` | the walk of both through the store, by the index |
//! | `scribe` | writes the index that they use, after the commits |
//!
//! Review notes: is anything reported beyond a tip? Is every batch that is reported proved to follow the one before?

pub mod cursor;
pub mod filter;
pub mod happened;
pub mod held;
pub mod history;
mod lost;
pub mod names;
mod order;
pub mod page;
mod scan;
pub(super) mod scribe;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::cursor::Cursor;
use self::cursor::{behind, end_of};
pub use self::filter::Filter;
pub use self::happened::{Happened, What};
pub use self::lost::{check, of_another_network};
use self::names::Names;
pub use self::page::{EventsPage, page};
use super::{Fault, NotReadyReason};
use crate::core::state::EventKind;
use crate::core::types::{Generation, Place, ShardTime};
use crate::store::{Batch, Committed, Digest, Head, ShardId, StoreError};

/// How long groups are kept in memory for a watcher that asked, and may ask again.
const WANTED_FOR_MS: u64 = 30_000;
/// How long a request for history just after a start waits for the names of networks.
const READ_UP_WITHIN: Duration = Duration::from_secs(2);

/// A group that became durable, for watchers who keep up.
#[derive(Debug)]
pub(super) struct DurableGroup {
    batches: Arc<[Batch]>,
    /// For each batch: the digest of its shard's line before and with it.
    digests: Vec<(Digest, Digest)>,
    bytes: usize,
}

impl DurableGroup {
    /// Its batches in the order in which they are reported. Shards have no order among each other, but a client that follows a
    /// subnet which moves from one to another is first told that it leaves, then that it arrives: otherwise the last it knew
    /// of an address would be the departure.
    fn in_order(&self) -> impl Iterator<Item = (&Batch, (Digest, Digest))> {
        let both = || self.batches.iter().zip(self.digests.iter().copied());
        let is_one = self.batches.len() < 2;
        let leaves = move |batch: &Batch| !is_one && gives_away(batch);
        both().filter(move |(batch, _)| leaves(batch)).chain(both().filter(move |(batch, _)| !leaves(batch)))
    }
}

/// Does something leave for another network with this batch?
fn gives_away(batch: &Batch) -> bool {
    // What spans networks has a transaction.
    let joint = batch.acts.iter().filter(|act| act.transaction.is_some());
    joint.flat_map(|act| &act.steps).any(|step| {
        let kind = step.event.as_ref().map(|event| event.kind);
        step.state.is_none() && kind == Some(EventKind::Transferred)
    })
}

/// The last groups.
#[derive(Debug)]
struct LastGroups {
    /// The places of the shards before the first of the groups.
    base: Vec<Place>,
    groups: VecDeque<Arc<DurableGroup>>,
    bytes: usize,
}

#[derive(Debug)]
struct Inner {
    /// The place after the last durable batch of each shard.
    tips: Vec<Place>,
    /// What the head of each shard says there: its time, and the highest generation given.
    bounds: Vec<(ShardTime, Generation)>,
    /// None while nobody watches.
    kept: Option<LastGroups>,
    /// Identity of this memory: it changes with each tenure, and whenever something became durable that is not among the
    /// groups. A watcher that kept up with the previous memory does not count as behind because of that.
    memory: u128,
    closed: bool,
}

impl Inner {
    fn bound(&mut self, shard: ShardId, time: ShardTime, generation: Generation) {
        if let Some(bounds) = self.bounds.get_mut(usize::from(shard.0)) {
            *bounds = (time, generation);
        }
    }

    /// What became durable is not among the groups.
    fn forget(&mut self) {
        self.kept = None;
        self.memory = self.memory.wrapping_add(1);
    }
}

/// The end of the history, and its last groups. One for each tenure.
#[derive(Debug)]
pub struct Feed {
    /// Bytes after a group, by the committer's upper estimate, beyond which the group is no longer kept.
    bytes_max: usize,
    /// The names of networks.
    pub names: Names,
    inner: Mutex<Inner>,
    /// Boot time until which groups are kept.
    wanted_until_ms: AtomicU64,
    /// Counts changes of `inner`.
    changed: watch::Sender<u64>,
    /// Cancelled when the tenure is over.
    closing: CancellationToken,
    /// Cancelled when the history before this tenure has been read, as far as possible: from then on the names of networks are
    /// known.
    is_read_up: CancellationToken,
    /// Why not all of the history could be read.
    unread: Mutex<Option<StoreError>>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Feed {
    /// A feed of shards with these heads. A watch that continues in another tenure is not behind merely because nothing is
    /// kept there yet.
    pub fn new(tenure: u128, heads: &[(ShardId, Head)], bytes_max: usize) -> Self {
        let mut heads = heads.to_vec();
        heads.sort_by_key(|(shard, _)| *shard);
        let tips = heads.iter().map(|(shard, head)| end_of(*shard, head)).collect();
        let bounds = heads.iter().map(|(_, head)| (head.time, head.generation)).collect();
        Self {
            bytes_max,
            names: Names::default(),
            inner: Mutex::new(Inner { tips, bounds, kept: None, memory: tenure, closed: false }),
            wanted_until_ms: AtomicU64::new(0),
            changed: watch::Sender::new(0),
            closing: CancellationToken::new(),
            is_read_up: CancellationToken::new(),
            unread: Mutex::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic inside leaves it consistent: each push and each note is a single statement.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a group is durable. `bytes` is the committer's estimate of it.
    pub(super) fn publish(&self, batches: &Arc<[Batch]>, committed: &[Committed], bytes: usize, now_ms: u64) {
        let wanted = now_ms < self.wanted_until_ms.load(Ordering::Relaxed);
        let mut inner = self.inner();
        let (mut digests, mut gap) = (Vec::new(), false);
        for batch in &**batches {
            self.names.read(batch);
            let Some(done) = committed.iter().find(|done| done.shard == batch.shard) else { continue };
            let Some(tip) = inner.tips.get_mut(usize::from(batch.shard.0)) else { continue };
            if wanted {
                digests.push((Digest(tip.digest), done.digest));
            }
            // A batch that stands, although the answer to the one before was lost, proves that the one before stands too.
            gap |= batch.seq.0 != tip.seq + 1;
            *tip = behind(batch, done.digest);
            inner.bound(batch.shard, batch.time, batch.generation);
        }
        inner.kept = inner.kept.take().filter(|_| wanted);
        if gap {
            inner.forget();
        }
        if let Some(kept) = &mut inner.kept {
            kept.push(Arc::new(DurableGroup { batches: Arc::clone(batches), digests, bytes }), self.bytes_max);
        }
        drop(inner);
        self.wake();
    }

    /// Notes that a shard was taken again and stands there: what was in doubt is decided.
    pub(super) fn stands(&self, shard: ShardId, head: &Head) {
        let mut inner = self.inner();
        if let Some(tip) = inner.tips.get_mut(usize::from(shard.0)) {
            *tip = end_of(shard, head);
        }
        inner.bound(shard, head.time, head.generation);
        // What became durable by itself is not among the groups.
        inner.forget();
        drop(inner);
        self.wake();
    }

    fn wake(&self) {
        if self.changed.receiver_count() > 0 {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Ends the feed because the tenure is over, or the server stops: those who wait are told so.
    pub fn close(&self) {
        self.inner().closed = true;
        self.closing.cancel();
        self.changed.send_modify(|count| *count += 1);
    }

    /// Cancelled when the tenure is over.
    pub(super) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// Waits a moment until the names of all networks are known, which is soon after a start.
    ///
    /// # Errors
    /// [`Fault::NotReady`].
    pub(super) async fn read_up(&self) -> Result<(), Box<Fault>> {
        let read_up = tokio::time::timeout(READ_UP_WITHIN, self.is_read_up.cancelled());
        let reason = tokio::select! {
            biased;
            () = self.closing.cancelled() => NotReadyReason::Moved,
            read_up = read_up => match read_up {
                Ok(()) => return Ok(()),
                Err(_) => NotReadyReason::Loading,
            },
        };
        Err(Box::new(Fault::NotReady { reason, retry_after_ms: 1_000 }))
    }

    /// Notes that the history before this tenure is damaged, and is read no further. A client that asks for history is told so
    /// when it reaches the damage; nobody waits for the rest.
    pub(super) fn cannot_be_read_up(&self, damage: StoreError) {
        *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(damage);
        self.is_read_up.cancel();
    }

    /// Notes that the history before this tenure was read completely.
    pub(super) fn was_read_up(&self) {
        *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.is_read_up.cancel();
    }

    /// Why the names of networks are not known for all of the history, if so.
    pub(super) fn unread_names(&self) -> Option<StoreError> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The place after everything that is durable of a shard.
    pub fn tip(&self, shard: ShardId) -> Place {
        self.inner().tips.get(usize::from(shard.0)).copied().unwrap_or_default()
    }

    /// The same, with what the head of the shard says there: its time, and the highest generation given.
    pub(super) fn head(&self, shard: ShardId) -> (Place, ShardTime, Generation) {
        let (inner, at) = (self.inner(), usize::from(shard.0));
        let (time, generation) = inner.bounds.get(at).copied().unwrap_or_default();
        (inner.tips.get(at).copied().unwrap_or_default(), time, generation)
    }

    /// Behind everything that is durable.
    pub fn end(&self) -> Cursor {
        Cursor::new(true, self.inner().tips.iter().copied())
    }
}

impl LastGroups {
    fn push(&mut self, group: Arc<DurableGroup>, bytes_max: usize) {
        self.bytes += group.bytes;
        self.groups.push_back(group);
        // A group stays until this many bytes followed it, however long it is itself: a watcher that keeps up is about to take
        // it.
        while self.groups.front().is_some_and(|oldest| self.bytes - oldest.bytes > bytes_max)
            && let Some(oldest) = self.groups.pop_front()
        {
            self.bytes -= oldest.bytes;
            for (batch, (_, digest)) in oldest.batches.iter().zip(&oldest.digests) {
                if let Some(base) = self.base.get_mut(usize::from(batch.shard.0)) {
                    *base = behind(batch, *digest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::page::PageSource;
    use super::*;
    use crate::limits::EVENTS_PAGE_BYTES;
    use crate::store::{Epoch, Seq, Token};

    const SHARD: ShardId = ShardId(0);

    fn publish(feed: &Feed, seq: u64) {
        publish_long(feed, seq, 1);
    }

    fn publish_long(feed: &Feed, seq: u64, bytes: usize) {
        let (time, generation) = (ShardTime(seq), Generation(0));
        let (epoch, token) = (Epoch(1), Token(1));
        let batch = Batch { shard: SHARD, epoch, token, seq: Seq(seq), time, generation, acts: Vec::new() };
        let done = Committed { shard: SHARD, seq: Seq(seq), digest: Digest(u128::from(seq)) };
        feed.publish(&Arc::from([batch]), &[done], bytes, 0);
    }

    /// A watcher keeps up with batch 1; what it is told next, and from which memory.
    fn behind_the_first(then: impl FnOnce(&Feed)) -> (PageSource, bool) {
        let feed = Feed::new(7, &[(SHARD, Head::default())], 1_000);
        let place = |seq: u64| Place { shard: 0, epoch: 1, seq, steps: None, digest: u128::from(seq) };
        assert!(feed.source(&[SHARD], &Cursor::new(false, [place(0)]), 0).is_ok());
        publish(&feed, 1);
        let before = feed.inner().memory;
        then(&feed);
        let source = feed.source(&[SHARD], &Cursor::new(false, [place(1)]), 0);
        let (source, memory) = source.unwrap_or_else(|_| panic!("the cursor is good"));
        (source, memory == before)
    }

    #[test]
    fn how_far_behind_somebody_is_decides_what_is_told_and_not_from_which_end_it_is_looked_for() {
        let feed = Feed::new(7, &[(SHARD, Head::default())], 1_000);
        let place = |seq: u64| Place { shard: 0, epoch: 1, seq, steps: None, digest: u128::from(seq) };
        let source = |seq| feed.source(&[SHARD], &Cursor::new(false, [place(seq)]), 0).map(|(source, _)| source);
        assert!(source(0).is_ok());
        (1..=10).for_each(|seq| publish(&feed, seq));
        for seen in 0..10 {
            let Ok(PageSource::Memory(groups)) = source(seen) else { panic!("behind {seen} from memory") };
            let told: Vec<u64> =
                groups.iter().flat_map(|group| group.batches.iter().map(|batch| batch.seq.0)).collect();
            assert_eq!(told, (seen + 1..=10).collect::<Vec<_>>());
        }
    }

    fn from_memory(feed: &Feed, seq: u64) -> Option<Vec<u64>> {
        let place = Place { shard: 0, epoch: 1, seq, steps: None, digest: u128::from(seq) };
        match feed.source(&[SHARD], &Cursor::new(false, [place]), 0) {
            Ok((PageSource::Memory(groups), _)) => {
                Some(groups.iter().flat_map(|group| group.batches.iter().map(|batch| batch.seq.0)).collect())
            }
            _ => None,
        }
    }

    #[test]
    fn a_page_out_of_memory_is_no_longer_than_one_out_of_the_store_but_for_a_single_group() {
        let feed = Feed::new(7, &[(SHARD, Head::default())], 100 * EVENTS_PAGE_BYTES);
        assert_eq!(from_memory(&feed, 0), None);
        let third = EVENTS_PAGE_BYTES / 3;
        for (seq, bytes) in (1..).zip([third, third, third, third, 9 * EVENTS_PAGE_BYTES, third]) {
            publish_long(&feed, seq, bytes);
        }
        let told = [0, 3, 4, 5].map(|seq| from_memory(&feed, seq).unwrap());
        assert_eq!(told, [vec![1, 2, 3], vec![4], vec![5], vec![6]]);
    }

    #[test]
    fn who_keeps_up_is_told_a_group_that_is_longer_than_all_that_is_kept() {
        for bytes_max in [0, 1_000] {
            let feed = Feed::new(7, &[(SHARD, Head::default())], bytes_max);
            assert_eq!(from_memory(&feed, 0), None);
            publish_long(&feed, 1, 1_001);
            assert_eq!(from_memory(&feed, 0), Some(vec![1]), "of {bytes_max}");
            publish_long(&feed, 2, 1_000);
            assert_eq!(from_memory(&feed, 0).is_some(), bytes_max > 0, "of {bytes_max}");
            publish(&feed, 3);
            assert_eq!((from_memory(&feed, 0), from_memory(&feed, 2)), (None, Some(vec![3])), "of {bytes_max}");
        }
    }

    #[test]
    fn who_keeps_up_is_told_from_memory() {
        let (source, same) = behind_the_first(|feed| publish(feed, 2));
        assert!(matches!(source, PageSource::Memory(groups) if groups.len() == 1) && same);
    }

    #[test]
    fn what_stands_before_the_answer_to_the_batch_before_it_came_is_read_from_the_store_and_nobody_is_lagged() {
        let (source, same) = behind_the_first(|feed| publish(feed, 3));
        assert!(matches!(source, PageSource::Store(_)) && !same);
        let (source, same) = behind_the_first(|feed| feed.stands(SHARD, &Head { seq: Seq(3), ..Head::default() }));
        assert!(matches!(source, PageSource::Store(_)) && !same);
    }
}
