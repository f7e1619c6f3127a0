//! The accepting side: what other nodes ask is handed to [`Serve`], and its answers go back.
//!
//! Life of a forwarded request (see [`super`]), step 3 of 4. Before: `link` of another node. After: whoever implements
//! [`Serve`]: it looks up the route and asks the actors, as a session does.
//!
//! Each node is one task with two sides. One reads frames and calls [`Serve`] for each, in order; the other takes answers
//! out of the one outlet of the connection and writes what there is together.
//!
//! - **Bounds.** No more is read while as many requests are under way as may be, or while answers wait for a socket that
//!   does not take them. Frames are bounded, and so are nodes. Strangers are bounded apart, and keep no node out (see
//!   `strangers`). What they do is logged the seldomer the more there is of it.
//! - **One connection a node.** A node that connects again has given up what it asked before. Its earlier connection is
//!   stopped, and has stopped, before the first frame of the new one is read: so nothing old takes effect after something
//!   new.
//! - **Stop.** What was taken is answered; what comes after is told that it was not begun.
//!
//! What if the asking node dies? What it asked is carried out, the answers are dropped. What waits for capacity ends: with
//! its client ([`Ask::HangUp`]), or with the connection.
//!
//! Review notes: is `under_way` lowered once for each request that raised it? Does every wait have a limit?

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::frame::{Answered, Ask, FrameError, Frames, NetworkRef, SentItem, decode, encode_answers};
use super::handshake::HandshakeError;
use super::secret::Secret;
use super::strangers::Strangers;
use super::{BUFFER_BYTES_KEPT, Identity, NodeId, READ_BYTES, handshake};
use crate::actors::coordinator::Order;
use crate::actors::waits::Caller;
use crate::actors::{Item, Outlet, Reply, Told};
use crate::limits::{
    PEER_FRAME_BYTES_MAX, PEER_GOODBYE_MS, PEER_HANDSHAKE_FRAME_BYTES_MAX, PEER_IDLE_MS, PEER_IN_FLIGHT_REQUESTS_MAX,
    PEER_WRITE_BYTES, PEERS_MAX,
};
use crate::telemetry::Seldom;

/// Frames that one turn hands on; then the others of this thread have theirs.
const TURN_FRAMES_MAX: usize = 64;
/// Answers of one frame, unless one message brought more.
const FRAME_REPLIES: usize = 512;
/// What a failed `accept` waits, as where there are no file descriptors left.
const ACCEPT_PAUSE_MS: u64 = 100;
/// How soon, and how seldom at the end, it is said again that somebody is refused.
const SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

/// Who asks.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The node.
    pub node: Arc<Identity>,
    /// The connection of a client at that node.
    pub conn: u64,
}

/// It is not owned here; nothing was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOwner {
    /// Who owns it, as far as is known here.
    pub owner: Option<NodeId>,
}

/// What a node does for others. Called in the order in which each node asked; must not block, and must ask no further
/// node: what it does not own it says, so that nothing is forwarded twice.
///
/// After `Ok`, each ticket must be answered once into the outlet; after `Err`, none.
pub trait Serve: Send + Sync + 'static {
    /// Requests for one network.
    ///
    /// # Errors
    /// [`NotOwner`]: nothing of it was begun.
    fn work(&self, origin: &Origin, network: NetworkRef, items: Vec<Item>, outlet: &Outlet) -> Result<(), NotOwner>;

    /// A method over several networks, or about names and space.
    ///
    /// # Errors
    /// [`NotOwner`]: nothing of it was begun.
    fn job(&self, origin: &Origin, ticket: u32, order: Order, outlet: &Outlet) -> Result<(), NotOwner>;
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

/// A connection of a node that is known.
struct Current {
    replaced: CancellationToken,
    ended: CancellationToken,
}

struct Listening {
    own: Arc<Identity>,
    secret: Secret,
    handler: Arc<dyn Serve>,
    stop: CancellationToken,
    /// Connections that have not introduced themselves.
    strangers: Arc<Strangers>,
    current: Mutex<HashMap<NodeId, Current>>,
    /// How often it is said that a node was refused, and that there are too many.
    refusals: Seldom,
    crowds: Seldom,
}

/// Accepts nodes until `stop`, then answers what is under way. Whoever waits for its end sets the limit.
///
/// # Errors
/// The socket cannot be used.
pub async fn serve(
    listener: std::net::TcpListener,
    own: Arc<Identity>,
    secret: Secret,
    handler: Arc<dyn Serve>,
    stop: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let tasks = TaskTracker::new();
    let listening = Arc::new(Listening {
        own,
        secret,
        handler,
        stop: stop.clone(),
        strangers: Arc::default(),
        current: Mutex::default(),
        refusals: Seldom::new(SAID_EVERY),
        crowds: Seldom::new(SAID_EVERY),
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

impl Listening {
    /// From the first byte of a stranger to the last of a node.
    async fn welcome(self: Arc<Self>, mut stream: TcpStream, address: SocketAddr) {
        let stranger = self.strangers.enter(address);
        if let Err(error) = super::tune(&stream) {
            tracing::debug!(%address, %error, "the socket of a node");
        }
        let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
        let peer = tokio::select! {
            () = self.stop.cancelled() => return,
            () = stranger.gives_way() => return handshake::turn_away(&stream),
            peer = handshake::accept(&mut stream, &mut frames, &self.own, &self.secret) => peer,
        };
        drop(stranger);
        let peer = match peer {
            Ok(peer) => Arc::new(peer),
            Err(error) => return self.refused(address, &error),
        };
        let (node, replaced, ended) = (peer.node, CancellationToken::new(), CancellationToken::new());
        let _ending = ended.clone().drop_guard();
        match self.replace(node, Current { replaced: replaced.clone(), ended }) {
            Ok(None) => {}
            Ok(Some(before)) => before.cancelled().await,
            Err(()) => {
                if let Some(unsaid) = self.crowds.turn() {
                    tracing::warn!(%address, name = %peer.name, unsaid, "{PEERS_MAX} nodes are connected; one more was turned away");
                }
                return;
            }
        }
        tracing::info!(%address, %node, name = %peer.name, build = %peer.build, "a node connected");
        let conversation = Conversation::new(Arc::clone(&self.handler), peer, self.stop.clone());
        let end = tokio::select! {
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

    /// Notes a node's connection and stops the one before it, if there is one; answers what tells that this one has
    /// stopped. A node that has none yet needs a place.
    fn replace(&self, node: NodeId, mine: Current) -> Result<Option<CancellationToken>, ()> {
        let mut current = self.current();
        if current.len() >= PEERS_MAX && !current.contains_key(&node) {
            return Err(());
        }
        let Some(before) = current.insert(node, mine) else { return Ok(None) };
        // Under the lock, so that the earlier one does not take out the entry of the later.
        before.replaced.cancel();
        Ok(Some(before.ended))
    }

    fn current(&self) -> std::sync::MutexGuard<'_, HashMap<NodeId, Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection of one node.
struct Conversation {
    handler: Arc<dyn Serve>,
    peer: Arc<Identity>,
    stop: CancellationToken,
    /// Requests that were taken and whose answers are not written.
    under_way: AtomicUsize,
    /// Answers wait for the socket.
    blocked: AtomicBool,
    /// One of the two has changed.
    room: Notify,
    /// What is said besides the outlet; a pong is in it once at most.
    aside: Mutex<Vec<Answered>>,
    said: Notify,
    /// The other node has asked the last that it asks.
    bye: AtomicBool,
    /// Connections of its clients from which something came that may wait.
    callers: Mutex<HashMap<u64, Arc<Caller>>>,
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.leave_all();
    }
}

impl Conversation {
    fn new(handler: Arc<dyn Serve>, peer: Arc<Identity>, stop: CancellationToken) -> Self {
        Self {
            handler,
            peer,
            stop,
            under_way: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            room: Notify::new(),
            aside: Mutex::default(),
            said: Notify::new(),
            bye: AtomicBool::new(false),
            callers: Mutex::default(),
        }
    }

    async fn run(&self, mut stream: TcpStream, frames: Frames) -> End {
        let (outlet, inlet) = crate::actors::outlet();
        let (reader, writer) = stream.split();
        tokio::select! {
            end = self.read(reader, frames, outlet) => end,
            end = self.write(writer, inlet) => end,
        }
    }

    fn callers(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Caller>>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of a client there. Kept where something that came from it may wait, until it hangs up.
    fn caller(&self, conn: u64, may_wait: bool) -> Arc<Caller> {
        if !may_wait {
            return Arc::default();
        }
        let caller = Arc::clone(self.callers().entry(conn).or_default());
        if self.stop.is_cancelled() {
            // Whoever stops waits for nobody.
            caller.leave();
        }
        caller
    }

    /// Nobody waits there any more.
    fn leave_all(&self) {
        self.callers().values().for_each(|caller| caller.leave());
    }

    fn has_room(&self) -> bool {
        self.under_way.load(Ordering::Acquire) < PEER_IN_FLIGHT_REQUESTS_MAX && !self.blocked.load(Ordering::Acquire)
    }

    async fn read(&self, mut socket: ReadHalf<'_>, mut frames: Frames, outlet: Outlet) -> End {
        let mut turn = 0;
        loop {
            while !self.has_room() {
                // The writer has the limit of this wait.
                self.room.notified().await;
            }
            match frames.cut() {
                Ok(Some(frame)) => match decode::<Ask>(frame) {
                    Ok(ask) => self.asked(ask, &outlet),
                    Err(error) => return error.into(),
                },
                Ok(None) => match self.more(&mut socket, &mut frames).await {
                    Ok(()) => {}
                    Err(end) => return end,
                },
                Err(error) => return error.into(),
            }
            turn += 1;
            if turn % TURN_FRAMES_MAX == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads what there is. Who has nothing under way must say something from time to time.
    async fn more(&self, socket: &mut ReadHalf<'_>, frames: &mut Frames) -> Result<(), End> {
        frames.input.reserve(READ_BYTES);
        loop {
            match timeout(Duration::from_millis(PEER_IDLE_MS), socket.read_buf(&mut frames.input)).await {
                Ok(Ok(0)) => return Err(End::Closed),
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) if self.under_way.load(Ordering::Acquire) > 0 => {}
                Err(_) => return Err(End::Idle),
            }
        }
    }

    fn asked(&self, ask: Ask, outlet: &Outlet) {
        let now = Instant::now();
        let stopping = self.stop.is_cancelled();
        match ask {
            Ask::Work { conn, network, items } => {
                let tickets: Vec<u32> = items.iter().map(|item| item.ticket).collect();
                let caller = self.caller(conn, items.iter().any(|item| item.wait.is_some()));
                let items: Vec<Item> = items.into_iter().map(|item: SentItem| item.item(now, &caller)).collect();
                self.begin(tickets, stopping, || self.handler.work(&self.origin(conn), network, items, outlet));
            }
            Ask::Job { conn, ticket, order } => {
                let caller = self.caller(conn, order.wait.is_some());
                let order = order.order(now, &caller);
                self.begin(vec![ticket], stopping, || self.handler.job(&self.origin(conn), ticket, order, outlet));
            }
            Ask::HangUp { conn } => {
                if let Some(caller) = self.callers().remove(&conn) {
                    caller.leave();
                }
            }
            Ask::Ping => {
                let mut aside = self.aside();
                if !aside.contains(&Answered::Pong) {
                    aside.push(Answered::Pong);
                }
                drop(aside);
                self.said.notify_one();
            }
            Ask::Bye => {
                self.bye.store(true, Ordering::Release);
                self.said.notify_one();
            }
        }
    }

    fn origin(&self, conn: u64) -> Origin {
        Origin { node: Arc::clone(&self.peer), conn }
    }

    /// Counts requests, and takes them back where they are not begun.
    fn begin(&self, tickets: Vec<u32>, stopping: bool, ask: impl FnOnce() -> Result<(), NotOwner>) {
        self.under_way.fetch_add(tickets.len(), Ordering::AcqRel);
        let begun = if stopping { Err(NotOwner { owner: None }) } else { ask() };
        if let Err(NotOwner { owner }) = begun {
            self.aside().push(Answered::NotOwner { tickets, owner });
            self.said.notify_one();
        }
    }

    fn aside(&self) -> std::sync::MutexGuard<'_, Vec<Answered>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what was answered, all that there is with one call, until the node stops and everything is answered. Then it
    /// says so first, and waits for what was asked until the other node heard of it: that is answered, too.
    async fn write(&self, mut socket: WriteHalf<'_>, mut inlet: mpsc::UnboundedReceiver<Told>) -> End {
        let mut bytes = Vec::new();
        let mut closing: Option<tokio::time::Instant> = None;
        // Said to wait, and not answered since: they count no more as under way.
        let mut waits: HashSet<u32> = HashSet::new();
        loop {
            let all_answered = self.under_way.load(Ordering::Acquire) == 0 && waits.is_empty();
            if self.bye.load(Ordering::Acquire) && all_answered {
                return End::Stopped;
            }
            let first = tokio::select! {
                told = inlet.recv() => told,
                () = self.said.notified() => None,
                () = self.stop.cancelled(), if closing.is_none() => {
                    closing = Some(tokio::time::Instant::now() + Duration::from_millis(PEER_GOODBYE_MS));
                    self.aside().push(Answered::Closing);
                    self.leave_all();
                    None
                }
                () = tokio::time::sleep_until(closing.unwrap_or_else(tokio::time::Instant::now)),
                    if closing.is_some() && all_answered => return End::Stopped,
            };
            let answered = self.encode(first, &mut inlet, &mut waits, &mut bytes);
            self.blocked.store(true, Ordering::Release);
            if let Err(end) = write_all(&mut socket, &bytes).await {
                return end;
            }
            bytes.clear();
            bytes.shrink_to(BUFFER_BYTES_KEPT);
            self.blocked.store(false, Ordering::Release);
            let less = |count: usize| Some(count.saturating_sub(answered));
            let _ = self.under_way.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
            self.room.notify_one();
        }
    }

    /// Appends what is there to be said, up to a measure; answers how many requests are not under way any more.
    fn encode(
        &self,
        first: Option<Told>,
        inlet: &mut mpsc::UnboundedReceiver<Told>,
        waits: &mut HashSet<u32>,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut answered = 0;
        for said in std::mem::take(&mut *self.aside()) {
            if let Answered::NotOwner { tickets, .. } = &said {
                answered += tickets.len();
            }
            encode_answers(said, PEER_FRAME_BYTES_MAX, out);
        }
        let mut run: Vec<Reply> = Vec::new();
        let mut next = first;
        while let Some(told) = next.take() {
            match told {
                Told::Replies(mut replies) => {
                    answered += replies.iter().filter(|reply| !waits.remove(&reply.ticket)).count();
                    run.append(&mut replies);
                    if run.len() >= FRAME_REPLIES {
                        encode_answers(Answered::Replies(std::mem::take(&mut run)), PEER_FRAME_BYTES_MAX, out);
                    }
                }
                // Subscriptions belong to the node that has the client.
                Told::Notice(_) => {}
                Told::Waits(began) => {
                    answered += began.len();
                    waits.extend(began.iter().map(|began| began.ticket));
                    if !run.is_empty() {
                        encode_answers(Answered::Replies(std::mem::take(&mut run)), PEER_FRAME_BYTES_MAX, out);
                    }
                    encode_answers(Answered::Waits(began), PEER_FRAME_BYTES_MAX, out);
                }
                Told::Job(ticket, answer) => {
                    answered += usize::from(!waits.remove(&ticket));
                    if !run.is_empty() {
                        encode_answers(Answered::Replies(std::mem::take(&mut run)), PEER_FRAME_BYTES_MAX, out);
                    }
                    encode_answers(Answered::Job { ticket, answer }, PEER_FRAME_BYTES_MAX, out);
                }
            }
            if out.len() < PEER_WRITE_BYTES {
                next = inlet.try_recv().ok();
            }
        }
        if !run.is_empty() {
            encode_answers(Answered::Replies(run), PEER_FRAME_BYTES_MAX, out);
        }
        answered
    }
}

/// Writes all of it, to a node that takes something from time to time.
async fn write_all(socket: &mut WriteHalf<'_>, mut bytes: &[u8]) -> Result<(), End> {
    while !bytes.is_empty() {
        match timeout(Duration::from_millis(PEER_IDLE_MS), socket.write(bytes)).await {
            Ok(Ok(0)) => return Err(End::Closed),
            Ok(Ok(written)) => bytes = &bytes[written..],
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(End::Slow),
        }
    }
    Ok(())
}
