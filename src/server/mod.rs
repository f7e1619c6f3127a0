//! What clients talk to: lines over TCP and bodies over HTTP become messages to actors, and answers become bytes.
//!
//! | file | does |
//! | --- | --- |
//! | `connection` | the socket of one client: cuts lines, bounds, timeouts, coalesced writes |
//! | `turns`, `balance` | whose turn it is on a reactor thread; which thread a connection is on |
//! | `sockets` | accepts, and closes so that no answer is lost: over HTTP, too |
//! | `session` | one client's requests without its socket: order, batches, answers |
//! | `fairness` | who has less under way at once, as others ask beside it |
//! | `dispatch` | the match: method → what is asked of which actor |
//! | `forms` | what is wrong with a request by itself, told before a network is looked up |
//! | `input`, `sweeping`, `render`, `text`, `cursor` | wire → core; core → wire |
//! | `ready` | what `/readyz` says of a server that takes changes |
//! | `watch` | subscriptions to events: asks page after page, here or at the owner |
//! | `cluster` | what is known of the other nodes |
//! | `forwarded` | what other nodes ask of this one |
//! | `role` | what this node is to the register now, so where requests go |
//! | `steward` | what is asked of this node itself |
//! | `faults` | refusals and faults → errors |
//! | `tally` | counts |
//!
//! Sees no store. Neighbours: `serve` starts it, `http` uses sessions too, `actors` do the work.

pub mod balance;
pub mod cluster;
pub mod connection;
pub mod cursor;
mod deployments;
pub mod dispatch;
pub mod fairness;
pub mod faults;
mod forms;
pub mod forwarded;
pub mod input;
mod ready;
pub mod render;
pub mod role;
pub mod session;
pub mod sockets;
pub mod steward;
mod sweeping;
mod tally;
pub mod text;
mod turns;
pub mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use compact_str::CompactString;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::balance::Balance;
use self::cluster::Nodes;
use self::role::{Role, Seat};
use self::steward::Steward;
use crate::actors::Fault;
use crate::actors::clock::Clock;
use crate::actors::reactor::Reactor;
use crate::limits;
use crate::metrics::Metrics;
use crate::peer::frame::PeerStanding;
use crate::wire::PROTOCOL_VERSION;
use crate::wire::nouns::{ServerLimits, ServerStatus};

/// Bounds of connections, out of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Longest line, without its end.
    pub line_bytes: usize,
    /// Longest body.
    pub body_bytes: usize,
    /// Open connections.
    pub connections: usize,
    /// Bytes of changes that are kept in memory for those who watch.
    pub behind_bytes: usize,
    /// A connection on which nothing is under way, and nothing was asked or answered for so long, is closed; zero: never.
    pub idle: Duration,
    /// A client that takes nothing for so long is cut off.
    pub slow_client: Duration,
    /// A line that is not finished in this time closes its connection.
    pub partial_line: Duration,
}

/// Tells what an acknowledged change survives now: of a store that others set up that is not the same for ever.
pub struct Durability(pub Box<dyn Fn() -> String + Send + Sync>);

impl std::fmt::Debug for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Durability").finish_non_exhaustive()
    }
}

/// What all connections share.
#[derive(Debug)]
pub struct Server {
    /// What this node is to the register now.
    pub seat: Seat,
    /// Takes what is asked of this node itself.
    pub steward: Steward,
    /// Kind of the store: `embedded`, `memory`, ….
    pub store: &'static str,
    /// Tells what an acknowledged change survives now, in words, as far as this node sees.
    pub durability: Durability,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Figures for `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Reactor threads: connections are dealt over them.
    pub reactors: Vec<Reactor>,
    /// Which of them has time, and which connections move to another one.
    pub balance: Balance,
    /// Every thread that sessions run on: those, and the one that speaks HTTP.
    pub session_threads: Vec<Reactor>,
    /// Bounds.
    pub bounds: Bounds,
    /// Name of this node.
    pub node: String,
    /// When it was started.
    pub started: Instant,
    /// Cancelled when the server stops: nothing is accepted or read any more, what was read is answered.
    pub stop: CancellationToken,
    /// Connections, over TCP and HTTP, until they are closed.
    pub tasks: TaskTracker,
    /// Sessions that may still ask something: once the server stops, those with requests that are not answered.
    pub asking: TaskTracker,
    /// What other nodes ask of this one, under way.
    pub peers: TaskTracker,
    /// Nodes that share the register, this one included.
    pub nodes: Nodes,
    /// Counts sessions and subscriptions: other nodes tell what one waits for from what another does by it.
    pub sessions: AtomicU64,
    /// Whether several of them ask at a time.
    pub fairness: fairness::Fairness,
}

impl Server {
    /// Why it does not take every change now, if so: a word or two for probes.
    pub fn unready(&self) -> Option<Arc<str>> {
        self.amiss(true)
    }

    /// Why clients are to ask another node now, if so. One that grants nothing, as its store is full or was restored, is as good
    /// as any other: it reads, renews and releases, and says what stands in the way of the rest.
    pub fn unanswering(&self) -> Option<Arc<str>> {
        self.amiss(false)
    }

    /// What is amiss, for clients in general or for those who want grants, too.
    fn amiss(&self, grants: bool) -> Option<Arc<str>> {
        if self.stop.is_cancelled() {
            return Some("stopping".into());
        }
        match &*self.seat.role() {
            Role::Owner(shared) => shared.unwilling().filter(|_| grants || !shared.has_store()),
            Role::Follower { owner, link, .. } => {
                let unreached = (!link.is_connected()).then(|| "the node that owns the register is not reached".into());
                let standing = link.standing().unwrap_or(PeerStanding { owns: true, unready: None });
                let owns = if standing.owns { ", which owns the register" } else { "" };
                let says = |why| format!("{why} (says node {owner}{owns})").into();
                // The owner knows best, and at once; whoever is none knows no better than this node, if that tried. Where this
                // node cannot use the store, the owner most likely cannot either, and may be none any more.
                let tried = self.nodes.trouble();
                let own = tried.clone().filter(|_| !standing.owns);
                // An owner that is reached answers as well as it can.
                let told = standing.unready.filter(|_| grants || !standing.owns);
                unreached.or(own).or_else(|| told.map(says)).or(tried)
            }
            // What it is asked is held, for seconds at most, and answered.
            Role::Between if !grants => None,
            Role::Between => Some("the register goes from one node to the next".into()),
            Role::Waiting { why, fault } => Some(self.nodes.trouble().unwrap_or_else(|| match fault {
                Fault::StoreAway { problem } | Fault::Unavailable { problem, .. } => problem.as_str().into(),
                _ => (*why).into(),
            })),
        }
    }

    /// How this node stands to the register, for nodes that forward to it.
    pub(crate) fn standing_as_owner(&self) -> PeerStanding {
        let role = self.seat.role();
        let unready = match &*role {
            // What another node says of itself is not handed on: two could tell each other for ever.
            Role::Follower { .. } => Some(match self.owner() {
                Some(owner) => format!("node {owner} owns it").into(),
                None => self.nodes.trouble().unwrap_or_else(|| "nobody is known to own it".into()),
            }),
            Role::Owner(_) | Role::Between | Role::Waiting { .. } => self.unready(),
        };
        let owns = matches!(&*role, Role::Owner(_) | Role::Between);
        PeerStanding { owns, unready: unready.as_deref().map(CompactString::from) }
    }

    /// Appends the result of `server.info`.
    pub fn write_info(&self, out: &mut Vec<u8>) {
        let status = ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            node: self.node.clone(),
            store: self.store.to_owned(),
            durability: (self.durability.0)(),
            limits: ServerLimits {
                max_line_bytes: self.bounds.line_bytes as u64,
                max_body_bytes: self.bounds.body_bytes as u64,
                max_answer_bytes: limits::ANSWER_BYTES_MAX as u64,
                max_batch_members: limits::RPC_BATCH_MEMBERS_MAX as u64,
                max_in_flight: limits::IN_FLIGHT_REQUESTS_MAX as u64,
                max_acquire_ips: limits::ACQUIRE_IPS_MAX as u64,
                max_list_records: limits::LIST_PAGE_RECORDS_MAX as u64,
                max_waiting: limits::CONNECTION_WAITING_REQUESTS_MAX as u64,
                max_waiting_in_network: limits::NETWORK_WAITING_REQUESTS_MAX as u64,
                max_wait_seconds: limits::WAIT_SECONDS_MAX,
            },
            time: self.clock.wall(),
            uptime_seconds: self.started.elapsed().as_secs(),
        };
        let begin = out.len();
        if let Err(error) = serde_json::to_writer(&mut *out, &status) {
            tracing::error!(%error, "server.info cannot be written");
            out.truncate(begin);
            out.extend_from_slice(b"null");
        }
    }
}
