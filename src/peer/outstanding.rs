//! The requests that a link has under way, without its socket: who waits for which answer, and the bytes that wait to be
//! written.
//!
//! ```text
//! asked ──bytes taken by the writer──▶ sent ──answered──▶ gone
//!   │                                   └──connection broke──▶ gone: unavailable (applied unknown, or false if it only reads)
//!   └──connection broke──▶ gone: not_ready, nothing was begun
//! ```
//!
//! Every number leaves the table once, and leaving the table is what sends the answer: so each ticket is answered once. A
//! number is not used again soon, so an answer that comes twice, or late, finds no request.
//!
//! Before and after: `link`, which keeps this behind a lock and never holds the lock across an await.

use std::time::Instant;

use hashbrown::HashMap;

use super::frame::{Answered, Ask, NetworkRef, PeerStanding, SentItem, SentOrder, encode_asks};
use crate::actors::coordinator::{Job, Order};
use crate::actors::{Applied, BeganToWait, Fault, Item, NotReadyReason, Outlet, Reply, Told, answer_all};
use crate::limits::{PEER_FRAME_BYTES_MAX, PEER_IN_FLIGHT_REQUESTS_MAX, PEER_QUEUE_BYTES_MAX, PEER_WATCHES_MAX};

/// When the client should retry if nobody can be asked.
const RETRY_AFTER_MS: u64 = 200;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Item,
    Job,
    /// A job of the node itself: it may take long, and no other request waits behind it.
    Node,
    /// A job that waits for events. It may take long, too, and there are as many as clients watch: so these have a bound of
    /// their own.
    Events,
}

impl Sort {
    fn of(job: &Job) -> Self {
        if matches!(job, Job::Node(_)) {
            Sort::Node
        } else if matches!(job, Job::Events { .. }) {
            Sort::Events
        } else {
            Sort::Job
        }
    }
}

/// One request that is not answered yet.
#[derive(Debug)]
struct OpenRequest {
    outlet: Outlet,
    ticket: u32,
    sort: Sort,
    /// Whether it changes nothing.
    reads: bool,
    /// Number of the buffer that has its bytes.
    buffer: u64,
    /// Whether the other node said that it waits for capacity.
    waits: bool,
}

impl OpenRequest {
    fn is_job(&self) -> bool {
        self.sort != Sort::Item
    }

    /// Corrects an answer of the other node, which does not always know what it answers there: if the answer was too long to
    /// be sent, say.
    fn as_known<T>(&self, answer: Result<T, Box<Fault>>) -> Result<T, Box<Fault>> {
        answer.map_err(|fault| if self.reads { fault.of_read() } else { fault })
    }

    fn told(self, fault: Fault) {
        let (is_job, fault) = (self.is_job(), Box::new(fault));
        let (outlet, fault) = (self.outlet, if self.reads { fault.of_read() } else { fault });
        let told = if is_job {
            Told::Job(self.ticket, Err(fault))
        } else {
            Told::Replies(vec![Reply { ticket: self.ticket, answer: Err(fault) }])
        };
        // A closed outlet is a client that hung up.
        let _ = outlet.send(told);
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    asked: HashMap<u32, OpenRequest>,
    next: u32,
    waiting: Vec<u8>,
    /// How many buffers the writer has taken.
    taken: u64,
    connected: bool,
    /// How many requests wait for capacity: these are bounded where they wait.
    waits: usize,
    /// How many requests wait for events.
    watches: usize,
    /// How the other node stands to the register, as it said last.
    standing: Option<PeerStanding>,
}

impl Outstanding {
    /// Number of requests that will be answered soon: those that wait for capacity or events, and jobs of the node itself,
    /// do not count.
    pub fn under_way(&self) -> usize {
        let is_soon = |asked: &&OpenRequest| matches!(asked.sort, Sort::Item | Sort::Job) && !asked.waits;
        self.asked.values().filter(is_soon).count()
    }

    /// Notes that the connection is up: from now on requests are taken.
    pub fn connect(&mut self) {
        (self.connected, self.standing) = (true, None);
    }

    /// Forgets how the other node stood to the register, if it said so on a connection that is gone.
    pub fn forget_last_standing(&mut self) {
        if !self.connected {
            self.standing = None;
        }
    }

    /// How the other node stands to the register, as it said last. `None` if it has not said yet on this connection.
    pub fn standing(&self) -> Option<PeerStanding> {
        self.standing.clone()
    }

    /// Sends requests for one network, or refuses them at once if they cannot be sent. Returns whether there is something to
    /// write.
    pub fn work(&mut self, conn: u64, network: NetworkRef, items: Vec<Item>, outlet: &Outlet, now: Instant) -> bool {
        if let Some(fault) = self.refusal(items.len(), Sort::Item) {
            answer_all(outlet, items.iter().map(|item| item.ticket), &fault);
            return false;
        }
        let sent = items.into_iter().map(|item| {
            let reads = item.dry_run || item.command.is_read();
            let number = self.number(item.ticket, Sort::Item, reads, outlet);
            SentItem::new(item, number, now)
        });
        let ask = Ask::Work { conn, network, items: sent.collect() };
        self.append(ask)
    }

    /// Sends a job, as [`Outstanding::work`] sends requests.
    pub fn job(&mut self, conn: u64, ticket: u32, order: Order, outlet: &Outlet, now: Instant) -> bool {
        let sort = Sort::of(&order.job);
        if let Some(fault) = self.refusal(1, sort) {
            let _ = outlet.send(Told::Job(ticket, Err(Box::new(fault))));
            return false;
        }
        let reads = order.dry_run || order.job.is_read();
        let ticket = self.number(ticket, sort, reads, outlet);
        self.append(Ask::Job { conn, ticket, order: Box::new(SentOrder::new(order, now)) })
    }

    /// Notes that a connection of a client hung up. Returns whether there is something to write.
    pub fn hang_up(&mut self, conn: u64) -> bool {
        self.connected && self.append(Ask::HangUp { conn })
    }

    /// Asks for a sign of life.
    pub fn ping(&mut self) {
        self.append(Ask::Ping);
    }

    fn refusal(&self, more: usize, sort: Sort) -> Option<Fault> {
        if !self.connected {
            return Some(Fault::NotReady { reason: NotReadyReason::NoOwner, retry_after_ms: RETRY_AFTER_MS });
        }
        let (others, most) = match sort {
            Sort::Events => (self.watches, PEER_WATCHES_MAX),
            Sort::Item | Sort::Job | Sort::Node => {
                (self.asked.len() - self.waits - self.watches, PEER_IN_FLIGHT_REQUESTS_MAX)
            }
        };
        let problem = if others + more > most {
            "the node that owns the network already has the most requests of this node under way"
        } else if self.waiting.len() >= PEER_QUEUE_BYTES_MAX {
            "the connection to the node that owns the network is full"
        } else {
            return None;
        };
        Some(Fault::Overloaded { problem: problem.to_owned(), retry_after_ms: RETRY_AFTER_MS })
    }

    fn number(&mut self, ticket: u32, sort: Sort, reads: bool, outlet: &Outlet) -> u32 {
        while self.asked.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.watches += usize::from(sort == Sort::Events);
        let outlet = outlet.clone();
        self.asked.insert(number, OpenRequest { outlet, ticket, sort, reads, buffer: self.taken, waits: false });
        number
    }

    fn append(&mut self, ask: Ask) -> bool {
        for number in encode_asks(ask, PEER_FRAME_BYTES_MAX, &mut self.waiting) {
            let problem =
                format!("the request is longer than the {PEER_FRAME_BYTES_MAX} bytes that nodes send each other");
            self.answer(number, |asked| asked.told(Fault::Overloaded { problem, retry_after_ms: 0 }));
        }
        !self.waiting.is_empty()
    }

    fn answer(&mut self, number: u32, tell: impl FnOnce(OpenRequest)) {
        match self.remove(number) {
            Some(asked) => tell(asked),
            None => tracing::debug!(number, "an answer that nobody waits for"),
        }
    }

    fn remove(&mut self, number: u32) -> Option<OpenRequest> {
        let asked = self.asked.remove(&number)?;
        self.waits -= usize::from(asked.waits);
        self.watches -= usize::from(asked.sort == Sort::Events);
        Some(asked)
    }

    /// Takes all waiting bytes for the writer, which gives an empty buffer in exchange. From now on their requests may be
    /// under way.
    pub fn take(&mut self, empty: Vec<u8>) -> Vec<u8> {
        self.taken += 1;
        std::mem::replace(&mut self.waiting, empty)
    }

    /// Hands answers on to the sessions that wait for them: consecutive answers for one outlet go as one message. Returns
    /// whether there is something to write.
    pub fn answered(&mut self, answered: Answered) -> bool {
        match answered {
            Answered::Replies(replies) => {
                let mut run: Option<(Outlet, Vec<Reply>)> = None;
                for Reply { ticket: number, answer } in replies {
                    let Some(asked) = self.remove(number) else { continue };
                    if asked.is_job() {
                        asked.told(mismatched());
                        continue;
                    }
                    let answer = asked.as_known(answer);
                    let reply = Reply { ticket: asked.ticket, answer };
                    match &mut run {
                        Some((outlet, replies)) if outlet.same_channel(&asked.outlet) => replies.push(reply),
                        Some(_) | None => {
                            if let Some((outlet, replies)) = run.replace((asked.outlet, vec![reply])) {
                                let _ = outlet.send(Told::Replies(replies));
                            }
                        }
                    }
                }
                if let Some((outlet, replies)) = run {
                    let _ = outlet.send(Told::Replies(replies));
                }
            }
            Answered::Job { ticket: number, answer } => self.answer(number, |asked| {
                if asked.is_job() {
                    let answer = asked.as_known(answer);
                    let _ = asked.outlet.send(Told::Job(asked.ticket, answer));
                } else {
                    asked.told(mismatched());
                }
            }),
            Answered::Waits(began) => {
                for BeganToWait { ticket: number, networks } in began {
                    let can_begin = |asked: &&mut OpenRequest| !asked.waits && asked.sort != Sort::Events;
                    let Some(asked) = self.asked.get_mut(&number).filter(can_begin) else { continue };
                    asked.waits = true;
                    self.waits += 1;
                    // A closed outlet is a client that hung up.
                    let _ = asked.outlet.send(Told::Waits(vec![BeganToWait { ticket: asked.ticket, networks }]));
                }
            }
            Answered::NotOwner { tickets, owner } => {
                tracing::debug!(requests = tickets.len(), owner = ?owner, "asked of a node that does not own it");
                for number in tickets {
                    let reason = NotReadyReason::Moved;
                    self.answer(number, |asked| {
                        asked.told(Fault::NotReady { reason, retry_after_ms: RETRY_AFTER_MS });
                    });
                }
            }
            Answered::Standing(standing) => self.standing = Some(standing),
            Answered::Pong => {}
            Answered::Closing => {
                // Earlier requests are still answered; after the goodbye only signs of life are asked for.
                self.connected = false;
                return self.append(Ask::Bye);
            }
        }
        false
    }

    /// Notes that the connection is gone: everything under way is answered, and nothing more is taken.
    pub fn disconnect(&mut self, problem: &str) {
        self.connected = false;
        self.waiting = Vec::new();
        (self.waits, self.watches) = (0, 0);
        for (_, asked) in self.asked.drain() {
            let fault = if asked.buffer == self.taken {
                Fault::NotReady { reason: NotReadyReason::NoOwner, retry_after_ms: RETRY_AFTER_MS }
            } else {
                let node = match asked.sort {
                    Sort::Node => "the other node",
                    Sort::Item | Sort::Job | Sort::Events => "the node that owns the network",
                };
                let problem = format!("the connection to {node} broke: {problem}");
                Fault::Unavailable { applied: Applied::Unknown, problem }
            };
            asked.told(fault);
        }
    }
}

/// The fault for an answer of the wrong kind.
fn mismatched() -> Fault {
    let problem = "the node that owns the network answered something other than was asked".to_owned();
    Fault::Unavailable { applied: Applied::Unknown, problem }
}
