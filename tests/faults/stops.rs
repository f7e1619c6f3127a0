//! How a node ends, as its supervisor sees it: the exit code of an orderly stop, whatever the node is doing, and of a start
//! that waits in vain.

use std::process::Command;
use std::time::{Duration, Instant};

use allod::limits::SHARDS_OF_NEW;
use serde_json::json;

use super::client::Answer;
use super::nodes::Cluster;
use super::redis::Redis;
use super::run::{Nodes, Setting, eventually, insist};
use super::server::{Starting, allod};
use super::wire::Way;

/// How long a start waits for others before it gives up, and how long that may take on a busy machine.
const WAITS: Duration = Duration::from_secs(15);
const AT_MOST: Duration = Duration::from_secs(60);

/// An orderly stop ends within this time, whatever does not answer.
const STOPS_WITHIN: Duration = Duration::from_secs(25);

const WANTS_REPLICA: &str = "redis_replicas = 1";
/// What a node logs while it cannot begin for want of a replica. An earlier process of the node may have logged it too.
pub const LACKS: &str = "too few replicas answer";

/// A node over a primary with a replica; none if there is no `redis-server`.
fn replicated() -> Option<(Nodes, Redis)> {
    let directory = tempfile::tempdir().unwrap();
    let primary = Redis::replicating(directory.path(), "primary", None)?;
    let replica = Redis::replicating(directory.path(), "replica", Some(primary.port())).unwrap();
    let end = Instant::now() + AT_MOST;
    while !replica.follows() {
        assert!(Instant::now() < end, "the replica never follows");
        std::thread::sleep(Duration::from_millis(50));
    }
    let setting = Setting { nodes: 1, store: WANTS_REPLICA, ..Setting::default() };
    Some((Nodes::over(directory, primary, setting), replica))
}

/// Ends the node, stops its replica, and starts the node again, which then waits for the replica.
async fn waiting_for_its_replica(nodes: &mut Nodes, replica: &Redis) -> Starting {
    nodes.cluster.stop(0);
    replica.signal("-STOP");
    let before = nodes.cluster.log(0).len();
    let starting = nodes.cluster.begin_as("node-0", "node-0", 0);
    eventually("it waits", || starting.log_text()[before..].contains(LACKS)).await;
    starting
}

/// Nobody owns any shard, so the next owner need not wait.
fn no_lease_is_left(redis: &Redis) -> bool {
    (0..SHARDS_OF_NEW).all(|shard| redis.text(&["HGET", &format!("{{allod}}:{shard}:head"), "lease"]) == "0")
}

fn is_named(redis: &Redis, node: &str) -> bool {
    !redis.text(&["HGET", "{allod}:nodes", node]).is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_before_its_replica_answers_waits_for_it_and_serves() {
    let Some((mut nodes, replica)) = replicated() else { return };
    let starting = waiting_for_its_replica(&mut nodes, &replica).await;
    replica.signal("-CONT");
    let server = starting.ready();
    let created = server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    assert!(created.contains("lan"), "{created}");
    server.stop();
    assert!(no_lease_is_left(&nodes.redis));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_waits_for_a_replica_in_vain_ends_with_75_after_a_while_and_says_why() {
    let Some((mut nodes, replica)) = replicated() else { return };
    nodes.cluster.stop(0);
    replica.signal("-STOP");
    let begun = Instant::now();
    let ended = nodes.cluster.begin_as("node-0", "node-0", 0).ready_or_ended();
    let Err((reason, log)) = ended else { panic!("it is ready") };
    let took = begun.elapsed();
    assert!(reason == "code 75" && log.contains("1 replicas wanted, 0 answer"), "{reason}: {log}");
    assert!(log.contains("\nhint: make sure that Redis and the other nodes run"), "{log}");
    assert!((WAITS..AT_MOST).contains(&took), "{took:?}");
    assert!(!is_named(&nodes.redis, "node-0"), "the next start waits until nobody remembers its name");
}

/// In a container the node is the first process, which gets no signal that it does not handle; and its supervisor acts on
/// the exit code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_told_to_stop_while_it_waits_ends_well_and_leaves_neither_lease_nor_name() {
    let Some((mut nodes, replica)) = replicated() else { return };
    let starting = waiting_for_its_replica(&mut nodes, &replica).await;
    let begun = Instant::now();
    starting.signal("-TERM");
    let (code, log) = starting.ends();
    assert_eq!(code, Some(0), "{log}");
    assert!(begun.elapsed() < STOPS_WITHIN, "{:?}: {log}", begun.elapsed());
    assert!(no_lease_is_left(&nodes.redis), "{log}");
    assert!(!is_named(&nodes.redis, "node-0"), "{log}");
}

/// The node serves nobody and waits for its store. Requests are answered, and what it would tell Redis waits no longer than
/// a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_to_stop_while_redis_is_away_ends_well() {
    let Some(mut nodes) = Nodes::start(2, &[]) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    nodes.redis.signal("-STOP");
    let waits = |node: usize| nodes.cluster.log(node).contains("waiting: the store cannot be reached");
    eventually("nobody owns it any more", || waits(owner) && !nodes.cluster.is_ready(1 - owner)).await;
    for node in [owner, 1 - owner] {
        let begun = Instant::now();
        nodes.cluster.stop(node);
        assert!(begun.elapsed() < STOPS_WITHIN, "node {node}: {:?}\n{}", begun.elapsed(), nodes.cluster.log(node));
    }
    nodes.redis.signal("-CONT");
    nodes.cluster.again(owner);
    nodes.cluster.serves_still(owner);
}

/// The successor never gets ready, so the drain is under way when the stop comes. Its client gets an answer, and no lease is
/// left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_to_stop_while_it_is_drained_ends_well_and_leaves_no_lease() {
    let Some(mut nodes) = Nodes::set(Setting { redis: &[], wired: true, ..Setting::default() }) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    nodes.to_redis(1 - owner).hold(Way::Both);
    let mut client = nodes.client(owner).await;
    let draining = tokio::spawn(async move { client.call("cluster.drain", json!({})).await });
    eventually("the drain has begun", || nodes.cluster.log(owner).contains("is being taken out of service")).await;
    let begun = Instant::now();
    nodes.cluster.stop(owner);
    assert!(begun.elapsed() < STOPS_WITHIN, "{:?}\n{}", begun.elapsed(), nodes.cluster.log(owner));
    assert!(no_lease_is_left(&nodes.redis), "{}", nodes.cluster.log(owner));
    let told = tokio::time::timeout(AT_MOST, draining).await.expect("its client waits on").unwrap();
    assert!(!matches!(told, Answer::Result(_)), "nobody took it over: {told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_to_stop_while_it_follows_or_owns_ends_well_and_leaves_neither_lease_nor_name() {
    let Some(mut nodes) = Nodes::start(2, &[]) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    nodes.client(1 - owner).await.call("network.create", json!({"name": "lan"})).await.ok();
    for node in [1 - owner, owner] {
        nodes.cluster.stop(node);
        assert!(!is_named(&nodes.redis, &format!("node-{node}")), "{}", nodes.cluster.log(node));
    }
    assert!(no_lease_is_left(&nodes.redis));
}

/// Until the owner asks Redis for something it does not know that everything is gone, and a stop may come first. What it has
/// in memory is then all that is left of the register.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_to_stop_when_redis_was_just_emptied_writes_the_register_anew_before_it_ends() {
    let Some(mut nodes) = Nodes::start(1, &[]) else { return };
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]})).await;
    for times in 1..=3 {
        let mut client = nodes.client(0).await;
        insist(&mut client, "ip.allocate", &json!({"network": "lan", "owner": format!("o{times}")})).await;
        // The signal is handled at once. Otherwise a renewal may come first, after which the register is written as usual.
        nodes.cluster.signal(0, "-STOP");
        nodes.cluster.signal(0, "-TERM");
        nodes.redis.ask(&["FLUSHALL"]);
        nodes.cluster.signal(0, "-CONT");
        nodes.cluster.stop(0);
        nodes.cluster.again(0);
        let mut client = nodes.client(0).await;
        let held = insist(&mut client, "ip.list", &json!({"network": "lan", "count_only": true})).await;
        assert_eq!(held["count"], times, "{}", nodes.cluster.log(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_to_stop_while_it_commits_to_a_redis_that_was_emptied_loses_nothing_that_it_acknowledged() {
    let Some(mut nodes) = Nodes::start(1, &[]) else { return };
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]})).await;
    let owner = |n: usize| format!("o{n}");
    let calls = (0..3_000).map(|n| ("ip.allocate".to_owned(), json!({"network": "lan", "owner": owner(n)})));
    let calls: Vec<_> = calls.collect();
    let asking = tokio::spawn(async move { client.call_all(calls).await });
    let mut looking = nodes.client(0).await;
    let held = json!({"network": "lan", "count_only": true});
    while insist(&mut looking, "ip.list", &held).await["count"].as_u64() < Some(200) {}
    // The signal is handled at once, and the owner hears only then that its commits fail.
    nodes.cluster.signal(0, "-STOP");
    nodes.cluster.signal(0, "-TERM");
    nodes.redis.ask(&["FLUSHALL"]);
    nodes.cluster.signal(0, "-CONT");
    nodes.cluster.stop(0);
    let answers = asking.await.unwrap();
    nodes.cluster.again(0);
    let list = nodes.client(0).await.list_all().await;
    let granted = |n: &usize| matches!(answers[*n], Answer::Result(_));
    let lost = |n: &usize| !list.iter().any(|held| held["owner"] == owner(*n));
    let lost: Vec<_> = (0..answers.len()).filter(granted).filter(lost).collect();
    assert!(lost.is_empty(), "{lost:?} of {}: {}", answers.len(), nodes.cluster.log(0));
    assert!(list.len() >= 200, "{}", list.len());
}

/// It owns nothing any more, as it could not renew its lease. It has no secret, so no other node can have owned the register
/// since, and what it has in memory is all that is left of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_to_stop_when_redis_comes_back_empty_after_its_lease_writes_the_register_anew_before_it_ends()
 {
    let Some(mut nodes) = Nodes::set(Setting { alone: true, ..Setting::default() }) else { return };
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]})).await;
    let granted = insist(&mut client, "ip.allocate", &json!({"network": "lan", "owner": "web/0"})).await;
    nodes.redis.end();
    nodes.redis.forget();
    eventually("its tenure is over", || nodes.logs().contains("the next owner waits for the end of the lease")).await;
    // The signal is handled at once, and the node looks for the register only then.
    nodes.cluster.signal(0, "-STOP");
    nodes.cluster.signal(0, "-TERM");
    nodes.redis.begin();
    nodes.cluster.signal(0, "-CONT");
    nodes.cluster.stop(0);
    nodes.cluster.again(0);
    let list = nodes.client(0).await.list_all().await;
    assert_eq!(list.len(), 1, "{}", nodes.cluster.log(0));
    assert_eq!(list[0]["address"], granted["address"]);
}

/// The right does not appear by itself: a supervisor that restarted the node would do so for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_whose_user_of_redis_lacks_a_right_ends_with_1_and_says_which() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    for missing in ["-hset", "-zadd", "-evalsha"] {
        redis.ask(&["ACL", "SETUSER", "allod", "reset", "on", ">secret", "~{allod}:*", "+@all", missing]);
        let url = redis.url().replace("redis://", "redis://allod:secret@");
        let cluster = Cluster::start_with(directory.path(), &url, 0, &[]);
        let (reason, log) = cluster.begin_as("node-0", "node-0", 0).ready_or_ended().err().unwrap();
        let told = log.contains("user `allod` lacks a right") && log.contains(&format!(" +{}", &missing[1..]));
        assert!(reason == "code 1" && told && log.contains("deploy/README.md"), "{missing}: {reason}: {log}");
    }
}

/// The nodes slept while an operator moved the register away. One wakes as its owner, the other as the next in line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_slept_while_the_register_was_moved_ends_and_says_where_it_went() {
    let Some(nodes) = Nodes::start(2, &[]) else { return };
    let mut client = nodes.client(0).await;
    client.call("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await.ok();
    client.call("ip.allocate", json!({"network": "lan", "owner": "a"})).await.ok();
    (0..2).for_each(|at| nodes.cluster.signal(at, "-STOP"));
    let to = nodes.directory.path().join("moved").display().to_string();
    let moved = Command::new(allod()).args(["migrate", &nodes.redis.url(), &to, "--yes"]).output().unwrap();
    assert!(moved.status.success(), "{moved:?}");
    (0..2).for_each(|at| nodes.cluster.signal(at, "-CONT"));
    for at in 0..2 {
        eventually("it ends, and names the place", || {
            let log = nodes.cluster.log(at);
            assert!(!log.contains("--accept-rollback") && !log.contains("cannot be taken anew\n"), "{log}");
            log.contains("hint: ") && log.contains(&format!("was moved to the directory {to}"))
        })
        .await;
    }
}
