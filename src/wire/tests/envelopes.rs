//! Odd lines: what is a request, what is not, and under which id the answer says so.

use crate::wire::envelope::{Call, CallOrRefused, Message, parse};
use crate::wire::errors::ErrorKind;

fn single(line: &str) -> CallOrRefused<'_> {
    match parse(line.as_bytes()) {
        Message::Single(entry) => entry,
        other => panic!("{line}: {other:?}"),
    }
}

fn call(line: &str) -> Call<'_> {
    single(line).unwrap_or_else(|refused| panic!("{line}: {refused:?}"))
}

/// Kind of the refusal, the id to answer with, and the message.
fn refused(line: &str) -> (ErrorKind, String, String) {
    let refused = single(line).expect_err(line);
    let id = refused.id.map_or("none".to_owned(), |id| id.as_json().to_owned());
    (refused.error.kind(), id, refused.error.message)
}

#[test]
fn a_request_is_borrowed_from_its_line() {
    let line = r#" {"jsonrpc":"2.0","id":7,"method":"ip.get","params": {"address":"10.0.0.1"} } "#;
    let found = call(line);
    assert_eq!((found.method.as_ref(), found.params), ("ip.get", r#"{"address":"10.0.0.1"}"#));
    assert!(matches!(found.method, std::borrow::Cow::Borrowed(_)));
    assert_eq!(found.id.unwrap().as_json(), "7");
    // Members in any order; a carriage return at the end; no params at all.
    let found = call("{\"method\":\"a\\u002eb\",\"id\":1,\"jsonrpc\":\"2.0\"}\r");
    assert_eq!((found.method.as_ref(), found.params), ("a.b", "{}"));
}

#[test]
fn an_id_is_echoed_byte_for_byte_and_null_is_an_id() {
    for id in [
        "1",
        "-1",
        "0.5",
        "1e3",
        "12345678901234567890123",
        r#""a""#,
        r#""\u0061\n""#,
        r#""""#,
        "null",
        r#""a string that is longer than fits inline""#,
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        assert_eq!(call(&line).id.unwrap().as_json(), id);
        let line = format!(r#"{{"jsonrpc":"2.0","method":"m","id": {id} }}"#);
        assert_eq!(call(&line).id.unwrap().as_json(), id);
    }
    assert_eq!(call(r#"{"jsonrpc":"2.0","method":"m"}"#).id, None);
}

#[test]
fn what_is_no_json_is_a_parse_error_with_id_null() {
    for line in [
        "hello",
        "{",
        r#"{"jsonrpc":"2.0""#,
        "[1,2",
        "}",
        "nul",
        "{} {}",
        r#"{"id":1,}"#,
        "\u{feff}{}",
        "'a'",
        "01",
        r#"{"jsonrpc":"2.0","id":1,"method":"m"}x"#,
        "\"\u{1}\"",
        "[1][2]",
    ] {
        let (kind, id, message) = refused(line);
        assert_eq!((kind, id.as_str()), (ErrorKind::ParseError, "null"), "{line}: {message}");
    }
    for bytes in [&b"\xff"[..], b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\"}", b"\xed\xa0\x80"] {
        match parse(bytes) {
            Message::Single(Err(refused)) => assert_eq!(refused.error.kind(), ErrorKind::ParseError),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn json_that_is_no_request_is_an_invalid_request_with_the_id_if_it_can_be_read() {
    #[rustfmt::skip]
    let cases = [
        ("1", "null", "a request is an object"),
        ("\"a\"", "null", "a request is an object"),
        ("null", "null", "a request is an object"),
        ("true", "null", "a request is an object"),
        ("{}", "null", "`jsonrpc` is missing"),
        (r#"{"id":5}"#, "5", "`jsonrpc` is missing"),
        (r#"{"jsonrpc":"2.0","id":5}"#, "5", "`method` is missing"),
        (r#"{"id":5,"method":"m"}"#, "5", "`jsonrpc` is missing"),
        (r#"{"jsonrpc":"1.0","id":5,"method":"m"}"#, "5", "`jsonrpc` must be \"2.0\""),
        (r#"{"jsonrpc":2.0,"id":5,"method":"m"}"#, "5", "`jsonrpc` must be \"2.0\""),
        (r#"{"jsonrpc":"2.0","id":5,"method":1}"#, "5", "`method` must be a string"),
        (r#"{"jsonrpc":"2.0","id":5,"method":null}"#, "5", "`method` must be a string"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "null", "`id` must be"),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#, "null", "`id` must be"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, "null", "`id` must be"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"m","extra":1}"#, "5", "`extra` is not a member"),
        (r#"{"extra":1,"jsonrpc":"2.0","id":"x","method":"m"}"#, "\"x\"", "`extra` is not a member"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"m","method":"m"}"#, "5", "`method` is given twice"),
        (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":5,"method":"m"}"#, "5", "`jsonrpc` is given twice"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"m","params":{},"params":{}}"#, "5", "`params` is given twice"),
        // Of two ids, neither is the right one.
        (r#"{"jsonrpc":"2.0","id":5,"method":"m","id":6}"#, "null", "`id` is given twice"),
        (r#"{"jsonrpc":"2.0","method":1}"#, "null", "`method` must be a string"),
    ];
    for (line, id, part) in cases {
        let (kind, answered, message) = refused(line);
        assert_eq!((kind, answered.as_str()), (ErrorKind::InvalidRequest, id), "{line}: {message}");
        assert!(message.contains(part), "{line}: {message}");
    }
}

#[test]
fn an_id_behind_many_unknown_members_is_still_found() {
    let extra: String = (0..1_000).map(|at| format!(r#""x{at}":{at},"#)).collect();
    let (kind, id, _) = refused(&format!(r#"{{{extra}"jsonrpc":"2.0","id":9,"method":"m"}}"#));
    assert_eq!((kind, id.as_str()), (ErrorKind::InvalidRequest, "9"));
}

#[test]
fn params_must_be_an_object() {
    for params in ["[]", "[1]", "null", "1", "\"a\"", "true"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"m","params":{params}}}"#);
        let refused = single(&line).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::InvalidArgument, "{params}");
        assert_eq!(refused.error.data.field.as_deref(), Some("params"));
        assert_eq!(refused.id.unwrap().as_json(), "5");
        // A notification is not answered, whatever is wrong with its params.
        let line = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{params}}}"#);
        assert_eq!(single(&line).unwrap_err().id, None);
    }
}

#[test]
fn blank_lines_are_ignored() {
    for line in ["", " ", "\r", "\t \r"] {
        assert_eq!(parse(line.as_bytes()), Message::Blank);
    }
    // JSON knows no other blanks than its own.
    assert_eq!(refused("\u{a0}").0, ErrorKind::ParseError);
}

#[test]
fn members_of_a_batch_stand_for_themselves() {
    let line = r#"[{"jsonrpc":"2.0","id":1,"method":"a"}, 1, [], {"id":2}, {"jsonrpc":"2.0","method":"b"}]"#;
    let Message::Batch(entries) = parse(line.as_bytes()) else { panic!("no batch") };
    let kinds: Vec<Result<&str, (ErrorKind, &str)>> = entries
        .iter()
        .map(|entry| match entry {
            Ok(call) => Ok(call.method.as_ref()),
            Err(refused) => Err((refused.error.kind(), refused.id.as_ref().unwrap().as_json())),
        })
        .collect();
    let none = |id| Err((ErrorKind::InvalidRequest, id));
    assert_eq!(kinds, [Ok("a"), none("null"), none("null"), none("2"), Ok("b")]);
}

#[test]
fn a_batch_has_one_to_a_thousand_members() {
    assert_eq!(refused("[]").0, ErrorKind::InvalidRequest);
    assert_eq!(refused(" [ ] ").1, "null");
    let of = |count: usize| format!("[{}]", vec![r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#; count].join(","));
    let thousand = of(1_000);
    assert!(matches!(parse(thousand.as_bytes()), Message::Batch(entries) if entries.len() == 1_000));
    let (kind, id, message) = refused(Box::leak(of(1_001).into_boxed_str()));
    assert_eq!((kind, id.as_str()), (ErrorKind::InvalidRequest, "null"));
    assert!(message.contains("1001 members"), "{message}");
}

#[test]
fn depth_never_crashes() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    assert!(matches!(parse(deep.as_bytes()), Message::Batch(entries) if entries[0].is_err()));
    assert_eq!(refused(Box::leak("[".repeat(200_000).into_boxed_str())).0, ErrorKind::ParseError);
    let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":{deep}}}}}"#);
    assert!(call(&line).params.len() > 400_000);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{deep},"method":"m"}}"#);
    assert_eq!(refused(&line).0, ErrorKind::InvalidRequest);
    let line = format!(r#"{{"jsonrpc":{deep},"id":3,"method":"m"}}"#);
    assert_eq!(refused(&line).1, "3");
}

#[test]
fn any_bytes_are_answered_and_none_crash() {
    use proptest::prelude::*;
    let piece = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just(r#""jsonrpc":"2.0""#),
        Just(r#""id":1"#),
        Just(r#""method":"ip.get""#),
        Just(r#""params":{}"#),
        Just("null"),
        Just("1e999"),
        Just(r#""\ud800""#),
        Just(" "),
    ];
    proptest!(|(pieces in prop::collection::vec(piece, 0..24))| {
        parse(pieces.concat().as_bytes());
    });
    proptest!(|(bytes in prop::collection::vec(any::<u8>(), 0..64))| {
        parse(&bytes);
    });
}
