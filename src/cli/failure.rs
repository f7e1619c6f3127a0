//! How a command fails: one line that says what was asked and what stands in the way, and a hint what to do.
//!
//! ```text
//! allod: cannot claim `10.0.0.7` in network `lan` for `db/0`: held by `web/3` since 2026-03-01T09:12:44.031Z
//!
//! hint: `allod ip list --network lan --owner web/3` shows what `web/3` holds
//! ```
//!
//! With `--format json` a program gets one line of JSON instead ([`Failure::json`]): the error in the form of the protocol.
//!
//! This module owns the form; the sentences about what was asked are in `phrase`, and the hints for the protocol's kinds in
//! `hint`.

use std::io::{self, Write};
use std::path::Path;

use clap::builder::styling::{AnsiColor, Style};
use serde_json::{Value, json};

use super::args::Ask;
use super::exit::Exit;
use super::output::words::{self, fitted};
use super::output::{Format, number_of, text_of};
use super::quote::shell;
use super::{hint, phrase};
use crate::client::{ClientError, RpcError};
use crate::core::address::Range;
use crate::core::plural::counted;
use crate::telemetry::journal::{self, Priority};
use crate::wire::ErrorKind;

/// The most pools that an error lists; the rest is counted.
const POOLS_MAX: usize = 20;

/// The end of a message which only says who holds the address: the facts contain that too, and the time.
const HELD_BY_ANOTHER: &str = "; ask for another address, or have it released";

/// Why a command did not do what it should.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What was asked, as a fragment that follows "cannot"; empty if the reason says everything.
    pub asked: String,
    /// What stands in the way.
    pub reason: String,
    /// What to do: a sentence without full stop that names a command or a setting.
    pub hint: String,
    /// The server's refusal; none if the command failed by itself.
    pub refused: Option<Box<RpcError>>,
    /// In a run of several changes: how many were made before it failed, if that is known.
    pub changes_made: Option<usize>,
}

impl Failure {
    /// A failure of the command itself.
    pub fn new(asked: impl Into<String>, reason: impl Into<String>, hint: impl Into<String>) -> Self {
        let (asked, reason, hint) = (asked.into(), reason.into(), hint.into());
        Self { exit: Exit::Failed, asked, reason, hint, refused: None, changes_made: None }
    }

    /// A wrong command line that clap cannot detect.
    pub fn usage(asked: impl Into<String>, reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(asked, reason, hint) }
    }

    /// The same for the content of a file: then the command line was right.
    pub fn of_file(self) -> Self {
        Self { exit: if self.exit == Exit::Usage { Exit::Failed } else { self.exit }, ..self }
    }

    /// The same for a run of several changes from `file` (`-` is stdin) that broke off. It says how many changes were made
    /// before, if that is known, and that repeating the command continues the run.
    pub fn broken_off(self, changes_made: Option<usize>, file: &Path) -> Self {
        let again = match file.as_os_str() == "-" {
            true => "the same command again, with the same lines, goes on from there",
            false => "the same command again goes on from there",
        };
        let hint = match self.exit {
            // If the server itself says what is missing, the server is reachable.
            Exit::Unreachable if self.refused.is_none() => {
                format!("{again}; `allod server ping` says when the server is back")
            }
            _ => format!("{}; then {again}", self.hint),
        };
        Self { hint, changes_made, ..self }
    }

    /// A network that was to be created, and that someone else created meanwhile. `params` are those of the call.
    pub fn made_by_another(params: &Value) -> Self {
        let name = phrase::text(params, "name").unwrap_or_default();
        let reason = format!("network `{name}` was created by somebody else meanwhile");
        let hint = format!("`allod network get {}` shows it", shell(name));
        Self::new(phrase::of("network.create", params), reason, hint)
    }

    /// The user said no, or there was nobody to ask.
    pub fn not_confirmed(asked: impl Into<String>, reason: &str) -> Self {
        Self::new(asked, reason, "use `--yes` to do it without being asked, or `--dry-run` to see what it would do")
    }

    /// The failure of a call.
    pub fn of_call(ask: &Ask, error: &ClientError) -> Self {
        Self::of_method(ask.method, &Value::Object(ask.params.clone()), error)
    }

    /// The failure of a call of any method with these params.
    pub fn of_method(method: &str, params: &Value, error: &ClientError) -> Self {
        let asked = match error {
            ClientError::Lost { .. } | ClientError::TimedOut { .. } => phrase::in_doubt(method, params),
            ClientError::Rpc(error) if error.is_in_doubt() => phrase::in_doubt(method, params),
            _ => phrase::of(method, params),
        };
        let unreachable =
            |reason: String, hint: String| Self { exit: Exit::Unreachable, ..Self::new(&*asked, reason, hint) };
        match error {
            ClientError::Rpc(error) => {
                // The server checks arguments, and answers every client in the same words.
                let is_usage = ErrorKind::from_word(&error.kind) == Some(ErrorKind::InvalidArgument);
                let exit = if is_usage { Exit::Usage } else { Exit::Failed };
                let refused = Some(Box::new(error.clone()));
                Self {
                    exit,
                    refused,
                    ..Self::new(&*asked, obstacle_of(error, &asked), hint::of(method, params, error))
                }
            }
            ClientError::Connect { address, cause } => unreachable(
                format!("no server at `{address}`: {cause}"),
                "start one with `allod serve`, or name another by `--server HOST:PORT` or ALLOD_SERVER".to_owned(),
            ),
            ClientError::NotSent { cause } => unreachable(
                format!("the request was not sent: {cause}"),
                "report this, with the output of `allod --version`".to_owned(),
            ),
            ClientError::Lost { cause } => {
                unreachable(format!("the server was lost: {cause}"), hint::after_lost(method, params))
            }
            ClientError::TimedOut { seconds, .. } => unreachable(
                format!("no answer within {seconds} s"),
                format!("{}; `--timeout DURATION` waits longer", hint::after_lost(method, params)),
            ),
            // If a repeat was refused, that says nothing about the first attempt. Otherwise the cause is all that is known.
            ClientError::Unknown { cause, .. } if cause.rpc().is_some_and(is_certain) => {
                unreachable(format!("the answer was lost, and a repeat was refused: {cause}"), hint::look(method))
            }
            ClientError::Unknown { cause, .. } => Self::of_method(method, params, cause),
            ClientError::NotForClient { .. } => Self::new(
                &*asked,
                "it is about one connection, and a command makes as many as it needs",
                "`allod watch` shows events; `allod cluster locate NETWORK` shows which node serves a network",
            ),
            ClientError::Malformed { cause } => unreachable(
                format!("the answer is no JSON-RPC: {cause}"),
                "see whether an allod server listens there: `allod server info --server HOST:PORT`".to_owned(),
            ),
        }
    }

    /// The lines for stderr, without colour.
    pub fn text(&self) -> String {
        self.styled(None, Style::new(), Style::new())
    }

    /// What was asked, and what stands in the way.
    fn said(&self) -> String {
        if self.asked.is_empty() { self.reason.clone() } else { format!("cannot {}: {}", self.asked, self.reason) }
    }

    /// The lines, wrapped to `width` columns, with the leading words in these styles.
    fn styled(&self, width: Option<usize>, error: Style, hint: Style) -> String {
        let paragraph = |word: &str, style: Style, words: &str| {
            let lines = fitted(&format!("{word} {words}"), width);
            format!("{style}{word}{style:#}{}\n", lines.strip_prefix(word).unwrap_or(&lines))
        };
        let said = paragraph("allod:", error, &self.said());
        if self.hint.is_empty() { said } else { format!("{said}\n{}", paragraph("hint:", hint, &self.hint)) }
    }

    /// The line for programs: the protocol's error as the server sent it, or only a message if the command failed by itself;
    /// and the hint, if there is one.
    pub fn json(&self) -> String {
        let by_itself = || json!({"message": self.said()});
        let mut told = json!({"error": self.refused.as_ref().map_or_else(by_itself, |refused| refused.to_value())});
        if !self.hint.is_empty() {
            told["hint"] = json!(self.hint);
        }
        if let Some(made) = self.changes_made {
            told["changes_made"] = json!(made);
        }
        format!("{told}\n")
    }

    /// Prints the failure to stderr, as JSON if answers are printed as JSON.
    pub fn print_as(&self, format: Format) {
        match format {
            Format::Json => printed(self.json()),
            Format::Table | Format::Env | Format::Toml | Format::Yaml => self.print(),
        }
    }

    /// Prints the failure to stderr, in colour and wrapped to the terminal. Errors are ignored if stderr is gone.
    pub fn print(&self) {
        let (error, hint) = (AnsiColor::Red.on_default().bold(), AnsiColor::Cyan.on_default().bold());
        printed(self.styled(words::width(), error, hint));
    }
}

/// Prints why a command failed. In a journal that is an error: a unit ended by it, or its reload was refused.
fn printed(text: String) {
    let _ = anstream::stderr().write_all(&journal::for_stderr(Priority::Error, text));
}

/// Does a refusal say that its try changed nothing?
fn is_certain(error: &RpcError) -> bool {
    match ErrorKind::from_word(&error.kind) {
        Some(ErrorKind::Unavailable) => error.data.get("applied") == Some(&Value::Bool(false)),
        _ => !error.is_in_doubt(),
    }
}

/// The obstacle: the message, or a shorter one if the facts contain everything.
fn obstacle_of(error: &RpcError, asked: &str) -> String {
    let held_by = error.data.get("held_by");
    let fact = |name: &str| held_by.and_then(|held| held.get(name)).and_then(Value::as_str);
    if error.kind == "already_in_use"
        && error.message.ends_with(HELD_BY_ANOTHER)
        && let (Some(owner), Some(since)) = (fact("owner"), fact("since"))
    {
        let of_scope = fact("scope").filter(|&scope| scope != "default");
        let of_scope = of_scope.map_or_else(String::new, |scope| format!(" of scope `{scope}`"));
        let used_by = fact("claimant").map_or_else(String::new, |claimant| format!(", used by `{claimant}`"));
        // If several were asked for, it says which one.
        let data = |name: &str| error.data.get(name).map(text_of);
        let instance = data("instance").map(|instance| format!("instance `{instance}`: "));
        let which = instance.or_else(|| data("index").map(|index| format!("ips[{index}]: ")));
        let address = data("address").unwrap_or_default();
        // What was asked may name the address already, as for a claim; for a gateway that is to be set it does not.
        let is_named = address.is_empty() || (which.is_none() && asked.contains(&format!("`{address}`")));
        let is = if is_named { String::new() } else { format!("{}{address} is ", which.unwrap_or_default()) };
        return format!("{is}held by `{owner}`{of_scope} since {since}{used_by}");
    }
    match (error.message.is_empty(), error.kind.is_empty()) {
        (false, _) => error.message.clone() + &where_in_use(error) + &next_free(error) + &pools_of(error),
        (true, false) => format!("refused as `{}`", error.kind),
        (true, true) => format!("refused with code {}", error.code),
    }
}

/// The reservation that is in the way, for example of a MAC, if the message does not name it.
fn where_in_use(error: &RpcError) -> String {
    let fact = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let owner = error.data.get("held_by").and_then(|held| fact(held, "owner"));
    match (fact(&error.data, "address"), owner) {
        (Some(address), Some(owner)) if error.kind == "already_in_use" && !error.message.contains(&address) => {
            format!(": {address}, which `{owner}` holds")
        }
        _ => String::new(),
    }
}

/// When an address becomes free by itself, if there is no capacity and one is cooling, declined or leased.
fn next_free(error: &RpcError) -> String {
    match error.data.get("next_free_at") {
        Some(at) if error.kind == "not_enough_capacity" => format!("; the next one is free at {}", text_of(at)),
        _ => String::new(),
    }
}

/// If there is no capacity: a line for each pool about what takes its space.
fn pools_of(error: &RpcError) -> String {
    let count = |pool: &Value, name: &str| pool.get(name).map(text_of).unwrap_or_default();
    let line = |pool: &Value| {
        let taken: Vec<String> = ["reserved", "cooling", "declined"]
            .into_iter()
            .filter(|name| pool.get(*name).and_then(number_of).unwrap_or(0) > 0)
            .map(|name| format!(", {} {name}", count(pool, name)))
            .collect();
        let range = count(pool, "range");
        let range = range.parse::<Range>().ok().and_then(Range::as_cidr).map_or(range, |cidr| cidr.to_string());
        format!("\n  pool {range}: {} of {} held{}", count(pool, "held"), count(pool, "size"), taken.concat())
    };
    let pools = error.data.get("pools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let more = pools.len().saturating_sub(POOLS_MAX);
    let more = if more > 0 { format!("\n  and {} more", counted(more, "pool")) } else { String::new() };
    pools.iter().take(POOLS_MAX).map(line).collect::<String>() + &more
}

/// A command that the system lets have no runtime, thread or handler of signals.
pub fn of_start(error: &io::Error) -> Failure {
    Failure::new("start", error.to_string(), "`ulimit -a` shows the limits, which a service has from its unit file")
}

/// A failure of the output. `None` if the reader of our output hung up: that ends a command quietly.
pub fn of_output(error: &io::Error) -> Option<Failure> {
    (error.kind() != io::ErrorKind::BrokenPipe).then(|| {
        Failure::new("write the output", error.to_string(), "free some space, or choose another file with `>`")
    })
}
