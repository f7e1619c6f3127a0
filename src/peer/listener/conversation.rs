//! The talk with one node over one connection: its requests, and the answers to them.
//!
//! One task with two sides. One side reads frames and calls [`Serve`] for each, in order. The other takes answers out of the
//! connection's one outlet and writes whatever is ready together. Reading pauses while too many requests are under way, or
//! while answers wait for a socket that does not take them; and frames are bounded. Before: `listener`, which let the node
//! in.
//!
//! Review notes: is `under_way` lowered once for each request that raised it? Does every wait have a limit?

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{End, NotOwner, RemoteAsker, Serve};
use crate::actors::coordinator::Job;
use crate::actors::waits::Caller;
use crate::actors::{Fault, Item, Outlet, Reply, Told};
use crate::limits::{
    PEER_FRAME_BYTES_MAX, PEER_GOODBYE_MS, PEER_IDLE_MS, PEER_IN_FLIGHT_REQUESTS_MAX, PEER_PING_MS, PEER_WATCHES_MAX,
    PEER_WRITE_BYTES,
};
use crate::peer::frame::{Answered, Ask, Frames, PeerStanding, SentItem, decode, encode_answers};
use crate::peer::{BUFFER_BYTES_KEPT, Identity, READ_BYTES};

/// When to retry a subscription for which there is no place.
const RETRY_AFTER_MS: u64 = 1_000;
/// Frames handled in one turn; then the other tasks of this thread get theirs.
const TURN_FRAMES_MAX: usize = 64;
/// Answers in one frame, unless one message brought more.
const FRAME_REPLIES: usize = 512;

/// One connection of one node.
pub(super) struct Conversation {
    handler: Arc<dyn Serve>,
    peer: Arc<Identity>,
    stop: CancellationToken,
    /// Requests that were taken and whose answers are not written yet.
    under_way: AtomicUsize,
    /// Whether answers wait for the socket.
    blocked: AtomicBool,
    /// Notified when one of the two above has changed.
    room: Notify,
    /// What is said besides the answers of the outlet; it holds at most one pong.
    aside: Mutex<Vec<Answered>>,
    said: Notify,
    /// Whether the other node has said that it asks nothing more.
    bye: AtomicBool,
    /// The other node's client connections and subscriptions that have sent something that may wait.
    callers: Mutex<HashMap<u64, Arc<Caller>>>,
    /// Unanswered requests that wait for events. They do not count as under way, because they would keep other requests out.
    watches: Mutex<HashSet<u32>>,
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.leave_all();
    }
}

impl Conversation {
    pub(super) fn new(handler: Arc<dyn Serve>, peer: Arc<Identity>, stop: CancellationToken) -> Self {
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
            watches: Mutex::default(),
        }
    }

    pub(super) async fn run(&self, mut stream: TcpStream, frames: Frames) -> End {
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

    fn watches(&self) -> std::sync::MutexGuard<'_, HashSet<u32>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's connection at the other node. It is kept until it hangs up if something that came from it may wait.
    fn caller(&self, conn: u64, may_wait: bool) -> Arc<Caller> {
        if !may_wait {
            return Arc::default();
        }
        let caller = Arc::clone(self.callers().entry(conn).or_default());
        if self.stop.is_cancelled() {
            // A node that stops lets nothing wait any more.
            caller.leave();
        }
        caller
    }

    /// Ends every wait on behalf of the other node.
    fn leave_all(&self) {
        self.callers().values().for_each(|caller| caller.leave());
    }

    fn has_room(&self) -> bool {
        // A link never has more than that under way, and even at the bound it may still ask for a sign of life.
        self.under_way.load(Ordering::Acquire) <= PEER_IN_FLIGHT_REQUESTS_MAX && !self.blocked.load(Ordering::Acquire)
    }

    async fn read(&self, mut socket: ReadHalf<'_>, mut frames: Frames, outlet: Outlet) -> End {
        let mut turn = 0;
        let mut signed = Instant::now();
        loop {
            while !self.has_room() {
                // The writer limits this wait.
                self.room.notified().await;
            }
            match frames.cut() {
                Ok(Some(frame)) => match decode::<Ask>(frame) {
                    Ok(ask) => self.asked(ask, &outlet),
                    Err(error) => return error.into(),
                },
                Ok(None) => match self.more(&mut socket, &mut frames).await {
                    Ok(()) => self.gives_sign(&mut signed),
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

    /// Reads what has come. A node that has nothing under way must say something from time to time.
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

    /// Called when bytes came. A long request takes long on a slow network, and so does whatever follows it, including the
    /// other node's question for a sign of life: so this node gives a sign meanwhile, from time to time.
    fn gives_sign(&self, signed: &mut Instant) {
        if signed.elapsed() >= Duration::from_millis(PEER_PING_MS) {
            *signed = Instant::now();
            self.say_pong();
        }
    }

    fn say_pong(&self) {
        let mut aside = self.aside();
        if !aside.contains(&Answered::Pong) {
            aside.push(Answered::Pong);
        }
        drop(aside);
        self.said.notify_one();
    }

    fn asked(&self, ask: Ask, outlet: &Outlet) {
        let now = Instant::now();
        let stopping = self.stop.is_cancelled();
        match ask {
            Ask::Work { conn, network, items } => {
                let tickets: Vec<u32> = items.iter().map(|item| item.ticket).collect();
                let caller = self.caller(conn, items.iter().any(|item| item.wait.is_some()));
                let items: Vec<Item> = items.into_iter().map(|item: SentItem| item.item(now, &caller)).collect();
                self.under_way.fetch_add(tickets.len(), Ordering::AcqRel);
                self.begin(tickets, stopping, || self.handler.work(&self.origin(conn), network, items, outlet));
            }
            Ask::Job { conn, ticket, order } => {
                let caller = self.caller(conn, order.wait.is_some());
                let order = order.order(now, &caller);
                if !(matches!(order.job, Job::Events { .. }) && self.watches().insert(ticket)) {
                    self.under_way.fetch_add(1, Ordering::AcqRel);
                } else if self.watches().len() > PEER_WATCHES_MAX {
                    let problem = "this node has the most subscriptions waiting for events".to_owned();
                    let fault = Fault::Overloaded { problem, retry_after_ms: RETRY_AFTER_MS };
                    // The writer of this conversation holds the receiving end.
                    return drop(outlet.send(Told::Job(ticket, Err(Box::new(fault)))));
                }
                self.begin(vec![ticket], stopping, || self.handler.job(&self.origin(conn), ticket, order, outlet));
            }
            Ask::HangUp { conn } => {
                if let Some(caller) = self.callers().remove(&conn) {
                    caller.leave();
                }
            }
            Ask::Ping => self.say_pong(),
            Ask::Bye => {
                self.bye.store(true, Ordering::Release);
                self.said.notify_one();
            }
        }
    }

    fn origin(&self, conn: u64) -> RemoteAsker {
        RemoteAsker { node: Arc::clone(&self.peer), conn }
    }

    /// Begins requests that were counted already, or reports that they are not begun.
    fn begin(&self, tickets: Vec<u32>, stopping: bool, ask: impl FnOnce() -> Result<(), NotOwner>) {
        let begun = if stopping { Err(NotOwner { owner: None }) } else { ask() };
        if let Err(NotOwner { owner }) = begun {
            self.aside().push(Answered::NotOwner { tickets, owner });
            self.said.notify_one();
        }
    }

    fn aside(&self) -> std::sync::MutexGuard<'_, Vec<Answered>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what was answered, everything that is ready with one call, until the node stops and everything is answered.
    /// When the node stops, it announces that first, and also answers what the other node asked before it heard of it.
    async fn write(&self, mut socket: WriteHalf<'_>, mut inlet: mpsc::UnboundedReceiver<Told>) -> End {
        let mut bytes = Vec::new();
        let mut closing: Option<tokio::time::Instant> = None;
        let mut standing = self.handler.standing();
        self.says_standing(&mut standing);
        // Requests that were reported as waiting and not answered since: they no longer count as under way.
        let mut waits: HashSet<u32> = HashSet::new();
        loop {
            let none_waits = waits.is_empty() && self.watches().is_empty();
            let all_answered = none_waits && self.under_way.load(Ordering::Acquire) == 0;
            if self.bye.load(Ordering::Acquire) && all_answered {
                return End::Stopped;
            }
            let first = tokio::select! {
                told = inlet.recv() => told,
                () = self.said.notified() => None,
                Ok(()) = standing.changed() => {
                    self.says_standing(&mut standing);
                    None
                }
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

    /// Tells the other node whether this one owns the register and takes changes.
    fn says_standing(&self, standing: &mut watch::Receiver<PeerStanding>) {
        let standing = standing.borrow_and_update().clone();
        self.aside().push(Answered::Standing(standing));
        self.said.notify_one();
    }

    /// Appends what is ready to be said, up to a limit; returns how many requests are no longer under way.
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
                let mut watches = self.watches();
                answered += tickets.iter().filter(|ticket| !watches.remove(ticket)).count();
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
                    answered += usize::from(!waits.remove(&ticket) && !self.watches().remove(&ticket));
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

/// Writes all the bytes; the node must take some of them from time to time.
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
