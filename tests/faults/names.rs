//! Two processes with the same name.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::Client;
use super::redis::Redis;
use super::run::{Nodes, Run, STANDSTILL_MAX, Setting, insist};
use super::server::allod;

/// A second process is not let in while the first one lives. When the first sleeps for long, the second takes over; then the
/// first wakes: of two nodes with one name only one grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_of_one_name_only_one_grants_at_a_time() {
    let Some(run) = Run::of(Setting { nodes: 1, ..Setting::default() }).await else { return };
    let said = run.nodes.cluster.begin_as("node-0", "twin", 1).failed();
    assert!(
        said.contains("another node of the name `node-0`")
            && said.contains("start this one with another `--node NAME`"),
        "{said}"
    );
    run.gets_on(200, "beside a twin that was refused").await;
    let place = "late-twin";
    let twin = run.nodes.cluster.begin_as("node-0", place, 1);
    run.nodes.cluster.signal(0, "-STOP");
    let twin = twin.ready();
    run.load.also_at(twin.address);
    run.gets_on(200, "at the twin").await;
    run.nodes.cluster.signal(0, "-CONT");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    run.gets_on(200, "with both awake").await;
    let epochs = run.nodes.redis.number(&["HGET", "{allod}:0:head", "epoch"]);
    assert!(epochs >= 2, "the twin did not take over");
    // The one that is left is one of the two.
    run.end().await;
    drop(twin);
}

/// A machine that was set up anew has the address of the previous one, and another name. The other nodes, and their clients,
/// know it by its own name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_of_another_name_where_the_one_before_it_was_is_known_by_its_own() {
    let Some(mut nodes) = Nodes::set(Setting { wired: true, ..Setting::default() }) else { return };
    assert_eq!(nodes.cluster.owner_but(None).await, 0);
    nodes.cluster.signal(1, "-STOP");
    nodes.cluster.kill(0);
    let anew = nodes.cluster.begin_as("anew", "anew", 0).ready();
    nodes.cluster.signal(1, "-CONT");
    let mut client = nodes.client(1).await;
    eventually_shown(&mut client, "anew").await;
    let drained = insist(&mut client, "cluster.drain", &json!({"node": "anew"})).await;
    assert_eq!(drained["owner"], "node-1", "{drained}");
    drop(anew);
}

/// Waits until a node shows this owner of the register.
async fn eventually_shown(client: &mut Client, owner: &str) {
    let end = Instant::now() + STANDSTILL_MAX;
    loop {
        let known = insist(client, "cluster.nodes", &json!({})).await;
        let owners: Vec<_> = known["nodes"].as_array().unwrap().iter().filter(|node| node["owner"] == true).collect();
        if matches!(owners[..], [one] if one["name"] == owner) {
            return;
        }
        assert!(Instant::now() < end, "{known}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The node took the register, and then could not make what its network file asks for.
#[test]
fn a_start_that_comes_to_nothing_leaves_neither_its_name_nor_a_lease_behind() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let [networks, data] = ["networks.toml", "data"].map(|name| directory.path().join(name).display().to_string());
    let overlap = "[[network]]\nname = \"lan\"\nsubnets = [{ cidr = \"10.0.0.0/24\" }, { cidr = \"10.0.0.0/25\" }]\n";
    std::fs::write(&networks, overlap).unwrap();
    let arguments = ["serve", "--redis", &redis.url(), "--node", "one", "--data", &data, "--networks", &networks];
    let places = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let ended = Command::new(allod()).args(arguments).args(places).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("network `lan` of the network file"), "{said}");
    let of_head = |field| redis.text(&["HGET", "{allod}:0:head", field]);
    assert_eq!(of_head("epoch"), "1", "it never took the register: {said}");
    assert_eq!(of_head("lease"), "0", "the next owner waits for its lease");
    assert_eq!(redis.number(&["HLEN", "{allod}:nodes"]), 0, "the next one of its name waits");
}
