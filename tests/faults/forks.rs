//! A failover is undone. The primary stands still with a change that it has read but not carried out; the node takes the
//! register anew on the replica; then the first server becomes the primary again and carries the change out. Nothing that
//! anybody was told of is lost, and the node goes on.

use std::time::{Duration, Instant};

use super::record::Told;
use super::redis::Redis;
use super::run::{Nodes, Run, STANDSTILL_MAX, Setting, eventually};
use super::seed::seed;
use super::stops::LACKS;
use super::wire::Way;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_is_taken_back_ends_the_tenure_and_not_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = Redis::replicating(directory.path(), "primary", None) else { return };
    let replica = Redis::replicating(directory.path(), "replica", Some(primary.port())).unwrap();
    let setting = Setting { nodes: 1, store: "redis_replicas = 1", wired: true, ..Setting::default() };
    let run = Run::begin(Nodes::over(directory, primary, setting), 4, seed()).await;
    run.gets_on(200, "at the start").await;
    let primary = &run.nodes.redis;
    let forked = "Redis went on from elsewhere than this server";
    for _ in 0..12 {
        // Or the node's lease ends first; then the next tenure takes the register anew.
        let given_up = || {
            let logs = run.nodes.logs();
            logs.matches("a commit is given up").count() + logs.matches("no longer owns the register").count()
        };
        let before = given_up();
        // Everything asked before is done, on the replica too, so the next requests meet a primary that stands still.
        let to_node = run.nodes.to_clients(0);
        to_node.hold(Way::There);
        let mut last = (u64::MAX, u64::MAX);
        eventually("nothing is on its way", || {
            let before = std::mem::replace(&mut last, (primary.of_heads("seq"), replica.of_heads("seq")));
            before == last && last.0 == last.1
        })
        .await;
        primary.signal("-STOP");
        to_node.release();
        let end = Instant::now() + STANDSTILL_MAX;
        while given_up() == before {
            assert!(Instant::now() < end, "no change was on its way\n{}", run.nodes.logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        replica.ask(&["REPLICAOF", "NO", "ONE"]);
        let (epochs, since_ns) = (replica.of_heads("epoch"), run.load.record.now_ns());
        run.nodes.lead(0, &replica);
        let end = Instant::now() + STANDSTILL_MAX;
        while replica.of_heads("epoch") <= epochs {
            assert!(Instant::now() < end, "it is never taken anew at the replica\n{}", run.nodes.logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // What was in doubt may be written there, but nobody is told of it, because that server has no replica.
        let there = run.load.record.all().into_iter().filter(|call| call.sent_ns > since_ns);
        let told: Vec<_> = there.filter(|call| matches!(call.told, Told::Held { created: true, .. })).collect();
        assert!(told.is_empty(), "acknowledged without a replica: {told:?}\n{}", run.nodes.logs());
        primary.signal("-CONT");
        eventually("the primary answers", || primary.text(&["PING"]) == "PONG").await;
        run.nodes.lead(0, primary);
        replica.ask(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        eventually("the replica follows again", || replica.follows()).await;
        run.gets_on(200, "after the failover was taken back").await;
        run.nodes.cluster.serves_still(0);
        if run.nodes.logs().contains(forked) {
            break;
        }
    }
    let logs = run.nodes.logs();
    assert!(logs.contains(forked), "it never forked\n{logs}");
    assert!(!logs.contains("went back: shard"), "{logs}");
    let verdict = run.end().await;
    assert!(verdict.unknown > 0, "no change was in doubt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_a_replica_that_is_on_its_way() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = Redis::replicating(directory.path(), "primary", None) else { return };
    let (port, place) = (primary.port(), directory.path().to_owned());
    // The node does not get ready until the replica comes.
    let comes = std::thread::spawn(move || {
        let end = Instant::now() + STANDSTILL_MAX;
        while !std::fs::read_to_string(place.join("node-0.log")).is_ok_and(|log| log.contains(LACKS)) {
            assert!(Instant::now() < end, "it does not wait");
            std::thread::sleep(Duration::from_millis(50));
        }
        Redis::replicating(&place, "replica", Some(port)).unwrap()
    });
    let setting = Setting { nodes: 1, store: "redis_replicas = 1", ..Setting::default() };
    let nodes = Nodes::over(directory, primary, setting);
    let replica = comes.join().unwrap();
    assert!(replica.follows());
    let log = nodes.logs();
    assert!(!log.contains("cannot start the server"), "it ended, and was started again\n{log}");
}
