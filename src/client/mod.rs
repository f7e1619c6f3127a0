//! A small asynchronous client: JSON-RPC 2.0 over TCP, one JSON value a line, any number of calls in flight.
//!
//! ```text
//! call() ──line──▶ writer task ──▶ socket ──▶ reader task ──answer by id──▶ call()
//! ```
//!
//! Owns one connection and never repeats a call: whether a repeat is safe after a lost answer is the caller's to
//! decide (PROTOCOL, "Repeat after a lost answer"), so [`ClientError`] tells "was not sent" from "nobody knows".
//! Used by the command line, the tests and the load harness. Knows no method; requests and answers are plain JSON.
//!
//! Review notes: does every way in which the connection can end wake every call that waits for it? Is a call that was
//! given up (timeout, dropped future) forgotten, so that the table of waiting calls stays bounded?

mod connection;
mod error;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use error::{ClientError, RpcError};

use crate::limits;

/// How long connecting, and one call without `wait_seconds`, may take where the caller does not say.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Notifications (events) that wait to be read; beyond it the newest are dropped and the server's `lagged` tells.
const NOTIFICATIONS_MAX: usize = 1_024;

/// What a call is answered with, as the reader task hands it over.
type Answer = Result<Value, ClientError>;
/// Calls that wait, by the number that is their request id.
type Waiting = Arc<Mutex<Pending>>;

/// Calls that wait, and why no more will be answered once the connection has ended.
#[derive(Debug, Default)]
struct Pending {
    calls: HashMap<u64, oneshot::Sender<Answer>>,
    ended: Option<ClientError>,
}

/// One connection to a server. Cheap to clone: clones share the connection, and calls of all are pipelined.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: String,
    lines: mpsc::Sender<Vec<u8>>,
    waiting: Waiting,
    next_id: AtomicU64,
    in_flight: Semaphore,
    timeout: Duration,
    notifications: Mutex<Option<mpsc::Receiver<Value>>>,
    /// The socket once more, for how it is closed; and how many calls wait on the server's side.
    hanging_up: Mutex<(Option<socket2::Socket>, usize)>,
}

/// A call that waits on the server's side. As long as there is one, a connection that is closed in whatever way, that of a
/// program that was ended included, is *reset*: mere end of input is no hang-up, and the server would go on waiting and
/// grant to nobody.
struct WaitsThere<'a>(&'a Inner);

impl<'a> WaitsThere<'a> {
    fn begin(inner: &'a Inner) -> Self {
        inner.note_wait(|waits| *waits += 1);
        Self(inner)
    }
}

impl Drop for WaitsThere<'_> {
    fn drop(&mut self) {
        self.0.note_wait(|waits| *waits -= 1);
    }
}

/// Forgets a call that nobody waits for any more.
struct Forget<'a> {
    waiting: &'a Waiting,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Ok(mut pending) = self.waiting.lock() {
            pending.calls.remove(&self.id);
        }
    }
}

impl Client {
    /// Connects to `address` (`host:port`).
    ///
    /// # Errors
    /// [`ClientError::Connect`] if nobody answers there within [`TIMEOUT_DEFAULT`].
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        Self::connect_with(address, TIMEOUT_DEFAULT).await
    }

    /// Connects, with the time that connecting and each call may take. A call that waits on the server's side
    /// (`wait_seconds`) gets that time on top.
    ///
    /// # Errors
    /// [`ClientError::Connect`] if nobody answers there in time.
    pub async fn connect_with(address: &str, timeout: Duration) -> Result<Self, ClientError> {
        let refused = |cause: String| ClientError::Connect { address: address.to_owned(), cause };
        let stream = match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(refused(plain(&error))),
            Err(_) => return Err(refused(format!("no answer within {} s", timeout.as_secs()))),
        };
        // Small requests leave at once; the writer gathers what is there anyway. Failure costs latency only.
        let _ = stream.set_nodelay(true);
        Ok(Self::over(stream, address.to_owned(), timeout))
    }

    fn over(stream: TcpStream, address: String, timeout: Duration) -> Self {
        // Without it a client that goes away while it waits is taken for one that only ended its input.
        let socket = socket2::SockRef::from(&stream).try_clone().ok();
        let (read, write) = stream.into_split();
        let (lines, outgoing) = mpsc::channel(limits::IN_FLIGHT_REQUESTS_MAX);
        let (notify, notifications) = mpsc::channel(NOTIFICATIONS_MAX);
        let waiting = Waiting::default();
        tokio::spawn(connection::write(write, outgoing, waiting.clone()));
        tokio::spawn(connection::read(read, waiting.clone(), notify));
        Self {
            inner: Arc::new(Inner {
                address,
                lines,
                waiting,
                next_id: AtomicU64::new(1),
                in_flight: Semaphore::new(limits::IN_FLIGHT_REQUESTS_MAX),
                timeout,
                notifications: Mutex::new(Some(notifications)),
                hanging_up: Mutex::new((socket, 0)),
            }),
        }
    }

    /// Where this client is connected to, as it was given.
    pub fn address(&self) -> &str {
        &self.inner.address
    }

    /// Calls one method and waits for its answer. Requests of one client for one network take effect in the order in
    /// which these futures are first polled.
    ///
    /// # Errors
    /// [`ClientError::Rpc`] is the server's refusal; every other variant says what is known about the call.
    pub async fn call(&self, method: &str, params: Map<String, Value>) -> Result<Value, ClientError> {
        let wait = params.get("wait_seconds").and_then(Value::as_u64).unwrap_or(0);
        let limit = self.inner.timeout.saturating_add(Duration::from_secs(wait));
        let _waits = (wait > 0).then(|| WaitsThere::begin(&self.inner));
        match tokio::time::timeout(limit, self.call_unlimited(method, &Value::Object(params))).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::TimedOut { method: method.to_owned(), seconds: limit.as_secs() }),
        }
    }

    /// The same with parameters that are JSON text already, kept to the byte. For tests and the load harness.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn call_raw(&self, method: &str, params: &RawValue) -> Result<Value, ClientError> {
        match tokio::time::timeout(self.inner.timeout, self.call_unlimited(method, params)).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::TimedOut { method: method.to_owned(), seconds: self.inner.timeout.as_secs() }),
        }
    }

    async fn call_unlimited<P: serde::Serialize + ?Sized>(&self, method: &str, params: &P) -> Answer {
        let inner = &*self.inner;
        // The server stops reading beyond its bound; waiting here keeps the table of waiting calls as small.
        let _permit = inner.in_flight.acquire().await.map_err(|_| ClientError::Lost { cause: CLOSED.to_owned() })?;
        let id = inner.next_id.fetch_add(1, Ordering::Relaxed);
        let line = request_line(id, method, params)?;
        let (answer, answered) = oneshot::channel();
        {
            let mut pending = inner.waiting.lock().map_err(|_| ClientError::Lost { cause: CLOSED.to_owned() })?;
            if let Some(ended) = &pending.ended {
                return Err(ended.clone());
            }
            pending.calls.insert(id, answer);
        }
        let _forget = Forget { waiting: &inner.waiting, id };
        if inner.lines.send(line).await.is_err() {
            return Err(inner.ended());
        }
        answered.await.unwrap_or_else(|_| Err(inner.ended()))
    }

    /// The notifications of this connection (`events.watch`), once: whoever asks first reads them.
    pub fn notifications(&self) -> Option<mpsc::Receiver<Value>> {
        self.inner.notifications.lock().ok()?.take()
    }
}

impl Inner {
    fn note_wait(&self, note: impl Fn(&mut usize)) {
        let Ok(mut hanging_up) = self.hanging_up.lock() else { return };
        let (socket, waits) = &mut *hanging_up;
        note(waits);
        if let Some(socket) = socket {
            // Failing, the server learns it when it answers.
            let _ = socket.set_linger((*waits > 0).then_some(Duration::ZERO));
        }
    }

    /// Why the connection ended, for calls that come too late to be told by the reader.
    fn ended(&self) -> ClientError {
        let known = self.waiting.lock().ok().and_then(|pending| pending.ended.clone());
        known.unwrap_or_else(|| ClientError::Lost { cause: CLOSED.to_owned() })
    }
}

/// What is said where the other side hung up without an error.
const CLOSED: &str = "the connection was closed";

/// One request as it goes over the wire, its line end included.
pub fn request_line<P: serde::Serialize + ?Sized>(id: u64, method: &str, params: &P) -> Result<Vec<u8>, ClientError> {
    #[derive(serde::Serialize)]
    struct Request<'a, P: ?Sized> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: &'a P,
    }
    let mut line = serde_json::to_vec(&Request { jsonrpc: "2.0", id, method, params })
        .map_err(|error| ClientError::NotSent { cause: error.to_string() })?;
    line.push(b'\n');
    Ok(line)
}

/// An I/O error without the number that means nothing to people.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

#[cfg(test)]
mod tests;
