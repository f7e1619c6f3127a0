//! Requests that wait while the network, the store or the tenure is in trouble: each is answered, and nothing is granted
//! that is not durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use allod::store::StoreHealth;
use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::stores::{PROOF_WAITS, not_over_redis};
use crate::support::{Client, TestServer, is_between_tenures, line, patient};

fn full(server: &TestServer) -> Client {
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/30"}]}));
    client.allocate("a");
    client.allocate("b");
    client
}

fn waiting(owner: &str) -> Value {
    json!({"network": "lan", "owner": owner, "wait_seconds": 3_600})
}

fn owners(client: &mut Client) -> Vec<String> {
    let listed = client.ok_soon("ip.list", json!({"network": "lan"}))["reservations"].clone();
    listed.as_array().unwrap().iter().map(|held| held["owner"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn who_waits_for_a_network_that_crashes_waits_on_when_it_is_loaded_again() {
    let before_decide = |command: &Command| {
        if matches!(command, Command::Allocate(ask) if ask.holder.owner.as_str() == "bomb") {
            panic!("as asked");
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
    let mut client = full(&server);
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting("w"));
    server.until_waits("lan", 1);
    assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "bomb"})), "internal");
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    assert_eq!(waiter.answer()["result"]["address"], "10.0.0.1");
    // A request that crashes in its own turn is told so, and the next one is served.
    let (mut bomb, mut behind) = (server.client(), server.client());
    let two = json!({"network": "lan", "owner": "x", "ips": [{}, {}], "wait_seconds": 3_600});
    bomb.send("ip.acquire", two);
    server.until_waits("lan", 1);
    behind.send("ip.allocate", waiting("behind"));
    server.until_waits("lan", 2);
    client.ok("ip.release", json!({"network": "lan", "owner": "b"}));
    assert_eq!(behind.answer()["result"]["address"], "10.0.0.2", "two do not fit");
    server.until_waits("lan", 1);
}

#[test]
fn a_waiter_whose_own_turn_crashes_is_told_so_and_the_next_is_served() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let before_decide = move |command: &Command| {
        let is_bomb = matches!(command, Command::Allocate(ask) if ask.holder.owner.as_str() == "bomb");
        if is_bomb && is_armed.load(Ordering::SeqCst) {
            panic!("as asked");
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
    let mut client = full(&server);
    let (mut bomb, mut next) = (server.client(), server.client());
    bomb.send("ip.allocate", waiting("bomb"));
    server.until_waits("lan", 1);
    next.send("ip.allocate", waiting("next"));
    server.until_waits("lan", 2);
    armed.store(true, Ordering::SeqCst);
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    assert_eq!(bomb.answer()["error"]["data"]["kind"], "internal");
    assert_eq!(next.answer()["result"]["address"], "10.0.0.1");
}

/// Its turn crashes in the network that tries it, or in the first one that it holds.
#[test]
fn a_waiter_over_several_networks_whose_own_turn_crashes_is_told_so_and_not_tried_again() {
    for tries in [0, 1] {
        // How many of its decisions do not crash.
        let spared = Arc::new(AtomicU64::new(u64::MAX));
        let left = Arc::clone(&spared);
        let before_decide = move |command: &Command| {
            let is_bomb = matches!(command, Command::Acquire(ask) if ask.owner.as_str() == "bomb");
            if is_bomb && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
                panic!("as asked");
            }
        };
        let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
        let mut client = full(&server);
        client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/30"}]}));
        for owner in ["a", "b"] {
            client.ok("ip.allocate", json!({"network": "dmz", "owner": owner}));
        }
        let (mut bomb, mut next) = (server.client(), server.client());
        let both = json!({"owner": "bomb", "ips": [{"network": "lan"}, {"network": "dmz"}], "wait_seconds": 3_600});
        bomb.send("ip.acquire", both);
        server.until_waits("lan", 1);
        server.until_waits("dmz", 1);
        next.send("ip.allocate", json!({"network": "dmz", "owner": "next", "wait_seconds": 3_600}));
        server.until_waits("dmz", 2);
        spared.store(tries, Ordering::SeqCst);
        for network in ["lan", "dmz"] {
            client.ok_soon("ip.release", json!({"network": network, "owner": "a"}));
        }
        assert_eq!(bomb.answer()["error"]["data"]["kind"], "internal", "{tries}");
        assert_eq!(next.answer()["result"]["address"], "10.1.0.1", "{tries}");
        server.until_waits("lan", 0);
        server.until_waits("dmz", 0);
        assert_eq!(client.ok_soon("ip.allocate", json!({"network": "lan", "owner": "c"}))["address"], "10.0.0.1");
    }
}

#[test]
fn a_network_that_is_stopped_tells_who_waits() {
    let before_decide = |command: &Command| {
        if matches!(command, Command::Allocate(ask) if ask.holder.owner.as_str() == "bomb") {
            panic!("as asked");
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
    let mut client = full(&server);
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting("w"));
    server.until_waits("lan", 1);
    for _ in 0..3 {
        client.call("ip.allocate", json!({"network": "lan", "owner": "bomb"}));
    }
    assert_eq!(waiter.answer()["error"]["data"]["kind"], "network_stopped");
}

#[test]
fn what_a_waiter_was_granted_leaves_when_the_release_before_it_is_durable() {
    if not_over_redis(PROOF_WAITS) {
        return;
    }
    let server = TestServer::new();
    let mut client = full(&server);
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting("w"));
    server.until_waits("lan", 1);
    server.store.hold();
    client.send("ip.release", json!({"network": "lan", "owner": "a"}));
    assert!(client.waits_still(Duration::from_millis(100)));
    assert!(waiter.waits_still(Duration::from_millis(100)), "it is decided, and not durable");
    server.store.let_go();
    assert!(client.answer().get("result").is_some());
    assert_eq!(waiter.answer()["result"]["address"], "10.0.0.1");
}

#[test]
fn a_release_that_came_to_nothing_gave_nobody_an_address() {
    let server = TestServer::giving_up();
    let mut client = full(&server);
    let (mut waiter, mut second) = (server.client(), server.client());
    waiter.send("ip.allocate", waiting("w"));
    server.until_waits("lan", 1);
    second.send("ip.allocate", waiting("second"));
    server.until_waits("lan", 2);
    server.store.always(Fault::NotApplied);
    let released = client.call("ip.release", json!({"network": "lan", "owner": "a"}));
    assert_eq!(released["error"]["data"]["kind"], "unavailable", "{released}");
    let told = waiter.answer();
    assert_eq!(told["error"]["data"]["kind"], "unavailable", "{told}");
    server.store.always(Fault::None);
    assert_eq!(owners(&mut client), ["a", "b"]);
    if is_between_tenures(&told) {
        return;
    }
    // A request that the failure did not reach goes on waiting.
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    assert_eq!(second.answer()["result"]["address"], "10.0.0.1");
}

/// Nobody asks the network anything from then on: it learns by itself that its memory was worth nothing.
#[test]
fn who_found_no_room_beside_a_grant_that_came_to_nothing_is_served_with_nothing_else_asked() {
    let server = TestServer::giving_up();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/30"}]}));
    client.allocate("a");
    server.store.always(Fault::NotApplied);
    // Both arrive in one read, so the second is decided before the outcome of the first is known.
    let first = line(101, "ip.allocate", &json!({"network": "lan", "owner": "b"}));
    client.raw(first + &line(102, "ip.allocate", &waiting("w")));
    let given_up = client.answer();
    server.store.always(Fault::None);
    assert_eq!((&given_up["id"], &given_up["error"]["data"]["kind"]), (&json!(101), &json!("unavailable")));
    let served = client.answer();
    assert_eq!((&served["id"], &served["result"]["address"]), (&json!(102), &json!("10.0.0.2")), "{served}");
    assert_eq!(owners(&mut client), ["a", "w"]);
}

#[test]
fn while_the_store_takes_nothing_new_nobody_is_granted_and_afterwards_who_waits_is() {
    let server = TestServer::new();
    let mut client = full(&server);
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting("w"));
    server.until_waits("lan", 1);
    server.store.health_is(StoreHealth::Full);
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    assert!(waiter.waits_still(Duration::from_millis(600)));
    server.store.health_is(StoreHealth::Ready);
    assert_eq!(waiter.answer()["result"]["address"], "10.0.0.1", "without anybody asking");
}
