//! What `deadline_ms` promises for requests that pass several actors: they are begun within that time or not at all, and
//! what was begun is completed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::json;

use crate::faulty::Fault;
use crate::reloads::{Patience, begin_to_load, two};
use crate::support::{Client, TestServer, patient};

/// The time within which everything must be begun.
const DEADLINE_MS: u64 = 150;
/// Longer than the deadline.
const LATE: Duration = Duration::from_millis(300);

#[test]
fn what_waits_for_a_network_beyond_its_deadline_is_refused_and_changes_nothing() {
    let server = TestServer::with(|options| drop(Patience::of(&mut options.hooks)));
    let (lan, dmz) = two(&server);
    let mut client = server.client();
    for network in [&lan, &dmz] {
        client.ok("ip.allocate", json!({"network": network, "owner": "there"}));
    }
    let all = |client: &mut Client| {
        let networks = client.ok("network.list", json!({"usage": true}));
        (networks, client.ok("ip.list", json!({})), client.ok("deployment.list", json!({})))
    };
    let before = all(&mut client);
    begin_to_load(&server, &dmz);
    let both = json!([{"network": lan}, {"network": dmz}]);
    let subnet = client.ok("network.get", json!({"network": lan}))["subnets"][0]["cidr"].clone();
    let asked = [
        ("ip.acquire", json!({"owner": "o", "ips": [{"network": dmz}]})),
        ("ip.acquire", json!({"owner": "o", "ips": both})),
        ("ip.acquire", json!({"owner": "o", "ips": both, "wait_seconds": 60})),
        ("deployment.apply", json!({"deployment": "d", "instances": [{"id": "i", "networks": both}]})),
        ("owner.release", json!({"owner": "there", "network": dmz})),
        ("owner.release", json!({"owner": "there"})),
        ("scope.release", json!({"scope": "default"})),
        ("subnet.add", json!({"network": dmz, "cidr": "10.200.0.0/24"})),
        ("subnet.move", json!({"network": lan, "subnet": subnet, "to": dmz})),
        ("network.update", json!({"network": dmz, "set": {"description": "late"}})),
        ("network.delete", json!({"network": dmz, "force": true})),
        ("network.delete", json!({"network": dmz, "purge": true})),
        ("ip.list", json!({"network": dmz})),
    ];
    let mut clients: Vec<_> = asked.iter().map(|_| server.client()).collect();
    for (client, (method, params)) in clients.iter_mut().zip(&asked) {
        let mut params = params.clone();
        params["deadline_ms"] = json!(DEADLINE_MS);
        client.hand_in(method, params);
    }
    std::thread::sleep(LATE);
    server.store.let_loads_go();
    for (client, (method, params)) in clients.iter_mut().zip(&asked) {
        let answer = client.answer();
        assert_eq!(answer["error"]["data"]["kind"], "overloaded", "{method} {params}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("`deadline_ms` passed"), "{method} {params}: {message}");
    }
    assert_eq!(all(&mut client), before);
}

#[test]
fn what_waits_for_the_act_of_another_beyond_its_deadline_is_refused_and_changes_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.hold();
    server.store.next([Fault::Full]);
    let mut first = server.client();
    first.send("network.update", json!({"network": "lan", "set": {"name": "wan"}}));
    assert!(first.waits_still(Duration::from_millis(100)));
    // One waits for the network, the other for its name.
    let (mut locked, mut named) = (server.client(), server.client());
    locked.hand_in("network.delete", json!({"network": "lan", "deadline_ms": DEADLINE_MS}));
    named.hand_in("network.create", json!({"name": "wan", "deadline_ms": DEADLINE_MS}));
    std::thread::sleep(LATE);
    server.store.let_go();
    assert_eq!(first.answer()["error"]["data"]["kind"], "unavailable");
    for late in [&mut locked, &mut named] {
        let answer = late.answer();
        assert_eq!(answer["error"]["data"]["kind"], "overloaded", "{answer}");
    }
    let networks = client.ok("network.list", json!({}));
    assert_eq!(networks["networks"].as_array().map(Vec::len), Some(1), "{networks}");
}

#[test]
fn what_was_begun_in_time_is_brought_to_its_end_in_every_network() {
    // For how long the first decision takes, until it has begun.
    let takes_ms = Arc::new(AtomicU64::new(0));
    let taken = Arc::clone(&takes_ms);
    let before_decide = move |command: &Command| {
        if matches!(command, Command::ReleaseOwner { limit: 1.., .. }) {
            std::thread::sleep(Duration::from_millis(taken.swap(0, Ordering::SeqCst)));
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
    let (lan, dmz) = two(&server);
    let mut client = server.client();
    for network in [&lan, &dmz] {
        client.ok("ip.allocate", json!({"network": network, "owner": "o"}));
    }
    // A machine on which it is not even begun in that time is given more.
    for deadline_ms in [DEADLINE_MS, 10 * DEADLINE_MS, 100 * DEADLINE_MS] {
        takes_ms.store(2 * deadline_ms, Ordering::SeqCst);
        let answer = client.call("owner.release", json!({"owner": "o", "deadline_ms": deadline_ms}));
        let is_begun = takes_ms.load(Ordering::SeqCst) == 0;
        if !is_begun && answer["error"]["data"]["kind"] == "overloaded" {
            continue;
        }
        assert_eq!(answer["result"]["released"].as_array().map(Vec::len), Some(2), "{answer}");
        return;
    }
    panic!("it was not begun in any time");
}
