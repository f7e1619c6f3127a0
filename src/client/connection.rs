//! One connection: any number of calls in flight, none of them repeated.
//!
//! ```text
//! call() ──line──▶ writer task ──▶ socket ──▶ reader task ──answer by id──▶ call()
//! ```
//!
//! Whether a repeat is safe after a lost answer is left to its user, so [`ClientError`] tells "was not sent" from "nobody
//! knows". [`Client`](super::Client) is the one that repeats; this one is for those who must see each connection end.
//!
//! Review notes: does every way in which the connection can end wake every call that waits for it? Is a call that was
//! given up (timeout, dropped future) forgotten, so that the table of waiting calls stays bounded?

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::line::{self, Answer, Hearer};
use super::{CLOSED, ClientError, TIMEOUT_DEFAULT, open, request_line};
use crate::limits;

/// Notifications (events) that wait to be read; beyond it the receiver is closed, so that a gap cannot be overlooked.
const NOTIFICATIONS_MAX: usize = 1_024;

/// Calls that wait, by the number that is their request id, and who hears notifications.
type Waiting = Arc<Ears>;

/// What the reader tells.
#[derive(Debug)]
struct Ears {
    pending: Mutex<Pending>,
    notify: Mutex<Option<mpsc::Sender<Value>>>,
}

/// Calls that wait, and why no more will be answered once the connection has ended.
#[derive(Debug, Default)]
struct Pending {
    calls: HashMap<u64, oneshot::Sender<Answer>>,
    ended: Option<ClientError>,
}

impl Hearer for Ears {
    fn answered(&self, id: u64, answer: Answer) {
        let call = self.pending.lock().ok().and_then(|mut pending| pending.calls.remove(&id));
        if let Some(call) = call {
            // Nobody waits any more where the call was given up meanwhile.
            let _ = call.send(answer);
        }
    }

    fn notified(&self, notification: Value) {
        let Ok(mut notify) = self.notify.lock() else { return };
        // The server cannot know what is lost here, so nothing may come behind it: the reader sees an end, and resumes.
        if notify.as_ref().is_some_and(|notify| notify.try_send(notification).is_err()) {
            *notify = None;
        }
    }

    fn ended(&self, reason: ClientError) {
        if let Ok(mut notify) = self.notify.lock() {
            *notify = None;
        }
        let Ok(mut pending) = self.pending.lock() else { return };
        let reason = pending.ended.get_or_insert(reason).clone();
        for (_, call) in pending.calls.drain() {
            let _ = call.send(Err(reason.clone()));
        }
    }
}

/// One connection to a server. Cheap to clone: clones share the connection, and calls of all are pipelined.
#[derive(Debug, Clone)]
pub struct Connection {
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
        if let Ok(mut pending) = self.waiting.pending.lock() {
            pending.calls.remove(&self.id);
        }
    }
}

impl Connection {
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
        Ok(Self::over(open(address, timeout).await?, address.to_owned(), timeout))
    }

    fn over(stream: TcpStream, address: String, timeout: Duration) -> Self {
        // Without it a client that goes away while it waits is taken for one that only ended its input.
        let socket = socket2::SockRef::from(&stream).try_clone().ok();
        let (read, write) = stream.into_split();
        let (lines, outgoing) = mpsc::channel(limits::IN_FLIGHT_REQUESTS_MAX);
        let (notify, notifications) = mpsc::channel(NOTIFICATIONS_MAX);
        let waiting = Arc::new(Ears { pending: Mutex::default(), notify: Mutex::new(Some(notify)) });
        tokio::spawn(line::write(write, outgoing, waiting.clone()));
        tokio::spawn(line::read(line::reader(read), waiting.clone()));
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
    /// As [`Connection::call`].
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
            let mut pending =
                inner.waiting.pending.lock().map_err(|_| ClientError::Lost { cause: CLOSED.to_owned() })?;
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

    /// The notifications of this connection (`events.watch`), once: whoever asks first reads them. They end with the
    /// connection, and behind the 1 024th that was not read: from there `since` goes on.
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
        let known = self.waiting.pending.lock().ok().and_then(|pending| pending.ended.clone());
        known.unwrap_or_else(|| ClientError::Lost { cause: CLOSED.to_owned() })
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
