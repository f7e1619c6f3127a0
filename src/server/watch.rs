//! Subscriptions to events: page after page, from the actors of this node or from the node that owns the register.
//!
//! ```text
//!  events.watch ─▶ coordinator (where it begins) ─▶ Watches::begin ─▶ a task: Pages::next ─▶ lines ─▶ session ─▶ socket
//!                                                            ▲             │
//!                                                            └─ two places ┘ come back when the lines are written
//! ```
//!
//! A subscription is a cursor and a task. It asks for the next page only while it has a place for lines that the client
//! has not taken, so it holds two pages at most, however slow the client is. One that kept up once and is found behind
//! what the owner keeps in memory is `lagged`, and ends; so is one that is found behind all that is kept. When the owner
//! changes it goes on at the next one from its cursor; if that is no place of the line there, it ends as `cursor_lost`. So it
//! does where what comes next stays damaged. While nobody can be asked, it says where it stands, as when nothing happens. Where the
//! connection ends, as when the server stops, it ends with a `bookmark`, from which its client goes on elsewhere.
//!
//! Neighbours: `session` owns [`Watches`]; `http` tells [`Pages`] as server-sent events.
//!
//! Review notes: is there a wait that the end of the session does not end?

mod pages;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::pages::{Next, Pages, ToldEvents};
use super::Server;
use super::render::noun;
use crate::actors::events::{Cursor, Filter};
use crate::actors::{NotReadyReason, Notice, Outlet, Told};
use crate::limits::WATCHES_MAX;
use crate::wire::nouns::{BookmarkNotification, CursorLostNotification, EventNotification, LaggedNotification};
use crate::wire::{ErrorKind, RpcError};

/// Pages of a subscription that the client has not taken.
const PLACES: usize = 2;
/// When to ask again where nobody can be asked now.
const AGAIN: Duration = Duration::from_millis(100);

/// Bytes of lines that are made at once: of a long page others of the thread do not wait for all.
const LINES_BYTES: usize = 64 << 10;
/// The subscriptions of one connection.
#[derive(Debug)]
pub struct Watches {
    server: Arc<Server>,
    outlet: Outlet,
    last: u64,
    live: HashMap<u64, DropGuard>,
    /// The connection ends: each says where its client goes on, and what was asked before that, and is answered after it,
    /// begins nothing that would hold it open.
    ends: CancellationToken,
    /// Places of lines that wait to be written.
    taken: Vec<OwnedSemaphorePermit>,
}

/// A subscription that is to be started once the client knows its number.
#[derive(Debug)]
pub struct BegunWatch {
    /// Its number.
    pub number: u64,
    pages: Pages,
    to: Outlet,
    stop: CancellationToken,
    ends: CancellationToken,
}

impl Watches {
    /// None yet.
    pub fn new(server: Arc<Server>, outlet: Outlet) -> Self {
        Self { server, outlet, last: 0, live: HashMap::new(), ends: CancellationToken::new(), taken: Vec::new() }
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// One more.
    ///
    /// # Errors
    /// `not_ready` where the connection ends, `overloaded` beyond the bound.
    pub fn begin(&mut self, filter: Filter, cursor: Cursor) -> Result<BegunWatch, RpcError> {
        if self.ends.is_cancelled() {
            let message = "this connection ends, so nothing can be watched on it any more; connect again, to another node \
                           if this one stops";
            return Err(RpcError::new(ErrorKind::NotReady, message).with(|data| {
                data.reason = Some(NotReadyReason::Stopping.word().to_owned());
                data.retry_after_ms = Some(AGAIN.as_millis() as u64);
            }));
        }
        if self.live.len() >= WATCHES_MAX {
            let message = format!("a connection has {WATCHES_MAX} subscriptions at most; end one with events.unwatch");
            return Err(RpcError::new(ErrorKind::Overloaded, message).with(|data| data.retry_after_ms = Some(1_000)));
        }
        self.last += 1;
        let stop = CancellationToken::new();
        self.live.insert(self.last, stop.clone().drop_guard());
        let pages = Pages::new(Arc::clone(&self.server), filter, cursor);
        Ok(BegunWatch { number: self.last, pages, to: self.outlet.clone(), stop, ends: self.ends.clone() })
    }

    /// Ends one; false if there is none of that number.
    pub fn end(&mut self, number: u64) -> bool {
        self.live.remove(&number).is_some()
    }

    /// Ends all, for good. Each is there until it has said where its client goes on.
    pub fn end_all(&mut self) {
        self.ends.cancel();
    }

    /// Appends what one has to say, unless it ended meanwhile.
    pub fn say(&mut self, notice: Notice, out: &mut Vec<u8>) {
        if self.live.contains_key(&notice.subscription) {
            out.extend_from_slice(&notice.lines);
            self.taken.extend(notice.place);
            if notice.ends {
                self.live.remove(&notice.subscription);
            }
        }
    }

    /// Everything that was said is written.
    pub fn written(&mut self) {
        self.taken.clear();
    }
}

impl BegunWatch {
    /// From now on it tells what happens.
    pub fn start(self) {
        tokio::spawn(async move {
            let stop = self.stop.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.run() => {}
            }
        });
    }

    async fn run(self) {
        let Self { number: subscription, mut pages, to, ends, .. } = self;
        let places = Arc::new(Semaphore::new(PLACES));
        loop {
            let next = async {
                let place = Arc::clone(&places).acquire_owned().await.ok();
                (place, pages.next().await)
            };
            let next = tokio::select! {
                biased;
                () = ends.cancelled() => None,
                next = next => Some(next),
            };
            // Where the connection ends it waits for no place: nothing comes behind it.
            let (place, (lines, ends)) = match next {
                Some((place, next)) => (place, lines_of(subscription, next).await),
                None => (None, (lines_of(subscription, Next::Bookmark(pages.cursor())).await.0, true)),
            };
            // A closed outlet is a client that is gone: then this is dropped, too.
            if to.send(Told::Notice(Notice { subscription, lines, ends, place })).is_err() || ends {
                return;
            }
        }
    }
}

/// What is told, as notifications; and whether nothing comes after it.
async fn lines_of(subscription: u64, next: Next) -> (Vec<u8>, bool) {
    let mut lines = Vec::new();
    let out = &mut lines;
    let ends = match next {
        Next::Events(events) => {
            let mut room = LINES_BYTES;
            for event in events {
                if out.len() >= room {
                    room = out.len() + LINES_BYTES;
                    tokio::task::yield_now().await;
                }
                notify(out, "event", &EventNotification { subscription, event });
            }
            false
        }
        Next::Bookmark(cursor) => {
            notify(out, "bookmark", &BookmarkNotification { subscription, cursor });
            false
        }
        Next::Lagged(cursor) => {
            notify(out, "lagged", &LaggedNotification { subscription, cursor });
            true
        }
        Next::Lost { problem, last_common } => {
            notify(out, "cursor_lost", &CursorLostNotification { subscription, problem, last_common });
            true
        }
    };
    (lines, ends)
}

fn notify(out: &mut Vec<u8>, method: &str, params: &impl Serialize) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","method":""#);
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(br#"","params":"#);
    noun(out, params);
    out.extend_from_slice(b"}\n");
}

/// For whom nothing can be sent that was not asked for.
pub fn nowhere_to_tell() -> RpcError {
    let message = "events.watch needs a connection that stays: use the JSON-RPC port, or `GET /events` over HTTP";
    RpcError::new(ErrorKind::InvalidRequest, message)
}

/// For `events.unwatch`.
pub fn no_subscription(number: u64) -> RpcError {
    let message = format!("there is no subscription {number} on this connection; it may have ended");
    RpcError::new(ErrorKind::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::events::{Happened, What};
    use crate::core::state::EventKind;
    use crate::core::types::{NetworkId, Place, ShardTime, WallTime};

    /// So many events, of some hundred bytes each.
    fn page(count: usize) -> Next {
        let happened = |seq: usize| Happened {
            place: Place { seq: seq as u64, ..Place::default() },
            wall: WallTime(0),
            time: ShardTime(0),
            kind: EventKind::NetworkDeleted,
            network: NetworkId(1),
            name: "lan".parse().unwrap(),
            realm: "default".parse().unwrap(),
            what: What::Network { config: None, subnets: Vec::new(), gone: Vec::new() },
            by: "test".into(),
            reason: Some("r".repeat(200).into()),
        };
        Next::Events(ToldEvents::new(Cursor::default(), (1..=count).map(happened).collect()))
    }

    #[tokio::test]
    async fn others_of_the_thread_have_turns_while_a_long_page_is_made_into_lines() {
        let turns = async |next: Next| {
            let mut making = std::pin::pin!(lines_of(1, next));
            let mut turns = 0;
            let (lines, ends) = std::future::poll_fn(|cx| {
                turns += 1;
                making.as_mut().poll(cx)
            })
            .await;
            assert!(!ends);
            (turns, lines.iter().filter(|byte| **byte == b'\n').count())
        };
        assert_eq!(turns(page(50)).await, (1, 50));
        let (turns, lines) = turns(page(1_000)).await;
        assert_eq!(lines, 1_000);
        assert!(turns > 5, "{turns}");
    }
}
