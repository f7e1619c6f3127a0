//! Who owns what while the server runs. No JSON, no SQL, no Lua: actors speak the core's vocabulary.
//!
//! ```text
//!                 routes (a snapshot, read by everybody, written by the directory)
//!                   │
//!   server ──Work──▶ NetworkActor ──Unit──▶ Committer ──batches──▶ Store
//!     │                (one a network)         │  (one a store, or one a shard)
//!     │◀──────────────── answers, when durable ┘
//!     │
//!     └──Job──▶ coordinator (a task) ──Begin/Settle──▶ Directory (catalog, supervisor)
//!                    └──Hold/Finish──▶ NetworkActors
//! ```
//!
//! | mailbox | bound | beyond it |
//! | --- | --- | --- |
//! | network | [`crate::limits::NETWORK_QUEUE_REQUESTS_MAX`] requests, counted by permits: an actix mailbox is no bound; beside them one question of the act that has it locked | `overloaded` |
//! | committer | what the networks' permits and the connections' in-flight bounds let through | nothing can |
//! | directory | jobs of the coordinator, bounded by connections × in-flight | nothing can |
//! | answers to a connection | its requests in flight, at most [`crate::limits::IN_FLIGHT_REQUESTS_MAX`] | it stops reading |
//!
//! A node that is to own the register in a moment has its networks ready without actors: [`standby`].
//!
//! What happens when one dies: a network actor is started afresh by the directory and loads its network from the store;
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

pub use self::stops::StopReason;
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
    /// Nobody knows.
    Unknown,
}

/// What a network is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotReadyReason {
    /// It is read from the store.
    Loading,
    /// Its actor is started again.
    Restarting,
    /// The node that owns it cannot be reached, or nobody owns it.
    NoOwner,
    /// Another node owns it since a moment.
    Moved,
    /// The server stops, and what waits is not waited for.
    Stopping,
    /// It was restored from a copy, and an operator has to say that what is in use was claimed.
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

/// Every "no" that is not the domain's: the server's own state stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The domain refuses.
    Refused(#[serde(with = "crate::core::compact::refusal")] Refusal),
    /// Refused before it was looked at.
    Overloaded {
        /// What is full or over, as a sentence.
        problem: String,
        /// When to come again.
        retry_after_ms: u64,
    },
    /// The store cannot take it.
    Unavailable {
        /// What is known of it.
        applied: Applied,
        /// What stands in the way, as a sentence.
        problem: String,
    },
    /// No node owns the register, since whoever could does not reach the store; nothing was begun.
    StoreAway {
        /// What stands in the way, as a sentence.
        problem: String,
    },
    /// The network cannot be asked just now; nothing was begun.
    NotReady {
        /// What it waits for.
        reason: NotReadyReason,
        /// When to come again.
        retry_after_ms: u64,
    },
    /// Two claim an address of a network since a failover, and an operator has not decided: nothing new is granted in it.
    Contested {
        /// The network.
        network: Name,
        /// Which item of an `ip.acquire` would be granted there.
        index: Option<usize>,
        /// Which instance of a deployment would be.
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
        /// Where a list of networks goes on behind it.
        next: Option<Box<coordinator::ListPlace>>,
    },
    /// The history that a cursor names is not there.
    CursorLost {
        /// Why, as a sentence.
        problem: String,
        /// The last cursor of it that is still good.
        last_common: events::Cursor,
    },
    /// A bug. The id is found in the log.
    Internal {
        /// Random, in the log line of the panic.
        id: String,
    },
}

impl Fault {
    /// The time that a request has to be begun in is over.
    pub fn too_late() -> Self {
        let problem = "the request's `deadline_ms` was over before it was begun".to_owned();
        Self::Overloaded { problem, retry_after_ms: 0 }
    }

    /// What stands in the way, without its full stop.
    pub fn problem(&self) -> String {
        match self {
            Fault::Refused(refusal) => refusal.to_string(),
            Fault::Overloaded { problem, .. }
            | Fault::Unavailable { problem, .. }
            | Fault::CursorLost { problem, .. } => problem.clone(),
            Fault::Stopped { network, why, .. } => why.problem(network),
            Fault::StoreAway { problem } => {
                format!("no node owns the register, as {problem}")
            }
            Fault::NotReady { reason, .. } => format!("a network is not ready ({})", reason.word()),
            Fault::Contested { network, .. } => format!(
                "since a failover two claim one address of network `{network}`, so nothing new is granted in it until an \
                 operator has decided (cluster.conflicts, cluster.accept)"
            ),
            Fault::Internal { id } => format!("a bug in the server; its log has the story under {id}"),
        }
    }

    /// The fault as it is answered where a part of what was asked is done: nobody is to believe that nothing was.
    pub fn after(self, done: &str) -> Self {
        Fault::Unavailable { applied: Applied::Unknown, problem: format!("{done}; then: {}", self.problem()) }
    }

    /// Is capacity all that is missing?
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

    /// A MAC that another network of the realm uses, that network, and the address there, where it is not said who holds it.
    fn unnamed_user(&self) -> Option<(Mac, NetworkId, Address)> {
        if let Fault::Refused(refusal) = self { refusal.unnamed_user() } else { None }
    }

    /// The fault as it is answered to what changes nothing: that nothing was applied is known, whatever became of it.
    pub fn of_read(mut self: Box<Self>) -> Box<Self> {
        if let Fault::Unavailable { applied, .. } = &mut *self {
            *applied = Applied::No;
        }
        self
    }

    /// The fault as it is answered to who waited for so long; a refusal says that he did.
    pub fn after_waiting(mut self: Box<Self>, waited_ms: u64) -> Box<Self> {
        if let Fault::Refused(refusal) = &mut *self {
            refusal.note_wait(waited_ms);
        }
        self
    }

    /// The fault as it is answered to who waited for so long, and then all that his owner has was let go of.
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

/// What a command is answered.
pub type Answer = Result<Outcome, Box<Fault>>;

/// An answer and which request of its outlet it belongs to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Number that the asker gave to the request.
    pub ticket: u32,
    /// What it is answered.
    pub answer: Answer,
}

/// A request that found no capacity and waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeganToWait {
    /// Of the request.
    pub ticket: u32,
    /// For which networks: one for all of it, or one for each of its parts, in order. Where it has to go on waiting at
    /// another node, it is for these, whatever they and others are called by then.
    pub networks: Vec<NetworkId>,
}

/// What comes back to who asked.
#[derive(Debug)]
pub enum Told {
    /// Answers of one network, to requests that became durable together.
    Replies(Vec<Reply>),
    /// The answer of the coordinator to one job.
    Job(u32, Result<coordinator::Done, Box<Fault>>),
    /// These found no capacity and wait: what was asked behind them need not wait for them. Their answers come later.
    Waits(Vec<BeganToWait>),
    /// What a subscription of the client's connection has to say.
    Notice(Notice),
}

/// Lines for a client that were not asked for one by one.
#[derive(Debug)]
pub struct Notice {
    /// Of which subscription.
    pub subscription: u64,
    /// Whole lines.
    pub lines: Vec<u8>,
    /// They are its last.
    pub ends: bool,
    /// The room that they take, which comes back when they are written: all subscriptions of a connection have some together. None
    /// for the last of one that ends with its connection.
    pub room: Option<tokio::sync::OwnedSemaphorePermit>,
}

/// Where answers go: one message for all requests of one socket read that became durable together. Unbounded as a
/// channel; bounded by the requests in flight of who reads it.
pub type Outlet = mpsc::UnboundedSender<Told>;

/// A channel for answers. Unbounded as a channel: what is in it is bounded by the requests in flight of who reads it.
#[expect(
    clippy::disallowed_methods,
    reason = "bounded by the requests in flight; a full channel would hold an actor up"
)]
pub fn outlet<T>() -> (mpsc::UnboundedSender<T>, mpsc::UnboundedReceiver<T>) {
    mpsc::unbounded_channel()
}

/// The answer of an outlet that was made for one request. None: whoever had the request died before it answered.
pub async fn only_answer(mut answers: mpsc::UnboundedReceiver<Told>) -> Option<Answer> {
    match answers.recv().await? {
        Told::Replies(mut replies) => Some(replies.pop()?.answer),
        Told::Job(..) | Told::Waits(_) | Told::Notice(_) => None,
    }
}

/// Why nothing is answered, where this stands in the way of the store.
pub fn unproved(why: &str) -> String {
    format!("{why}: that this node owns the register still cannot be proved, so nothing is answered")
}

/// Answers many requests alike.
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
    /// Why, in the words of who asks.
    pub reason: Option<CompactString>,
    /// Not begun by then, it is refused.
    pub deadline: Option<Instant>,
    /// Decide and answer, change nothing.
    pub dry_run: bool,
    /// Where it finds no capacity, it may wait for some.
    pub wait: Option<waits::Wait>,
}

/// The process can not go on: told once, to whoever runs the server. It stops acknowledging at once.
#[derive(Debug, Clone)]
pub struct Fatal(pub String);

/// The shard on which a network lives. Fixed for ever by the network's id and the store's number of shards.
pub fn shard_of(network: NetworkId, shards: u16) -> ShardId {
    let hash = xxhash_rust::xxh3::xxh3_64(&network.0.to_be_bytes());
    ShardId((hash % u64::from(shards.max(1))) as u16)
}
