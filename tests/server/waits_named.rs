//! Requests that wait for a network by its name, while the network is renamed or deleted, or another one takes the name.
//! They wait for the network that had the name when they were sent, and are told how that ends.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, TestServer};

/// A network of two addresses, both held.
fn full(client: &mut Client, name: &str, at: u8) -> Value {
    let made = client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/30")}]}));
    for owner in ["a", "b"] {
        client.ok("ip.allocate", json!({"network": name, "owner": owner}));
    }
    made["id"].clone()
}

fn waiting(network: &Value, owner: &str, seconds: u64) -> Value {
    json!({"network": network, "owner": owner, "wait_seconds": seconds})
}

/// A request over `lan` and `dmz`.
fn several(owner: &str, seconds: u64) -> Value {
    json!({"owner": owner, "ips": [{"network": "lan"}, {"network": "dmz"}], "wait_seconds": seconds})
}

fn rename(client: &mut Client, network: &str, name: &str) {
    assert_eq!(client.ok("network.update", json!({"network": network, "set": {"name": name}}))["name"], name);
}

fn kind(answer: &Value) -> &str {
    answer["error"]["data"]["kind"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn who_waits_by_name_waits_on_for_the_same_network_when_it_is_renamed() {
    let server = TestServer::new();
    let mut client = server.client();
    let id = full(&mut client, "lan", 0);
    let (mut alone, mut other) = (server.client(), server.client());
    alone.send("ip.allocate", waiting(&json!("lan"), "w", 60));
    server.until_waits("lan", 1);
    rename(&mut client, "lan", "wan");
    server.until_waits("wan", 1);
    // Another network has the old name now, and has room; but it is not what was asked for.
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    other.send("ip.allocate", waiting(&json!("lan"), "x", 60));
    assert_eq!(other.answer()["result"]["network"], "lan");
    assert!(alone.waits_still(Duration::from_millis(50)));
    client.ok("ip.release", json!({"network": "wan", "owner": "a"}));
    let served = alone.answer()["result"].clone();
    assert_eq!((&served["address"], &served["network"]), (&json!("10.0.0.1"), &json!("wan")));
    assert_eq!(served["network_id"], id);
}

#[test]
fn whose_time_is_over_is_told_the_present_name() {
    let server = TestServer::new();
    let mut client = server.client();
    full(&mut client, "lan", 0);
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting(&json!("lan"), "w", 5));
    server.until_waits("lan", 1);
    rename(&mut client, "lan", "wan");
    server.clock.advance_ms(5_000);
    client.ok("network.get", json!({"network": "wan"}));
    let told = waiter.answer();
    assert_eq!((kind(&told), &told["error"]["data"]["network"]), ("not_enough_capacity", &json!("wan")));
    // A repeat with the old name is told that there is no such network, and does not wait.
    assert_eq!(waiter.kind("ip.allocate", waiting(&json!("lan"), "w", 60)), "not_found");
}

#[test]
fn who_waits_for_several_waits_on_while_one_of_them_is_renamed() {
    let server = TestServer::new();
    let mut client = server.client();
    full(&mut client, "lan", 0);
    full(&mut client, "dmz", 1);
    let mut waiter = server.client();
    waiter.send("ip.acquire", several("w", 60));
    server.until_waits("dmz", 1);
    rename(&mut client, "dmz", "edge");
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    assert!(waiter.waits_still(Duration::from_millis(50)), "the new network of the old name is not meant");
    client.ok("ip.release", json!({"network": "edge", "owner": "b"}));
    let served = waiter.answer()["result"]["reservations"].clone();
    let got = |at: usize| (served[at]["network"].clone(), served[at]["address"].clone());
    assert_eq!(got(0), (json!("lan"), json!("10.0.0.1")));
    assert_eq!(got(1), (json!("edge"), json!("10.1.0.2")));
    server.until_waits("lan", 0);
}

#[test]
fn a_network_that_is_closed_by_force_ends_every_wait_for_it_and_no_other() {
    let server = TestServer::new();
    let mut client = server.client();
    let id = full(&mut client, "lan", 0);
    full(&mut client, "dmz", 1);
    let mut waiters = [server.client(), server.client(), server.client(), server.client()];
    waiters[0].send("ip.allocate", waiting(&json!("lan"), "by-name", 3_600));
    server.until_waits("lan", 1);
    waiters[1].send("ip.allocate", waiting(&id, "by-id", 3_600));
    server.until_waits("lan", 2);
    waiters[2].send("ip.acquire", several("both", 3_600));
    server.until_waits("lan", 3);
    waiters[3].send("ip.allocate", waiting(&json!("dmz"), "other", 3_600));
    server.until_waits("dmz", 2);
    assert_eq!(client.ok("network.delete", json!({"network": "lan", "force": true}))["holding"], 2);
    for waiter in &mut waiters[..3] {
        let told = waiter.answer();
        assert_eq!(kind(&told), "in_use", "{told}");
    }
    server.until_waits("dmz", 1);
    // The name is free: a network that takes it has nothing to do with the waits.
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    client.ok("ip.release", json!({"network": "dmz", "owner": "a"}));
    assert_eq!(waiters[3].answer()["result"]["address"], "10.1.0.1");
    for owner in ["by-name", "by-id", "both"] {
        assert_eq!(client.ok("ip.list", json!({"owner": owner, "count_only": true}))["count"], 0, "{owner}");
    }
}

#[test]
fn who_waits_for_a_network_that_was_restored_and_renamed_is_served() {
    let server = TestServer::new();
    let mut client = server.client();
    let id = full(&mut client, "lan", 0);
    client.ok("network.delete", json!({"network": "lan", "force": true}));
    assert_eq!(client.kind("ip.allocate", waiting(&json!("lan"), "w", 60)), "not_found");
    assert_eq!(client.kind("ip.allocate", waiting(&id, "w", 60)), "in_use");
    client.ok("network.restore", json!({"network": id}));
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting(&json!("lan"), "w", 60));
    server.until_waits("lan", 1);
    rename(&mut client, "lan", "wan");
    rename(&mut client, "wan", "lan");
    client.ok("ip.release", json!({"network": "lan", "owner": "b"}));
    assert_eq!(waiter.answer()["result"]["address"], "10.0.0.2");
}
