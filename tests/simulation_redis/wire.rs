//! The connections between nodes and Redis. Their bytes take time, are held up, arrive after their sender is gone, or never.
//!
//! A connection is three tasks: one takes what its node sends, one has the server carry out what arrived, in order, and one
//! brings the answers back. If only the node's end breaks, what had arrived is still carried out.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use allod::core::types::NetworkId;
use allod::store::Later;
use allod::store::redis::{RedisStream, RedisWay};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::redis::{Words, next_command};
use super::served::{self, Grants};
use super::world::World;

/// How long a message takes, in milliseconds.
const TAKES_MS: std::ops::Range<u64> = 1..4;
/// Most bytes on their way in one direction.
const BYTES_MAX: usize = 1 << 20;
/// For so long a kernel sends again what its node sent while it was cut off.
const SENT_AGAIN_MS: u64 = 5_000;

pub struct Dialled {
    node: usize,
    process: u64,
    stream: DuplexStream,
    up: oneshot::Sender<()>,
}

#[derive(Debug)]
pub struct SimWay {
    pub name: String,
    pub node: usize,
    pub process: u64,
    pub dial: mpsc::UnboundedSender<Dialled>,
}

impl RedisWay for SimWay {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> Later<io::Result<Box<dyn RedisStream>>> {
        let (here, stream) = tokio::io::duplex(BYTES_MAX);
        let (up, is_up) = oneshot::channel();
        // If nobody listens, the connection is never made.
        let _ = self.dial.send(Dialled { node: self.node, process: self.process, stream, up });
        Box::pin(async move {
            is_up.await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok(Box::new(here) as Box<dyn RedisStream>)
        })
    }
}

#[derive(Default)]
pub struct Wires(RefCell<Vec<Wire>>);

#[derive(Clone)]
struct Wire {
    node: usize,
    process: u64,
    /// Cancelled when the node's end breaks.
    near: CancellationToken,
    /// Cancelled when the whole connection breaks.
    all: CancellationToken,
}

impl Wires {
    fn each(&self, which: impl Fn(&Wire) -> bool, end: impl Fn(&Wire)) {
        let wires: Vec<Wire> = {
            let mut wires = self.0.borrow_mut();
            wires.retain(|wire| !wire.all.is_cancelled());
            wires.clone()
        };
        wires.iter().filter(|wire| which(wire)).for_each(end);
    }

    /// The server is gone, and with it what had arrived.
    pub fn break_all(&self) {
        self.each(|_| true, |wire| wire.all.cancel());
    }

    /// The ends of a node break; what had arrived is still carried out.
    pub fn break_near(&self, node: usize) {
        self.each(|wire| wire.node == node, |wire| wire.near.cancel());
    }

    /// A process is gone.
    pub fn break_of(&self, process: u64) {
        self.each(|wire| wire.process == process, |wire| wire.near.cancel());
    }
}

/// A command on its way, and when it arrives.
struct Arriving {
    at_ms: u64,
    words: Words,
    /// Set if the answer is lost: how the node learns of that.
    lost: Option<Lost>,
}

/// When an answer arrives, its bytes, and what it says was granted.
type Answering = (u64, Vec<u8>, Grants);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Breaks,
    Silent,
}

pub async fn accept(world: Rc<World>, mut dialled: mpsc::UnboundedReceiver<Dialled>) {
    while let Some(one) = dialled.recv().await {
        tokio::task::spawn_local(begin(Rc::clone(&world), one));
    }
}

async fn begin(world: Rc<World>, Dialled { node, process, stream, mut up }: Dialled) {
    world.sleep(world.draw(TAKES_MS)).await;
    let is_of = |world: &World| world.process(node).is_some_and(|one| one.number == process);
    if world.is_cut(node) && !world.nodes[node].cut_is_silent.get() {
        return;
    }
    tokio::select! {
        biased;
        () = up.closed() => return,
        () = world.until(|world| world.passes(node) || !is_of(world)) => {}
    }
    if !is_of(&world) || world.away_until_ms.get() > world.now_ms() || up.send(()).is_err() {
        return;
    }
    let wire = Wire { node, process, near: CancellationToken::new(), all: CancellationToken::new() };
    world.wires.0.borrow_mut().push(wire.clone());
    let (reader, writer) = tokio::io::split(stream);
    let (arriving, arrived) = mpsc::unbounded_channel();
    let (answering, answers) = mpsc::unbounded_channel();
    tokio::task::spawn_local(take(Rc::clone(&world), wire.clone(), reader, arriving));
    tokio::task::spawn_local(bring(Rc::clone(&world), wire.clone(), writer, answers));
    tokio::task::spawn_local(carry_out(world, wire, arrived, answering));
}

async fn take(world: Rc<World>, wire: Wire, mut reader: ReadHalf<DuplexStream>, to: mpsc::UnboundedSender<Arriving>) {
    let (mut read, mut before_ms) = (Vec::new(), 0);
    // Set once nothing that is sent arrives any more.
    let mut swallows = false;
    loop {
        let got = tokio::select! {
            biased;
            () = wire.all.cancelled() => return,
            () = wire.near.cancelled() => return,
            got = reader.read_buf(&mut read) => got,
        };
        if !matches!(got, Ok(1..)) {
            return;
        }
        if !world.passes(wire.node) {
            let since_ms = world.now_ms();
            let was_cut = world.is_cut(wire.node);
            tokio::select! {
                biased;
                () = wire.all.cancelled() => return,
                () = world.until(|world| world.passes(wire.node) || wire.near.is_cancelled()) => {}
            }
            // The node may have ended the connection meanwhile. For a while its kernel may still send what it has.
            let is_over = wire.near.is_cancelled() || has_ended(&mut reader, &mut read);
            let kept = was_cut && world.now_ms() - since_ms < SENT_AGAIN_MS && world.one_in(2);
            if is_over && !kept {
                wire.near.cancel();
                return;
            }
            if is_over {
                world.hit("request after its connection ended");
            }
        }
        let fault = if world.calm.get() || world.draw(0..1_000) >= world.plan.faults_permille.into() {
            None
        } else {
            Some(world.draw(0..10))
        };
        let mut lost = None;
        let mut more_ms = world.draw(TAKES_MS);
        match fault {
            Some(0..2) => {
                world.hit("request lost");
                world.note(|| format!("a connection of node-{} breaks before its request", wire.node));
                wire.near.cancel();
                return;
            }
            Some(2..5) => {
                world.hit("reply lost");
                world.note(|| format!("a connection of node-{} breaks behind its request", wire.node));
                lost = Some(Lost::Breaks);
            }
            Some(5) => {
                world.hit("no answer at all");
                lost = Some(Lost::Silent);
            }
            Some(6) => {
                world.hit("nothing arrives");
                swallows = true;
            }
            Some(_) => {
                world.hit("request slow");
                more_ms += world.draw(20..2_500);
            }
            None => {}
        }
        let at_ms = (world.now_ms() + more_ms).max(before_ms);
        before_ms = at_ms;
        while let Some(words) = next_command(&mut read) {
            if !swallows {
                // The receiver ends with the connection.
                let _ = to.send(Arriving { at_ms, words, lost });
            }
        }
        if lost == Some(Lost::Breaks) {
            world.sleep(1).await;
            wire.near.cancel();
        }
    }
}

/// Has the node ended its connection? Reads what it sent before that.
fn has_ended(reader: &mut ReadHalf<DuplexStream>, read: &mut Vec<u8>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match pin!(reader.read_buf(read)).poll(&mut context) {
            Poll::Ready(Ok(1..)) => {}
            Poll::Ready(_) => return true,
            Poll::Pending => return false,
        }
    }
}

async fn carry_out(
    world: Rc<World>,
    wire: Wire,
    mut arrived: mpsc::UnboundedReceiver<Arriving>,
    to: mpsc::UnboundedSender<Answering>,
) {
    let (mut is_silent, mut before_ms) = (false, 0);
    loop {
        let next = tokio::select! {
            biased;
            () = wire.all.cancelled() => return,
            next = arrived.recv() => next,
        };
        let Some(Arriving { at_ms, words, lost }) = next else { return };
        if at_ms > world.now_ms() {
            tokio::select! {
                biased;
                () = wire.all.cancelled() => return,
                () = world.sleep_until(at_ms) => {}
            }
        }
        let (reply, grants) = served::carry_out(&world, &words, (wire.node, wire.process), wire.near.is_cancelled());
        if wire.all.is_cancelled() {
            return;
        }
        is_silent |= lost == Some(Lost::Silent);
        if is_silent || lost.is_some() {
            continue;
        }
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        before_ms = (world.now_ms() + world.draw(TAKES_MS)).max(before_ms);
        // The node's end may be gone.
        let _ = to.send((before_ms, bytes, grants));
    }
}

async fn bring(
    world: Rc<World>,
    wire: Wire,
    mut writer: WriteHalf<DuplexStream>,
    mut answers: mpsc::UnboundedReceiver<Answering>,
) {
    let bringing = async {
        while let Some((at_ms, bytes, grants)) = answers.recv().await {
            if at_ms > world.now_ms() {
                world.sleep_until(at_ms).await;
            }
            world.until(|world| world.passes(wire.node)).await;
            if writer.write_all(&bytes).await.is_err() {
                break;
            }
            // A process that repeats a grant later is not its writer.
            let is_writer = |grant: &(NetworkId, u64)| world.writers.borrow().get(grant) == Some(&wire.process);
            world.told_writer.borrow_mut().extend(grants.into_iter().filter(is_writer));
        }
        // Nothing is answered any more, and the node is not told.
        wire.near.cancelled().await;
    };
    tokio::select! {
        biased;
        () = wire.all.cancelled() => {}
        () = wire.near.cancelled() => {}
        () = bringing => {}
    }
}
