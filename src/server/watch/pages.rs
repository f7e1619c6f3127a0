//! The pages of one subscription: asked for one after the other, from the actors of this node or from the node that owns the
//! register, across every change of the owner.
//!
//! Neighbours: `actors::events` has the pages.
//!
//! Review notes: whatever goes wrong, does the client get either events or its present cursor?

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
use crate::seldom::Seldom;
use crate::server::faults::error_of;
use crate::server::render::event::{cursor_text, event};
use crate::server::role::Role;
use crate::server::{Server, dispatch};
use crate::wire::RpcError;
use crate::wire::nouns::Event;
use crate::wire::params::EventsWatch;
use crate::wire::values::Cursor as CursorText;

/// How long the next history must be found damaged before that is believed.
const DAMAGED_FOR: Duration = Duration::from_secs(3);
/// Limits how often it is logged that watchers get no events, for all of them together: mostly they have one reason.
static UNTOLD: Seldom = Seldom::new(Duration::from_secs(10)..=Duration::from_secs(600));

/// What a watching client is sent next.
#[derive(Debug)]
pub enum Next {
    /// Events.
    Events(ToldEvents),
    /// Nothing else happened up to this cursor.
    Bookmark(CursorText),
    /// The client is too far behind. Nothing follows.
    Lagged(CursorText),
    /// The line of history that the client followed was cut off. Nothing follows.
    Lost {
        /// Why.
        problem: String,
        /// The last cursor that is still good.
        last_common: CursorText,
    },
}

/// The next page could not be found out: it must be asked for again a little later.
#[derive(Debug)]
pub(super) struct CannotSay;

/// The events of a page. Each is rendered only when its turn comes, because some are long.
#[derive(Debug)]
pub struct ToldEvents {
    at: Cursor,
    left: std::vec::IntoIter<Happened>,
}

impl ToldEvents {
    /// These events, which follow the cursor.
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

/// The events after a cursor, as they come.
#[derive(Debug)]
pub struct Pages {
    server: Arc<Server>,
    /// Its number among sessions and subscriptions, with which another node is told that it has ended.
    number: u64,
    /// The connection over which another node was asked last.
    asked: Weak<Link>,
    filter: Filter,
    cursor: Cursor,
    /// Which owner's memory gave the last page, and whether the page came from memory.
    last: Option<(u128, bool)>,
    /// Whether there may be more than the last page had.
    has_more: bool,
    told: Instant,
    /// Since when the next history is found damaged.
    damaged: Option<Instant>,
    _counted: Counted,
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Pages {
    /// The events after a cursor.
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

    /// The present cursor.
    pub fn cursor(&self) -> CursorText {
        cursor_text(&self.cursor)
    }

    /// Ends what waits for it at another node.
    fn leave(&mut self) {
        if let Some(link) = std::mem::take(&mut self.asked).upgrade() {
            link.hang_up(self.number);
        }
    }

    /// Begins a subscription for a client without a session.
    ///
    /// # Errors
    /// The refusal of the owner.
    pub async fn begin(server: &Arc<Server>, ask: EventsWatch) -> Result<Self, RpcError> {
        let job = dispatch::events_watch(ask)?;
        let (filter, cursor) = begin(server, job).await.map_err(|fault| error_of(&fault))?;
        Ok(Self::new(Arc::clone(server), filter, cursor))
    }

    fn ended(&self, how: &'static str) {
        self.server.metrics.clients.watches_ended.with_label_values(&[how]).inc();
    }

    /// Waits for what to send next.
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

    /// What to send next, if there is something already.
    ///
    /// # Errors
    /// It cannot be found out now.
    pub(super) async fn next_now(&mut self) -> Result<Option<Next>, CannotSay> {
        self.asked(0).await
    }

    /// May there be more than the last page had?
    pub(super) fn is_behind(&self) -> bool {
        self.has_more
    }

    /// Takes back the rest of the last page, which then comes next.
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
                // A subscription that only asked whether there is something already, and found nothing, has not caught up yet.
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
            // The kept history moved past the cursor while events were being sent, so the client is too slow. If it goes on from
            // this cursor it is told what is lost.
            Err(Fault::CursorLost { last_common, .. }) if self.cursor.is_passed_by(&last_common) => {
                self.ended("lagged");
                Ok(Some(Next::Lagged(cursor_text(&self.cursor))))
            }
            // The next history is damaged. Reading it again may help, if it was changed while it was being read.
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
            // Between two owners, or the store cannot be reached: the cursor says where to go on.
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

    /// A bookmark, if nothing was sent for so long that one is due.
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
                // The wait carries the number, by which the other node knows it when it leaves.
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

/// Asks the owner of the register where a subscription begins.
///
/// # Errors
/// The refusal of the owner, or why it cannot be asked.
async fn begin(server: &Arc<Server>, job: Job) -> Result<(Filter, Cursor), Box<Fault>> {
    let (outlet, mut told) = crate::actors::outlet();
    let order = Order { job, by: "watch".into(), reason: None, deadline: None, dry_run: false, wait: None };
    // Held during a hand-over, like the requests of a session.
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
