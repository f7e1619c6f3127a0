//! The replica is gone, and the node goes on without it, as `store.redis_degrade` allows. Then the primary and the node are
//! lost at once, the replica takes the primary's place, and the node comes back with nothing but its disk.

use super::redis::Redis;
use super::run::{Nodes, Run, Setting, eventually};
use super::seed::seed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_acknowledged_without_its_replica_survives_the_primary_and_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = Redis::replicating(directory.path(), "primary", None) else { return };
    let replica = Redis::replicating(directory.path(), "replica", Some(primary.port())).unwrap();
    eventually("the replica follows", || replica.follows()).await;
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
    let had = run.nodes.redis.of_heads("seq");
    run.nodes.redis.end();
    replica.signal("-CONT");
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    assert!(replica.of_heads("seq") < had, "nothing was lost");
    run.nodes.lead(0, &replica);
    run.again(0);
    run.gets_on(200, "after all that").await;
    let healed = run.nodes.figure("allod_store_healed_batches_total");
    assert!(healed > 0.0, "nothing was given back\n{}", run.nodes.logs());
    run.end().await;
}

/// A node reports the durability of this moment, not the one with which it was started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_tells_what_a_change_survives_now() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = Redis::replicating(directory.path(), "primary", None) else { return };
    let mut replica = Redis::replicating(directory.path(), "replica", Some(primary.port())).unwrap();
    eventually("the replica follows", || replica.follows()).await;
    let store = "redis_replicas = 1\nredis_degrade = true";
    let nodes = Nodes::over(directory, primary, Setting { nodes: 2, store, ..Setting::default() });
    let tell = async |what: &str| {
        let told = |node| nodes.cluster.allod(node, &["server", "info"]);
        eventually(what, || (0..2).all(|node| told(node).contains(what))).await;
    };
    nodes.redis.ask(&["CONFIG", "SET", "appendonly", "no"]);
    tell("nothing that ends Redis: it has no append-only file").await;
    nodes.redis.ask(&["CONFIG", "SET", "appendonly", "yes"]);
    nodes.redis.ask(&["CONFIG", "SET", "appendfsync", "everysec"]);
    tell("a crash of Redis; when its machine loses power").await;
    replica.end();
    tell("degraded now: 0 of 1 answer").await;
    // A node that owns nothing acknowledges nothing, so its warning would wake people for no reason.
    let warns = |node| {
        nodes.cluster.log(node).matches("what is acknowledged is in Redis and on this machine's disk only").count()
    };
    let owner = nodes.cluster.owner_but(None).await;
    assert_eq!([warns(owner), warns(1 - owner)], [1, 0], "{}", nodes.logs());
    replica.begin();
    let is_whole = |node| !nodes.cluster.allod(node, &["server", "info"]).contains("degraded now");
    eventually("it is there again", || (0..2).all(is_whole)).await;
}
