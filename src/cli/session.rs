//! One run of a command against a server: connects when it must, calls, asks people, prints.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::args::Ask;
use super::doubt;
use super::failure::{Failure, of_output};
use super::output::{self, Style, words};
use crate::client::{self, Client, ClientError, Trouble};

/// What the global options say.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the server is, or several nodes, with commas between them.
    pub server: String,
    /// Somebody named it: it is not the plain address.
    pub is_server_named: bool,
    /// How long a call may take, with all that it tries.
    pub timeout: Duration,
    /// Do not ask.
    pub yes: bool,
    /// How to print.
    pub style: Style,
}

/// What a command works with.
#[derive(Debug)]
pub struct Session {
    /// The options.
    pub options: Options,
    client: Client,
    /// How long the call that is under way may wait on the server's side, in seconds.
    waits: Arc<AtomicU64>,
    after_doubt: bool,
}

/// So long a command tries in silence before it says why.
const SILENT_TRIES: Duration = Duration::from_secs(2);

impl Options {
    /// A client of that server. It waits for no server that was never there, but for one that it lost.
    pub fn client(&self, trouble: Option<Trouble>) -> Client {
        self.client_with(client::Options { trouble, ..client::Options::default() })
    }

    fn client_with(&self, options: client::Options) -> Client {
        let options = client::Options { timeout: self.timeout, wait_for_server: false, ..options };
        Client::new(self.server.split(','), options)
    }
}

/// Says once why a command takes so long. What a call is to wait on the server's side, in seconds, comes on top.
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

/// How long a call is tried again that may also wait for so many seconds on the server's side.
fn how_long(timeout: Duration, waits: u64) -> String {
    let options = if waits > 0 { "`--timeout` and `--wait`" } else { "`--timeout`" };
    format!("for {} s at most ({options})", timeout.as_secs().saturating_add(waits))
}

/// How a command ended that did not fail. `Quiet` is a reader of stdout that hung up.
pub type Done<T> = Result<T, Stop>;

/// Why a command goes no further.
#[derive(Debug)]
pub enum Stop {
    /// It failed.
    Failed(Box<Failure>),
    /// Whoever read our output has had enough.
    Quiet,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl Stop {
    /// The same of what a file holds: then the command line was right.
    pub fn of_file(self) -> Self {
        match self {
            Self::Failed(failure) => failure.of_file().into(),
            Self::Quiet => Self::Quiet,
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        of_output(&error).map_or(Self::Quiet, Self::from)
    }
}

impl Session {
    /// A session that has not connected yet.
    pub fn new(options: Options) -> Self {
        let waits = Arc::<AtomicU64>::default();
        let client = options.client(Some(patience(options.timeout, Arc::clone(&waits))));
        Self { options, client, waits, after_doubt: false }
    }

    /// One that takes a refusal for what it is, though it may pass: who looks how a server is does not wait until it is well.
    pub fn looking(options: Options) -> Self {
        let client = options.client_with(client::Options { asks_again: false, ..client::Options::default() });
        Self { options, client, waits: Arc::default(), after_doubt: false }
    }

    /// The client: connected at the first call.
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

    /// Is the last answer that of a repeat, so that what it says was there before may be the work of an earlier try?
    pub fn is_after_doubt(&self) -> bool {
        self.after_doubt
    }

    /// What is not known of the last answer, to `method`, as it is that of a repeat; none where everything is.
    pub fn doubts(&self, method: &str, params: &Map<String, Value>, result: &Value) -> Option<String> {
        if self.after_doubt { doubt::words(method, params, result) } else { None }
    }

    /// Does this answer, the last one, say that what was to be made was there, although no earlier try of ours can have made it?
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
        let answer = self.try_call(ask.method, ask.params.clone()).await;
        answer.map_err(|error| Failure::of_call(ask, &error).into())
    }

    /// Prints an answer.
    pub fn print(&self, method: &str, params: &Map<String, Value>, result: &Value) -> Done<()> {
        let text = self.options.style.render(method, &Value::Object(params.clone()), result);
        Ok(output::print(&text)?)
    }

    /// Says something to a person, on stderr.
    pub fn say(&self, said: &str) {
        words::say(said);
    }

    /// Shows a table to a person, on stderr.
    pub fn show(&self, table: &str) {
        words::show(table);
    }

    /// Whether a person is there to be asked.
    pub fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks whether to go on; `asked` is what would be done, as a fragment.
    ///
    /// # Errors
    /// Where the answer is no, or nobody is there to be asked.
    pub fn confirm(&self, asked: &str) -> Done<()> {
        if self.options.yes {
            return Ok(());
        }
        if !self.can_ask() {
            return Err(
                Failure::not_confirmed(asked, "it takes something away, and nobody is there to be asked").into()
            );
        }
        let _ = write!(anstream::stderr(), "really {asked}? [y/N] ");
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::not_confirmed(asked, "nothing was changed, as the answer was not yes").into()),
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
