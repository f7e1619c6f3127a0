//! For a while there are too few replicas: nothing is acknowledged, and clients are told so in time.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::Answer;
use super::emptied::written;
use super::redis::Redis;
use super::run::{Nodes, Setting, eventually, insist};
use super::server::http_get;

/// Longer than any request may wait for a store that accepts nothing, but bounded.
const PATIENCE: Duration = Duration::from_secs(30);

/// A commit that hangs is given up, and its networks are loaded again when the store goes on. A request that waits for that,
/// or for a lock of such a request, must not wait for as long as the replica is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_several_things_at_once_is_answered_while_the_replica_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = Redis::replicating(directory.path(), "primary", None) else { return };
    let replica = Redis::replicating(directory.path(), "replica", Some(primary.port())).unwrap();
    eventually("the replica follows", || replica.follows()).await;
    let setting = Setting { nodes: 2, store: "redis_replicas = 1", ..Setting::default() };
    let nodes = Nodes::over(directory, primary, setting);
    let owner = nodes.cluster.owner_but(None).await;
    let mut first = nodes.client(owner).await;
    for name in ["lan", "dmz"] {
        first.call("network.create", json!({"name": name, "subnets": []})).await.ok();
    }
    first.call("subnet.add", json!({"network": "lan", "cidr": "10.0.0.0/16"})).await.ok();
    first.call("subnet.add", json!({"network": "dmz", "cidr": "10.1.0.0/16"})).await.ok();
    replica.signal("-STOP");
    let mut asked = JoinSet::new();
    for at in 0..24 {
        let networks = json!([{"network": "lan"}, {"network": "dmz"}]);
        let (method, params) = match at % 4 {
            0 => {
                ("network.create", json!({"name": format!("n{at}"), "subnets": [{"cidr": format!("10.2.{at}.0/24")}]}))
            }
            1 => (
                "deployment.apply",
                json!({"deployment": "d", "instances": [{"id": format!("i{at}"), "networks": networks}]}),
            ),
            2 => ("subnet.add", json!({"network": "lan", "cidr": format!("10.3.{at}.0/24")})),
            _ => ("ip.acquire", json!({"owner": format!("o{at}"), "ips": networks})),
        };
        let mut client = nodes.client(at % 2).await;
        asked.spawn(async move {
            let answer = timeout(PATIENCE, client.call(method, params)).await;
            (method, at, answer.is_ok_and(|answer| answer != Answer::Lost))
        });
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    for (method, at, is_answered) in asked.join_all().await {
        assert!(is_answered, "{method} {at} has no answer\n{}", nodes.logs());
    }
    replica.signal("-CONT");
    // The node first has to load its networks again.
    let end = Instant::now() + 2 * PATIENCE;
    loop {
        let mut client = nodes.client(owner).await;
        match client.call("ip.allocate", json!({"network": "lan", "owner": "after"})).await {
            Answer::Result(_) => break,
            other => assert!(Instant::now() < end, "it grants nothing: {other:?}\n{}", nodes.logs()),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Two nodes over a primary with one replica that is waited for, and network `lan`, in which `o1` has 10.0.0.1.
async fn begun(directory: &std::path::Path) -> Option<(Nodes, Redis)> {
    let primary = Redis::replicating(directory, "primary", None)?;
    let replica = Redis::replicating(directory, "replica", Some(primary.port())).unwrap();
    eventually("the replica follows", || replica.follows()).await;
    let setting = Setting { nodes: 2, store: "redis_replicas = 1", ..Setting::default() };
    let nodes = Nodes::over(tempfile::tempdir().unwrap(), primary, setting);
    let mut client = nodes.client(0).await;
    let made = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]});
    insist(&mut client, "network.create", &made).await;
    insist(&mut client, "ip.claim", &json!({"network": "lan", "address": "10.0.0.1", "owner": "o1"})).await;
    Some((nodes, replica))
}

fn why(nodes: &Nodes, node: usize) -> String {
    http_get(nodes.cluster.http(node), "/readyz")
}

async fn is_told(nodes: &Nodes) {
    let told = |node| why(nodes, node).contains("1 replicas wanted, 0 answer");
    eventually("every node says what is missing", || (0..2).all(told)).await;
}

/// Nobody makes a change that would find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_gone_is_told_of_although_nobody_changes_anything() {
    let directory = tempfile::tempdir().unwrap();
    let Some((nodes, mut replica)) = begun(directory.path()).await else { return };
    let owner = nodes.cluster.owner_but(None).await;
    replica.end();
    is_told(&nodes).await;
    assert_eq!(nodes.cluster.figure(owner, "allod_store_replicas_answering"), 0.0);
    assert!(nodes.cluster.allod(owner, &["cluster", "shards"]).contains("nothing is granted: 1 replicas wanted"));
    // What a change survives is said only of changes that are acknowledged.
    let info = |node| nodes.cluster.allod(node, &["server", "info"]);
    for node in 0..2 {
        assert!(info(node).contains("nothing is granted now: 1 replicas wanted, 0 answer"), "{}", info(node));
    }
    let gone = format!("of the replicas, 127.0.0.1:{} is gone", replica.port());
    eventually("every node names the one that is missing", || (0..2).all(|node| info(node).contains(&gone))).await;
    replica.begin();
    eventually("it is there again", || (0..2).all(|node| nodes.cluster.is_ready(node))).await;
    eventually("both say so", || (0..2).all(|node| !info(node).contains("nothing is granted now"))).await;
    assert_eq!(nodes.cluster.figure(owner, "allod_store_replicas_answering"), 1.0);
    assert_eq!(nodes.cluster.owner_but(None).await, owner);
}

/// The reason must not be in the log only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_a_register_from_being_written_anew_is_told_to_whoever_asks() {
    let directory = tempfile::tempdir().unwrap();
    let Some((nodes, replica)) = begun(directory.path()).await else { return };
    let owner = nodes.cluster.owner_but(None).await;
    replica.signal("-STOP");
    nodes.redis.ask(&["FLUSHALL"]);
    let hinders = |told: &str| {
        told.contains("writes the register to it again")
            && told.contains("the obstacle at present: ")
            && told.contains("1 replicas wanted, 0 answer")
    };
    eventually("it is said where it is looked whether it is ready", || hinders(&why(&nodes, owner))).await;
    let mut client = nodes.client(owner).await;
    let told = client.call("ip.allocate", json!({"network": "lan", "owner": "o2"})).await;
    let Answer::Refused(kind, error) = told else { panic!("{told:?}") };
    assert!(kind == "unavailable" && hinders(error["message"].as_str().unwrap()), "{error}");
    replica.signal("-CONT");
    eventually("it is whole", || written(&nodes) == 1).await;
}

/// A read that cannot be proved puts nothing in doubt; and what is in doubt is not being loaded, it waits for the replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_while_a_replica_is_away_is_told_that_and_not_that_something_is_loaded_or_moved() {
    let directory = tempfile::tempdir().unwrap();
    let Some((nodes, mut replica)) = begun(directory.path()).await else { return };
    replica.end();
    let asks = [
        ("ip.get", json!({"address": "10.0.0.1"})),
        ("ip.get", json!({"network": "lan", "address": "10.0.0.1"})),
        ("ip.list", json!({})),
        ("network.usage", json!({"network": "lan"})),
        ("network.list", json!({})),
        ("ip.allocate", json!({"network": "lan", "owner": "o1"})),
    ];
    for round in 0..3 {
        for (at, (method, params)) in asks.iter().enumerate() {
            let mut client = nodes.client(at % 2).await;
            let told = timeout(PATIENCE, client.call(method, params.clone())).await.expect("an answer");
            let Answer::Refused(kind, error) = told else { panic!("{method}: {told:?}") };
            let message = error["message"].as_str().unwrap();
            assert_eq!(kind, "unavailable", "round {round}, {method}: {error}\n{}", nodes.logs());
            assert!(message.contains("1 replicas wanted, 0 answer"), "round {round}, {method}: {error}");
            assert!(round > 0 || !message.contains("in doubt"), "{method}: {error}");
        }
        if round == 0 {
            assert!(!nodes.logs().contains("its networks are being loaded again"), "{}", nodes.logs());
            // From here on a change is in doubt, because a release is tried.
            let release = json!({"network": "lan", "owner": "o1"});
            let told = nodes.client(0).await.call("ip.release", release).await;
            assert!(matches!(&told, Answer::Refused(kind, _) if kind == "unavailable"), "{told:?}");
        }
    }
    replica.begin();
    let mut client = nodes.client(0).await;
    insist(&mut client, "ip.get", &json!({"network": "lan", "address": "10.0.0.1"})).await;
}

/// If the owner let go of the register, no other node could begin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_keeps_the_register_while_no_take_over_could_be_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let Some((nodes, mut replica)) = begun(directory.path()).await else { return };
    let owner = nodes.cluster.owner_but(None).await;
    replica.end();
    // First possibly before the owner knows that the replica is gone, then after.
    for _ in 0..2 {
        let told = nodes.client(owner).await.call("cluster.drain", json!({})).await;
        let Answer::Refused(kind, error) = told else { panic!("{told:?}") };
        assert_eq!(kind, "in_use", "{error}\n{}", nodes.logs());
        assert!(error["message"].as_str().unwrap().contains("1 replicas wanted, 0 answer"), "{error}");
        is_told(&nodes).await;
    }
    assert!(!nodes.cluster.allod(owner, &["cluster", "nodes"]).contains("draining"));
    replica.begin();
    eventually("it is there again", || (0..2).all(|node| nodes.cluster.is_ready(node))).await;
    assert_eq!(nodes.cluster.owner_but(None).await, owner);
    insist(&mut nodes.client(owner).await, "cluster.drain", &json!({})).await;
    assert_eq!(nodes.cluster.owner_but(Some(owner)).await, 1 - owner);
}

/// The obstacle passes by itself. If the node ended for good because of it, no supervisor would start it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_network_file_waits_for_a_replica_and_is_started_again_where_that_stays_away() {
    let directory = tempfile::tempdir().unwrap();
    let Some((nodes, replica)) = begun(directory.path()).await else { return };
    let file = directory.path().join("networks.toml");
    std::fs::write(&file, "[[network]]\nname = \"dmz\"\n").unwrap();
    replica.signal("-STOP");
    is_told(&nodes).await;
    let (code, log) = nodes.cluster.begin_with_networks("patient", &file).ends();
    assert_eq!(code, Some(75), "{log}");
    assert!(
        log.contains("network `dmz` of the network file: ")
            && log.contains("make sure that Redis and the other nodes run"),
        "{log}"
    );
    let waiting = nodes.cluster.begin_with_networks("late", &file);
    eventually("it waits", || waiting.log_text().contains("network `dmz` of the network file: ")).await;
    replica.signal("-CONT");
    waiting.ready();
    insist(&mut nodes.client(0).await, "network.get", &json!({"network": "dmz"})).await;
}
