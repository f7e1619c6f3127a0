//! Several nodes and one Redis.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::client::{Answer, Client};
use super::load::make_networks;
use super::run::{Nodes, Run, eventually, insist};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_node_is_killed_the_others_go_on_and_no_address_has_two_holders() {
    let Some(nodes) = Nodes::start(3, &[]) else { return };
    let mut run = Run::begin(nodes, 6, 1).await;
    run.gets_on(400, "clients of every node").await;
    for _ in 0..2 {
        let owner = run.nodes.cluster.owner_but(None).await;
        run.gets_on(20, "without pause, until the owner is killed").await;
        run.crash(owner);
        run.gets_on(400, "the owner was killed").await;
        let follower = (run.nodes.cluster.owner_but(None).await + 1) % 3;
        run.gets_on(20, "without pause, until another node is killed").await;
        run.crash(follower);
        run.gets_on(200, "another node was killed").await;
    }
    let verdict = run.end().await;
    assert!(verdict.sure_holdings > 500, "{} sure holdings", verdict.sure_holdings);
    assert!(verdict.unknown > 0, "no kill met a request under way: nothing was tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_stopped_past_its_lease_and_woken_neither_grants_nor_repeats_a_grant() {
    let Some(nodes) = Nodes::start(2, &[]) else { return };
    let cluster = &nodes.cluster;
    let owner = cluster.owner_but(None).await;
    let (mut old, mut new) = (nodes.client(owner).await, nodes.client(1 - owner).await);
    let network = json!({"name": "one", "subnets": [{"cidr": "10.9.0.0/29", "pools": [{"range": "10.9.0.2"}]}]});
    insist(&mut old, "network.create", &network).await;
    let (a, b) = (json!({"network": "one", "owner": "a"}), json!({"network": "one", "owner": "b"}));
    let first = insist(&mut old, "ip.allocate", &a).await;
    cluster.signal(owner, "-STOP");
    // The node reads these requests when it wakes; by then somebody else has the address.
    let late = tokio::spawn(async move {
        let read = old.call("ip.get", json!({"network": "one", "address": "10.9.0.2"})).await;
        (old.call("ip.allocate", a).await, read)
    });
    assert_eq!(cluster.owner_but(Some(owner)).await, 1 - owner);
    insist(&mut new, "ip.release", &json!({"network": "one", "owner": "a"})).await;
    let second = insist(&mut new, "ip.allocate", &b).await;
    assert_eq!(first["address"], second["address"]);
    cluster.signal(owner, "-CONT");
    let (late, read) = late.await.unwrap();
    assert!(matches!(late, Answer::Refused(..)), "it repeated a grant of an address that is somebody else's: {late:?}");
    if let Answer::Result(read) = read {
        assert_ne!(read["reservation"]["owner"], "a", "it shows what is over: {read}");
    }
    // The node follows the new owner, and its clients are served again.
    let mut again = nodes.client(owner).await;
    let repeated = insist(&mut again, "ip.allocate", &b).await;
    assert_eq!(repeated["generation"], second["generation"]);
    assert!(cluster.log(owner).contains("role=follower of"), "{}", cluster.log(owner));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_knows_who_owns_the_register_and_a_client_that_wishes_to_is_sent_there() {
    let Some(nodes) = Nodes::start(2, &[]) else { return };
    let cluster = &nodes.cluster;
    let owner = cluster.owner_but(None).await;
    let mut client = nodes.client(1 - owner).await;
    make_networks(&mut client, 1).await;
    let name = format!("node-{owner}");
    let address = cluster.addresses()[owner].to_string();
    let known = |at: usize| -> serde_json::Value {
        serde_json::from_str(&cluster.allod(at, &["cluster", "nodes", "--format", "json"])).unwrap()
    };
    for at in 0..2 {
        eventually("it heard of both", || {
            let known = known(at);
            let nodes = known["nodes"].as_array().unwrap();
            nodes.len() == 2 && nodes.iter().all(|node| !node["address"].is_null())
        })
        .await;
        let known = known(at);
        for node in known["nodes"].as_array().unwrap() {
            assert_eq!(node["owner"], node["name"] == name.as_str(), "{known}");
        }
    }
    let located = client.call("cluster.locate", json!({"network": "net-0"})).await.ok();
    assert_eq!((&located["node"], &located["address"]), (&json!(name), &json!(address)), "{located}");
    assert!(located["epoch"].as_u64().unwrap() >= 1, "{located}");
    let said = cluster.allod(1 - owner, &["cluster", "locate", "net-0"]);
    assert!(said.contains(&name) && said.contains(&address), "{said}");
    for node in 0..2 {
        let metrics = cluster.metrics(node);
        let value = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        assert_eq!(value("allod_owner "), Some(if node == owner { 1.0 } else { 0.0 }), "node {node}");
        assert!(
            node == owner || value("allod_forwarded_requests_total ") > Some(0.0),
            "the follower forwarded nothing"
        );
    }
    let ask = json!({"network": "net-0", "owner": "a"});
    let there = client.call("ip.allocate", ask.clone()).await.ok();
    assert_eq!(client.call("session.set", json!({"redirect": true})).await.ok(), json!({"redirect": true}));
    let Answer::Refused(kind, error) = client.call("ip.allocate", ask.clone()).await else {
        panic!("it was forwarded")
    };
    assert_eq!((kind.as_str(), &error["data"]["node"]), ("moved", &json!(name)));
    let mut direct = Client::connect(error["data"]["address"].as_str().unwrap().parse().unwrap()).await.unwrap();
    let again = direct.call("ip.allocate", ask).await.ok();
    assert_eq!((&again["address"], &again["created"]), (&there["address"], &json!(false)));
}

/// The answer is the same from either node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_each_shard_stands_is_told_in_words_by_its_owner() {
    let Some(nodes) = Nodes::start(2, &[]) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    for node in 0..2 {
        let told = nodes.cluster.allod(node, &["cluster", "shards"]);
        let row = told.lines().nth(1).unwrap();
        assert!(row.starts_with("0-3") && row.contains(&format!("node-{owner}")) && row.ends_with("served"), "{told}");
        let json = nodes.cluster.allod(node, &["cluster", "shards", "--format", "json"]);
        let told: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(told["shards"].as_array().unwrap().len(), 4, "{told}");
    }
    nodes.redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    eventually("it says what stands in the way", || {
        let told = nodes.cluster.allod(1 - owner, &["cluster", "shards"]);
        told.contains("nothing is granted: Redis may throw records away")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_restarted_one_after_the_other_and_no_answer_is_lost() {
    let Some(nodes) = Nodes::start(3, &[]) else { return };
    let mut run = Run::begin(nodes, 6, 2).await;
    for node in [1, 0, 2] {
        run.gets_on(300, "before a restart").await;
        run.restart(node);
    }
    run.gets_on(300, "after the last restart").await;
    let load = Arc::clone(&run.load);
    let verdict = run.end().await;
    assert!(verdict.sure_holdings > 500, "{} sure holdings", verdict.sure_holdings);
    // A request to a node that no longer reads is lost with its connection; a request that was read gets a definite answer.
    assert_eq!(load.said_unknown.load(Ordering::Relaxed), 0, "answers that do not say what became of the request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_that_stands_still_or_is_killed_loses_nothing_of_what_was_flushed() {
    let Some(nodes) = Nodes::start(2, &["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let mut run = Run::begin(nodes, 4, 3).await;
    run.gets_on(300, "before anything happened").await;
    for (pause, why) in [(700, "it stood still for a moment"), (6_000, "it stood still for longer than a lease")] {
        run.nodes.redis.signal("-STOP");
        tokio::time::sleep(Duration::from_millis(pause)).await;
        run.nodes.redis.signal("-CONT");
        run.gets_on(300, why).await;
    }
    run.nodes.redis.crash();
    run.gets_on(300, "it was killed and read its append-only file").await;
    let verdict = run.end().await;
    assert!(verdict.sure_holdings > 500, "{} sure holdings", verdict.sure_holdings);
}

/// A load balancer that follows these reports would send clients to nodes that can serve nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_away_no_node_says_that_it_is_ready_or_that_others_were_seen_just_now() {
    let Some(mut nodes) = Nodes::start(3, &["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let ready = |nodes: &Nodes| (0..3).filter(|at| nodes.cluster.is_ready(*at)).count();
    let seen = |nodes: &Nodes, at: usize| {
        let known = nodes.cluster.allod(at, &["cluster", "nodes", "--format", "json"]);
        serde_json::from_str::<serde_json::Value>(&known).unwrap()["nodes"].as_array().unwrap().len()
    };
    eventually("all are ready, and see each other", || ready(&nodes) == 3 && (0..3).all(|at| seen(&nodes, at) == 3))
        .await;
    nodes.redis.end();
    eventually("none is ready", || ready(&nodes) == 0).await;
    eventually("each sees itself", || (0..3).all(|at| seen(&nodes, at) == 1)).await;
    nodes.redis.begin();
    eventually("all are ready again", || ready(&nodes) == 3).await;
}

/// A commit is retried a hundred times a second; nobody reads that many lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_logged_in_a_few_lines() {
    let Some(mut nodes) = Nodes::start(1, &[]) else { return };
    let mut client = nodes.client(0).await;
    make_networks(&mut client, 1).await;
    nodes.redis.end();
    for owner in ["a", "b"] {
        // Each request is retried for as long as a commit may be.
        let ask = json!({"network": "net-0", "owner": owner});
        assert!(matches!(client.call("ip.allocate", ask).await, Answer::Refused(..)));
    }
    let log = nodes.cluster.log(0);
    let lines = log.lines().filter(|line| line.contains("tried again")).count();
    assert!(lines > 0 && lines < 20, "{lines} lines\n{log}");
    let lines = log.lines().filter(|line| line.contains("cannot take the shard anew")).count();
    assert!(lines < 20, "{lines} lines\n{log}");
}
