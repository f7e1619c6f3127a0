//! Who owns what while the server runs. No JSON, no SQL, no Lua: actors speak the core's vocabulary.
//!
//! ```text
//!                 routes (a snapshot, read by everybody, written by the directory)
//!                   │
//!   server ──Work──▶ NetworkActor ──Unit──▶ Committer ──batches──▶ Store
//!     │                (one per network)       │  (one per store, or per shard)
//!     │◀──────────────── answers, when durable ┘
//!     │
//!     └──Job──▶ coordinator (a task) ──Begin/Settle──▶ Directory (catalog, supervisor)
//!                    └──Hold/Finish──▶ NetworkActors
//! ```
//!
//! | mailbox | bound | beyond it |
//! | --- | --- | --- |
//! | network | [`crate::limits::NETWORK_QUEUE_REQUESTS_MAX`] requests, counted by permits, because an actix mailbox is not a bound; and one question of the act that has it locked | `overloaded` |
//! | committer | what the networks' permits and the connections' in-flight bounds let through | nothing can |
//! | directory | jobs of the coordinator, bounded by connections × in-flight | nothing can |
//! | answers to a connection | its requests in flight, at most [`crate::limits::IN_FLIGHT_REQUESTS_MAX`] | it stops reading |
//!
//! A node that is about to own the register has its networks ready without actors: [`standby`].
//!
//! What happens when one dies: a network actor is started afresh by the directory and loads its network from the store, unless it was
//! stopped, and its memory is shown still;
//! a committer or the directory takes the process with it (see [`Fatal`]), because what they hold in memory is not
//! known to agree with the store any more, and the supervisor of the process restarts it.
//!
//! Review notes: does a new message carry more than one request? Does every path of a new message end in an answer?

mod background;
pub mod clock;
pub mod committer;
pub mod coordinator;
pub mod deployments;
pub mod directory;
pub mod events;
pub mod figures;
pub mod generations;
pub mod mac_holder;
pub mod macs;
pub mod mailbox;
pub mod network;
pub mod nodes;
pub mod places;
pub mod published;
pub mod reactor;
pub mod recorded;
pub mod reserve;
pub mod routes;
pub mod self_check;
pub mod sending;
pub mod service;
pub mod standby;
mod stops;
pub mod sweeps;
pub mod timers;
mod trend;
pub mod waits;

use std::time::Instant;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub use self::stops::{StopReason, Stopped};
use crate::core::address::Address;
use crate::core::command::Command;
use crate::core::outcome::Outcome;
use crate::core::refusal::Refusal;
use crate::core::types::{Mac, Name, NetworkId, Owner};
use crate::store::ShardId;

/// What is known of a change that could not be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Applied {
    /// It did not happen.
    No,
    /// It is not known whether it happened.
    Unknown,
}

/// Why a network is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotReadyReason {
    /// It is being read from the store.
    Loading,
    /// Its actor is being restarted.
    Restarting,
    /// The node that owns it cannot be reached, or nobody owns it.
    NoOwner,
    /// Another node has owned it since a moment ago.
    Moved,
    /// The server stops, and does not wait for what waits.
    Stopping,
    /// It was restored from a copy, and an operator has to confirm that what is in use was claimed.
    Restored,
}

impl NotReadyReason {
    /// The protocol's word.
    pub fn word(self) -> &'static str {
        match self {
            NotReadyReason::Loading => "loading",
            NotReadyReason::Restarting => "restarting",
            NotReadyReason::NoOwner => "no_owner",
            NotReadyReason::Moved => "moved",
            NotReadyReason::Stopping => "stopping",
            NotReadyReason::Restored => "restored",
        }
    }
}

/// Every "no" that is not a refusal of the domain: the server's own state prevents the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The domain refuses.
    Refused(#[serde(with = "crate::core::compact::refusal")] Refusal),
    /// Refused before it was looked at.
    Overloaded {
        /// What is full or has ended, as a sentence.
        problem: String,
        /// When to come again.
        retry_after_ms: u64,
    },
    /// The store cannot take it.
    Unavailable {
        /// What is known of the change.
        applied: Applied,
        /// What is in the way, as a sentence.
        problem: String,
    },
    /// No node owns the register, because no node that could own it reaches the store; nothing was begun.
    StoreAway {
        /// What is in the way, as a sentence.
        problem: String,
    },
    /// The network cannot be asked just now; nothing was begun.
    NotReady {
        /// Why it cannot be asked.
        reason: NotReadyReason,
        /// When to come again.
        retry_after_ms: u64,
    },
    /// Two claim an address of a network since a failover, and an operator has not decided yet: the network grants nothing
    /// new, and keeps its space.
    Contested {
        /// The network.
        network: Name,
        /// The item of an `ip.acquire` that would be granted there.
        index: Option<usize>,
        /// The instance of a deployment to which it would be granted.
        instance: Option<Owner>,
        /// When to come again.
        retry_after_ms: u64,
    },
    /// The network is stopped.
    Stopped {
        /// Its name.
        network: Name,
        /// What stopped it.
        why: StopReason,
        /// Where a list of networks continues after it.
        next: Option<Box<coordinator::ListPlace>>,
    },
    /// The history that a cursor names does not exist.
    CursorLost {
        /// Why, as a sentence.
        problem: String,
        /// The last cursor of that history that is still good.
        last_common: events::Cursor,
    },
    /// A bug. The id is found in the log.
    Internal {
        /// Random, in the log line of the panic.
        id: String,
    },
}

impl Fault {
    /// The fault when the time by which a request had to begin has passed.
    pub fn too_late() -> Self {
        let problem = "the request's `deadline_ms` passed before the server began it".to_owned();
        Self::Overloaded { problem, retry_after_ms: 0 }
    }

    /// What is in the way, without a full stop.
    pub fn problem(&self) -> String {
        match self {
            Fault::Refused(refusal) => refusal.to_string(),
            Fault::Overloaded { problem, .. }
            | Fault::Unavailable { problem, .. }
            | Fault::CursorLost { problem, .. } => problem.clone(),
            Fault::Stopped { network, why, .. } => why.problem(network),
            Fault::StoreAway { problem } => {
                format!("no node owns the register, because {problem}")
            }
            Fault::NotReady { reason, .. } => format!("a network is not ready ({})", reason.word()),
            Fault::Contested { network, .. } => format!(
                "after a failover two holders claim one address of network `{network}`, so nothing new is granted there, \
                 no subnet of it goes or becomes smaller, and it is not deleted, until an operator decides \
                 (cluster.conflicts, cluster.accept)"
            ),
            Fault::Internal { id } => format!("a bug in the server; its log has the details under {id}"),
        }
    }

    /// The fault as it is answered if a part of the request is done: the client must not believe that nothing was.
    pub fn after(self, done: &str) -> Self {
        Fault::Unavailable { applied: Applied::Unknown, problem: format!("{done}; then: {}", self.problem()) }
    }

    /// Is only capacity missing?
    pub fn is_no_capacity(&self) -> bool {
        match self {
            Fault::Refused(Refusal::NotEnoughCapacity(_)) => true,
            Fault::Refused(Refusal::OfItem { refusal, .. }) => matches!(**refusal, Refusal::NotEnoughCapacity(_)),
            Fault::Refused(_)
            | Fault::Overloaded { .. }
            | Fault::Unavailable { .. }
            | Fault::StoreAway { .. }
            | Fault::NotReady { .. }
            | Fault::Contested { .. }
            | Fault::CursorLost { .. }
            | Fault::Stopped { .. }
            | Fault::Internal { .. } => false,
        }
    }

    /// The MAC of the refusal, the other network that uses it, and the address there, if the holder is not named yet.
    fn unnamed_user(&self) -> Option<(Mac, NetworkId, Address)> {
        if let Fault::Refused(refusal) = self { refusal.unnamed_user() } else { None }
    }

    /// The fault as it is answered to a request that changes nothing: it is known that nothing was applied, whatever happened.
    pub fn of_read(mut self: Box<Self>) -> Box<Self> {
        if let Fault::Unavailable { applied, .. } = &mut *self {
            *applied = Applied::No;
        }
        self
    }

    /// The fault as it is answered to a client that waited; a refusal tells for how long.
    pub fn after_waiting(mut self: Box<Self>, waited_ms: u64) -> Box<Self> {
        if let Fault::Refused(refusal) = &mut *self {
            refusal.note_wait(waited_ms);
        }
        self
    }

    /// The fault as it is answered to a client that waited until everything of its owner was released.
    pub fn after_end_of_wait(mut self: Box<Self>, waited_ms: u64) -> Box<Self> {
        if let Fault::Refused(refusal) = &mut *self {
            refusal.note_end_of_wait();
        }
        self.after_waiting(waited_ms)
    }
}

impl From<Refusal> for Box<Fault> {
    fn from(refusal: Refusal) -> Self {
        Box::new(Fault::Refused(refusal))
    }
}

/// The answer to a command.
pub type Answer = Result<Outcome, Box<Fault>>;

/// An answer, and the request of its outlet that it belongs to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The number that the sender gave to the request.
    pub ticket: u32,
    /// The answer to it.
    pub answer: Answer,
}

/// A request that found no capacity and waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeganToWait {
    /// The number of the request.
    pub ticket: u32,
    /// The networks that it waits for: one for all of it, or one for each of its parts, in order. If it has to go on waiting
    /// at another node, it waits for these, whatever names they and others have by then.
    pub networks: Vec<NetworkId>,
}

/// What comes back to the sender of requests.
#[derive(Debug)]
pub enum Told {
    /// Answers of one network, to requests that became durable together.
    Replies(Vec<Reply>),
    /// The answer of the coordinator to one job.
    Job(u32, Result<coordinator::Done, Box<Fault>>),
    /// These requests found no capacity and wait: what was asked after them need not wait for them. Their answers come later.
    Waits(Vec<BeganToWait>),
    /// A notice of a subscription of the client's connection.
    Notice(Notice),
}

/// Lines for a client that did not ask for each of them.
#[derive(Debug)]
pub struct Notice {
    /// The number of the subscription.
    pub subscription: u64,
    /// Whole lines.
    pub lines: Vec<u8>,
    /// Whether they are its last.
    pub ends: bool,
    /// The room that they take, which is given back when they are written: all subscriptions of a connection share some room.
    /// None for the last notice of a subscription that ends with its connection.
    pub room: Option<tokio::sync::OwnedSemaphorePermit>,
}

/// Where answers go: one message for all requests of one socket read that became durable together. As a channel it is
/// unbounded; it is bounded by the requests in flight of its reader.
pub type Outlet = mpsc::UnboundedSender<Told>;

/// Creates a channel for answers. As a channel it is unbounded: its contents are bounded by the requests in flight of its
/// reader.
#[expect(
    clippy::disallowed_methods,
    reason = "bounded by the requests in flight; a full channel would hold an actor up"
)]
pub fn outlet<T>() -> (mpsc::UnboundedSender<T>, mpsc::UnboundedReceiver<T>) {
    mpsc::unbounded_channel()
}

/// The answer of an outlet that was made for one request. None: the actor that had the request died before it answered.
pub async fn only_answer(mut answers: mpsc::UnboundedReceiver<Told>) -> Option<Answer> {
    match answers.recv().await? {
        Told::Replies(mut replies) => Some(replies.pop()?.answer),
        Told::Job(..) | Told::Waits(_) | Told::Notice(_) => None,
    }
}

/// Why nothing is answered while this keeps the store from working.
pub fn unproved(why: &str) -> String {
    format!("{why}: this node cannot prove at present that it still owns the register, so it answers nothing")
}

/// Answers many requests with the same fault.
pub fn answer_all(outlet: &Outlet, tickets: impl Iterator<Item = u32>, fault: &Fault) {
    let replies = tickets.map(|ticket| Reply { ticket, answer: Err(Box::new(fault.clone())) }).collect();
    // A closed outlet is a client that hung up.
    let _ = outlet.send(Told::Replies(replies));
}

/// One request for one network.
#[derive(Debug)]
pub struct Item {
    /// Comes back with the answer.
    pub ticket: u32,
    /// What is asked.
    pub command: Command,
    /// Who asks, for the history.
    pub by: CompactString,
    /// Why, in the words of the client.
    pub reason: Option<CompactString>,
    /// A request that has not begun by then is refused.
    pub deadline: Option<Instant>,
    /// Decide and answer, but change nothing.
    pub dry_run: bool,
    /// If it finds no capacity, it may wait for some.
    pub wait: Option<waits::Wait>,
}

/// The process cannot go on: reported once, to the code that runs the server. The server stops acknowledging at once.
#[derive(Debug, Clone)]
pub struct Fatal(pub String);

/// The shard on which a network lives. Fixed forever by the network's id and the store's number of shards.
pub fn shard_of(network: NetworkId, shards: u16) -> ShardId {
    let hash = xxhash_rust::xxh3::xxh3_64(&network.0.to_be_bytes());
    ShardId((hash % u64::from(shards.max(1))) as u16)
}
