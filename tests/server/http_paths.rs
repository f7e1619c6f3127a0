//! What the HTTP port answers to requests for paths that do not exist, or with a wrong method.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::TestServer;

/// Head and body of the answer.
fn asked(server: &TestServer, request: &str) -> (String, String) {
    asked_with(server, request, "")
}

/// The same, with a body.
fn asked_with(server: &TestServer, request: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.running.http).unwrap();
    let length = body.len();
    write!(stream, "{request} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn who_asks_for_a_path_that_is_not_there_is_told_which_are() {
    let server = TestServer::new();
    let (head, body) = asked(&server, "GET /status");
    assert!(head.starts_with("http/1.1 404 ") && head.contains("content-type: text/plain"), "{head}");
    let named = body.trim_end().split_once("there are ").unwrap().1.split(", ");
    for (method, path) in named.map(|one| one.split_once(' ').unwrap()) {
        let (head, _) = asked(&server, &format!("PUT {path}"));
        assert!(
            head.contains("http/1.1 405 ") && head.contains(&method.to_ascii_lowercase()),
            "{method} {path}: {head}"
        );
    }
    assert_eq!(body.matches(" /").count(), 6, "{body}");
}

#[test]
fn who_asks_for_a_path_by_another_method_is_told_by_which() {
    let server = TestServer::new();
    for (request, allow, says) in [
        ("GET /rpc", "allow: post", "/rpc is asked by POST, not by GET\n"),
        ("POST /metrics", "allow: get,head", "/metrics is asked by GET, not by POST\n"),
        ("DELETE /readyz", "allow: get,head", "/readyz is asked by GET, not by DELETE\n"),
    ] {
        let (head, body) = asked(&server, request);
        assert!(head.starts_with("http/1.1 405 ") && head.contains("content-type: text/plain"), "{request}: {head}");
        assert!(head.lines().any(|line| line == allow), "{request}: {head}");
        assert_eq!(body, says, "{request}");
    }
}

#[test]
fn a_body_in_which_nothing_is_asked_is_no_json_and_answered_as_such() {
    let server = TestServer::new();
    for body in ["", " ", "\r\n"] {
        let (head, answer) = asked_with(&server, "POST /rpc", body);
        assert!(head.starts_with("http/1.1 200 ") && head.contains("content-type: application/json"), "{head}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32_700)), "{answer}");
    }
}
