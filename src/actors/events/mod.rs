//! What happened, told to those who want to know: from any cursor on, in order, without gaps.
//!
//! ```text
//!  committer ──durable groups──▶ Feed ◀──pages── watch (`server::watch`, here or through another node)
//!                                  │
//!                                store: what is older than the feed's memory
//! ```
//!
//! **Pulled, not pushed.** Who watches holds a [`Cursor`] and asks for the page of events behind it ([`page()`]); when there is
//! nothing it waits for the next group. So nothing is kept for anybody, a slow one slows nobody, and going on after a lost
//! connection, a restart or a take-over is the same as going on: the cursor says from where, and its digest whether that
//! is a place of this line. If it is not, it is `cursor_lost`, never a silent jump.
//!
//! **What is told is durable.** The feed knows of each shard how far it is durable as the store is set to; what may be
//! written beyond is not told.
//!
//! **Cost.** A commit notes where its shards stand. While somebody watches, the last groups are kept in memory, so that those who
//! keep up never read from the store: each until as many bytes came behind it as [`Feed::new`] is told.
//!
//! | file | does |
//! | --- | --- |
//! | `cursor` | where somebody stands in the history |
//! | `happened` | events out of batches |
//! | `filter` | who wants which |
//! | `names` | what networks were called when |
//! | `page` | the events behind a cursor |
//! | `lost` | where to go on when a cursor leads nowhere |
//! | `history` | what happened from the beginning on, page by page |
//! | `held` | what was held at a time |
//! | `scan` | the way of both through the store, by the index |
//! | `scribe` | writes the index that they use, behind the commits |
//!
//! Review notes: is anything told beyond a tip? Is every batch that is told proved to follow the one before?

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
use crate::core::types::Place;
use crate::store::{Batch, Committed, Digest, Head, ShardId, StoreError};

/// How long groups are kept in memory for somebody who asked, and may ask again.
const WANTED_FOR_MS: u64 = 30_000;
/// How long somebody waits for the names of networks, who asks for history just after a start.
const READ_UP_WITHIN: Duration = Duration::from_secs(2);

/// A group that was made durable, for those who keep up.
#[derive(Debug)]
pub(super) struct DurableGroup {
    batches: Arc<[Batch]>,
    /// Of each batch: digest of its shard's line before and with it.
    digests: Vec<(Digest, Digest)>,
    bytes: usize,
}

impl DurableGroup {
    /// Its batches in the order in which they are told. Shards have no order among each other, but who follows a subnet that moves
    /// from one to another is told first that it leaves, then that it arrives: else what he knows of an address would end with
    /// the departure.
    fn in_order(&self) -> impl Iterator<Item = (&Batch, (Digest, Digest))> {
        let both = || self.batches.iter().zip(self.digests.iter().copied());
        let is_one = self.batches.len() < 2;
        let leaves = move |batch: &Batch| !is_one && gives_away(batch);
        both().filter(move |(batch, _)| leaves(batch)).chain(both().filter(move |(batch, _)| !leaves(batch)))
    }
}

/// Does something leave with this batch for another network?
fn gives_away(batch: &Batch) -> bool {
    // What spans networks is of a transaction.
    let joint = batch.acts.iter().filter(|act| act.transaction.is_some());
    joint.flat_map(|act| &act.steps).any(|step| {
        let kind = step.event.as_ref().map(|event| event.kind);
        step.state.is_none() && kind == Some(EventKind::Transferred)
    })
}

/// The last groups.
#[derive(Debug)]
struct LastGroups {
    /// Where the shards stood before the first of them.
    base: Vec<Place>,
    groups: VecDeque<Arc<DurableGroup>>,
    bytes: usize,
}

#[derive(Debug)]
struct Inner {
    /// Behind the last durable batch of each shard.
    tips: Vec<Place>,
    /// None while nobody watches.
    kept: Option<LastGroups>,
    /// Which memory it is: another one with each tenure, and wherever something became durable that is not among the groups.
    /// Whoever kept up with the memory before is not behind because of that.
    memory: u128,
    closed: bool,
}

impl Inner {
    /// What became durable is not among the groups.
    fn forget(&mut self) {
        self.kept = None;
        self.memory = self.memory.wrapping_add(1);
    }
}

/// Where the history ends, and its last groups. One for each tenure.
#[derive(Debug)]
pub struct Feed {
    /// Bytes behind a group, by the committer's upper estimate, beyond which it is not kept any more.
    bytes_max: usize,
    /// What networks are called.
    pub names: Names,
    inner: Mutex<Inner>,
    /// Boot time until which groups are kept.
    wanted_until_ms: AtomicU64,
    /// Counts changes of the above.
    changed: watch::Sender<u64>,
    /// Cancelled when the tenure is over.
    closing: CancellationToken,
    /// Cancelled when what was there as the tenure began has been read, as far as it can be: from then on it is known what networks
    /// were called.
    is_read_up: CancellationToken,
    /// Why not all of it could be read.
    unread: Mutex<Option<StoreError>>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Feed {
    /// Over shards that stand at these heads. A watch that goes on in another tenure is not behind only because nothing is kept
    /// there yet.
    pub fn new(tenure: u128, heads: &[(ShardId, Head)], bytes_max: usize) -> Self {
        let mut tips: Vec<Place> = heads.iter().map(|(shard, head)| end_of(*shard, head)).collect();
        tips.sort_by_key(|place| place.shard);
        Self {
            bytes_max,
            names: Names::default(),
            inner: Mutex::new(Inner { tips, kept: None, memory: tenure, closed: false }),
            wanted_until_ms: AtomicU64::new(0),
            changed: watch::Sender::new(0),
            closing: CancellationToken::new(),
            is_read_up: CancellationToken::new(),
            unread: Mutex::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic inside leaves it whole: what is pushed and what is noted are single statements.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A group is durable. `bytes` is the committer's estimate of it.
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
            // What stands although the answer to what is before it was lost proves that that stands, too.
            gap |= batch.seq.0 != tip.seq + 1;
            *tip = behind(batch, done.digest);
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

    /// A shard was taken anew and stands there: what was in doubt is decided.
    pub(super) fn stands(&self, shard: ShardId, head: &Head) {
        let mut inner = self.inner();
        if let Some(tip) = inner.tips.get_mut(usize::from(shard.0)) {
            *tip = end_of(shard, head);
        }
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

    /// The tenure is over, or the server stops: who waits is told so.
    pub fn close(&self) {
        self.inner().closed = true;
        self.closing.cancel();
        self.changed.send_modify(|count| *count += 1);
    }

    /// Cancelled when the tenure is over.
    pub(super) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// Waits a moment until it is known what all networks were called, which is so soon after a start.
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

    /// What was there as the tenure began is damaged, and is read no further. Who asks for history is told so where he comes to it;
    /// nobody waits for the rest.
    pub(super) fn cannot_be_read_up(&self, damage: StoreError) {
        *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(damage);
        self.is_read_up.cancel();
    }

    /// All that was there as the tenure began was read.
    pub(super) fn was_read_up(&self) {
        *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.is_read_up.cancel();
    }

    /// Why it is not known of all of the history what networks were called, if so.
    pub(super) fn unread_names(&self) -> Option<StoreError> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Behind everything that is durable of a shard.
    pub fn tip(&self, shard: ShardId) -> Place {
        self.inner().tips.get(usize::from(shard.0)).copied().unwrap_or_default()
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
        // A group stays until so many bytes came behind it, however long it is itself: who keeps up is about to take it.
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
    use crate::core::types::{Generation, ShardTime};
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

    /// Somebody keeps up with batch 1; what it is told next, and by which memory.
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
