//! Requests that were granted may be repeated blindly; and lists whose order would depend on randomly drawn network ids are
//! given in one fixed order.

use serde_json::{Value, json};

use crate::support::{Client, TestServer};

/// Creates networks with a limit each: a pool `a` of one address, and a pool `b`.
fn narrow(client: &mut Client, names: &[&str]) {
    for (at, name) in names.iter().enumerate() {
        let pool = |name: &str, range: &str| json!({"name": name, "range": format!("10.{at}.0.{range}")});
        let subnet = json!({"cidr": format!("10.{at}.0.0/28"), "pools": [pool("a", "1"), pool("b", "2+8")]});
        client.ok("network.create", json!({"name": name, "limits": {"per_owner": 1}, "subnets": [subnet]}));
    }
}

/// The network and address of each entry.
fn places(list: &Value) -> Vec<(String, String)> {
    let text = |one: &Value, member: &str| one[member].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(|one| (text(one, "network"), text(one, "address"))).collect()
}

#[test]
fn an_acquire_of_which_something_optional_found_no_room_is_answered_alike_when_it_is_asked_again() {
    let server = TestServer::new();
    let mut client = server.client();
    narrow(&mut client, &["lan", "dmz"]);
    for network in ["lan", "dmz"] {
        client.ok("ip.allocate", json!({"network": network, "pool": "a", "owner": "other"}));
    }
    let wish =
        |network: &str, pool: &str, optional: bool| json!({"network": network, "pool": pool, "optional": optional});
    let one = json!([wish("lan", "a", true), wish("lan", "b", false)]);
    let two = json!([wish("dmz", "b", false), wish("lan", "a", true), wish("dmz", "a", true), wish("lan", "b", false)]);
    for (ips, exact) in [(&one, false), (&one, true), (&two, false), (&two, true)] {
        for dry_run in [true, false] {
            let ask = json!({"owner": "vm", "ips": ips, "exact": exact, "dry_run": dry_run});
            let first = places(&client.ok("ip.acquire", ask.clone())["reservations"]);
            assert!(first.iter().all(|(_, address)| address.ends_with(".2")), "{first:?}");
            let again = client.ok("ip.acquire", ask);
            assert_eq!(places(&again["reservations"]), first);
            assert!(dry_run || again["reservations"].as_array().unwrap().iter().all(|one| one["created"] == false));
        }
        client.ok("owner.release", json!({"owner": "vm"}));
    }
}

#[test]
fn what_is_told_of_several_networks_goes_by_their_names_whatever_their_ids_are() {
    let server = TestServer::new();
    let mut client = server.client();
    let names = ["d", "b", "f", "a", "e", "c"];
    for name in names {
        let subnets = json!([{"cidr": "10.0.0.0/28"}]);
        client.ok("network.create", json!({"name": name, "realm": name, "subnets": subnets}));
        for slot in ["x", "y"] {
            client.ok("ip.allocate", json!({"network": name, "owner": "vm", "slot": slot}));
        }
    }
    let found = client.ok("ip.find", json!({"address": "10.0.0.1"}));
    let found: Vec<&str> =
        found["found"].as_array().unwrap().iter().map(|it| it["network"].as_str().unwrap()).collect();
    assert_eq!(found, ["a", "b", "c", "d", "e", "f"]);
    let unnamed = json!({"address": "10.0.0.1", "scope": "default", "claimant": "vm-1"});
    let error = client.call("ip.bind", unnamed)["error"].clone();
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("in network `a` and in network `b`"), "{message}");
    let ips: Vec<Value> = names.iter().map(|name| json!({"network": name, "slot": "z"})).collect();
    let exact = client.ok("ip.acquire", json!({"owner": "vm", "ips": ips, "exact": true}));
    let released = places(&exact["released"]);
    assert!(released.len() == 12 && released.is_sorted(), "{released:?}");
}
