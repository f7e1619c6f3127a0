//! A server that broke a rule and then went is reported as wrong by every command: a later error must not hide the fault.

use std::collections::HashMap;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::json;

use crate::liar::Liar;
use crate::program::{load, load_that_starts, ready, said, write_script};

/// The longest wait of a test.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Which grants of a connection in the network are reported with the address of the previous one.
const LIES: std::ops::Range<usize> = 20..30;
/// After this many grants of one connection the server may go. No command has more than 32 requests of a connection under
/// way, and each is sent when an answer was read: so by then the lies were read.
const ENOUGH: usize = LIES.end + 32 + 1;
/// The text in a report.
const TWICE: &str = "addresses were handed out twice";

/// A server that hands out addresses twice in this network (or in any, if none is named), and signals when whoever asks has
/// been told. If the network is one of several, it waits for an allocation in another one before it signals.
fn twice(network: Option<&'static str>) -> (Liar, Receiver<()>) {
    let (told, enough) = channel();
    let mut told = Some(told);
    let (mut is_enough, mut granted) = (false, HashMap::new());
    // Of each connection and network, as networks may have realms of their own: the same address would be in order.
    let mut before = HashMap::new();
    let liar = Liar::who(move |request, mut answer| {
        if request["method"] == "ip.allocate" && answer.get("result").is_some() {
            let connection = request["connection"].to_string();
            let is_there = network.is_none_or(|network| request["params"]["network"] == network);
            if is_there {
                let grants = granted.entry(connection.clone()).or_insert(0);
                *grants += 1;
                is_enough |= *grants >= ENOUGH;
                let address = answer["result"]["address"].clone();
                let place = (connection, request["params"]["network"].to_string());
                if let Some(before) = before.insert(place, address)
                    && LIES.contains(grants)
                {
                    answer["result"]["address"] = before;
                }
            }
            if is_enough
                && (network.is_none() || !is_there)
                && let Some(told) = told.take()
            {
                // The receiver is gone if the test has failed.
                let _ = told.send(());
            }
        }
        vec![answer]
    });
    (liar, enough)
}

/// Runs the command against the server, which goes after it has lied.
fn cut_off(mut command: Command, (liar, enough): (Liar, Receiver<()>)) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let waited = enough.recv_timeout(WAIT_MAX);
    drop(liar);
    let output = child.wait_with_output().unwrap();
    assert!(waited.is_ok(), "it granted too little: {}", said(&output));
    output
}

/// Asserts that the command found the server to be wrong, and printed that.
#[track_caller]
fn assert_told(told: &str, words: &str, output: &Output) {
    assert_eq!(output.status.code(), Some(1), "{words}: {}", said(output));
    assert!(said(output).contains(told), "{words}: {}", said(output));
}

#[test]
fn a_server_that_was_wrong_while_pools_were_filled_is_wrong_though_nothing_was_measured() {
    let server = twice(None);
    let words = "run churn --cidr 10.0.0.0/16 --prefill 50000 --connections 2 --depth 2 --patience 2 --server";
    let mut command = load();
    command.args(words.split(' ')).arg(server.0.address.to_string());
    let output = cut_off(command, server);
    assert_told(TWICE, words, &output);
    assert_told("NOT MADE", words, &output);
}

#[test]
fn a_flood_that_showed_a_server_to_be_wrong_is_told_though_it_was_cut_off() {
    let server = twice(Some("load-flooded"));
    let words = "p99-isolation --seconds 1 --connections 2 --depth 2 --server";
    let mut command = load();
    command.args(words.split(' ')).arg(server.0.address.to_string());
    // Each lane releases its address at once, so whether an address is still held is a matter of luck; that the wrong
    // address is released is certain.
    assert_told("WRONG: releases_what_was_held", words, &cut_off(command, server));
}

#[test]
fn a_run_that_nobody_watches_tells_what_was_wrong_before_it_was_cut_off() {
    for words in [
        "goals --only store-memory --rounds 1 --seconds 1 --connections 2 --depth 2",
        "history --events 20000 --networks 4 --repeat 1 --only rare",
    ] {
        let server = twice(None);
        let (mut command, _directory) = load_that_starts(&ready(server.0.address));
        command.args(words.split(' '));
        assert_told(TWICE, words, &cut_off(command, server));
    }
}

#[test]
fn what_was_wrong_before_is_told_though_a_network_could_not_be_made() {
    let liar = Liar::who(|request, mut answer| {
        if request["method"] == "ip.list" && request["id"] != "beside" {
            let list = answer["result"]["reservations"].as_array_mut().unwrap();
            list.extend(list.first().cloned());
        }
        if request["method"] == "network.create" && request["params"]["name"] == "load-01" {
            let error = json!({"code": -32020, "message": "no", "data": {"kind": "unavailable", "applied": false}});
            answer = json!({"jsonrpc": "2.0", "id": answer["id"], "error": error});
        }
        vec![answer]
    });
    let network = json!({"name": "load-00", "realm": "load-00", "subnets": [{"cidr": "10.0.0.0/24"}]});
    assert!(liar.call("network.create", &network)["result"].is_object());
    assert!(liar.call("ip.allocate", &json!({"network": "load-00", "owner": "a"}))["result"].is_object());
    let words = "run fill --networks 2 --no-create --requests 10 --connections 1 --depth 1 --server";
    let output = load().args(words.split(' ')).arg(liar.address.to_string()).output().unwrap();
    assert_told("listed in load-00 before the run", words, &output);
    assert_told("NOT MADE", words, &output);
}

#[test]
fn a_server_that_was_wrong_while_its_instructions_were_counted_is_wrong() {
    let (liar, _enough) = twice(None);
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    // A fake valgrind that counts nothing, and runs the command after its options.
    let valgrind = "[ \"$1\" = --version ] && exit; while [ \"${1#--}\" != \"$1\" ]; do shift; done; exec \"$@\"";
    write_script(&at("valgrind"), valgrind);
    write_script(&at("allod"), &ready(liar.address));
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let words = ["instructions", "--store", "memory", "--record", "--file", "nowhere.json", "--program"];
    let output = load().args(words).arg(at("allod")).env("PATH", path).output().unwrap();
    assert_told(TWICE, "instructions", &output);
}
