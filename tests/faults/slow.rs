//! A Redis that is slow, or stands still for a while and survives: a long way off, asleep, paused.

use std::time::{Duration, Instant};

use allod::limits::NODE_LEASE_LAPSES_MS;

use super::nodes::Cluster;
use super::redis::Redis;
use super::run::{Run, STANDSTILL_MAX, Setting, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_redis_makes_answers_late_and_never_wrong() {
    let redis = ["--enable-debug-command", "local"];
    let Some(run) = Run::of(Setting { redis: &redis, wired: true, ..Setting::default() }).await else { return };
    // Calls that were given up count too: on a busy machine they may be the only ones that were held up.
    let slowest_ms = |run: &Run, from: usize| {
        let calls = run.load.record.all();
        calls[from..].iter().map(|call| (call.told_ns - call.sent_ns) / 1_000_000).max().unwrap_or_default()
    };
    let calls = || run.load.record.all().len();
    // A long way: everything takes 120 ms more, and is answered.
    let (before, refused) = (calls(), run.refusals());
    (0..2).for_each(|node| run.nodes.to_redis(node).delay(Duration::from_millis(60)));
    run.gets_on(200, "over a long way").await;
    assert!(slowest_ms(&run, before) >= 120, "it was not slow");
    // Longer than the deadline of a commit: requests are refused or unknown, and no node takes over in vain.
    (0..2).for_each(|node| run.nodes.to_redis(node).delay(Duration::from_millis(1_300)));
    eventually("2.6 seconds are too long for somebody", || run.refusals() > refused).await;
    (0..2).for_each(|node| run.nodes.to_redis(node).release());
    run.gets_on(200, "when the way is short again").await;
    // Asleep: Redis runs and reads nothing. A request that arrives later in the sleep is held up for less than all of it.
    let before = calls();
    run.nodes.redis.ask(&["DEBUG", "SLEEP", "1.2"]);
    run.gets_on(200, "when it is awake again").await;
    assert!(slowest_ms(&run, before) >= 300, "it did not sleep");
    // Paused: first only writes wait, then everything waits, for longer than a lease is renewed.
    for (ms, what) in [("1500", "WRITE"), ("4500", "ALL")] {
        let before = calls();
        run.nodes.redis.ask(&["CLIENT", "PAUSE", ms, what]);
        run.gets_on(200, "after a pause").await;
        assert!(slowest_ms(&run, before) >= 300, "it was not paused");
    }
    run.end().await;
}

/// The networks of a file are made one after the other before the node serves anything. It must keep the register meanwhile,
/// or it would lose it as soon as it is ready, or another node would take it halfway.
#[test]
fn a_register_is_kept_while_a_long_file_of_networks_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let network = |at: usize| {
        let cidr = format!("10.{}.{}.0/24", at / 256, at % 256);
        format!("[[network]]\nname = \"net-{at}\"\nsubnets = [{{ cidr = \"{cidr}\" }}]\n")
    };
    let file = directory.path().join("networks.toml");
    // More than are made in the second in which Redis takes writes, all in all, and not more than a busy machine makes before a
    // start takes too long.
    std::fs::write(&file, (0..1_500).map(network).collect::<String>()).unwrap();
    let cluster = std::thread::scope(|scope| {
        // Once the node has the register, Redis takes writes for only a tenth of every second. All in all that lasts longer
        // than a lease, but no pause is long enough to end one.
        scope.spawn(|| {
            let until_taken = Instant::now() + STANDSTILL_MAX;
            while redis.text(&["HGET", "{allod}:0:head", "epoch"]) != "1" && Instant::now() < until_taken {
                std::thread::sleep(Duration::from_millis(5));
            }
            let end = Instant::now() + Duration::from_millis(NODE_LEASE_LAPSES_MS + 4_000);
            while Instant::now() < end {
                redis.ask(&["CLIENT", "PAUSE", "900", "WRITE"]);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Cluster::start_with(directory.path(), &redis.url(), 1, &["--networks", file.to_str().unwrap()])
    });
    assert!(cluster.is_ready(0));
    // A node that had lost the register would find out at once.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((cluster.figure(0, "allod_tenures_total"), cluster.figure(0, "allod_owner")), (1.0, 1.0));
    let took = cluster.figure(0, "allod_commit_duration_seconds_sum");
    assert!(took * 1_000.0 > NODE_LEASE_LAPSES_MS as f64, "it was made in {took} s, and shows nothing");
}
