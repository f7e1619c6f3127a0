//! One client's requests, without its socket: order, batches, bounds, and the bytes to send. Shared by TCP and HTTP.
//!
//! Life of an `ip.allocate`, steps 2 and 7 of 8 (see [`crate`]): from the bytes of a line to one message for its
//! network's actor; and from the answer back to bytes. Before and after: `connection` or `http`. Between: `actors`.
//!
//! **Order** (invariant I-8). Requests for one network go to its actor in the order they were read. A job over several
//! networks is a barrier: it waits until everything before it is answered, and everything behind it waits for it. A job
//! that touches names or space of one network blocks only those behind it that name the same network. Whatever is blocked
//! waits in `queue`, and everything read later waits behind it.
//!
//! All requests that one read brought for one network leave as one message ([`Session::flush`]).
//!
//! **Waiting.** A request that finds no capacity may wait for some. From then on it stands in nobody's way: what was sent
//! behind it goes on, jobs over several networks included. It counts as in flight all the same. Where its owner goes away in
//! order it goes on waiting at the next one: see `waiting`.
//!
//! **Where to** depends on the node's [`Role`]. When it changes, nothing more is sent until everything that is under way
//! is answered; then what waited goes the new way. Between two owners everything is held, and whoever has the session tells
//! it when that ends ([`Session::waits_for_role`]).
//!
//! How answers become bytes is in `answering`; how a session learns what the node is by now, in `seeing`.
//!
//! Review notes: does every request that was read end in exactly one `finish`? What if the client hangs up (the session is
//! dropped: what was sent is carried out, what waits is given up)?

mod answering;
mod seeing;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use compact_str::CompactString;
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use self::waiting::{Patience, Resumes};
use super::Server;
use super::dispatch::{self, Plan, Planned};
use super::faults::error_of;
use super::render::{Renderer, Shape};
use super::role::Role;
use super::steward::NodeOrder;
use super::watch::{self, Watches};
use crate::actors::coordinator::{self, Order};
use crate::actors::routes::Route;
use crate::actors::waits::{Caller, Wait};
use crate::actors::{Fault, Item, NotReadyReason, Outlet, Reply, Told, answer_all};
use crate::core::address::Address;
use crate::core::refusal::{Missing, Refusal};
use crate::limits::IN_FLIGHT_REQUESTS_MAX;
use crate::peer::frame;
use crate::wire::values::NetworkRef;
use crate::wire::{self, Id, Message, Method, Request, RpcError, envelope};

/// A request that is not answered yet.
#[derive(Debug)]
struct Pending {
    id: Option<Id>,
    batch: Option<usize>,
    shape: Shape,
    asked: Option<Address>,
    read: Instant,
    /// It waits for capacity.
    waits: bool,
    /// What is asked, where it may wait.
    patience: Option<Box<Patience>>,
}

#[derive(Debug)]
struct Queued {
    id: Option<Id>,
    batch: Option<usize>,
    asked: Option<Address>,
    read: Instant,
    planned: Planned,
}

#[derive(Debug, Default)]
struct Batch {
    left: usize,
    text: Vec<u8>,
}

#[derive(Debug)]
struct Group {
    to: To,
    items: Vec<Item>,
}

/// Where the requests of a group go.
#[derive(Debug)]
enum To {
    /// To an actor of this node.
    Here { route: Arc<Route>, by_name: bool },
    /// To the node that owns the register.
    There(NetworkRef),
}

impl To {
    fn is_same_network(&self, other: &To) -> bool {
        match (self, other) {
            (To::Here { route, .. }, To::Here { route: other, .. }) => route.id == other.id,
            // A name and an id may be one network's: then they must not change places.
            (To::There(NetworkRef::Name(_)), To::There(NetworkRef::Id(_)))
            | (To::There(NetworkRef::Id(_)), To::There(NetworkRef::Name(_))) => true,
            (To::There(network), To::There(other)) => network == other,
            (To::Here { .. }, To::There(_)) | (To::There(_), To::Here { .. }) => false,
        }
    }

    fn is_named_as(&self, other: &To) -> bool {
        match (self, other) {
            (To::Here { by_name, .. }, To::Here { by_name: other, .. }) => by_name == other,
            (To::There(network), To::There(other)) => network == other,
            (To::Here { .. }, To::There(_)) | (To::There(_), To::Here { .. }) => false,
        }
    }
}

/// Why it is asked, until when it may be begun, and whether it is to change nothing.
type How = (Option<CompactString>, Option<Instant>, bool);

/// What one client has under way.
pub struct Session {
    server: Arc<Server>,
    /// What the node was when the first of what is under way was sent.
    role: Arc<Role>,
    /// It wishes to be told where to ask, instead of being asked for.
    redirect: bool,
    /// Its number among the sessions of this node.
    number: u64,
    /// It is something else by now: nothing more is sent before all that is under way is answered.
    moved: bool,
    by: CompactString,
    outlet: Outlet,
    pending: Vec<Option<Pending>>,
    free: Vec<u32>,
    sent: usize,
    /// How many of those that were sent wait for capacity.
    waiting: usize,
    /// This connection, as far as what waits is concerned.
    caller: Arc<Caller>,
    /// Something that may wait was sent to another node.
    may_wait_there: bool,
    queue: VecDeque<Queued>,
    /// What waits for capacity and is not at an owner just now.
    resumes: Resumes,
    /// Tickets of jobs that block what they touch, and what that is.
    unfinished: Vec<(u32, Vec<CompactString>)>,
    barrier: Option<u32>,
    groups: Vec<Group>,
    /// Requests of the last message: the next one is likely to have as many.
    usual: usize,
    batches: Vec<Option<Batch>>,
    renderer: Renderer,
    tally: super::tally::Tally,
    read: Instant,
    /// It may ask something.
    asking: Option<TaskTrackerToken>,
    /// Subscriptions to events; none where nothing can be sent that was not asked for.
    watches: Option<Watches>,
    /// Bytes to be sent, each answer with its line end.
    pub out: Vec<u8>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Session {
    /// For a client that is known as `by`. The receiver brings what must be handed to [`Session::absorb`].
    pub fn new(server: Arc<Server>, by: CompactString) -> (Self, mpsc::UnboundedReceiver<Told>) {
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
            waiting: 0,
            caller: Arc::default(),
            may_wait_there: false,
            queue: VecDeque::new(),
            resumes: Resumes::default(),
            unfinished: Vec::new(),
            barrier: None,
            groups: Vec::new(),
            usual: 1,
            batches: Vec::new(),
            renderer: Renderer::default(),
            tally,
            read: Instant::now(),
            watches: None,
            out: Vec::new(),
        };
        (session, inlet)
    }

    /// Requests that were read and are not answered.
    pub fn in_flight(&self) -> usize {
        self.sent + self.queue.len() + self.resumes.len()
    }

    /// Nothing more is fed to it, and nothing of it is under way: what is left are bytes for its client to take.
    pub fn asks_no_more(&mut self) {
        self.asking = None;
    }

    /// May more be read?
    pub fn has_room(&self) -> bool {
        self.in_flight() < IN_FLIGHT_REQUESTS_MAX
    }

    /// Notes the time of a read: deadlines and latencies of what it brought are counted from here.
    pub fn begin(&mut self, now: Instant) {
        self.read = now;
        self.look_at_role();
    }

    /// Takes one line or body. Nothing is sent before [`Session::flush`]. False if it was blank.
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        if let Some((id, request)) = envelope::read(bytes) {
            self.request(id, None, request);
            return true;
        }
        match envelope::parse(bytes) {
            Message::Blank => return false,
            Message::Single(entry) => self.entry(entry, None),
            Message::Batch(entries) => {
                let batch = Batch { left: entries.len(), text: Vec::new() };
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

    /// Answers with an error outside any request: a line that is too long.
    pub fn refuse(&mut self, error: &RpcError) {
        self.answer_error(Some(&Id::NULL), None, error);
    }

    fn entry(&mut self, entry: envelope::Entry<'_>, batch: Option<usize>) {
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
            _ => None, // Only these answer with the address that was asked.
        };
        let planned = match request {
            Request::EventsWatch(_) if self.watches.is_none() => Err(watch::nowhere_to_tell()),
            request => dispatch::plan(request, self.read),
        };
        match planned {
            Ok(planned) => {
                let queued = Queued { id, batch, asked, read: self.read, planned };
                if self.queue.is_empty() {
                    if let Some(blocked) = self.submit(queued) {
                        self.queue.push_back(blocked);
                    }
                } else {
                    self.queue.push_back(queued);
                }
            }
            Err(error) => {
                self.tally.refused(method.name(), error.kind());
                self.answer_error(id.as_ref(), batch, &error);
            }
        }
    }

    /// Sends a request on its way, or gives it back if it must wait.
    fn submit(&mut self, queued: Queued) -> Option<Queued> {
        if let Plan::Here(here) = queued.planned.plan {
            self.here(here, &queued);
            return None;
        }
        let of_node = matches!(queued.planned.plan, Plan::Node(_));
        let held = self.moved || self.role.is_between() || self.barrier.is_some();
        if !of_node && (held || self.must_wait(&queued.planned.plan)) {
            return Some(queued);
        }
        let Queued { id, batch, asked, read, planned } = queued;
        let Planned { method: _, plan, shape, reason, deadline, dry_run, wait_ms } = planned;
        let wait = self.wait(wait_ms);
        let patience = wait_ms.and_then(|ms| Patience::of(&plan, reason.as_ref(), ms));
        let pending = Pending { id, batch, shape, asked, read, waits: false, patience };
        if let Plan::Node(job) = plan {
            let ticket = self.ticket(pending);
            let mut order = NodeOrder::new(job, dry_run, (ticket, self.outlet.clone()));
            (order.by, order.reason, order.deadline) = (self.by.clone(), reason, deadline);
            self.server.steward.ask(order);
            return None;
        }
        if let Some(fault) = self.role.nobody() {
            self.finish_error(pending, &error_of(&fault));
            return None;
        }
        if self.redirect
            && let Role::Follower { owner, .. } = &*self.role
        {
            let error = self.server.moved_to(owner);
            self.finish_error(pending, &error);
            return None;
        }
        self.send(pending, plan, (reason, deadline, dry_run), wait);
        None
    }

    /// Sends it to whom it is for.
    fn send(&mut self, pending: Pending, plan: Plan, how: How, wait: Option<Wait>) {
        let (reason, deadline, dry_run) = how;
        match plan {
            Plan::Here(_) | Plan::Node(_) => {}
            Plan::One(network, command) => {
                let to = match self.to(network) {
                    Ok(to) => to,
                    Err(refusal) => return self.unrouted(pending, refusal),
                };
                let ticket = self.ticket(pending);
                let item = Item { ticket, command, by: self.by.clone(), reason, deadline, dry_run, wait };
                // Named in two ways in one read: a new group goes behind the earlier one, so order stays.
                match self.groups.iter_mut().rev().find(|group| group.to.is_same_network(&to)) {
                    Some(group) if group.to.is_named_as(&to) => group.items.push(item),
                    Some(_) | None => {
                        let mut items = Vec::with_capacity(self.usual);
                        items.push(item);
                        self.groups.push(Group { to, items });
                    }
                }
            }
            Plan::Act(touches, job) => {
                // What came before for the same network must be in its mailbox first.
                self.flush();
                let touches = self.aliases(touches);
                let waits = pending.waits;
                let ticket = self.ticket(pending);
                if !waits {
                    self.unfinished.push((ticket, touches));
                }
                self.spawn(ticket, Order { job: *job, by: self.by.clone(), reason, deadline, dry_run, wait });
            }
            Plan::All(job) => {
                let waits = pending.waits;
                let ticket = self.ticket(pending);
                if waits {
                    // What waits for longer is asked first, too.
                    self.flush();
                } else {
                    self.barrier = Some(ticket);
                }
                self.spawn(ticket, Order { job: *job, by: self.by.clone(), reason, deadline, dry_run, wait });
            }
        }
    }

    fn spawn(&self, ticket: u32, order: Order) {
        match &*self.role {
            Role::Owner(shared) => coordinator::spawn(shared, ticket, order, self.outlet.clone()),
            Role::Follower { link, .. } => {
                self.server.metrics.forwarded.inc();
                link.job(self.number, ticket, order, &self.outlet);
            }
            Role::Between | Role::Waiting { .. } => {} // Held or refused before.
        }
    }

    /// There is no such network, as far as the routing table here knows. That alone is no proof that there is none.
    fn unrouted(&mut self, pending: Pending, refusal: Refusal) {
        let fault = Fault::Refused(refusal);
        match self.role.actors().filter(|shared| !shared.info.ownership_is_standing).map(Arc::clone) {
            None => self.finish_error(pending, &error_of(&fault)),
            Some(shared) => {
                let ticket = self.ticket(pending);
                shared.answer_proved(self.outlet.clone(), vec![Reply { ticket, answer: Err(Box::new(fault)) }]);
            }
        }
    }

    /// Where requests for a network go.
    fn to(&self, network: NetworkRef) -> Result<To, Refusal> {
        let Some(shared) = self.role.actors() else { return Ok(To::There(network)) };
        let routes = &shared.routes;
        let route = match &network {
            NetworkRef::Name(name) => match self.groups.last() {
                // A pipelining client names one network again and again.
                Some(Group { to: To::Here { route, by_name: true }, .. }) if route.name.as_ref() == Some(name) => {
                    Some(Arc::clone(route))
                }
                Some(_) | None => routes.by_name(name),
            },
            NetworkRef::Id(id) => routes.find(&id.to_string()),
        };
        let Some(route) = route else { return Err(Refusal::not_found(Missing::Network, &network)) };
        let by_name = match &network {
            NetworkRef::Name(name) => route.name.as_ref() == Some(name),
            NetworkRef::Id(_) => false,
        };
        Ok(To::Here { route, by_name })
    }

    /// Must it wait for something that is under way?
    fn must_wait(&self, plan: &Plan) -> bool {
        let touched = |text: &str| self.unfinished.iter().any(|(_, touches)| touches.iter().any(|t| t == text));
        match plan {
            Plan::Here(_) | Plan::Node(_) => false,
            Plan::All(_) => self.sent > self.waiting,
            _ if self.unfinished.is_empty() => false,
            // Another node knows which names are one network's.
            _ if self.role.actors().is_none() => true,
            Plan::One(network, _) => {
                let text = network.to_string();
                touched(&text)
                    || self.find(&text).is_some_and(|route| {
                        touched(&route.id.to_string()) || route.name.as_ref().is_some_and(|name| touched(name.as_str()))
                    })
            }
            Plan::Act(touches, _) => self.aliases(touches.clone()).iter().any(|text| touched(text)),
        }
    }

    fn find(&self, text: &str) -> Option<Arc<Route>> {
        self.role.actors()?.routes.find(text)
    }

    /// What a network is called: as it was named, by its name and by its id.
    fn aliases(&self, touches: Vec<CompactString>) -> Vec<CompactString> {
        let mut all = touches;
        for at in 0..all.len() {
            if let Some(route) = self.find(&all[at]) {
                all.push(CompactString::from(route.id.to_string()));
                all.extend(route.name.as_ref().map(|name| CompactString::from(name.as_str())));
            }
        }
        all
    }

    /// Sends what was read, one message for each network.
    pub fn flush(&mut self) {
        for Group { to, items } in self.groups.drain(..) {
            self.usual = items.len();
            match (to, &*self.role) {
                (To::Here { route, by_name }, Role::Owner(shared)) => {
                    coordinator::send(shared, &route, by_name, items, &self.outlet, self.read);
                }
                (To::There(network), Role::Follower { link, .. }) => {
                    let network = match network {
                        NetworkRef::Name(name) => frame::NetworkRef::Name(name),
                        NetworkRef::Id(id) => frame::NetworkRef::Id(id),
                    };
                    self.server.metrics.forwarded.inc_by(items.len() as u64);
                    link.work(self.number, network, items, &self.outlet);
                }
                // The role does not change while anything is gathered (`sees_role`): it counts as sent.
                (To::Here { .. } | To::There(_), role) => {
                    tracing::error!(?role, "requests were gathered for another role");
                    let fault = Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 100 };
                    answer_all(&self.outlet, items.iter().map(|item| item.ticket), &fault);
                }
            }
        }
    }

    /// Takes what actors answered.
    pub fn absorb(&mut self, told: Told) {
        let now = Instant::now();
        match told {
            Told::Replies(replies) => {
                for Reply { ticket, answer } in replies {
                    self.replied(ticket, answer, now);
                }
            }
            Told::Job(ticket, answer) => {
                if self.barrier == Some(ticket) {
                    self.barrier = None;
                }
                self.unfinished.retain(|(unfinished, _)| *unfinished != ticket);
                self.job_done(ticket, answer, now);
            }
            Told::Notice(notice) => {
                if let Some(watches) = &mut self.watches {
                    watches.say(notice, &mut self.out);
                }
                return;
            }
            Told::Waits(began) => {
                for began in began {
                    self.waits_from_now(&began);
                }
            }
        }
        self.pump();
    }

    /// Sends what waited and need not wait any more.
    fn pump(&mut self) {
        self.sees_role();
        self.go_on();
    }

    fn go_on(&mut self) {
        self.resume();
        while let Some(next) = self.queue.pop_front() {
            if let Some(blocked) = self.submit(next) {
                self.queue.push_front(blocked);
                break;
            }
        }
        self.flush();
    }

    fn ticket(&mut self, pending: Pending) -> u32 {
        self.sent += 1;
        self.waiting += usize::from(pending.waits);
        match self.free.pop() {
            Some(ticket) => {
                self.pending[ticket as usize] = Some(pending);
                ticket
            }
            None => {
                self.pending.push(Some(pending));
                (self.pending.len() - 1) as u32
            }
        }
    }

    fn take(&mut self, ticket: u32) -> Option<Pending> {
        let pending = self.pending.get_mut(ticket as usize)?.take()?;
        self.free.push(ticket);
        self.sent -= 1;
        self.waiting -= usize::from(pending.waits);
        Some(pending)
    }
}
