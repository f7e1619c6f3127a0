//! The client library with several nodes on one Redis: it goes on by its next address, and it follows redirects.

use std::collections::BTreeSet;
use std::time::Duration;

use allod::client::{Client, Options};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::nodes::Cluster;
use super::super::redis::Redis;
use super::{client, client_with, make_lan, members, until_asked};

/// This many owners each ask for an address, a few at a time. Returns the answers.
async fn grants(client: &Client, who: &str, count: usize) -> Vec<Value> {
    let mut calls = JoinSet::new();
    let mut granted = Vec::new();
    for owner in 0..count {
        let (client, ask) = (client.clone(), members(json!({"network": "lan", "owner": format!("{who}/{owner}")})));
        calls.spawn(async move { client.call("ip.allocate", ask).await.unwrap() });
        if calls.len() >= 20 {
            granted.push(calls.join_next().await.unwrap().unwrap());
        }
    }
    granted.extend(calls.join_all().await);
    granted
}

#[track_caller]
fn all_different(granted: &[Value], count: usize) {
    let addresses: BTreeSet<String> = granted.iter().map(|grant| grant["address"].to_string()).collect();
    assert_eq!(addresses.len(), count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_owner_is_killed_a_client_goes_on_by_its_second_address() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let mut cluster = Cluster::start(directory.path(), &redis, 2);
    let owner = cluster.owner_but(None).await;
    make_lan(cluster.address(owner)).await;
    let client = client(&[cluster.address(owner), cluster.address(1 - owner)]);
    let mut granted = grants(&client, "before", 20).await;
    let asking = tokio::spawn(async move { (grants(&client, "during", 400).await, client) });
    cluster.kill(owner);
    let (during, client) = asking.await.unwrap();
    granted.extend(during);
    assert_eq!(cluster.owner_but(Some(owner)).await, 1 - owner);
    granted.extend(grants(&client, "after", 20).await);
    all_different(&granted, 440);
    let again = grants(&client, "during", 400).await;
    assert!(again.iter().all(|grant| grant["created"] == false), "none was lost with the owner");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_still_is_left_for_the_next_address() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let cluster = Cluster::start(directory.path(), &redis, 2);
    let owner = cluster.owner_but(None).await;
    make_lan(cluster.address(owner)).await;
    let silence = Duration::from_millis(500);
    let addresses = [cluster.address(owner), cluster.address(1 - owner)];
    let client = client_with(&addresses, Options { silence, ..Options::default() });
    let before = grants(&client, "before", 20).await;
    cluster.signal(owner, "-STOP");
    let during = grants(&client, "during", 20).await;
    cluster.signal(owner, "-CONT");
    all_different(&[before, during].concat(), 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_follows_redirects_asks_the_owner_itself_and_the_next_one_when_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let mut cluster = Cluster::start(directory.path(), &redis, 2);
    let owner = cluster.owner_but(None).await;
    let other = 1 - owner;
    make_lan(cluster.address(owner)).await;
    // The client knows only the node that does not own the register.
    let client = client_with(&[cluster.address(other)], Options { redirect: true, ..Options::default() });
    let mut granted = grants(&client, "before", 200).await;
    let forwarded = |node: usize| {
        let metrics = cluster.metrics(node);
        metrics
            .lines()
            .find_map(|line| line.strip_prefix("allod_forwarded_requests_total ")?.trim().parse::<f64>().ok())
    };
    assert_eq!(forwarded(other).unwrap_or(0.0), 0.0, "nothing went through it");
    // The owner itself was asked, once for each call.
    until_asked(cluster.http(owner), "ip.allocate", 200).await;
    let asking = tokio::spawn(async move { (grants(&client, "during", 200).await, client) });
    cluster.kill(owner);
    let (during, client) = asking.await.unwrap();
    granted.extend(during);
    granted.extend(grants(&client, "after", 20).await);
    all_different(&granted, 420);
}
