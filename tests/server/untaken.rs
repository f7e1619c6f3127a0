//! Clients that do not take what they are sent, or go on sending whatever the answers are.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use allod::limits::WATCHES_MAX;
use allod::serve::Ended;
use serde_json::{Value, json};

use crate::support::{TestServer, line};

/// How long a flood lasts if nobody stops it.
const FLOODS: Duration = Duration::from_secs(60);

/// Labels of nearly the largest size that is allowed.
fn labels() -> Value {
    (0..32).map(|at| (format!("{at:0>100}"), json!("v".repeat(256)))).collect::<serde_json::Map<_, _>>().into()
}

/// All subscriptions share one buffer, and none takes it from another.
#[test]
fn a_client_that_took_nothing_for_a_while_is_told_everything_by_all_its_subscriptions() {
    const EVENTS: usize = 100;
    // Nothing is buffered for watchers that keep up, so a page is read from the store.
    let server = TestServer::with(|options| options.config.server.max_behind_bytes = 0);
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]}));
    let since = client.ok("network.get", json!({"network": "lan"}))["cursor"].clone();
    for at in 0..2 {
        let ips = vec![json!({"network": "lan"}); EVENTS / 2];
        client.ok("ip.acquire", json!({"owner": format!("o{at}"), "ips": ips, "labels": labels(), "brief": true}));
    }
    let mut stream = TcpStream::connect(server.running.tcp).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let watch = |id| line(id, "events.watch", &json!({"network": "lan", "since": since}));
    stream.write_all((0..WATCHES_MAX as u64).map(watch).collect::<String>().as_bytes()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let (mut lines, mut told, mut answers) = (BufReader::new(stream), HashMap::<u64, Vec<String>>::new(), 0);
    while told.values().map(Vec::len).sum::<usize>() < WATCHES_MAX * EVENTS {
        let mut text = String::new();
        assert!(lines.read_line(&mut text).unwrap() > 0, "the connection was closed");
        let part = |mark: &str, end: char| Some(text.split_once(mark)?.1.split_once(end)?.0.to_owned());
        if text.contains(r#""method":"event","#) {
            let (number, address) = (part(r#""subscription":"#, ','), part(r#""address":""#, '"'));
            told.entry(number.unwrap().parse().unwrap()).or_default().push(address.unwrap());
        } else {
            answers += usize::from(text.contains(r#""result":{"subscription":"#));
        }
    }
    assert_eq!((answers, told.len()), (WATCHES_MAX, WATCHES_MAX));
    // Each subscription is told the same in the same order, everything once.
    assert!(told.values().all(|addresses| *addresses == told[&1]));
    assert_eq!(told[&1].iter().collect::<HashSet<_>>().len(), EVENTS);
}

/// Sends the same lines until it can no longer, and reads the answers. Returns the end of them; fails if nobody stops it.
fn flood(server: &TestServer, lines: &str) -> std::thread::JoinHandle<Vec<u8>> {
    let mut stream = TcpStream::connect(server.running.tcp).unwrap();
    stream.set_write_timeout(Some(FLOODS)).unwrap();
    stream.set_read_timeout(Some(FLOODS)).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let taken = std::thread::spawn(move || {
        let (mut last, mut bytes) = (Vec::new(), vec![0; 1 << 20]);
        loop {
            match answers.read(&mut bytes) {
                Ok(0) => return last,
                Ok(count) => {
                    last.extend_from_slice(&bytes[..count]);
                    last.drain(..last.len().saturating_sub(100));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return last,
            }
        }
    });
    let chunk = lines.repeat((1 << 20) / lines.len());
    std::thread::spawn(move || {
        let begun = Instant::now();
        let cut = loop {
            match stream.write_all(chunk.as_bytes()) {
                Ok(()) => assert!(begun.elapsed() < FLOODS, "it may go on for ever"),
                Err(error) => break error.kind(),
            }
        };
        assert!(!matches!(cut, ErrorKind::WouldBlock | ErrorKind::TimedOut), "it is not read on, and not told so");
        taken.join().unwrap()
    })
}

/// Lines for which no actor is asked, so nothing slows their reading down.
fn floods() -> [String; 3] {
    [line(1, "server.ping", &json!({})), "{}\n".to_owned(), "\n".to_owned()]
}

#[test]
fn a_client_that_goes_on_sending_what_is_answered_at_once_does_not_hold_up_a_stop() {
    for lines in floods() {
        let server = TestServer::with(|options| options.config.server.shutdown_seconds = 120);
        let flood = flood(&server, &lines);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(server.running.stop(), Ended::Stopped);
        let last = flood.join().unwrap();
        // What was read is answered, and the last answer is complete.
        assert!(last.is_empty() || last.ends_with(b"}\n"), "{}", String::from_utf8_lossy(&last));
    }
}

#[test]
fn a_client_that_goes_on_sending_blank_lines_asks_nothing_and_is_idle() {
    let server = TestServer::with(|options| options.config.server.idle_timeout_seconds = 1);
    flood(&server, "\n").join().unwrap();
    server.stop();
}
