//! Drives requests over many connections, by one thread and epoll, in a closed or an open loop.
//!
//! A *lane* is one outstanding request of one connection; the request's id is its number and its turn. In the closed loop a lane asks
//! again as soon as its answer is read, and latency runs from the moment the request is put into its connection's buffer:
//! a slow server is asked less often. In the open loop requests arrive by a clock of their own; each takes the lane that
//! is free for the longest time, waits where none is, and its latency runs from its arrival. What arrived before the end
//! is sent and counted, also when the server is behind.
//!
//! The requests of one readiness event leave in one write.
//!
//! Neighbours: a `Workload` says what the lanes ask and judges the answers; `meter` counts; `arrivals` has the clock.

mod connection;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use crate::arrivals::{Arrivals, Rate};
use crate::meter::{Kind, Meter, Outside};
use crate::scan::{self, Answer};
use connection::Connection;

/// Bytes of one read. An answer is 100 to 600 bytes, a connection has at most its depth of them waiting.
const READ_BYTES: usize = 64 << 10;
/// How long what arrived in an open loop may be sent after the end, when the server is behind: as long as the run, within these.
const BEHIND_MIN: Duration = Duration::from_secs(5);
const BEHIND_MAX: Duration = Duration::from_secs(30);
/// Ids of a lane before they begin again: an answer that comes twice is not taken for that of the lane's next request.
const TURNS: usize = 4;
/// Longest sleep without an event.
const TICK: Duration = Duration::from_millis(50);

/// What the lanes ask, and what becomes of the answers. Times are since the beginning of the run.
pub trait Workload {
    /// Answers come in the order of their requests, and carry no id.
    const IN_ORDER: bool = false;

    /// Appends the next request of this lane, with this id and its line end; none if the lane has nothing more to ask.
    fn request(&mut self, lane: usize, id: usize, now: Duration, out: &mut Vec<u8>) -> Option<Kind>;

    /// Takes the answer to what the lane asked last. False: it was refused.
    fn answer(&mut self, lane: usize, now: Duration, answer: &Answer<'_>) -> bool;

    /// Reads a line; `oldest` is the id whose answer is due where they come in order.
    fn read<'a>(&self, line: &'a [u8], oldest: usize) -> Option<Answer<'a>> {
        let _ = oldest;
        scan::answer(line)
    }

    /// What the end of a window is noted with.
    fn outside(&self) -> Outside;
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
#[derive(Debug, Clone)]
pub struct Shape {
    /// Connections are dealt over these in turn.
    pub servers: Vec<SocketAddr>,
    pub connections: usize,
    pub depth: usize,
    /// Time at the start that is driven and not measured.
    pub warmup: Duration,
    pub stop: Stop,
    /// Open loop: requests arrive at this rate.
    pub rate: Option<Rate>,
    /// Of the arrivals.
    pub seed: u32,
    /// Each connection logs in with it.
    pub token: Option<String>,
    /// Requests count as lost when nothing was sent or answered for so long.
    pub patience: Duration,
}

/// As of [`Shape::patience`], unless said otherwise.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(30);

impl Shape {
    /// Requests that may be outstanding at once.
    pub fn lanes(&self) -> usize {
        self.connections * self.depth
    }

    /// About how long it will take, where that is set.
    pub fn expected(&self) -> Option<Duration> {
        match (self.stop, self.rate) {
            (Stop::After(time), _) => Some(time),
            (Stop::Requests(count), Some(rate)) => Duration::try_from_secs_f64(count as f64 / rate.per_second).ok(),
            (Stop::Requests(_), None) => None,
        }
    }
}

/// What a run measured.
pub struct Measured {
    pub meter: Meter,
    pub answers: u64,
    pub elapsed: Duration,
    /// Requests without an answer when the run was given up.
    pub lost: u64,
    /// Answers that nobody had asked for.
    pub unexpected: u64,
    /// Of an open loop: requests that arrived and were never sent, because the server was too far behind.
    pub never_sent: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// A lane's request: what it is, and from when on its latency counts.
type Started = Option<(Kind, Duration)>;

struct Run<'a, W> {
    shape: Shape,
    workload: &'a mut W,
    poll: OwnedFd,
    connections: Vec<Connection>,
    started: Vec<Started>,
    /// Of each lane, the turn of its latest request.
    turns: Vec<usize>,
    outstanding: usize,
    /// When something was last sent or answered.
    progress: Duration,
    /// Requests put into buffers since measuring began.
    sent: u64,
    begun: Instant,
    measuring_since: Option<Duration>,
    /// Of an open loop: when the next request arrives, and lanes without one, the longest free first.
    arrivals: Option<Arrivals>,
    free: VecDeque<usize>,
    /// Of an open loop with a number of requests: so many have arrived since measuring began.
    arrived: u64,
    measured: Measured,
}

/// Drives the workload over new connections until it is to stop, and waits for the last answers.
///
/// # Errors
/// A connection that cannot be made, or that the server closes.
pub fn run<W: Workload>(shape: &Shape, workload: &mut W, meter: Meter) -> io::Result<Measured> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut connections = Vec::with_capacity(shape.connections);
    for number in 0..shape.connections {
        let server = shape.servers[number % shape.servers.len()];
        let connection = Connection::open(server, shape.token.as_deref())?;
        epoll::add(&poll, &connection.stream, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
        connections.push(connection);
    }
    let measured = Measured {
        meter,
        answers: 0,
        elapsed: Duration::ZERO,
        lost: 0,
        unexpected: 0,
        never_sent: 0,
        bytes_sent: 0,
        bytes_received: 0,
    };
    let run = Run {
        workload,
        poll,
        connections,
        started: vec![None; shape.lanes()],
        turns: vec![0; shape.lanes()],
        outstanding: 0,
        progress: Duration::ZERO,
        sent: 0,
        begun: Instant::now(),
        measuring_since: shape.warmup.is_zero().then_some(Duration::ZERO),
        arrivals: shape.rate.map(|rate| Arrivals::new(rate, shape.seed)),
        free: VecDeque::new(),
        arrived: 0,
        measured,
        shape: shape.clone(),
    };
    run.drive()
}

impl<W: Workload> Run<'_, W> {
    fn drive(mut self) -> io::Result<Measured> {
        self.begin()?;
        let mut events = Vec::with_capacity(self.connections.len().max(1));
        let mut buffer = vec![0; READ_BYTES];
        let mut last_answer = Duration::ZERO;
        loop {
            let sleep = self.sleep();
            epoll::wait(&self.poll, spare_capacity(&mut events), Some(&sleep))?;
            let now = self.begun.elapsed();
            self.begin_measuring(now);
            if !events.is_empty() {
                (last_answer, self.progress) = (now, now);
            }
            for event in events.drain(..) {
                let data = event.data;
                self.ready(data.u64() as usize, &mut buffer)?;
            }
            let all_sent = self.send_arrivals()?;
            self.end_window(self.begun.elapsed());
            let over = if self.arrivals.is_some() { all_sent } else { self.stopping(now) || self.is_idle() };
            if self.outstanding == 0 && over {
                break;
            }
            if self.outstanding > 0 && now.saturating_sub(self.progress) > self.shape.patience {
                self.measured.lost = self.outstanding as u64;
                break;
            }
        }
        let since = self.measuring_since.unwrap_or(last_answer);
        self.measured.elapsed = last_answer.saturating_sub(since);
        self.measured.meter.end_window(self.measured.elapsed, self.outside());
        Ok(self.measured)
    }

    /// In a closed loop every lane asks; in an open one every lane is free.
    fn begin(&mut self) -> io::Result<()> {
        if self.arrivals.is_some() {
            // Neighbours in time go over different connections.
            let depth = self.shape.depth;
            self.free = (0..depth).flat_map(|at| (0..self.shape.connections).map(move |c| c * depth + at)).collect();
            return Ok(());
        }
        for number in 0..self.connections.len() {
            let now = self.begun.elapsed();
            for lane in number * self.shape.depth..(number + 1) * self.shape.depth {
                self.send(lane, now, now);
            }
            self.flush(number)?;
        }
        Ok(())
    }

    /// Until something arrives, but no longer than a tick.
    fn sleep(&self) -> Timespec {
        let due = self.arrivals.as_ref().filter(|_| !self.free.is_empty()).map(Arrivals::next);
        let wait = due.map_or(TICK, |due| due.saturating_sub(self.begun.elapsed()).min(TICK));
        Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) }
    }

    /// No lane had anything to ask.
    fn is_idle(&self) -> bool {
        self.connections.iter().all(|connection| connection.outbox.is_empty())
    }

    fn begin_measuring(&mut self, now: Duration) {
        if self.measuring_since.is_none() && now >= self.shape.warmup {
            self.measuring_since = Some(now);
            (self.sent, self.arrived) = (self.outstanding as u64, 0);
            (self.measured.bytes_sent, self.measured.bytes_received) = (0, 0);
        }
    }

    fn end_window(&mut self, now: Duration) {
        if let Some(since) = self.measuring_since.map(|begun| now.saturating_sub(begun))
            && self.measured.meter.is_due(since)
        {
            let outside = self.outside();
            self.measured.meter.end_window(since, outside);
        }
    }

    fn outside(&self) -> Outside {
        let mut outside = self.workload.outside();
        if let (Some(arrivals), Some(rate)) = (&self.arrivals, self.shape.rate) {
            let behind = self.begun.elapsed().saturating_sub(arrivals.next());
            outside.waiting = (behind.as_secs_f64() * rate.per_second) as u64;
        }
        outside
    }

    fn stopping(&self, now: Duration) -> bool {
        let Some(since) = self.measuring_since else { return false };
        match self.shape.stop {
            Stop::Requests(count) => self.sent >= count,
            Stop::After(time) => now.saturating_sub(since) >= time,
        }
    }

    /// Sends what has arrived while lanes are free. True: nothing more arrives before the end, and all of it was sent.
    fn send_arrivals(&mut self) -> io::Result<bool> {
        let mut touched = Vec::new();
        let over = loop {
            let Some(next) = self.arrivals.as_ref().map(Arrivals::next) else { return Ok(false) };
            let now = self.begun.elapsed();
            let end = match (self.shape.stop, self.measuring_since) {
                (_, None) => false,
                (Stop::Requests(count), Some(_)) => self.arrived >= count,
                (Stop::After(time), Some(since)) => next >= since + time,
            };
            if end {
                break true;
            }
            if self.is_too_far_behind(next, now) {
                let rate = self.shape.rate.map_or(0.0, |rate| rate.per_second);
                let end = self.shape.expected().unwrap_or_default() + self.measuring_since.unwrap_or_default();
                self.measured.never_sent = (end.saturating_sub(next).as_secs_f64() * rate) as u64;
                break true;
            }
            if next > now {
                break false;
            }
            let Some(lane) = self.free.pop_front() else { break false };
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.advance();
            }
            self.arrived += 1;
            if self.send(lane, next, now) {
                touched.push(lane / self.shape.depth);
            } else {
                self.free.push_back(lane);
            }
        };
        touched.sort_unstable();
        touched.dedup();
        for number in touched {
            self.flush(number)?;
        }
        Ok(over)
    }

    /// The end is long over, and the server has not taken what arrived before.
    fn is_too_far_behind(&self, next: Duration, now: Duration) -> bool {
        let expected = self.shape.expected().unwrap_or(Duration::MAX / 4);
        let end = self.measuring_since.unwrap_or_default() + expected;
        next < end && now > end + expected.clamp(BEHIND_MIN, BEHIND_MAX)
    }

    /// Puts the lane's next request into its connection's buffer; its latency counts from `from` on.
    fn send(&mut self, lane: usize, from: Duration, now: Duration) -> bool {
        if self.arrivals.is_none() && self.stopping(now) {
            return false;
        }
        let turn = (self.turns[lane] + 1) % TURNS;
        let connection = &mut self.connections[lane / self.shape.depth];
        let Some(kind) = self.workload.request(lane, lane * TURNS + turn, now, &mut connection.outbox) else {
            return false;
        };
        if W::IN_ORDER {
            connection.due.push_back(lane);
        }
        self.turns[lane] = turn;
        self.started[lane] = Some((kind, from));
        self.outstanding += 1;
        self.progress = now;
        self.sent += 1;
        true
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
        let now = self.begun.elapsed();
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
    fn take(&mut self, number: usize, line: &[u8], now: Duration) {
        let lanes = number * self.shape.depth..(number + 1) * self.shape.depth;
        let due = if W::IN_ORDER { self.connections[number].due.pop_front() } else { None };
        let oldest = due.map_or(usize::MAX, |lane| lane * TURNS + self.turns[lane]);
        let answer = self.workload.read(line, oldest);
        let answer = answer.filter(|answer| {
            let lane = answer.id / TURNS;
            lanes.contains(&lane) && self.turns[lane] == answer.id % TURNS
        });
        let Some(answer) = answer else {
            self.measured.unexpected += 1;
            return;
        };
        let lane = answer.id / TURNS;
        let Some((kind, from)) = self.started[lane].take() else {
            self.measured.unexpected += 1;
            return;
        };
        self.outstanding -= 1;
        let granted = self.workload.answer(lane, now, &answer);
        // In a closed loop everything that is answered in the measured time counts, in an open one what arrived in it.
        let counts = self.measuring_since.is_some_and(|since| self.arrivals.is_none() || from >= since);
        if counts {
            self.measured.answers += 1;
            self.measured.meter.record(kind, now.saturating_sub(from), !granted);
        }
        if self.arrivals.is_some() {
            self.free.push_back(lane);
        } else {
            self.send(lane, now, now);
        }
    }

    /// Writes the buffer; what does not fit waits for writability.
    fn flush(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        self.measured.bytes_sent += connection.write()?;
        if let Some(wants_write) = connection.changes_interest() {
            let interest =
                if wants_write { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.poll, &connection.stream, epoll::EventData::new_u64(number as u64), interest)?;
        }
        Ok(())
    }
}
