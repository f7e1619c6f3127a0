//! What is done with the sockets of clients alike, over TCP and over HTTP: they are accepted, and closed so that what their
//! clients have not taken yet is not lost.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::limits::{BODY_BYTES_MAX, CLIENT_PROBE_MS};
use crate::peer::probe_where_silent;
use crate::telemetry::Seldom;

/// What is thrown away at most when a connection ends: a body that was a little too long, and more than a socket keeps by itself.
const UNREAD_BYTES_MAX: usize = BODY_BYTES_MAX + (16 << 20);
/// So much of it in one turn of the thread.
const TURN_BYTES_MAX: usize = 1 << 20;
/// How long a client whose input is thrown away has to end it.
const LINGERS: Duration = Duration::from_secs(1);
/// How long a client that only watches has to go on taking what it was told, when the server stops. What it does not take it is
/// told again where it goes on.
pub const WATCHERS_TAKE_WITHIN: Duration = Duration::from_secs(1);
/// After which time it is tried again, where nobody can be accepted.
const AGAIN: Duration = Duration::from_millis(50);

/// Those who connect, until the server stops.
pub struct Arrivals {
    listener: TcpListener,
    stop: CancellationToken,
    /// What is said where nobody can be accepted.
    problem: &'static str,
    failures: Seldom,
}

impl Arrivals {
    /// At this listener, until `stop`; `problem` is what is said where nobody can be accepted.
    pub fn new(listener: TcpListener, stop: CancellationToken, problem: &'static str) -> Self {
        let failures = Seldom::new(Duration::from_secs(1)..=Duration::from_secs(60));
        Self { listener, stop, problem, failures }
    }

    /// The next one; none once the server stops.
    pub async fn next(&self) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = self.stop.cancelled() => return None,
            };
            match accepted {
                Ok((stream, client)) => {
                    // Of a process that died only the end of its input is heard, which is no hang-up.
                    if let Err(error) = probe_where_silent(&stream, Duration::from_millis(CLIENT_PROBE_MS)) {
                        tracing::debug!(%error, %client, "a client that dies is not noticed while it waits");
                    }
                    return Some((stream, client));
                }
                Err(error) => {
                    // Out of descriptors, mostly: those that are open go on, and close.
                    if let Some(unsaid) = self.failures.turn() {
                        tracing::warn!(%error, unsaid, "{}", self.problem);
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}

/// Reads what is there and throws it away. A socket that is closed with something unread is reset, and what its client has not
/// taken yet of its answers is lost. Where there was something, or more is on its way (`more_comes`), it is told that nothing
/// more is answered, and has a moment to end.
pub async fn leave_nothing_unread(stream: &TcpStream, more_comes: bool) {
    let mut left = UNREAD_BYTES_MAX;
    // Past the runtime, which may not have heard yet of what came last.
    let read = |bytes: &mut [u8]| (&*socket2::SockRef::from(stream)).read(bytes);
    if !throw_away(&mut left, read) || (left == UNREAD_BYTES_MAX && !more_comes) {
        return;
    }
    // What it was told is at its end; where this fails, it is gone.
    if socket2::SockRef::from(stream).shutdown(Shutdown::Write).is_err() {
        return;
    }
    let end = tokio::time::Instant::now() + LINGERS;
    while left > 0 && matches!(tokio::time::timeout_at(end, stream.readable()).await, Ok(Ok(()))) {
        if !throw_away(&mut left, |bytes| stream.try_read(bytes)) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// What is there now, so many bytes at most in all, and in one turn. False: the client is gone, or has ended its input.
fn throw_away(left: &mut usize, read: impl Fn(&mut [u8]) -> io::Result<usize>) -> bool {
    let mut bytes = [0; 16 << 10];
    let turn_ends = left.saturating_sub(TURN_BYTES_MAX);
    while *left > turn_ends {
        match read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => *left = left.saturating_sub(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}
