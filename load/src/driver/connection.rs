//! One connection of a run, and what is under way on it.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;

/// Longest wait for the answer to a login.
const LOGIN_MAX: Duration = Duration::from_secs(30);

/// A connection.
pub struct Connection {
    pub stream: TcpStream,
    pub inbox: Vec<u8>,
    pub outbox: Vec<u8>,
    /// Lanes whose answers are due, where answers come in order.
    pub due: VecDeque<usize>,
    /// Registered for writability, because the last write was cut short.
    wants_write: bool,
}

impl Connection {
    /// Connects and logs in, if there is a token.
    ///
    /// # Errors
    /// Nobody listens there, or the token is refused.
    pub fn open(server: SocketAddr, token: Option<&str>) -> io::Result<Self> {
        let stream = TcpStream::connect(server)
            .map_err(|error| io::Error::new(error.kind(), format!("connecting to {server}: {error}")))?;
        stream.set_nodelay(true)?;
        if let Some(token) = token {
            log_in(&stream, token)?;
        }
        stream.set_nonblocking(true)?;
        Ok(Self { stream, inbox: Vec::new(), outbox: Vec::new(), due: VecDeque::new(), wants_write: false })
    }

    /// Writes what the socket takes; how many bytes that was.
    ///
    /// # Errors
    /// The server closed the connection.
    pub fn write(&mut self) -> io::Result<u64> {
        let mut written = 0;
        while written < self.outbox.len() {
            match self.stream.write(&self.outbox[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outbox.drain(..written);
        Ok(written as u64)
    }

    /// Whether it waits for writability from now on, if that has changed.
    pub fn changes_interest(&mut self) -> Option<bool> {
        let wants_write = !self.outbox.is_empty();
        (wants_write != self.wants_write).then(|| {
            self.wants_write = wants_write;
            wants_write
        })
    }
}

fn log_in(mut stream: &TcpStream, token: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(LOGIN_MAX))?;
    let request = json!({"jsonrpc": "2.0", "id": 0, "method": "auth.login", "params": {"token": token}});
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    // Nothing else was asked, so the reader takes no byte of a later answer.
    BufReader::new(stream).read_line(&mut line)?;
    stream.set_read_timeout(None)?;
    let answer: serde_json::Value = serde_json::from_str(&line)?;
    match answer.get("error") {
        None => Ok(()),
        Some(error) => Err(io::Error::other(format!("auth.login: {}", error["message"]))),
    }
}
