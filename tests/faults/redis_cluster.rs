//! A Redis cluster of three primaries, each with a replica, two nodes, and clients that work on while the register's primary is
//! killed and its slot is moved.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::checker::check;
use super::client::Client;
use super::clustered::RedisCluster;
use super::load::{Load, make_networks};
use super::nodes::Cluster;
use super::record::{Call, Told};
use super::run::{STANDSTILL_MAX, configuration, eventually};
use super::seed::seed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_redis_cluster_a_failover_and_a_move_of_the_slot_lose_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut redis) = RedisCluster::start(3, 1, &["--appendonly", "yes"]) else { return };
    let seed = seed();
    let file = configuration(directory.path(), "redis_replicas = 1\nredis_heal_bytes = 0");
    let settings = ["--config", &file.display().to_string()];
    let cluster = Cluster::start_with(directory.path(), &redis.url(), 2, &settings);
    let networks = make_networks(&mut Client::connect(cluster.addresses()[0]).await.unwrap(), 4).await;
    let load = Load::new(networks, cluster.addresses());
    let clients = load.start(4, seed);
    let goes_on = async |load: &Arc<Load>, when: &str| {
        let logs = || format!("{}\n{}", cluster.log(0), cluster.log(1));
        assert!(load.more(200, STANDSTILL_MAX).await, "ALLOD_SEED={seed}: nobody gets on {when}\n{}", logs());
    };
    goes_on(&load, "at the start").await;
    let slot = redis.slot("{allod}:register");
    let first = redis.owner(slot).unwrap();
    redis.members[first].kill();
    let second = redis.failed_over(slot, first);
    redis.members[first].begin();
    goes_on(&load, "after the failover").await;
    let third = (0..3).find(|&at| at != first && redis.replicas_of(at).len() == 1 && at != second).unwrap();
    let put_off = || load.put_off.load(Ordering::Relaxed);
    let before = put_off();
    redis.begin_move(slot, second, third);
    while redis.move_keys(slot, second, third, 5) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(40)).await;
    }
    eventually("the move meets requests", || put_off() > before).await;
    // What was committed before the last key went may be told only now, and who holds something may be told of it again.
    let all_moved_ns = load.record.now_ns();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let granted = |call: &Call| call.sent_ns > all_moved_ns && matches!(call.told, Told::Held { created: true, .. });
    let grants: Vec<Call> = load.record.all().into_iter().filter(granted).collect();
    assert!(grants.is_empty(), "ALLOD_SEED={seed}: it grants while its slot is moved: {grants:?}");
    redis.end_move(slot, second, third);
    goes_on(&load, "after its slot was moved").await;
    assert_eq!(redis.owner(slot), Some(third));
    load.end(clients).await;
    assert!(load.ask_again(&check(&load.record.all())).await > 0);
    let verdict = check(&load.record.all());
    assert!(
        verdict.problems.is_empty(),
        "ALLOD_SEED={seed}: {:#?}",
        &verdict.problems[..verdict.problems.len().min(5)]
    );
    assert!(verdict.sure_holdings > 300, "{}", verdict.sure_holdings);
}
