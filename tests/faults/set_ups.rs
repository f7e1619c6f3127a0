//! Sentinels, a Redis cluster, a primary with a replica: faults of the nodes over them, and losses of their own.

use std::time::Duration;

use super::clustered::RedisCluster;
use super::happens_to_many::slot;
use super::record::{Asked, Told};
use super::redis::Redis;
use super::run::{Keeper, Run, Setting, eventually};
use super::seed::seed;
use super::sentinels::Watched;
use super::wire::{Way, Wire};

/// The owner is killed, and the next owner sleeps past its lease.
async fn owners_fall<R: Keeper>(keeper: R, seed: u64) {
    let mut run = Run::over(keeper, Setting::default(), seed).await;
    let owner = run.nodes.cluster.owner_but(None).await;
    run.gets_on(20, "without pause, until it is killed").await;
    run.crash(owner);
    run.gets_on(200, "after a node was killed").await;
    let owner = run.nodes.cluster.owner_but(None).await;
    let followed = || run.nodes.cluster.log(owner).matches("role=follower of").count();
    let before = followed();
    run.nodes.cluster.signal(owner, "-STOP");
    let next = run.nodes.cluster.owner_but(Some(owner)).await;
    run.gets_on(200, "while a node stands still").await;
    run.nodes.cluster.signal(owner, "-CONT");
    eventually("it learns that another one owns the register", || followed() > before).await;
    run.gets_on(200, "after it woke").await;
    assert_eq!(run.nodes.cluster.owner_but(None).await, next, "it took over in vain");
    let verdict = run.end().await;
    assert!(verdict.unknown > 0, "no kill met a request under way: nothing was tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_sentinels_a_node_that_was_killed_or_slept_past_its_lease_grants_nothing_twice() {
    let seed = seed();
    let Some(watched) = Watched::start() else { return };
    owners_fall(watched, seed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_redis_cluster_a_node_that_was_killed_or_slept_past_its_lease_grants_nothing_twice() {
    let seed = seed();
    let Some(redis) = RedisCluster::start(3, 1, &["--appendonly", "yes"]) else { return };
    owners_fall(redis, seed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_failover_of_a_redis_cluster_lost_is_given_back_by_the_node_that_acknowledged_it() {
    let seed = seed();
    let Some(redis) = RedisCluster::start(3, 1, &["--appendonly", "yes"]) else { return };
    let mut run = Run::over(redis, Setting::default(), seed).await;
    let ended = run.lose().await;
    run.gets_on(200, "after the failover").await;
    run.nodes.redis.members[ended].begin();
    run.gets_on(200, "after the old primary is back").await;
    let (healed, logs) = (run.nodes.healed(), run.nodes.logs());
    assert!(healed > 0.0 && logs.contains("is played again"), "nothing was lost: {healed}\n{logs}");
    run.end().await;
}

/// The other two primaries have nothing of the register, so the only copy is in the owner's memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_of_a_redis_cluster_that_was_emptied_is_given_back_the_register() {
    let seed = seed();
    let Some(redis) = RedisCluster::start(3, 1, &["--appendonly", "yes"]) else { return };
    let run = Run::over(redis, Setting::default(), seed).await;
    let (primary, _) = run.nodes.redis.settled(slot(&run.nodes.redis));
    let _: String = run.nodes.redis.members[primary].ask(&["FLUSHALL"]);
    run.gets_on(300, "after it was emptied").await;
    let logs = run.nodes.logs();
    assert!(logs.contains("it was emptied") && logs.contains("the register is whole again"), "{logs}");
    run.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_replica_that_is_waited_for_hears_nothing_nothing_is_acknowledged() {
    let (seed, directory) = (seed(), tempfile::tempdir().unwrap());
    let start = |name: &str, more: &[&str]| {
        let place = directory.path().join(name);
        std::fs::create_dir(&place).unwrap();
        Redis::start(&place, &[&["--repl-diskless-sync-delay", "0", "--repl-timeout", "60"], more].concat())
    };
    let Some(primary) = start("primary", &[]) else { return };
    let wire = Wire::to(([127, 0, 0, 1], primary.port()).into());
    let follows = ["--replicaof", "127.0.0.1", &wire.address.port().to_string()];
    let replica = start("replica", &follows).unwrap();
    let run = Run::over(primary, Setting { store: "redis_replicas = 1", ..Setting::default() }, seed).await;
    // The traffic to the replica is held, then that from it, then both.
    for way in [Way::Back, Way::There, Way::Both] {
        // Read both counts before the hold: once the wire holds one piece, no more may come.
        let (refused, held) = (run.refusals(), wire.held());
        wire.hold(way);
        eventually("changes are put off", || run.refusals() > refused && wire.held() > held).await;
        let since_ns = run.load.record.now_ns();
        tokio::time::sleep(Duration::from_millis(700)).await;
        let granted = |asked: &Asked, told: &Told| match told {
            Told::Held { created, .. } => *created || *asked != Asked::Grant,
            told => *told == Told::Released,
        };
        let calls = run.load.record.all();
        let acknowledged: Vec<_> =
            calls.iter().filter(|call| call.sent_ns > since_ns && granted(&call.asked, &call.told)).collect();
        assert!(acknowledged.is_empty(), "{way:?}: {acknowledged:?}\n{}", run.nodes.logs());
        wire.release();
        run.gets_on(200, "when the replica hears again").await;
    }
    assert!(replica.text(&["INFO", "replication"]).contains("role:slave"));
    run.end().await;
}
