//! What an error of Redis means.
//!
//! Every error belongs to one of three classes. *Not applied*: Redis refuses the command before a script begins (`NOSCRIPT`,
//! `LOADING`, `BUSY`, `OOM`, `READONLY`, …), or there was no connection. *Unknown*: the connection broke, or no answer came
//! in time, after the command may have been sent; it may even run later, on the old connection. The third class is an error
//! inside a script: scripts do not roll back, so the outcome is unknown whatever the code.

use std::sync::Arc;

use redis::RedisError;

use super::refusal::WayRefusal;
use super::scripts::ScriptCall;
use crate::store::{CommitError, StoreError};

#[derive(Debug, Clone)]
pub(super) enum Failed {
    /// Certainly nothing was done.
    NotApplied(StoreError),
    /// Nobody knows whether it was done.
    Unknown(StoreError),
}

impl Failed {
    /// The same class with another error.
    pub(super) fn map(self, told: impl FnOnce(StoreError) -> StoreError) -> Self {
        match self {
            Self::NotApplied(error) => Self::NotApplied(told(error)),
            Self::Unknown(error) => Self::Unknown(told(error)),
        }
    }

    pub(super) fn into_error(self) -> StoreError {
        let (Failed::NotApplied(error) | Failed::Unknown(error)) = self;
        error
    }
}

impl From<Failed> for CommitError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotApplied(cause) => CommitError::NotApplied { cause },
            Failed::Unknown(cause) => CommitError::Unknown { cause },
        }
    }
}

/// Must the connection be replaced? It broke, or leads to a server that is not a primary, is not ready yet, or does not have
/// the slot.
pub(super) fn is_over(error: &RedisError) -> bool {
    error.code().is_none_or(|code| ["READONLY", "MASTERDOWN", "LOADING", "MOVED", "CLUSTERDOWN"].contains(&code))
}

/// Number of digits in the hash that identifies a script.
const SHA_DIGITS: usize = 40;

/// Codes with which Redis refuses a command before it begins. A command inside a running script may be refused with the same
/// codes.
const NOT_BEGUN: [&str; 15] = [
    "NOSCRIPT",
    "LOADING",
    "BUSY",
    "READONLY",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "NOAUTH",
    "NOPERM",
    "EXECABORT",
];

/// Was it raised by a running script? Then Redis names the script and the place in it. Whatever the script wrote before
/// stays written.
fn is_inside_script(error: &RedisError) -> bool {
    let text = error.detail().unwrap_or_default();
    text.match_indices(" script: ").any(|(at, mark)| {
        let named = text[at + mark.len()..].bytes();
        named.take_while(u8::is_ascii_hexdigit).count() >= SHA_DIGITS
    })
}

/// Did Redis refuse it because the user lacks a right? Inside a script Redis says neither which user nor which command.
pub(super) fn is_denied(error: &RedisError) -> bool {
    // For several commands sent together only the text says it.
    let text = error.to_string();
    let said = ["NoPerm", "NOPERM", "The user executing the script can't", "ACL failure in script"];
    said.iter().any(|words| text.contains(words))
}

/// Does Redis refuse this command as often as it is asked: because the user lacks a right, or because it has no such command?
/// A server that is only starting or busy answers with another code.
pub(super) fn is_refused(error: &RedisError) -> bool {
    is_denied(error) || error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::ResponseError)
}

/// Did Redis refuse the user or password in the URL, or does it have no database with that number?
pub(super) fn is_misnamed(error: &RedisError) -> bool {
    let text = error.to_string();
    let said = ["DB index is out of range", "SELECT is not allowed"];
    said.iter().any(|words| text.contains(words)) || lets_nobody_in(error)
}

/// Does it want another user or password than those in the URL?
pub(super) fn lets_nobody_in(error: &RedisError) -> bool {
    let text = error.to_string();
    let said = ["WRONGPASS", "NOAUTH", "AuthenticationFailed"];
    said.iter().any(|words| text.contains(words)) || error.kind() == redis::ErrorKind::AuthenticationFailed
}

/// The user in the URL is not let in at a server. The client library does not pass on the server's own words, which name
/// neither user nor address.
pub(super) fn not_let_in(user: Option<&str>, at: &redis::ConnectionAddr) -> RedisError {
    let who = user.map_or_else(
        || "user `default` (`store.redis` names none)".to_owned(),
        |user| format!("user `{user}` (of `store.redis`)"),
    );
    let text = format!("{who} is not let in at {at}: set the password there, or in `store.redis`");
    // The same code that Redis uses, so that the caller knows that trying again is useless.
    redis::make_extension_error("NOAUTH".to_owned(), Some(text))
}

/// Explains an error of a script: if a right is missing, which user needs which right.
pub(super) fn of_script(error: RedisError, call: &ScriptCall) -> RedisError {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) if is_denied(&error) => {
            let told = format!("{}. Redis says: {detail}", call.rights());
            redis::make_extension_error(code.to_owned(), Some(told))
        }
        _ => error,
    }
}

/// The error of a read by this user.
pub(super) fn of_reading(error: &RedisError, user: &str, name: &Arc<str>) -> StoreError {
    let lacks = format!("user `{user}` lacks a right (`ACL SETUSER {user} +COMMAND` gives it)");
    with_right(error, store_error("reading from", name, error), &lacks)
}

/// An error, with the missing right if that is the reason.
fn with_right(error: &RedisError, told: StoreError, lacks: &str) -> StoreError {
    match told {
        StoreError::Io { context, source } if is_denied(error) => {
            let told = format!("{lacks}: {source}");
            StoreError::Io { context, source: Arc::new(std::io::Error::new(source.kind(), told)) }
        }
        other => other,
    }
}

pub(super) fn classify(error: &RedisError, name: &Arc<str>) -> Failed {
    match error.code() {
        _ if is_inside_script(error) => Failed::Unknown(store_error("asking", name, error)),
        Some("OOM") => Failed::NotApplied(StoreError::Full),
        Some(code) if NOT_BEGUN.contains(&code) => Failed::NotApplied(store_error("asking", name, error)),
        Some(_) | None => Failed::Unknown(store_error("asking", name, error)),
    }
}

pub(super) fn store_error(doing: &str, name: &Arc<str>, error: &RedisError) -> StoreError {
    let context = format!("{doing} Redis at {name}").into();
    if let Some(refusal) = WayRefusal::of(error) {
        let kind = if refusal.is_for_good() { std::io::ErrorKind::PermissionDenied } else { std::io::ErrorKind::Other };
        return StoreError::Io { context, source: Arc::new(std::io::Error::new(kind, refusal.clone())) };
    }
    if let Some(moves) = of_moving_slot(&said(error)) {
        return moving(context, moves);
    }
    // In one sentence: the error repeats its own cause.
    let for_good = is_denied(error) || is_misnamed(error);
    let kind = if for_good { std::io::ErrorKind::PermissionDenied } else { std::io::ErrorKind::Other };
    let source = std::io::Error::new(kind, said(error));
    StoreError::Io { context, source: Arc::new(source) }
}

/// A slot is being moved, and the data may be on either side.
pub(super) fn moving(context: Arc<str>, why: String) -> StoreError {
    StoreError::Io { context, source: Arc::new(std::io::Error::new(std::io::ErrorKind::ResourceBusy, why)) }
}

/// Does this error say that a slot is being moved?
pub(super) fn is_moving(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::ResourceBusy)
}

/// What Redis says while it moves a slot key by key (ASK, TRYAGAIN), for people. It does not say which server gives the slot
/// away.
fn of_moving_slot(said: &str) -> Option<String> {
    let said = said.trim_start_matches('"');
    if let Some((slot, to)) = said.strip_prefix("Ask: ").and_then(|rest| rest.split_once(' ')) {
        return Some(format!("slot {slot} of the Redis cluster is being moved to {to}"));
    }
    said.starts_with("TryAgain: ")
        .then(|| "the slot of the register is being moved to another server of the Redis cluster".into())
}

/// The words of an error. For several commands sent together, the first error says all there is to say. The remark that the
/// client library found the error is dropped, and so is the code of errors that concern a sentinel or a user who is not let in.
pub(super) fn said(error: &RedisError) -> String {
    let text = error.to_string();
    // rustls adds the address of an explanation on the web.
    let text = text.split_once(": https://").map_or(text.as_str(), |(words, _)| words);
    let of_first = text.strip_prefix("Pipeline failure").and_then(|rest| rest.split_once(", error: "));
    let first = of_first.map(|(_, rest)| rest.split_once("), (Index ").map_or(rest, |(first, _)| first));
    let text = first.map_or(text, |first| first.trim_end_matches(")]")).trim_end_matches(" - Client");
    let own = text
        .strip_prefix("\"NOAUTH\": ")
        .filter(|told| ["the sentinel ", "user `"].iter().any(|by| told.starts_with(by)));
    // The client library adds this to the server's words.
    own.unwrap_or(text).replacen(" - Client: ", " ", 1)
}

/// The error of making a connection, for this user.
pub(super) fn of_connecting(doing: &str, error: &RedisError, user: &str, name: &Arc<str>) -> StoreError {
    let lacks = format!(
        "user `{user}` lacks a right that each connection needs (+ping +role +script|load +evalsha and more: \
         deploy/README.md has the whole line, under \"Redis\")"
    );
    with_right(error, store_error(doing, name, error), &lacks)
}

pub(super) fn timed_out(doing: &str, name: &Arc<str>) -> StoreError {
    let source = Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
    StoreError::Io { context: format!("{doing} Redis at {name}").into(), source }
}

/// An answer that no server of ours gives.
pub(super) fn strange(name: &Arc<str>, what: &str) -> StoreError {
    let source = Arc::new(std::io::Error::other(what.to_owned()));
    StoreError::Io { context: format!("understanding Redis at {name}").into(), source }
}

/// An answer that no script of ours gives.
pub(super) fn strange_script(name: &Arc<str>) -> StoreError {
    strange(name, "the script answered something else")
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn class(refused: &str) -> Failed {
        let answer = redis::parse_redis_value(format!("-{refused}\r\n").as_bytes());
        classify(&answer.and_then(Value::extract_error).unwrap_err(), &"redis".into())
    }

    #[test]
    fn what_redis_refuses_while_a_slot_is_moved_is_told_as_that() {
        let told = |refused| match class(refused).into_error() {
            StoreError::Io { source, .. } => source.to_string(),
            error => panic!("{error}"),
        };
        let asked = told("ASK 15441 10.82.0.24:6379");
        assert!(asked.ends_with("slot 15441 of the Redis cluster is being moved to 10.82.0.24:6379"), "{asked}");
        let asked = told("TRYAGAIN Multiple keys request during rehashing of slot");
        assert!(asked.ends_with("is being moved to another server of the Redis cluster"), "{asked}");
        assert!(is_moving(&class("ASK 1 h:1").into_error()) && !is_moving(&class("BUSY no").into_error()));
    }

    /// The wording of several versions of Redis. Some report a command refused inside a script with the code of a refused call.
    #[test]
    fn only_what_was_refused_before_a_script_began_was_not_applied() {
        let inside = " script: 5a0222b015ea20cb7a0d3c13dfd08e991b619f5b, on @user_script:206.";
        for refused in [
            "NOPERM User allod has no permissions to run the 'evalsha' command",
            "NOSCRIPT No matching script. Please use EVAL.",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "READONLY You can't write against a read only replica.",
            "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
        ] {
            assert!(matches!(class(refused), Failed::NotApplied(_)), "{refused}");
            assert!(matches!(class(&format!("{refused}{inside}")), Failed::Unknown(_)), "{refused}, inside a script");
        }
        for refused in [
            "ERR The user executing the script can't run this command or subcommand",
            "NOPERM ACL failure in script: User allod has no permissions to run the 'zadd' command",
            "ERR Error running script (call to f_5a0222b015ea20cb7a0d3c13dfd08e991b619f5b)",
        ] {
            assert!(matches!(class(&format!("{refused}{inside}")), Failed::Unknown(_)), "{refused}");
        }
    }
}
