//! What nodes say of themselves while Redis is away, and what their clients are told: every node knows what the owner knows.

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{Answer, Client};
use super::nodes::Cluster;
use super::redis::Redis;
use super::run::eventually;
use super::server::http_get;

/// Longer than a frame between nodes takes on a busy machine, and shorter than any lease.
const AT_ONCE: Duration = Duration::from_millis(1_500);

/// Waits until a node says this of itself; how long that took.
fn says(cluster: &Cluster, node: usize, ready: bool) -> Duration {
    let begun = Instant::now();
    while cluster.is_ready(node) != ready {
        assert!(begun.elapsed() < Duration::from_secs(30), "node {node} never says so\n{}", cluster.log(node));
        std::thread::sleep(Duration::from_millis(10));
    }
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forwards_is_as_ready_as_the_owner_and_its_clients_are_told_what_stands_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let cluster = Cluster::start(directory.path(), &redis, 2);
    cluster.allod(1, &["network", "create", "lan"]);
    let changes = |to: bool| {
        says(&cluster, 0, to);
        let later = says(&cluster, 1, to);
        assert!(later < AT_ONCE, "{later:?} after the owner\n{}", cluster.log(1));
    };

    // Set to what costs addresses: the owner alone finds it.
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    changes(false);
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    changes(true);

    // Away, until nobody owns the register.
    redis.signal("-STOP");
    changes(false);
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
    redis.ask(&["FLUSHALL"]);
    eventually("it ends, and says where to read on", || {
        let log = cluster.log(0);
        log.contains("hint: ") && log.contains("deploy/README.md has what to do first, under \"The store is lost\"")
    })
    .await;
}
