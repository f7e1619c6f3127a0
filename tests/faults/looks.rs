//! Commands that only read, while a node hangs: they show what the other nodes know, name the one that does not answer, and
//! do not wait for it as long as for an answer that they need.

use std::process::Output;

use serde_json::Value;

use super::run::{Nodes, eventually};

/// What the command said, in one line.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_is_named_by_who_looks_at_shards_and_metrics_and_the_others_are_shown() {
    let Some(nodes) = Nodes::start(2, &[]) else { return };
    let cluster = &nodes.cluster;
    let owner = cluster.owner_but(None).await;
    let other = 1 - owner;
    eventually("the other one knows where the owner is", || {
        cluster.tries(other, &["cluster", "shards"]).status.success()
    })
    .await;
    cluster.signal(owner, "-STOP");
    let shards = cluster.tries(other, &["cluster", "shards", "--timeout", "30s"]);
    let metrics = format!("{},{}", cluster.http(owner), cluster.http(other));
    let top = ["top", "--once", "--metrics", &metrics, "--interval", "0", "--timeout", "30s", "--format", "json"];
    let top = cluster.tries(other, &top);
    cluster.signal(owner, "-CONT");

    let told = said(&shards);
    assert_eq!(shards.status.code(), Some(3), "{told}");
    let silent = format!("does not answer at {}: no answer within 3 s", cluster.address(owner));
    let parts =
        ["allod: cannot tell how the shards stand: ", &format!("node `node-{owner}`, which owns"), &silent, "hint: "];
    parts.iter().for_each(|part| assert!(told.contains(part), "{part}: {told}"));
    assert!(told.contains(&cluster.address(other).to_string()), "it shows no nodes: {told}");
    assert!(top.status.success(), "{}", said(&top));
    let shown: Value = serde_json::from_slice(&top.stdout).unwrap();
    let problems: Vec<&str> = shown["problems"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let silent = format!("{}: nothing was heard of it for 5 s", cluster.http(owner));
    assert_eq!(problems.iter().filter(|problem| **problem == silent).count(), 1, "{problems:?}");
    assert_eq!(shown["nodes"].as_array().unwrap().len(), 1, "{shown}");
}
