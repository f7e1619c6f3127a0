//! The client itself: the table of calls, and the tasks that make connections, wake delayed calls, and watch for signs of
//! life.
//!
//! Tasks hold the client weakly: it ends, with its connections, when its last clone is dropped.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::line::{self, Answer, Hearer};
use super::options::Options;
use super::table::{PING, Table, Todo, Up};
use super::way::{self, Made};
use super::{ClientError, backoff, request_line};
use crate::limits::IN_FLIGHT_REQUESTS_MAX;

/// A connection that is unused for this long is closed: otherwise the server would close it at its own bound.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// The divisor for the part of [`Options::timeout`] that is left to the last try of a call. A try that begins later might
/// get no answer in time, and a plain refusal would turn into an unknown outcome.
const LAST_TRY_SHARE: u32 = 10;

/// A client of one server, or of several nodes that share a register. Cheap to clone; all clones share its connections, and
/// any number of calls may be in flight. See the [module](super) for its guarantees.
///
/// It lives in the tokio runtime in which its first call is polled.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("addresses", &self.shared.addresses).finish_non_exhaustive()
    }
}

/// The answer of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The result, as the protocol has it.
    pub result: Value,
    /// Whether this is the result of a repeat after a try whose answer was lost. That earlier try may have caused what the
    /// result reports as present, or as absent, before.
    pub after_doubt: bool,
}

#[derive(Debug)]
struct Shared {
    addresses: Vec<String>,
    options: Options,
    table: Mutex<Table>,
}

/// Forgets a call when its future is dropped.
struct Ticket<'a> {
    client: &'a Client,
    call: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.client.shared.table().forget(self.call);
        // Calls behind it may go now. Nothing can be sent outside of a runtime; the next call dispatches again.
        if Handle::try_current().is_ok() {
            self.client.shared.dispatch();
        }
    }
}

impl Client {
    /// A client of these addresses (`host:port`); it asks the first one that answers. It connects to nothing before the
    /// first call.
    pub fn new<T: Into<String>>(addresses: impl IntoIterator<Item = T>, options: Options) -> Self {
        let addresses: Vec<String> = addresses.into_iter().map(Into::into).collect();
        let table = Mutex::new(Table::new(addresses.len(), &options));
        Self { shared: Arc::new(Shared { addresses, options, table }) }
    }

    /// The addresses, as the caller gave them.
    pub fn addresses(&self) -> &[String] {
        &self.shared.addresses
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The result of [`Client::ask`], whichever try it comes from.
    ///
    /// # Errors
    /// Those of [`Client::ask`].
    pub async fn call(&self, method: &str, params: Map<String, Value>) -> Result<Value, ClientError> {
        self.ask(method, params).await.map(|answered| answered.result)
    }

    /// Calls one method and waits for its answer, over as many connections and tries as are needed and allowed. The place of
    /// the call in the order is that of the first poll of this future. If the future is dropped, the call may still take
    /// effect.
    ///
    /// # Errors
    /// - [`ClientError::Rpc`] is the server's refusal, and nothing changed. If it is one that passes, time ran out before
    ///   the call could be carried out; if its `data.applied` is `"unknown"`, it may have been carried out.
    /// - [`ClientError::Connect`]: time ran out before the call could be sent.
    /// - [`ClientError::Unknown`]: nobody can tell; it says where to look.
    /// - [`ClientError::TimedOut`] and [`ClientError::Lost`]: the call may still be carried out, but may also be repeated.
    pub async fn ask(&self, method: &str, params: Map<String, Value>) -> Result<Answered, ClientError> {
        let wait = params.get("wait_seconds").and_then(Value::as_u64).unwrap_or(0);
        let timeout = self.shared.options.timeout;
        let limit = timeout.saturating_add(Duration::from_secs(wait));
        let (call, answer) = self.shared.table().begin(method, &params, limit - timeout / LAST_TRY_SHARE)?;
        let _ticket = Ticket { client: self, call };
        self.shared.dispatch();
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ClientError::Lost { cause: super::CLOSED.to_owned() }),
            Err(_) => Err(self.shared.table().give_up(call, limit.as_secs())),
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // No statement of the table can panic and leave half of a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dispatch(self: &Arc<Self>) {
        let todo = self.table().dispatch();
        self.carry_out(todo);
    }

    fn carry_out(self: &Arc<Self>, todo: Vec<Todo>) {
        for todo in todo {
            match todo {
                Todo::Connect { link, to: None } => drop(tokio::spawn(go_home(Arc::downgrade(self), link))),
                Todo::Connect { link, to: Some(to) } => drop(tokio::spawn(go_to(Arc::downgrade(self), link, to))),
                Todo::Wake { call, after } => {
                    let shared = Arc::downgrade(self);
                    tokio::spawn(async move {
                        tokio::time::sleep(after).await;
                        if let Some(shared) = shared.upgrade() {
                            shared.table().due(call);
                            shared.dispatch();
                        }
                    });
                }
                Todo::Tell(error) => {
                    if let Some(trouble) = &self.options.trouble {
                        trouble.tell(&error);
                    }
                }
            }
        }
    }

    /// A connection is ready: starts its tasks and sends the calls that wait for it.
    fn connected(self: &Arc<Self>, link: u64, address: &str, made: Made) {
        let (lines, outgoing) = mpsc::channel(2 * IN_FLIGHT_REQUESTS_MAX);
        let ear = Arc::new(Ear { shared: Arc::downgrade(self), link });
        let tasks = [
            tokio::spawn(line::write(made.writer, outgoing, ear.clone())),
            tokio::spawn(line::read(made.reader, ear)),
            tokio::spawn(listen(Arc::downgrade(self), link, self.options.silence)),
        ];
        let up = Up { lines, socket: made.socket, tasks: tasks.iter().map(|task| task.abort_handle()).collect() };
        self.table().connected(link, address, up, Instant::now());
        self.dispatch();
    }

    fn ended(self: &Arc<Self>, link: u64, reason: &ClientError) {
        let todo = self.table().ended(link, reason);
        self.carry_out(todo);
        self.dispatch();
    }
}

/// Receives what comes over one connection.
struct Ear {
    shared: Weak<Shared>,
    link: u64,
}

impl Hearer for Ear {
    fn answered(&self, id: u64, answer: Answer) {
        let Some(shared) = self.shared.upgrade() else { return };
        let (mut todo, more) = {
            let mut table = shared.table();
            (table.answered(self.link, id, answer, Instant::now()), table.dispatch())
        };
        todo.extend(more);
        shared.carry_out(todo);
    }

    fn notified(&self, _: Value) {
        // No call of this client subscribes; the message only shows that the server is alive.
        if let Some(shared) = self.shared.upgrade() {
            shared.table().heard(self.link, Instant::now());
        }
    }

    fn ended(&self, reason: ClientError) {
        if let Some(shared) = self.shared.upgrade() {
            shared.ended(self.link, &reason);
        }
    }
}

/// Tries the addresses until one answers, or no call waits any more.
async fn go_home(weak: Weak<Shared>, link: u64) {
    let Some(failures) = weak.upgrade().map(|shared| shared.table().failures()) else { return };
    if failures > 0 {
        tokio::time::sleep(backoff::wait(failures)).await;
    }
    for round in 0.. {
        let mut tried = Vec::new();
        for _ in 0..weak.upgrade().map_or(1, |shared| shared.addresses.len().max(1)) {
            let Some(shared) = weak.upgrade() else { return };
            let at = {
                let mut table = shared.table();
                if !table.is_needed() {
                    return table.not_connected(link);
                }
                table.at()
            };
            let (options, count) = (shared.options.clone(), shared.addresses.len());
            let address = shared.addresses.get(at).cloned().unwrap_or_default();
            drop(shared);
            let made = way::make(&address, count, &options).await;
            let Some(shared) = weak.upgrade() else { return };
            match made {
                Ok(made) => return shared.connected(link, &address, made),
                Err(error) => {
                    shared.table().not_home(&error);
                    shared.carry_out(vec![Todo::Tell(error.clone())]);
                    if !way::is_passing(&error) {
                        return fail(&shared, link, &error);
                    }
                    tried.push((address, error));
                }
            }
        }
        let Some(shared) = weak.upgrade() else { return };
        let give_up = !shared.options.wait_for_server && !shared.table().was_connected();
        if let Some(error) = way::nowhere(tried) {
            if give_up {
                return fail(&shared, link, &error);
            }
            shared.table().nowhere(&error);
        }
        drop(shared);
        tokio::time::sleep(backoff::wait(round)).await;
    }
}

/// Fails the queued calls: there is no way to send them.
fn fail(shared: &Arc<Shared>, link: u64, error: &ClientError) {
    let mut table = shared.table();
    table.not_connected(link);
    table.fail_queued(error);
}

/// Connects to the address of a redirect. If nobody answers there, the calls queued for it go home.
async fn go_to(weak: Weak<Shared>, link: u64, address: String) {
    let Some(options) = weak.upgrade().map(|shared| shared.options.clone()) else { return };
    // As if there were two addresses, because home is another way.
    let made = way::make(&address, 2, &options).await;
    let Some(shared) = weak.upgrade() else { return };
    match made {
        Ok(made) => shared.connected(link, &address, made),
        Err(error) => {
            shared.table().not_connected(link);
            shared.carry_out(vec![Todo::Tell(error)]);
            shared.dispatch();
        }
    }
}

/// Gives up a connection that shows no sign of life, and closes one that is unused.
async fn listen(weak: Weak<Shared>, link: u64, silence: Duration) {
    let ping = request_line(PING, "server.ping", &Map::new()).unwrap_or_default();
    let mut asked = false;
    loop {
        tokio::time::sleep(silence / 4).await;
        let Some(shared) = weak.upgrade() else { return };
        let Some((silent, due)) = shared.table().silence(link, Instant::now()) else { return };
        if !due {
            asked = false;
            if silent > UNUSED_MAX {
                return shared.table().close_unused(link);
            }
        } else if silent >= 2 * silence && asked {
            let cause = format!("no sign of life for {} s", silent.as_secs());
            return shared.ended(link, &ClientError::Lost { cause });
        } else if silent >= silence && !asked {
            asked = true;
            shared.table().ping(link, ping.clone());
        } else if silent < silence {
            asked = false;
        }
    }
}

#[cfg(test)]
mod tests;
