//! The closed loop: many connections, a fixed number of requests outstanding on each, one thread, epoll.
//!
//! A *lane* is one outstanding request of one connection; its number is the request's id. When a lane's answer is
//! read, the lane's next request is written at once; the requests of one readiness event leave in one write. Latency
//! is from the moment the request is put into the connection's buffer to the moment its answer has been read.
//! Closed loop means that a slow server is asked less often: rates are honest, tail latencies are those of this
//! load and not of an arrival schedule.
//!
//! Neighbours: `fill` says what the lanes ask and judges the answers; `report` shows what was measured.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use crate::scan::{self, Answer};

/// Bytes of one read. An answer is 100 to 600 bytes, a connection has at most its depth of them waiting.
const READ_BYTES: usize = 64 << 10;
/// How long outstanding answers are awaited after the last request was sent.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// Longest latency that is recorded, in nanoseconds; longer ones count as this.
const LATENCY_NANOS_MAX: u64 = 60_000_000_000;

/// What the lanes ask, and what becomes of the answers.
pub trait Workload {
    /// Appends the next request of this lane with `id: lane` and its line end; false if there is none for now.
    fn request(&mut self, lane: usize, out: &mut Vec<u8>) -> bool;
    /// Takes the answer to what the lane asked last.
    fn answer(&mut self, lane: usize, answer: &Answer<'_>);
}

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// After so many answers, the warm-up not counted.
    Requests(u64),
    /// After this time, the warm-up not counted.
    After(Duration),
}

/// The shape of a run.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub server: SocketAddr,
    pub connections: usize,
    pub depth: usize,
    /// Time at the start that is driven and not measured.
    pub warmup: Duration,
    pub stop: Stop,
}

impl Shape {
    /// Requests that are outstanding at once.
    pub fn lanes(&self) -> usize {
        self.connections * self.depth
    }
}

/// What a run measured.
pub struct Measured {
    pub latency_nanos: Histogram<u64>,
    pub answers: u64,
    pub elapsed: Duration,
    /// Requests without an answer when the run was given up, and answers that nobody had asked for.
    pub lost: u64,
    pub unexpected: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// One connection and what is under way on it.
struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Registered for writability, because the last write was cut short.
    wants_write: bool,
}

/// A lane's request: when it was sent, or none.
type Started = Option<Instant>;

struct Run<'a, W> {
    shape: Shape,
    workload: &'a mut W,
    poll: OwnedFd,
    connections: Vec<Connection>,
    started: Vec<Started>,
    outstanding: usize,
    /// Requests put into buffers since measuring began.
    sent: u64,
    measuring_since: Option<Instant>,
    measured: Measured,
}

/// Drives the workload over new connections until it is to stop, and waits for the last answers.
///
/// # Errors
/// A connection that cannot be made, or that the server closes.
pub fn run<W: Workload>(shape: Shape, workload: &mut W) -> io::Result<Measured> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut connections = Vec::with_capacity(shape.connections);
    for number in 0..shape.connections {
        let stream = TcpStream::connect(shape.server)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
        connections.push(Connection { stream, inbox: Vec::new(), outbox: Vec::new(), wants_write: false });
    }
    let latency_nanos =
        Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3).map_err(|error| io::Error::other(error.to_string()))?;
    let measured = Measured {
        latency_nanos,
        answers: 0,
        elapsed: Duration::ZERO,
        lost: 0,
        unexpected: 0,
        bytes_sent: 0,
        bytes_received: 0,
    };
    let started = vec![None; shape.lanes()];
    Run { shape, workload, poll, connections, started, outstanding: 0, sent: 0, measuring_since: None, measured }
        .drive()
}

impl<W: Workload> Run<'_, W> {
    fn drive(mut self) -> io::Result<Measured> {
        let begun = Instant::now();
        if self.shape.warmup.is_zero() {
            self.measuring_since = Some(begun);
        }
        for number in 0..self.connections.len() {
            for lane in number * self.shape.depth..(number + 1) * self.shape.depth {
                self.send(lane, begun);
            }
            self.flush(number)?;
        }
        let mut events = Vec::with_capacity(self.connections.len().max(1));
        let mut buffer = vec![0; READ_BYTES];
        let tick = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let mut last_answer = begun;
        loop {
            epoll::wait(&self.poll, spare_capacity(&mut events), Some(&tick))?;
            let now = Instant::now();
            self.begin_measuring(begun, now);
            if !events.is_empty() {
                last_answer = now;
            }
            for event in events.drain(..) {
                let data = event.data;
                self.ready(data.u64() as usize, &mut buffer)?;
            }
            if self.outstanding == 0 && (self.stopping(now) || self.idle()) {
                break;
            }
            if now.duration_since(last_answer) > DRAIN_MAX {
                self.measured.lost = self.outstanding as u64;
                break;
            }
        }
        self.measured.elapsed = self.measuring_since.map_or(Duration::ZERO, |since| last_answer.duration_since(since));
        Ok(self.measured)
    }

    /// No lane had anything to ask.
    fn idle(&self) -> bool {
        self.connections.iter().all(|connection| connection.outbox.is_empty())
    }

    fn begin_measuring(&mut self, begun: Instant, now: Instant) {
        if self.measuring_since.is_none() && now.duration_since(begun) >= self.shape.warmup {
            self.measuring_since = Some(now);
            self.sent = self.outstanding as u64;
            (self.measured.bytes_sent, self.measured.bytes_received) = (0, 0);
        }
    }

    fn stopping(&self, now: Instant) -> bool {
        let Some(since) = self.measuring_since else { return false };
        match self.shape.stop {
            Stop::Requests(count) => self.sent >= count,
            Stop::After(time) => now.duration_since(since) >= time,
        }
    }

    /// Puts the lane's next request into its connection's buffer.
    fn send(&mut self, lane: usize, now: Instant) {
        if self.stopping(now) {
            return;
        }
        let connection = &mut self.connections[lane / self.shape.depth];
        if self.workload.request(lane, &mut connection.outbox) {
            self.started[lane] = Some(now);
            self.outstanding += 1;
            self.sent += 1;
        }
    }

    /// Reads what is there, gives each answer to its lane, and writes what the lanes ask next.
    fn ready(&mut self, number: usize, buffer: &mut [u8]) -> io::Result<()> {
        let read = match self.connections[number].stream.read(buffer) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed a connection")),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(error) => return Err(error),
        };
        self.measured.bytes_received += read as u64;
        let now = Instant::now();
        let mut rest = &buffer[..read];
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            let begun = std::mem::take(&mut self.connections[number].inbox);
            if begun.is_empty() {
                self.take(number, line, now);
            } else {
                self.take(number, &[&begun, line].concat(), now);
            }
            rest = after;
        }
        self.connections[number].inbox.extend_from_slice(rest);
        self.flush(number)
    }

    /// One answer line.
    fn take(&mut self, number: usize, line: &[u8], now: Instant) {
        let lanes = number * self.shape.depth..(number + 1) * self.shape.depth;
        let answer = scan::answer(line).filter(|answer| lanes.contains(&answer.id));
        let Some(answer) = answer else {
            self.measured.unexpected += 1;
            return;
        };
        let lane = answer.id;
        let Some(started) = self.started[lane].take() else {
            self.measured.unexpected += 1;
            return;
        };
        self.outstanding -= 1;
        if self.measuring_since.is_some() {
            self.measured.answers += 1;
            let nanos = u64::try_from(now.duration_since(started).as_nanos()).unwrap_or(u64::MAX);
            self.measured.latency_nanos.saturating_record(nanos.max(1));
        }
        self.workload.answer(lane, &answer);
        self.send(lane, now);
    }

    /// Writes the buffer; what does not fit waits for writability.
    fn flush(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        let mut written = 0;
        while written < connection.outbox.len() {
            match connection.stream.write(&connection.outbox[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        connection.outbox.drain(..written);
        self.measured.bytes_sent += written as u64;
        let wants_write = !connection.outbox.is_empty();
        if wants_write != connection.wants_write {
            connection.wants_write = wants_write;
            let interest =
                if wants_write { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.poll, &connection.stream, epoll::EventData::new_u64(number as u64), interest)?;
        }
        Ok(())
    }
}
