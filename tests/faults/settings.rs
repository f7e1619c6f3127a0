//! An operator, or a full memory, changes what Redis does while clients work.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::client::Answer;
use super::record::{Asked, Told};
use super::run::{Nodes, Run, Setting, eventually, insist};
use super::server::{allod, http_get};

/// The numbers of refused grants and of successful releases since this call.
fn since(run: &Run, from: usize) -> (usize, usize) {
    let calls = run.load.record.all();
    let refused = |told: &Told| matches!(told, Told::Refused(kind) if kind == "unavailable");
    let count = |asked: Asked, is: &dyn Fn(&Told) -> bool| {
        calls[from..].iter().filter(|call| call.asked == asked && is(&call.told)).count()
    };
    (count(Asked::Grant, &refused), count(Asked::Release, &|told| *told == Told::Released))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_memory_of_redis_full_releases_go_on_and_grants_do_when_there_is_room_again() {
    let Some(run) = Run::of(Setting::default()).await else { return };
    for _ in 0..2 {
        let from = run.load.record.all().len();
        run.nodes.redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        eventually("grants are refused, and releases go well", || {
            let (refused, released) = since(&run, from);
            refused > 20 && released > 5
        })
        .await;
        run.nodes.redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        run.gets_on(200, "when there is room again").await;
    }
    run.end().await;
}

/// Loading asks Redis about shards that read as empty, such as one without networks; and a drain makes another node load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_memory_of_redis_full_an_owner_is_drained_and_restarted_and_what_lets_go_is_taken() {
    let Some(mut nodes) = Nodes::start(2, &["--appendonly", "yes"]) else { return };
    let mut owner = nodes.cluster.owner_but(None).await;
    let mut client = nodes.client(owner).await;
    for network in ["lan", "empty"] {
        client
            .call("network.create", json!({"name": network, "subnets": [{"cidr": "10.0.0.0/24"}], "realm": network}))
            .await
            .ok();
    }
    for holder in ["a", "b", "c", "d"] {
        client.call("ip.allocate", json!({"network": "lan", "owner": holder})).await.ok();
    }
    nodes.redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let lets_go = async |nodes: &Nodes, holder: &str| {
        for at in 0..2 {
            let mut client = nodes.client(at).await;
            insist(&mut client, "network.get", &json!({"network": "lan"})).await;
        }
        insist(&mut nodes.client(0).await, "ip.release", &json!({"network": "lan", "owner": holder})).await;
    };
    lets_go(&nodes, "a").await;
    nodes.cluster.allod(owner, &["cluster", "drain", &format!("node-{owner}")]);
    owner = nodes.cluster.owner_but(Some(owner)).await;
    lets_go(&nodes, "b").await;
    nodes.cluster.restart(1 - owner);
    lets_go(&nodes, "c").await;
    nodes.cluster.restart(owner);
    nodes.cluster.owner_but(None).await;
    lets_go(&nodes, "d").await;
    nodes.redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let left = nodes.client(0).await.call("ip.list", json!({"network": "lan"})).await.ok();
    assert_eq!(left["reservations"], json!([]), "{left}");
    insist(&mut nodes.client(0).await, "ip.allocate", &json!({"network": "lan", "owner": "e"})).await;
}

/// The looks come between requests, when nobody asks for anything; they must show the state all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_the_memory_of_redis_is_full_is_said_with_what_to_do_for_as_long_as_it_is_so() {
    let Some(nodes) = Nodes::start(1, &[]) else { return };
    let mut client = nodes.client(0).await;
    client.call("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await.ok();
    nodes.redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let says = |text: &str| text.contains("Redis") && text.contains("redis-cli config set maxmemory BYTES");
    let refused = client.call("ip.allocate", json!({"network": "lan", "owner": "a"})).await;
    let Answer::Refused(kind, error) = refused else { panic!("{refused:?}") };
    assert!(kind == "unavailable" && says(error["message"].as_str().unwrap()), "{error}");
    let http = nodes.cluster.http(0);
    let looked = async || {
        let ready = http_get(http, "/readyz");
        let shards = nodes.cluster.allod(0, &["cluster", "shards"]);
        let server = nodes.cluster.address(0).to_string();
        let doctor = Command::new(allod()).args(["--server", &server, "doctor"]).output().unwrap();
        let doctor = (doctor.status.code(), String::from_utf8_lossy(&doctor.stdout).replace("\n", " "));
        (ready, shards, nodes.cluster.figure(0, "allod_store_ready"), doctor)
    };
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let (ready, shards, figure, (code, doctor)) = looked().await;
        assert!(ready.starts_with("HTTP/1.1 503") && says(&ready), "{ready}");
        assert!(shards.contains("nothing is granted") && shards.contains("maxmemory"), "{shards}");
        assert_eq!(figure, 0.0);
        assert!(code == Some(1) && doctor.contains("nothing is granted") && doctor.contains("maxmemory"), "{doctor}");
    }
    nodes.redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("it is over", || nodes.cluster.is_ready(0) && nodes.cluster.figure(0, "allod_store_ready") == 1.0).await;
    client.call("ip.allocate", json!({"network": "lan", "owner": "a"})).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_may_throw_records_away_is_granted_nothing_until_it_may_not() {
    let Some(run) = Run::of(Setting::default()).await else { return };
    run.nodes.redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    // Each node looks every few seconds.
    eventually("every node knows it", || (0..2).all(|node| run.nodes.cluster.log(node).contains("allkeys-lru"))).await;
    let (since_ns, refused) = (run.load.record.now_ns(), run.refusals());
    eventually("clients are refused", || run.refusals() > refused + 100).await;
    assert_eq!(run.granted_since(since_ns), [], "it grants while Redis may forget it");
    run.nodes.redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    run.gets_on(200, "when it may not any more").await;
    run.end().await;
}

/// Whoever watches the metric sees it before Redis restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_redis_keeps_no_file_any_more_is_a_figure() {
    let Some(run) = Run::of(Setting { nodes: 1, ..Setting::default() }).await else { return };
    let appends = || run.nodes.cluster.metrics(0).lines().any(|line| line == "allod_store_appends 1");
    assert!(appends(), "it has a file from the start");
    run.nodes.redis.ask(&["CONFIG", "SET", "appendonly", "no"]);
    eventually("it is seen", || run.nodes.cluster.metrics(0).lines().any(|line| line == "allod_store_appends 0")).await;
    run.nodes.redis.ask(&["CONFIG", "SET", "appendonly", "yes"]);
    eventually("it is seen again", appends).await;
    run.end().await;
}

/// Redis evicted records before any node noticed its setting: what is gone must not be taken for free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_redis_threw_records_away_nothing_is_granted_in_their_place() {
    let Some(run) = Run::of(Setting { redis: &[], ..Setting::default() }).await else { return };
    // One key of each shard with networks says which these are. A commit checks that the key is there, and does not use its
    // contents.
    let vouching = || run.nodes.redis.number(&["EVAL", "return #redis.call('KEYS', ARGV[1])", "0", "*:networks"]);
    let before = vouching();
    assert!(before > 0);
    // Shrinks the memory a little at a time. The least recently used keys go first, which are these and the configurations
    // of networks.
    run.nodes.redis.ask(&["CONFIG", "SET", "maxmemory-samples", "64"]);
    run.nodes.redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    for _ in 0..2_000 {
        let info = run.nodes.redis.text(&["INFO", "memory"]);
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse::<u64>().ok()).unwrap();
        run.nodes.redis.ask(&["CONFIG", "SET", "maxmemory", &(used - 512).to_string()]);
        if vouching() < before {
            break;
        }
    }
    run.nodes.redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    run.nodes.redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let left = vouching();
    assert!(left < before, "{left} of {before} are left");
    // No node goes on, neither the present owner nor the next one.
    eventually("it is found", || run.nodes.logs().contains("lost `{allod}:")).await;
    let since_ns = run.load.record.now_ns();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(run.granted_since(since_ns), [], "it goes on without what it lost");
    run.end_in_silence().await;
}
