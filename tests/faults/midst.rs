//! Nodes are stopped, or lose the register, in the middle of something that takes long.

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::Answer;
use super::run::{Nodes, Setting, eventually, insist};
use super::wire::Way;

/// The delay of a node's requests on their way to Redis.
const SLOWLY: Duration = Duration::from_millis(300);

/// Otherwise the next owner would have to wait for the lease of a node that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_to_stop_in_the_midst_of_a_take_over_ends_well_and_leaves_no_lease() {
    // Enough shards that taking them all takes long.
    let setting = Setting { redis: &[], store: "shards = 16\n", wired: true, ..Setting::default() };
    let Some(mut nodes) = Nodes::set(setting) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    let other = 1 - owner;
    let of_head = |nodes: &Nodes, shard: usize, field: &str| {
        nodes.redis.number(&["HGET", &format!("{{allod}}:{shard}:head"), field])
    };
    let before: Vec<u64> = (0..16).map(|shard| of_head(&nodes, shard, "epoch")).collect();
    // Everything that the node takes and loads takes long.
    nodes.to_redis(other).delay(Duration::from_millis(400));
    nodes.cluster.kill(owner);
    eventually("it has begun to take over", || of_head(&nodes, 0, "epoch") > before[0]).await;
    let begun = Instant::now();
    nodes.cluster.stop(other);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let log = nodes.cluster.log(other);
    assert!(!log.contains("role=owner"), "it had taken over already: {log}");
    // The other shards still belong to the owner that was killed, whose lease has run out.
    let taken: Vec<usize> = (0..16).filter(|&shard| of_head(&nodes, shard, "epoch") > before[shard]).collect();
    let leased: Vec<_> = taken.iter().filter(|&&shard| of_head(&nodes, shard, "lease") != 0).collect();
    assert!(leased.is_empty(), "{leased:?} of {taken:?}: {log}");
}

/// The client of the drain gets an answer, and the node is in service as before, because no other node took the register.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_is_under_way_when_its_node_loses_the_register_is_answered_and_undone() {
    let Some(nodes) = Nodes::set(Setting { redis: &[], wired: true, ..Setting::default() }) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    // The successor cannot load the register meanwhile, so the owner waits for it.
    nodes.to_redis(1 - owner).hold(Way::Both);
    let mut client = nodes.client(owner).await;
    let draining = tokio::spawn(async move { client.call("cluster.drain", json!({})).await });
    eventually("the drain has begun", || nodes.cluster.log(owner).contains("is being taken out of service")).await;
    nodes.to_redis(owner).hold(Way::Both);
    let told = tokio::time::timeout(Duration::from_secs(20), draining).await.expect("its client waits on").unwrap();
    let Answer::Refused(kind, error) = told else { panic!("{told:?}") };
    // It is a matter of chance whether the drain was given up before the loss, after it, or because no other node could take
    // over. In no case is the client told that it was done.
    let said = [json!("unknown"), json!(false)].contains(&error["data"]["applied"]);
    assert!(kind == "unavailable" && said || kind == "in_use", "{error}");
    (0..2).for_each(|node| nodes.to_redis(node).release());
    eventually("both are ready", || (0..2).all(|node| nodes.cluster.is_ready(node))).await;
    // The list of nodes shows it after the node's next report about itself.
    eventually("it is in service", || {
        let seen = nodes.cluster.allod(owner, &["cluster", "nodes", "--format", "json"]);
        !seen.contains("\"draining\": true") && !seen.contains("\"draining\":true")
    })
    .await;
    let mut client = nodes.client(owner).await;
    insist(&mut client, "network.create", &json!({"name": "lan"})).await;
}

/// Neither node owns the register any more or takes it: the requests that they hold are for the successor to answer, which
/// is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_told_to_stop_when_the_register_was_let_go_of_send_on_what_they_hold() {
    let Some(mut nodes) = Nodes::set(Setting { redis: &[], nodes: 3, wired: true, ..Setting::default() }) else {
        return;
    };
    let owner = nodes.cluster.owner_but(None).await;
    let (other, successor) = ((owner + 1) % 3, (owner + 2) % 3);
    let lan = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]});
    insist(&mut nodes.client(owner).await, "network.create", &lan).await;
    // A node out of service is no candidate for successor.
    nodes.client(other).await.call("cluster.drain", json!({})).await.ok();
    // This leaves time between the owner's last answer and the end of its lease.
    nodes.to_redis(owner).delay(SLOWLY);
    let mut client = nodes.client(owner).await;
    let draining = tokio::spawn(async move { client.call("cluster.drain", json!({})).await });
    let soon = async |what: &str, is_so: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end, "never: {what}\n{}", nodes.logs());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let lease = || nodes.redis.number(&["HGET", "{allod}:0:head", "lease"]);
    soon("it is between two owners", &|| nodes.cluster.log(owner).contains("role=between two owners")).await;
    nodes.to_redis(successor).hold(Way::Both);
    soon("it has let go", &|| lease() == 0).await;
    nodes.to_redis(owner).release();
    let mut asked = Vec::new();
    for (node, name) in [(owner, "a"), (other, "b")] {
        let mut client = nodes.client(node).await;
        let params = json!({"network": "lan", "owner": name});
        asked.push(tokio::spawn(async move { client.call("ip.allocate", params).await }));
    }
    // By then the requests have been read.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(asked.iter().all(|asked| !asked.is_finished()), "{}", nodes.logs());
    for node in [owner, other] {
        nodes.cluster.signal(node, "-TERM");
    }
    eventually("they stop", || [owner, other].iter().all(|&node| nodes.cluster.log(node).contains("SIGTERM"))).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(lease(), 0, "somebody took it\n{}", nodes.logs());
    nodes.to_redis(successor).release();
    for asked in asked {
        let answer = tokio::time::timeout(Duration::from_secs(20), asked).await.expect("an answer").unwrap();
        assert!(matches!(&answer, Answer::Result(_)), "{answer:?}\n{}", nodes.logs());
    }
    for node in [owner, other] {
        nodes.cluster.stop(node);
        let log = nodes.cluster.log(node);
        let stopping = log.split_once("SIGTERM").unwrap().1;
        assert!(!stopping.contains("role=owner"), "{log}");
    }
    assert!(draining.is_finished(), "its client waits on");
    assert_eq!(nodes.cluster.owner_but(None).await, successor);
    let held = insist(&mut nodes.client(successor).await, "ip.list", &json!({"count_only": true})).await;
    assert_eq!(held["count"], 2, "{held}");
}
