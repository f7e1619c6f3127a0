//! Arguments that cannot work are refused before anything is asked; a run that is ended early reports its findings.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::liar::Liar;
use crate::program::{Server, load, load_that_starts, ready, said};

/// The longest wait of a test.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[test]
fn impossible_input_is_refused_with_its_name() {
    for (words, named) in [
        ("run fill --requests 0", "--requests"),
        ("run fill --seconds 0", "--seconds"),
        ("run fill --requests 3 --warmup 0.1 --connections 2 --depth 2 --start memory", "at least 4"),
        ("echo --requests 3 --warmup 0.1 --connections 2 --depth 2", "at least 4"),
        // Refused before anything is started; starting these would fail anyway.
        ("run fill --seconds 0 --start memory --nodes 2", "--seconds"),
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
        ("run contended --wait 86401", "--wait"),
        ("run deployments --instances 10001", "--instances"),
        ("run restart-storm --warmup 1 --start memory", "--warmup"),
        ("run fill --network-prefix a/b", "--network-prefix"),
        ("run churn --start memory --cidr 2001:db8::/64", "--cidr"),
        ("history --events 1200 --networks 4 --only typo", "rare owner; rare scope"),
        ("goals --only store-memory --save /nowhere/at/all.json", "/nowhere/at"),
        ("goals --only full --full-pool 16", "--full-pool 16"),
    ] {
        let output = load().args(words.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {}", said(&output));
        assert!(said(&output).contains(named) && output.stdout.is_empty(), "{words}: {}", said(&output));
    }
}

/// Starts the command, runs `when`, sends the signal, and waits for the end.
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
            // The receiver is gone if the test has failed.
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
fn what_was_started_goes_with_a_run_that_is_ended_or_whose_terminal_goes() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        what_was_started_goes(signal, code);
    }
}

fn what_was_started_goes(signal: Signal, code: i32) {
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
    let output = signalled(&mut command, signal, has_begun);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Waits until this file exists.
fn wait_for(file: &Path) {
    let begun = Instant::now();
    while !file.exists() {
        assert!(begun.elapsed() < WAIT_MAX, "there is no {}", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_that_is_not_ready_again_after_its_kill_is_not_waited_for_when_a_signal_comes() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let [first, again, ended] = ["first", "again", "ended"].map(|name| directory.path().join(name));
    let [first_there, again_there, ended_there] = [&first, &again, &ended].map(|file| file.display());
    // At its second start the server prints nothing for a while, and then ends.
    let script = format!(
        "if [ ! -e {first_there} ]; then touch {first_there}; {}; fi; touch {again_there}; sleep 20 2> /dev/null; touch {ended_there}",
        ready(server.address)
    );
    let (mut command, _directory) = load_that_starts(&script);
    command.args("run restart-storm --owners 20 --connections 1 --depth 2 --start embedded --kill".split(' '));
    let output = signalled(&mut command, Signal::INT, || wait_for(&again));
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("ended by Ctrl-C") && !ended.exists(), "{}", said(&output));
}

#[test]
fn a_server_that_does_not_end_is_killed_when_somebody_waits_no_longer() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let (told, ended) = (directory.path().join("told"), directory.path().join("ended"));
    let there = ended.display();
    // The server ignores the request to end.
    let script = format!(
        "trap 'touch {}' TERM; echo ready {}; sleep 20 2> /dev/null & wait; wait; touch {there}",
        told.display(),
        server.address
    );
    let (mut command, _directory) = load_that_starts(&script);
    command.args("run fill --requests 20 --connections 1 --depth 2 --start memory".split(' '));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&told);
    let process = Pid::from_raw(child.id().cast_signed()).unwrap();
    let mut child = child;
    // The first signal may count as one that ends the run, which is already over.
    while child.try_wait().unwrap().is_none() {
        kill_process(process, Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert!(said(&output).contains("was killed") && !ended.exists(), "{}", said(&output));
    assert_eq!(output.status.code(), Some(0), "what it found was told before: {}", said(&output));
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

#[test]
fn a_call_that_waits_for_its_answer_is_ended_by_a_signal() {
    // Accepts connections, but answers nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (asked, told) = mpsc::channel();
    std::thread::spawn(move || {
        let kept: Vec<_> = listener.incoming().map(Result::unwrap).inspect(|_| asked.send(()).unwrap_or(())).collect();
        drop(kept);
    });
    let begun = Instant::now();
    let mut command = load();
    command.args(["run", "fill", "--requests", "10", "--server", &address]);
    let output = signalled(&mut command, Signal::INT, || told.recv_timeout(WAIT_MAX).unwrap());
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("ended by Ctrl-C"), "{}", said(&output));
    // Without the signal the call would have waited for a minute.
    assert!(begun.elapsed() < WAIT_MAX, "{}", said(&output));
}

#[test]
fn a_server_that_is_wrong_is_wrong_also_where_nothing_could_be_saved() {
    let mut answers = 0;
    let mut first = None;
    let liar = Liar::who(move |request, mut answer| {
        if request["method"] == "ip.allocate" {
            answers += 1;
            let address = first.get_or_insert_with(|| answer["result"]["address"].clone());
            if answers == 50 {
                answer["result"]["address"] = address.clone();
            }
        }
        vec![answer]
    });
    let (directory, server) = (tempfile::tempdir().unwrap(), liar.address.to_string());
    let words =
        ["run", "fill", "--requests", "200", "--connections", "2", "--depth", "2", "--server", &server, "--save"];
    // A directory cannot be written as a file.
    let output = load().args(words).arg(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains(&directory.path().display().to_string()), "{}", said(&output));
}

#[test]
fn who_reads_no_further_does_not_end_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levels.json");
    let mut command = load();
    command.args(["run", "churn", "--cidr", "10.0.0.0/24", "--connections", "1", "--depth", "2", "--requests", "50"]);
    command.args(["--fill-level", "0.1,0.5", "--start", "memory", "--save"]).arg(&file);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let saved: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(saved["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn who_reads_no_further_has_no_failure_of_what_was_told_at_the_end() {
    for words in ["goals --list", "history --events 1200 --networks 4 --hold 2 --repeat 1 --only owner"] {
        let mut command = load();
        command.args(words.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words}: {}", said(&output));
    }
}

#[test]
fn who_reads_no_further_of_what_is_said_beside_does_not_end_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("goals.json");
    let mut command = load();
    command.args("goals --only store-memory --rounds 1 --seconds 0.2 --connections 2 --depth 2 --save".split(' '));
    let mut child = command.arg(&file).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let saved: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert!(saved["goals"][0]["measured"].is_number(), "{saved}");
}

#[test]
fn an_echo_that_is_behind_its_arrivals_is_no_measurement() {
    // No server answers a thousand million requests a second, one at a time.
    let words = ["echo", "--connections", "1", "--depth", "1", "--seconds", "1", "--rate", "1000000000"];
    let output = load().args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("NOT MADE"), "{}", said(&output));
}

#[test]
fn what_was_there_before_a_run_is_not_removed_by_it() {
    let liar = Liar::who(|_, answer| vec![answer]);
    let server = liar.address.to_string();
    let run = |words: &[&str]| {
        let small = ["--connections", "1", "--depth", "2", "--requests", "20", "--server", &server];
        load().arg("run").args(words).args(small).output().unwrap()
    };
    let networks = || {
        let list = liar.call("network.list", &json!({}));
        let networks = list["result"]["networks"].as_array().unwrap().clone();
        let mut names: Vec<String> = networks.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let first = run(&["churn", "--networks", "1", "--cidr", "10.0.0.0/24", "--prefill", "5"]);
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    let words = ["churn", "--networks", "2", "--cidr", "10.0.0.0/24", "--prefill", "5", "--delete"];
    let second = run(&words);
    assert_eq!((second.status.code(), networks()), (Some(0), vec!["load-00".to_owned()]), "{}", said(&second));
    // A run that failed leaves no networks either.
    let words = ["churn", "--networks", "2", "--cidr", "10.0.0.0/24", "--prefill", "5000", "--delete"];
    let nothing = run(&[&words[..], &["--network-prefix", "mine-"]].concat());
    assert_eq!((nothing.status.code(), networks()), (Some(2), vec!["load-00".to_owned()]), "{}", said(&nothing));
    assert!(said(&second).contains("`load-00` was there before the run"), "{}", said(&second));
    let several = ["churn", "--networks", "2", "--cidr", "10.0.0.0/24", "--fill-level", "0.1,0.5"];
    let third = run(&several);
    assert_eq!((third.status.code(), networks()), (Some(2), vec!["load-00".to_owned()]), "{}", said(&third));
    assert!(said(&third).contains("`load-00` was there before"), "{}", said(&third));
    let others = run(&[&several[..], &["--network-prefix", "mine-"]].concat());
    assert_eq!((others.status.code(), networks()), (Some(0), vec!["load-00".to_owned()]), "{}", said(&others));
}

#[test]
fn a_fill_level_counts_what_is_held_already() {
    let liar = Liar::who(|_, answer| vec![answer]);
    let server = liar.address.to_string();
    for again in [false, true] {
        let words =
            ["run", "churn", "--cidr", "10.0.0.0/24", "--fill-level", "0.5", "--requests", "500", "--connections", "1"];
        let output = load().args(words).args(["--depth", "2", "--json", "--server", &server]).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
        let level = report["fill_level"].as_f64().unwrap();
        assert!((0.45..0.55).contains(&level), "{again}: {report}");
    }
}

#[test]
fn a_command_whose_networks_cannot_be_chosen_does_not_advise_to_choose_them() {
    let liar = Liar::who(|_, answer| vec![answer]);
    let network = json!({"name": "load-quiet", "realm": "load-quiet", "subnets": [{"cidr": "10.9.0.0/24"}]});
    assert!(liar.call("network.create", &network)["result"].is_object());
    let words = "p99-isolation --seconds 1 --connections 1 --depth 1 --server";
    let output = load().args(words.split(' ')).arg(liar.address.to_string()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("`allod network delete load-quiet --purge`"), "{}", said(&output));
    assert!(
        !["--no-create", "--network-prefix"].iter().any(|option| said(&output).contains(option)),
        "{}",
        said(&output)
    );
}
