//! A client that waits for capacity and dies.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::server::{Server, http_get};

/// Asks for an address, says so, and reads nothing. After its death the kernel forgets the connection in a second, instead
/// of the usual minute.
const WAITER: &str = r#"
import socket, sys, time
host, port = sys.argv[1].split(":")
connection = socket.create_connection((host, int(port)))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
connection.sendall(sys.argv[2].encode() + b"\n")
print("asked", flush=True)
time.sleep(3600)
"#;

#[test]
fn a_client_that_died_while_it_waited_is_given_nothing() {
    if Command::new("python3").arg("--version").output().is_err() {
        return crate::redis::process::skips::skip("there is no python3");
    }
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "tiny", "--subnet", "10.0.0.0/32"]);
    server.allod_ok(&["ip", "allocate", "tiny", "--owner", "first"]);
    let params = json!({"network": "tiny", "owner": "dead", "wait_seconds": 3_600});
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "ip.allocate", "params": params});
    let mut waiter = Command::new("python3");
    waiter.args(["-c", WAITER, &server.address.to_string(), &ask.to_string()]).stdout(Stdio::piped());
    let mut waiter = waiter.spawn().unwrap();
    BufReader::new(waiter.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let until = |wanted: &str| {
        let begun = Instant::now();
        while !waiting(&server).ends_with(wanted) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{wanted} was wanted: {}", waiting(&server));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until(" 1");
    waiter.kill().unwrap();
    waiter.wait().unwrap();
    until(" 0");
    server.allod_ok(&["ip", "release", "tiny", "--owner", "first"]);
    let listed = server.allod_ok(&["ip", "list", "--network", "tiny", "--format", "json"]);
    assert!(!listed.contains("dead"), "{listed}");
    server.stop();
}

/// The line of `/metrics` that says how many requests wait in network `tiny`.
fn waiting(server: &Server) -> String {
    let metrics = http_get(server.http, "/metrics");
    let line = metrics.lines().find(|line| line.starts_with("allod_network_waiting_requests{"));
    line.unwrap_or_default().to_owned()
}
