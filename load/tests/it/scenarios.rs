//! Every scenario runs against a real server, in a closed and an open loop, and finds no fault; servers that were started
//! are ended.

use serde_json::{Value, json};

use crate::liar::Liar;
use crate::program::{Server, is_there, load, load_that_starts, ready, report, said};
use crate::skips::skip;

const SMALL: &[&str] = &["--connections", "2", "--depth", "4"];

/// A run that must succeed.
#[track_caller]
fn sound(words: &[&str]) -> Value {
    let (code, report) = report(words);
    assert_eq!((code, report["faults"].as_object().unwrap().len()), (0, 0), "{words:?}: {report}");
    assert!(report["answers"].as_u64().unwrap() > 0, "{words:?}: {report}");
    report
}

/// Every scenario with a small size.
const SCENARIOS: [&[&str]; 12] = [
    &["mixed", "--networks", "3", "--cidr", "10.0.0.0/24"],
    &["fill", "--networks", "2"],
    &["churn", "--cidr", "10.0.0.0/24", "--fill-level", "0.9"],
    &["contended", "--cidr", "10.0.0.0/24"],
    &["claims"],
    &["claim-and-sweep"],
    &["deployments"],
    &["blocks"],
    &["ipv6"],
    &["many-networks", "--networks", "20"],
    &["hot-network", "--networks", "5", "--cidr", "10.0.0.0/24"],
    &["restart-storm", "--owners", "100"],
];

/// Runs a scenario with further arguments against a server of its own, and checks that the server's counts agree with its
/// answers.
#[track_caller]
fn agrees(scenario: &[&str], more: &[&str]) -> Value {
    let server = Server::start();
    let address = server.address.to_string();
    let words = [&["run"], scenario, SMALL, &["--server", &address], more].concat();
    let report = sound(&words);
    assert_eq!(report["scenario"], scenario[0]);
    assert_eq!(report["held_by_server"], report["held"], "{words:?}: {report}");
    assert!(report["listed"].as_u64().unwrap() > 0, "{words:?}: {report}");
    report
}

#[test]
fn every_scenario_finds_a_right_server_right() {
    for scenario in SCENARIOS {
        agrees(scenario, &["--requests", "300"]);
    }
}

#[test]
fn every_scenario_finds_a_right_server_right_in_an_open_loop() {
    for scenario in SCENARIOS {
        // As many requests as a storm has owners. The arrivals of half a second take half a second, however fast the server
        // is.
        let open = agrees(scenario, &["--requests", "100", "--rate", "200", "--arrivals", "even"]);
        assert_eq!((&open["answers"], &open["never_sent"]), (&100.into(), &0.into()), "{open}");
        assert_eq!(open["arrivals_per_second"], 200.0, "{open}");
        assert!(open["elapsed_seconds"].as_f64().unwrap() >= 0.45, "arrivals are not hurried: {open}");
    }
}

#[test]
fn in_an_open_loop_everybody_who_arrives_is_counted_from_their_arrival() {
    let server = Server::start();
    let address = server.address.to_string();
    // Two lanes and thirty thousand arrivals a second: most wait for a lane, and their latency is mainly that of the queue.
    let open = ["run", "fill", "--connections", "1", "--depth", "2", "--server", &address, "--requests", "2000"];
    let report = sound(&[&open[..], &["--rate", "30000", "--arrivals", "even"]].concat());
    assert_eq!((&report["answers"], &report["never_sent"]), (&2000.into(), &0.into()));
    let (p50, elapsed) = (report["p50_ms"].as_f64().unwrap(), report["elapsed_seconds"].as_f64().unwrap());
    // Without delay, two thirtieths of a second would be enough; the last arrivals have waited for all earlier ones.
    let behind = elapsed - 2_000.0 / 30_000.0;
    let max = report["max_ms"].as_f64().unwrap();
    assert!(max >= behind * 1e3 * 0.9 && p50 <= max, "{report}");
    let slow = sound(&["run", "fill", "--server", &address, "--requests", "20", "--rate", "100", "--arrivals", "even"]);
    assert!(slow["elapsed_seconds"].as_f64().unwrap() >= 0.15, "arrivals are not hurried: {slow}");
}

#[test]
fn after_a_kill_every_owner_is_given_what_it_held() {
    let storm = ["run", "restart-storm", "--owners", "200", "--start", "embedded", "--kill"];
    let report = sound(&[&storm[..], SMALL].concat());
    assert_eq!((&report["answers"], &report["existed"]), (&200.into(), &200.into()));
    let output = load().args(["run", "restart-storm", "--kill", "--server", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "only a server of its own is killed: {}", said(&output));
}

#[test]
fn several_nodes_over_a_redis_of_its_own_are_driven_at_once() {
    if !is_there("redis-server") {
        return skip("there is no redis-server");
    }
    let words = ["run", "mixed", "--start", "redis", "--nodes", "2", "--networks", "2", "--cidr", "10.0.0.0/24"];
    let report = sound(&[&words[..], SMALL, &["--requests", "300"]].concat());
    assert!(report["target"].as_str().unwrap().contains("2 nodes"), "{report}");
}

#[test]
fn fill_echo_and_isolation_keep_the_members_that_scripts_read() {
    let (_, fill) = report(&[&["fill", "--start", "memory", "--requests", "200", "--hold", "1"], SMALL].concat());
    let output = load().args(["echo", "--requests", "200", "--json"]).args(SMALL).output().unwrap();
    let echo: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let isolation = ["p99-isolation", "--start", "memory", "--seconds", "1", "--connections", "1", "--json"];
    let output = load().args(isolation).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let isolation: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(isolation["p99_ratio"].as_f64().unwrap() > 0.0);
    for report in [&fill, &echo, &isolation["alone"], &isolation["beside"], &isolation["flood"]] {
        for member in [
            "scenario",
            "connections",
            "depth",
            "networks",
            "elapsed_seconds",
            "answers",
            "per_second",
            "p50_ms",
            "p99_ms",
            "p999_ms",
            "max_ms",
            "bytes_per_request",
            "bytes_per_answer",
            "existed",
            "refused",
            "wrong",
            "lost",
            "held",
            "held_by_server",
            "duplicates",
            "duplicate_examples",
        ] {
            assert!(report.get(member).is_some(), "{member}: {report}");
        }
    }
    assert_eq!(fill["held_by_server"], fill["held"]);
}

#[test]
fn a_long_history_is_asked_and_every_answer_is_right() {
    let words =
        ["history", "--events", "4000", "--networks", "4", "--hold", "2", "--repeat", "1", "--only", "owner", "--json"];
    let output = load().args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!log.contains("INFO"), "its servers tell nothing of themselves: {log}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() > 3 && rows.iter().all(|row| row["wrong"].is_null()), "{report}");
    // A register that has been filled is not filled again, but can be queried.
    let directory = tempfile::tempdir().unwrap();
    let kept = |events: &str| {
        let words =
            ["history", "--events", events, "--networks", "4", "--hold", "2", "--repeat", "1", "--only", "rare owner"];
        load().args(words).arg("--directory").arg(directory.path()).output().unwrap()
    };
    for (events, code) in [("4000", 0), ("4000", 2), ("0", 0)] {
        let output = kept(events);
        assert_eq!(output.status.code(), Some(code), "{events}: {}", said(&output));
        assert_eq!(said(&output).contains("`--events 0` asks what it has"), code == 2, "{}", said(&output));
    }
    // A server that grants nothing has no history, and no answer is wrong.
    let refuses = Liar::who(|request, mut answer| {
        if request["method"] == "ip.allocate" {
            let error =
                json!({"code": -32020, "message": "come later", "data": {"kind": "unavailable", "applied": false}});
            answer = json!({"jsonrpc": "2.0", "id": answer["id"], "error": error});
        }
        vec![answer]
    });
    let (mut command, _directory) = load_that_starts(&ready(refuses.address));
    let output = command.args(["history", "--events", "4000", "--networks", "4", "--only", "busy"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("requests were refused"), "{}", said(&output));
    // With a shorter history no answer could be right, which would not be the server's fault.
    let output = load().args(["history", "--events", "1000"]).output().unwrap();
    assert!(said(&output).contains("say at least 19200"), "{}", said(&output));
}
