//! Writes the index of the history, after the commits: reads what became durable, and closes chapter after chapter.
//!
//! The scribe is a thread of its own with a low priority, which reads from the store as any watcher does: commits do not know
//! of it. It may be far behind; then whoever asks reads what has no chapter yet. There is one scribe for each tenure. It first
//! checks whether the existing chapters belong to the line that goes on.
//!
//! Review notes: does every round end, or sleep? Does it end with its tenure?

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::cursor::Cursor;
use super::names::NamedNetwork;
use crate::actors::background;
use crate::actors::service::Shared;
use crate::core::types::{NetworkId, Place};
use crate::limits::EVENTS_PAGE_BYTES;
use crate::store::chapters::{BatchRange, Chapter, ChapterDraft, NameNote, Pen};
use crate::store::history::{RecordedBatch, Stretch};
use crate::store::{Digest, Seq, ShardId, StoreError, chain};

/// How often the scribe looks for something new. Whoever asks reads what has no chapter, so this matters little.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// How long it waits after a failure to read the store.
const AGAIN: Duration = Duration::from_secs(5);
/// Niceness of its thread relative to the others.
const NICE: i32 = 10;
/// How often it checks whether old history is gone, and networks with it.
const PRUNES_EVERY_MS: u64 = 600_000;

/// Starts the scribe of a tenure, which it does not keep alive.
pub(in crate::actors) fn start(shared: &Arc<Shared>) {
    if shared.hooks.without_index {
        return shared.feed.is_read_up.cancel();
    }
    let weak = Arc::downgrade(shared);
    if let Err(error) = background::start("scribe", NICE, async move || run(&weak).await) {
        tracing::warn!(%error, "the history has no index: what is asked of it is read");
        // Clients then do not wait for names that nobody reads.
        shared.feed.is_read_up.cancel();
    }
}

/// Where the chapters end, and what follows them so far.
struct Scribe {
    ends: Vec<Place>,
    draft: ChapterDraft,
    /// The permission to add chapters.
    pen: Pen,
    /// Where the history stood when the tenure began.
    begun: Vec<Place>,
    /// It has read up to `begun`.
    is_read_up: bool,
    /// Networks that are searched for once the scribe has read up to this cursor, when nothing new can come of them.
    unlisted: Option<(Vec<NetworkId>, Cursor)>,
}

async fn run(shared: &Weak<Shared>) {
    let mut scribe: Option<Scribe> = None;
    let mut pruned_ms = shared.upgrade().map_or(0, |shared| shared.clock.boot_ms());
    while let Some(shared) = shared.upgrade() {
        let closing = shared.feed.closing();
        if closing.is_cancelled() {
            return;
        }
        let round = async {
            if scribe.is_none() {
                scribe = Some(begin(&shared).await?);
            }
            match &mut scribe {
                Some(scribe) => scribe.round(&shared).await,
                None => Ok(false),
            }
        };
        let wait = match round.await {
            Ok(true) => Duration::ZERO,
            Ok(false) => LOOKS_EVERY,
            Err(error) => {
                tracing::warn!(error = chain(&error), "the index of the history waits for the store");
                // Damage after that point does not keep anybody from the names.
                let is_read_up = scribe.as_ref().is_some_and(|scribe| scribe.is_read_up);
                if !is_read_up && error.stays_unread() {
                    shared.feed.cannot_be_read_up(error);
                }
                AGAIN
            }
        };
        let now_ms = shared.clock.boot_ms();
        if now_ms.saturating_sub(pruned_ms) >= PRUNES_EVERY_MS
            && let Some(scribe) = &mut scribe
        {
            pruned_ms = now_ms;
            if let Err(error) = scribe.prune(&shared).await {
                tracing::debug!(error = chain(&error), "old chapters stay");
            }
        }
        drop(shared);
        if !wait.is_zero() {
            // The end of the tenure ends the wait.
            let _ = tokio::time::timeout(wait, closing.cancelled()).await;
        }
    }
}

/// Keeps the chapters of the line that goes on, and continues after them.
async fn begin(shared: &Shared) -> Result<Scribe, StoreError> {
    let pen = shared.chapters.take_pen();
    let chapters = shared.chapters.all();
    let mut good = chapters.len();
    for shard in (0..shared.info.shards).map(ShardId) {
        // The digest of a range covers everything before it.
        for (at, chapter) in chapters.iter().enumerate().rev() {
            let Some(range) = chapter.range(shard) else { continue };
            if is_on_line(shared, range).await? {
                break;
            }
            good = good.min(at);
        }
    }
    if good < chapters.len() {
        tracing::warn!(
            chapters = chapters.len() - good,
            "the index of the history is of a line that was cut off; made again"
        );
        shared.chapters.truncate(good, |network| shared.shard_of(network));
    }
    // Not earlier: what was cut off names nothing.
    shared.chapters.names().iter().for_each(|note| tell(shared, note));
    let ends = (0..shared.info.shards).map(|shard| {
        let end = shared.chapters.end(ShardId(shard));
        end.map_or(Place { shard, ..Place::default() }, |range| place_of(&range))
    });
    let begun = (0..shared.info.shards).map(|shard| shared.feed.tip(ShardId(shard))).collect();
    let (ends, draft) = (ends.collect(), ChapterDraft::default());
    Ok(Scribe { ends, draft, pen, begun, is_read_up: false, unlisted: None })
}

/// Notes that a network had this name.
fn tell(shared: &Shared, note: &NameNote) {
    let named = NamedNetwork { name: note.name.clone(), realm: note.realm.clone() };
    shared.feed.names.note(note.network, note.since, named);
}

fn place_of(range: &BatchRange) -> Place {
    let (shard, epoch, seq) = (range.shard.0, range.epoch.0, range.last.0);
    Place { shard, epoch, seq, steps: None, digest: range.digest.0 }
}

/// Does the line pass through the end of a range? What is older than retention is believed.
async fn is_on_line(shared: &Shared, range: &BatchRange) -> Result<bool, StoreError> {
    let tip = shared.feed.tip(range.shard);
    if range.last.0 >= tip.seq {
        return Ok((range.last.0, range.digest.0) == (tip.seq, tip.digest));
    }
    let stretch = Stretch { shard: range.shard, after: Seq(range.last.0 - 1), until: Seq(tip.seq) };
    let next = shared.store.recorded(vec![stretch], 0).await?;
    Ok(match next.first() {
        Some(one) if one.seq == range.last => one.digest.is_none_or(|digest| digest == range.digest),
        Some(one) if one.seq.0 == range.last.0 + 1 => one.follows(range.digest).is_some(),
        Some(_) | None => true,
    })
}

impl Scribe {
    /// Reads on. True: there may be more right away.
    async fn round(&mut self, shared: &Shared) -> Result<bool, StoreError> {
        self.forget_networks(shared);
        let is_read_up = self.begun.iter().zip(&self.ends).all(|(begun, end)| end.seq >= begun.seq);
        if is_read_up && !self.is_read_up {
            let loaded = shared.feed.names.read_up().into_iter().map(|(network, since, named)| {
                let NamedNetwork { name, realm } = NamedNetwork::clone(&named);
                NameNote { network, since, name, realm }
            });
            shared.chapters.begin_names(loaded.collect());
            self.is_read_up = true;
            shared.feed.was_read_up();
        }
        let tips = shared.feed.end();
        let behind = self.ends.iter().filter_map(|end| {
            let until = Seq(tips.place(ShardId(end.shard)).seq);
            let after = Seq(end.seq);
            (after < until).then_some(Stretch { shard: ShardId(end.shard), after, until })
        });
        let stretches: Vec<Stretch> = behind.collect();
        if stretches.is_empty() {
            return Ok(false);
        }
        let recorded = shared.store.recorded(stretches.clone(), EVENTS_PAGE_BYTES).await?;
        if recorded.is_empty() {
            // Older than retention, although nobody wrote since: there is nothing to note.
            for stretch in stretches {
                self.ends[usize::from(stretch.shard.0)] = tips.place(stretch.shard);
            }
        }
        for one in &recorded {
            self.add(shared, one)?;
        }
        Ok(!recorded.is_empty())
    }

    fn add(&mut self, shared: &Shared, one: &RecordedBatch) -> Result<(), StoreError> {
        let end = &mut self.ends[usize::from(one.shard.0)];
        let known = Digest(end.digest);
        // If a register was written anew, the first batch of the line follows nothing that came before, even if it is batch 1.
        let digest = if end.seq > 0 && one.seq.0 == end.seq + 1 { one.follows(known) } else { one.digest };
        let digest = digest.ok_or_else(|| {
            let text = format!("batch {} of shard {} does not follow the one before it", one.seq.0, one.shard.0);
            StoreError::Damaged(text.into())
        })?;
        let known = self.draft.names().len();
        self.draft.add(one, digest)?;
        self.draft.names()[known..].iter().for_each(|note| tell(shared, note));
        *end = one.place(digest)?;
        if self.draft.is_full() {
            shared.chapters.add(self.pen, std::mem::take(&mut self.draft));
        }
        Ok(())
    }
}

impl Scribe {
    /// Drops the chapters of which nothing is kept any more, and then the networks that are in no other.
    async fn prune(&mut self, shared: &Shared) -> Result<(), StoreError> {
        // Only once everything is read: until then the names from the start of the tenure have to be placed among what is read.
        if prune_chapters(shared).await? > 0 && self.is_read_up {
            forget_old_names(shared);
        }
        // In this order: everything about a network that is no longer listed is durable by then.
        let unlisted = shared.feed.names.unlisted(|id| shared.routes.by_id(id).is_some());
        self.unlisted = (!unlisted.is_empty()).then(|| (unlisted, shared.feed.end()));
        Ok(())
    }

    /// Forgets the names of networks that are not listed, and do not occur in what was read.
    fn forget_networks(&mut self, shared: &Shared) {
        let is_read = |until: &Cursor| self.ends.iter().all(|end| end.seq >= until.place(ShardId(end.shard)).seq);
        let Some((mut unlisted, _)) = self.unlisted.take_if(|(_, until)| is_read(until)) else { return };
        unlisted.retain(|&network| !self.draft.has(network));
        let gone: HashSet<NetworkId> = shared.chapters.lacking(unlisted).into_iter().collect();
        if !gone.is_empty() {
            tracing::debug!(networks = gone.len(), "nothing is left of them, and their names are forgotten");
            shared.feed.names.forget(&gone);
            shared.chapters.forget_names(&gone);
        }
    }
}

/// Forgets names from before all that is kept: a client that renames a network again and again leaves nothing behind forever.
fn forget_old_names(shared: &Shared) {
    let chapters = shared.chapters.all();
    let first_of = |shard| chapters.iter().find_map(|chapter| chapter.range(shard)).map_or(0, |range| range.first.0);
    let first_kept: Vec<u64> = (0..shared.info.shards).map(|shard| first_of(ShardId(shard))).collect();
    let old = shared.feed.names.forget_before(|network| first_kept[usize::from(shared.shard_of(network).0)]);
    shared.chapters.forget_names_before(&old);
}

/// Drops the chapters of which nothing is kept any more. Returns how many these were.
async fn prune_chapters(shared: &Shared) -> Result<usize, StoreError> {
    let chapters = shared.chapters.all();
    let mut gone = 0;
    for chapter in chapters.iter() {
        if has_any(shared, chapter).await? {
            break;
        }
        gone += 1;
    }
    if gone > 0 {
        tracing::info!(chapters = gone, "old history is gone, and its index with it");
        shared.chapters.forget(gone);
    }
    Ok(gone)
}

async fn has_any(shared: &Shared, chapter: &Chapter) -> Result<bool, StoreError> {
    let stretch = |range: &BatchRange| Stretch { shard: range.shard, after: Seq(range.first.0 - 1), until: range.last };
    let stretches = chapter.ranges.iter().map(stretch).collect();
    Ok(!shared.store.recorded(stretches, 0).await?.is_empty())
}
