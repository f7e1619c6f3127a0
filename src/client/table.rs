//! The calls of a client that are not answered, the connections they are under way on, and what is to be done next.
//!
//! ```text
//!            begin          dispatch                    answered
//!  call ──▶ Queued ──────────────────────▶ Sent(link) ──────────▶ the caller
//!             ▲  ▲                            │  │ moved, lost and safe to repeat
//!             │  └────────────────────────────┘──┘
//!             └──── Delayed ◀─── not now (`not_ready`, …)
//! ```
//!
//! A state machine without I/O, under one lock: whoever changes something dispatches what can be sent now, and carries
//! out the [`Todo`]s outside of the lock. Owned by `client`.
//!
//! Order: what is queued is sent in the order of its numbers. A call is sent on a connection only when no earlier call that
//! it must not overtake is queued, or unanswered on another connection. Delayed ones, and those that wait on the server's
//! side, stand in nobody's way. `sending` keeps it; here is how calls begin, are answered and come to be queued again.
//!
//! Review notes: is there a way for a call to be neither queued, nor sent on a live link, nor delayed with a timer?

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

/// Calls in flight on one connection: one less than the server reads, so that a ping always gets through.
const IN_FLIGHT_MAX: usize = IN_FLIGHT_REQUESTS_MAX - 1;
/// A connection over which so many calls in a row were put off is left for the next address.
const PUT_OFF_MAX: u32 = 3;
/// Redirects that one call follows at once; then it waits before each.
const HOPS_MAX: u32 = 4;
/// Number of the ping that asks for a sign of life. Calls begin at 1.
pub(super) const PING: u64 = 0;

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStage {
    /// To be sent as soon as it may.
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
    /// An earlier try may have taken effect.
    in_doubt: bool,
    /// Why it is still trying.
    last: Option<ClientError>,
    /// No try begins later. None: beyond what a clock can say.
    tried_until: Option<Instant>,
    tries: u32,
    hops: u32,
}

/// A connection as the table knows it.
#[derive(Debug)]
struct Link {
    /// Where it leads; empty as long as the way home is looked for.
    address: String,
    /// None: it is being made.
    up: Option<Up>,
    /// Unanswered there, those included that nobody waits for any more: the server counts them too.
    sent: BTreeSet<u64>,
    /// Those of them that may wait there.
    waiting: BTreeSet<u64>,
    /// Calls put off in a row.
    put_off: u32,
    /// Whether anything was ever answered.
    answered: bool,
    heard: Instant,
}

/// What a live connection is used by. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Up {
    pub lines: mpsc::Sender<Vec<u8>>,
    /// The socket once more, for how it is closed.
    pub socket: Option<socket2::Socket>,
    pub tasks: Vec<tokio::task::AbortHandle>,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// What is to be done outside of the lock.
#[derive(Debug)]
pub(super) enum Todo {
    /// Make link `link`, home or to an address.
    Connect { link: u64, to: Option<String> },
    /// Queue the call after this time.
    Wake { call: u64, after: Duration },
    /// Tell why a call goes on trying.
    Tell(ClientError),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    addresses: usize,
    redirect: bool,
    asks_again: bool,
    entries: BTreeMap<u64, CallEntry>,
    queued: BTreeSet<u64>,
    links: BTreeMap<u64, Link>,
    home: Option<u64>,
    /// Which of the addresses is asked next for the way home.
    at: usize,
    /// Connections in a row that ended before they answered anything.
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

    /// A call that is polled for the first time, and is tried for so long: its number, and where its answer comes.
    ///
    /// # Errors
    /// What cannot be sent at all.
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

    /// Nobody waits for it any more. Where it is under way it stays among what its link has sent, and a reset of that link is
    /// still what ends its wait.
    pub(super) fn forget(&mut self, call: u64) {
        self.queued.remove(&call);
        self.entries.remove(&call);
    }

    /// What is known of a call whose time is over.
    pub(super) fn give_up(&mut self, call: u64, seconds: u64) -> ClientError {
        let Some(entry) = self.entries.get(&call) else {
            return ClientError::Lost { cause: super::CLOSED.to_owned() };
        };
        if entry.in_doubt || matches!(entry.stage, CallStage::Sent(_)) {
            // What a try before this one was refused with says more than that time is over.
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

    /// Its timer has run down.
    pub(super) fn due(&mut self, call: u64) {
        if let Some(entry) = self.entries.get_mut(&call).filter(|entry| entry.stage == CallStage::Delayed) {
            entry.stage = CallStage::Queued;
            self.queued.insert(call);
        }
    }

    /// Something is waited for.
    pub(super) fn is_needed(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The address to be tried next for the way home.
    pub(super) fn at(&self) -> usize {
        self.at % self.addresses.max(1)
    }

    /// Connections in a row that were of no use.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Was any connection ever made?
    pub(super) fn was_connected(&self) -> bool {
        self.was_connected
    }

    /// A link is made. It is dropped where it is not wanted any more.
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

    /// Nobody waits for this link, or it cannot be made: whoever is queued for it goes home.
    pub(super) fn not_connected(&mut self, link: u64) {
        let Some(it) = self.links.remove(&link) else { return };
        self.routes.forget_address(&it.address);
        self.home = self.home.filter(|&home| home != link);
    }

    /// Why there is no way home now.
    pub(super) fn nowhere(&mut self, error: &ClientError) {
        self.trouble = Some(error.clone());
        for call in &self.queued {
            if let Some(entry) = self.entries.get_mut(call) {
                entry.last = Some(error.clone());
            }
        }
    }

    /// Every call that is not under way ends with this.
    pub(super) fn fail_queued(&mut self, error: &ClientError) {
        for call in std::mem::take(&mut self.queued) {
            if let Some(entry) = self.entries.remove(&call) {
                let error = if entry.in_doubt { entry.asked.unknown(error.clone()) } else { error.clone() };
                let _ = entry.reply.send(Err(error));
            }
        }
    }

    /// Something was read from a link.
    pub(super) fn heard(&mut self, link: u64, now: Instant) {
        if let Some(link) = self.links.get_mut(&link) {
            link.heard = now;
        }
    }

    /// How long a link has said nothing, and whether anything is due there. None: it is no more.
    pub(super) fn silence(&self, link: u64, now: Instant) -> Option<(Duration, bool)> {
        let link = self.links.get(&link)?;
        Some((now.saturating_duration_since(link.heard), !link.sent.is_empty()))
    }

    /// Asks a link for a sign of life. Where even that cannot be sent it is not heard either.
    pub(super) fn ping(&self, link: u64, line: Vec<u8>) {
        if let Some(up) = self.links.get(&link).and_then(|link| link.up.as_ref()) {
            let _ = up.lines.try_send(line);
        }
    }

    /// A call is answered.
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
                    // Nobody waits any more where the call was given up meanwhile.
                    let _ = entry.reply.send(Ok(Answered { result, after_doubt: entry.in_doubt }));
                }
            }
            Err(error) => self.refused(link, call, error, &mut todo),
        }
        self.drop_idle(link);
        todo
    }

    /// A call is answered by an error.
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
                    // The node that was named is not known yet, or they send us in a circle: it changes hands just now.
                    (route, _) => {
                        route.iter().for_each(|route| self.routes.forget(route));
                        self.delay(call, error, backoff::wait(hops), todo);
                    }
                }
            }
        }
    }

    /// It is tried again after a while. If there is no time for that, and nothing of it is in doubt, this is the answer.
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

    /// Another address may do better: what is under way stays where it is, what comes goes there.
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

    /// A link that nobody is sent to any more is closed once everything there is answered.
    fn drop_idle(&mut self, link: u64) {
        let Some(it) = self.links.get(&link).filter(|it| it.sent.is_empty() && self.home != Some(link)) else { return };
        if !self.routes.lead_to(&it.address) {
            self.links.remove(&link);
        }
    }

    /// A link that was not used for a while is closed, before the server does.
    pub(super) fn close_unused(&mut self, link: u64) {
        if self.links.get(&link).is_some_and(|it| it.sent.is_empty()) {
            self.not_connected(link);
        }
    }

    /// A link has ended.
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
            // One line was too long, and it is among these; the others only lost their connection.
            let error = if too_long && longest != Some(call) { &lost } else { reason };
            let Some(entry) = self.entries.get_mut(&call) else { continue };
            match entry.asked.next(error, entry.tries) {
                Next::Repeat(after) if after.is_zero() => {
                    (entry.in_doubt, entry.stage, entry.last) = (true, CallStage::Queued, Some(error.clone()));
                    self.queued.insert(call);
                }
                // Turned away: nothing was read.
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
