//! A failover with loss: a node acknowledges what the replica lacks, and stands still; the replica is promoted, and another
//! node goes on from there and grants some of the same addresses. Then the first node wakes, and at first cannot reach the
//! other one.

use std::collections::BTreeSet;

use super::runbook::{Operator, no_unit};
use super::scene::{Caller, Scene, Seen, until};
use super::store::{redis_in, replica_of};
use crate::nodes::Cluster;
use crate::wire::Way;

const LAN: &str = "network=\"lan\"";

pub fn run() -> BTreeSet<&'static str> {
    let directory = tempfile::tempdir().unwrap();
    let mut primary = redis_in(directory.path(), "primary", &[]);
    let replica = replica_of(&primary, directory.path());
    let redis = (primary.url(), Some(primary.port()));
    let cluster = Cluster::wired(directory.path(), (&redis.0, redis.1), 2, &[], Vec::new());
    cluster.allod(0, &["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let seen = [0, 1].map(|node| Seen::at(cluster.address(node), cluster.http(node)));
    let scene = Scene::of(&[&seen[0], &seen[1]]);
    let data = [0, 1].map(|node| directory.path().join(format!("node-{node}")));
    let of = |node: usize| Operator {
        rpc: cluster.address(node),
        http: cluster.http(node),
        redis: replica.port(),
        data: &data[node],
    };

    let offset = |redis: &crate::redis::Redis, of: &str| {
        let told = redis.text(&["INFO", "replication"]);
        told.lines().find_map(|line| line.strip_prefix(of)?.trim().parse::<u64>().ok())
    };
    let written = offset(&primary, "master_repl_offset:").unwrap();
    until("the replica has it", || offset(&replica, "slave_repl_offset:") >= Some(written));
    replica.signal("-STOP");
    primary.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
    let mut caller = Caller::to(cluster.address(0)).unwrap();
    let lost: BTreeSet<String> = (0..10).map(|n| caller.granted("lan", &format!("lost/{n}"))).collect();
    cluster.signal(0, "-STOP");
    primary.end();
    replica.signal("-CONT");
    until("the replica answers", || replica.text(&["PING"]) == "PONG");
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    for wire in &cluster.to_redis {
        wire.lead_to(([127, 0, 0, 1], replica.port()).into());
        wire.cut();
    }
    let mut caller = Caller::to(cluster.address(1)).unwrap();
    let granted = serde_json::json!({"network": "lan", "owner": "other/0"});
    until("the other node goes on", || {
        let answer = caller.call("ip.allocate", &granted).unwrap();
        answer["result"]["address"].as_str().is_some_and(|address| {
            assert!(lost.contains(address), "nothing was lost, so nothing is tested: {address} of {lost:?}");
            true
        })
    });

    let contested = caller.granted("lan", "other/0");

    scene.provoked("AllodLateBatches", "", || {
        cluster.to_node[1].hold(Way::Both);
        cluster.signal(0, "-CONT");
    });
    let told = of(0).follows("AllodLateBatches", &[], &mut no_unit);
    assert!(told.contains("not given back yet"), "{told}");
    scene.provoked("AllodConflict", LAN, || cluster.to_node[1].release());
    scene.stops("AllodLateBatches", "");
    let says = [("NETWORK", "lan"), ("ADDRESS", &*contested), ("TICKET", "4711")];
    let told = of(1).follows("AllodConflict", &says, &mut no_unit);
    assert!(told.contains("lost/") && told.contains("other/0"), "{told}");
    scene.stops("AllodConflict", LAN);
    caller.granted("lan", "new");
    scene.end()
}
