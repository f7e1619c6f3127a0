//! Malformed requests: whatever comes in, the parser answers in the protocol's terms.

use serde_json::value::RawValue;

use super::examples::EXAMPLES;
use super::mutation::Fuzzer;
use crate::limits;
use crate::wire::answer::write_error;
use crate::wire::envelope::{self, CallOrRefused, Id};
use crate::wire::{ErrorKind, Message, RpcError, parse};

/// Requests as they are sent: one of each method, and batches of some.
fn corpus() -> Vec<String> {
    let line = |(at, (method, params, _)): (usize, &(&str, &str, &str))| {
        format!(r#"{{"jsonrpc":"2.0","id":{at},"method":"{method}","params":{params}}}"#)
    };
    let mut lines: Vec<String> = EXAMPLES.iter().enumerate().map(line).collect();
    let batches: Vec<String> = lines.chunks(7).map(|some| format!("[{}]", some.join(","))).collect();
    lines.extend(batches);
    lines.push(r#"{"jsonrpc":"2.0","method":"ip.release","params":{"network":"lan","owner":"ä\u00e4\""}}"#.to_owned());
    lines.push(r#" { "jsonrpc" : "2.0" , "id" : "a\u0000b" , "method" : "server.ping" } "#.to_owned());
    lines
}

/// An answer with an error, as a client reads it.
#[derive(serde::Deserialize)]
struct ErrorRead<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    error: RpcError,
}

/// Checks an error from a parser: its kind is one that a text alone can cause, it has a message, and it can be written as
/// one line that a client reads as it was meant.
fn check_error(error: &RpcError, id: Option<&Id>) {
    use ErrorKind::{InvalidArgument, InvalidRequest, MethodNotFound, ParseError};
    assert!(matches!(error.kind(), ParseError | InvalidRequest | MethodNotFound | InvalidArgument), "{error:?}");
    assert_eq!(error.code, error.kind().code());
    assert!(!error.message.trim().is_empty() && error.message.len() < 4_096, "{error:?}");
    let Some(id) = id else { return };
    let mut line = Vec::new();
    write_error(&mut line, id, error).unwrap();
    assert!(!line.contains(&b'\n'), "{}", String::from_utf8_lossy(&line));
    let line = String::from_utf8(line).unwrap();
    let read: ErrorRead<'_> = serde_json::from_str(&line).unwrap();
    assert_eq!(&read.error, error);
    assert_eq!(read.id.map(|id| id.get()), (id.as_json() != "null").then(|| id.as_json()));
}

/// If it is a request, it can be written and read again as the same one.
fn check_entry(entry: &CallOrRefused<'_>) -> bool {
    let call = match entry {
        Ok(call) => call,
        Err(refused) => {
            check_error(&refused.error, refused.id.as_ref());
            return false;
        }
    };
    match parse(&call.method, call.params) {
        Ok(request) => {
            let json = request.params_json().unwrap();
            assert_eq!(request.method().name(), call.method);
            assert_eq!(parse(&call.method, &json).as_ref(), Ok(&request), "written as {json}");
            true
        }
        Err(error) => {
            check_error(&error, call.id.as_ref());
            false
        }
    }
}

/// Whatever is read in one pass is the same as what is found in two.
fn check_one_pass(text: &str) {
    let Some(read) = envelope::read(text.as_bytes()) else { return };
    let Message::Single(Ok(call)) = envelope::parse(text.as_bytes()) else { panic!("no request: {text}") };
    assert_eq!(read, (call.id, parse(&call.method, call.params).unwrap()), "{text}");
}

/// Is every entry of it a request?
fn check_line(text: &str) -> bool {
    check_one_pass(text);
    match envelope::parse(text.as_bytes()) {
        Message::Blank => {
            assert!(text.trim_matches([' ', '\t', '\r', '\n']).is_empty());
            false
        }
        Message::Single(entry) => check_entry(&entry),
        Message::Batch(entries) => {
            assert!((1..=limits::RPC_BATCH_MEMBERS_MAX).contains(&entries.len()));
            entries.iter().filter(|entry| check_entry(entry)).count() == entries.len()
        }
    }
}

#[test]
fn fuzzing_the_parser_of_requests_finds_no_panic() {
    Fuzzer::over(corpus()).run(check_line);
}

#[test]
fn what_clients_send_is_read_in_one_pass() {
    for (method, params, _) in EXAMPLES {
        for (id, text) in [(Some("7"), r#""id":7,"#), (None, "")] {
            let line = format!(r#"{{"jsonrpc":"2.0",{text}"method":"{method}","params":{params}}}"#);
            if *method == "claimant.sweep" {
                // Its `max_share` is a fraction, and those are left to serde_json.
                assert_eq!(envelope::read(line.as_bytes()), None);
                continue;
            }
            let (read, request) = envelope::read(line.as_bytes()).expect(&line);
            assert_eq!((read.as_ref().map(Id::as_json), request.method().name()), (id, *method));
            check_one_pass(&line);
        }
    }
}

#[test]
fn what_is_not_read_in_one_pass_is_left_to_two() {
    for line in [
        r#"{"jsonrpc":"2.0","id":7,"params":{},"method":"server.ping"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"server.ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"server.ping","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"server.ping","params":[]}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"server.ping","params":{},"params":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"server.ping","params":{"a":1}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"server.pong","params":{}}"#,
        r#"{"id":7,"method":"server.ping","params":{}}"#,
        r#"[{"jsonrpc":"2.0","id":7,"method":"server.ping","params":{}}]"#,
        "",
    ] {
        assert_eq!(envelope::read(line.as_bytes()), None, "{line}");
    }
}

/// Nesting deeper than any stack, wherever a value may stand, is skipped or refused without recursion.
#[test]
fn deep_nesting_is_refused_wherever_it_stands() {
    const DEPTH: usize = 200_000;
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let deep = open.repeat(DEPTH) + "1" + &close.repeat(DEPTH);
        let cut = open.repeat(DEPTH);
        for value in [&deep, &cut] {
            for line in [
                value.clone(),
                format!(r#"{{"jsonrpc":"2.0","id":{value},"method":"ip.get"}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":{value}}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ip.get","params":{value}}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ip.get","params":{{"x":{value}}}}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ip.get","params":{{"address":{value}}}}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ip.acquire","params":{{"owner":"a","ips":{value}}}}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ip.allocate","params":{{"labels":{value}}}}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"network.create","params":{{"subnets":{value}}}}}"#),
                format!(r#"[{{"jsonrpc":"2.0","id":1,"method":"ip.get","extra":{value}}}]"#),
            ] {
                assert!(!check_line(&line), "accepted: {}…", &line[..100]);
            }
        }
    }
}

#[test]
fn numbers_beyond_their_bounds_are_refused() {
    let huge = "9".repeat(100_000);
    for number in ["1e400", "-1", "1.5", "18446744073709551616", "9007199254740992", "1e19", &huge, "-1e-400"] {
        for (method, member) in [
            ("ip.allocate", r#""network":"lan","owner":"a","ttl_seconds""#),
            ("ip.allocate", r#""network":"lan","owner":"a","prefix_length""#),
            ("ip.allocate", r#""network":"lan","owner":"a","deadline_ms""#),
            ("ip.release", r#""network":"lan","address":"10.0.0.1","if_generation""#),
            ("ip.list", r#""limit""#),
            ("network.create", r#""name":"lan","cooldown_seconds""#),
        ] {
            let error = parse(method, &format!("{{{member}:{number}}}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{member}: {number}");
            check_error(&error, Some(&Id::NULL));
        }
    }
    // An id is echoed, and never used as a number.
    let line = format!(r#"{{"jsonrpc":"2.0","id":{huge},"method":"server.ping"}}"#);
    assert!(check_line(&line));
}
