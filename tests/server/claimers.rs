//! What ironcore's network interfaces and Ganeti's instances need from the protocol.

use serde_json::{Value, json};

use crate::stores;
use crate::support::{Client, TestServer};

fn public(server: &TestServer) -> Client {
    let mut client = server.client();
    let l2 = json!({"mac_prefix": "aa:00:00"});
    client.ok("network.create", json!({"name": "public", "l2": l2, "subnets": [{"cidr": "10.0.0.0/24"}]}));
    client.ok("network.create", json!({"name": "other", "l2": l2, "subnets": [{"cidr": "10.0.1.0/24"}]}));
    client
}

fn listed(client: &mut Client, filter: Value) -> Vec<String> {
    let answer = client.ok("ip.list", filter);
    answer["reservations"].as_array().unwrap().iter().map(|held| held["address"].as_str().unwrap().into()).collect()
}

/// The params of an Update: exactly these addresses, for this claimer.
fn update(addresses: &[&str]) -> Value {
    let ips: Value = addresses.iter().map(|address| json!({"address": address, "slot": address})).collect();
    json!({"network": "public", "scope": "ns", "owner": "nic-1", "ips": ips, "exact": true,
        "claimant": "uid-1", "release_with_claimant": true})
}

/// ironcore: "If an Update makes an address unused, it is released in that same update"; "addresses common to old and new
/// are kept, new ones allocated first".
#[test]
fn an_update_keeps_what_is_common_and_lets_the_rest_go_in_the_same_commit() {
    let server = TestServer::new();
    let mut client = public(&server);
    client.ok("ip.acquire", update(&["10.0.0.10", "10.0.0.11"]));
    let done = client.ok("ip.acquire", update(&["10.0.0.10", "10.0.0.12"]));
    let created: Vec<_> = done["reservations"].as_array().unwrap().iter().map(|one| one["created"].clone()).collect();
    assert_eq!(created, [json!(false), json!(true)], "{done}");
    assert_eq!(listed(&mut client, json!({"claimant": "uid-1"})), ["10.0.0.10", "10.0.0.12"]);
    let gone = client.ok("ip.get", json!({"network": "public", "address": "10.0.0.11"}));
    assert_ne!(gone["state"], "held");
    // Fewer addresses: those that are no longer asked for are released.
    client.ok("ip.acquire", update(&["10.0.0.12"]));
    assert_eq!(listed(&mut client, json!({"scope": "ns"})), ["10.0.0.12"]);
}

/// ironcore, "Bug to avoid": an update that fails gives back what it took, and keeps what it had.
#[test]
fn an_update_that_is_refused_leaves_everything_as_it_was() {
    let server = TestServer::new();
    let mut client = public(&server);
    client.ok("ip.claim", json!({"network": "public", "scope": "ns", "owner": "nic-2", "address": "10.0.0.13"}));
    client.ok("ip.acquire", update(&["10.0.0.10", "10.0.0.11"]));
    let before = client.ok("ip.list", json!({"scope": "ns"}))["reservations"].clone();
    assert_eq!(client.kind("ip.acquire", update(&["10.0.0.12", "10.0.0.13"])), "already_in_use");
    assert_eq!(client.ok("ip.list", json!({"scope": "ns"}))["reservations"], before);
    let free = client.ok("ip.get", json!({"network": "public", "address": "10.0.0.12"}));
    assert_eq!(free["state"], "free");
}

/// ironcore searches the IPs of the namespace; "multiple IPs found for address" is an error.
#[test]
fn an_address_is_bound_within_its_scope_without_its_network_and_in_no_other() {
    let server = TestServer::new();
    let mut client = public(&server);
    client.ok("ip.claim", json!({"network": "public", "scope": "ns", "owner": "public-ip-1", "address": "10.0.0.9"}));
    let bind = |scope: &str| json!({"address": "10.0.0.9", "scope": scope, "claimant": "uid-1"});
    assert_eq!(client.kind("ip.bind", bind("elsewhere")), "not_found");
    assert_eq!(client.ok("ip.bind", bind("ns"))["network"], "public");
    assert_eq!(client.ok("ip.bind", bind("ns"))["claimant"], "uid-1", "again by the same is success");
    let stolen = json!({"address": "10.0.0.9", "scope": "ns", "claimant": "uid-2"});
    assert_eq!(client.kind("ip.bind", stolen.clone()), "already_in_use");
    assert_eq!(client.kind("ip.unbind", stolen), "already_in_use");
    // The same address in another realm, in the same scope: the server must not guess which one is meant.
    let subnets = json!([{"cidr": "10.0.0.0/24"}]);
    client.ok("network.create", json!({"name": "twin", "realm": "lab", "subnets": subnets}));
    client.ok("ip.claim", json!({"network": "twin", "scope": "ns", "owner": "public-ip-1", "address": "10.0.0.9"}));
    let refused = client.call("ip.bind", bind("ns"));
    let data = &refused["error"]["data"];
    assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!("network")), "{refused}");
    let named = json!({"network": "twin", "address": "10.0.0.9", "claimant": "uid-1"});
    assert_eq!(client.ok("ip.bind", named)["network"], "twin");
}

/// ironcore: "Owner identity is the UID, not the name: a re-created object with the same name is another owner".
#[test]
fn an_object_that_was_made_again_under_its_name_is_another_owner() {
    let server = TestServer::new();
    let mut client = public(&server);
    let ask = |uid: &str| json!({"network": "public", "owner": "nic-1", "owner_uid": uid});
    let first = client.ok("ip.allocate", ask("uid-1"));
    assert_eq!(client.ok("ip.allocate", ask("uid-1"))["address"], first["address"]);
    let refused = client.call("ip.allocate", ask("uid-2"));
    assert_eq!(refused["error"]["data"]["kind"], "already_in_use", "{refused}");
}

/// Ganeti: a generated MAC has the network's prefix and stays with the instance.
#[test]
fn a_mac_that_is_made_up_lies_under_the_prefix_and_stays_until_the_reservation_ends() {
    let open = stores::reopened(4);
    let begin = || TestServer::over(open(), |_| {});
    let server = begin();
    let mut client = public(&server);
    let ask = json!({"network": "public", "owner": "vm-1", "mac": "auto", "hostname": "web.example.org"});
    let first = client.ok("ip.allocate", ask.clone());
    let mac = first["mac"].as_str().unwrap().to_owned();
    assert!(mac.starts_with("aa:00:00:"), "{mac}");
    assert_eq!(client.ok("ip.allocate", ask.clone())["mac"], mac, "asked again, it is the same");
    client.ok("ip.update", json!({"network": "public", "owner": "vm-1", "set": {"note": "moved"}}));
    client.ok("ip.bind", json!({"network": "public", "owner": "vm-1", "claimant": "host-7"}));
    drop(client);
    server.running.stop();
    let server = begin();
    let mut client = server.client();
    assert_eq!(client.ok("ip.allocate", ask)["mac"], mac, "and after a restart");
    // Found over all networks by what a machine knows of itself, even in another spelling.
    client.ok("ip.allocate", json!({"network": "other", "owner": "vm-2", "mac": "auto", "hostname": "db.example.org"}));
    let here = [first["address"].as_str().unwrap().to_owned()];
    assert_eq!(listed(&mut client, json!({"mac": mac})), here);
    assert_eq!(listed(&mut client, json!({"mac": mac.to_uppercase()})), here);
    assert_eq!(listed(&mut client, json!({"hostname": "web.example.org"})), here);
    assert_eq!(listed(&mut client, json!({"hostname": "nobody.example.org"})), [""; 0]);
    assert_eq!(listed(&mut client, json!({"mac": mac, "network": "other"})), [""; 0]);
}
