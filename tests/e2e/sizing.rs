//! Compares `allod plan` with what servers really take: 50 000 reservations, in files and in Redis.
//!
//! The plan may be wrong by a factor, and not by more: whoever buys a machine by it must be neither short nor poor.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::redis::Redis;
use crate::server::{Server, Starting, allod};

const RESERVATIONS: usize = 50_000;
const NETWORKS: usize = 50;
/// Requests that are sent before the first answer is read.
const TOGETHER: usize = 500;

/// The figures of `allod plan` for what is granted here.
fn plan(store: &str) -> Value {
    let output = Command::new(allod())
        .args(["plan", "--format", "json", "--store", store])
        .args(["--networks", &NETWORKS.to_string(), "--reservations", &RESERVATIONS.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["sizing"].take()
}

/// Makes the networks and grants all reservations.
fn fill(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut all = |requests: &[Value]| {
        let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
        stream.write_all(lines.as_bytes()).unwrap();
        for _ in requests {
            let answer = answers.next().unwrap().unwrap();
            assert!(answer.contains("\"result\""), "{answer}");
        }
    };
    let request = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let networks: Vec<Value> = (0..NETWORKS)
        .map(|at| {
            let subnets = json!([{"cidr": format!("10.{at}.0.0/16")}]);
            request("network.create", json!({"name": format!("n{at}"), "subnets": subnets}))
        })
        .collect();
    all(&networks);
    for from in (0..RESERVATIONS).step_by(TOGETHER) {
        let grants: Vec<Value> = (from..from + TOGETHER)
            .map(|at| {
                let network = format!("n{}", at % NETWORKS);
                let owner = format!("instance-{at:015}");
                request(
                    "ip.allocate",
                    json!({"network": network, "scope": "deployment-1", "owner": owner, "brief": true}),
                )
            })
            .collect();
        all(&grants);
    }
}

/// The resident memory of the server.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    kib.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1_024
}

/// The size of all blocks of the files below a directory.
fn taken(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let facts = entry.metadata().unwrap();
            if facts.is_dir() { taken(&entry.path()) } else { facts.blocks() * 512 }
        })
        .sum()
}

#[track_caller]
fn agrees(what: &str, planned: &Value, real: u64, factor: f64) {
    let planned = planned.as_u64().unwrap_or_else(|| panic!("{what}: {planned}"));
    let ratio = real as f64 / planned as f64;
    println!("{what}: planned {planned}, real {real}, {ratio:.2}");
    assert!((1.0 / factor..=factor).contains(&ratio), "{what}: planned {planned}, real {real}, {ratio:.2}");
}

#[test]
fn a_server_with_files_takes_what_was_planned() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data);
    fill(server.address);
    let plan = plan("embedded");
    agrees("memory", &plan["memory"]["usual"], resident(&server), 2.0);
    agrees("disk", &plan["disk"]["usual"], taken(&data), 1.5);
    server.stop();
}

#[test]
fn a_redis_takes_what_was_planned() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("redis");
    std::fs::create_dir(&place).unwrap();
    let Some(redis) = Redis::start(&place, &["--appendonly", "yes"]) else { return };
    let data = directory.path().join("data");
    let data_text = data.display().to_string();
    // After so few changes the memory for healing is not full.
    let arguments = ["serve", "--redis", &redis.url(), "--data", &data_text];
    let server = Starting::with_arguments(&data, &arguments).ready();
    fill(server.address);
    let plan = plan("redis");
    let memory = redis.text(&["INFO", "memory"]);
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    agrees("memory of Redis", &plan["redis_memory"]["usual"], used, 1.6);
    let files = taken(&place);
    assert!(files <= plan["redis_disk"]["most"].as_u64().unwrap(), "{files}: {plan}");
    let node = resident(&server);
    assert!(node <= plan["memory"]["usual"].as_u64().unwrap(), "{node}: {plan}");
    server.stop();
}

#[test]
fn a_plan_is_printed_for_people_and_a_wrong_wish_is_refused() {
    let run = |arguments: &[&str]| Command::new(allod()).arg("plan").args(arguments).output().unwrap();
    let shown =
        run(&["--networks", "1000", "--reservations", "2000000", "--allocations-per-second", "500", "--family", "6"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("memory") && text.contains("disk") && text.contains("reaches back"), "{text}");
    // The page shows what is printed.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/README.md")).unwrap();
    let (_, shown) = page.split_once("\n$ allod plan ").unwrap();
    let (arguments, shown) = shown.split_once('\n').unwrap();
    let table = shown.split_once("\n```").unwrap().0;
    let printed = String::from_utf8(run(&arguments.split(' ').collect::<Vec<_>>()).stdout).unwrap();
    assert!(printed.starts_with(table), "{printed}");
    for wrong in [&["--reservations", "x"][..], &["--networks", "5"], &["--reservations", "1", "--family", "5"]] {
        assert_eq!(run(wrong).status.code(), Some(64), "{wrong:?}");
    }
}
