//! `events.history`: what happened, page by page.
//!
//! Reads the store and the index on a thread for blocking work, never on a reactor.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::filter::Filter;
use super::happened::Happened;
use super::scan::{Piece, Scan};
use super::{Cursor, lost};
use crate::actors::Fault;
use crate::actors::service::Shared;
use crate::core::types::NetworkId;
use crate::store::ShardId;

/// Time after which a page ends with what was found so far.
pub(super) const PAGE_WITHIN: Duration = Duration::from_millis(60);

/// Events, in runs that each follow a cursor.
pub type Runs = Vec<(Cursor, Vec<Happened>)>;

/// A page of `events.history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The events in order. The cursor of each is that of its run, moved to after the events of the run up to it.
    pub runs: Runs,
    /// Where the next page begins.
    pub next: Option<Cursor>,
}

/// The events after a cursor, or from the beginning, at most `limit`.
///
/// # Errors
/// As of [`super::page()`].
pub async fn past(shared: &Shared, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Past, Box<Fault>> {
    let begun = Instant::now();
    let start = lost::start(shared, filter, after).await?;
    let mut scan = Scan::new(shared, filter, start, shared.feed.end());
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
        if begun.elapsed() > PAGE_WITHIN && !scan.is_over() {
            return Ok(Past { runs, next: Some(scan.cursor) });
        }
    }
    Ok(Past { runs, next: None })
}

/// Where to continue in a piece of which only some events are reported: a shard of which something is left continues after
/// what was reported of it.
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

/// The networks that have, or had, a name; or the one of this id.
pub fn networks_of(shared: &Shared, text: &str) -> Vec<NetworkId> {
    let mut found = shared.feed.names.called(text);
    if found.is_empty() {
        found.extend(text.parse::<NetworkId>().ok().filter(|id| shared.feed.names.knows(*id)));
    }
    found
}

/// The cursor after each event of a page.
pub fn cursors(runs: Runs) -> impl Iterator<Item = (Happened, Cursor)> {
    runs.into_iter().flat_map(|(mut at, events)| {
        events.into_iter().map(move |event| {
            at.advance(event.place);
            (event, at.clone())
        })
    })
}
