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
//! changes it goes on at the next one from its cursor; if that is no place of the line there, it ends as `cursor_lost`. Where the
//! connection ends, as when the server stops, it ends with a `bookmark`, from which its client goes on elsewhere.
//!
//! Neighbours: `session` owns [`Watches`]; `http` tells [`Pages`] as server-sent events; `actors::events` has the pages.
//!
//! Review notes: is there a wait that the end of the session does not end?

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Server;
use super::dispatch;
use super::faults::error_of;
use super::render::event::{cursor_text, event};
use super::render::noun;
use super::role::Role;
use crate::actors::coordinator::{self, Done, Job, Order};
use crate::actors::events::{self, Cursor, EventsPage, Filter, Happened};
use crate::actors::waits::Wait;
use crate::actors::{Applied, Fault, NotReadyReason, Notice, Outlet, Told};
use crate::limits::{BOOKMARK_EVERY_MS, WATCHES_MAX};
use crate::metrics::Counted;
use crate::peer::NO_CLIENT;
use crate::peer::link::Link;
use crate::wire::nouns::{BookmarkNotification, CursorLostNotification, Event, EventNotification, LaggedNotification};
use crate::wire::params::EventsWatch;
use crate::wire::values::Cursor as CursorText;
use crate::wire::{ErrorKind, RpcError};

/// Pages of a subscription that the client has not taken.
const PLACES: usize = 2;
/// When to ask again where nobody can be asked now.
const AGAIN: Duration = Duration::from_millis(100);

/// What a client is told next.
#[derive(Debug)]
pub enum Next {
    /// Events.
    Events(Vec<Event>),
    /// Nothing else happened up to there.
    Bookmark(CursorText),
    /// The client is too far behind. Nothing comes after it.
    Lagged(CursorText),
    /// The line of history that it followed was cut off. Nothing comes after it.
    Lost {
        /// Why.
        problem: String,
        /// The last cursor that is still good.
        last_common: CursorText,
    },
}

/// The events behind a cursor, as they come.
#[derive(Debug)]
pub struct Pages {
    server: Arc<Server>,
    /// Its number among sessions and subscriptions, by which another node is told that it has ended.
    number: u64,
    /// The way by which another node was asked last.
    asked: Weak<Link>,
    filter: Filter,
    cursor: Cursor,
    /// Which memory told the last page, and did it come out of it?
    last: Option<(u128, bool)>,
    told: Instant,
    _counted: Counted,
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Pages {
    /// Behind a cursor.
    fn new(server: Arc<Server>, filter: Filter, cursor: Cursor) -> Self {
        let counted = Counted::in_gauge(&server.metrics.watches);
        let number = server.sessions.fetch_add(1, Ordering::Relaxed);
        Self { server, number, asked: Weak::new(), filter, cursor, last: None, told: Instant::now(), _counted: counted }
    }

    /// Where it stands.
    pub fn cursor(&self) -> CursorText {
        cursor_text(&self.cursor)
    }

    /// What waits for it at another node does not any more.
    fn leave(&mut self) {
        if let Some(link) = std::mem::take(&mut self.asked).upgrade() {
            link.hang_up(self.number);
        }
    }

    /// What a client asked for that has no session.
    ///
    /// # Errors
    /// What the owner of the register says against it.
    pub async fn begin(server: &Arc<Server>, ask: EventsWatch) -> Result<Self, RpcError> {
        let job = dispatch::events_watch(ask)?;
        let (filter, cursor) = begin(server, job).await.map_err(|fault| error_of(&fault))?;
        Ok(Self::new(Arc::clone(server), filter, cursor))
    }

    fn ended(&self, how: &'static str) {
        self.server.metrics.watches_ended.with_label_values(&[how]).inc();
    }

    /// What is told next.
    pub async fn next(&mut self) -> Next {
        loop {
            let wait = Duration::from_millis(BOOKMARK_EVERY_MS).saturating_sub(self.told.elapsed());
            match self.ask(wait.as_millis() as u64).await.map_err(|fault| *fault) {
                Ok(page) => {
                    let now = (page.memory, page.keeps_up);
                    if self.last == Some((page.memory, true)) && !page.keeps_up {
                        self.ended("lagged");
                        return Next::Lagged(cursor_text(&self.cursor));
                    }
                    self.last = Some(now);
                    let mut at = std::mem::replace(&mut self.cursor, page.cursor);
                    let told = |happened: &Happened| {
                        at.advance(happened.place);
                        event(happened, &at)
                    };
                    let events: Vec<Event> = page.events.iter().map(told).collect();
                    if !events.is_empty() {
                        self.told = Instant::now();
                        return Next::Events(events);
                    }
                    if self.told.elapsed() >= Duration::from_millis(BOOKMARK_EVERY_MS) {
                        self.told = Instant::now();
                        return Next::Bookmark(cursor_text(&self.cursor));
                    }
                }
                // What is kept went past it while it was told: it is the client that is slow. Asked to go on from there it is
                // told what is lost.
                Err(Fault::CursorLost { last_common, .. }) if self.cursor.is_passed_by(&last_common) => {
                    self.ended("lagged");
                    return Next::Lagged(cursor_text(&self.cursor));
                }
                Err(Fault::CursorLost { problem, last_common }) => {
                    self.ended("cursor_lost");
                    return Next::Lost { problem, last_common: cursor_text(&last_common) };
                }
                // Between two owners, or the store is not reached: the cursor says where to go on.
                Err(fault) => {
                    tracing::debug!(?fault, "events are asked for again");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    async fn ask(&mut self, wait_ms: u64) -> Result<EventsPage, Box<Fault>> {
        match &*self.server.seat.role() {
            Role::Owner(shared) => events::page(shared, &self.filter, &self.cursor, wait_ms).await,
            Role::Follower { link, .. } => {
                let (outlet, mut told) = crate::actors::outlet();
                if !Weak::ptr_eq(&self.asked, &Arc::downgrade(link)) {
                    self.leave();
                    self.asked = Arc::downgrade(link);
                }
                let job = Job::Events { filter: self.filter.clone(), cursor: self.cursor.clone(), wait_ms };
                // That it waits is said, so that it is known there by its number when it leaves.
                let wait = Some(Wait::begins(wait_ms, Arc::default()));
                let order = Order { job, by: "watch".into(), reason: None, deadline: None, dry_run: false, wait };
                self.server.metrics.forwarded.inc();
                link.job(self.number, 0, order, &outlet);
                drop(outlet);
                match told.recv().await {
                    Some(Told::Job(_, Ok(Done::Events(page)))) => Ok(*page),
                    Some(Told::Job(_, Err(fault))) => Err(fault),
                    _ => Err(other_answer()),
                }
            }
            Role::Between => Err(Box::new(Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 50 })),
            Role::Waiting { fault, .. } => Err(Box::new(fault.clone())),
        }
    }
}

/// Where a subscription begins, as the owner of the register says.
///
/// # Errors
/// What stands in the way.
async fn begin(server: &Arc<Server>, job: Job) -> Result<(Filter, Cursor), Box<Fault>> {
    let (outlet, mut told) = crate::actors::outlet();
    let order = Order { job, by: "watch".into(), reason: None, deadline: None, dry_run: false, wait: None };
    // Held between two owners, as what a session asks is.
    match &*server.seat.settled().await {
        Role::Owner(shared) => coordinator::spawn(shared, 0, order, outlet),
        Role::Follower { link, .. } => {
            server.metrics.forwarded.inc();
            link.job(NO_CLIENT, 0, order, &outlet);
            drop(outlet);
        }
        Role::Between => return Err(Box::new(Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 50 })),
        Role::Waiting { fault, .. } => return Err(Box::new(fault.clone())),
    }
    match told.recv().await {
        Some(Told::Job(_, Ok(Done::Watching { filter, cursor }))) => Ok((filter, cursor)),
        Some(Told::Job(_, Err(fault))) => Err(fault),
        _ => Err(other_answer()),
    }
}

fn other_answer() -> Box<Fault> {
    let problem = "the owner of the register answered something else".to_owned();
    Box::new(Fault::Unavailable { applied: Applied::No, problem })
}

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
                Some((place, next)) => (place, lines_of(subscription, next)),
                None => (None, (lines_of(subscription, Next::Bookmark(pages.cursor())).0, true)),
            };
            // A closed outlet is a client that is gone: then this is dropped, too.
            if to.send(Told::Notice(Notice { subscription, lines, ends, place })).is_err() || ends {
                return;
            }
        }
    }
}

/// What is told, as notifications; and whether nothing comes after it.
fn lines_of(subscription: u64, next: Next) -> (Vec<u8>, bool) {
    let mut lines = Vec::new();
    let out = &mut lines;
    let ends = match next {
        Next::Events(events) => {
            for event in events {
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
