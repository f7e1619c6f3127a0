//! The requests of one client, without its socket: order, batches, bounds, and the bytes to send. Shared by TCP and HTTP.
//!
//! Life of an `ip.allocate`, steps 2 and 7 of 8 (see [`crate`]): from the bytes of a line to one message for its
//! network's actor; and from the answer back to bytes. Before and after: `connection` or `http`. Between: `actors`.
//!
//! **Order** (invariant I-8). Requests for one network go to its actor in the order they were read. A job over several
//! networks is a barrier: it waits until everything before it is answered, and everything after it waits for it. A job
//! that touches names or space of one network blocks only later requests that name the same network, and those that take
//! space which it may give back. Blocked requests wait in `queue`, and everything read later waits behind them, except for what is
//! about the server itself: whoever looks for a sign of life gets one.
//!
//! All requests that one read brought for one network leave as one message ([`Session::flush`]).
//!
//! **Waiting.** A request that finds no capacity may wait for some. While it waits it holds nobody up: later requests go on, jobs
//! over several networks included. It still counts as in flight. If the node that owns the network stops or is drained, the request
//! goes on waiting at the next owner: see `waiting`.
//!
//! **Where requests go** depends on the node's [`Role`]. When it changes, nothing more is sent until everything that is under way
//! is answered; then the requests that waited go the new way. Between two owners everything is held, and the session's caller tells
//! it when that ends ([`Session::waits_for_role`]).
//!
//! `sending` sends requests to where they belong, `unfinished` knows what must wait for what, `answering` makes bytes of answers,
//! and `seeing` follows the role of the node.
//!
//! Review notes: does every request that was read end in exactly one `finish`? What if the client hangs up (the session is
//! dropped: requests that were sent are carried out, those that wait are given up)?

mod answering;
mod groups;
mod room;
mod seeing;
mod sending;
mod unfinished;
mod waiting;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use compact_str::CompactString;
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

pub use self::groups::AskedOn;
use self::groups::RequestGroups;
use self::room::Room;
pub use self::room::{AnswersShare, AnswersTogether, OUT_BYTES_MAX};
#[cfg(test)]
pub(crate) use self::seeing::tests::server as idle_server;
use self::unfinished::Unfinished;
use self::waiting::{Patience, Resumes};
use super::Server;
use super::dispatch::{self, ReadyRequest};
use super::fairness::Share;
use super::render::{Renderer, Shape};
use super::role::Role;
use super::watch::{self, BegunWatch, Watches};
use crate::actors::waits::Caller;
use crate::actors::{Outlet, Reply, Told};
use crate::core::address::Address;
use crate::limits::{IN_FLIGHT_BESIDE_OTHERS_MAX, IN_FLIGHT_REQUESTS_MAX};
use crate::wire::{self, Id, Message, Method, Request, RpcError, envelope};

/// A request that is not yet answered.
#[derive(Debug)]
struct Pending {
    id: Option<Id>,
    batch: Option<usize>,
    shape: Shape,
    asked: Option<Address>,
    read: Instant,
    /// Its share of the line that it came in.
    bytes: usize,
    /// Whether it waits for capacity.
    waits: bool,
    /// Whether it is an order to this node itself.
    of_node: bool,
    /// The request itself, if it may wait for capacity.
    patience: Option<Box<Patience>>,
}

#[derive(Debug)]
struct Queued {
    id: Option<Id>,
    batch: Option<usize>,
    asked: Option<Address>,
    read: Instant,
    bytes: usize,
    ready: ReadyRequest,
}

#[derive(Debug, Default)]
struct JsonBatch {
    left: usize,
    text: Vec<u8>,
    /// Subscriptions whose numbers are in `text`.
    begun: Vec<BegunWatch>,
}

/// Where the session receives answers.
pub type Inlet = mpsc::UnboundedReceiver<Told>;

/// The session of one client: everything that it has under way.
pub struct Session {
    server: Arc<Server>,
    /// The role of the node when the first of the requests under way was sent.
    role: Arc<Role>,
    /// Whether the client wants to be redirected instead of having its requests forwarded.
    redirect: bool,
    /// Its number among the sessions of this node.
    number: u64,
    /// Whether the role has changed since: then nothing more is sent until everything under way is answered.
    moved: bool,
    by: CompactString,
    outlet: Outlet,
    pending: Vec<Option<Pending>>,
    free: Vec<u32>,
    sent: usize,
    /// Unanswered orders to this node itself, which `sent` does not count.
    ordered: usize,
    /// How many of the sent requests wait for capacity.
    waiting: usize,
    /// This connection as its waiting requests see it.
    caller: Arc<Caller>,
    /// Whether a request that may wait was sent to another node.
    may_wait_there: bool,
    queue: VecDeque<Queued>,
    /// Requests that wait for capacity and are not at an owner at present.
    resumes: Resumes,
    /// Acts that keep back requests which must come after them.
    unfinished: Vec<Unfinished>,
    barrier: Option<u32>,
    groups: RequestGroups,
    /// The thread of the network that was asked last.
    asked_on: AskedOn,
    batches: Vec<Option<JsonBatch>>,
    renderer: Renderer,
    tally: super::tally::Tally,
    read: Instant,
    /// Bytes of the line that is being taken, for the requests in it.
    line_bytes: usize,
    room: Room,
    /// Whether it may have much under way while others ask.
    share: Share,
    /// Kept while the client may still ask something.
    asking: Option<TaskTrackerToken>,
    /// Subscriptions to events; none if only answers can be sent, as over HTTP.
    watches: Option<Watches>,
    /// The last stretch of `out` that has only events.
    notices: Range<usize>,
    /// Bytes to be sent, each answer with its line end.
    pub out: Vec<u8>,
    /// How many of these bytes the client has taken.
    pub taken: usize,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Session {
    /// A session for a client that is known as `by`. What the receiver brings must be handed to [`Session::absorb`].
    pub fn new(server: Arc<Server>, by: CompactString) -> (Self, Inlet) {
        let (outlet, inlet) = crate::actors::outlet();
        let tally = super::tally::Tally::new(Arc::clone(&server.metrics));
        let session = Self {
            role: server.seat.role(),
            asking: Some(server.asking.token()),
            number: server.sessions.fetch_add(1, Ordering::Relaxed),
            moved: false,
            redirect: false,
            server,
            by,
            outlet,
            pending: Vec::new(),
            free: Vec::new(),
            sent: 0,
            ordered: 0,
            waiting: 0,
            caller: Arc::default(),
            may_wait_there: false,
            queue: VecDeque::new(),
            resumes: Resumes::default(),
            unfinished: Vec::new(),
            barrier: None,
            groups: RequestGroups::default(),
            asked_on: AskedOn::Nothing,
            batches: Vec::new(),
            renderer: Renderer::default(),
            tally,
            read: Instant::now(),
            line_bytes: 0,
            room: Room::default(),
            share: Share::default(),
            watches: None,
            notices: 0..0,
            out: Vec::new(),
            taken: 0,
        };
        (session, inlet)
    }

    /// Number of requests that were read and are not answered.
    pub fn in_flight(&self) -> usize {
        self.sent + self.ordered + self.queue.len() + self.resumes.len()
    }

    /// Notes that nothing more will be fed and nothing is under way: all that is left are bytes for the client to take.
    pub fn asks_no_more(&mut self) {
        self.asking = None;
    }

    /// May more be read?
    pub fn has_room(&self) -> bool {
        !(self.share.is_held_up() && self.has_much())
            && self.in_flight() < IN_FLIGHT_REQUESTS_MAX
            && self.room.has_room()
            && !self.is_backed_up()
    }

    /// Is so much under way that others must wait for it? Requests that wait for capacity do not count: what ends their waiting may
    /// be the next request of this client.
    fn has_much(&self) -> bool {
        self.sent - self.waiting + self.ordered + self.queue.len() >= IN_FLIGHT_BESIDE_OTHERS_MAX
    }

    /// When to call [`Session::looks`] if nothing comes before.
    pub fn looks_at(&self) -> Option<tokio::time::Instant> {
        let reads_on = (self.share.is_held_up() && self.has_much()).then(|| self.share.goes_on_at().into());
        reads_on.into_iter().chain(self.looks_for_owner_at()).min()
    }

    /// Does what is due by time and not by an answer.
    pub fn looks(&mut self) {
        self.share.go_on(Instant::now());
        self.role_changed();
    }

    /// Notes the time of a read: deadlines and latencies of the requests in it count from here.
    pub fn begin(&mut self, now: Instant) {
        self.read = now;
        self.share.asks(&self.server.fairness, self.number, self.in_flight() > 0, now);
        self.look_at_role();
    }

    /// Takes one line or body, and returns false if it was blank. Nothing is sent before [`Session::flush`].
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        self.line_bytes = bytes.len();
        if let Some((id, request)) = envelope::read(bytes) {
            self.request(id, None, request);
            return true;
        }
        match envelope::parse(bytes) {
            Message::Blank => return false,
            Message::Single(entry) => self.entry(entry, None),
            Message::Batch(entries) => {
                self.line_bytes /= entries.len().max(1);
                let batch = JsonBatch { left: entries.len(), ..JsonBatch::default() };
                let at = match self.batches.iter().position(Option::is_none) {
                    Some(at) => {
                        self.batches[at] = Some(batch);
                        at
                    }
                    None => {
                        self.batches.push(Some(batch));
                        self.batches.len() - 1
                    }
                };
                for entry in entries {
                    self.entry(entry, Some(at));
                }
            }
        }
        true
    }

    /// Answers with an error that belongs to no request: a line that is too long, or is not JSON.
    pub fn refuse(&mut self, error: &RpcError) {
        self.tally.refused("none", error.kind());
        self.answer_error(Some(&Id::NULL), None, error);
    }

    fn entry(&mut self, entry: envelope::CallOrRefused<'_>, batch: Option<usize>) {
        let call = match entry {
            Ok(call) => call,
            Err(refused) => {
                self.tally.refused("none", refused.error.kind());
                return self.answer_error(refused.id.as_ref(), batch, &refused.error);
            }
        };
        match wire::parse(&call.method, call.params) {
            Ok(request) => self.request(call.id, batch, request),
            Err(error) => {
                let method = Method::from_name(&call.method).map_or("none", Method::name);
                self.tally.refused(method, error.kind());
                self.answer_error(call.id.as_ref(), batch, &error);
            }
        }
    }

    fn request(&mut self, id: Option<Id>, batch: Option<usize>, request: Request) {
        let method = request.method();
        let asked = match &request {
            Request::IpGet(ask) => Some(ask.address),
            Request::IpFind(ask) => Some(ask.address),
            _ => None, // Only these answer with the address that was asked for.
        };
        let ready = match request {
            Request::EventsWatch(_) if self.watches.is_none() => Err(watch::nowhere_to_tell()),
            request => dispatch::ready(request, self.read),
        };
        match ready {
            Ok(ready) => {
                let queued = Queued { id, batch, asked, read: self.read, bytes: self.line_bytes, ready };
                let waits = !(self.queue.is_empty() || queued.ready.errand.concerns_no_network()) || self.holds_back();
                if let Some(blocked) = if waits { Some(queued) } else { self.submit(queued) } {
                    self.room.queued(&blocked);
                    self.queue.push_back(blocked);
                }
            }
            Err(error) => {
                self.tally.refused(method.name(), error.kind());
                self.answer_error(id.as_ref(), batch, &error);
            }
        }
    }

    /// Takes the answers of actors.
    pub fn absorb(&mut self, told: Told) {
        let now = Instant::now();
        match told {
            Told::Replies(replies) => {
                tracing::trace!(session = self.number, answers = replies.len(), "answered");
                self.share.was_answered(now);
                for Reply { ticket, answer } in replies {
                    self.replied(ticket, answer, now);
                }
            }
            Told::Job(ticket, answer) => {
                if self.barrier == Some(ticket) {
                    self.barrier = None;
                }
                self.unfinished.retain(|act| act.ticket != ticket);
                self.share.was_answered(now);
                self.job_done(ticket, answer, now);
            }
            Told::Notice(notice) => {
                return self.noticed(notice);
            }
            Told::Waits(began) => {
                for began in began {
                    self.waits_from_now(&began);
                }
            }
        }
        self.pump();
    }

    /// Sends requests that no longer need to wait.
    fn pump(&mut self) {
        self.sees_role();
        self.go_on();
    }

    fn go_on(&mut self) {
        self.resume();
        while !self.queue.is_empty() && !self.holds_back() {
            let Some(next) = self.queue.pop_front() else { break };
            self.room.unqueued(&next);
            if let Some(blocked) = self.submit(next) {
                self.room.queued(&blocked);
                self.queue.push_front(blocked);
                break;
            }
        }
        self.flush();
    }

    fn take(&mut self, ticket: u32) -> Option<Pending> {
        let pending = self.pending.get_mut(ticket as usize)?.take()?;
        self.free.push(ticket);
        self.room.answered(&pending);
        if pending.of_node {
            self.ordered -= 1;
        } else {
            self.sent -= 1;
            self.waiting -= usize::from(pending.waits);
        }
        Some(pending)
    }
}
