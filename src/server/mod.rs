//! The part that clients talk to: turns lines over TCP and bodies over HTTP into messages to actors, and answers into bytes.
//!
//! | file | does |
//! | --- | --- |
//! | `connection` | the socket of one client: cuts lines, bounds, timeouts, coalesced writes |
//! | `turns`, `balance` | whose turn it is on a reactor thread; which thread a connection is on |
//! | `sockets` | accepts clients, and closes sockets without losing answers; also for HTTP |
//! | `session` | the requests of one client, without its socket: order, batches, answers |
//! | `fairness` | busy connections have less under way at once while others ask |
//! | `dispatch` | the match from a method to what is asked of which actor |
//! | `forms` | refuses requests that are wrong in themselves, before a network is looked up |
//! | `input`, `sweeping`, `render`, `text`, `cursor` | wire → core; core → wire |
//! | `ready` | what `/readyz` says about a server that takes changes |
//! | `watch` | subscriptions to events: asks for page after page, here or at the owner |
//! | `cluster` | what is known about the other nodes |
//! | `forwarded` | requests that other nodes forward to this one |
//! | `role` | whether this node owns the register, and so where requests go |
//! | `steward` | orders to this node itself |
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
pub mod tally;
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

/// Bounds of connections, from the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Longest line, without its end.
    pub line_bytes: usize,
    /// Longest body.
    pub body_bytes: usize,
    /// Open connections.
    pub connections: usize,
    /// Bytes of changes that are kept in memory for watchers.
    pub behind_bytes: usize,
    /// A connection with nothing under way is closed after this long without a request or an answer; zero: never.
    pub idle: Duration,
    /// A client that reads nothing for this long is cut off.
    pub slow_client: Duration,
    /// A line that is not finished in this time closes its connection.
    pub partial_line: Duration,
}

/// Says what an acknowledged change survives at present. In a store that others set up this can change at any time.
pub struct Durability(pub Box<dyn Fn() -> String + Send + Sync>);

impl std::fmt::Debug for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Durability").finish_non_exhaustive()
    }
}

/// What all connections share.
#[derive(Debug)]
pub struct Server {
    /// The role of this node.
    pub seat: Seat,
    /// Takes orders to this node itself.
    pub steward: Steward,
    /// Kind of the store: `embedded`, `memory`, ….
    pub store: &'static str,
    /// Says in words what an acknowledged change survives at present, as far as this node sees.
    pub durability: Durability,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Figures for `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Reactor threads, over which connections are dealt.
    pub reactors: Vec<Reactor>,
    /// The loads of the reactor threads, and which connections move.
    pub balance: Balance,
    /// Every thread that sessions run on: the reactor threads and the one for HTTP.
    pub session_threads: Vec<Reactor>,
    /// Bounds.
    pub bounds: Bounds,
    /// Name of this node.
    pub node: String,
    /// When it was started.
    pub started: Instant,
    /// Cancelled when the server stops: nothing more is accepted or read, and what was read is answered.
    pub stop: CancellationToken,
    /// Connections, over TCP and HTTP, until they are closed.
    pub tasks: TaskTracker,
    /// Sessions that may still ask something. Once the server stops, these are the ones with unanswered requests.
    pub asking: TaskTracker,
    /// Requests of other nodes under way here.
    pub peers: TaskTracker,
    /// Nodes that share the register, this one included.
    pub nodes: Nodes,
    /// The latest number of a session or subscription. Other nodes use these numbers to tell the waits of one from those of another.
    pub sessions: AtomicU64,
    /// Which sessions are busy and which are quiet.
    pub fairness: fairness::Fairness,
}

impl Server {
    /// Why this server does not take every change at present, if so, in a few words for probes.
    pub fn unready(&self) -> Option<Arc<str>> {
        self.amiss(true)
    }

    /// Why clients should ask another node at present, if so. A node that grants nothing, because its store is full or was restored, is
    /// as good as any other: it answers reads, renews and releases, and says why it refuses the rest.
    pub fn unanswering(&self) -> Option<Arc<str>> {
        self.amiss(false)
    }

    /// What is wrong, either for clients in general or also for those that want grants.
    fn amiss(&self, grants: bool) -> Option<Arc<str>> {
        if self.stop.is_cancelled() {
            return Some("stopping".into());
        }
        match &*self.seat.role() {
            Role::Owner(shared) => shared.unwilling().filter(|_| grants || !shared.has_store()),
            role @ Role::Follower { owner, link, .. } => {
                if let Some(unspoken) = role.unspoken() {
                    return Some(unspoken.into());
                }
                let unreached = (!link.is_connected()).then(|| {
                    let away = "cannot be reached: it is followed until its lease runs out";
                    format!("node {owner}, which owned the register last, {away}").into()
                });
                let standing = link.standing().unwrap_or(PeerStanding { owns: true, unready: None });
                let owns = if standing.owns { ", which owns the register" } else { "" };
                let says = |why| format!("{why} (says node {owner}{owns})").into();
                // The owner knows best, and at once. A node that is not the owner knows no better than this one, if this one has tried
                // the store. If this node cannot use the store, the owner most likely cannot either, and may no longer be the owner.
                let tried = self.nodes.trouble();
                let own = tried.clone().filter(|_| !standing.owns);
                // An owner that can be reached answers as well as it can.
                let told = standing.unready.filter(|_| grants || !standing.owns);
                unreached.or(own).or_else(|| told.map(says)).or(tried)
            }
            // Requests are held, for seconds at most, and then answered.
            Role::Between if !grants => None,
            Role::Between => Some("the register is being handed over from one node to another".into()),
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
            // What another node says about itself is not passed on: two nodes could repeat it to each other for ever.
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
