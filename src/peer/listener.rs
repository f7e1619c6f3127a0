//! The accepting side: hands the requests of other nodes to [`Serve`], and sends its answers back.
//!
//! Life of a forwarded request (see [`super`]), step 3 of 4. Before: `link` of another node. After: the implementation of
//! [`Serve`], which looks up the route and asks the actors, as a session does.
//!
//! This file lets nodes in and tells them apart; the talk with one node is in `conversation`.
//!
//! - **Bounds.** The number of nodes is bounded, and so is what each may ask (see `conversation`). Strangers have a bound of
//!   their own, so that they keep no node out (see `strangers`). What they do is logged the less often the more of it there
//!   is.
//! - **One connection for each node.** A node that connects again has given up what it asked before. Its earlier connection
//!   is cancelled, and has ended, before the first frame of the new one is read: so nothing old takes effect after something
//!   new.
//! - **Stop.** Requests that were taken are answered; for later ones the node is told that they were not begun.
//!
//! What if the asking node dies? Its requests are carried out, and the answers are dropped. Requests that wait for capacity
//! end with their client ([`HangUp`](super::frame::Ask::HangUp)), or with the connection.
//!
//! Review notes: does every wait have a limit?

mod conversation;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::conversation::Conversation;
use super::frame::{FrameError, Frames, NetworkRef, PeerStanding};
use super::handshake::HandshakeError;
use super::secret::Secret;
use super::strangers::Strangers;
use super::{Identity, NodeId, Versions, handshake};
use crate::actors::coordinator::Order;
use crate::actors::{Item, Outlet};
use crate::limits::{PEER_HANDSHAKE_FRAME_BYTES_MAX, PEERS_MAX};
use crate::seldom::Seldom;

/// How long to wait after a failed `accept`, as when there are no file descriptors left.
const ACCEPT_PAUSE_MS: u64 = 100;
/// How often a refusal is logged again: at first, and in the long run.
const SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

/// Who sent a request.
#[derive(Debug, Clone)]
pub struct RemoteAsker {
    /// The node.
    pub node: Arc<Identity>,
    /// The client's connection at that node.
    pub conn: u64,
}

/// This node does not own it; nothing was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOwner {
    /// Who owns it, as far as this node knows.
    pub owner: Option<NodeId>,
}

/// What a node does for others. Called in the order in which each node asked. An implementation must not block, and must ask
/// no further node: it refuses what it does not own, so that nothing is forwarded twice.
///
/// After `Ok`, each ticket must be answered once into the outlet; after `Err`, none.
pub trait Serve: Send + Sync + 'static {
    /// Called when a node has connected.
    fn met(&self) {}

    /// Requests for one network.
    ///
    /// # Errors
    /// [`NotOwner`]: nothing of it was begun.
    fn work(
        &self,
        origin: &RemoteAsker,
        network: NetworkRef,
        items: Vec<Item>,
        outlet: &Outlet,
    ) -> Result<(), NotOwner>;

    /// A method over several networks, or about names and space.
    ///
    /// # Errors
    /// [`NotOwner`]: nothing of it was begun.
    fn job(&self, origin: &RemoteAsker, ticket: u32, order: Order, outlet: &Outlet) -> Result<(), NotOwner>;

    /// How this node stands to the register at present, and each change of that.
    fn standing(&self) -> watch::Receiver<PeerStanding>;
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the node closed it")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the node said {0}")]
    Frame(#[from] FrameError),
    #[error("the node asked nothing, not even for a sign of life")]
    Idle,
    #[error("the node takes no answers")]
    Slow,
    #[error("the node connected again")]
    Replaced,
    #[error("this node stops")]
    Stopped,
}

/// The connection of a node that has introduced itself.
struct Current {
    replaced: CancellationToken,
    ended: CancellationToken,
}

struct Listening {
    own: Arc<Identity>,
    speaks: Versions,
    secret: Secret,
    handler: Arc<dyn Serve>,
    stop: CancellationToken,
    /// Connections that have not introduced themselves.
    strangers: Arc<Strangers>,
    current: Mutex<HashMap<NodeId, Current>>,
    /// Limits how often the log says that a node was refused.
    refusals: Seldom,
}

/// Accepts nodes until `stop`, then answers everything under way. The caller bounds how long that may take.
///
/// # Errors
/// The socket cannot be used.
pub async fn serve(
    listener: std::net::TcpListener,
    (own, speaks): (Arc<Identity>, Versions),
    secret: Secret,
    handler: Arc<dyn Serve>,
    stop: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let tasks = TaskTracker::new();
    let listening = Arc::new(Listening {
        own,
        speaks,
        secret,
        handler,
        stop: stop.clone(),
        strangers: Arc::default(),
        current: Mutex::default(),
        refusals: Seldom::new(SAID_EVERY),
    });
    let failures = Seldom::new(SAID_EVERY);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                tasks.spawn(Arc::clone(&listening).welcome(stream, address));
            }
            Err(error) => {
                if let Some(unsaid) = failures.turn() {
                    tracing::warn!(%error, unsaid, "a node cannot be accepted");
                }
                sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
            }
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// Whether a node may connect beside these: one that connects again has a place.
fn has_room(current: &HashMap<NodeId, Current>, node: NodeId) -> bool {
    current.len() < PEERS_MAX || current.contains_key(&node)
}

impl Listening {
    /// Serves one connection, from its first byte to its end.
    async fn welcome(self: Arc<Self>, mut stream: TcpStream, address: SocketAddr) {
        let stranger = self.strangers.enter(address);
        if let Err(error) = super::tune(&stream) {
            tracing::debug!(%address, %error, "the socket of a node");
        }
        let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
        let has_room = |node| has_room(&self.current(), node);
        let met = tokio::select! {
            biased;
            () = self.stop.cancelled() => return,
            // A node that has introduced itself gives way to no stranger.
            met = handshake::accept(&mut stream, &mut frames, (&self.own, self.speaks), &self.secret, has_room) => met,
            () = stranger.gives_way() => return handshake::turn_away(&stream),
        };
        drop(stranger);
        let (peer, version) = match met {
            Ok((peer, version)) => (Arc::new(peer), version),
            Err(error) => return self.refused(address, &error),
        };
        let (node, replaced, ended) = (peer.node, CancellationToken::new(), CancellationToken::new());
        let _ending = ended.clone().drop_guard();
        match self.replace(node, Current { replaced: replaced.clone(), ended }) {
            Ok(None) => {}
            Ok(Some(before)) => before.cancelled().await,
            // Another node took the last place meanwhile. The next attempt is told so.
            Err(()) => return,
        }
        tracing::info!(%address, %node, name = %peer.name, build = %peer.build, version, "a node connected");
        self.handler.met();
        let conversation = Conversation::new(Arc::clone(&self.handler), peer, self.stop.clone());
        let end = tokio::select! {
            biased;
            () = replaced.cancelled() => End::Replaced,
            end = conversation.run(stream, frames) => end,
        };
        tracing::info!(%address, %node, "the connection of a node ended: {end}");
        let mut current = self.current();
        if !replaced.is_cancelled() {
            current.remove(&node);
        }
    }

    fn refused(&self, address: SocketAddr, error: &HandshakeError) {
        if !error.is_of_a_node() {
            return tracing::debug!(%address, "a stranger: {error}");
        }
        match self.refusals.turn() {
            Some(unsaid) => tracing::warn!(%address, unsaid, "a node was refused: {error}"),
            None => tracing::debug!(%address, "a node was refused: {error}"),
        }
    }

    /// Notes a node's connection and stops its earlier one, if there is one. Returns the token that tells when the earlier
    /// one has ended. Fails if the node has no connection yet and there is no place for another node.
    fn replace(&self, node: NodeId, mine: Current) -> Result<Option<CancellationToken>, ()> {
        let mut current = self.current();
        if !has_room(&current, node) {
            return Err(());
        }
        let Some(before) = current.insert(node, mine) else { return Ok(None) };
        // Under the lock, so that the earlier connection does not remove the entry of the later one.
        before.replaced.cancel();
        Ok(Some(before.ended))
    }

    fn current(&self) -> std::sync::MutexGuard<'_, HashMap<NodeId, Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
