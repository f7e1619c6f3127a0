//! Node to node: what one node cannot decide itself is asked of the node that can, and answered as if it had been here.
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
//!    [`link::Link::work`] (or [`link::Link::job`]) with what it would hand to the actors here: items and outlet.
//! 2. The link gives every request a number of its own, notes whose it is, and appends one frame to what waits for the
//!    socket. Whatever waits is written with one call.
//! 3. [`listener`] of the owner cuts frames, counts what is under way, and calls [`listener::Serve`], in the order of the
//!    frames. It looks up the route and asks the actor. All answers of one connection come out of one outlet.
//! 4. What became durable together comes back as one frame. The link looks up the numbers and sends each session its
//!    answers under the tickets that it gave. The session renders them.
//!
//! # What always holds
//!
//! - **Every ticket is answered once**, also where the connection breaks or the link is dropped. What was never written to
//!   the socket was not begun, and is `not_ready`; of what was, nobody knows: `unavailable`, `applied: "unknown"`, or
//!   `false` where the request changes nothing. The link repeats nothing by itself.
//! - **Order.** What one connection of a client sent for one network arrives in that order: one link has one connection at
//!   a time, frames of it are handled one after the other, and a connection that breaks takes all that was under way with
//!   it before the next one is opened.
//! - **Bounds.** Requests under way and bytes that wait are bounded on both sides (see [`crate::limits`], `PEER_`); beyond
//!   them a request is `overloaded` at once, and an owner whose answers are not taken stops reading.
//! - **Who waits.** A request that waits for capacity is said to ([`frame::Answered::Waits`]) and counts no more as under
//!   way: it is bounded where it waits. When its client hangs up, the owner is told ([`frame::Ask::HangUp`]); when the
//!   connection breaks, all that waits for it ends. It is answered all the same, so that every ticket is.
//! - **Readiness.** A node says to all that are connected, first and at each change, whether it owns the register and whether
//!   it takes changes ([`frame::PeerStanding`]): who forwards to it is as ready as it is, and names nobody as the owner who says
//!   that he is none.
//! - **Nobody else.** Nothing is read from a node that has not proved to know the cluster's secret, nor from one of another
//!   register or another number of shards ([`handshake`]). The bytes after that are not encrypted and not
//!   signed: nodes belong into a network of their own, or behind TLS.
//!
//! | file | does |
//! | --- | --- |
//! | `frame` | asks and answers, and their bytes |
//! | `secret`, `handshake` | who is there |
//! | `link` | the dialing side: sends asks, hands answers on |
//! | `outstanding` | what a link has under way, without its socket |
//! | `listener` | the accepting side: hands asks on, sends answers |
//! | `strangers` | connections that have not introduced themselves, bounded |
//!
//! Who owns what is not decided here. Neighbours: `server` asks, `serve` starts it, `actors` answer.
//!
//! Review notes: is a request that was taken answered in every path? Is there a new wait without a limit, or a queue
//! without a bound? Does anything of the secret reach a log or an error?

pub mod frame;
pub mod handshake;
pub mod link;
pub mod listener;
mod outstanding;
pub mod secret;
mod strangers;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

/// Version of what nodes say to each other. Raised with every change of a type that crosses.
pub const PROTOCOL_VERSION: u16 = 18;

/// The connection under which a node asks for itself: no client has that number.
pub const NO_CLIENT: u64 = u64::MAX;

/// What one call of a socket reads at most.
const READ_BYTES: usize = 128 << 10;
/// What buffers shrink to when they are empty.
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

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Which run of which node.
    pub node: NodeId,
    /// Its name, for people.
    pub name: CompactString,
    /// The register that it serves: the id of its store.
    pub register: CompactString,
    /// Number of shards of the register.
    pub shards: u16,
    /// Version of the program. May differ.
    pub build: CompactString,
}

/// A socket between nodes: nothing waits for more to come, and a machine that is gone is noticed.
fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    probe_where_silent(stream, Duration::from_millis(crate::limits::PEER_IDLE_MS))
}

/// Has the kernel ask whoever is silent for so long whether he is there, and again each time: one that died answers with a reset,
/// and a machine that is gone is given up after some tries.
pub fn probe_where_silent(stream: &TcpStream, silent: Duration) -> std::io::Result<()> {
    let probes = socket2::TcpKeepalive::new().with_time(silent).with_interval(silent);
    socket2::SockRef::from(stream).set_tcp_keepalive(&probes)
}
