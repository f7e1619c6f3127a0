//! Node to node: a request that one node cannot decide itself is forwarded to the node that can, and answered as if it had
//! been decided here.
//!
//! ```text
//!  client ─▶ session ─▶ link ═══ frames over TCP ═══▶ listener ─▶ Serve ─▶ network actor, or coordinator
//!    ▲                                                                            │
//!    └───── session ◀── link ◀══ frames over TCP ════ listener ◀──────────────────┘  when durable
//! ```
//!
//! # Life of a forwarded request
//!
//! 1. The session of the entry node has parsed a line into a command for a network that another node owns. It calls
//!    [`link::Link::work`] (or [`link::Link::job`]) with the same items and outlet that it would hand to the actors here.
//! 2. The link gives every request a number of its own, remembers the session and ticket it came from, and appends one frame
//!    to the bytes that wait for the socket. All waiting bytes are written with one call.
//! 3. [`listener`] of the owner cuts frames, counts the requests under way, and calls [`listener::Serve`], in the order of
//!    the frames. `Serve` looks up the route and asks the actor. All answers of one connection come out of one outlet.
//! 4. Answers that became durable together come back as one frame. The link looks up the numbers and sends each session its
//!    answers under the session's own tickets. The session renders them.
//!
//! # What always holds
//!
//! - **Every ticket is answered once**, also if the connection breaks or the link is dropped. A request that was never
//!   written to the socket was not begun, and is answered `not_ready`. For one that was written, the outcome is not known:
//!   it is answered `unavailable` with `applied: "unknown"`, or with `false` if the request changes nothing. The link itself
//!   repeats nothing.
//! - **Order.** Requests that one connection of a client sent for one network arrive in the order in which they were sent: a
//!   link has one connection at a time, its frames are handled one after the other, and when a connection breaks, everything
//!   under way on it is answered before the next one is opened.
//! - **Bounds.** Requests under way and waiting bytes are bounded on both sides (see [`crate::limits`], `PEER_`). Beyond
//!   these bounds a request is `overloaded` at once, and an owner whose answers are not taken stops reading.
//! - **Waiting.** The owner reports a request that waits for capacity ([`frame::Answered::Waits`]). From then on it does not
//!   count as under way here: it is bounded where it waits. When its client hangs up, the owner is told
//!   ([`frame::Ask::HangUp`]); when the connection breaks, every wait on behalf of it ends. The request is answered even
//!   then, so that every ticket is.
//! - **Readiness.** A node tells all nodes connected to it, first and at each change, whether it owns the register and
//!   whether it takes changes ([`frame::PeerStanding`]). A node that forwards is as ready as the node it forwards to, and it
//!   never names as the owner a node that says it is none.
//! - **Nobody else.** Nothing is read from a node that has not proved that it knows the cluster's secret, nor from one of
//!   another register or another number of shards, nor from one that shares no version of the protocol with this one
//!   ([`handshake`]). The bytes after the handshake are neither encrypted nor
//!   signed: nodes belong in a network of their own, or behind TLS.
//!
//! | file | does |
//! | --- | --- |
//! | `frame` | asks and answers, and their bytes |
//! | `secret`, `handshake` | authenticate the other side |
//! | `link` | the dialing side: sends asks, hands answers on |
//! | `outstanding` | the requests a link has under way, without its socket |
//! | `listener` | the accepting side: hands asks on, sends answers |
//! | `strangers` | connections that have not introduced themselves, bounded |
//!
//! Who owns which network is not decided here. Neighbours: `server` asks, `serve` starts it, `actors` answer.
//!
//! Review notes: is a request that was taken answered on every path? Is there a new wait without a limit, or a queue without
//! a bound? Can any part of the secret reach a log or an error?

pub mod frame;
pub mod handshake;
pub mod link;
pub mod listener;
mod outstanding;
pub mod secret;
mod strangers;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::time::Duration;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

/// The newest version of the protocol between nodes that this program speaks. Raised with every change of a type that
/// crosses.
///
/// **A release speaks the version of the release before it**, so that nodes of both work together while one after the other
/// is upgraded. So from the first release on, [`PROTOCOL_LOWEST`] is the newest version of the previous release, and whoever
/// raises this keeps what that release sends and reads, for connections on which its version is spoken
/// ([`handshake::dial`] and [`handshake::accept`] return it). Versions that no release speaks as its newest need not be kept.
/// There is no release yet: until then both are raised together. The introduction of two nodes ([`handshake`]) is the same
/// in all versions, and never changes.
pub const PROTOCOL_VERSION: u16 = 20 + if cfg!(feature = "next-format") { 1 } else { 0 };

/// The lowest version of the protocol between nodes that this program speaks: see [`PROTOCOL_VERSION`].
pub const PROTOCOL_LOWEST: u16 = 20;

/// The connection number under which a node sends requests of its own. No client has that number.
pub const NO_CLIENT: u64 = u64::MAX;

/// The most that one call of a socket reads.
const READ_BYTES: usize = 128 << 10;
/// The capacity that buffers shrink to when they are empty.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

/// Identity of a running node: random, drawn at its start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u128);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The versions of the protocol between nodes that a program speaks: these two, and all between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The lowest.
    pub lowest: u16,
    /// The newest.
    pub newest: u16,
}

impl Versions {
    /// Those of this program.
    pub const SPOKEN: Versions = Versions { lowest: PROTOCOL_LOWEST, newest: PROTOCOL_VERSION };

    /// The version in which two programs talk to each other: the highest that both speak.
    pub fn common(self, other: Versions) -> Option<u16> {
        let (lowest, newest) = (self.lowest.max(other.lowest), self.newest.min(other.newest));
        (lowest <= newest).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Versions { lowest, newest } if lowest == newest => write!(f, "version {newest}"),
            Versions { lowest, newest } => write!(f, "versions {lowest} to {newest}"),
        }
    }
}

/// Another node of this cluster that shares no version of the protocol with this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoCommonVersion {
    /// Its name.
    pub name: CompactString,
    /// What it speaks.
    pub theirs: Versions,
    /// What this program speaks.
    pub ours: Versions,
}

impl fmt::Display for NoCommonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoCommonVersion { name, theirs, ours } = self;
        write!(f, "node `{name}` speaks {theirs} of the protocol between nodes, this program {ours}")
    }
}

/// What a node tells about itself. Told in every version of the protocol: a member that comes later goes to the end, where
/// programs that do not know it ignore it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Which node, and which run of it.
    pub node: NodeId,
    /// Its name, for people.
    pub name: CompactString,
    /// The register that it serves: the id of its store.
    pub register: CompactString,
    /// Number of shards of the register.
    pub shards: u16,
    /// Version of the program. It may differ between nodes.
    pub build: CompactString,
}

/// Prepares a socket between nodes: small writes leave at once, and a machine that is gone is noticed.
fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    probe_where_silent(stream, Duration::from_millis(crate::limits::PEER_IDLE_MS))
}

/// Has the kernel probe a peer that has been silent for `silent`, and again at that interval. A peer whose process died
/// answers with a reset, and a machine that is gone is given up after some probes.
pub fn probe_where_silent(stream: &TcpStream, silent: Duration) -> std::io::Result<()> {
    let probes = socket2::TcpKeepalive::new().with_time(silent).with_interval(silent);
    socket2::SockRef::from(stream).set_tcp_keepalive(&probes)
}
