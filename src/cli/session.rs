//! One run of a command against a server: connects when it must, calls, asks people, prints.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use serde_json::{Map, Value};

use super::args::Ask;
use super::failure::{Failure, of_output};
use super::output::{self, Style};
use crate::client::{Client, ClientError};

/// What the global options say.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the server is.
    pub server: String,
    /// How long a call may take.
    pub timeout: Duration,
    /// Do not ask.
    pub yes: bool,
    /// How to print.
    pub style: Style,
    /// What to log in with.
    pub token: Option<String>,
}

/// What a command works with.
#[derive(Debug)]
pub struct Session {
    /// The options.
    pub options: Options,
    client: Option<Client>,
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

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        of_output(&error).map_or(Self::Quiet, Self::from)
    }
}

impl Session {
    /// A session that has not connected yet.
    pub fn new(options: Options) -> Self {
        Self { options, client: None }
    }

    /// The connection; made, and logged in, at the first call.
    pub async fn client(&mut self) -> Result<Client, ClientError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = Client::connect_with(&self.options.server, self.options.timeout).await?;
        if let Some(token) = &self.options.token {
            let params = Map::from_iter([("token".to_owned(), Value::String(token.clone()))]);
            client.call("auth.login", params).await?;
        }
        self.client = Some(client.clone());
        Ok(client)
    }

    /// Calls any method; the error is left to the caller.
    pub async fn try_call(&mut self, method: &str, params: Map<String, Value>) -> Result<Value, ClientError> {
        self.client().await?.call(method, params).await
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
    pub fn say(&self, words: &str) {
        // A stderr that is gone hears nothing; the data still counts.
        let _ = writeln!(anstream::stderr(), "{words}");
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
