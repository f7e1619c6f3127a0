//! The dialing side: one connection to one other node, kept up, and shared by all sessions of this node.
//!
//! Life of a forwarded request (see [`super`]), steps 2 and 4 of 4. Before and after: `server::session`. Between:
//! `outstanding`, which knows what is under way, and the socket.
//!
//! One task. It connects, shakes hands, and then reads, writes and watches for silence concurrently until one of the three
//! ends. Then everything under way is answered, and it connects again after a wait that grows. Sessions call [`Link::work`]
//! and [`Link::job`] from any thread. These hold a lock only while they encode the request, and never wait.
//!
//! ```text
//! connecting ──hands shaken──▶ connected ──end, error or silence──▶ connecting
//!      └── refused: logged once for each reason, and shown in [`Link::state`]
//! ```
//!
//! A link that is dropped answers everything under way and closes.
//!
//! Review notes: does every end of a connection pass `disconnect`? Is the lock ever held across an await?

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::frame::{Answered, FrameError, Frames, NetworkRef, PeerStanding, decode};
use super::handshake::{self, HandshakeError};
use super::outstanding::Outstanding;
use super::secret::Secret;
use super::{BUFFER_BYTES_KEPT, Identity, NoCommonVersion, READ_BYTES, Versions};
use crate::actors::coordinator::Order;
use crate::actors::{Item, Outlet};
use crate::limits::{PEER_HANDSHAKE_FRAME_BYTES_MAX, PEER_HANDSHAKE_MS, PEER_PING_MS, PEER_RETRY_MS, PEER_SILENCE_MS};

/// The state of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// There is no connection. Says why the last attempt or connection failed, if there was one.
    Connecting(Option<String>),
    /// The connection is up, with this node.
    Connected(Arc<Identity>),
}

impl LinkState {
    fn is_up(&self) -> bool {
        matches!(self, LinkState::Connected(_))
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("it was closed")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it said {0}")]
    Frame(#[from] FrameError),
    #[error("nothing was heard for {PEER_SILENCE_MS} ms")]
    Silence,
    #[error("this node closes it")]
    Dropped,
}

#[derive(Debug)]
struct Inner {
    address: String,
    own: Arc<Identity>,
    speaks: Versions,
    secret: Secret,
    outstanding: Mutex<Outstanding>,
    /// Wakes the writer: there is something to write.
    wake: Notify,
    state: watch::Sender<LinkState>,
    /// Whether the last process that introduced itself had another secret. Stays set until another one introduces itself,
    /// however later attempts fail.
    differs_in_secret: AtomicBool,
    /// The last process that introduced itself, if it shares no version of the protocol with this node. Stays likewise.
    no_common_version: ArcSwapOption<NoCommonVersion>,
    stop: CancellationToken,
}

/// A connection to another node. See the module.
#[derive(Debug)]
pub struct Link {
    inner: Arc<Inner>,
}

impl Link {
    /// Begins to connect to `address` (host and port), on the runtime `on`.
    pub fn start(
        on: &tokio::runtime::Handle,
        address: String,
        (own, speaks): (Arc<Identity>, Versions),
        secret: Secret,
    ) -> Arc<Self> {
        let inner = Arc::new(Inner {
            address,
            own,
            speaks,
            secret,
            outstanding: Mutex::default(),
            wake: Notify::new(),
            state: watch::Sender::new(LinkState::Connecting(None)),
            differs_in_secret: AtomicBool::new(false),
            no_common_version: ArcSwapOption::empty(),
            stop: CancellationToken::new(),
        });
        on.spawn(Arc::clone(&inner).run());
        Arc::new(Self { inner })
    }

    /// Sends requests of one client's connection for one network. Each is answered once, into the outlet, under its own
    /// ticket; a request that cannot be sent is answered before this returns.
    pub fn work(&self, conn: u64, network: NetworkRef, items: Vec<Item>, outlet: &Outlet) {
        if self.inner.with(|outstanding| outstanding.work(conn, network, items, outlet, Instant::now())) {
            self.inner.wake.notify_one();
        }
    }

    /// Sends a job, as [`Link::work`] sends requests.
    pub fn job(&self, conn: u64, ticket: u32, order: Order, outlet: &Outlet) {
        if self.inner.with(|outstanding| outstanding.job(conn, ticket, order, outlet, Instant::now())) {
            self.inner.wake.notify_one();
        }
    }

    /// Notes that a client's connection hung up, or that a subscription ended: whatever waits for it at the other node ends.
    pub fn hang_up(&self, conn: u64) {
        if self.inner.with(|outstanding| outstanding.hang_up(conn)) {
            self.inner.wake.notify_one();
        }
    }

    /// The state of the link, and each change of it.
    pub fn state(&self) -> watch::Receiver<LinkState> {
        self.inner.state.subscribe()
    }

    /// Is it up now?
    pub fn is_connected(&self) -> bool {
        self.inner.state.borrow().is_up()
    }

    /// How the other node stands to the register, as it said last. `None` if it has not said yet on this connection.
    pub fn standing(&self) -> Option<PeerStanding> {
        self.inner.with(|outstanding| outstanding.standing())
    }

    /// The store names the other node as the owner of the register: what it said on a connection that is gone is out of date.
    pub fn is_named_as_owner(&self) {
        self.inner.with(Outstanding::forget_last_standing);
    }

    /// Does the other node say that it does not own the register?
    pub fn is_of_no_owner(&self) -> bool {
        self.standing().is_some_and(|standing| !standing.owns)
    }

    /// Waits until the link is up, at most for `within`. Returns whether it is.
    pub async fn connected(&self, within: Duration) -> bool {
        let mut state = self.state();
        timeout(within, state.wait_for(LinkState::is_up)).await.is_ok_and(|up| up.is_ok())
    }

    /// Was the secret of the other node seen to differ from the one of this node, and has no process with the same one
    /// introduced itself since?
    pub fn differs_in_secret(&self) -> bool {
        self.inner.differs_in_secret.load(Ordering::Relaxed)
    }

    /// Was the other node seen to be of this cluster, and to share no version of the protocol with this node, and has no
    /// other process introduced itself since?
    pub fn no_common_version(&self) -> Option<Arc<NoCommonVersion>> {
        self.inner.no_common_version.load_full()
    }

    /// Why the link is not up, as far as is known: a sentence that names the address.
    pub fn trouble(&self) -> String {
        match &*self.inner.state.borrow() {
            LinkState::Connecting(Some(problem)) => problem.clone(),
            LinkState::Connecting(None) | LinkState::Connected(_) => {
                format!("no connection to node {}: it has not been heard of yet", self.inner.address)
            }
        }
    }

    /// Waits for the outcome of the first attempt: the link is up, was refused, or could not be reached.
    pub async fn tried(&self) {
        let _ = self.state().wait_for(|state| *state != LinkState::Connecting(None)).await;
    }

    /// Number of requests that will be answered soon: those that wait for capacity or events, and jobs of a node, do not
    /// count.
    pub fn under_way(&self) -> usize {
        self.inner.with(|outstanding| outstanding.under_way())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.inner.stop.cancel();
        self.inner.disconnect(&Broken::Dropped);
    }
}

/// Answers everything under way even if the task is dropped with its runtime.
struct End<'a>(&'a Inner);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.disconnect(&Broken::Dropped);
    }
}

impl Inner {
    /// Runs `act` on the requests under way, under the lock. A panic leaves them usable: they are consistent after every
    /// statement.
    fn with<T>(&self, act: impl FnOnce(&mut Outstanding) -> T) -> T {
        act(&mut self.outstanding.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn disconnect(&self, why: &Broken) {
        let problem = why.to_string();
        self.with(|outstanding| outstanding.disconnect(&problem));
    }

    /// Connects again and again until the link is dropped.
    async fn run(self: Arc<Self>) {
        let (shortest, longest) = PEER_RETRY_MS;
        let mut wait = shortest;
        loop {
            let connected = tokio::select! {
                () = self.stop.cancelled() => return,
                connected = self.connect() => connected,
            };
            match connected {
                Ok((stream, frames, met)) => {
                    self.is_introduced_to(None);
                    let _end = End(&self);
                    let why = self.converse(stream, frames, met).await;
                    // Whoever closes at once without a word has no room, and is asked less and less often.
                    if self.with(|outstanding| outstanding.standing()).is_some() {
                        wait = shortest;
                    }
                    self.disconnect(&why);
                    self.note(format!("the connection to node {} broke: {why}", self.address));
                }
                Err(error) => {
                    if error.is_of_a_node() {
                        self.is_introduced_to(Some(&error));
                    }
                    self.note(format!("no connection to node {}: {error}", self.address));
                }
            }
            // So that nodes do not all connect at the same moment.
            let jitter = rand::random_range(0..=wait / 2);
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(Duration::from_millis(wait + jitter)) => {}
            }
            wait = (2 * wait).min(longest);
        }
    }

    /// Notes what the process that introduced itself just now was refused for, if it was.
    fn is_introduced_to(&self, refused: Option<&HandshakeError>) {
        let of_secret = matches!(refused, Some(HandshakeError::Secret | HandshakeError::RefusedSecret));
        // Who has no room introduces nobody.
        if !matches!(refused, Some(HandshakeError::Full | HandshakeError::Crowded)) {
            self.differs_in_secret.store(of_secret, Ordering::Relaxed);
            self.no_common_version.store(match refused {
                Some(HandshakeError::Protocol(without)) => Some(Arc::new(without.clone())),
                _ => None,
            });
        }
    }

    /// Notes why there is no connection, and logs it unless it was the reason before.
    fn note(&self, problem: String) {
        let changed = self.state.send_if_modified(|state| {
            let next = LinkState::Connecting(Some(problem.clone()));
            let changed = *state != next;
            *state = next;
            changed
        });
        if changed && !self.stop.is_cancelled() {
            tracing::warn!("{problem}");
        }
    }

    async fn connect(&self) -> Result<(TcpStream, Frames, (Identity, u16)), HandshakeError> {
        let limit = Duration::from_millis(PEER_HANDSHAKE_MS);
        let mut stream = match timeout(limit, TcpStream::connect(&self.address)).await {
            Ok(connected) => connected?,
            Err(_) => return Err(HandshakeError::Slow),
        };
        super::tune(&stream)?;
        let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
        let met = handshake::dial(&mut stream, &mut frames, (&self.own, self.speaks), &self.secret).await?;
        Ok((stream, frames, met))
    }

    /// Serves one connection, to its end.
    async fn converse(&self, mut stream: TcpStream, frames: Frames, (peer, version): (Identity, u16)) -> Broken {
        tracing::info!(address = %self.address, node = %peer.node, name = %peer.name, build = %peer.build, version, "connected to node");
        self.with(Outstanding::connect);
        if self.stop.is_cancelled() {
            // The link was dropped between the handshake and here: the caller answers whatever came in meanwhile.
            return Broken::Dropped;
        }
        self.state.send_replace(LinkState::Connected(Arc::new(peer)));
        let (reader, writer) = stream.split();
        let heard = AtomicBool::new(true);
        tokio::select! {
            () = self.stop.cancelled() => Broken::Dropped,
            why = self.read(reader, frames, &heard) => why,
            why = self.write(writer) => why,
            why = self.listen(&heard) => why,
        }
    }

    async fn read(&self, mut socket: ReadHalf<'_>, mut frames: Frames, heard: &AtomicBool) -> Broken {
        loop {
            loop {
                let answered = match frames.cut() {
                    Ok(Some(frame)) => decode::<Answered>(frame),
                    Ok(None) => break,
                    Err(error) => return error.into(),
                };
                match answered {
                    Ok(answered) => {
                        if self.with(|outstanding| outstanding.answered(answered)) {
                            self.wake.notify_one();
                        }
                    }
                    Err(error) => return error.into(),
                }
            }
            frames.input.reserve(READ_BYTES);
            match socket.read_buf(&mut frames.input).await {
                Ok(0) => return Broken::Closed,
                Ok(_) => heard.store(true, Ordering::Relaxed),
                Err(error) => return error.into(),
            }
        }
    }

    /// Writes all waiting bytes, with one call each time.
    async fn write(&self, mut socket: WriteHalf<'_>) -> Broken {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            bytes.shrink_to(BUFFER_BYTES_KEPT);
            bytes = self.with(|outstanding| outstanding.take(bytes));
            if bytes.is_empty() {
                self.wake.notified().await;
            } else if let Err(error) = socket.write_all(&bytes).await {
                return error.into();
            }
        }
    }

    /// Asks for a sign of life when nothing is heard, and gives up when none comes. The question may be queued behind much
    /// that is still being sent: then the other node gives signs while it reads that. Silence is counted in turns of this
    /// loop, not in time, so that a process that was suspended for a while does not take the others for gone.
    async fn listen(&self, heard: &AtomicBool) -> Broken {
        let mut silent_ms = 0;
        loop {
            sleep(Duration::from_millis(PEER_PING_MS)).await;
            if heard.swap(false, Ordering::Relaxed) {
                silent_ms = 0;
                continue;
            }
            silent_ms += PEER_PING_MS;
            if silent_ms >= PEER_SILENCE_MS {
                return Broken::Silence;
            }
            self.with(Outstanding::ping);
            self.wake.notify_one();
        }
    }
}
