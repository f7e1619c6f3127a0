//! What nodes report while Redis or its replicas are away, and what their clients are told: every node knows what the owner
//! knows, and none takes a node for the owner that is not.

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{Answer, Client};
use super::nodes::Cluster;
use super::redis::Redis;
use super::run::{Nodes, Setting, eventually};
use super::server::http_get;

/// Long enough for every node to try several times to own the register, each time for as long as it waits for replicas.
const WATCHED: Duration = Duration::from_secs(8);

/// Waits until a node reports this readiness.
fn says(cluster: &Cluster, node: usize, ready: bool) {
    let begun = Instant::now();
    while cluster.is_ready(node) != ready {
        assert!(begun.elapsed() < Duration::from_secs(30), "node {node} never says so\n{}", cluster.log(node));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forwards_is_as_ready_as_the_owner_and_its_clients_are_told_what_stands_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let cluster = Cluster::start(directory.path(), &redis, 2);
    cluster.allod(1, &["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let changes = |to: bool| {
        (0..2).for_each(|node| says(&cluster, node, to));
    };

    // Redis gets a setting that can cost addresses; only the owner notices by itself.
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    changes(false);
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    changes(true);

    // Redis is full: no node grants, but each still gets requests, because reads and releases work.
    let answers = |at: usize| http_get(cluster.http(at), "/readyz?answers").starts_with("HTTP/1.1 200");
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let mut client = Client::connect(cluster.address(1)).await.unwrap();
    let refused = client.call("ip.allocate", json!({"network": "lan", "owner": "a"})).await;
    let Answer::Refused(kind, _) = refused else { panic!("{refused:?}") };
    assert_eq!(kind, "unavailable");
    changes(false);
    assert!((0..2).all(answers), "a full store sends nobody away\n{}", cluster.log(1));
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    changes(true);

    // Redis is away. Nodes report that from the first sign of it, until nobody owns the register.
    redis.signal("-STOP");
    changes(false);
    eventually("its lease lapses", || cluster.figure(0, "allod_owner") == 0.0).await;
    assert!(!(0..2).any(answers), "nothing is read of a store that is away\n{}", cluster.log(1));
    for at in 0..2 {
        let mut client = Client::connect(cluster.address(at)).await.unwrap();
        let told = client.call("network.get", json!({"network": "lan"})).await;
        let Answer::Refused(kind, error) = told else { panic!("{told:?}") };
        assert_eq!((kind.as_str(), &error["data"]["applied"]), ("unavailable", &json!(false)), "{error}");
        assert!(error["message"].as_str().unwrap().contains("the store cannot be reached: "), "{error}");
    }
    redis.signal("-CONT");
    changes(true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_operator_has_to_do_to_redis_is_said_where_he_looks() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let cluster = Cluster::start(directory.path(), &redis, 1);
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    says(&cluster, 0, false);
    let told = http_get(cluster.http(0), "/readyz");
    assert!(told.contains("until `redis-cli config set maxmemory-policy noeviction`"), "{told}");
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    says(&cluster, 0, true);
    // If Redis were emptied, the node would have everything in memory; here Redis lost only a part.
    redis.ask(&["DEL", "{allod}:3:head"]);
    eventually("it ends, and says where to read on", || {
        let log = cluster.log(0);
        log.contains("hint: ") && log.contains("deploy/README.md says what to do first, under \"The store is lost\"")
    })
    .await;
}

/// The owner is gone, and so is the replica that each other node would need to begin. Both try in turn, and the store names
/// the node that tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_too_few_replicas_to_own_the_register_no_node_names_another_one_as_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = Redis::replicating(directory.path(), "primary", None) else { return };
    let replica = Redis::replicating(directory.path(), "replica", Some(primary.port())).unwrap();
    eventually("the replica follows", || replica.follows()).await;
    let setting = Setting { nodes: 3, store: "redis_replicas = 1", ..Setting::default() };
    let mut nodes = Nodes::over(directory, primary, setting);
    nodes.client(0).await.call("network.create", json!({"name": "lan"})).await.ok();
    replica.signal("-STOP");
    nodes.cluster.kill(0);
    let why = |node: usize| http_get(nodes.cluster.http(node), "/readyz");
    eventually("both know what stands in the way", || (1..3).all(|node| why(node).contains("replicas wanted"))).await;
    let (mut takes, end) = (None, Instant::now() + WATCHED);
    while Instant::now() < end {
        for node in 1..3 {
            let mut client = nodes.client(node).await;
            let seen = client.call("cluster.nodes", json!({})).await.ok();
            let owners: Vec<_> =
                seen["nodes"].as_array().unwrap().iter().filter(|node| node["owner"] == true).collect();
            assert!(owners.is_empty(), "node {node} says {owners:?}\n{}", nodes.logs());
            let told = why(node);
            let names = told.contains("owns") || told.contains("owned");
            assert!(told.contains("replicas wanted") && !names, "node {node}: {told}\n{}", nodes.logs());
            let told = client.call("network.get", json!({"network": "lan"})).await;
            let Answer::Refused(_, error) = told else { panic!("node {node}: {told:?}") };
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("replicas wanted"), "node {node}: {error}\n{}", nodes.logs());
        }
        // Take-overs that come to nothing would push out the entries by which a head tells what is on its line.
        let of_now = nodes.redis.of_heads("epoch");
        let first = *takes.get_or_insert(of_now);
        assert!(of_now <= first + 2, "from {first} to {of_now}: each tried once, at most\n{}", nodes.logs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    replica.signal("-CONT");
    let owner = nodes.cluster.owner_but(Some(0)).await;
    let named = |node: &serde_json::Value| node["owner"] == true && node["name"] == format!("node-{owner}");
    eventually("both name who owns it then", || {
        let said = |node| nodes.cluster.allod(node, &["cluster", "nodes", "--format", "json"]);
        let seen = |node| serde_json::from_str::<serde_json::Value>(&said(node)).unwrap();
        (1..3).all(|node| seen(node)["nodes"].as_array().unwrap().iter().any(named))
    })
    .await;
}
