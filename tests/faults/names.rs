//! Two processes of one name.

use std::time::Duration;

use super::run::{Run, Setting};

/// The second one is not let in while the first one lives. When that sleeps for long it is, takes over, and the first one
/// wakes: of two that are called the same only one grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_of_one_name_only_one_grants_at_a_time() {
    let Some(run) = Run::of(Setting { nodes: 1, ..Setting::default() }).await else { return };
    let said = run.nodes.cluster.begin_as("node-0", "twin", 1).failed();
    assert!(said.contains("another node of the name `node-0`"), "{said}");
    run.gets_on(200, "beside a twin that was refused").await;
    let place = "late-twin";
    let twin = run.nodes.cluster.begin_as("node-0", place, 1);
    run.nodes.cluster.signal(0, "-STOP");
    let twin = twin.ready();
    run.load.also_at(twin.address);
    run.gets_on(200, "at the twin").await;
    run.nodes.cluster.signal(0, "-CONT");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    run.gets_on(200, "with both awake").await;
    let epochs = run.nodes.redis.number(&["HGET", "{allod}:0:head", "epoch"]);
    assert!(epochs >= 2, "the twin did not take over");
    // Whoever is left is one of them.
    run.end().await;
    drop(twin);
}
