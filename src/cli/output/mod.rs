//! Prints answers for people or programs: tables, JSON, shell assignments.
//!
//! All of this is data and goes to stdout; messages go to stderr, with `words`.

mod deployments;
pub mod env;
pub mod events;
pub mod json;
pub mod map;
mod show;
pub mod table;
pub mod words;

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use clap::ValueEnum;
use serde_json::Value;

use crate::core::address::{Family, Range};

pub use show::{
    add_reservation, has_owner, held_address, labels, list, network, reservation_rows, reservation_table, space, usage,
    without_plain_columns,
};

/// How answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// The answer as the protocol has it, indented
    Json,
    /// Shell assignments, safe to `eval`: IP_0, NETWORK_SUBNET_0, …
    Env,
    /// A network file (`network dump`)
    #[value(hide = true)]
    Toml,
    /// A network file (`network dump`)
    #[value(hide = true)]
    Yaml,
}

/// The format and width of the output.
#[derive(Debug, Clone, Default)]
pub struct Style {
    /// The format.
    pub format: Format,
    /// Prefix for the variables of `env`.
    pub prefix: String,
    /// The number of columns; none: unlimited.
    pub width: Option<usize>,
}

impl Style {
    /// The style for this process's stdout: as wide as its terminal, or unlimited if it is not a terminal.
    pub fn of_stdout(format: Format, prefix: String) -> Self {
        let width = io::stdout().is_terminal().then(|| columns_of(io::stdout()).unwrap_or(COLUMNS_PLAIN));
        Self { format, prefix, width }
    }

    /// The answer to `method` in this style, ready to be printed.
    pub fn render(&self, method: &str, params: &Value, result: &Value) -> String {
        match self.format {
            Format::Table => show::render(method, params, result, self.width),
            // Toml and Yaml are refused before any call; if one came here all the same, it would be data.
            Format::Json | Format::Toml | Format::Yaml => format!("{result:#}\n"),
            Format::Env => env::render(result, &self.prefix),
        }
    }
}

/// The width of a terminal that does not report one.
const COLUMNS_PLAIN: usize = 80;

/// The width of a terminal.
fn columns_of(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Why the output could not be written. A type of its own, so that nothing else that fails is told as that.
#[derive(Debug)]
pub struct Unwritten(pub io::Error);

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Self {
        Self(error)
    }
}

/// Prints to stdout, in colour on a terminal.
///
/// # Errors
/// Those of stdout, [`io::ErrorKind::BrokenPipe`] included.
pub fn print(text: &str) -> Result<(), Unwritten> {
    let mut stdout = anstream::stdout();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// A scalar as text without quotes; null is empty, and lists and objects are JSON.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A range in its shortest form: a single address without the repetition, an IPv6 prefix as a prefix.
pub fn short_range(text: &str) -> String {
    match text.parse::<Range>() {
        Ok(range) if range.family() == Family::V6 || range.first() == range.last() => range.as_typed(),
        Ok(_) | Err(_) => text.to_owned(),
    }
}

/// A count, which the protocol writes as a string or a number.
pub fn number_of(value: &Value) -> Option<u128> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64().map(u128::from),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
