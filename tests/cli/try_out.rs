//! `allod try`: the first minute of somebody who has never seen allod.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs `allod try` until it has drawn the map, stops it in order, and returns the lines of stdout.
fn run(data: &Path, listen: &str) -> Vec<String> {
    run_and(data, listen, |_| {}).0
}

/// Like [`run`], but does something at its address before it is stopped; returns the lines of stdout and of stderr.
fn run_and(data: &Path, listen: &str, act: impl FnOnce(&str)) -> (Vec<String>, Vec<String>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_allod"))
        .args(["try", "--listen", listen, "--http", "127.0.0.1:0", "--data"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let before: Vec<String> = said.by_ref().take_while(|line| !line.starts_with("Serving until")).collect();
    let at =
        before.iter().find_map(|line| line.strip_prefix("JSON-RPC")).and_then(|line| line.split_whitespace().next());
    act(at.unwrap_or_else(|| panic!("{before:#?}")));
    let stopped = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    // Reads to the end, so that the process does not block on a full pipe.
    said.for_each(drop);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    (String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect(), before)
}

fn answers(lines: &[String]) -> Vec<Value> {
    let answers = lines.iter().filter_map(|line| line.strip_prefix("< "));
    answers.map(|line| serde_json::from_str::<Value>(line).unwrap()["result"].clone()).collect()
}

#[test]
fn try_shows_the_same_addresses_again_and_after_a_restart_on_another_port() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("allod-data");
    let first = run(&data, "127.0.0.1:0");
    let answered = answers(&first);
    assert_eq!(answered.len(), 4, "{first:#?}");
    let addresses: Vec<&Value> = answered.iter().map(|answer| &answer["address"]).collect();
    assert!(addresses[0].as_str().unwrap().contains('.') && addresses[1].as_str().unwrap().contains(':'));
    assert_eq!(addresses[..2], addresses[2..]);
    assert_eq!((&answered[0]["created"], &answered[2]["created"]), (&Value::Bool(true), &Value::Bool(false)));
    assert!(first.iter().any(|line| line.trim_start().starts_with("10.0.0.64 X")), "{first:#?}");
    // Another program has the port, and the register is the earlier one.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let again = answers(&run(&data, &taken.local_addr().unwrap().to_string()));
    assert_eq!(again[0]["address"], answered[0]["address"]);
    assert_eq!(again[0]["generation"], answered[0]["generation"]);
    assert_eq!(again[0]["created"], false);
}

#[test]
fn try_leaves_the_network_as_it_was_changed_since() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("allod-data");
    let allod = |server: &str, arguments: &[&str]| {
        let ran =
            Command::new(env!("CARGO_BIN_EXE_allod")).args(["--server", server]).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let change = ["network", "update", "lan", "--description", "mine now"];
    run_and(&data, "127.0.0.1:0", |server| drop(allod(server, &change)));
    let (_, said) = run_and(&data, "127.0.0.1:0", |server| {
        let shown = allod(server, &["network", "get", "lan"]);
        assert!(shown.contains("mine now"), "{shown}");
    });
    assert!(said.iter().any(|line| line.contains("it is left as it is")), "{said:#?}");
}
