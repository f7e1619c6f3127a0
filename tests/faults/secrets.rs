//! Nodes with and without the secret of the cluster on one register.

use serde_json::json;

use super::nodes::{Cluster, OTHER_SECRET};
use super::redis::{Redis, send_signal};
use super::run::{Nodes, insist};
use super::server::http_get;

/// Such a node would take the register over, and the others could not forward requests to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_the_secret_is_refused_beside_others_and_never_takes_their_register() {
    let Some(mut nodes) = Nodes::start(2, &[]) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    let (reason, said) = nodes.cluster.begin_without_secret("bare").ready_or_ended().err().unwrap();
    assert_eq!(reason, "code 1", "{said}");
    assert!(said.contains("node `node-") && said.contains("node `bare` has none"), "{said}");
    assert!(said.contains("--cluster-secret-file FILE"), "{said}");
    nodes.cluster.kill(owner);
    // Also while nobody owns the register, because the other node is there.
    let late = nodes.cluster.begin_without_secret("late").ready_or_ended().err().unwrap();
    assert_eq!(late.0, "code 1", "{}", late.1);
    assert_eq!(nodes.cluster.owner_but(Some(owner)).await, 1 - owner);
    let mut client = nodes.client(1 - owner).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/29"}]})).await;
}

/// At every failover to such a node, no other node could forward requests to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_secret_is_refused_beside_others_and_never_takes_their_register() {
    let Some(mut nodes) = Nodes::start(2, &[]) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    let refused = |name: &str, cluster: &Cluster| {
        let (reason, said) = cluster.begin_with_another_secret(name).ready_or_ended().err().unwrap();
        assert_eq!(reason, "code 1", "{said}");
        let names = format!("has a different cluster secret than node `{name}`");
        assert!(said.contains(&names) && said.contains("--cluster-secret-file FILE"), "{said}");
        assert!(
            !said.contains("make sure that Redis and the other nodes run") && !said.contains(OTHER_SECRET),
            "{said}"
        );
    };
    refused("typo", &nodes.cluster);
    nodes.cluster.kill(owner);
    // Also while nobody owns the register, because the other node is there.
    refused("late", &nodes.cluster);
    assert_eq!(nodes.cluster.owner_but(Some(owner)).await, 1 - owner);
    let mut client = nodes.client(1 - owner).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/29"}]})).await;
}

/// The node is alone; a node that comes later is told which of the two has no secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_secret_serves_alone_and_the_next_one_is_told_who_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let cluster = Cluster::start(directory.path(), &redis, 0);
    let alone = cluster.begin_without_secret("alone").ready();
    let is_ready = || http_get(alone.http, "/readyz").starts_with("HTTP/1.1 200");
    assert!(is_ready());
    // The two start one after the other, because a node without a secret is told of any other node.
    for (has_secret, says) in [
        (false, "node `alone` owns this register, and neither it nor node `other` has a secret"),
        (true, "node `alone` owns this register and has no secret, and node `other` has one"),
    ] {
        let starting =
            if has_secret { cluster.begin_as("other", "other", 0) } else { cluster.begin_without_secret("other") };
        let (reason, said) = starting.ready_or_ended().err().unwrap();
        assert!(reason == "code 75" && said.contains(says), "{reason}: {said}");
    }
    assert!(is_ready());
    alone.kill();
    // The next node waits for the lease of the first.
    drop(cluster.begin_as("other", "other", 0).ready());
}

/// A cluster began while the node stood still; the node cannot take part, so it does not wait for its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_secret_that_was_replaced_ends_and_says_by_whom() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let cluster = Cluster::start(directory.path(), &redis, 0);
    let alone = cluster.begin_without_secret("alone").ready();
    send_signal(alone.pid(), "-STOP");
    let next = cluster.begin_as("next", "next", 0).ready();
    send_signal(alone.pid(), "-CONT");
    let (code, said) = alone.ends();
    assert!(
        code == Some(70) && said.contains("node `next`") && said.contains("node `alone` has none"),
        "{code:?}: {said}"
    );
    assert!(http_get(next.http, "/readyz").starts_with("HTTP/1.1 200"));
}
