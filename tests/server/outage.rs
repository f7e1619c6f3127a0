//! The store accepts nothing for a while: the effects on names and leases.

use std::time::Duration;

use allod::store::StoreHealth;
use serde_json::json;

use crate::faulty::Fault;
use crate::support::{Client, TestServer};

/// Three clients ask for one name; the first two requests come to nothing, and nobody is told that the name is taken.
#[test]
fn a_name_that_nobody_got_is_taken_for_nobody() {
    let server = TestServer::giving_up();
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    server.store.always(Fault::NotApplied);
    for client in &mut clients {
        client.hand_in("network.create", json!({"name": "x", "subnets": [{"cidr": "10.7.0.0/24"}]}));
    }
    let answers: Vec<_> = clients.iter_mut().map(Client::answer).collect();
    let kinds: Vec<_> = answers.iter().map(|answer| answer["error"]["data"]["kind"].clone()).collect();
    assert_eq!(kinds, ["unavailable"; 3]);
}

/// The disk is full for longer than a lease lasts, while its holder asks to renew it all the time.
#[test]
fn a_lease_whose_renewals_a_full_disk_refuses_does_not_end_meanwhile() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let granted = client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "ttl_seconds": 600}));
    server.store.health_is(StoreHealth::Full);
    for _ in 0..15 {
        server.clock.advance_ms(60_000);
        std::thread::sleep(Duration::from_millis(50));
        let renewal = json!({"network": "lan", "address": granted["address"], "ttl_seconds": 601});
        assert_eq!(client.kind("ip.renew", renewal), "unavailable");
    }
    server.store.health_is(StoreHealth::Ready);
    let other = client.call("ip.claim", json!({"network": "lan", "owner": "b", "address": granted["address"]}));
    let data = &other["error"]["data"];
    assert_eq!((&data["kind"], &data["held_by"]["owner"]), (&json!("already_in_use"), &json!("a")), "{other}");
}

/// The commit of a deployment releases, and also grants what was promised. If the store refused it, releases of others in
/// the same commit would be refused with it.
#[test]
fn while_a_disk_is_full_a_commit_that_would_hand_over_a_promise_is_refused_and_others_let_go() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut deploy = |method: &str, addresses: [&str; 2]| {
        let instance = |id, address| json!({"id": id, "networks": [{"network": "lan", "address": address}]});
        let [a, b] = addresses;
        client.ok(method, json!({"deployment": "d", "instances": [instance("a", a), instance("b", b)]}))
    };
    let first = deploy("deployment.apply", ["10.0.0.4", "10.0.0.9"]);
    let mut other = server.client();
    other.ok("deployment.commit", json!({"deployment": "d", "plan": first["plan"]}));
    other.ok("ip.allocate", json!({"network": "lan", "owner": "o"}));
    let swap = deploy("deployment.apply", ["10.0.0.9", "10.0.0.4"]);
    server.store.health_is(StoreHealth::Full);
    let commit = json!({"deployment": "d", "plan": swap["plan"]});
    let told = other.call("deployment.commit", commit.clone());
    assert_eq!(told["error"]["data"]["applied"], false, "{told}");
    assert_eq!(told["error"]["data"]["kind"], "unavailable", "{told}");
    other.ok("ip.release", json!({"network": "lan", "owner": "o"}));
    server.store.health_is(StoreHealth::Ready);
    other.ok("deployment.commit", commit);
    let owner = |client: &mut Client, address: &str| {
        client.ok("ip.get", json!({"address": address}))["reservation"]["owner"].clone()
    };
    assert_eq!((owner(&mut other, "10.0.0.9"), owner(&mut other, "10.0.0.4")), (json!("a"), json!("b")));
}

/// Nobody has to renew a cooldown, nor could anybody have renewed what was not granted yet: both end in time, however
/// recently the disk was full.
#[test]
fn behind_a_disk_that_was_full_what_cools_and_what_is_leased_anew_ends_in_time() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "n", "cooldown_seconds": 2, "subnets": [{"cidr": "10.0.0.0/30"}]}));
    let before = client.ok("ip.allocate", json!({"network": "n", "owner": "a", "ttl_seconds": 600}));
    client.ok("ip.allocate", json!({"network": "n", "owner": "b"}));
    server.store.health_is(StoreHealth::Full);
    assert_eq!(client.kind("ip.allocate", json!({"network": "n", "owner": "c"})), "unavailable");
    server.store.health_is(StoreHealth::Ready);

    client.ok("ip.release", json!({"network": "n", "owner": "b"}));
    server.clock.advance_ms(2_500);
    client.ok("ip.allocate", json!({"network": "n", "owner": "c", "ttl_seconds": 3}));
    server.clock.advance_ms(3_500);
    assert_eq!(client.kind("ip.release", json!({"network": "n", "owner": "c", "strict": true})), "not_found");
    client.ok("ip.renew", json!({"network": "n", "address": before["address"], "ttl_seconds": 600}));
}
