//! A watch tells each event once, in order, whatever happens to the server that it is connected to.

use allod::client::{Client, ClientError, Told, Watch};
use serde_json::{Value, json};

use super::super::client::Client as Raw;
use super::super::nodes::Cluster;
use super::super::redis::Redis;
use super::super::server::Server;
use super::super::wire::Wire;
use super::{PATIENCE, client, make_lan, members};

/// Events that a test makes between two faults.
const EVENTS: usize = 60;

async fn event(watch: &mut Watch) -> Value {
    loop {
        let told = tokio::time::timeout(PATIENCE, watch.next()).await.expect("something is told").unwrap();
        if let Told::Event(event) = told {
            return event;
        }
    }
}

/// Makes one change after the other: each of the owners `from..from + EVENTS` is granted an address.
async fn grow(client: &Client, from: usize) {
    for owner in from..from + EVENTS {
        client.call("ip.allocate", members(json!({"network": "lan", "owner": owner.to_string()}))).await.unwrap();
    }
}

/// Checks that the next events are those of `grow`, with nothing between them.
async fn follow(watch: &mut Watch, from: usize) {
    for owner in from..from + EVENTS {
        let event = event(watch).await;
        assert_eq!((&event["type"], &event["owner"]), (&json!("granted"), &json!(owner.to_string())), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_over_kills_tells_each_event_once_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::start(&data);
    make_lan(server.address).await;
    let wire = Wire::to(server.address);
    let client = client(&[wire.address]);
    let mut by_name = client.watch(members(json!({"network": "lan"}))).await.unwrap();
    let mut of_all = client.watch(members(json!({}))).await.unwrap();
    // The first kill comes before anything was told.
    for round in 0..3 {
        server.kill();
        server = Server::start(&data);
        wire.lead_to(server.address);
        grow(&client, round * EVENTS).await;
        follow(&mut by_name, round * EVENTS).await;
        // This watch reads the events of a round only after the next kill.
        if round > 0 {
            follow(&mut of_all, (round - 1) * EVENTS).await;
        }
    }
    // The watch follows a network that is renamed and then deleted.
    let mut raw = Raw::connect(server.address).await.unwrap();
    raw.call("network.update", json!({"network": "lan", "set": {"name": "office"}})).await.ok();
    assert_eq!(event(&mut by_name).await["type"], "network_changed");
    wire.cut();
    raw.call("network.delete", json!({"network": "office", "purge": true})).await.ok();
    assert_eq!(event(&mut by_name).await["type"], "network_deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_at_another_node_without_gap_or_repeat() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let mut cluster = Cluster::start(directory.path(), &redis, 2);
    let owner = cluster.owner_but(None).await;
    make_lan(cluster.address(owner)).await;
    let client = client(&[cluster.address(owner), cluster.address(1 - owner)]);
    let mut watch = client.watch(members(json!({"network": "lan"}))).await.unwrap();
    grow(&client, 0).await;
    follow(&mut watch, 0).await;
    let growing = client.clone();
    let grown = tokio::spawn(async move { grow(&growing, EVENTS).await });
    cluster.kill(owner);
    follow(&mut watch, EVENTS).await;
    grown.await.unwrap();
    // A new watch from this one's cursor goes on where this one stands.
    let since = watch.cursor().to_owned();
    grow(&client, 2 * EVENTS).await;
    follow(&mut watch, 2 * EVENTS).await;
    let mut again = client.watch(members(json!({"network": "lan", "since": since}))).await.unwrap();
    follow(&mut again, 2 * EVENTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_history_was_cut_off_says_so_with_the_last_common_cursor() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data);
    make_lan(server.address).await;
    let wire = Wire::to(server.address);
    let client = client(&[wire.address]);
    let mut watch = client.watch(members(json!({}))).await.unwrap();
    grow(&client, 0).await;
    follow(&mut watch, 0).await;
    // The server that comes back has another history.
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
    let server = Server::start(&data);
    make_lan(server.address).await;
    wire.lead_to(server.address);
    let error = tokio::time::timeout(PATIENCE, watch.next()).await.expect("it says so").unwrap_err();
    let ClientError::Rpc(refusal) = &error else { panic!("{error:?}") };
    assert_eq!(refusal.kind, "cursor_lost", "{error:?}");
    assert_eq!(watch.next().await.unwrap_err(), error, "it has ended");
    watch.go_on_from(refusal.data["last_common"].as_str().unwrap());
    grow(&client, 0).await;
    while event(&mut watch).await["type"] != "network_created" {}
    follow(&mut watch, 0).await;
}
