//! A primary, a replica and three sentinels, two nodes, and clients that work on while the primary is killed or stopped.

use std::time::Duration;

use super::checker::check;
use super::record::{Asked, Call, Told};
use super::redis::Redis;
use super::run::{Nodes, Run, Setting, eventually, insist};
use super::seed::seed;
use super::sentinels::Watched;
use super::watch::Watching;

/// Starts two nodes with these settings of the store, and clients that make progress.
async fn begin(store: &str) -> Option<Run<Watched>> {
    let seed = seed();
    Some(Run::over(Watched::start()?, Setting { store, ..Setting::default() }, seed).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_replicas_waited_for_no_failover_loses_what_was_acknowledged() {
    let Some(mut run) = begin("redis_replicas = 1").await else { return };
    // No event is lost either: a watcher that listed at the start ends up with the same picture as a client that lists at
    // the end.
    let watching = Watching::start(&run.load.networks, run.nodes.cluster.addresses());
    run.nodes.redis.servers[0].end();
    run.nodes.redis.promoted(1);
    run.nodes.redis.servers[0].begin();
    run.gets_on(300, "after the primary was killed").await;
    let primary = run.nodes.redis.settled();
    run.nodes.redis.servers[primary].signal("-STOP");
    run.nodes.redis.promoted(1 - primary);
    run.nodes.redis.servers[primary].signal("-CONT");
    run.gets_on(300, "after the primary stood still").await;
    (0..2).for_each(|node| run.nodes.cluster.serves_still(node));
    run.stop().await;
    let owner = run.nodes.cluster.owner_but(None).await;
    let (told, connections) = watching.judge(run.nodes.cluster.address(owner)).await;
    assert!(told > 300, "{told} events over {connections} connections");
    let verdict = run.end().await;
    assert!(verdict.unknown > 0, "no failover met a request under way: nothing was tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_failover_lost_is_healed_by_the_node_that_acknowledged_it() {
    let Some(mut run) = begin("redis_replicas = 0").await else { return };
    run.lose().await;
    run.gets_on(300, "after the failover").await;
    let (healed, logs) = (run.nodes.healed(), run.nodes.logs());
    assert!(healed > 0.0, "nothing was lost\n{logs}");
    assert!(logs.contains("is played again"), "{logs}");
    run.end().await;
}

/// That server may also have followed only another run of Redis, like the primary from before the failover. Once all servers
/// follow again, nothing is left to give back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_stopped_while_one_that_may_be_promoted_is_away_leaves_what_it_acknowledged() {
    let Some(watched) = Watched::start() else { return };
    let setting = Setting { nodes: 1, store: "redis_replicas = 0", ..Setting::default() };
    let mut nodes = Nodes::over(tempfile::tempdir().unwrap(), watched, setting);
    let leaves = |nodes: &mut Nodes<Watched>| {
        let so_far = |nodes: &Nodes<Watched>| nodes.cluster.log(0).matches("the next start gives back").count();
        let before = so_far(nodes);
        nodes.cluster.restart(0);
        so_far(nodes) > before
    };
    // On a busy machine a replica may not yet have confirmed that it has everything; a later stop then finds that it has.
    let leaves_always = |nodes: &mut Nodes<Watched>| (0..5).all(|_| leaves(nodes));
    let ask = |owner: &str| serde_json::json!({"network": "lan", "owner": owner});
    let made = serde_json::json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]});
    insist(&mut nodes.client(0).await, "network.create", &made).await;
    assert!(!leaves_always(&mut nodes), "its replica has it: {}", nodes.logs());
    nodes.redis.servers[0].end();
    nodes.redis.promoted(1);
    insist(&mut nodes.client(0).await, "ip.allocate", &ask("a")).await;
    assert!(leaves(&mut nodes), "it saw a replica of the run before: {}", nodes.logs());
    insist(&mut nodes.client(0).await, "ip.allocate", &ask("b")).await;
    assert!(leaves(&mut nodes), "it never saw any, and the sentinels know of one: {}", nodes.logs());
    nodes.redis.servers[0].begin();
    nodes.redis.settled();
    for owner in ["a", "b", "c"] {
        let told = insist(&mut nodes.client(0).await, "ip.allocate", &ask(owner)).await;
        assert_eq!(told["created"], owner == "c", "{told}");
    }
    assert!(!leaves_always(&mut nodes), "all that may be promoted have it: {}", nodes.logs());
    nodes.cluster.serves_still(0);
}

/// Sentinels that lost their files count failovers from the beginning. Nodes follow them all the same, whether the previous
/// primary is killed or has become a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_forgot_how_often_they_failed_over_are_followed() {
    let Some(mut run) = begin("redis_replicas = 0").await else { return };
    run.nodes.redis.made_anew(0, 7);
    // The sentinels are asked once a second.
    tokio::time::sleep(Duration::from_secs(4)).await;
    run.nodes.redis.made_anew(0, 0);
    tokio::time::sleep(Duration::from_secs(4)).await;
    run.nodes.redis.servers[0].end();
    run.nodes.redis.promoted(1);
    run.gets_on(300, "after the primary was killed").await;
    run.nodes.redis.servers[0].begin();
    run.nodes.redis.settled();
    // The sentinels seem to have failed over often, and forget it just when somebody switches the primary by hand.
    let primary = run.nodes.redis.settled();
    run.nodes.redis.made_anew(primary, 9);
    tokio::time::sleep(Duration::from_secs(4)).await;
    run.nodes.redis.end_sentinels();
    let other = run.nodes.redis.servers[1 - primary].port().to_string();
    run.nodes.redis.servers[1 - primary].ask(&["REPLICAOF", "NO", "ONE"]);
    run.nodes.redis.servers[primary].ask(&["REPLICAOF", "127.0.0.1", &other]);
    run.nodes.redis.made_anew(1 - primary, 0);
    run.gets_on(300, "after a switch by hand").await;
    run.end().await;
}

/// Everything is started again at other addresses, as in pods, and the sentinels lost their files: nothing is left at the
/// address that they named last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_forgot_all_and_name_another_address_are_followed() {
    let Some(mut run) = begin("redis_replicas = 0").await else { return };
    run.nodes.redis.made_anew(0, 7);
    // The sentinels are asked once a second.
    tokio::time::sleep(Duration::from_secs(4)).await;
    run.nodes.redis.end_sentinels();
    run.nodes.redis.servers[0].end();
    run.nodes.redis.servers[1].ask(&["REPLICAOF", "NO", "ONE"]);
    let place = run.nodes.redis.directory.path().join("third");
    std::fs::create_dir(&place).unwrap();
    let follows = ["--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1"];
    let primary = run.nodes.redis.servers[1].port().to_string();
    let before = run.nodes.redis.servers[0].port();
    run.nodes.redis.servers[0] = Redis::start(&place, &[&follows[..], &[&primary]].concat()).unwrap();
    run.nodes.redis.made_anew(1, 0);
    run.gets_on(300, "at the other address").await;
    let log = run.nodes.cluster.log(0);
    let said = format!("connecting to 127.0.0.1:{before} (most of those asked name 127.0.0.1:{primary}");
    assert!(log.contains(&said), "{log}");
    run.end().await;
}

/// The primary is back without its files before the sentinels miss it, and the replica copies the empty state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_restarts_empty_and_empties_its_replica_is_given_back_the_register() {
    let Some(mut run) = begin("redis_replicas = 1").await else { return };
    let primary = run.nodes.redis.settled();
    run.nodes.redis.miss_nobody();
    let [one, two] = &mut run.nodes.redis.servers;
    let (emptied, replica) = if primary == 0 { (one, two) } else { (two, one) };
    emptied.end();
    emptied.forget();
    emptied.begin();
    eventually("the replica follows it again", || replica.follows()).await;
    run.gets_on(300, "after both were empty").await;
    let logs = run.nodes.logs();
    assert!(logs.contains("it was emptied") && logs.contains("the register is whole again"), "{logs}");
    run.end().await;
}

/// The replica has other settings than the primary, and nobody looked at them before: what is granted there may be evicted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_may_evict_is_granted_nothing_from_its_promotion_on_until_it_may_not() {
    let Some(mut run) = begin("redis_replicas = 0").await else { return };
    let primary = run.nodes.redis.settled();
    let replica = 1 - primary;
    run.nodes.redis.servers[replica].ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    run.nodes.redis.servers[primary].end();
    let since_ns = run.load.record.now_ns();
    run.nodes.redis.promoted(replica);
    // The owner would have granted something by then: it reaches the replica, and releases are done there.
    let is_let_go =
        |call: &Call| call.sent_ns > since_ns && call.asked == Asked::Release && call.told == Told::Released;
    eventually("what lets go is done", || run.load.record.all().iter().any(is_let_go)).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(run.granted_since(since_ns), []);
    run.nodes.redis.servers[replica].ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    run.gets_on(200, "when it may not any more").await;
    run.nodes.redis.servers[primary].begin();
    run.end().await;
}

/// The negative control of the two tests above: without waiting and without healing the checker must find the damage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_waiting_and_without_healing_the_checker_finds_two_holders() {
    let Some(mut run) = begin("redis_replicas = 0\nredis_heal_bytes = 0").await else { return };
    run.lose().await;
    // The other node takes over what is left, and grants the lost addresses to others.
    let found = || !check(&run.load.record.all()).twice.is_empty();
    for _ in 0..20 {
        run.load.more(300, Duration::from_secs(20)).await;
        if found() {
            break;
        }
    }
    let logs = run.nodes.logs();
    assert!(logs.contains("went back"), "{logs}");
    assert!(!run.unjudged().await.twice.is_empty(), "the checker would not have noticed\n{logs}");
}

/// A line a second for the whole time would bury everything else in the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_no_sentinel_answers_is_said_ever_more_seldom_while_the_node_goes_on() {
    let Some(watched) = Watched::start() else { return };
    let mut nodes = Nodes::over(tempfile::tempdir().unwrap(), watched, Setting { nodes: 1, ..Setting::default() });
    let subnets = serde_json::json!([{"cidr": "10.0.0.0/24"}]);
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &serde_json::json!({"name": "lan", "subnets": subnets})).await;
    nodes.redis.end_sentinels();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let said = nodes.cluster.log(0).matches("not say who the primary is").count();
    assert!((1..=4).contains(&said), "{said} times\n{}", nodes.logs());
    insist(&mut client, "ip.allocate", &serde_json::json!({"network": "lan", "owner": "o"})).await;
}
