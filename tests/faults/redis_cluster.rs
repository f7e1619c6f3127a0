//! A Redis cluster of three primaries, each with a replica, two nodes, and clients that work on while the register's primary
//! is killed and its slot is moved.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::client::Answer;
use super::clustered::RedisCluster;
use super::record::{Call, Told};
use super::run::{Nodes, Run, Setting, eventually, insist};
use super::seed::seed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_redis_cluster_a_failover_and_a_move_of_the_slot_lose_nothing_that_was_acknowledged() {
    let seed = seed();
    let Some(redis) = RedisCluster::start(3, 1, &["--appendonly", "yes"]) else { return };
    let store = "redis_replicas = 1\nredis_heal_bytes = 0";
    let mut run = Run::over(redis, Setting { store, ..Setting::default() }, seed).await;
    let redis = &mut run.nodes.redis;
    let slot = redis.slot("{allod}:register");
    let first = redis.owner(slot).unwrap();
    redis.members[first].kill();
    let second = redis.failed_over(slot, first);
    redis.members[first].begin();
    run.gets_on(200, "after the failover").await;
    let redis = &run.nodes.redis;
    let third = (0..3).find(|&at| at != first && redis.replicas_of(at).len() == 1 && at != second).unwrap();
    let put_off = || run.load.put_off.load(Ordering::Relaxed);
    let before = put_off();
    redis.begin_move(slot, second, third);
    while redis.move_keys(slot, second, third, 5) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(40)).await;
    }
    eventually("the move meets requests", || put_off() > before).await;
    // What was committed before the last key moved may be answered only now, and a holder may be told again of what it has.
    let all_moved_ns = run.load.record.now_ns();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let granted = |call: &Call| call.sent_ns > all_moved_ns && matches!(call.told, Told::Held { created: true, .. });
    let grants: Vec<Call> = run.load.record.all().into_iter().filter(granted).collect();
    assert!(grants.is_empty(), "ALLOD_SEED={seed}: it grants while its slot is moved: {grants:?}");
    redis.end_move(slot, second, third);
    run.gets_on(200, "after its slot was moved").await;
    assert_eq!(redis.owner(slot), Some(third));
    let verdict = run.end().await;
    assert!(verdict.sure_holdings > 300, "{}", verdict.sure_holdings);
}

/// The keys that say who owns the register move too, one by one. Ownership cannot be proved meanwhile, so nothing is
/// answered, and no node takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_while_the_slot_is_moved_is_told_that_and_not_that_another_node_takes_over() {
    let Some(redis) = RedisCluster::start(3, 0, &["--appendonly", "yes"]) else { return };
    let slot = redis.slot("{allod}:register");
    let first = redis.owner(slot).unwrap();
    let nodes = Nodes::over(tempfile::tempdir().unwrap(), redis, Setting::default());
    let mut client = nodes.client(0).await;
    let made = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]});
    insist(&mut client, "network.create", &made).await;
    insist(&mut client, "ip.claim", &json!({"network": "lan", "address": "10.0.0.1", "owner": "o1"})).await;
    let next = (first + 1) % 3;
    nodes.redis.begin_move(slot, first, next);
    while nodes.redis.move_keys(slot, first, next, 5) > 0 {}
    for (method, params) in [
        ("ip.get", json!({"address": "10.0.0.1"})),
        ("ip.list", json!({"network": "lan"})),
        ("network.usage", json!({"network": "lan"})),
    ] {
        for node in 0..2 {
            let told = nodes.client(node).await.call(method, params.clone()).await;
            let Answer::Refused(kind, error) = told else { panic!("{method}: {told:?}") };
            assert_eq!(kind, "unavailable", "{method}: {error}\n{}", nodes.logs());
            assert!(error["message"].as_str().unwrap().contains("is being moved from"), "{method}: {error}");
        }
    }
    // The owner lets go because it cannot prove that it is one. Then nobody owns the register, and each node says the same.
    let text = format!("slot {slot} of the Redis cluster is being moved from ");
    let waits = |node| nodes.cluster.figure(node, "allod_owner") == 0.0;
    eventually("nobody owns it", || waits(0) && waits(1)).await;
    for node in 0..2 {
        let mut client = nodes.client(node).await;
        for n in 0..20 {
            let told = client.call("ip.allocate", json!({"network": "lan", "owner": format!("o{n}")})).await;
            let Answer::Refused(_, error) = told else { panic!("{told:?}") };
            let said = error["message"].as_str().unwrap();
            assert!(said.contains(&text) && !said.contains("Ask: "), "{said}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    nodes.redis.end_move(slot, first, next);
    insist(&mut client, "ip.get", &json!({"network": "lan", "address": "10.0.0.1"})).await;
}
