//! The page of events after a cursor: from the feed's memory for watchers who keep up, from the store for the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cursor::told;
use super::filter::Filter;
use super::happened::{Happened, Teller};
use super::order::{self, Ordered};
use super::{Cursor, DurableGroup, Feed, Inner, LastGroups, WANTED_FOR_MS, lost};
use crate::actors::service::Shared;
use crate::actors::{Applied, Fault, NotReadyReason};
use crate::limits::{EVENTS_PAGE_BYTES, EVENTS_PAGE_MAX, EVENTS_WAIT_MS_MAX};
use crate::store::history::Stretch;
use crate::store::{Batch, Digest, Seq, ShardId, StoreError, chain};

/// Events after a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsPage {
    /// The events, in order in each network.
    pub events: Vec<Happened>,
    /// The place after them, and after whatever else was looked at.
    pub cursor: Cursor,
    /// The page came from memory, or was empty: the watcher keeps up.
    pub keeps_up: bool,
    /// Identity of the memory for this page: it changes with each tenure, and when something in doubt was decided.
    pub memory: u128,
}

/// Where the events after a cursor are found.
#[derive(Debug)]
pub(super) enum PageSource {
    Nowhere,
    Memory(Vec<Arc<DurableGroup>>),
    Store(Vec<Stretch>),
}

/// Why there is no page.
pub(super) enum NoPage {
    /// The cursor is lost.
    Lost(&'static str),
    /// What follows the cursor is damaged.
    Damaged(StoreError),
    Fault(Box<Fault>),
}

pub(super) const CUT_OFF: &str =
    "the cursor belongs to a line of history that a failover of the store, or a restore, cut off";
pub(super) const TOO_OLD: &str = "what follows the cursor is older than the history that is kept";

/// The events after `cursor` that `filter` wants, as many as fit into a page. If there are none, waits for some, at most
/// `wait_ms`: then the page is empty, and its cursor may be further on.
///
/// # Errors
/// [`Fault::CursorLost`], once it is proved that this node owns the register: with `cursor` itself as the last common one if
/// what follows it is damaged. [`Fault::NotReady`] when the tenure is over; [`Fault::Unavailable`] if the store cannot be
/// read.
pub async fn page(shared: &Shared, filter: &Filter, cursor: &Cursor, wait_ms: u64) -> Result<EventsPage, Box<Fault>> {
    let shards = filter.shards(shared.info.shards);
    let (problem, last_common) = match page_or_trouble(shared, filter, cursor, wait_ms).await {
        Ok(page) => return Ok(page),
        Err(NoPage::Fault(fault)) => return Err(fault),
        Err(NoPage::Damaged(damage)) => (unreadable(&damage), cursor.clone()),
        Err(NoPage::Lost(problem)) => match lost::last_common(shared, &shards, cursor).await {
            Ok(last_common) => (problem.to_owned(), last_common),
            Err(damage @ (StoreError::Damaged(_) | StoreError::Newer(_))) => (unreadable(&damage), cursor.clone()),
            Err(error) => return Err(unread(error)),
        },
    };
    // Or was the line of this owner cut off, and it does not know yet? The next owner then finds the cursor.
    if !shared.is_proved_owner_of(&shards).await {
        return Err(moved());
    }
    Err(Box::new(Fault::CursorLost { problem, last_common }))
}

async fn page_or_trouble(shared: &Shared, filter: &Filter, from: &Cursor, wait_ms: u64) -> Result<EventsPage, NoPage> {
    let feed = &shared.feed;
    let mut changed = feed.changed.subscribe();
    let until = tokio::time::Instant::now() + Duration::from_millis(wait_ms.min(EVENTS_WAIT_MS_MAX));
    let shards = filter.shards(shared.info.shards);
    let mut cursor = from.clone();
    loop {
        changed.mark_unchanged();
        let (source, memory) = feed.source(&shards, &cursor, shared.clock.boot_ms())?;
        let (waits, keeps_up) = (matches!(source, PageSource::Nowhere), !matches!(source, PageSource::Store(_)));
        let events = match source {
            PageSource::Nowhere => Vec::new(),
            PageSource::Memory(groups) => from_memory(shared, filter, &shards, &mut cursor, &groups)?,
            PageSource::Store(stretches) => from_store(shared, filter, &mut cursor, stretches).await?,
        };
        if !events.is_empty() || !keeps_up || tokio::time::Instant::now() >= until {
            return Ok(EventsPage { events, cursor, keeps_up, memory });
        }
        if waits {
            // A timeout ends the wait; the sender is part of what is shared, so it exists.
            let _ = tokio::time::timeout_at(until, changed.changed()).await;
        }
    }
}

impl Feed {
    /// Where the next events are found, and in which memory. Keeps groups in memory from now on.
    pub(super) fn source(
        &self,
        shards: &[ShardId],
        cursor: &Cursor,
        now_ms: u64,
    ) -> Result<(PageSource, u128), NoPage> {
        self.wanted_until_ms.store(now_ms + WANTED_FOR_MS, Ordering::Relaxed);
        let mut inner = self.inner();
        let Inner { tips, bounds: _, kept, memory, closed } = &mut *inner;
        if *closed {
            return Err(NoPage::Fault(moved()));
        }
        let mut stretches = Vec::new();
        for &shard in shards {
            let (place, Some(tip)) = (cursor.place(shard), tips.get(usize::from(shard.0))) else { continue };
            let other_end = place.seq == tip.seq && place.seq > 0 && place.digest != tip.digest;
            if place.seq > tip.seq || other_end {
                return Err(NoPage::Lost(CUT_OFF));
            }
            let (after, until) = (told(&place), Seq(tip.seq));
            if after < until {
                stretches.push(Stretch { shard, after, until });
            }
        }
        let kept = kept.get_or_insert_with(|| LastGroups { base: tips.clone(), groups: VecDeque::new(), bytes: 0 });
        if stretches.is_empty() {
            return Ok((PageSource::Nowhere, *memory));
        }
        if stretches.iter().any(|stretch| kept.base[usize::from(stretch.shard.0)].seq > stretch.after.0) {
            return Ok((PageSource::Store(stretches), *memory));
        }
        let (mut steps, mut bytes) = (0, 0);
        let groups = kept.groups.iter().skip(kept.first_of(&stretches)).take_while(|group| {
            let room = bytes == 0 || steps < EVENTS_PAGE_MAX && bytes + group.bytes <= EVENTS_PAGE_BYTES;
            steps += group.batches.iter().flat_map(|batch| &batch.acts).map(|act| act.steps.len()).sum::<usize>();
            // Count at least one byte for each group.
            bytes += group.bytes.max(1);
            room
        });
        Ok((PageSource::Memory(groups.map(Arc::clone).collect()), *memory))
    }
}

impl LastGroups {
    /// The index of the first group with anything of these stretches, which end where their shards stand.
    ///
    /// Cost: a step per group after it, or before it, whichever are fewer by the batches that are wanted: a watcher that keeps
    /// up, as most do, looks at the last groups only, out of a hundred thousand that may be kept.
    fn first_of(&self, stretches: &[Stretch]) -> usize {
        let is_wanted =
            |batch: &Batch| stretches.iter().any(|stretch| stretch.shard == batch.shard && batch.seq > stretch.after);
        // For each shard, all batches after its base are here, each once.
        let mut left: u64 = stretches.iter().map(|stretch| stretch.until.0 - stretch.after.0).sum();
        if left > self.groups.len() as u64 / 2 {
            return self.groups.iter().position(|group| group.batches.iter().any(is_wanted)).unwrap_or(0);
        }
        let mut first = self.groups.len();
        while left > 0 && first > 0 {
            first -= 1;
            let found = self.groups[first].batches.iter().filter(|batch| is_wanted(batch)).count();
            left = left.saturating_sub(found as u64);
        }
        first
    }
}

/// Reports one batch, if it is the next one of its shard. `digest` is that of the line with it, `parent` that of the line
/// before. False: the page is full.
fn tell(
    teller: &mut Teller<'_>,
    cursor: &mut Cursor,
    events: &mut Vec<Happened>,
    batch: &Batch,
    (parent, digest): (Digest, Digest),
) -> Result<bool, NoPage> {
    let mut place = cursor.place(batch.shard);
    let next = told(&place).0 + 1;
    if batch.seq.0 < next {
        return Ok(true);
    }
    if batch.seq.0 > next {
        return Err(NoPage::Lost(TOO_OLD));
    }
    let begun = place.seq == batch.seq.0;
    if Digest(place.digest) != if begun { digest } else { parent } {
        return Err(NoPage::Lost(CUT_OFF));
    }
    let room = EVENTS_PAGE_MAX - events.len();
    let all = teller.tell(batch, digest, &mut place, room, |event| events.push(event));
    cursor.advance(place);
    Ok(all && events.len() < EVENTS_PAGE_MAX)
}

fn from_memory(
    shared: &Shared,
    filter: &Filter,
    shards: &[ShardId],
    cursor: &mut Cursor,
    groups: &[Arc<DurableGroup>],
) -> Result<Vec<Happened>, NoPage> {
    let (mut events, mut teller) = (Vec::new(), Teller::new(filter, &shared.feed.names));
    for group in groups {
        for (batch, digests) in group.in_order().filter(|(batch, _)| shards.contains(&batch.shard)) {
            if !tell(&mut teller, cursor, &mut events, batch, digests)? {
                return Ok(events);
            }
        }
    }
    Ok(events)
}

async fn from_store(
    shared: &Shared,
    filter: &Filter,
    cursor: &mut Cursor,
    stretches: Vec<Stretch>,
) -> Result<Vec<Happened>, NoPage> {
    // Events carry the names that networks had then, and a watch of a realm selects by them.
    shared.feed.read_up().await.map_err(NoPage::Fault)?;
    if let Some(damage) = shared.feed.unread_names().filter(|_| filter.realm.is_some()) {
        return Err(NoPage::Damaged(damage));
    }
    let unread = |error| match error {
        StoreError::Damaged(_) | StoreError::Newer(_) => NoPage::Damaged(error),
        error => NoPage::Fault(unread(error)),
    };
    let recorded = shared.store.recorded(stretches.clone(), EVENTS_PAGE_BYTES).await.map_err(unread)?;
    if recorded.is_empty() {
        // It is durable, so it did exist.
        return Err(NoPage::Lost(TOO_OLD));
    }
    let recorded = order::leaving_first(&*shared.store, filter, recorded, stretches).await.map_err(unread)?;
    let (mut events, mut teller) = (Vec::new(), Teller::new(filter, &shared.feed.names));
    for Ordered { batch: one, .. } in &recorded {
        let place = cursor.place(one.shard);
        let known = Digest(place.digest);
        let digest = if one.seq.0 == place.seq { one.digest.or(Some(known)) } else { one.follows(known) };
        if one.seq.0 > told(&place).0 + 1 {
            return Err(NoPage::Lost(TOO_OLD));
        }
        let digest = digest.ok_or(NoPage::Lost(CUT_OFF))?;
        if one.seq.0 > place.seq && !filter.may_want(one).map_err(unread)? {
            cursor.advance(one.place(digest).map_err(unread)?);
            continue;
        }
        let batch = one.decode().map_err(unread)?;
        if !tell(&mut teller, cursor, &mut events, &batch, (known, digest))? {
            break;
        }
    }
    Ok(events)
}

/// The fault when the tenure is over.
fn moved() -> Box<Fault> {
    Box::new(Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 100 })
}

fn unreadable(damage: &StoreError) -> String {
    format!("what follows the cursor cannot be read: {}", chain(damage))
}

pub(super) fn unread(error: StoreError) -> Box<Fault> {
    let problem = format!("the history cannot be read: {}", chain(&error));
    Box::new(Fault::Unavailable { applied: Applied::No, problem })
}
