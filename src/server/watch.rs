//! Subscriptions to events: page after page, from the actors of this node or from the node that owns the register.
//!
//! ```text
//!  events.watch ─▶ coordinator (where it begins) ─▶ Watches::begin ─▶ a task: Pages ─▶ lines ─▶ session ─▶ socket
//!                                                            ▲            │        │
//!                                                            └─ place, room ───────┘ come back when the lines are written
//! ```
//!
//! A subscription is a cursor and a task. It asks for the next page only when it has a place for it, and renders lines only when
//! there is room for them. Places and room belong to the connection, for all its subscriptions together (see `room`), however slow
//! the client is.
//!
//! - A subscription that had caught up and then falls behind what the owner keeps in memory ends as `lagged`; so does one that falls
//!   behind all the history that is kept.
//! - When the owner changes, it goes on at the next owner from its cursor. If that owner's line does not have this cursor, or
//!   if the next history stays damaged, it ends as `cursor_lost`.
//! - While nobody can be asked, and while nothing happens, it sends its present cursor now and then.
//! - When the connection ends, for example because the server stops, it ends with a `bookmark`, from which the client can go on
//!   elsewhere.
//!
//! Neighbours: `session` owns [`Watches`]; `http` sends [`Pages`] as server-sent events.
//!
//! Review notes: is there a wait that the end of the session does not end?

mod pages;
mod room;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::pages::CannotSay;
pub use self::pages::{Next, Pages, ToldEvents};
use self::room::{Room, Taken};
use super::Server;
use super::render::noun;
use crate::actors::events::{Cursor, Filter};
use crate::actors::{NotReadyReason, Notice, Outlet, Told};
use crate::limits::WATCHES_MAX;
use crate::wire::nouns::{BookmarkNotification, CursorLostNotification, EventNotification, LaggedNotification};
use crate::wire::{ErrorKind, RpcError};

/// When to ask again if nobody can be asked now.
const AGAIN: Duration = Duration::from_millis(100);

/// Bytes of lines that are rendered at once, so that the rest of the thread does not wait for all of a long page.
const LINES_BYTES: usize = 64 << 10;

/// The subscriptions of one connection.
#[derive(Debug)]
pub struct Watches {
    server: Arc<Server>,
    outlet: Outlet,
    last: u64,
    live: HashMap<u64, DropGuard>,
    /// Cancelled when the connection ends: each subscription then sends its last cursor, and a request that is answered later begins
    /// no subscription that would keep the connection open.
    ends: CancellationToken,
    room: Room,
    /// The room taken by lines that wait to be written.
    taken: Vec<Taken>,
}

/// A subscription that is started once the client knows its number.
#[derive(Debug)]
pub struct BegunWatch {
    /// Its number.
    pub number: u64,
    pages: Pages,
    room: Room,
    to: Outlet,
    stop: CancellationToken,
    ends: CancellationToken,
}

/// How sending went.
#[derive(Debug)]
enum Then {
    GoesOn,
    /// Nothing follows.
    Ends,
    /// The connection ended, or the client is gone, before everything was sent: this is left.
    Interrupted(Option<ToldEvents>),
}

impl Watches {
    /// No subscriptions yet.
    pub fn new(server: Arc<Server>, outlet: Outlet) -> Self {
        let (live, ends, room) = (HashMap::new(), CancellationToken::new(), Room::new());
        Self { server, outlet, last: 0, live, ends, room, taken: Vec::new() }
    }

    /// Are there no subscriptions?
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Begins a subscription.
    ///
    /// # Errors
    /// `not_ready` if the connection ends, `overloaded` beyond the bound.
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
        let (room, to, ends) = (self.room.clone(), self.outlet.clone(), self.ends.clone());
        Ok(BegunWatch { number: self.last, pages, room, to, stop, ends })
    }

    /// Ends a subscription; false if there is none with that number.
    pub fn end(&mut self, number: u64) -> bool {
        self.live.remove(&number).is_some()
    }

    /// Ends all subscriptions for good. Each exists until it has sent its last cursor.
    pub fn end_all(&mut self) {
        self.ends.cancel();
    }

    /// Appends what a subscription has to say, unless it has ended meanwhile.
    pub fn say(&mut self, notice: Notice, out: &mut Vec<u8>) {
        if self.live.contains_key(&notice.subscription) {
            out.extend_from_slice(&notice.lines);
            self.taken.extend(notice.room);
            if notice.ends {
                self.live.remove(&notice.subscription);
            }
        }
    }

    /// Notes that everything appended so far is written.
    pub fn written(&mut self) {
        self.taken.clear();
    }
}

impl BegunWatch {
    /// Starts sending events.
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
        let Self { number, mut pages, room, to, ends, .. } = self;
        let lines = Lines { number, room: room.clone(), to, ends: ends.clone() };
        // There may be events already: the first page is asked for with a place.
        let mut is_behind = true;
        loop {
            let next = tokio::select! {
                biased;
                () = ends.cancelled() => break,
                next = next(&mut pages, &room, &mut is_behind) => next,
            };
            let Some((next, _place)) = next else { continue };
            match lines.tell(next).await {
                Then::GoesOn => {}
                Then::Ends => return,
                Then::Interrupted(left) => {
                    if let Some(left) = left {
                        pages.take_back(left);
                    }
                    break;
                }
            }
        }
        let mut last = Vec::new();
        notify(&mut last, "bookmark", &BookmarkNotification { subscription: number, cursor: pages.cursor() });
        lines.say(last, true, None);
    }
}

/// What to send next, with the place of its page; none if the page must be asked for again.
async fn next(pages: &mut Pages, room: &Room, is_behind: &mut bool) -> Option<(Next, Option<Taken>)> {
    if *is_behind {
        let place = room.page().await;
        let next = pages.next_now().await;
        *is_behind = match &next {
            Ok(Some(_)) => true,
            Ok(None) => pages.is_behind(),
            Err(CannotSay) => false,
        };
        return next.ok().flatten().map(|next| (next, place));
    }
    let next = pages.next().await;
    let Next::Events(events) = next else { return Some((next, None)) };
    let place = room.page_now();
    *is_behind = place.is_none() || pages.is_behind();
    if place.is_none() {
        pages.take_back(events);
        return None;
    }
    Some((Next::Events(events), place))
}

/// The lines of a subscription.
struct Lines {
    number: u64,
    room: Room,
    to: Outlet,
    /// Cancelled when the connection ends.
    ends: CancellationToken,
}

impl Lines {
    /// Sends it, as room becomes available.
    async fn tell(&self, next: Next) -> Then {
        let (subscription, mut lines) = (self.number, Vec::new());
        let out = &mut lines;
        let ends = match next {
            Next::Events(events) => return self.tell_events(events).await,
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
        match self.put(lines, ends).await {
            _ if ends => Then::Ends,
            true => Then::GoesOn,
            false => Then::Interrupted(None),
        }
    }

    async fn tell_events(&self, mut events: ToldEvents) -> Then {
        let mut lines = Vec::new();
        while let Some(event) = events.next() {
            notify(&mut lines, "event", &EventNotification { subscription: self.number, event });
            if lines.len() >= LINES_BYTES {
                if !self.put(std::mem::take(&mut lines), false).await {
                    return Then::Interrupted(Some(events));
                }
                tokio::task::yield_now().await;
            }
        }
        if lines.is_empty() || self.put(lines, false).await { Then::GoesOn } else { Then::Interrupted(None) }
    }

    /// Sends lines when there is room for them. If the connection ends they need no room: they are a few for each subscription, and only
    /// its last cursor follows. Returns false if nothing more can be sent.
    async fn put(&self, lines: Vec<u8>, ends: bool) -> bool {
        let room = tokio::select! {
            biased;
            room = self.room.lines(lines.len()) => room,
            () = self.ends.cancelled() => None,
        };
        let goes_on = room.is_some();
        self.say(lines, ends, room) && goes_on
    }

    /// Returns false if the client is gone.
    fn say(&self, lines: Vec<u8>, ends: bool, room: Option<Taken>) -> bool {
        self.to.send(Told::Notice(Notice { subscription: self.number, lines, ends, room })).is_ok()
    }
}

fn notify(out: &mut Vec<u8>, method: &str, params: &impl Serialize) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","method":""#);
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(br#"","params":"#);
    noun(out, params);
    out.extend_from_slice(b"}\n");
}

/// The refusal for connections over which events cannot be sent.
pub fn nowhere_to_tell() -> RpcError {
    let message = "events.watch needs a connection that stays: use the JSON-RPC port, or `GET /events` over HTTP";
    RpcError::new(ErrorKind::InvalidRequest, message)
}

/// The refusal of an `events.unwatch` that names no subscription.
pub fn no_subscription(number: u64) -> RpcError {
    let message = format!("this connection has no subscription {number}; it may have ended");
    RpcError::new(ErrorKind::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::events::{Happened, What};
    use crate::actors::outlet;
    use crate::core::state::EventKind;
    use crate::core::types::{NetworkId, Place, ShardTime, WallTime};
    use crate::limits::WATCH_BYTES_MAX;
    use crate::server::session::Inlet;

    /// A page with this many events of some hundred bytes each.
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

    /// A subscription that uses this room, and the receiver of its lines.
    fn lines(number: u64, room: &Room) -> (Lines, Inlet) {
        let (to, told) = outlet();
        (Lines { number, room: room.clone(), to, ends: CancellationToken::new() }, told)
    }

    /// What was sent and not taken.
    fn notices(told: &mut Inlet) -> Vec<Notice> {
        let said = std::iter::from_fn(|| told.try_recv().ok());
        said.map(|said| if let Told::Notice(notice) = said { notice } else { panic!("{said:?}") }).collect()
    }

    fn count(notices: &[Notice]) -> usize {
        notices.iter().flat_map(|notice| &notice.lines).filter(|byte| **byte == b'\n').count()
    }

    #[tokio::test]
    async fn others_of_the_thread_have_turns_while_a_long_page_is_made_into_lines() {
        let turns = async |next: Next| {
            let (lines, mut told) = lines(1, &Room::new());
            let mut telling = std::pin::pin!(lines.tell(next));
            let mut turns = 0;
            let then = std::future::poll_fn(|cx| {
                turns += 1;
                telling.as_mut().poll(cx)
            })
            .await;
            assert!(matches!(then, Then::GoesOn), "{then:?}");
            (turns, count(&notices(&mut told)))
        };
        assert_eq!(turns(page(50)).await, (1, 50));
        let (turns, lines) = turns(page(1_000)).await;
        assert_eq!(lines, 1_000);
        assert!(turns > 5, "{turns}");
    }

    #[tokio::test]
    async fn however_many_subscriptions_there_are_what_is_not_taken_of_all_is_bounded_and_all_go_on() {
        const EVENTS: usize = 500;
        let room = Room::new();
        let mut told: Vec<Inlet> = Vec::new();
        for number in 0..WATCHES_MAX as u64 {
            let (lines, inlet) = lines(number, &room);
            told.push(inlet);
            tokio::spawn(async move { lines.tell(page(EVENTS)).await });
        }
        let mut counts = vec![0; WATCHES_MAX];
        while counts.iter().any(|count| *count < EVENTS) {
            // Until all of them wait or are done.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let said: Vec<Vec<Notice>> = told.iter_mut().map(notices).collect();
            let bytes: usize = said.iter().flatten().map(|notice| notice.lines.len()).sum();
            assert!((1..=WATCH_BYTES_MAX).contains(&bytes), "{bytes}");
            counts.iter_mut().zip(&said).for_each(|(all, said)| *all += count(said));
            // They take turns: none is done before all have begun.
            assert!(counts.iter().all(|count| *count > 0) || counts.iter().all(|count| *count < EVENTS), "{counts:?}");
        }
        assert!(counts.iter().all(|count| *count == EVENTS), "{counts:?}");
    }

    #[tokio::test]
    async fn lines_that_are_longer_than_all_the_room_are_said() {
        let (lines, mut told) = lines(1, &Room::new());
        tokio::spawn(async move { while lines.put(vec![b'\n'; WATCH_BYTES_MAX + 1], false).await {} });
        for _ in 0..3 {
            let Some(Told::Notice(notice)) = told.recv().await else { panic!("nothing is said") };
            assert_eq!(count(&[notice]), WATCH_BYTES_MAX + 1);
            assert!(told.try_recv().is_err(), "there was no room beside them");
        }
    }
}
