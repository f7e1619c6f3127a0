//! Parses a refusal on the slow path: its kind, and whether the request is known not to have taken effect.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::audit::Rule;

/// The kind of a refusal from a full pool.
const WANT_OF_ROOM: &str = "not_enough_capacity";
/// The answer of a Redis script whose pool is empty.
pub const NONE_LEFT: &str = "none left";
/// The kind of a line that is neither a result nor an error.
const UNREADABLE: &str = "unreadable";

/// A refusal in the server's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind as in PROTOCOL, or `code -32…` if the server names none.
    pub kind: String,
    /// The request may have taken effect all the same.
    pub unknown: bool,
    pub message: String,
}

#[derive(Deserialize)]
struct Line {
    error: LineError,
}

#[derive(Deserialize)]
struct LineError {
    code: i64,
    #[serde(default)]
    message: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    kind: Option<String>,
    #[serde(default)]
    applied: serde_json::Value,
}

impl Refusal {
    /// Reads an answer that is not a result.
    pub fn read(line: &[u8]) -> Self {
        let Ok(Line { error }) = serde_json::from_slice::<Line>(line) else {
            return Self::unreadable(line);
        };
        let unknown = error.data.as_ref().is_some_and(|data| data.applied == "unknown");
        let kind = error.data.and_then(|data| data.kind).unwrap_or_else(|| format!("code {}", error.code));
        Self { kind, unknown, message: error.message }
    }

    /// The refusal that stands for a line which is not an answer.
    pub fn unreadable(line: &[u8]) -> Self {
        let message = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
        Self { kind: UNREADABLE.to_owned(), unknown: true, message }
    }

    /// The refusal that stands for an answer which did not come.
    pub fn unanswered() -> Self {
        Self { kind: "unanswered".to_owned(), unknown: true, message: String::new() }
    }

    /// The rule that this refusal breaks, if any: the requests of the load are valid, so the server must neither call them
    /// wrong nor report an internal error.
    pub fn breaks(&self) -> Option<Rule> {
        match self.kind.as_str() {
            UNREADABLE => Some(Rule::AnswersOnce),
            "invalid_argument" | "invalid_request" | "method_not_found" | "parse_error" | "internal" => {
                Some(Rule::RefusesNothingRight)
            }
            _ => None,
        }
    }
}

/// The number of refusals of each kind, and the message of the first.
#[derive(Debug, Default)]
pub struct Refusals {
    pub counts: BTreeMap<String, u64>,
    pub examples: BTreeMap<String, String>,
}

impl Refusals {
    /// Counts a refusal.
    pub fn note(&mut self, refusal: &Refusal) {
        match self.counts.get_mut(&refusal.kind) {
            Some(count) => *count += 1,
            None => {
                self.counts.insert(refusal.kind.clone(), 1);
                self.examples.insert(refusal.kind.clone(), refusal.message.clone());
            }
        }
    }
}

/// Is this the kind of a refusal from a full pool?
pub fn is_for_room(kind: &str) -> bool {
    [WANT_OF_ROOM, NONE_LEFT].contains(&kind)
}

/// The number of refusals for any other reason than a full pool.
pub fn not_for_room(counts: &BTreeMap<String, u64>) -> u64 {
    counts.iter().filter(|(kind, _)| !is_for_room(kind)).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_its_kind_and_whether_it_took_effect() {
        let read = |text: &str| Refusal::read(text.as_bytes());
        let full = read(r#"{"id":0,"error":{"code":-32004,"message":"full","data":{"kind":"not_enough_capacity"}}}"#);
        assert_eq!((full.kind.as_str(), full.unknown, full.breaks()), (WANT_OF_ROOM, false, None));
        let lost =
            read(r#"{"id":0,"error":{"code":-32020,"message":"","data":{"kind":"unavailable","applied":"unknown"}}}"#);
        assert!(lost.unknown && lost.breaks().is_none());
        let known =
            read(r#"{"id":0,"error":{"code":-32020,"message":"","data":{"kind":"unavailable","applied":false}}}"#);
        assert!(!known.unknown);
        assert_eq!(read(r#"{"id":0,"error":{"code":-32603,"message":""}}"#).kind, "code -32603");
        assert_eq!(read("{}").breaks(), Some(Rule::AnswersOnce));
        let mut refusals = Refusals::default();
        [&full, &lost, &lost].into_iter().for_each(|refusal| refusals.note(refusal));
        assert_eq!(not_for_room(&refusals.counts), 2);
        assert_eq!(refusals.examples[WANT_OF_ROOM], "full");
    }
}
