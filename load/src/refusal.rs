//! A refusal, read slowly: what kind it is, and whether anybody knows that nothing happened.

use serde::Deserialize;

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
            let message = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
            return Self { kind: "unreadable".to_owned(), unknown: true, message };
        };
        let unknown = error.data.as_ref().is_some_and(|data| data.applied == "unknown");
        let kind = error.data.and_then(|data| data.kind).unwrap_or_else(|| format!("code {}", error.code));
        Self { kind, unknown, message: error.message }
    }

    /// Does it say that the request was wrong, or the server is? The requests of the load are right.
    pub fn is_fault(&self) -> bool {
        let kinds =
            ["invalid_argument", "invalid_request", "method_not_found", "parse_error", "internal", "unreadable"];
        kinds.contains(&self.kind.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_its_kind_and_whether_it_took_effect() {
        let read = |text: &str| Refusal::read(text.as_bytes());
        let full = read(r#"{"id":0,"error":{"code":-32004,"message":"full","data":{"kind":"not_enough_capacity"}}}"#);
        assert_eq!((full.kind.as_str(), full.unknown, full.is_fault()), ("not_enough_capacity", false, false));
        let lost =
            read(r#"{"id":0,"error":{"code":-32020,"message":"","data":{"kind":"unavailable","applied":"unknown"}}}"#);
        assert!(lost.unknown && !lost.is_fault());
        let known =
            read(r#"{"id":0,"error":{"code":-32020,"message":"","data":{"kind":"unavailable","applied":false}}}"#);
        assert!(!known.unknown);
        assert_eq!(read(r#"{"id":0,"error":{"code":-32603,"message":""}}"#).kind, "code -32603");
        assert!(read("{}").is_fault());
    }
}
