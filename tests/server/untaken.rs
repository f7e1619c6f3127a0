//! Clients that do not take what they are told, or go on sending whatever they are answered.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use allod::limits::WATCHES_MAX;
use allod::serve::Ended;
use serde_json::{Value, json};

use crate::support::{TestServer, line};

/// Labels of the most bytes that there may be, nearly.
fn labels() -> Value {
    (0..32).map(|at| (format!("{at:0>100}"), json!("v".repeat(256)))).collect::<serde_json::Map<_, _>>().into()
}

/// They have room together, which none keeps from another.
#[test]
fn a_client_that_took_nothing_for_a_while_is_told_everything_by_all_its_subscriptions() {
    const EVENTS: usize = 100;
    // Nothing is kept for those who keep up: a page is read.
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
    // The same in the same order, and each once.
    assert!(told.values().all(|addresses| *addresses == told[&1]));
    assert_eq!(told[&1].iter().collect::<HashSet<_>>().len(), EVENTS);
}

/// Sends the same lines until it cannot, and takes what is answered: how much of that came.
fn flood(server: &TestServer, lines: &str) -> std::thread::JoinHandle<(bool, Vec<u8>)> {
    let mut stream = TcpStream::connect(server.running.tcp).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let taken = std::thread::spawn(move || {
        let (mut last, mut bytes) = (Vec::new(), vec![0; 1 << 20]);
        loop {
            match answers.read(&mut bytes) {
                Ok(0) => return (true, last),
                Ok(count) => {
                    last.extend_from_slice(&bytes[..count]);
                    last.drain(..last.len().saturating_sub(100));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (false, last),
            }
        }
    });
    let chunk = lines.repeat((1 << 20) / lines.len());
    std::thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(50) && stream.write_all(chunk.as_bytes()).is_ok() {}
        taken.join().unwrap()
    })
}

/// Lines that no actor is asked for: whoever sends them is read on and on.
fn floods() -> [String; 3] {
    [line(1, "server.ping", &json!({})), "{}\n".to_owned(), "\n".to_owned()]
}

#[test]
fn a_client_that_goes_on_sending_what_is_answered_at_once_does_not_hold_up_a_stop() {
    for lines in floods() {
        let server = TestServer::with(|options| options.config.server.shutdown_seconds = 120);
        let flood = flood(&server, &lines);
        std::thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        assert_eq!(server.running.stop(), Ended::Stopped);
        assert!(begun.elapsed() < Duration::from_secs(40), "{lines:?}: {:?}", begun.elapsed());
        let (_, last) = flood.join().unwrap();
        // What was read is answered, the last of it whole.
        assert!(last.is_empty() || last.ends_with(b"}\n"), "{}", String::from_utf8_lossy(&last));
    }
}

#[test]
fn a_client_that_goes_on_sending_blank_lines_asks_nothing_and_is_idle() {
    let server = TestServer::with(|options| options.config.server.idle_timeout_seconds = 1);
    let begun = Instant::now();
    flood(&server, "\n").join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    server.stop();
}
