//! Sockets of clients, over TCP and HTTP alike: accepts them, and closes them in a way that does not lose answers which the client
//! has not read yet.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::limits::{BODY_BYTES_MAX, CLIENT_PROBE_MS};
use crate::peer::probe_where_silent;
use crate::seldom::Seldom;

/// Bytes of input that are discarded at most when a connection ends: a body that was a little too long, and more than a socket
/// buffers by itself.
const UNREAD_BYTES_MAX: usize = BODY_BYTES_MAX + (16 << 20);
/// Bytes of it that are discarded in one turn of the thread.
const TURN_BYTES_MAX: usize = 1 << 20;
/// How long a client whose input is discarded has to end it.
const LINGERS: Duration = Duration::from_secs(1);
/// How long a client that only watches has to read the rest of its events when the server stops. Events that it does not read are
/// sent again where it goes on.
pub const WATCHERS_TAKE_WITHIN: Duration = Duration::from_secs(1);
/// When to try again if no client can be accepted.
const AGAIN: Duration = Duration::from_millis(50);

/// Accepts clients until the server stops.
pub struct Arrivals {
    listener: TcpListener,
    stop: CancellationToken,
    /// What is logged if no client can be accepted.
    problem: &'static str,
    failures: Seldom,
}

impl Arrivals {
    /// Accepts at this listener until `stop`; `problem` is what is logged if no client can be accepted.
    pub fn new(listener: TcpListener, stop: CancellationToken, problem: &'static str) -> Self {
        let failures = Seldom::new(Duration::from_secs(1)..=Duration::from_secs(60));
        Self { listener, stop, problem, failures }
    }

    /// The next client; none once the server stops.
    pub async fn next(&self) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = self.stop.cancelled() => return None,
            };
            match accepted {
                Ok((stream, client)) => {
                    // If a client's process dies, only the end of its input is seen, which is not a hang-up.
                    if let Err(error) = probe_where_silent(&stream, Duration::from_millis(CLIENT_PROBE_MS)) {
                        tracing::debug!(%error, %client, "a client that dies is not noticed while it waits");
                    }
                    return Some((stream, client));
                }
                Err(error) => {
                    // Mostly out of descriptors: the open connections go on, and close.
                    if let Some(unsaid) = self.failures.turn() {
                        tracing::warn!(%error, unsaid, "{}", self.problem);
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}

/// Reads pending input and discards it. Closing a socket with unread input resets it, and answers that the client has not read yet
/// are lost. If there was input, or more is on its way (`more_comes`), the client is told by the end of output that nothing more is
/// answered, and has a moment to end.
pub async fn leave_nothing_unread(stream: &TcpStream, more_comes: bool) {
    let mut left = UNREAD_BYTES_MAX;
    // Bypasses the runtime, which may not know of the latest bytes yet.
    let read = |bytes: &mut [u8]| (&*socket2::SockRef::from(stream)).read(bytes);
    if !throw_away(&mut left, read) || (left == UNREAD_BYTES_MAX && !more_comes) {
        return;
    }
    // Ends the output; if this fails, the client is gone.
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

/// Discards the input that has come, at most `left` bytes in all, and a bounded part in one turn. Returns false if the client is
/// gone or has ended its input.
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
