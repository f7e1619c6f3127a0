//! What nodes say to each other: asks and answers, and their encoding.
//!
//! A frame is its length (four bytes, little-endian) and as many bytes of `postcard`. This file does no I/O: [`encode_asks`]
//! and [`encode_answers`] append to a buffer, and [`Frames`] cuts the bytes that a socket brought. A deadline crosses as the
//! milliseconds that are left, because clocks differ.
//!
//! Bytes from a node are untrusted input. Every type checks itself when it is read; a frame that does not fit ends the
//! connection. A frame is refused by its length before any of it is kept, and memory grows only with bytes that have come.
//!
//! Requests or answers that are too long for one frame are halved until they fit, in order.
//!
//! Used by `link` and `listener`. Review notes: does a change of any type that crosses raise [`super::PROTOCOL_VERSION`]?
//! Does a new variant appear in the samples of the tests?

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use compact_str::CompactString;
use postcard::ser_flavors::Flavor;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::NodeId;
use crate::actors::coordinator::{Done, Job, Order};
use crate::actors::waits::{Caller, Wait, WaitedBefore};
use crate::actors::{Applied, BeganToWait, Fault, Item, Reply};
use crate::core::command::Command;
use crate::core::compact::sharing;
use crate::core::types::{Name, NetworkId};
use crate::limits::{DEADLINE_MS_MAX, PEER_FRAME_BYTES_MAX, PEER_IN_FLIGHT_REQUESTS_MAX, WAIT_SECONDS_MAX};

/// Bytes of a frame's length.
const HEAD_BYTES: usize = 4;

/// A network as the client named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkRef {
    /// By its name.
    Name(Name),
    /// By its id.
    Id(NetworkId),
}

/// One request for one network, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentItem {
    /// The number that the link gave it; comes back with the answer.
    pub ticket: u32,
    /// What is asked.
    pub command: Command,
    /// Who asks.
    pub by: CompactString,
    /// Why.
    pub reason: Option<CompactString>,
    /// If it is not begun within this many milliseconds, it is refused.
    pub deadline_ms_left: Option<u64>,
    /// Change nothing.
    pub dry_run: bool,
    /// Set if it may wait where it finds no capacity.
    pub wait: Option<SentWait>,
}

/// That a request may wait for capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentWait {
    /// How long, in milliseconds.
    pub ms: u64,
    /// How long it has waited already, at an earlier owner.
    pub waited_ms: u64,
}

/// A job, as it is sent.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentOrder {
    /// The job.
    pub job: Job,
    /// Who asks.
    pub by: CompactString,
    /// Why.
    pub reason: Option<CompactString>,
    /// If it is not begun within this many milliseconds, it is refused.
    pub deadline_ms_left: Option<u64>,
    /// Change nothing.
    pub dry_run: bool,
    /// Set if it may wait where it finds no capacity.
    pub wait: Option<SentWait>,
}

/// What the dialing node says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Requests of one client's connection for one network.
    Work {
        /// The client's connection at the node that asks.
        conn: u64,
        /// The network.
        network: NetworkRef,
        /// The requests, in order.
        #[serde(deserialize_with = "not_too_many")]
        items: Vec<SentItem>,
    },
    /// A method over several networks, or about names and space.
    Job {
        /// The client's connection at the node that asks.
        conn: u64,
        /// Number that the link gave it; comes back with the answer.
        ticket: u32,
        /// The job.
        order: Box<SentOrder>,
    },
    /// Everything that waits for this connection ends: nobody at that connection of a client waits any more, or a
    /// subscription, which has a connection number of its own, has ended.
    HangUp {
        /// The client's connection at the node that asks.
        conn: u64,
    },
    /// Asks for a sign of life.
    Ping,
    /// Nothing more will be asked on this connection: the answer to [`Answered::Closing`].
    Bye,
}

/// How a node stands to the register, told to the nodes that forward to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStanding {
    /// Whether it owns the register, or is about to hand it over or to receive it. Needed because the store may name as
    /// owner a node that only tried to become it.
    pub owns: bool,
    /// Why it does not serve the register, in a few words for probes; `None` if it does.
    pub unready: Option<CompactString>,
}

/// What the accepting node says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answered {
    /// Answers of networks.
    Replies(#[serde(deserialize_with = "not_too_many")] Vec<Reply>),
    /// The answer to a job.
    Job {
        /// The ticket of the ask.
        ticket: u32,
        /// The answer.
        answer: Result<Done, Box<Fault>>,
    },
    /// These found no capacity and wait: their answers come later.
    Waits(#[serde(deserialize_with = "not_too_many")] Vec<BeganToWait>),
    /// The node does not own what was asked for; nothing was begun.
    NotOwner {
        /// The tickets of the asks.
        #[serde(deserialize_with = "not_too_many")]
        tickets: Vec<u32>,
        /// The owner, as far as the node knows.
        owner: Option<NodeId>,
    },
    /// How the node stands to the register at present. Said first, and at each change.
    Standing(PeerStanding),
    /// The sign of life: the answer to [`Ask::Ping`], and sent while much is read.
    Pong,
    /// The node stops and begins nothing that is asked from here on. It waits for [`Ask::Bye`].
    Closing,
}

/// Reads no more elements than may be under way: a few bytes can stand for many requests.
fn not_too_many<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct AtMost<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for AtMost<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {PEER_IN_FLIGHT_REQUESTS_MAX} requests")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut requests: A) -> Result<Vec<T>, A::Error> {
            let mut read = Vec::new();
            while let Some(request) = requests.next_element()? {
                if read.len() == PEER_IN_FLIGHT_REQUESTS_MAX {
                    return Err(A::Error::invalid_length(read.len() + 1, &self));
                }
                read.push(request);
            }
            Ok(read)
        }
    }
    deserializer.deserialize_seq(AtMost(PhantomData))
}

fn left(deadline: Option<Instant>, now: Instant) -> Option<u64> {
    let ms = |deadline: Instant| deadline.saturating_duration_since(now).as_millis().min(u128::from(DEADLINE_MS_MAX));
    deadline.map(|deadline| ms(deadline) as u64)
}

fn deadline(left: Option<u64>, now: Instant) -> Option<Instant> {
    left.map(|ms| now + Duration::from_millis(ms.min(DEADLINE_MS_MAX)))
}

fn sent_wait(wait: Option<Wait>) -> Option<SentWait> {
    wait.map(|wait| SentWait { ms: wait.ms, waited_ms: wait.waited_ms() })
}

fn wait(sent: Option<SentWait>, caller: &Arc<Caller>) -> Option<Wait> {
    let most = WAIT_SECONDS_MAX * 1_000;
    sent.map(|SentWait { ms, waited_ms }| Wait {
        ms: ms.min(most),
        before: WaitedBefore { ms: waited_ms.min(most), until: tokio::time::Instant::now() },
        caller: Arc::clone(caller),
    })
}

impl SentItem {
    /// Makes the request to send, under the link's number.
    pub fn new(item: Item, ticket: u32, now: Instant) -> Self {
        let Item { ticket: _, command, by, reason, deadline, dry_run, wait } = item;
        let (deadline_ms_left, wait) = (left(deadline, now), sent_wait(wait));
        Self { ticket, command, by, reason, deadline_ms_left, dry_run, wait }
    }

    /// The request for an actor, on behalf of this connection of a client.
    pub fn item(self, now: Instant, caller: &Arc<Caller>) -> Item {
        let Self { ticket, command, by, reason, deadline_ms_left, dry_run, wait: sent } = self;
        let (deadline, wait) = (deadline(deadline_ms_left, now), wait(sent, caller));
        Item { ticket, command, by, reason, deadline, dry_run, wait }
    }
}

impl SentOrder {
    /// Makes the job to send; its time counts from now.
    pub fn new(order: Order, now: Instant) -> Self {
        let Order { job, by, reason, deadline, dry_run, wait } = order;
        Self { job, by, reason, deadline_ms_left: left(deadline, now), dry_run, wait: sent_wait(wait) }
    }

    /// The job for the coordinator, on behalf of this connection of a client.
    pub fn order(self, now: Instant, caller: &Arc<Caller>) -> Order {
        let Self { job, by, reason, deadline_ms_left, dry_run, wait: sent } = self;
        Order { job, by, reason, deadline: deadline(deadline_ms_left, now), dry_run, wait: wait(sent, caller) }
    }
}

/// Why bytes are not a valid frame. `Display` goes into the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than allowed.
    #[error("a frame of {bytes} bytes, but at most {max} are allowed")]
    TooLong {
        /// Its length, or how much of it was written.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// Not what this version writes.
    #[error("a frame that cannot be read: {0}")]
    Malformed(String),
}

/// Appends to a buffer, up to a bound.
struct BoundedBuffer<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl Flavor for BoundedBuffer<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        if self.out.len() + data.len() > self.end {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.out.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.try_extend(&[data])
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends a value as one frame. If it does not fit, the buffer is left as it was.
///
/// # Errors
/// [`FrameError::TooLong`] if it is longer than `max`.
pub fn encode<T: Serialize>(value: &T, max: usize, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let begin = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    let end = begin + HEAD_BYTES + max;
    let written = sharing(|| postcard::serialize_with_flavor(value, BoundedBuffer { out: &mut *out, end }));
    let bytes = out.len() - begin - HEAD_BYTES;
    match (written, u32::try_from(bytes)) {
        (Ok(()), Ok(length)) => {
            out[begin..begin + HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
            Ok(())
        }
        (Err(postcard::Error::SerializeBufferFull), _) | (Ok(()), Err(_)) => {
            out.truncate(begin);
            Err(FrameError::TooLong { bytes, max })
        }
        (Err(error), _) => {
            out.truncate(begin);
            Err(FrameError::Malformed(error.to_string()))
        }
    }
}

/// The value of a frame, which must use all of its bytes.
///
/// # Errors
/// [`FrameError::Malformed`].
pub fn decode<'a, T: Deserialize<'a>>(frame: &'a [u8]) -> Result<T, FrameError> {
    match sharing(|| postcard::take_from_bytes(frame)) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(FrameError::Malformed(format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(FrameError::Malformed(error.to_string())),
    }
}

/// Appends an ask; requests that are too long together are halved. Returns the tickets of those that are too long alone.
pub fn encode_asks(ask: Ask, max: usize, out: &mut Vec<u8>) -> Vec<u32> {
    if encode(&ask, max, out).is_ok() {
        return Vec::new();
    }
    match ask {
        Ask::Work { conn, network, mut items } if items.len() > 1 => {
            let second = items.split_off(items.len() / 2);
            let mut refused = encode_asks(Ask::Work { conn, network: network.clone(), items }, max, out);
            refused.append(&mut encode_asks(Ask::Work { conn, network, items: second }, max, out));
            refused
        }
        Ask::Work { items, .. } => items.iter().map(|item| item.ticket).collect(),
        Ask::Job { ticket, .. } => vec![ticket],
        Ask::HangUp { .. } | Ask::Ping | Ask::Bye => Vec::new(),
    }
}

/// Appends answers; those that are too long together are halved, and so is a page of a list. An answer that is too long by
/// itself is replaced by an error that says so.
pub fn encode_answers(answered: Answered, max: usize, out: &mut Vec<u8>) {
    if encode(&answered, max, out).is_ok() {
        return;
    }
    match answered {
        Answered::Replies(mut replies) if replies.len() > 1 => {
            let second = replies.split_off(replies.len() / 2);
            encode_answers(Answered::Replies(replies), max, out);
            encode_answers(Answered::Replies(second), max, out);
        }
        Answered::Replies(replies) => {
            let too_long = |reply: &Reply| Reply { ticket: reply.ticket, answer: Err(too_long()) };
            // A sentence fits: even the smallest bound, that of the handshake, has room for it.
            let _ = encode(&Answered::Replies(replies.iter().map(too_long).collect()), max, out);
        }
        Answered::Job { ticket, answer: Ok(Done::Listed { mut views, count, next: _, order, cursor }) }
            if views.len() > 1 =>
        {
            views.truncate(views.len() / 2);
            let next = views.last().map(|view| order.behind(&view.network, Some(view.address)));
            let answer = Ok(Done::Listed { views, count, next, order, cursor });
            encode_answers(Answered::Job { ticket, answer }, max, out);
        }
        Answered::Job { ticket, .. } => {
            let _ = encode(&Answered::Job { ticket, answer: Err(too_long()) }, max, out);
        }
        Answered::Waits(_) | Answered::NotOwner { .. } | Answered::Standing(_) | Answered::Pong | Answered::Closing => {
        }
    }
}

fn too_long() -> Box<Fault> {
    let problem = format!("the answer is longer than the {PEER_FRAME_BYTES_MAX} bytes that nodes send each other");
    Box::new(Fault::Unavailable { applied: Applied::Unknown, problem })
}

/// Cuts the bytes that a socket brought into frames.
#[derive(Debug)]
pub struct Frames {
    /// Bytes that were read; the socket appends to it.
    pub input: Vec<u8>,
    start: usize,
    max: usize,
}

impl Frames {
    /// For frames that are at most `max` bytes long.
    pub fn new(max: usize) -> Self {
        Self { input: Vec::new(), start: 0, max }
    }

    /// Allows frames of up to `max` bytes from now on.
    pub fn allow(&mut self, max: usize) {
        self.max = max;
    }

    /// The bytes of the next frame, if all of them are there.
    ///
    /// # Errors
    /// [`FrameError::TooLong`], as soon as its length is there.
    pub fn cut(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = &self.input[self.start..];
        let Some((head, body)) = rest.split_first_chunk::<HEAD_BYTES>() else {
            self.compact();
            return Ok(None);
        };
        let bytes = u32::from_le_bytes(*head) as usize;
        if bytes > self.max {
            return Err(FrameError::TooLong { bytes, max: self.max });
        }
        if body.len() < bytes {
            self.compact();
            return Ok(None);
        }
        let begin = self.start + HEAD_BYTES;
        self.start = begin + bytes;
        Ok(Some(&self.input[begin..self.start]))
    }

    /// Frees the room of frames that were cut.
    fn compact(&mut self) {
        if self.start > 0 {
            self.input.drain(..self.start);
            self.start = 0;
        }
        if self.input.is_empty() {
            self.input.shrink_to(super::BUFFER_BYTES_KEPT);
        }
    }
}
