//! `allod watch` across kills: one line for each event, and no event twice.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::super::server::{Server, allod};
use super::super::wire::Wire;
use super::{PATIENCE, client, make_lan, members};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_prints_each_event_once_over_kills_and_says_that_it_tries_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::start(&data);
    make_lan(server.address).await;
    let wire = Wire::to(server.address);
    let client = client(&[wire.address]);
    let network = client.call("network.get", members(json!({"network": "lan"}))).await.unwrap();
    let mut child = Command::new(allod())
        .args(["watch", "--network", "lan", "--format", "json", "--count", "90"])
        .args(["--since", network["cursor"].as_str().unwrap()])
        .env("ALLOD_SERVER", wire.address.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (first, begun) = tokio::sync::oneshot::channel();
    let mut first = Some(first);
    let read = tokio::task::spawn_blocking(move || {
        let read = |line: std::io::Result<String>| {
            first.take().map(|first| first.send(()));
            serde_json::from_str(&line.unwrap()).unwrap()
        };
        let lines: Vec<Value> = stdout.lines().map(read).collect();
        (lines, child.wait_with_output().unwrap())
    });
    let mut begun = Some(begun);
    for round in 0..3 {
        for owner in 0..30 {
            let ask = json!({"network": "lan", "owner": format!("{round}/{owner}")});
            client.call("ip.allocate", members(ask)).await.unwrap();
        }
        // The command has connected before the first kill.
        if let Some(begun) = begun.take() {
            tokio::time::timeout(PATIENCE, begun).await.expect("it begins").unwrap();
        }
        if round < 2 {
            server.kill();
            server = Server::start(&data);
            wire.lead_to(server.address);
        }
    }
    let (events, output) = read.await.unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words}");
    let owners: Vec<&str> = events.iter().map(|event| event["owner"].as_str().unwrap()).collect();
    let expected: Vec<String> = (0..3).flat_map(|round| (0..30).map(move |owner| format!("{round}/{owner}"))).collect();
    assert_eq!(owners, expected);
    assert!(words.contains("trying again until the server is back"), "{words}");
}
