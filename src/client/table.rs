//! The unanswered calls of a client, the connections they are under way on, and what is to be done next.
//!
//! ```text
//!            begin          dispatch                    answered
//!  call ──▶ Queued ──────────────────────▶ Sent(link) ──────────▶ the caller
//!             ▲  ▲                            │  │ moved, lost and safe to repeat
//!             │  └────────────────────────────┘──┘
//!             └──── Delayed ◀─── not now (`not_ready`, …)
//! ```
//!
//! A state machine without I/O, under one lock. Whoever changes something dispatches what can be sent now, and carries out
//! the [`Todo`]s outside of the lock. Owned by `client`.
//!
//! Order: queued calls are sent in the order of their numbers. A call is sent on a connection only if no earlier call that
//! it must not overtake is queued, or unanswered on another connection. Delayed calls, and calls that wait at the server,
//! are in no other call's way. `sending` keeps the order; this file begins calls, takes answers, and queues calls again.
//!
//! Review notes: can a call be neither queued, nor sent on a live link, nor delayed with a timer?

mod sending;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::asked::{Asked, Next};
use super::line::Answer;
use super::options::Options;
use super::routes::Routes;
use super::shared::Answered;
use super::{ClientError, backoff};
use crate::limits::IN_FLIGHT_REQUESTS_MAX;

/// Calls in flight on one connection: one fewer than the server reads, so that a ping always gets through.
const IN_FLIGHT_MAX: usize = IN_FLIGHT_REQUESTS_MAX - 1;
/// After this many calls in a row were put off over one connection, the client turns to the next address.
const PUT_OFF_MAX: u32 = 3;
/// How many redirects one call follows at once; after that it waits before each.
const HOPS_MAX: u32 = 4;
/// Number of the ping for signs of life. Calls begin at 1.
pub(super) const PING: u64 = 0;

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStage {
    /// To be sent as soon as possible.
    Queued,
    /// Under way on this link.
    Sent(u64),
    /// A timer will queue it.
    Delayed,
}

#[derive(Debug)]
struct CallEntry {
    asked: Asked,
    stage: CallStage,
    reply: oneshot::Sender<Result<Answered, ClientError>>,
    /// Whether an earlier try may have taken effect.
    in_doubt: bool,
    /// Why the call is still trying.
    last: Option<ClientError>,
    /// The time after which no try begins. `None` if it lies beyond what the clock can express.
    tried_until: Option<Instant>,
    tries: u32,
    hops: u32,
}

/// A connection as the table knows it.
#[derive(Debug)]
struct Link {
    /// The address it leads to; empty while a way home is being looked for.
    address: String,
    /// `None` while the connection is being made.
    up: Option<Up>,
    /// Unanswered calls on this link. Calls that were given up stay in it, because the server still counts them.
    sent: BTreeSet<u64>,
    /// Those of them that may wait at the server.
    waiting: BTreeSet<u64>,
    /// How many calls in a row were put off.
    put_off: u32,
    /// Whether anything was ever answered on it.
    answered: bool,
    heard: Instant,
}

/// The handles of a live connection. Dropping them closes it.
#[derive(Debug)]
pub(super) struct Up {
    pub lines: mpsc::Sender<Vec<u8>>,
    /// A second handle of the socket, which decides how it is closed.
    pub socket: Option<socket2::Socket>,
    pub tasks: Vec<tokio::task::AbortHandle>,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// Work to be done outside of the lock.
#[derive(Debug)]
pub(super) enum Todo {
    /// Make the connection for link `link`: to an address, or home if there is none.
    Connect { link: u64, to: Option<String> },
    /// Queue the call after this time.
    Wake { call: u64, after: Duration },
    /// Report why a call keeps trying.
    Tell(ClientError),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Table {
    addresses: usize,
    redirect: bool,
    asks_again: bool,
    entries: BTreeMap<u64, CallEntry>,
    queued: BTreeSet<u64>,
    links: BTreeMap<u64, Link>,
    home: Option<u64>,
    /// Which of the addresses is tried next for the way home.
    at: usize,
    /// How many connections in a row ended before they answered anything.
    failures: u32,
    was_connected: bool,
    routes: Routes,
    last_call: u64,
    last_link: u64,
    trouble: Option<ClientError>,
}

impl Table {
    pub(super) fn new(addresses: usize, options: &Options) -> Self {
        Self {
            addresses,
            redirect: options.redirect,
            asks_again: options.asks_again,
            entries: BTreeMap::new(),
            queued: BTreeSet::new(),
            links: BTreeMap::new(),
            home: None,
            at: 0,
            failures: 0,
            was_connected: false,
            routes: Routes::default(),
            last_call: PING,
            last_link: 0,
            trouble: None,
        }
    }

    /// Adds a call that is polled for the first time and is tried for `tried_for`. Returns its number, and where its answer
    /// comes.
    ///
    /// # Errors
    /// If the call cannot be sent at all.
    pub(super) fn begin(
        &mut self,
        method: &str,
        params: &Map<String, Value>,
        tried_for: Duration,
    ) -> Result<(u64, oneshot::Receiver<Result<Answered, ClientError>>), ClientError> {
        let asked = Asked::new(self.last_call + 1, method, params)?;
        self.last_call += 1;
        let (reply, answer) = oneshot::channel();
        let stage = CallStage::Queued;
        let tried_until = Instant::now().checked_add(tried_for);
        let entry = CallEntry { asked, stage, reply, in_doubt: false, last: None, tried_until, tries: 0, hops: 0 };
        self.entries.insert(self.last_call, entry);
        self.queued.insert(self.last_call);
        Ok((self.last_call, answer))
    }

    /// Forgets a call that nobody waits for. If it is under way, it stays in its link's `sent`, and a reset of that link
    /// still ends its wait.
    pub(super) fn forget(&mut self, call: u64) {
        self.queued.remove(&call);
        self.entries.remove(&call);
    }

    /// The error of a call whose time is over.
    pub(super) fn give_up(&mut self, call: u64, seconds: u64) -> ClientError {
        let Some(entry) = self.entries.get(&call) else {
            return ClientError::Lost { cause: super::CLOSED.to_owned() };
        };
        if entry.in_doubt || matches!(entry.stage, CallStage::Sent(_)) {
            // The refusal of the try before says more than that time is over.
            let refused = entry.last.as_ref().and_then(ClientError::rpc);
            return match refused.and_then(|refused| entry.asked.unanswered(refused)) {
                Some(error) => error,
                None => entry.asked.timed_out(seconds),
            };
        }
        let known = entry.last.clone().or_else(|| self.trouble.clone());
        known.unwrap_or_else(|| ClientError::Connect {
            address: self.home.and_then(|home| self.links.get(&home)).map_or_else(String::new, |it| it.address.clone()),
            cause: format!("no answer within {seconds} s"),
        })
    }

    /// Queues a call whose timer has run out.
    pub(super) fn due(&mut self, call: u64) {
        if let Some(entry) = self.entries.get_mut(&call).filter(|entry| entry.stage == CallStage::Delayed) {
            entry.stage = CallStage::Queued;
            self.queued.insert(call);
        }
    }

    /// Is any call unanswered?
    pub(super) fn is_needed(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Index of the address to try next for the way home.
    pub(super) fn at(&self) -> usize {
        self.at % self.addresses.max(1)
    }

    /// How many connections in a row were of no use.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Was any connection ever made?
    pub(super) fn was_connected(&self) -> bool {
        self.was_connected
    }

    /// A link is connected. The connection is dropped if the link is no longer wanted.
    pub(super) fn connected(&mut self, link: u64, address: &str, up: Up, now: Instant) {
        let Some(it) = self.links.get_mut(&link) else { return };
        address.clone_into(&mut it.address);
        (it.up, it.heard) = (Some(up), now);
        (self.was_connected, self.trouble) = (true, None);
    }

    /// An address on the way home did not answer: the next one is tried.
    pub(super) fn not_home(&mut self, error: &ClientError) {
        self.at = self.at.wrapping_add(1);
        self.nowhere(error);
    }

    /// Removes a link that nobody waits for or that cannot be connected: calls that are queued for it go home.
    pub(super) fn not_connected(&mut self, link: u64) {
        let Some(it) = self.links.remove(&link) else { return };
        self.routes.forget_address(&it.address);
        self.home = self.home.filter(|&home| home != link);
    }

    /// Notes why there is no way home at present.
    pub(super) fn nowhere(&mut self, error: &ClientError) {
        self.trouble = Some(error.clone());
        for call in &self.queued {
            if let Some(entry) = self.entries.get_mut(call) {
                entry.last = Some(error.clone());
            }
        }
    }

    /// Ends every queued call with this error.
    pub(super) fn fail_queued(&mut self, error: &ClientError) {
        for call in std::mem::take(&mut self.queued) {
            if let Some(entry) = self.entries.remove(&call) {
                let error = if entry.in_doubt { entry.asked.unknown(error.clone()) } else { error.clone() };
                let _ = entry.reply.send(Err(error));
            }
        }
    }

    /// Notes that something was read from a link.
    pub(super) fn heard(&mut self, link: u64, now: Instant) {
        if let Some(link) = self.links.get_mut(&link) {
            link.heard = now;
        }
    }

    /// How long a link has been silent, and whether an answer is due there. `None` if the link no longer exists.
    pub(super) fn silence(&self, link: u64, now: Instant) -> Option<(Duration, bool)> {
        let link = self.links.get(&link)?;
        Some((now.saturating_duration_since(link.heard), !link.sent.is_empty()))
    }

    /// Asks a link for a sign of life. If even that cannot be sent, the link stays silent, too.
    pub(super) fn ping(&self, link: u64, line: Vec<u8>) {
        if let Some(up) = self.links.get(&link).and_then(|link| link.up.as_ref()) {
            let _ = up.lines.try_send(line);
        }
    }

    /// Takes the answer of a call.
    pub(super) fn answered(&mut self, link: u64, call: u64, answer: Answer, now: Instant) -> Vec<Todo> {
        let Some(it) = self.links.get_mut(&link) else { return Vec::new() };
        it.heard = now;
        let first = !std::mem::replace(&mut it.answered, true);
        if !it.sent.remove(&call) {
            return Vec::new();
        }
        if first {
            self.failures = 0;
        }
        if it.waiting.remove(&call) {
            it.note_waits();
        }
        let mut todo = Vec::new();
        match answer {
            Ok(result) => {
                it.put_off = 0;
                if let Some(entry) = self.entries.remove(&call) {
                    // The receiver may have gone if the call was given up meanwhile.
                    let _ = entry.reply.send(Ok(Answered { result, after_doubt: entry.in_doubt }));
                }
            }
            Err(error) => self.refused(link, call, error, &mut todo),
        }
        self.drop_idle(link);
        todo
    }

    /// Handles an answer that is an error.
    fn refused(&mut self, link: u64, call: u64, error: ClientError, todo: &mut Vec<Todo>) {
        let Some(entry) = self.entries.get_mut(&call) else { return };
        let next = match entry.asked.next(&error, entry.tries) {
            Next::Later(_) | Next::Repeat(_) if !self.asks_again => Next::Deliver,
            next => next,
        };
        match next {
            Next::Deliver | Next::Unknown => {
                if let Some(it) = self.links.get_mut(&link) {
                    it.put_off = 0;
                }
                let Some(entry) = self.entries.remove(&call) else { return };
                let error = match next {
                    Next::Unknown => entry.asked.unknown(error),
                    _ if entry.in_doubt => entry.asked.refused_again(error),
                    _ => error,
                };
                let _ = entry.reply.send(Err(error));
            }
            Next::Later(after) | Next::Repeat(after) => {
                entry.in_doubt |= matches!(next, Next::Repeat(_));
                self.put_off(link);
                self.delay(call, error, after, todo);
            }
            Next::Elsewhere(address) => {
                entry.hops += 1;
                let hops = entry.hops;
                let route = entry.asked.touches.route().map(str::to_owned);
                let here = self.links.get(&link).map(|link| link.address.clone()).unwrap_or_default();
                match (route, address.filter(|address| *address != here)) {
                    (Some(route), Some(address)) if hops <= HOPS_MAX => {
                        self.routes.learn(&route, &address);
                        entry.stage = CallStage::Queued;
                        entry.last = Some(error);
                        self.queued.insert(call);
                    }
                    // The named node is not known yet, or the nodes send us in a circle: the network is changing hands.
                    (route, _) => {
                        route.iter().for_each(|route| self.routes.forget(route));
                        self.delay(call, error, backoff::wait(hops), todo);
                    }
                }
            }
        }
    }

    /// Tries a call again after a while. If there is no time for that, and the call is not in doubt, the error is its
    /// answer.
    fn delay(&mut self, call: u64, error: ClientError, after: Duration, todo: &mut Vec<Todo>) {
        let Some(entry) = self.entries.get_mut(&call) else { return };
        let is_too_late = entry.tried_until.is_some_and(|until| Instant::now() + after > until);
        if is_too_late && !entry.in_doubt {
            if let Some(entry) = self.entries.remove(&call) {
                let _ = entry.reply.send(Err(error));
            }
            return;
        }
        entry.tries += 1;
        entry.stage = CallStage::Delayed;
        todo.push(Todo::Tell(error.clone()));
        entry.last = Some(error);
        todo.push(Todo::Wake { call, after });
    }

    /// Counts a call that was put off. Another address may do better: calls under way stay on the link, new ones go there.
    fn put_off(&mut self, link: u64) {
        let Some(it) = self.links.get_mut(&link) else { return };
        it.put_off += 1;
        if self.home == Some(link) && self.addresses > 1 && it.put_off >= PUT_OFF_MAX {
            self.home = None;
            self.at = self.at.wrapping_add(1);
        }
        let address = it.address.clone();
        if self.home != Some(link) {
            self.routes.forget_address(&address);
        }
    }

    /// Closes a link to which no more calls are sent, once everything on it is answered.
    fn drop_idle(&mut self, link: u64) {
        let Some(it) = self.links.get(&link).filter(|it| it.sent.is_empty() && self.home != Some(link)) else { return };
        if !self.routes.lead_to(&it.address) {
            self.links.remove(&link);
        }
    }

    /// Closes a link that was unused for a while, before the server does.
    pub(super) fn close_unused(&mut self, link: u64) {
        if self.links.get(&link).is_some_and(|it| it.sent.is_empty()) {
            self.not_connected(link);
        }
    }

    /// Handles the end of a link.
    pub(super) fn ended(&mut self, link: u64, reason: &ClientError) -> Vec<Todo> {
        let Some(it) = self.links.remove(&link) else { return Vec::new() };
        if self.home == Some(link) {
            self.home = None;
            self.at = self.at.wrapping_add(1);
            self.failures = if it.answered { 0 } else { self.failures.saturating_add(1) };
        }
        self.routes.forget_address(&it.address);
        let length = |call: &u64| self.entries.get(call).map_or(0, |entry| entry.asked.line.len());
        let longest = it.sent.iter().copied().max_by_key(length);
        let too_long = reason.kind() == "line_too_long";
        let lost = ClientError::Lost { cause: super::CLOSED.to_owned() };
        let mut todo = vec![Todo::Tell(reason.clone())];
        for &call in &it.sent {
            // Only one line was too long, and it is among these; the other calls merely lost their connection.
            let error = if too_long && longest != Some(call) { &lost } else { reason };
            let Some(entry) = self.entries.get_mut(&call) else { continue };
            match entry.asked.next(error, entry.tries) {
                Next::Repeat(after) if after.is_zero() => {
                    (entry.in_doubt, entry.stage, entry.last) = (true, CallStage::Queued, Some(error.clone()));
                    self.queued.insert(call);
                }
                // The server turned the connection away: it read nothing.
                Next::Later(after) => self.delay(call, error.clone(), after, &mut todo),
                Next::Deliver | Next::Unknown | Next::Repeat(_) | Next::Elsewhere(_) => {
                    let Some(entry) = self.entries.remove(&call) else { continue };
                    let is_known = error.rpc().is_some() && !entry.in_doubt;
                    let error = error.clone();
                    let error = if is_known { error } else { entry.asked.lost(error) };
                    let _ = entry.reply.send(Err(error));
                }
            }
        }
        todo
    }
}
