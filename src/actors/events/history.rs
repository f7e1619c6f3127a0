//! `events.history`: what happened, page by page; and what was held at a time.
//!
//! Reads the store and the index on a thread for work that blocks, never on one of the reactors.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::cursor::beginning;
use super::filter::Filter;
use super::happened::{Happened, What};
use super::scan::{Piece, Scan};
use super::{Cursor, lost};
use crate::actors::Fault;
use crate::actors::service::Shared;
use crate::core::address::Address;
use crate::core::outcome::View;
use crate::core::state::EventKind;
use crate::core::types::{NetworkId, Place, ShardTime, WallTime};
use crate::limits::HISTORY_AT_MAX;
use crate::store::ShardId;

/// Time after which a page ends with what was found so far.
const PAGE_WITHIN: Duration = Duration::from_millis(60);
/// Who granted what was granted before the history that is kept.
const UNKNOWN: &str = "unknown";

/// Events, each run of them behind a cursor.
pub type Runs = Vec<(Cursor, Vec<Happened>)>;

/// A page of `events.history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The events in order. The cursor of each is that of its run, moved behind the events of the run up to it.
    pub runs: Runs,
    /// Where the next page begins.
    pub next: Option<Cursor>,
}

/// What happened behind a cursor, or from the beginning, at most so many events.
///
/// # Errors
/// As of [`super::page()`].
pub async fn past(shared: &Shared, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Past, Box<Fault>> {
    let begun = Instant::now();
    let start = lost::start(shared, filter, after).await?;
    let mut scan = Scan::new(shared, filter, Some(start));
    let (mut runs, mut room) = (Runs::new(), limit);
    while let Some(piece) = scan.next().await? {
        let Piece { span: (begin, end), mut events } = piece;
        if events.len() > room {
            let rest = events.split_off(room);
            let next = cut(&begin, &end, &events, &rest);
            runs.push((begin, events));
            return Ok(Past { runs, next: Some(next) });
        }
        room -= events.len();
        if !events.is_empty() {
            runs.push((begin, events));
        }
        if begun.elapsed() > PAGE_WITHIN {
            return Ok(Past { runs, next: Some(scan.cursor) });
        }
    }
    Ok(Past { runs, next: None })
}

/// Where to go on in a piece of which only some events are told: a shard of which something is left goes on behind what
/// was told of it.
fn cut(begin: &Cursor, end: &Cursor, told: &[Happened], rest: &[Happened]) -> Cursor {
    let mut next = end.clone();
    for event in rest {
        next.advance(begin.place(ShardId(event.place.shard)));
    }
    for event in told {
        if rest.iter().any(|left| left.place.shard == event.place.shard) {
            next.advance(event.place);
        }
    }
    next
}

/// An address of a network; of a block the first.
type Key = (NetworkId, Address);

/// What is known of an address and a time.
#[derive(Debug)]
enum Known {
    /// The last event up to then, with the cursor behind it.
    Event(Box<Happened>, Cursor),
    /// Nothing up to then; what was there before the first event behind it.
    Before(Option<Box<Happened>>),
}

/// What was held at a time, by network and address: of each holding the event that made it so. What was granted before the
/// history that is kept is told by what is known of it since; `now` is what is held now and may be such.
///
/// # Errors
/// As of [`super::page()`]; `overloaded` beyond [`HISTORY_AT_MAX`] addresses.
pub async fn held_at(
    shared: &Shared,
    filter: &Filter,
    at: WallTime,
    now: Vec<View>,
) -> Result<Vec<(Happened, Cursor)>, Box<Fault>> {
    // A holding that somebody else took over, or that ended, is told by the holder before: time is judged here.
    let all = Filter { from: None, to: None, ..filter.clone() };
    let mut scan = Scan::new(shared, &all, None);
    let mut known: BTreeMap<Key, Known> = BTreeMap::new();
    while let Some(Piece { span: (begin, _), events }) = scan.next().await? {
        let mut cursor = begin;
        for event in events {
            cursor.advance(event.place);
            let What::Holding { address, before, .. } = &event.what else { continue };
            let key = (event.network, *address);
            if event.wall <= at {
                known.insert(key, Known::Event(Box::new(event), cursor.clone()));
            } else if let Entry::Vacant(unknown) = known.entry(key) {
                let was = before.as_ref().filter(|held| held.created_at <= at);
                let was = was.map(|held| {
                    Box::new(grant_of(
                        &event,
                        What::Holding { address: *address, before: None, after: Some(std::sync::Arc::clone(held)) },
                    ))
                });
                unknown.insert(Known::Before(was));
            }
            if known.len() > HISTORY_AT_MAX {
                let problem =
                    format!("more than {HISTORY_AT_MAX} addresses have a history; name the network, owner or address");
                return Err(Box::new(Fault::Overloaded { problem, retry_after_ms: 0 }));
            }
        }
    }
    for view in now {
        let key = (view.network.id, view.address);
        if view.reservation.created_at <= at && !known.contains_key(&key) {
            let shard = shared.shard_of(view.network.id);
            let lease_at = |ends: ShardTime| {
                view.expires.map_or(ends, |(wall, _)| {
                    ShardTime(ends.0.saturating_sub(wall.0.saturating_sub(view.reservation.created_at.0)))
                })
            };
            let time = view.reservation.lease.map_or(ShardTime(0), |lease| lease_at(lease.ends));
            let what = What::Holding { address: view.address, before: None, after: Some(view.reservation.clone()) };
            let grant = Happened {
                place: beginning(shard),
                wall: view.reservation.created_at,
                time,
                kind: EventKind::Granted,
                network: view.network.id,
                name: view.network.name.clone(),
                realm: view.network.realm.clone(),
                what,
                by: UNKNOWN.into(),
                reason: None,
            };
            known.insert(key, Known::Before(Some(Box::new(grant))));
        }
    }
    let held = known.into_values().filter_map(|known| {
        let (event, cursor) = match known {
            Known::Event(event, cursor) => (*event, cursor),
            Known::Before(event) => {
                let event = *event?;
                let cursor = Cursor::new(false, [event.place]);
                (event, cursor)
            }
        };
        let What::Holding { address, after: Some(after), .. } = &event.what else { return None };
        filter.wants_holding(*address, after).then_some((event, cursor))
    });
    let mut held: Vec<(Happened, Cursor)> = held.collect();
    held.sort_by(|(one, _), (other, _)| order_of(one).cmp(&order_of(other)));
    Ok(held)
}

/// By name of the network, then by address.
pub fn order_of(event: &Happened) -> (&crate::core::types::Name, NetworkId, Option<Address>) {
    let address = match &event.what {
        What::Holding { address, .. } => Some(*address),
        What::Network { .. } => None,
    };
    (&event.name, event.network, address)
}

/// The grant of what was there before an event, as far as the holding itself tells it.
fn grant_of(event: &Happened, what: What) -> Happened {
    let created = what.holding().map_or(event.wall, |held| held.created_at);
    // Its lease is counted from the event that is known.
    let since = event.wall.0.saturating_sub(created.0);
    Happened {
        place: Place { seq: 0, steps: None, digest: 0, ..event.place },
        wall: created,
        time: ShardTime(event.time.0.saturating_sub(since)),
        kind: EventKind::Granted,
        network: event.network,
        name: event.name.clone(),
        realm: event.realm.clone(),
        what,
        by: UNKNOWN.into(),
        reason: None,
    }
}

/// The networks that have, or had, a name; or the one of this id.
pub fn networks_of(shared: &Shared, text: &str) -> Vec<NetworkId> {
    let mut found = shared.feed.names.called(text);
    if found.is_empty() {
        found.extend(text.parse::<NetworkId>().ok().filter(|id| shared.feed.names.knows(*id)));
    }
    found
}

/// The cursor behind each event of a page.
pub fn cursors(runs: Runs) -> impl Iterator<Item = (Happened, Cursor)> {
    runs.into_iter().flat_map(|(mut at, events)| {
        events.into_iter().map(move |event| {
            at.advance(event.place);
            (event, at.clone())
        })
    })
}
