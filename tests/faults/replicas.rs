//! Too few replicas for a while: nothing is acknowledged, and whoever asks is told so in time.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::Answer;
use super::redis::Redis;
use super::run::{Nodes, Setting, eventually};

/// Longer than whatever a request may wait for a store that takes nothing, and shorter than for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// A commit that hangs is given up, and its networks are loaded again when the store goes on: what waits for that, or for a lock of
/// somebody who does, is not to wait for as long as the replica is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_several_things_at_once_is_answered_while_the_replica_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = Redis::replicating(directory.path(), "primary", None) else { return };
    let replica = Redis::replicating(directory.path(), "replica", Some(primary.port())).unwrap();
    eventually("the replica follows", || replica.text(&["INFO", "replication"]).contains("master_link_status:up"))
        .await;
    let setting = Setting { nodes: 2, store: "redis_replicas = 1", ..Setting::default() };
    let nodes = Nodes::over(directory, primary, setting);
    let owner = nodes.cluster.owner_but(None).await;
    let mut first = nodes.client(owner).await;
    for name in ["lan", "dmz"] {
        first.call("network.create", json!({"name": name, "subnets": []})).await.ok();
    }
    first.call("subnet.add", json!({"network": "lan", "cidr": "10.0.0.0/16"})).await.ok();
    first.call("subnet.add", json!({"network": "dmz", "cidr": "10.1.0.0/16"})).await.ok();
    replica.signal("-STOP");
    let mut asked = JoinSet::new();
    for at in 0..24 {
        let networks = json!([{"network": "lan"}, {"network": "dmz"}]);
        let (method, params) = match at % 4 {
            0 => {
                ("network.create", json!({"name": format!("n{at}"), "subnets": [{"cidr": format!("10.2.{at}.0/24")}]}))
            }
            1 => (
                "deployment.apply",
                json!({"deployment": "d", "instances": [{"id": format!("i{at}"), "networks": networks}]}),
            ),
            2 => ("subnet.add", json!({"network": "lan", "cidr": format!("10.3.{at}.0/24")})),
            _ => ("ip.acquire", json!({"owner": format!("o{at}"), "ips": networks})),
        };
        let mut client = nodes.client(at % 2).await;
        asked.spawn(async move { (method, at, timeout(PATIENCE, client.call(method, params)).await.is_ok()) });
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    for (method, at, is_answered) in asked.join_all().await {
        assert!(is_answered, "{method} {at} has no answer\n{}", nodes.logs());
    }
    replica.signal("-CONT");
    // Its networks are loaded again first.
    let end = Instant::now() + 2 * PATIENCE;
    loop {
        let mut client = nodes.client(owner).await;
        match client.call("ip.allocate", json!({"network": "lan", "owner": "after"})).await {
            Answer::Result(_) => break,
            other => assert!(Instant::now() < end, "it grants nothing: {other:?}\n{}", nodes.logs()),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
