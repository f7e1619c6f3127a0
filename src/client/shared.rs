//! The client proper: the table of calls, and the tasks that make connections, wake what was delayed, and listen for signs
//! of life.
//!
//! Tasks hold the client weakly: it ends, and its connections with it, when its last clone is gone.

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

/// A connection that was not used for so long is closed: it would only be lost to the server's own bound.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// The last try of a call is left this part of [`Options::timeout`], as a divisor: one that is begun later may find no answer
/// any more, and what was a plain refusal would end as something of which nobody knows what became of it.
const LAST_TRY_SHARE: u32 = 10;

/// A client of one server, or of several nodes that share a register. Cheap to clone; all clones share its connections,
/// and any number of calls may be in flight. See the [module](super) for what it promises.
///
/// Lives in the tokio runtime in which its first call is polled.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("addresses", &self.shared.addresses).finish_non_exhaustive()
    }
}

/// What a call was answered with.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The result, as the protocol has it.
    pub result: Value,
    /// It is that of a repeat, and an earlier try, of which the answer was lost, may have taken effect: what the result says was
    /// there before, or was not, may be the work of that try.
    pub after_doubt: bool,
}

#[derive(Debug)]
struct Shared {
    addresses: Vec<String>,
    options: Options,
    table: Mutex<Table>,
}

/// Forgets a call whose future is dropped.
struct Ticket<'a> {
    client: &'a Client,
    call: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.client.shared.table().forget(self.call);
        // What was behind it may go now. Outside of a runtime nothing can; the next call looks again.
        if Handle::try_current().is_ok() {
            self.client.shared.dispatch();
        }
    }
}

impl Client {
    /// A client of these addresses (`host:port`), of which the first that answers is asked. Nothing is connected before
    /// the first call.
    pub fn new<T: Into<String>>(addresses: impl IntoIterator<Item = T>, options: Options) -> Self {
        let addresses: Vec<String> = addresses.into_iter().map(Into::into).collect();
        let table = Mutex::new(Table::new(addresses.len(), &options));
        Self { shared: Arc::new(Shared { addresses, options, table }) }
    }

    /// The addresses, as they were given.
    pub fn addresses(&self) -> &[String] {
        &self.shared.addresses
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The result of [`Client::ask`], whichever try it is of.
    ///
    /// # Errors
    /// The same.
    pub async fn call(&self, method: &str, params: Map<String, Value>) -> Result<Value, ClientError> {
        self.ask(method, params).await.map(|answered| answered.result)
    }

    /// Calls one method and waits for its answer, over as many connections and tries as it takes and may take. The place
    /// of the call in the order is that of the first poll of this future. Dropped, it may take effect all the same.
    ///
    /// # Errors
    /// [`ClientError::Rpc`] is the server's refusal, and nothing changed; [`ClientError::Unknown`] says that nobody can
    /// tell, and where to look; a refusal that passes, or [`ClientError::Connect`], that time was over before it could be
    /// carried out, unless its `data.applied` is `"unknown"`; [`ClientError::TimedOut`] and [`ClientError::Lost`] that it may still be, but may also be repeated.
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
        // Nothing between two statements of the table can panic and leave half of a change.
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

    /// A connection is there: its tasks begin, and what waits for it is sent.
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

/// Hears what comes over one connection.
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
        // No call of this client subscribes.
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

/// Goes through the addresses until one answers, or nobody waits any more.
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

/// There is no way for what is queued.
fn fail(shared: &Arc<Shared>, link: u64, error: &ClientError) {
    let mut table = shared.table();
    table.not_connected(link);
    table.fail_queued(error);
}

/// Goes where a redirect said. Where nobody answers there, what is queued for it goes home.
async fn go_to(weak: Weak<Shared>, link: u64, address: String) {
    let Some(options) = weak.upgrade().map(|shared| shared.options.clone()) else { return };
    // There is another way: home.
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

/// Gives a connection up that shows no sign of life, and closes one that is not used.
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
