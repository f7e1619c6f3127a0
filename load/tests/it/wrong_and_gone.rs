//! A server that broke a rule and then went is told as wrong by whatever drove it: an error that follows forgets nothing.

use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::liar::Liar;
use crate::program::{load, said};

/// Longest wait for what a test waits for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Of the grants in its network these are told with the address of the one before.
const LIES: std::ops::Range<usize> = 20..30;
/// After so many of them it may go.
const ENOUGH: usize = 60;
/// As a report tells it.
const TWICE: &str = "addresses were handed out twice";

/// A server that hands out addresses of this network (of any, if none is named) twice, and says when it has done so; where it is
/// one network of several, not before another is asked for an address.
fn twice(network: Option<&'static str>) -> (Liar, Receiver<()>) {
    let (told, enough) = channel();
    let (mut grants, mut before, mut told) = (0, Value::Null, Some(told));
    let liar = Liar::who(move |request, mut answer| {
        if request["method"] == "ip.allocate" && answer.get("result").is_some() {
            let is_there = network.is_none_or(|network| request["params"]["network"] == network);
            if is_there {
                grants += 1;
                let granted = answer["result"]["address"].clone();
                if LIES.contains(&grants) {
                    answer["result"]["address"].clone_from(&before);
                }
                before = granted;
            }
            if grants >= ENOUGH
                && (network.is_none() || !is_there)
                && let Some(told) = told.take()
            {
                // Nobody listens any more where the test has failed.
                let _ = told.send(());
            }
        }
        vec![answer]
    });
    (liar, enough)
}

/// Runs it against the server, which goes when it has lied.
fn cut_off(mut command: Command, (liar, enough): (Liar, Receiver<()>)) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let waited = enough.recv_timeout(WAIT_MAX);
    drop(liar);
    let output = child.wait_with_output().unwrap();
    assert!(waited.is_ok(), "it granted too little: {}", said(&output));
    output
}

/// The program in a directory where the `allod` that it starts is this server.
fn load_that_starts(liar: &Liar) -> (Command, TempDir) {
    let built = load().get_program().to_owned();
    let beside = std::path::Path::new(&built).parent().unwrap();
    let directory = tempfile::tempdir_in(beside).unwrap();
    let [program, server] = ["allod-load", "allod"].map(|name| directory.path().join(name));
    std::fs::hard_link(&built, &program).unwrap();
    // A program that another thread holds open, also for a moment, cannot be started; so it is written by somebody else.
    let script = format!("#!/bin/sh\necho ready {}\nexec sleep 600\n", liar.address);
    let mut write = Command::new("sh");
    write.args(["-c", r#"printf '%s' "$1" > "$0" && chmod +x "$0""#]).arg(&server).arg(script);
    assert!(write.status().unwrap().success());
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    (command, directory)
}

/// It ended as one that found the server to be wrong, and told of this.
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
    // Each lane lets its address go at once, so that somebody still holds it is a matter of luck; that another is let go is not.
    assert_told("WRONG: releases_what_was_held", words, &cut_off(command, server));
}

#[test]
fn a_run_that_nobody_watches_tells_what_was_wrong_before_it_was_cut_off() {
    for words in [
        "goals --only store-memory --rounds 1 --seconds 1 --connections 2 --depth 2",
        "history --events 20000 --networks 4 --repeat 1 --only rare",
    ] {
        let server = twice(None);
        let (mut command, _directory) = load_that_starts(&server.0);
        command.args(words.split(' '));
        assert_told(TWICE, words, &cut_off(command, server));
    }
}
