//! One connection of a run, and what is under way on it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection.
pub struct Connection {
    pub server: SocketAddr,
    pub stream: TcpStream,
    pub inbox: Vec<u8>,
    pub outbox: Vec<u8>,
    /// If answers come in order: the lanes whose answers are due.
    pub due: VecDeque<usize>,
    /// The server's last message about the connection itself, such as a refusal because of too many connections.
    pub words: String,
    /// Registered for writability, because the last write was incomplete.
    wants_write: bool,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Nothing listens at this address.
    pub fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)
            .map_err(|error| io::Error::new(error.kind(), format!("connecting to {server}: {error}")))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (inbox, outbox, due) = (Vec::new(), Vec::new(), VecDeque::new());
        Ok(Self { server, stream, inbox, outbox, due, words: String::new(), wants_write: false })
    }

    /// The error with the server's address, and the server's last message about the connection.
    pub fn named(&self, error: &io::Error) -> io::Error {
        let Self { server, words, .. } = self;
        let words = if words.is_empty() { String::new() } else { format!("; it said: {}", words.trim_end()) };
        io::Error::new(error.kind(), format!("{server}: {error}{words}"))
    }

    /// Writes as much as the socket takes, and returns the number of bytes.
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

    /// Whether the connection has to wait for writability from now on; none if that has not changed.
    pub fn changes_interest(&mut self) -> Option<bool> {
        let wants_write = !self.outbox.is_empty();
        (wants_write != self.wants_write).then(|| {
            self.wants_write = wants_write;
            wants_write
        })
    }
}
