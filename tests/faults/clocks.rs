//! Somebody sets a clock forward or back while clients work. Clocks decide which node tries to take over, never who may
//! write, and no lease of an address ends early because of one.

use std::time::Duration;

use serde_json::json;

use super::client::{Answer, Client};
use super::clock::Clock;
use super::redis::Redis;
use super::run::{Nodes, Run, Setting, insist, settled};
use super::seed::seed;

const HOUR: i64 = 3_600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_clocks_say_no_address_has_two_holders_and_no_lease_ends_early() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["redis", "node-0", "node-1"];
    let clocks: Vec<Clock> = names.iter().filter_map(|name| Clock::new(directory.path(), name)).collect();
    let [of_redis, of_nodes @ ..] = &clocks[..] else { return };
    let setting = Setting::default();
    let Some(redis) = Redis::start_with(directory.path(), setting.redis, of_redis.environment()) else { return };
    let environments = of_nodes.iter().map(Clock::environment).collect();
    let nodes = Nodes::over(directory, redis, Setting { environments, ..setting });
    let run = Run::begin(nodes, 4, seed()).await;
    run.gets_on(200, "at the start").await;
    let mut client = Client::connect(run.nodes.cluster.addresses()[0]).await.unwrap();
    let one = json!({"name": "one", "subnets": [{"cidr": "10.9.0.0/29", "pools": [{"range": "10.9.0.2"}]}]});
    insist(&mut client, "network.create", &one).await;
    let lease = json!({"network": "one", "owner": "a", "ttl_seconds": 3_000});
    let held = insist(&mut client, "ip.allocate", &lease).await;
    let time = |run: &Run| run.nodes.redis.number(&["EVAL", "return tonumber(redis.call('TIME')[1])", "0"]) as i64;
    let right = time(&run);
    // Forward, then back to before the beginning, then right again: jumps of two hours within half a minute.
    for hours in [2, -2, 0] {
        of_redis.jump(hours * HOUR);
        assert!((time(&run) - right - hours * HOUR).abs() < 120, "the clock of Redis did not jump");
        run.gets_on(200, &format!("with Redis {hours} hours ahead")).await;
        // Longer than the time between two renewals of the lease, so that another node could try to take it.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    for (one, other) in [(2, -2), (-2, 2)] {
        [one, other].into_iter().zip(of_nodes).for_each(|(hours, clock)| clock.jump(hours * HOUR));
        let owner = run.nodes.cluster.owner_but(None).await;
        run.gets_on(200, &format!("with nodes {one} and {other} hours ahead")).await;
        // The other node takes over, with a clock of its own.
        run.nodes.cluster.signal(owner, "-STOP");
        let next = run.nodes.cluster.owner_but(Some(owner)).await;
        run.nodes.cluster.signal(owner, "-CONT");
        assert_ne!(next, owner);
    }
    of_nodes.iter().for_each(|clock| clock.jump(0));
    run.gets_on(200, "with all clocks right").await;
    let mut client = Client::connect(run.nodes.cluster.addresses()[0]).await.unwrap();
    let other = settled(&mut client, "ip.allocate", &json!({"network": "one", "owner": "b"})).await;
    assert!(matches!(&other, Answer::Refused(..)), "the lease ended: {other:?}");
    let again = insist(&mut client, "ip.allocate", &lease).await;
    assert_eq!((&again["address"], &again["generation"]), (&held["address"], &held["generation"]));
    run.end().await;
}
