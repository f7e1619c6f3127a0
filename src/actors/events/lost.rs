//! Finds where to continue when a cursor is lost: a place of its line that still exists, as late as is certain.
//!
//! What a line that was cut off shares with the line that goes on ends, at the latest, before the take-over under which the
//! cursor was issued; batches of earlier take-overs come before that on both lines.
//!
//! *Why not later:* this goes back to the end of the previous take-over even if one owner served for weeks and only the last
//! second of them was cut off: a client that continues from there gets all those weeks again. The next take-over records where
//! in them the lines parted, by its parent's token and the batch that it follows. But a cursor names a take-over by its
//! number, and after a failover two take-overs may have the same number: nobody could say whether a stretch of that
//! number is what the client was told, and a client that relied on it would miss what stands there instead. Being told twice
//! is the lesser evil. A cursor with the token, or some bits of it, could tell them apart: a second form of cursor, which all
//! nodes of a register must be able to read before one of them writes it.

use super::Cursor;
use super::cursor::{beginning, told};
use super::filter::Filter;
use super::page::{CUT_OFF, TOO_OLD, unread};
use crate::actors::Fault;
use crate::actors::service::Shared;
use crate::core::refusal::Refusal;
use crate::core::types::Place;
use crate::store::history::{RecordedBatch, Stretch};
use crate::store::{Digest, Seq, ShardId, StoreError};

/// The refusal of a cursor that has no place for the network asked for.
pub fn of_another_network(field: &'static str) -> Refusal {
    Refusal::invalid(field, "belongs to another network; use one of this network, or one over all networks")
}

/// Checks that the cursor's places in the filter's shards are on their lines, and that everything after them is kept.
///
/// # Errors
/// [`Fault::CursorLost`] if they are not.
pub async fn check(shared: &Shared, filter: &Filter, cursor: &Cursor) -> Result<(), Box<Fault>> {
    let shards = filter.shards(shared.info.shards);
    let common = last_common(shared, &shards, cursor).await.map_err(unread)?;
    let moved = |shard: &&ShardId| common.place(**shard) != cursor.place(**shard);
    let Some(&shard) = shards.iter().find(moved) else { return Ok(()) };
    let (place, kept) = (cursor.place(shard), common.place(shard));
    // If the place is put back to the beginning of the kept history, either something in between is gone, or its line is
    // another one.
    let older = place.seq < kept.seq && (kept.steps.is_none() || told(&place).0 + 1 < kept.seq);
    let problem = if older { TOO_OLD } else { CUT_OFF };
    Err(Box::new(Fault::CursorLost { problem: problem.to_owned(), last_common: common }))
}

/// Where a walk over the history starts: after a cursor, or where the kept history of each shard begins. So each cursor on the
/// way shows exactly how far it came, and the walk notices what retention removes meanwhile.
///
/// # Errors
/// [`Fault::CursorLost`] if the cursor is not a place of the line; [`Fault::Unavailable`] if the store cannot be read; a
/// refusal of a cursor that has no place for the networks asked for.
pub(super) async fn start(shared: &Shared, filter: &Filter, after: Option<Cursor>) -> Result<Cursor, Box<Fault>> {
    let shards = filter.shards(shared.info.shards);
    if after.as_ref().is_some_and(|after| shards.iter().all(|&shard| after.of_shard(shard).is_none())) {
        return Err(of_another_network("after").into());
    }
    let mut cursor = after.clone().unwrap_or_else(|| Cursor::new(filter.is_whole(&shards), []));
    for &shard in &shards {
        // A network of that name may have been created since, on another shard.
        if after.as_ref().is_none_or(|after| after.of_shard(shard).is_none()) {
            let line = Line { shared, shard, tip: shared.feed.tip(shard) };
            cursor.advance(line.begin().await.map_err(unread)?);
        }
    }
    if after.is_some() {
        check(shared, filter, &cursor).await?;
    }
    Ok(cursor)
}

/// The cursor with every lost place put back to the last one that it certainly shares with the existing line; if that is older
/// than the kept history, to the beginning of that.
pub(super) async fn last_common(shared: &Shared, shards: &[ShardId], cursor: &Cursor) -> Result<Cursor, StoreError> {
    let mut common = cursor.clone();
    for &shard in shards {
        let line = Line { shared, shard, tip: shared.feed.tip(shard) };
        let place = cursor.place(shard);
        if !line.has(&place).await? {
            common.advance(line.before(&place).await?);
        }
    }
    Ok(common)
}

/// The present line of a shard.
struct Line<'a> {
    shared: &'a Shared,
    shard: ShardId,
    tip: Place,
}

impl Line<'_> {
    /// The first kept batch after a seq.
    async fn next(&self, after: Seq) -> Result<Option<RecordedBatch>, StoreError> {
        let stretch = Stretch { shard: self.shard, after, until: Seq(self.tip.seq) };
        if stretch.after >= stretch.until {
            return Ok(None);
        }
        Ok(self.shared.store.recorded(vec![stretch], 0).await?.into_iter().next())
    }

    /// Is a place on the line, and everything after it kept?
    async fn has(&self, place: &Place) -> Result<bool, StoreError> {
        if place.seq >= self.tip.seq {
            return Ok((place.seq, place.digest) == (self.tip.seq, self.tip.digest));
        }
        let after = told(place);
        let Some(next) = self.next(after).await?.filter(|next| next.seq.0 == after.0 + 1) else { return Ok(false) };
        let known = Digest(place.digest);
        Ok(if next.seq.0 == place.seq {
            next.digest.is_none_or(|it| it == known)
        } else {
            next.follows(known).is_some()
        })
    }

    /// The place before everything that is kept.
    async fn begin(&self) -> Result<Place, StoreError> {
        let Some(first) = self.next(Seq(0)).await? else { return Ok(self.tip) };
        // If a register was written anew while a shard stood at its first batch, the line begins with an empty batch that does
        // not follow the beginning.
        if first.seq == Seq(1) && first.follows(Digest::default()).is_some() {
            return Ok(beginning(self.shard));
        }
        Ok(Place { steps: Some(0), ..first.place(first.digest.unwrap_or_default())? })
    }

    /// The last place before one that is not on the line.
    async fn before(&self, place: &Place) -> Result<Place, StoreError> {
        let Some(first) = self.next(Seq(0)).await? else { return Ok(self.tip) };
        let begin = Place { steps: Some(0), ..first.place(first.digest.unwrap_or_default())? };
        // Epochs rise along the line: the last batch of an earlier take-over is found by binary search.
        let (mut low, mut high) = (first.seq.0, place.seq.min(self.tip.seq));
        let mut last = begin;
        while low <= high {
            let middle = low + (high - low) / 2;
            let Some(there) = self.next(Seq(middle - 1)).await? else { break };
            let there = there.place(there.digest.unwrap_or_default())?;
            if there.epoch < place.epoch {
                (last, low) = (there, middle + 1);
            } else {
                high = middle - 1;
            }
        }
        Ok(last)
    }
}
