//! What nothing can come of is refused before anything is asked; what is ended early says what it has found.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::liar::Liar;
use crate::program::{Server, load, said};

/// Longest wait for what a test waits for.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[test]
fn impossible_input_is_refused_with_its_name() {
    for (words, named) in [
        ("run fill --requests 0", "--requests"),
        ("run fill --seconds 0", "--seconds"),
        ("run fill --fill-level 0.5", "--fill-level"),
        ("run claims --cidr 10.0.0.0/16", "--cidr"),
        ("run blocks --start memory --prefix-length 4", "--prefix-length"),
        ("run mixed --server nonsense", "nonsense"),
        ("run fill --appendfsync always --start memory", "--appendfsync"),
        ("run fill --no-create --delete", "--delete"),
        ("run churn --no-create --fill-level 0.1,0.9", "--no-create"),
        ("run fill --token-file x", "--token-file"),
        ("run fill --save /nowhere/at/all.json --start memory", "/nowhere/at"),
        ("run fill --start memory --cidr 10.0.0.0/24 --prefill 99999999999", "99999999999"),
        ("p99-isolation --seconds 0", "--seconds"),
        ("compare --seconds 0", "--seconds"),
    ] {
        let output = load().args(words.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {}", said(&output));
        assert!(said(&output).contains(named) && output.stdout.is_empty(), "{words}: {}", said(&output));
    }
}

/// Starts it, sends the signal when it is told to, and waits for its end.
fn signalled(command: &mut Command, signal: Signal, when: impl FnOnce()) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    when();
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_run_that_is_ended_by_hand_reports_and_saves_what_it_has_found() {
    let directory = tempfile::tempdir().unwrap();
    let (file, page) = (directory.path().join("run.json"), directory.path().join("page.html"));
    let (told, enough) = mpsc::channel();
    let mut answered = 0;
    let liar = Liar::who(move |request, answer| {
        answered += usize::from(request["method"] == "ip.allocate");
        if answered == 200 {
            // Nobody listens any more where the test has failed.
            let _ = told.send(());
        }
        vec![answer]
    });
    let server = liar.address.to_string();
    let mut command = load();
    command.args(["run", "fill", "--seconds", "50", "--connections", "2", "--depth", "2", "--server", &server]);
    command.arg("--save").arg(&file).arg("--page").arg(&page);
    let output = signalled(&mut command, Signal::INT, || enough.recv_timeout(WAIT_MAX).unwrap());
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("NOT MADE: ended by Ctrl-C"), "{}", said(&output));
    assert!(said(&output).contains("the server's listing agrees"), "{}", said(&output));
    let saved: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert!(saved["runs"][0]["answers"].as_u64().unwrap() >= 100, "{saved}");
    assert!(fs::read_to_string(page).unwrap().contains("no measurement: ended by Ctrl-C"));
}

#[test]
fn an_open_loop_that_is_ended_while_the_server_is_behind_says_what_was_never_sent() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let (told, enough) = mpsc::channel();
    let mut answered = 0;
    let liar = Liar::who(move |request, answer| {
        answered += usize::from(request["method"] == "ip.allocate");
        if answered == 50 {
            let _ = told.send(());
        }
        vec![answer]
    });
    let server = liar.address.to_string();
    let mut command = load();
    command.args(["run", "fill", "--seconds", "50", "--rate", "1000000", "--connections", "1", "--depth", "1"]);
    command.args(["--server", &server, "--save"]).arg(&file);
    let output = signalled(&mut command, Signal::INT, || enough.recv_timeout(WAIT_MAX).unwrap());
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let saved: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert!(saved["runs"][0]["never_sent"].as_u64().unwrap() > 0, "{saved}");
}

#[test]
fn what_was_started_goes_with_a_run_that_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let has_begun = || {
        let begun = Instant::now();
        while fs::read_dir(directory.path()).unwrap().next().is_none() {
            assert!(begun.elapsed() < WAIT_MAX, "nothing was started");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut command = load();
    command.args(["run", "fill", "--start", "embedded", "--seconds", "50"]).env("TMPDIR", directory.path());
    let output = signalled(&mut command, Signal::TERM, has_begun);
    assert_eq!(output.status.code(), Some(143), "{}", said(&output));
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_connection_that_is_lost_is_named_and_what_was_measured_is_told() {
    let (told, enough) = mpsc::channel();
    let server = Server::start();
    let liar_told = told;
    let liar = Liar::before(server, move |request, answer| {
        if request["method"] == "ip.allocate" && answer["id"].as_u64().unwrap() > 0 {
            let _ = liar_told.send(());
        }
        vec![answer]
    });
    let address = liar.address.to_string();
    let mut command = load();
    command.args(["run", "fill", "--seconds", "50", "--connections", "2", "--depth", "2", "--patience", "2"]);
    command.args(["--server", &address]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    (0..100).for_each(|_| enough.recv_timeout(WAIT_MAX).unwrap());
    drop(liar);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains(&format!("NOT MADE: {address}: closed a connection")), "{}", said(&output));
    assert!(said(&output).contains("answers/s"), "{}", said(&output));
}
