//! `allod doctor`: what it asks a server that is not well, and when it says what it found.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::text;
use crate::responder::{Responder, refusal};

fn doctor(server: &str, data: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allod"));
    command.args(["doctor", "--store", "memory", "--server", server, "--data"]).arg(data);
    command.env_remove("ALLOD_SERVER").stdin(Stdio::null());
    command
}

/// A server whose store is away.
fn without_store(owner: bool) -> impl Fn(&str, &Value) -> Result<Value, Value> {
    move |method, _| match method {
        "server.info" => Ok(json!({"node": "n1", "version": env!("CARGO_PKG_VERSION"), "store": "redis"})),
        "cluster.nodes" => Ok(json!({"nodes": [{"name": "n1", "version": "1", "owner": owner}], "shards": []})),
        _ => Err(refusal(ErrorKind::Unavailable, "the store is away", json!({"applied": false}))),
    }
}

#[test]
fn who_looks_at_a_server_whose_store_is_away_asks_once_and_nobody_for_what_an_owner_knows() {
    let directory = tempfile::tempdir().unwrap();
    let of_owner = ["server.info", "cluster.nodes", "cluster.conflicts"];
    for (owner, asked) in [(false, &of_owner[..2]), (true, &of_owner[..])] {
        let server = Responder::start(without_store(owner));
        let output = doctor(&server.address, directory.path()).output().unwrap();
        let told = text(&output.stdout);
        assert_eq!(server.methods(), asked, "{told}");
        assert_eq!(told.contains("none owns the register"), !owner, "{told}");
    }
}

/// The checks of the server, which come next, may take long.
#[test]
fn what_is_found_is_told_before_the_server_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let (told, is_told) = sync_channel(1);
    let (is_told, was_told) = (Mutex::new(is_told), Arc::new(AtomicBool::new(false)));
    let noted = Arc::clone(&was_told);
    let server = Responder::start(move |method, params| {
        if method == "server.info" {
            let first = is_told.lock().unwrap().recv_timeout(Duration::from_secs(30)).is_ok();
            noted.store(first, Ordering::SeqCst);
        }
        without_store(true)(method, params)
    });
    let mut child = doctor(&server.address, directory.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.find(|line| line.as_ref().unwrap().contains("the memory store keeps nothing")).unwrap().unwrap();
    told.send(()).unwrap();
    assert!(lines.map(Result::unwrap).any(|line| line.contains("things looked at")));
    child.wait().unwrap();
    assert!(was_told.load(Ordering::SeqCst));
}
