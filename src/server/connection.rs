//! The socket of one client: reads what has come, cuts it into lines, writes answers together, and enforces the bounds.
//!
//! Life of an `ip.allocate`, steps 1 and 8 of 8 (see [`crate`]). After step 1 and before step 8: `session`.
//!
//! A connection is one task, on one reactor thread at a time (see `moving`). It reads as much as the socket has, hands every
//! whole line to the session (without copying it), flushes the session once, and writes everything that was answered with one
//! call. It stops reading while too many requests are in flight, or while the client does not read its answers.
//!
//! ```text
//! open ──end of input, or the server stops──▶ draining ──all answered and written──▶ closed
//!   └────line too long, or of HTTP─────────────┘
//! open, draining ──reset, failed write, slow client, idle, unfinished line──▶ closed
//! ```
//!
//! If a client hangs up while requests are under way, they are carried out and their answers dropped; requests that wait for
//! capacity are given up. The end of input is not a hang-up, so while nothing is being read, the connection listens for a reset
//! as long as a request waits.
//!
//! Review notes: does every wait have a limit (`overdue`)? Are requests that were read still answered when the server stops?

mod limits;
mod moving;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use compact_str::CompactString;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::watch;

use self::moving::{Left, go_on};
use super::Server;
use super::session::{Inlet, OUT_BYTES_MAX, Session};
use super::sockets::leave_nothing_unread;
use super::turns::{self, Turn};
use crate::actors::places::Placed;
use crate::metrics::Counted;
use crate::wire::{ErrorKind, Id, RpcError, answer};

/// Bytes that one read of the socket takes at most.
const READ_BYTES: usize = 128 << 10;
/// Lines that one turn hands on; then it is the turn of the other connections and networks of this thread.
const TURN_LINES_MAX: usize = 64;
/// A connection with no more requests under way counts as quiet, and need not wait for a turn.
const QUIET_REQUESTS_MAX: usize = 4;
/// Bytes that empty buffers keep.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client ended its input, or the server stopped; all answers were sent.
    Done,
    /// The client sent a line that is too long; the answers before it and the refusal were sent.
    LineTooLong,
    /// The client spoke HTTP; the answers before it and the refusal were sent.
    Http,
    /// The client reset the connection, or a write failed.
    Reset,
    /// The client read nothing for too long.
    Slow,
    /// The client asked nothing for too long.
    Idle,
    /// The client did not finish a line in time.
    Unfinished,
}

/// Serves one client until it is gone, first on this reactor thread and then on those that the connection moves to. Drops `held`
/// at the end.
pub fn serve(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    server: Arc<Server>,
    reactor: usize,
    held: impl Send + 'static,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "TCP_NODELAY");
    }
    let by = CompactString::const_new("anonymous");
    let (mut session, inlet) = Session::new(Arc::clone(&server), by);
    session.allow_watches();
    let connection = Connection {
        session,
        inlet,
        roles: server.seat.changes(),
        input: Vec::new(),
        start: 0,
        searched: 0,
        ended: false,
        ends_as: End::Done,
        was_asked: false,
        interrupted: false,
        last_exchange: Instant::now(),
        last_progress: Instant::now(),
        line_began: None,
        placed: server.balance.place(reactor),
        elsewhere: 0,
        _counted: Counted::in_gauge(&server.metrics.clients.connections),
        _held: Box::new(held),
        peer,
        server,
    };
    go_on(reactor, connection, stream);
}

/// The answer to a client that speaks HTTP.
const NOT_HTTP: &str =
    "this port takes lines of JSON; HTTP is served at `server.http_listen`; the connection is closed";

/// Is this the first line of an HTTP request? It ends with a version of HTTP, as no request of the protocol does. What follows it
/// must not be carried out: any web page can make a browser on this machine send it here, and lines that are not JSON would not
/// end the connection.
fn is_http(line: &[u8]) -> bool {
    line.split_last_chunk::<3>().is_some_and(|(before, version)| {
        before.ends_with(b" HTTP/") && matches!(version, [b'0'..=b'9', b'.', b'0'..=b'9'])
    })
}

/// Tells a client that there are too many connections, if that can be written at once.
pub fn turn_away(stream: &TcpStream) {
    let error = RpcError::new(
        ErrorKind::Overloaded,
        "too many connections (`server.max_connections`); close some, or try again later",
    )
    .with(|data| data.retry_after_ms = Some(1_000));
    let mut line = Vec::new();
    if answer::write_error(&mut line, &Id::NULL, &error).is_ok() {
        line.push(b'\n');
        // A client that does not take the answer sees the connection close.
        let _ = stream.try_write(&line);
    }
}

struct Connection {
    session: Session,
    inlet: Inlet,
    /// Wakes the connection when the role of this node changes.
    roles: watch::Receiver<()>,
    server: Arc<Server>,
    peer: SocketAddr,
    /// The reactor thread that it is on.
    placed: Placed,
    /// How many reads in a row brought requests for one network that lives on another thread.
    elsewhere: u32,
    _counted: Counted,
    /// Dropped with the connection.
    _held: Box<dyn Send>,
    input: Vec<u8>,
    /// First byte of `input` that was not handed on.
    start: usize,
    /// Up to here `input` has no line end.
    searched: usize,
    /// Whether reading has ended.
    ended: bool,
    /// How the connection ends once everything is answered.
    ends_as: End,
    /// Whether a line has come.
    was_asked: bool,
    /// Whether the turn ended before the lines did.
    interrupted: bool,
    /// When the client last asked something, or read something that was sent.
    last_exchange: Instant,
    last_progress: Instant,
    line_began: Option<Instant>,
}

impl Connection {
    async fn run(&mut self, stream: &TcpStream) -> Left {
        // A token of its own, because it is looked at in each turn: nothing is shared with connections of other threads.
        let stop = self.server.stop.child_token();
        let mut stopping = false;
        let timer = tokio::time::sleep(self.until_look());
        tokio::pin!(timer);
        // After a move the connection goes on as it would have gone on before.
        let mut turn = if self.interrupted { turns::next().await } else { None };
        loop {
            if !stopping && stop.is_cancelled() {
                stopping = true;
                self.take_nothing_more();
            }
            if let Err(end) = self.hand_on(stream) {
                return Left::Ended(end);
            }
            drop(turn.take());
            if !stopping && let Some(moves) = self.moves() {
                return moves;
            }
            if self.interrupted {
                turn = turns::next().await;
                self.absorb_what_came();
                continue;
            }
            let backed_up = self.unwritten() > 0;
            if self.asks_no_more() && !backed_up {
                return Left::Ended(self.ends_as);
            }
            let may_read = self.may_read();
            self.arm(timer.as_mut(), backed_up);
            let looks = self.session.looks_at();
            let looks_at = looks.unwrap_or_else(|| timer.deadline());
            tokio::select! {
                biased;
                // The timer comes first: otherwise a client whose requests are answered at once could keep it from being seen.
                () = &mut timer => {
                    if let Some(end) = self.overdue() {
                        return Left::Ended(end);
                    }
                    timer.as_mut().reset(tokio::time::Instant::now() + self.until_look());
                }
                Some(told) = self.inlet.recv() => {
                    turn = self.turn().await;
                    self.session.absorb(told);
                    self.absorb_what_came();
                }
                _ = self.roles.changed(), if self.session.heeds_role() => self.session.role_changed(),
                () = tokio::time::sleep_until(looks_at), if looks.is_some() => {
                    self.session.looks();
                }
                ready = stream.readable(), if may_read => {
                    turn = self.turn().await;
                    if ready.is_err() || self.read(stream).is_err() {
                        return Left::Ended(End::Reset);
                    }
                }
                ready = stream.writable(), if backed_up => {
                    if ready.is_err() {
                        return Left::Ended(End::Reset);
                    }
                }
                ready = stream.ready(Interest::ERROR), if !may_read && self.session.waits() => {
                    if ready.is_err() || !matches!(stream.take_error(), Ok(None)) {
                        return Left::Ended(End::Reset);
                    }
                    // The socket reported an error and has none: do not ask again at once.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                // The beginning of the loop does what is to be done, before anything is handed on.
                () = stop.cancelled(), if !stopping => {}
            }
        }
    }

    /// Hands the lines that were read to the session, and its answers to the client.
    fn hand_on(&mut self, stream: &TcpStream) -> Result<(), End> {
        self.cut_lines();
        let was_full = !self.session.has_room();
        self.write(stream)?;
        self.session.go_on_if_taken();
        // The client took something, so lines that were read and kept back can be handed on.
        self.interrupted |= was_full && self.session.has_room();
        Ok(())
    }

    /// Takes the answers that have come already, without waiting.
    fn absorb_what_came(&mut self) {
        while let Ok(told) = self.inlet.try_recv() {
            self.session.absorb(told);
        }
    }

    /// Has the client ended its input, with nothing left under way?
    fn asks_no_more(&mut self) -> bool {
        let busy = self.session.in_flight() > 0 || self.session.is_watching();
        let no_more = self.ended && !busy && !self.has_line();
        if no_more {
            self.session.asks_no_more();
        }
        no_more
    }

    /// May more be read? While it may not, no line of the client counts as late.
    fn may_read(&mut self) -> bool {
        let may_read = !self.ended && self.session.has_room() && !self.has_line();
        if !may_read && self.line_began.is_some() {
            // The rest of the line may have come: it has not been read.
            self.line_began = Some(Instant::now());
        }
        may_read
    }

    /// Takes no further requests, because the server stops or a line was refused. What was asked is still answered; watches and
    /// waits, which could go on for long, end.
    fn take_nothing_more(&mut self) {
        self.ended = true;
        self.session.end_watches();
        self.session.stop_waiting();
    }

    /// Logs and counts how the connection ended.
    async fn over(&mut self, stream: &TcpStream, end: End) {
        let reason = match end {
            End::Done => "done",
            End::LineTooLong => "line_too_long",
            End::Http => "http",
            End::Reset => "reset",
            End::Slow => "slow",
            End::Idle => "idle",
            End::Unfinished => "unfinished_line",
        };
        if matches!(end, End::Done | End::LineTooLong | End::Http) {
            leave_nothing_unread(stream, false).await;
        }
        self.server.metrics.clients.connections_closed.with_label_values(&[reason]).inc();
        tracing::debug!(peer = %self.peer, reason, "connection closed");
    }

    /// Waits for its turn, if the connection is busy.
    async fn turn(&mut self) -> Option<Turn> {
        if self.session.in_flight() > QUIET_REQUESTS_MAX { turns::next().await } else { None }
    }

    /// Bytes that wait to be written.
    fn unwritten(&self) -> usize {
        self.session.out.len() - self.session.taken
    }

    fn read(&mut self, stream: &TcpStream) -> io::Result<()> {
        if self.start > 0 {
            self.input.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        loop {
            self.input.reserve(READ_BYTES);
            let before = self.input.len();
            match stream.try_read_buf(&mut self.input) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(());
                }
                Ok(count) => {
                    tracing::trace!(peer = %self.peer, bytes = count, "read");
                    let now = Instant::now();
                    self.session.begin(now);
                    self.server.balance.look(now);
                    if count < READ_BYTES {
                        // A short read emptied the socket: it is read again when the system says that there is more.
                        let emptied = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                        let _ = stream.try_io(Interest::READABLE, emptied);
                        return Ok(());
                    }
                    if self.input.len() - before >= READ_BYTES {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Is there a whole line that was read and not handed on? `cut_lines` leaves one only if the session is full.
    fn has_line(&self) -> bool {
        !self.session.has_room() && memchr::memchr(b'\n', &self.input[self.start..]).is_some()
    }

    /// Hands every whole line to the session, as many as there is room for, and sends what they ask.
    fn cut_lines(&mut self) {
        let mut fed = false;
        let mut lines = 0;
        if std::mem::take(&mut self.interrupted) {
            self.session.look_at_role();
        }
        while self.session.has_room() {
            if lines == TURN_LINES_MAX {
                self.interrupted = true;
                break;
            }
            lines += 1;
            self.searched = self.searched.max(self.start);
            let Some(at) = memchr::memchr(b'\n', &self.input[self.searched..]) else {
                self.searched = self.input.len();
                break;
            };
            let end = self.searched + at;
            let mut line = &self.input[self.start..end];
            if let [rest @ .., b'\r'] = line {
                line = rest;
            }
            if line.len() > self.server.bounds.line_bytes {
                self.too_long();
                return;
            }
            if !std::mem::replace(&mut self.was_asked, true) && is_http(line) {
                self.end_with(&RpcError::new(ErrorKind::ParseError, NOT_HTTP), End::Http);
                return;
            }
            fed |= self.session.feed(line);
            self.start = end + 1;
            self.searched = self.start;
        }
        let was_full = !self.session.has_room();
        if fed {
            self.session.flush();
            self.last_exchange = Instant::now();
        }
        // Requests that were refused at once have left room.
        self.interrupted |= was_full && self.session.has_room();
        if self.interrupted {
            return;
        }
        if self.start == self.input.len() {
            self.input.clear();
            self.input.shrink_to(BUFFER_BYTES_KEPT);
            (self.start, self.searched, self.line_began) = (0, 0, None);
        } else if self.session.has_room() {
            // The rest of `input` is the beginning of a line.
            if self.input.len() - self.start > self.server.bounds.line_bytes + 1 {
                return self.too_long();
            }
            if fed || self.line_began.is_none() {
                self.line_began = Some(Instant::now());
            }
        }
        if self.ended && self.session.has_room() {
            // A last line without a line end is not carried out.
            self.input.clear();
            (self.start, self.searched, self.line_began) = (0, 0, None);
        }
    }

    fn too_long(&mut self) {
        let max = self.server.bounds.line_bytes;
        let message =
            format!("the line is longer than {max} bytes (`server.max_line_bytes`); the connection is closed");
        self.end_with(&RpcError::new(ErrorKind::LineTooLong, message), End::LineTooLong);
    }

    /// Refuses a line and reads nothing after it. What was asked before is still answered; watches and waits end, because the
    /// refusal says that the connection is closed.
    fn end_with(&mut self, error: &RpcError, ends_as: End) {
        self.session.refuse(error);
        self.session.flush();
        self.take_nothing_more();
        self.ends_as = ends_as;
        self.input = Vec::new();
        (self.start, self.searched, self.line_began) = (0, 0, None);
    }

    /// Writes what the socket takes.
    fn write(&mut self, stream: &TcpStream) -> Result<(), End> {
        while self.unwritten() > 0 {
            match stream.try_write(&self.session.out[self.session.taken..]) {
                Ok(0) => return Err(End::Reset),
                Ok(count) => {
                    tracing::trace!(peer = %self.peer, bytes = count, "written");
                    self.session.taken += count;
                    self.last_progress = Instant::now();
                    self.last_exchange = self.last_progress;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(End::Reset),
            }
        }
        if self.unwritten() == 0 {
            self.session.out.clear();
            self.session.taken = 0;
            self.session.out.shrink_to(BUFFER_BYTES_KEPT);
            self.session.written();
            self.last_progress = Instant::now();
        } else if self.session.taken > OUT_BYTES_MAX {
            self.session.forget_taken();
        }
        Ok(())
    }
}
