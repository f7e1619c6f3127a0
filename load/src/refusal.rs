//! A refusal, read slowly: what kind it is, and whether anybody knows that nothing happened.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::audit::Rule;

/// What a full pool says.
const WANT_OF_ROOM: &str = "not_enough_capacity";
/// What a script says whose pool is empty.
pub const NONE_LEFT: &str = "none left";
/// What is neither a result nor an error.
const UNREADABLE: &str = "unreadable";

/// What the server refused, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// As PROTOCOL names it, or `code -32…` where the server names none.
    pub kind: String,
    /// It may have taken effect all the same.
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
    /// Reads an answer that is no result.
    pub fn read(line: &[u8]) -> Self {
        let Ok(Line { error }) = serde_json::from_slice::<Line>(line) else {
            return Self::unreadable(line);
        };
        let unknown = error.data.as_ref().is_some_and(|data| data.applied == "unknown");
        let kind = error.data.and_then(|data| data.kind).unwrap_or_else(|| format!("code {}", error.code));
        Self { kind, unknown, message: error.message }
    }

    /// A line that is no answer.
    pub fn unreadable(line: &[u8]) -> Self {
        let message = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
        Self { kind: UNREADABLE.to_owned(), unknown: true, message }
    }

    /// What stands in the place of an answer that did not come.
    pub fn unanswered() -> Self {
        Self { kind: "unanswered".to_owned(), unknown: true, message: String::new() }
    }

    /// The rule that it breaks where it says that the request was wrong, or the server is: the requests of the load are right.
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

/// Refusals by kind: how many, and what the first of each said.
#[derive(Debug, Default)]
pub struct Refusals {
    pub counts: BTreeMap<String, u64>,
    pub examples: BTreeMap<String, String>,
}

impl Refusals {
    /// Notes one.
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

/// Is it what a full pool says?
pub fn is_for_room(kind: &str) -> bool {
    [WANT_OF_ROOM, NONE_LEFT].contains(&kind)
}

/// Of these, how many say something else than that there is no room.
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
