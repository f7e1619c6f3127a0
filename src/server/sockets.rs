//! Sockets of clients, over TCP and HTTP alike: accepts them, and closes them in a way that does not lose answers which the client
//! has not read yet.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
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

/// Clients that are turned away because too many are here. Most have asked something by then: closed with that unread, their socket
/// would be reset, and whoever does not hear why cannot know that nothing was carried out.
#[derive(Debug)]
pub struct TurnedAway {
    places: Arc<Semaphore>,
}

impl TurnedAway {
    /// So many have a moment to hear why; beyond it connections are closed at once.
    pub fn up_to(count: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(count)) }
    }

    /// Closes the connection of a client that was told why, when it has ended its input or had a moment to.
    pub fn leave(&self, stream: TcpStream) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        tokio::spawn(async move {
            leave_nothing_unread(&stream, true).await;
            drop(place);
        });
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn who_is_turned_away_with_a_request_unread_hears_why_and_sees_no_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The second one is beyond the bound.
        for (turned_away, is_reset) in [(TurnedAway::up_to(1), false), (TurnedAway::up_to(0), true)] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            client.write_all(b"asks\n").await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
            assert_eq!(stream.try_write(b"why\n").unwrap(), 4);
            turned_away.leave(stream);
            let mut told = Vec::new();
            let end = client.read_to_end(&mut told).await;
            assert_eq!(end.is_err(), is_reset, "{end:?}");
            assert!(is_reset || told == b"why\n", "{told:?}");
        }
    }
}
