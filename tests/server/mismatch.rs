//! The store finds something else than a change expects: memory is wrong in a way that nobody thought of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use allod::actors::service::Hooks;
use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::support::{Client, TestServer, http, patient, wait_for};

fn mismatches(server: &TestServer) -> f64 {
    let metrics = http(server.running.http, "GET /metrics", b"").1;
    let counted =
        metrics.lines().find_map(|line| line.strip_prefix("allod_commit_failures_total{class=\"mismatch\"} "));
    counted.unwrap().trim().parse().unwrap()
}

/// Certainly nothing was done, and the request may be repeated.
#[track_caller]
fn was_not_done(answer: &Value) {
    let data = &answer["error"]["data"];
    assert_eq!((&data["kind"], &data["applied"]), (&json!("unavailable"), &json!(false)), "{answer}");
}

fn two_networks(server: &TestServer) -> Client {
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    client
}

fn held(client: &mut Client, network: &str) -> Vec<(String, String)> {
    let list = client.ok("ip.list", json!({"network": network}));
    let text = |one: &Value, member: &str| one[member].as_str().unwrap().to_owned();
    let all = list["reservations"].as_array().unwrap().iter();
    all.map(|one| (text(one, "owner"), text(one, "address"))).collect()
}

#[test]
fn a_change_that_finds_something_else_is_not_done_and_its_network_serves_again_from_the_store() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let a = client.allocate("a")["address"].clone();
    server.store.next([Fault::Mismatch]);
    was_not_done(&client.call("ip.allocate", json!({"network": "lan", "owner": "b"})));
    assert_eq!(mismatches(&server), 1.0);
    let again = client.allocate("a");
    assert_eq!((&again["address"], &again["created"]), (&a, &json!(false)), "what was acknowledged is there");
    assert_eq!(client.allocate("b")["created"], true, "what was refused was not done");
    assert_eq!(mismatches(&server), 1.0);
}

/// One network has a group with a wrong expectation. What was decided beside and behind it is refused as not done, in other
/// networks, too (a difference to the rule, see `consistency`). What was acknowledged stands, and everybody is served at
/// once.
#[test]
fn what_travels_with_a_mismatch_is_refused_and_nothing_acknowledged_is_lost() {
    let server = TestServer::new();
    let mut client = two_networks(&server);
    let ask = |client: &mut Client, network: &str, owner: &str| {
        client.send("ip.allocate", json!({"network": network, "owner": owner}))
    };
    for network in ["lan", "dmz"] {
        client.ok("ip.allocate", json!({"network": network, "owner": "before"}));
    }
    server.store.hold();
    server.store.next([Fault::None, Fault::Mismatch]);
    let mut asked = Vec::new();
    // Each of the first two is a group of its own; the others wait for room behind them.
    for (network, owner) in [("lan", "first"), ("lan", "wrong"), ("dmz", "beside"), ("lan", "behind")] {
        let before = server.store.commits();
        asked.push((ask(&mut client, network, owner), network, owner));
        let may_be_sent = asked.len() <= 2;
        wait_for("its commit", || !may_be_sent || server.store.commits() > before);
    }
    assert!(client.waits_still(std::time::Duration::from_millis(100)));
    server.store.let_go();
    let answers: Vec<Value> = asked.iter().map(|_| client.answer()).collect();
    for (id, _, owner) in &asked {
        let answer = answers.iter().find(|answer| answer["id"] == *id).unwrap();
        match *owner {
            "first" => assert_eq!(answer["result"]["created"], true, "{answer}"),
            _ => was_not_done(answer),
        }
    }
    assert_eq!(mismatches(&server), 1.0);
    for (_, network, owner) in &asked {
        let again = client.ok("ip.allocate", json!({"network": network, "owner": owner}));
        assert_eq!(again["created"], *owner != "first", "{again}");
    }
    let mut lan = held(&mut client, "lan");
    lan.sort();
    let owners: Vec<&str> = lan.iter().map(|(owner, _)| owner.as_str()).collect();
    assert_eq!(owners, ["before", "behind", "first", "wrong"]);
    lan.sort_by(|(_, one), (_, other)| one.cmp(other));
    lan.dedup_by(|(_, one), (_, other)| one == other);
    assert_eq!(lan.len(), 4, "no address has two holders");
    assert_eq!(held(&mut client, "dmz").len(), 2);
}

#[test]
fn an_act_over_two_networks_that_finds_something_else_is_done_in_neither() {
    let server = TestServer::new();
    let mut client = two_networks(&server);
    server.store.next([Fault::Mismatch]);
    let both = json!({"owner": "a", "ips": [{"network": "lan"}, {"network": "dmz"}]});
    was_not_done(&client.call("ip.acquire", both.clone()));
    assert_eq!(client.ok("ip.list", json!({}))["reservations"], json!([]));
    let again = client.ok("ip.acquire", both);
    assert_eq!(again["reservations"].as_array().map(Vec::len), Some(2));
}

/// Each request that ends checks whether something is to be loaded, and so does each failure.
#[test]
fn a_shard_that_cannot_be_loaded_is_tried_again_once_a_second_however_many_ask_meanwhile() {
    let server = TestServer::new();
    let mut client = two_networks(&server);
    let begun_before = server.store.loads_begun.load(Ordering::SeqCst);
    server.store.loads_fail.store(true, Ordering::SeqCst);
    server.store.next([Fault::Mismatch]);
    let begun = Instant::now();
    was_not_done(&client.call("ip.allocate", json!({"network": "lan", "owner": "a"})));
    for n in 0..200 {
        client.ok("ip.allocate", json!({"network": "dmz", "owner": format!("o{n}")}));
    }
    let loads = server.store.loads_begun.load(Ordering::SeqCst) - begun_before;
    // The first try, and one for each second since.
    assert!((1..=2 + begun.elapsed().as_secs()).contains(&loads), "{loads} in {:?}", begun.elapsed());
    server.store.loads_fail.store(false, Ordering::SeqCst);
    // A request waits for the load, but not for as long as the shard rests between tries.
    let mut asks = || client.call("ip.allocate", json!({"network": "lan", "owner": "a"}));
    let served = (0..100).map(|_| asks()).find(|answer| answer["error"].is_null());
    assert_eq!(
        served.map(|answer| answer["result"]["created"].clone()),
        Some(json!(true)),
        "with the next try it is loaded"
    );
}

/// Nobody knows what became of a plan, and the store cannot be read: who asks for it is told so, and nobody else waits.
#[test]
fn a_deployment_whose_record_cannot_be_loaded_keeps_nobody_waiting() {
    let deferred_ms_max = Some(Arc::new(AtomicU64::new(2_000)));
    let server = TestServer::hooked(Hooks { deferred_ms_max, ..patient() });
    let mut client = two_networks(&server);
    client.ok("subnet.add", json!({"network": "dmz", "cidr": "10.2.0.0/24"}));
    client.ok("network.create", json!({"name": "san"}));
    let plan =
        |owner: &str| json!({"deployment": "shop", "instances": [{"id": owner, "networks": [{"network": "lan"}]}]});
    client.ok("deployment.apply", plan("a"));
    server.store.loads_fail.store(true, Ordering::SeqCst);
    server.store.next([Fault::Mismatch]);
    was_not_done(&client.call("deployment.apply", plan("b")));
    let mut others: Vec<Client> = (0..3).map(|_| server.client()).collect();
    let asks = [
        ("deployment.get", json!({"deployment": "shop"})),
        ("deployment.list", json!({})),
        ("subnet.move", json!({"network": "dmz", "subnet": "10.2.0.0/24", "to": "san"})),
    ];
    for ((method, ask), other) in asks.iter().zip(&mut others) {
        other.send(method, ask.clone());
    }
    let told: Vec<Value> = others.iter_mut().map(Client::answer).collect();
    for answer in &told[..2] {
        assert_eq!(answer["error"]["data"]["kind"], "not_ready", "{answer}");
    }
    assert_eq!(told[2]["result"]["cidr"], "10.2.0.0/24", "{}", told[2]);
    server.store.loads_fail.store(false, Ordering::SeqCst);
    wait_for("that it is known", || {
        let told = client.call("deployment.get", json!({"deployment": "shop"}));
        told["result"]["instances"][0]["id"] == "a"
    });
}

/// Each of those who ask is told so in the same time, and what they asked for is there for the next.
#[test]
fn a_deployment_whose_record_takes_long_to_load_is_known_once_it_is_loaded_whoever_waits_for_it() {
    let server = TestServer::hooked(Hooks { deferred_ms_max: Some(Arc::new(AtomicU64::new(300))), ..patient() });
    let mut client = server.with_lan();
    let plan =
        |owner: &str| json!({"deployment": "shop", "instances": [{"id": owner, "networks": [{"network": "lan"}]}]});
    client.ok("deployment.apply", plan("a"));
    server.store.hold_loads();
    server.store.next([Fault::Mismatch]);
    was_not_done(&client.call("deployment.apply", plan("b")));
    let mut others: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for other in &mut others {
        other.send("deployment.get", json!({"deployment": "shop"}));
    }
    for other in &mut others {
        let told = other.answer();
        assert_eq!(told["error"]["data"]["kind"], "not_ready", "{told}");
    }
    let begun = server.store.loads_begun.load(Ordering::SeqCst);
    server.store.let_loads_go();
    wait_for("that it is known", || {
        let told = client.call("deployment.get", json!({"deployment": "shop"}));
        told["result"]["instances"][0]["id"] == "a"
    });
    let more = server.store.loads_begun.load(Ordering::SeqCst) - begun;
    assert!(more <= 1, "the record was read again {more} times; the network may need one more load");
}
