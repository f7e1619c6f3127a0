//! One run of a command against a server: connects when needed, calls, asks the user, and prints.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::args::Ask;
use super::doubt;
use super::failure::{Failure, of_output, of_start};
use super::output::{self, Style, Unwritten, words};
use crate::client::{self, Client, ClientError, Trouble};

/// The global options.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address of the server, or those of several nodes, separated by commas.
    pub server: String,
    /// The address was given, so it is not the default.
    pub is_server_named: bool,
    /// How long a call may take, including all attempts.
    pub timeout: Duration,
    /// Do not ask.
    pub yes: bool,
    /// How to print.
    pub style: Style,
}

/// The client and options of a command.
#[derive(Debug)]
pub struct Session {
    /// The options.
    pub options: Options,
    client: Client,
    /// How long the current call may wait on the server's side, in seconds.
    waits: Arc<AtomicU64>,
    after_doubt: bool,
}

/// How long a command retries silently before it says why.
const SILENT_TRIES: Duration = Duration::from_secs(2);

impl Options {
    /// A client for this server. It does not wait for a server that was never there, but for one that it lost.
    pub fn client(&self, trouble: Option<Trouble>) -> Client {
        self.client_with(client::Options { trouble, ..client::Options::default() })
    }

    fn client_with(&self, options: client::Options) -> Client {
        let options = client::Options { timeout: self.timeout, wait_for_server: false, ..options };
        Client::new(self.server.split(','), options)
    }
}

/// Reports once why a command takes so long. The time that a call may wait on the server's side is added.
fn patience(timeout: Duration, waits: Arc<AtomicU64>) -> Trouble {
    let first: Mutex<Option<Instant>> = Mutex::default();
    let said = AtomicBool::new(false);
    Trouble::told_to(move |error| {
        let Ok(mut first) = first.lock() else { return };
        let since = first.get_or_insert_with(Instant::now).elapsed();
        if since >= SILENT_TRIES && !said.swap(true, Ordering::Relaxed) {
            let how_long = how_long(timeout, waits.load(Ordering::Relaxed));
            words::say(&format!("{error}; trying again, {how_long}"));
        }
    })
}

/// How long a call is retried if it may also wait this many seconds on the server's side.
fn how_long(timeout: Duration, waits: u64) -> String {
    let options = if waits > 0 { "`--timeout` and `--wait`" } else { "`--timeout`" };
    format!("for {} s at most ({options})", timeout.as_secs().saturating_add(waits))
}

/// The result of a command or a step. `Quiet` means that the reader of stdout hung up.
pub type Done<T> = Result<T, Stop>;

/// Why a command stops.
#[derive(Debug)]
pub enum Stop {
    /// It failed.
    Failed(Box<Failure>),
    /// The reader of our output hung up.
    Quiet,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl Stop {
    /// The same for the content of a file: then the command line was right.
    pub fn of_file(self) -> Self {
        match self {
            Self::Failed(failure) => failure.of_file().into(),
            Self::Quiet => Self::Quiet,
        }
    }
}

impl From<Unwritten> for Stop {
    fn from(Unwritten(error): Unwritten) -> Self {
        of_output(&error).map_or(Self::Quiet, Self::from)
    }
}

/// The runtime of a command.
///
/// # Errors
/// The system has nothing left for one.
pub fn runtime() -> Done<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| of_start(&error))?)
}

impl Session {
    /// A session that has not connected yet.
    pub fn new(options: Options) -> Self {
        let waits = Arc::<AtomicU64>::default();
        let client = options.client(Some(patience(options.timeout, Arc::clone(&waits))));
        Self { options, client, waits, after_doubt: false }
    }

    /// A session that does not retry after a refusal that may pass: a command that inspects the state of a server must not
    /// wait until it is healthy.
    pub fn looking(options: Options) -> Self {
        let client = options.client_with(client::Options { asks_again: false, ..client::Options::default() });
        Self { options, client, waits: Arc::default(), after_doubt: false }
    }

    /// The client, which connects at its first call.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Calls any method; the error is left to the caller.
    pub async fn try_call(&mut self, method: &str, params: Map<String, Value>) -> Result<Value, ClientError> {
        let waits = params.get("wait_seconds").and_then(Value::as_u64).unwrap_or(0);
        self.waits.store(waits, Ordering::Relaxed);
        let answered = self.client.ask(method, params).await;
        self.after_doubt = answered.as_ref().is_ok_and(|answered| answered.after_doubt);
        answered.map(|answered| answered.result)
    }

    /// Is the last answer that of a repeat? Then something that it reports as existing may be the work of an earlier
    /// attempt.
    pub fn is_after_doubt(&self) -> bool {
        self.after_doubt
    }

    /// What is unknown about the last answer, to `method`, because it answers a repeat; none if nothing is.
    pub fn doubts(&self, method: &str, params: &Map<String, Value>, result: &Value) -> Option<String> {
        if self.after_doubt { doubt::words(method, params, result) } else { None }
    }

    /// Does this answer, the last one, say that the object existed already, although no earlier attempt of ours can have
    /// created it?
    pub fn found_made(&self, answer: &Value) -> bool {
        answer.get("created") == Some(&Value::Bool(false)) && !self.after_doubt
    }

    /// Calls any method.
    pub async fn call(&mut self, method: &str, params: Value) -> Done<Value> {
        let members = params.as_object().cloned().unwrap_or_default();
        let answer = self.try_call(method, members).await;
        answer.map_err(|error| Failure::of_method(method, &params, &error).into())
    }

    /// Makes the call of a subcommand.
    pub async fn make(&mut self, ask: &Ask) -> Done<Value> {
        self.make_with(ask, None).await
    }

    /// The same with these params, if there are any. A failure is told in the words of what was asked.
    pub async fn make_with(&mut self, ask: &Ask, params: Option<Map<String, Value>>) -> Done<Value> {
        let answer = self.try_call(ask.method, params.unwrap_or_else(|| ask.params.clone())).await;
        answer.map_err(|error| Failure::of_call(ask, &error).into())
    }

    /// Prints an answer.
    pub fn print(&self, method: &str, params: &Map<String, Value>, result: &Value) -> Done<()> {
        let text = self.options.style.render(method, &Value::Object(params.clone()), result);
        Ok(output::print(&text)?)
    }

    /// Prints a message to stderr.
    pub fn say(&self, said: &str) {
        words::say(said);
    }

    /// Prints a table to stderr.
    pub fn show(&self, table: &str) {
        words::show(table);
    }

    /// Whether there is a user to ask.
    pub fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks whether to go on; `asked` is what would be done, as a fragment.
    ///
    /// # Errors
    /// The answer is no, or there is nobody to ask.
    pub fn confirm(&self, asked: &str) -> Done<()> {
        if self.options.yes {
            return Ok(());
        }
        if !self.can_ask() {
            return Err(Failure::not_confirmed(asked, "it removes something, and there is nobody to ask").into());
        }
        let _ = write!(anstream::stderr(), "really {asked}? [y/N] ");
        let mut answer = String::new();
        let unread = |error: io::Error| Failure::not_confirmed(asked, &format!("the answer cannot be read: {error}"));
        io::stdin().lock().read_line(&mut answer).map_err(unread)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::not_confirmed(asked, "nothing was changed, because the answer was not yes").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_waits_on_the_servers_side_comes_on_top_of_its_time() {
        let timeout = Duration::from_secs(4);
        assert_eq!(how_long(timeout, 0), "for 4 s at most (`--timeout`)");
        assert_eq!(how_long(timeout, 5), "for 9 s at most (`--timeout` and `--wait`)");
    }
}
