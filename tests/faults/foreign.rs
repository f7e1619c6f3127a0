//! Another register takes the place of the one that running nodes use: somebody exchanges the files of Redis while it is
//! down. The heads of the other register look as if somebody had gone on from further back, and its networks may have the
//! same names.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::client::Client;
use super::nodes::Cluster;
use super::redis::Redis;
use super::run::eventually;

const FLUSHED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// A Redis with its files in a directory, and nodes on it that have made a network.
async fn begun(directory: &Path, nodes: usize) -> Option<(Redis, Cluster)> {
    std::fs::create_dir(directory).unwrap();
    let place = directory.join("redis");
    std::fs::create_dir(&place).unwrap();
    let redis = Redis::start(&place, &FLUSHED)?;
    let cluster = Cluster::start(directory, &redis, nodes);
    let mut client = Client::connect(cluster.address(0)).await.unwrap();
    client.call("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/28"}]})).await.ok();
    Some((redis, cluster))
}

fn register(redis: &Redis) -> String {
    redis.text(&["HGET", "{allod}:register", "register"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_node_grants_nothing_from_another_register_and_ends_naming_both() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut other, mut strangers)) = begun(&directory.path().join("other"), 1).await else { return };
    let foreign = register(&other);
    strangers.stop(0);
    other.end();
    let place = directory.path().join("own");
    let (mut redis, cluster) = begun(&place, 2).await.unwrap();
    let own = register(&redis);
    let mut client = Client::connect(cluster.address(0)).await.unwrap();
    let granted = client.call("ip.allocate", json!({"network": "lan", "owner": "somebody"})).await.ok();
    redis.end();
    redis.forget();
    let from = directory.path().join("other/redis/appendonlydir");
    assert!(Command::new("cp").arg("-r").arg(from).arg(place.join("redis")).status().unwrap().success());
    redis.begin();
    let before = (redis.of_heads("epoch"), redis.of_heads("seq"));
    for at in 0..2 {
        eventually("it ends, and says of which register this is", || {
            let log = cluster.log(at);
            assert!(!log.contains("a line goes on from further back"), "{log}");
            log.contains("hint: ") && log.contains(&format!("{foreign}, not {own}")) && log.contains("--redis URL")
        })
        .await;
        assert!(Client::connect(cluster.address(at)).await.is_err(), "node {at} serves {granted} once more");
    }
    assert_eq!((redis.of_heads("epoch"), redis.of_heads("seq")), before, "the other register was taken");
    assert_eq!(redis.text(&["HKEYS", "{allod}:nodes"]), "", "the other register knows of these nodes");
}
