//! The replica is gone and the node goes on without it, as `store.redis_degrade` says; then the primary and the node are lost
//! at once, the replica takes the primary's place, and the node comes back with nothing but its disk.

use std::path::Path;

use super::redis::Redis;
use super::run::{Nodes, Run, Setting, eventually};
use super::seed::seed;

const SETTINGS: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--repl-timeout", "60"];

fn start(directory: &Path, name: &str, primary: Option<u16>) -> Option<Redis> {
    let place = directory.join(name);
    std::fs::create_dir(&place).unwrap();
    let port = primary.map(|port| port.to_string());
    let follows: Vec<&str> = port.iter().flat_map(|port| ["--replicaof", "127.0.0.1", port]).collect();
    Redis::start(&place, &[&SETTINGS[..], &follows].concat())
}

fn seqs(redis: &Redis) -> u64 {
    (0..16).map(|shard| redis.number(&["HGET", &format!("{{allod}}:{shard}:head"), "seq"])).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_acknowledged_without_its_replica_survives_the_primary_and_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = start(directory.path(), "primary", None) else { return };
    let replica = start(directory.path(), "replica", Some(primary.port())).unwrap();
    eventually("the replica follows", || replica.text(&["INFO", "replication"]).contains("master_link_status:up"))
        .await;
    let store = "redis_replicas = 1\nredis_degrade = true";
    let setting = Setting { nodes: 1, store, wired: true, ..Setting::default() };
    let mut run = Run::begin(Nodes::over(directory, primary, setting), 4, seed()).await;
    run.gets_on(200, "with its replica").await;
    replica.signal("-STOP");
    run.nodes.redis.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
    run.gets_on(300, "without its replica").await;
    assert!(run.nodes.figure("allod_store_degraded") > 0.0, "it is not shown\n{}", run.nodes.logs());
    // Kept to the end: what was under way is nobody's.
    run.nodes.cluster.kill(0);
    let had = seqs(&run.nodes.redis);
    run.nodes.redis.end();
    replica.signal("-CONT");
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    assert!(seqs(&replica) < had, "nothing was lost");
    let wire = run.nodes.to_redis(0);
    wire.lead_to(([127, 0, 0, 1], replica.port()).into());
    wire.cut();
    run.again(0);
    run.gets_on(200, "after all that").await;
    let healed = run.nodes.figure("allod_store_healed_batches_total");
    assert!(healed > 0.0, "nothing was given back\n{}", run.nodes.logs());
    run.end().await;
}
