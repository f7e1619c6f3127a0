//! Drives requests over many connections from one thread with epoll, in a closed or an open loop.
//!
//! A *lane* is one outstanding request of one connection. The id of a request combines the number of its lane with a turn.
//! In the closed loop a lane asks again as soon as its answer is read, and latency runs from the moment at which the request
//! is put into the buffer of its connection: a slow server is asked less often. In the open loop requests arrive on a
//! schedule of their own. Each takes the lane that has been free for the longest time, or waits until one is free, and its
//! latency runs from its arrival. Every request that arrived before the end is sent and counted, even if the server is
//! behind.
//!
//! All requests that one readiness event causes leave in one write.
//!
//! `open_loop` sends the requests that have arrived, and `ending` takes what was received before a run was cut off, and gives
//! up the requests that will not be answered. A `Workload`
//! chooses the requests of the lanes and judges the answers; `meter` counts them; `arrivals` has the schedule.

mod connection;
mod ending;
mod open_loop;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub use shape::{Lost, Measured, PATIENCE_DEFAULT, Shape, Stop};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::arrivals::Arrivals;
use crate::interrupt;
use crate::meter::{Kind, Meter, Outside};
use crate::scan::{self, Answer};
use connection::Connection;

/// Bytes of one read. An answer has 100 to 600 bytes, and a connection has at most `depth` answers waiting.
const READ_BYTES: usize = 64 << 10;
/// The number of ids of a lane, which are used in turn: a duplicate of an answer is not mistaken for the answer to the
/// lane's next request.
const TURNS: usize = 4;
/// After a signal: how long the driver still waits for the answers to outstanding requests.
const SIGNAL_WAIT_MAX: Duration = Duration::from_secs(3);
/// Longest sleep without an event.
const TICK: Duration = Duration::from_millis(50);

/// Chooses the requests of the lanes and takes the answers. Times count from the beginning of the run.
pub trait Workload {
    /// True if answers come in the order of their requests and carry no id.
    const IN_ORDER: bool = false;

    /// Appends the next request of this lane, with this id and a line end. None: the lane has nothing more to ask.
    fn request(&mut self, lane: usize, id: usize, now: Duration, out: &mut Vec<u8>) -> Option<Kind>;

    /// Takes the answer to the lane's latest request. `counts` says whether it belongs to the measured time. False: the
    /// request was refused.
    fn answer(&mut self, lane: usize, now: Duration, answer: &Answer<'_>, counts: bool) -> bool;

    /// Learns that the lane's latest request will never be answered.
    fn lost(&mut self, lane: usize, now: Duration, lost: &Lost) {
        let _ = (lane, now, lost);
    }

    /// Takes a line that answers no open request. False: it is not an answer, but a message of the server about the
    /// connection.
    fn unexpected(&mut self, line: &[u8], server: SocketAddr) -> bool {
        let _ = (line, server);
        true
    }

    /// Parses a line. If answers come in order, `oldest` is the id of the request that is due.
    fn read<'a>(&self, line: &'a [u8], oldest: usize) -> Option<Answer<'a>> {
        let _ = oldest;
        scan::answer(line)
    }

    /// The counts that are recorded at the end of a window.
    fn outside(&self) -> Outside;
}

/// The request of a lane: its kind, and the time from which its latency counts.
type Started = Option<(Kind, Duration)>;

struct Run<'a, W> {
    shape: Shape,
    workload: &'a mut W,
    poll: OwnedFd,
    connections: Vec<Connection>,
    started: Vec<Started>,
    /// For each lane, the turn of its latest request.
    turns: Vec<usize>,
    outstanding: usize,
    /// When anything was last sent or answered.
    progress: Duration,
    /// Requests put into buffers since measuring began.
    sent: u64,
    begun: Instant,
    measuring_since: Option<Duration>,
    /// In an open loop: the schedule of arrivals, and the lanes without a request, the longest free first.
    arrivals: Option<Arrivals>,
    free: VecDeque<usize>,
    /// In an open loop with a number of requests: how many have arrived since measuring began.
    arrived: u64,
    /// In an open loop: no more will arrive before the end, and all were sent.
    all_sent: bool,
    last_answer: Duration,
    measured: Measured,
}

/// Drives the workload over new connections until its stop, and waits for the last answers.
///
/// A signal or a lost connection ends the run early; the result then says so.
///
/// # Errors
/// A connection cannot be made.
pub fn run<W: Workload>(shape: &Shape, workload: &mut W, meter: Meter) -> io::Result<Measured> {
    Ok(connected(shape, workload, meter)?.drive())
}

/// A run over new connections that has sent nothing yet.
fn connected<'a, W: Workload>(shape: &Shape, workload: &'a mut W, meter: Meter) -> io::Result<Run<'a, W>> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut connections = Vec::with_capacity(shape.connections);
    for number in 0..shape.connections {
        let server = shape.servers[number % shape.servers.len()];
        let connection = Connection::open(server)?;
        epoll::add(&poll, &connection.stream, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
        connections.push(connection);
    }
    Ok(Run {
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
        all_sent: false,
        last_answer: Duration::ZERO,
        measured: Measured::new(meter),
        shape: shape.clone(),
    })
}

impl<W: Workload> Run<'_, W> {
    fn drive(mut self) -> Measured {
        if let Err(error) = self.go() {
            self.measured.cut_off = Some(error.to_string());
            self.take_received();
        } else if let Some(signal) = interrupt::signal() {
            self.measured.cut_off = Some(format!("ended by {}", signal.name()));
        }
        let now = self.begun.elapsed();
        let all_wait = self.outstanding == self.started.len();
        if self.outstanding > 0 {
            self.give_up(now);
        }
        if self.outstanding > 0 || self.measured.cut_off.is_some() {
            self.note_never_sent(now);
        }
        let since = self.measuring_since.unwrap_or(self.last_answer);
        self.measured.elapsed = self.length(since, now, all_wait);
        let end = if self.measured.lost > 0 { now } else { self.last_answer }.saturating_sub(since);
        let outside = self.outside();
        self.measured.meter.end_window(end, outside);
        self.measured
    }

    /// Sends requests and takes answers until the run is over, or until nothing has been answered for too long.
    fn go(&mut self) -> io::Result<()> {
        self.begin()?;
        let mut events = Vec::with_capacity(self.connections.len().max(1));
        let mut buffer = vec![0; READ_BYTES];
        let mut signalled = None;
        loop {
            let sleep = self.sleep();
            match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&sleep)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = self.begun.elapsed();
            self.begin_measuring(now);
            if !events.is_empty() {
                self.progress = now;
            }
            for event in events.drain(..) {
                let data = event.data;
                let number = data.u64() as usize;
                self.ready(number, &mut buffer).map_err(|error| self.connections[number].named(&error))?;
            }
            self.send_arrivals()?;
            self.end_window(self.begun.elapsed());
            let over = if self.arrivals.is_some() { self.all_sent } else { self.stopping(now) || self.is_idle() };
            if self.outstanding == 0 && over {
                return Ok(());
            }
            if interrupt::signal().is_some() {
                let wait = SIGNAL_WAIT_MAX.min(self.shape.patience);
                if now.saturating_sub(*signalled.get_or_insert(now)) > wait {
                    return Ok(());
                }
            }
            if self.outstanding > 0 && now.saturating_sub(self.progress) > self.shape.patience {
                return Ok(());
            }
        }
    }

    /// In a closed loop every lane sends its first request; in an open loop every lane becomes free.
    fn begin(&mut self) -> io::Result<()> {
        if self.arrivals.is_some() {
            // Consecutive requests go over different connections.
            let depth = self.shape.depth;
            self.free = (0..depth).flat_map(|at| (0..self.shape.connections).map(move |c| c * depth + at)).collect();
            return Ok(());
        }
        for number in 0..self.connections.len() {
            let now = self.begun.elapsed();
            for lane in number * self.shape.depth..(number + 1) * self.shape.depth {
                self.send(lane, now, now);
            }
            self.flush(number).map_err(|error| self.connections[number].named(&error))?;
        }
        Ok(())
    }

    /// The time until the next arrival that is to be sent, at most one tick. An answer ends it, too.
    fn sleep(&self) -> Timespec {
        let sends = !self.all_sent && !self.free.is_empty();
        let due = self.arrivals.as_ref().filter(|_| sends).map(Arrivals::next);
        let wait = due.map_or(TICK, |due| due.saturating_sub(self.begun.elapsed()).min(TICK));
        Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) }
    }

    /// True if no lane had anything to send.
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
        if self.measured.cut_off.is_some() || interrupt::signal().is_some() {
            return true;
        }
        let Some(since) = self.measuring_since else { return false };
        match self.shape.stop {
            Stop::Requests(count) => self.sent >= count,
            Stop::After(time) => now.saturating_sub(since) >= time,
        }
    }

    /// Is the time of a closed loop over?
    fn is_over(&self, now: Duration) -> bool {
        let end = match self.shape.stop {
            Stop::After(time) if self.arrivals.is_none() => self.measuring_since.map(|since| since + time),
            Stop::After(_) | Stop::Requests(_) => None,
        };
        end.is_some_and(|end| now > end)
    }

    /// In a closed loop every answer during the measured time counts. In an open loop a request counts if it arrived in that
    /// time.
    fn counts(&self, from: Duration) -> bool {
        self.measuring_since.is_some_and(|since| self.arrivals.is_none() || from >= since)
    }

    /// Puts the lane's next request into the buffer of its connection; its latency counts from `from`.
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

    /// Reads the available bytes, gives each answer to its lane, and writes the lanes' next requests.
    fn ready(&mut self, number: usize, buffer: &mut [u8]) -> io::Result<()> {
        match self.connections[number].stream.read(buffer) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "closed a connection")),
            Ok(read) => self.received(number, &buffer[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        self.flush(number)
    }

    /// Gives each answer among these bytes to its lane.
    fn received(&mut self, number: usize, bytes: &[u8]) {
        self.measured.bytes_received += bytes.len() as u64;
        let now = self.begun.elapsed();
        let mut rest = bytes;
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
    }

    /// Takes one answer line.
    fn take(&mut self, number: usize, line: &[u8], now: Duration) {
        let lanes = number * self.shape.depth..(number + 1) * self.shape.depth;
        let due = if W::IN_ORDER { self.connections[number].due.pop_front() } else { None };
        let oldest = due.map_or(usize::MAX, |lane| lane * TURNS + self.turns[lane]);
        let answer = self.workload.read(line, oldest);
        let answer = answer.filter(|answer| {
            let lane = answer.id / TURNS;
            lanes.contains(&lane) && self.turns[lane] == answer.id % TURNS
        });
        let started = answer.as_ref().and_then(|answer| self.started[answer.id / TURNS].take());
        let (Some(answer), Some((kind, from))) = (answer, started) else {
            return self.unexpected(number, line);
        };
        let lane = answer.id / TURNS;
        // `now` is the time of this read, not of the wake-up, which may be the moment at which measuring began.
        self.last_answer = now;
        self.outstanding -= 1;
        let counts = self.counts(from);
        let granted = self.workload.answer(lane, now, &answer, counts);
        if counts {
            self.measured.answers += 1;
            self.measured.late += u64::from(self.is_over(now));
            self.measured.meter.record(kind, now.saturating_sub(from), !granted);
        }
        if self.arrivals.is_some() {
            self.free.push_back(lane);
        } else {
            self.send(lane, now, now);
        }
    }

    fn unexpected(&mut self, number: usize, line: &[u8]) {
        let server = self.connections[number].server;
        if self.workload.unexpected(line, server) {
            self.measured.unexpected += 1;
        } else {
            self.connections[number].words = String::from_utf8_lossy(line).into_owned();
        }
    }

    /// Writes the buffer; the rest waits until the socket is writable.
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
