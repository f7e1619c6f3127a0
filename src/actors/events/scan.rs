//! Walks over the history from its beginning, or from a cursor, to its end: chapter by chapter where the index may have
//! something wanted, then everything after the last chapter. Events come in order of time, in each shard in the order in which
//! they happened, and what goes to another network leaves before it arrives (`order`).

use std::collections::HashMap;
use std::sync::Arc;

use super::cursor::told;
use super::filter::Filter;
use super::happened::{Happened, Teller};
use super::order::{self, Ordered};
use super::page::{CUT_OFF, unread};
use super::{Cursor, lost};
use crate::actors::Fault;
use crate::actors::service::Shared;
use crate::core::types::{Place, WallTime};
use crate::limits::EVENTS_PAGE_BYTES;
use crate::store::chapters::Chapter;
use crate::store::history::{RecordedBatch, Stretch};
use crate::store::{Digest, Seq, ShardId, TransactionId};

/// Chapters that are skipped before the caller can look at the time. Checking the filters of one takes some microseconds.
const PASSED_AT_ONCE: usize = 512;

/// A part of the history that was looked at.
#[derive(Debug)]
pub(super) struct Piece {
    /// Where the piece begins, and where it ends.
    pub(super) span: (Cursor, Cursor),
    /// The wanted events in it.
    pub(super) events: Vec<Happened>,
}

/// A walk. See the module.
pub(super) struct Scan<'a> {
    shared: &'a Shared,
    filter: &'a Filter,
    shards: Vec<ShardId>,
    /// The walk ends here, whatever happens meanwhile.
    end: Cursor,
    chapters: std::vec::IntoIter<Arc<Chapter>>,
    /// Everything before this was looked at.
    pub(super) cursor: Cursor,
}

impl<'a> Scan<'a> {
    /// A walk from one cursor to another.
    pub(super) fn new(shared: &'a Shared, filter: &'a Filter, cursor: Cursor, end: Cursor) -> Self {
        let shards = filter.shards(shared.info.shards);
        // The chapters first: what is in none of them comes after the last one, and before the end.
        let chapters = shared.chapters.all().to_vec().into_iter();
        Self { shared, filter, end, chapters, cursor, shards }
    }

    /// The next part that was read, or skipped: at most some thousand events are read for it, so that a waiting client can be
    /// told how far the walk is. None at the end.
    ///
    /// # Errors
    /// [`Fault::CursorLost`] if the walk began on another line; [`Fault::Unavailable`] if the store cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>, Box<Fault>> {
        let (begin, mut passed) = (self.cursor.clone(), 0);
        while let Some(chapter) = self.chapters.as_slice().first().map(Arc::clone) {
            // What lies before the chapter and in no other is read first, or it would be skipped with it. Usually there is
            // nothing: it belongs to shards that come late, or is older than retention.
            let gaps = self.stretches(|shard| Some((Seq(0), Seq(chapter.range(shard)?.first.0 - 1))));
            if !gaps.is_empty() {
                let recorded = self.shared.store.recorded(gaps, EVENTS_PAGE_BYTES).await.map_err(unread)?;
                if !recorded.is_empty() {
                    return self.piece(recorded).await.map(Some);
                }
            }
            self.chapters.next();
            let stretches = self.stretches(|shard| {
                let range = chapter.range(shard)?;
                Some((Seq(range.first.0 - 1), range.last))
            });
            if stretches.is_empty() {
                continue;
            }
            if !self.shared.chapters.may_have(&chapter, &self.filter.wanted()) {
                for range in &chapter.ranges {
                    let (shard, seq, epoch) = (range.shard.0, range.last.0, range.epoch.0);
                    self.advance(Place { shard, epoch, seq, steps: None, digest: range.digest.0 });
                }
                passed += 1;
                if passed < PASSED_AT_ONCE {
                    continue;
                }
                return Ok(Some(Piece { span: (begin, self.cursor.clone()), events: Vec::new() }));
            }
            // A chapter is bounded; what is older than retention no longer exists.
            let recorded = self.shared.store.recorded(stretches, usize::MAX).await.map_err(unread)?;
            return self.piece(recorded).await.map(Some);
        }
        let stretches = self.left();
        if stretches.is_empty() {
            return Ok(None);
        }
        let recorded = self.shared.store.recorded(stretches, EVENTS_PAGE_BYTES).await.map_err(unread)?;
        if recorded.is_empty() {
            // All of it is older than retention.
            return Ok(None);
        }
        self.piece(recorded).await.map(Some)
    }

    /// Was everything read, or skipped?
    pub(super) fn is_over(&self) -> bool {
        self.left().is_empty()
    }

    /// What remains to be read.
    fn left(&self) -> Vec<Stretch> {
        self.stretches(|_| Some((Seq(0), Seq(u64::MAX))))
    }

    /// What remains to be read of these parts of the shards.
    fn stretches(&self, of: impl Fn(ShardId) -> Option<(Seq, Seq)>) -> Vec<Stretch> {
        let left = self.shards.iter().filter_map(|&shard| {
            let (after, until) = of(shard)?;
            let after = after.max(told(&self.cursor.place(shard)));
            let until = until.min(Seq(self.end.place(shard).seq));
            (after < until).then_some(Stretch { shard, after, until })
        });
        left.collect()
    }

    fn advance(&mut self, place: Place) {
        let shard = ShardId(place.shard);
        if self.shards.contains(&shard) && place.seq > told(&self.cursor.place(shard)).0 {
            self.cursor.advance(place);
        }
    }

    async fn piece(&mut self, recorded: Vec<RecordedBatch>) -> Result<Piece, Box<Fault>> {
        let begin = self.cursor.clone();
        let behind = self.left();
        let recorded =
            order::leaving_first(&*self.shared.store, self.filter, recorded, behind).await.map_err(unread)?;
        let mut events: Vec<(WallTime, Happened)> = Vec::new();
        let mut latest: HashMap<u16, WallTime> = HashMap::new();
        // When what goes to another network left.
        let mut left: HashMap<TransactionId, WallTime> = HashMap::new();
        let mut teller = Teller::new(self.filter, &self.shared.feed.names);
        for Ordered { batch: one, passing } in &recorded {
            let mut place = self.cursor.place(one.shard);
            let Some(digest) = digest_of(one, &place) else {
                let common = lost::last_common(self.shared, &self.shards, &self.cursor).await.map_err(unread)?;
                return Err(Box::new(Fault::CursorLost { problem: CUT_OFF.to_owned(), last_common: common }));
            };
            if !self.filter.may_want(one).map_err(unread)? {
                self.cursor.advance(one.place(digest).map_err(unread)?);
                continue;
            }
            let batch = one.decode().map_err(unread)?;
            // A wall clock may go back; the order of a shard does not, and nothing arrives before it left.
            let latest = latest.entry(one.shard.0).or_default();
            *latest =
                passing.arrives.iter().filter_map(|transaction| left.get(transaction).copied()).fold(*latest, Ord::max);
            teller.tell(&batch, digest, &mut place, usize::MAX, |event| {
                *latest = event.wall.max(*latest);
                events.push((*latest, event));
            });
            left.extend(passing.leaves.iter().map(|transaction| (*transaction, *latest)));
            self.cursor.advance(place);
        }
        events.sort_by_key(|(at, _)| *at);
        let events = events.into_iter().map(|(_, event)| event).collect();
        Ok(Piece { span: (begin, self.cursor.clone()), events })
    }
}

/// Digest of the line with a batch after a place; none if the batch is of another line. After a gap, such as retention makes,
/// whichever digest the store gives.
fn digest_of(one: &RecordedBatch, place: &Place) -> Option<Digest> {
    let known = Digest(place.digest);
    if one.seq.0 == place.seq {
        let digest = one.digest.unwrap_or(known);
        return (digest == known).then_some(digest);
    }
    if place.seq > 0 && one.seq.0 == place.seq + 1 { one.follows(known) } else { Some(one.digest.unwrap_or_default()) }
}
