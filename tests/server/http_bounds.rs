//! Clients of the HTTP port that make no progress: they are cut off in time, and are in nobody's way, least of all over TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use allod::limits::{HTTP_BODIES_BYTES_MIN, HTTP_BODIES_MAX};
use allod::serve::Ended;
use serde_json::{Value, json};

use crate::support::{TestServer, http, line, wait_for};

/// The longest wait for what must come.
const SOON: Duration = Duration::from_secs(60);
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"server.ping"}"#;

/// A client that has sent this and no more.
fn sent(at: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Everything that arrives until the connection is closed or reset.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return bytes,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return bytes,
            Err(error) => panic!("it was not closed: {error}"),
        }
    }
}

/// Has something arrived, or was the connection closed?
fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let come = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    !matches!(come, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

fn text(stream: &TcpStream) -> String {
    String::from_utf8(rest(stream)).unwrap()
}

fn figure(server: &TestServer, name: &str) -> u64 {
    let metrics = http(server.running.http, "GET /metrics", b"").1;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

fn cut_off(server: &TestServer, reason: &str) -> u64 {
    figure(server, &format!("allod_http_refused_total{{reason=\"{reason}\"}}"))
}

/// A request with so many members, the answer to each of which is a list of some 45 000 bytes.
fn long_batch(server: &TestServer, members: usize) -> String {
    let mut client = server.with_lan();
    for at in 0..200 {
        client.allocate(&format!("o{at}"));
    }
    let list = |at| json!({"jsonrpc": "2.0", "id": at, "method": "ip.list", "params": {"network": "lan"}});
    let body = Value::Array((0..members).map(list).collect()).to_string();
    let length = body.len();
    format!("POST /rpc HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// The length that a head announces, and how many bytes of the body arrived.
fn lengths(answer: &[u8]) -> (usize, usize) {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let text = std::str::from_utf8(&answer[..head]).unwrap();
    let announced = text.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("it has a length");
    (announced.parse().unwrap(), answer.len() - head)
}

/// A wrong name may be as long as a body; of an answer to it, only its beginning is a part.
#[test]
fn what_is_wrong_with_a_body_is_told_in_few_words_however_long_it_is() {
    let server = TestServer::new();
    let long = "x".repeat(6 << 20);
    for (name, begins) in
        [(long.clone(), "xxx"), (format!("x`, expected `{long}`, there are no fields"), "x`, expected `xxx")]
    {
        let params: Value = [(name, json!(1))].into_iter().collect();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "server.ping", "params": params}).to_string();
        let (_, answer) = http(server.running.http, "POST /rpc", body.as_bytes());
        assert!(answer.len() < 4_096, "{} bytes", answer.len());
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let field = answer["error"]["data"]["field"].as_str().unwrap();
        assert!(field.starts_with(begins) && field.ends_with('…') && field.chars().count() == 81, "{answer}");
    }
}

#[test]
fn bodies_over_http_that_do_not_come_keep_no_other_out_and_are_told_that_they_are_late() {
    let server = TestServer::with(|options| options.config.server.partial_line_seconds = 3);
    let at = server.running.http;
    let late: Vec<TcpStream> = (0..300)
        .map(|_| sent(at, "POST /rpc HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 10\r\n\r\n"))
        .collect();
    assert_eq!(http(at, "POST /rpc", PING).0, 200);
    for stream in &late {
        let answer = text(stream);
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("server.partial_line_seconds"), "{answer}");
    }
    assert_eq!(http(at, "POST /rpc", PING).0, 200);
}

#[test]
fn a_head_over_http_that_is_not_finished_ends_its_connection() {
    let server = TestServer::with(|options| options.config.server.partial_line_seconds = 1);
    let half = sent(server.running.http, "GET /healthz HTTP/1.1\r\nhost: te");
    let answer = text(&half);
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("server.partial_line_seconds"), "{answer}");
    assert!(cut_off(&server, "unfinished") >= 1);
    // A client that has asked nothing is told nothing.
    assert_eq!(text(&sent(server.running.http, "")), "");
}

#[test]
fn connections_over_http_beyond_their_bound_are_told_so_and_tcp_does_not_notice() {
    let server = TestServer::with(|options| options.config.server.max_connections = 2);
    let at = server.running.http;
    let ask = "GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n";
    let open: Vec<TcpStream> = (0..2).map(|_| sent(at, ask)).collect();
    for mut stream in &open {
        stream.read_exact(&mut [0; 15]).unwrap();
    }
    let answer = text(&sent(at, ""));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("server.max_connections"), "{answer}");
    assert_eq!(http(at, "POST /rpc", PING).0, 503);
    let (mut one, mut two) = (server.client(), server.client());
    one.ok("server.ping", json!({}));
    two.ok("server.ping", json!({}));
    drop(open);
    wait_for("a place", || http(at, "POST /rpc", PING).0 == 200);
    assert!(cut_off(&server, "connections") >= 2);
}

/// Otherwise a monitor would take the server for dead, and end it.
#[test]
fn a_server_without_room_for_more_over_http_answers_those_who_watch_it() {
    let server = TestServer::with(|options| options.config.server.max_connections = 2);
    let at = server.running.http;
    let open: Vec<TcpStream> = (0..2).map(|_| sent(at, "GET /events HTTP/1.1\r\nhost: test\r\n\r\n")).collect();
    for mut stream in &open {
        stream.read_exact(&mut [0; 15]).unwrap();
    }
    // There are also more idle connections than there are places for.
    let idle: Vec<TcpStream> = (0..40).map(|_| sent(at, "")).collect();
    for path in ["GET /healthz", "GET /readyz", "GET /metrics"] {
        assert_eq!(http(at, path, b"").0, 200, "{path}");
    }
    let asks_on = "GET /healthz HTTP/1.1\r\nhost: test\r\n\r\nGET /healthz HTTP/1.1\r\nhost: test\r\n\r\n";
    let answers = text(&sent(at, asks_on));
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 1, "one request each: {answers}");
    for stream in &idle {
        assert!(text(stream).starts_with("HTTP/1.1 503 "));
    }
    drop(open);
}

#[test]
fn requests_that_wait_over_http_take_no_places_of_tcp_clients() {
    let server = TestServer::with(|options| options.config.server.max_connections = 3);
    let mut client = server.client();
    client.ok("network.create", json!({"name": "none"}));
    let waits = line(1, "ip.allocate", &json!({"network": "none", "owner": "w", "wait_seconds": 3_600}));
    let head = format!("POST /rpc HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{waits}", waits.len());
    let waiting: Vec<TcpStream> = (0..2).map(|_| sent(server.running.http, &head)).collect();
    server.until_waits("none", 2);
    let mut second = server.client();
    assert_eq!(second.ok("server.ping", json!({})), "pong");
    drop(waiting);
}

/// They may wait for a day, and nothing is worked on for them.
#[test]
fn batches_that_wait_over_http_with_some_of_their_answers_keep_no_other_body_out() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "none"}));
    let waits = json!({"network": "none", "owner": "w", "wait_seconds": 3_600});
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "server.ping"},
        {"jsonrpc": "2.0", "id": 2, "method": "ip.allocate", "params": waits},
    ])
    .to_string();
    let head = format!("POST /rpc HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{batch}", batch.len());
    let waiting: Vec<TcpStream> = (0..HTTP_BODIES_MAX).map(|_| sent(server.running.http, &head)).collect();
    server.until_waits("none", HTTP_BODIES_MAX);
    wait_for("a place for another body", || http(server.running.http, "POST /rpc", PING).0 == 200);
    assert!(waiting.iter().all(|stream| !is_answered(stream)));
}

/// A client that announces much and sends little takes no room; what did arrive counts until it is dropped.
#[test]
fn bodies_over_http_have_so_many_bytes_together_and_one_beyond_is_told_so() {
    const BODY: usize = 1 << 20;
    let server = TestServer::with(|options| options.config.server.max_body_bytes = BODY as u64);
    let at = server.running.http;
    let head = format!("POST /rpc HTTP/1.1\r\nhost: test\r\ncontent-length: {BODY}\r\n\r\n");
    let announced: Vec<TcpStream> = (0..2 * HTTP_BODIES_BYTES_MIN / BODY).map(|_| sent(at, &head)).collect();
    let whole = [b' ', b'\n'].repeat(BODY / 2);
    // The body is blank, so an answer shows that it was read.
    assert_eq!(http(at, "POST /rpc", &whole).0, 200);
    drop(announced);
    let hold = || {
        let mut stream = sent(at, &head);
        // A refused connection is closed, and another one takes its place.
        stream.write_all(&whole[1..]).unwrap_or_default();
        stream
    };
    let mut held: Vec<TcpStream> = (0..HTTP_BODIES_BYTES_MIN / BODY).map(|_| hold()).collect();
    let mut answer = (200, String::new());
    wait_for("a refusal", || {
        held.iter_mut().filter(|stream| is_answered(stream)).for_each(|stream| *stream = hold());
        answer = http(at, "POST /rpc", &whole);
        answer.0 != 200
    });
    assert!(answer.0 == 503 && answer.1.contains("too many bytes"), "{answer:?}");
    assert!(cut_off(&server, "bytes") >= 1);
    assert_eq!(http(at, "POST /rpc", b"").0, 200, "a body without a byte needs none");
    drop(held);
    wait_for("room", || http(at, "POST /rpc", &whole).0 == 200);
}

#[test]
fn an_answer_over_http_that_is_not_taken_is_cut_off() {
    let server = TestServer::with(|options| options.config.server.slow_client_seconds = 1);
    let stream = sent(server.running.http, &long_batch(&server, 500));
    wait_for("that it is cut off", || cut_off(&server, "slow") > 0);
    let (announced, came) = lengths(&rest(&stream));
    assert!(announced > 12 << 20 && came < announced, "{came} of {announced}");
}

#[test]
fn a_stream_of_events_over_http_that_is_not_taken_is_cut_off() {
    let server = TestServer::with(|options| options.config.server.slow_client_seconds = 1);
    let mut client = server.with_lan();
    client.allocate("a");
    let stream = sent(server.running.http, "GET /events?network=lan HTTP/1.1\r\nhost: test\r\n\r\n");
    wait_for("the stream", || figure(&server, "allod_watches") == 1);
    let begun = Instant::now();
    let mut at = 0;
    while figure(&server, "allod_watches") == 1 {
        assert!(begun.elapsed() < SOON, "{at} events were taken from the server, and none by the client");
        for _ in 0..500 {
            at += 1;
            let set = json!({"note": format!("{at:->1000}")});
            client.send("ip.update", json!({"network": "lan", "owner": "a", "set": set}));
        }
        (0..500).for_each(|_| assert!(client.answer().get("result").is_some()));
    }
    assert_eq!(cut_off(&server, "slow"), 1);
    assert!(!text(&stream).ends_with("\r\n0\r\n\r\n"));
}

#[test]
fn a_stop_brings_an_answer_over_http_to_its_end() {
    let server = TestServer::with(|options| options.config.server.shutdown_seconds = 120);
    let stream = sent(server.running.http, &long_batch(&server, 500));
    stream.peek(&mut [0]).unwrap();
    let TestServer { running, .. } = server;
    let tcp = running.tcp;
    running.stopper().cancel();
    // The client reads nothing for a while: until nothing is accepted any more, and a little longer.
    wait_for("the stop", || TcpStream::connect(tcp).is_err());
    let ended = std::thread::spawn(move || running.wait());
    std::thread::sleep(Duration::from_millis(500));
    assert!(!ended.is_finished(), "a process would have ended in the middle of it");
    let (announced, came) = lengths(&rest(&stream));
    assert!(announced > 12 << 20);
    assert_eq!(came, announced);
    assert_eq!(ended.join().unwrap(), Ended::Stopped);
}

#[test]
fn a_stop_waits_for_nobody_who_has_not_asked_yet_over_http() {
    let server = TestServer::with(|options| options.config.server.shutdown_seconds = 120);
    let at = server.running.http;
    let kept = sent(at, "GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n");
    kept.peek(&mut [0]).unwrap();
    let half_again = sent(at, "GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n");
    half_again.peek(&mut [0]).unwrap();
    (&half_again).write_all(b"GET /healthz HTT").unwrap();
    let (fresh, half) = (sent(at, ""), sent(at, "GET /healthz HTT"));
    let body = sent(at, "POST /rpc HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\n{");
    wait_for("all of them", || figure(&server, "allod_http_connections") == 6);
    let begun = Instant::now();
    assert_eq!(server.running.stop(), Ended::Stopped);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let answer = text(&body);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("the server is stopping"), "{answer}");
    for stream in [&kept, &half_again] {
        assert_eq!(text(stream).matches("HTTP/1.1 200 ").count(), 1);
    }
    for stream in [&fresh, &half] {
        assert_eq!(text(stream), "");
    }
}

#[test]
fn a_stop_is_bounded_although_an_answer_over_http_is_not_taken() {
    let server = TestServer::with(|options| options.config.server.shutdown_seconds = 1);
    let stream = sent(server.running.http, &long_batch(&server, 500));
    stream.peek(&mut [0]).unwrap();
    let begun = Instant::now();
    assert_eq!(server.running.stop(), Ended::Stopped);
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    drop(stream);
}
