//! The pages of one subscription: asked for one after the other, of the actors of this node or of the node that owns the
//! register, over every change of the owner.
//!
//! Neighbours: `actors::events` has the pages.
//!
//! Review notes: is somebody who watches told something, or where he stands, whatever stands in the way?

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::AGAIN;
use crate::actors::coordinator::{self, Done, Job, Order};
use crate::actors::events::{self, Cursor, EventsPage, Filter, Happened};
use crate::actors::waits::Wait;
use crate::actors::{Applied, Fault, NotReadyReason, Told};
use crate::limits::BOOKMARK_EVERY_MS;
use crate::metrics::Counted;
use crate::peer::NO_CLIENT;
use crate::peer::link::Link;
use crate::server::faults::error_of;
use crate::server::render::event::{cursor_text, event};
use crate::server::role::Role;
use crate::server::{Server, dispatch};
use crate::telemetry::Seldom;
use crate::wire::RpcError;
use crate::wire::nouns::Event;
use crate::wire::params::EventsWatch;
use crate::wire::values::Cursor as CursorText;

/// How long what comes next is found damaged before it is believed.
const DAMAGED_FOR: Duration = Duration::from_secs(3);
/// Says that those who watch are told nothing. Of all of them together: mostly they have one reason.
static UNTOLD: Seldom = Seldom::new(Duration::from_secs(10)..=Duration::from_secs(600));

/// What a client is told next.
#[derive(Debug)]
pub enum Next {
    /// Events.
    Events(ToldEvents),
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

/// Nobody could say what is told next: it is to be asked again, a little later.
#[derive(Debug)]
pub(super) struct CannotSay;

/// Events of a page, each made into what is told when its turn comes: some are long.
#[derive(Debug)]
pub struct ToldEvents {
    at: Cursor,
    left: std::vec::IntoIter<Happened>,
}

impl ToldEvents {
    /// These, behind a cursor.
    pub(super) fn new(at: Cursor, events: Vec<Happened>) -> Self {
        Self { at, left: events.into_iter() }
    }
}

impl Iterator for ToldEvents {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let happened = self.left.next()?;
        self.at.advance(happened.place);
        Some(event(&happened, &self.at))
    }
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
    /// There may be more than it told.
    has_more: bool,
    told: Instant,
    /// Since when what comes next is found damaged.
    damaged: Option<Instant>,
    _counted: Counted,
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Pages {
    /// Behind a cursor.
    pub(super) fn new(server: Arc<Server>, filter: Filter, cursor: Cursor) -> Self {
        let counted = Counted::in_gauge(&server.metrics.clients.watches);
        let number = server.sessions.fetch_add(1, Ordering::Relaxed);
        let (asked, told) = (Weak::new(), Instant::now());
        Self {
            server,
            number,
            asked,
            filter,
            cursor,
            last: None,
            has_more: false,
            told,
            damaged: None,
            _counted: counted,
        }
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
        self.server.metrics.clients.watches_ended.with_label_values(&[how]).inc();
    }

    /// What is told next.
    pub async fn next(&mut self) -> Next {
        loop {
            let wait = Duration::from_millis(BOOKMARK_EVERY_MS).saturating_sub(self.told.elapsed());
            match self.asked(wait.as_millis() as u64).await {
                Ok(Some(next)) => return next,
                Ok(None) => {}
                Err(CannotSay) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// What is told next, if there is something already.
    ///
    /// # Errors
    /// That cannot be said now.
    pub(super) async fn next_now(&mut self) -> Result<Option<Next>, CannotSay> {
        self.asked(0).await
    }

    /// Is there more than was looked at last?
    pub(super) fn is_behind(&self) -> bool {
        self.has_more
    }

    /// What is left of the events that came last is not told now: it is what comes next.
    pub(super) fn take_back(&mut self, left: ToldEvents) {
        self.cursor = left.at;
    }

    /// Asks once.
    async fn asked(&mut self, wait_ms: u64) -> Result<Option<Next>, CannotSay> {
        match self.ask(wait_ms).await.map_err(|fault| *fault) {
            Ok(page) => {
                let now = (page.memory, page.keeps_up);
                if self.last == Some((page.memory, true)) && !page.keeps_up {
                    self.ended("lagged");
                    return Ok(Some(Next::Lagged(cursor_text(&self.cursor))));
                }
                (self.has_more, self.damaged) = (!page.keeps_up, None);
                // Who only asked whether there is something already, and there was not, has not begun to keep up.
                if wait_ms > 0 || !page.events.is_empty() {
                    self.last = Some(now);
                }
                let at = std::mem::replace(&mut self.cursor, page.cursor);
                if !page.events.is_empty() {
                    self.told = Instant::now();
                    return Ok(Some(Next::Events(ToldEvents::new(at, page.events))));
                }
                Ok(self.bookmark())
            }
            // What is kept went past it while it was told: it is the client that is slow. Asked to go on from there it is
            // told what is lost.
            Err(Fault::CursorLost { last_common, .. }) if self.cursor.is_passed_by(&last_common) => {
                self.ended("lagged");
                Ok(Some(Next::Lagged(cursor_text(&self.cursor))))
            }
            // What comes next is damaged. Once more may help, where it was changed while it was read.
            Err(Fault::CursorLost { last_common, .. })
                if last_common == self.cursor
                    && self.damaged.get_or_insert_with(Instant::now).elapsed() < DAMAGED_FOR =>
            {
                Err(CannotSay)
            }
            Err(Fault::CursorLost { problem, last_common }) => {
                self.ended("cursor_lost");
                if let (true, Some(unsaid)) = (self.damaged.is_some(), UNTOLD.turn()) {
                    tracing::warn!(problem, unsaid, "a watch ends that cannot be told what comes next");
                }
                Ok(Some(Next::Lost { problem, last_common: cursor_text(&last_common) }))
            }
            // Between two owners, or the store is not reached: the cursor says where to go on.
            Err(fault) => {
                tracing::debug!(?fault, "events are asked for again");
                if let Some(bookmark) = self.bookmark() {
                    if let Some(unsaid) = UNTOLD.turn() {
                        let problem = fault.problem();
                        tracing::warn!(problem, unsaid, "those who watch events are told none of them now");
                    }
                    return Ok(Some(bookmark));
                }
                Err(CannotSay)
            }
        }
    }

    /// Where it stands, if nothing was told for so long that this is to be.
    fn bookmark(&mut self) -> Option<Next> {
        let is_due = self.told.elapsed() >= Duration::from_millis(BOOKMARK_EVERY_MS);
        is_due.then(|| {
            self.told = Instant::now();
            Next::Bookmark(cursor_text(&self.cursor))
        })
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
                self.server.metrics.clients.forwarded.inc();
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
            server.metrics.clients.forwarded.inc();
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
