//! Redis and its replica flush each change, and a change is acknowledged when both have it on disk. Tests what clients are
//! told while one of the two does not flush, and what is left when both are killed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::redis::Redis;
use super::run::{Nodes, STANDSTILL_MAX, Setting, eventually, insist};

fn grant(owner: &str) -> Value {
    json!({"network": "n", "owner": owner})
}

/// Nothing is granted, and the node's log says why.
async fn is_refused(client: &mut Client, nodes: &Nodes, reason: &str) {
    let end = Instant::now() + STANDSTILL_MAX;
    while Instant::now() < end {
        match client.call("ip.allocate", grant(reason)).await {
            Answer::Refused(kind, _) if ["unavailable", "not_ready"].contains(&kind.as_str()) => {}
            other => panic!("{reason}: {other:?}"),
        }
        if nodes.logs().contains(reason) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never says: {reason}\n{}", nodes.logs());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_too_few_disks_is_refused_with_the_reason_and_what_is_granted_is_on_the_replicas() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["primary", "replica"].map(|name| directory.path().join(name));
    [&first, &second].into_iter().for_each(|place| std::fs::create_dir(place).unwrap());
    let settings = ["--repl-diskless-sync-delay", "0"];
    let Some(primary) = Redis::start_on_disk(&first, &settings) else { return };
    let mut replica = Redis::start_on_disk(&second, &settings).unwrap();
    replica.ask(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("the replica follows", || replica.follows()).await;
    let setting = Setting { nodes: 1, store: "redis_replicas = 1", ..Setting::default() };
    let nodes = Nodes::over(tempfile::tempdir().unwrap(), primary, setting);
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "n", "subnets": [{"cidr": "10.0.0.0/24"}]})).await;
    let info = insist(&mut client, "server.info", &json!({})).await;
    let durability = "a failover to a replica that has it on disk: 1 replica must, before a change is acknowledged";
    assert!(info["durability"].as_str().is_some_and(|text| text.ends_with(durability)), "{info}");
    let mut held = vec![insist(&mut client, "ip.allocate", &grant("before")).await["address"].clone()];
    let stops = [(&nodes.redis, "is switched off"), (&replica, "0 do, 1 have it in memory")];
    for (redis, reason) in stops {
        redis.ask(&["CONFIG", "SET", "appendonly", "no"]);
        is_refused(&mut client, &nodes, reason).await;
        redis.ask(&["CONFIG", "SET", "appendonly", "yes"]);
        held.push(insist(&mut client, "ip.allocate", &grant(reason)).await["address"].clone());
    }
    // Everything ends at once, as when power fails.
    drop(nodes);
    replica.crash();
    let nodes = Nodes::over(directory, replica, Setting { nodes: 1, ..Setting::default() });
    let mut client = nodes.client(0).await;
    for address in held {
        let there = insist(&mut client, "ip.get", &json!({"network": "n", "address": address})).await;
        assert_eq!(there["address"], address, "{there}");
    }
}
